//! A policy's file: YAML with known fields only. Any other field is refused, since it would be a rule that nobody
//! heeds.

use std::fmt::Display;

use serde::{Deserialize, Deserializer};
use serde_saphyr::options::MergeKeyPolicy;
use serde_saphyr::{Location, Spanned};

use super::{
    API_VERSION, KIND, Lifetime, Place, Placed, Policy, Requirements, User, UserDevices,
    VerifierCommand,
};
use crate::Roots;
use crate::external_verifier::{DEVICE_NAME, is_device_name};
use crate::yubikey::{Firmware, PinPolicy, SerialNumber, Slot, TouchPolicy};
use crypto::certificate::fingerprint;
use messages::error::{Error, Exit};
use messages::printable::excerpt;

/// The word that stands for Yubico's roots.
const YUBICO: &str = "yubico";

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct PolicyFile {
    api_version: Spanned<String>,
    kind: Spanned<String>,
    #[serde(default, deserialize_with = "given")]
    roots: Option<Vec<Spanned<String>>>,
    #[serde(default, deserialize_with = "given")]
    verifier: Option<Spanned<Vec<String>>>,
    #[serde(default, deserialize_with = "given")]
    require: Option<RequirementsEntry>,
    #[serde(default, deserialize_with = "given")]
    max_lifetime: Option<Spanned<String>>,
    users: Spanned<Vec<UserEntry>>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct RequirementsEntry {
    #[serde(default, deserialize_with = "given")]
    min_firmware: Option<Spanned<String>>,
    #[serde(default, deserialize_with = "given")]
    pin_policies: Option<Spanned<Vec<Spanned<String>>>>,
    #[serde(default, deserialize_with = "given")]
    touch_policies: Option<Spanned<Vec<Spanned<String>>>>,
    #[serde(default, deserialize_with = "given")]
    slots: Option<Spanned<Vec<Spanned<String>>>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct UserEntry {
    name: Spanned<String>,
    #[serde(default, deserialize_with = "given")]
    requester: Option<Spanned<String>>,
    #[serde(default, deserialize_with = "given")]
    serial_numbers: Option<Spanned<Vec<u32>>>,
    #[serde(default, deserialize_with = "given")]
    devices: Option<Spanned<Vec<Spanned<String>>>>,
    #[serde(default, deserialize_with = "given")]
    groups: Option<Spanned<Vec<String>>>,
    #[serde(default, deserialize_with = "given")]
    require: Option<Spanned<RequirementsEntry>>,
}

/// Reads a field. An empty one is an error: taken for a field that was left out, it would weaken the policy.
fn given<'de, T: Deserialize<'de>, D: Deserializer<'de>>(data: D) -> Result<Option<T>, D::Error> {
    T::deserialize(data).map(Some)
}

impl Policy {
    /// Reads a policy. Messages call the file `source`.
    pub fn from_yaml(content: &[u8], source: &str) -> Result<Self, Error> {
        let text = str::from_utf8(content).map_err(|_| refused(source, "", "it is not UTF-8"))?;
        let options = serde_saphyr::options! { merge_keys: MergeKeyPolicy::Error };
        let file: PolicyFile = serde_saphyr::from_str_with_options(text, options)
            .map_err(|error| unreadable(source, &error))?;
        Reader { source }.policy(file, fingerprint(content))
    }
}

/// The error for a file that isn't a policy.
fn refused(source: &str, place: impl Display, reason: impl Display) -> Error {
    let text = match place.to_string() {
        place if place.is_empty() => format!("{source} is not a valid policy: {reason}"),
        place => format!("{source} is not a valid policy: {place}: {reason}"),
    };
    Error::new(Exit::Configuration, text)
        .help("docs/policy.md has the fields of a policy, and one to begin with")
}

fn unreadable(source: &str, error: &serde_saphyr::Error) -> Error {
    use serde_saphyr::Error as Yaml;
    let reason = match error.without_snippet() {
        Yaml::SerdeUnknownField { field, expected, .. } => {
            format!(
                "unknown field {:?}; the known ones are {}",
                excerpt(field),
                expected.join(", ")
            )
        }
        Yaml::SerdeMissingField { field, .. } => format!("the field {field} is missing"),
        Yaml::DuplicateMappingKey { key: Some(key), .. } => {
            format!("field {:?} is there twice", excerpt(key))
        }
        Yaml::Budget { .. } => "it is too large for a policy".to_owned(),
        _ => "this can't be read, or something else belongs here".to_owned(),
    };
    let line = error.location().filter(|place| *place != Location::UNKNOWN);
    refused(source, line.map_or_else(String::new, |place| format!("line {}", place.line())), reason)
}

fn placed<S, T>(spanned: &Spanned<S>, field: impl Into<String>, value: T) -> Placed<T> {
    Placed { value, place: Place { line: spanned.referenced.line(), field: field.into() } }
}

fn given_at<T>(spanned: Spanned<T>, field: String) -> Placed<T> {
    let place = placed(&spanned, field, ()).place;
    Placed { value: spanned.value, place }
}

/// Reads the values of a file that has the right fields.
struct Reader<'a> {
    source: &'a str,
}

impl Reader<'_> {
    fn policy(&self, file: PolicyFile, sha256: String) -> Result<Policy, Error> {
        let PolicyFile { api_version, kind, roots, verifier, require, max_lifetime, users } = file;
        self.demand(&api_version, "apiVersion", API_VERSION)?;
        self.demand(&kind, "kind", KIND)?;
        let verifier = verifier.map(|command| self.verifier(&command)).transpose()?;
        if verifier.is_none() {
            self.check_no_devices(&users.value)?;
        }
        Ok(Policy {
            sha256,
            roots: self.roots(roots)?,
            verifier,
            requirements: self.requirements(require.unwrap_or_default(), "")?,
            longest: max_lifetime.map(|text| self.lifetime(text)).transpose()?,
            users: self.users(users)?,
        })
    }

    fn refused<S>(&self, spanned: &Spanned<S>, field: &str, reason: impl Display) -> Error {
        refused(self.source, placed(spanned, field, ()).place, reason)
    }

    fn demand(&self, found: &Spanned<String>, field: &str, wanted: &str) -> Result<(), Error> {
        if found.value == wanted {
            return Ok(());
        }
        let found_text = excerpt(&found.value);
        Err(self.refused(found, field, format!("{found_text:?} is not {wanted}")))
    }

    fn roots(&self, entries: Option<Vec<Spanned<String>>>) -> Result<Roots, Error> {
        let Some(entries) = entries else { return Roots::yubico() };
        let mut roots = Roots::none()?;
        for (index, entry) in entries.iter().enumerate() {
            let place = placed(entry, format!("roots[{index}]"), ()).place;
            roots = roots.and(match entry.value.as_str() {
                YUBICO => Roots::yubico()?,
                pem => Roots::from_pem(pem.as_bytes(), &format!("{}, {place},", self.source))?,
            });
        }
        Ok(roots)
    }

    fn verifier(&self, command: &Spanned<Vec<String>>) -> Result<VerifierCommand, Error> {
        let field = "verifier";
        match command.value.split_first() {
            Some((program, arguments)) if !program.is_empty() => Ok(VerifierCommand {
                place: placed(command, field, ()).place,
                program: program.clone(),
                arguments: arguments.to_vec(),
            }),
            _ => Err(self.refused(command, field, "it names no program")),
        }
    }

    /// Fails if users have devices and nothing names such devices: nobody's key could be in one.
    fn check_no_devices(&self, users: &[UserEntry]) -> Result<(), Error> {
        for (index, user) in users.iter().enumerate() {
            if let Some(devices) = &user.devices {
                let reason = "without a verifier no key can be shown to be in a device";
                return Err(self.refused(devices, &format!("users[{index}].devices"), reason));
            }
        }
        Ok(())
    }

    /// Parses a lifetime. Months and years are refused, since they differ in length, and `1M` could be meant as a
    /// minute.
    fn lifetime(&self, text: Spanned<String>) -> Result<Placed<Lifetime>, Error> {
        let field = "maxLifetime";
        let is_exact =
            text.value.chars().all(|part| part.is_ascii_digit() || "smhdw ".contains(part));
        let duration =
            config::duration(&text.value).ok().filter(|_| is_exact).ok_or_else(|| {
                let reason = "it is not a duration in w, d, h, m and s, such as 8h or 90d";
                self.refused(&text, field, reason)
            })?;
        let lifetime = Lifetime { duration, text: text.value.clone() };
        Ok(placed(&text, field, lifetime))
    }

    fn users(&self, entries: Spanned<Vec<UserEntry>>) -> Result<Placed<Vec<User>>, Error> {
        let place = placed(&entries, "users", ()).place;
        let mut users = Vec::<User>::new();
        for (index, entry) in entries.value.into_iter().enumerate() {
            let name = &entry.name;
            if users.iter().any(|user| user.name.value == name.value) {
                let reason = format!("user {:?} is there twice", excerpt(&name.value));
                return Err(self.refused(name, &format!("users[{index}].name"), reason));
            }
            users.push(self.user(entry, &format!("users[{index}]"))?);
        }
        Ok(Placed { value: users, place })
    }

    /// Reads the entry of a user. `path` leads to it, as in `users[1]`.
    fn user(&self, entry: UserEntry, path: &str) -> Result<User, Error> {
        let UserEntry { name, requester, serial_numbers, devices, groups, require } = entry;
        let name = given_at(name, format!("{path}.name"));
        if let (None, Some(require)) = (&serial_numbers, &require) {
            let reason = "it is about YubiKeys, and the user has no serialNumbers";
            return Err(self.refused(require, &format!("{path}.require"), reason));
        }
        let devices = self.devices(serial_numbers, devices, &name, path)?;
        let groups = groups.map(|groups| given_at(groups, format!("{path}.groups")));
        let requester = requester.map(|named| given_at(named, format!("{path}.requester")));
        let require = require.map(|require| require.value).unwrap_or_default();
        let requirements = self.requirements(require, &format!("{path}."))?;
        Ok(User { name, requester, devices, groups, requirements })
    }

    /// Reads the devices of the user with this name.
    fn devices(
        &self,
        serial_numbers: Option<Spanned<Vec<u32>>>,
        names: Option<Spanned<Vec<Spanned<String>>>>,
        user: &Placed<String>,
        path: &str,
    ) -> Result<UserDevices, Error> {
        let at = |field: &str| format!("{path}.{field}");
        let of_numbers =
            serial_numbers.as_ref().map(|numbers| placed(numbers, at("serialNumbers"), ()).place);
        let of_names = names.as_ref().map(|names| placed(names, at("devices"), ()).place);
        let place = of_numbers.or(of_names).ok_or_else(|| {
            let reason = "neither serialNumbers nor devices says where the user's key may be";
            refused(self.source, &user.place, reason)
        })?;
        let mut known = Vec::new();
        for name in names.into_iter().flat_map(|names| names.value) {
            if !is_device_name(&name.value) {
                let reason = format!("{:?} is not {DEVICE_NAME}", excerpt(&name.value));
                return Err(self.refused(&name, &at("devices"), reason));
            }
            known.push(name.value);
        }
        let numbers = serial_numbers.into_iter().flat_map(|numbers| numbers.value);
        let serial_numbers = numbers.map(SerialNumber).collect();
        Ok(UserDevices { place, serial_numbers, names: known })
    }

    /// Reads an entry. `path` leads to it: it is empty, or as in `users[1].`.
    fn requirements(&self, entry: RequirementsEntry, path: &str) -> Result<Requirements, Error> {
        let RequirementsEntry { min_firmware, pin_policies, touch_policies, slots } = entry;
        let field = |name: &str| format!("{path}require.{name}");
        let firmware = min_firmware.map(|text| self.firmware(&text, &field("minFirmware")));
        Ok(Requirements {
            least_firmware: firmware.transpose()?,
            pin_policies: self.allowed(pin_policies, &field("pinPolicies"), pin_policy)?,
            touch_policies: self.allowed(touch_policies, &field("touchPolicies"), touch_policy)?,
            slots: self.allowed(slots, &field("slots"), slot)?,
        })
    }

    fn firmware(&self, text: &Spanned<String>, field: &str) -> Result<Placed<Firmware>, Error> {
        let firmware = Firmware::from_text(&text.value).ok_or_else(|| {
            let found = excerpt(&text.value);
            self.refused(text, field, format!("{found:?} is not a firmware version such as 5.7.4"))
        })?;
        Ok(placed(text, field, firmware))
    }

    /// Reads a list of what is allowed. `named` returns what a text stands for, or else which texts there are.
    fn allowed<T>(
        &self,
        list: Option<Spanned<Vec<Spanned<String>>>>,
        field: &str,
        named: fn(&str) -> Result<T, &'static str>,
    ) -> Result<Option<Placed<Vec<T>>>, Error> {
        let Some(list) = list else { return Ok(None) };
        let mut values = Vec::new();
        for item in &list.value {
            values.push(named(&item.value).map_err(|known| {
                let found = excerpt(&item.value);
                self.refused(item, field, format!("{found:?} is not one of {known}"))
            })?);
        }
        Ok(Some(placed(&list, field, values)))
    }
}

fn pin_policy(name: &str) -> Result<PinPolicy, &'static str> {
    Ok(match name {
        "never" => PinPolicy::Never,
        "once" => PinPolicy::Once,
        "always" => PinPolicy::Always,
        "matchOnce" => PinPolicy::MatchOnce,
        "matchAlways" => PinPolicy::MatchAlways,
        _ => return Err("never, once, always, matchOnce and matchAlways"),
    })
}

fn touch_policy(name: &str) -> Result<TouchPolicy, &'static str> {
    Ok(match name {
        "never" => TouchPolicy::Never,
        "always" => TouchPolicy::Always,
        "cached" => TouchPolicy::Cached,
        _ => return Err("never, always and cached"),
    })
}

fn slot(name: &str) -> Result<Slot, &'static str> {
    Slot::from_name(name).ok_or("9a, 9c, 9d, 9e and 82 to 95")
}
