//! What an administrator lets be approved: which users, with which devices, how YubiKeys keep the keys, in which
//! groups, and for how long. It is read from a file. Each objection names the place in the file that it comes from.

mod file;

use std::fmt::{self, Display};
use std::time::Duration;

use crate::yubikey::{Firmware, PinPolicy, SerialNumber, Slot, TouchPolicy, YubiKeyClaims};
use crate::{Claims, DeviceClaims, Roots};
use messages::printable::quoted;

/// The file's `apiVersion`.
pub const API_VERSION: &str = "pkcs11-external-signer/v1alpha1";
/// The file's `kind`.
pub const KIND: &str = "ApprovalPolicy";

/// A policy that was read. What it doesn't allow is refused; what it allows may be refused for other reasons.
#[derive(Debug)]
pub struct Policy {
    /// The SHA-256 of the file, in hexadecimal digits.
    pub sha256: String,
    /// The roots for attestations of YubiKeys: those of the file, or else Yubico's.
    pub roots: Roots,
    /// The program that judges the attestations of other devices; `None` refuses them.
    pub verifier: Option<VerifierCommand>,
    requirements: Requirements,
    longest: Option<Placed<Lifetime>>,
    users: Placed<Vec<User>>,
}

/// A verifier as a policy's file names it.
#[derive(Clone, Debug)]
pub struct VerifierCommand {
    /// Where the verifier is named in the file.
    pub place: Place,
    /// The program: an absolute path, or one that begins at the policy's directory.
    pub program: String,
    pub arguments: Vec<String>,
}

/// What a request asks for, who makes it, and what is proven of its key.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// Who makes the request.
    pub requester: &'a str,
    /// The user that the certificate is for.
    pub user: Option<&'a str>,
    pub groups: &'a [String],
    /// For how many seconds the certificate is to be valid; `None` leaves it to the cluster's signer.
    pub seconds: Option<i64>,
    /// What is proven of the key; `None` if nothing shows that it is in hardware.
    pub claims: Option<&'a Claims>,
}

/// A place in a policy's file, shown as `line 12 (users[1].serialNumbers)`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Place {
    /// The line, counted from 1.
    line: u64,
    field: String,
}

/// Something that a policy doesn't allow, shown as its place and the reason. User names in it are as they were asked
/// for, not yet fit for a terminal.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Objection {
    place: Place,
    reason: String,
}

#[derive(Debug)]
struct Placed<T> {
    value: T,
    place: Place,
}

#[derive(Debug)]
struct User {
    name: Placed<String>,
    /// Who makes the user's requests, if it isn't the user.
    requester: Option<Placed<String>>,
    devices: UserDevices,
    groups: Option<Placed<Vec<String>>>,
    requirements: Requirements,
}

/// The devices in which the user's keys may be.
#[derive(Debug)]
struct UserDevices {
    /// Where the devices are named in the file. If two fields name them, it is the place of the first.
    place: Place,
    /// The serial numbers of YubiKeys.
    serial_numbers: Vec<SerialNumber>,
    /// The names that the verifier has for other devices.
    names: Vec<String>,
}

/// How a YubiKey has to keep a key. A requirement that isn't given isn't checked.
#[derive(Debug, Default)]
struct Requirements {
    least_firmware: Option<Placed<Firmware>>,
    pin_policies: Option<Placed<Vec<PinPolicy>>>,
    touch_policies: Option<Placed<Vec<TouchPolicy>>>,
    slots: Option<Placed<Vec<Slot>>>,
}

#[derive(Debug)]
struct Lifetime {
    duration: Duration,
    /// The text in the file, such as `90d`.
    text: String,
}

impl Policy {
    /// Everything about the request that isn't allowed. Empty if the request is allowed.
    pub fn objections(&self, asked: &Asked<'_>) -> Vec<Objection> {
        let Some(user) = self.user(asked.user) else {
            return vec![self.users.objection(match asked.user {
                Some(name) => format!("user {name:?} is none of these"),
                None => "the request names no user".to_owned(),
            })];
        };
        let mut found = Vec::new();
        found.extend(user.requester_objection(asked.requester));
        found.extend(user.devices.objection(asked.claims));
        if let Some(Claims::YubiKey(claims)) = asked.claims {
            found.extend(self.requirements.objections(claims));
            found.extend(user.requirements.objections(claims));
        }
        found.extend(user.groups_objection(asked));
        found.extend(self.lifetime_objection(asked.seconds));
        found
    }

    /// Whether this requester, who isn't the user, makes the requests for this user.
    pub fn has_requester(&self, user: &str, requester: &str) -> bool {
        let named = self.user(Some(user)).and_then(|user| user.requester.as_ref());
        named.is_some_and(|named| named.value == requester)
    }

    /// Whether the user may have keys in other devices than YubiKeys.
    pub fn has_device_for(&self, user: &str) -> bool {
        self.user(Some(user)).is_some_and(|user| !user.devices.names.is_empty())
    }

    /// How many users the policy names.
    pub fn user_count(&self) -> usize {
        self.users.value.len()
    }

    fn user(&self, name: Option<&str>) -> Option<&User> {
        self.users.value.iter().find(|user| name == Some(user.name.value.as_str()))
    }

    fn lifetime_objection(&self, seconds: Option<i64>) -> Option<Objection> {
        let longest = self.longest.as_ref()?;
        let Lifetime { duration, text } = &longest.value;
        let reason = match seconds.map(u64::try_from) {
            Some(Ok(seconds)) if seconds <= duration.as_secs() => return None,
            Some(_) => format!("the request is for longer than {text}"),
            None => format!(
                "the request leaves its time to the signer; `enroll --duration {text}` does not"
            ),
        };
        Some(longest.objection(reason))
    }
}

impl User {
    fn requester_objection(&self, requester: &str) -> Option<Objection> {
        // Users renew their keys themselves.
        let named = self.requester.as_ref()?;
        if named.value == requester || self.name.value == requester {
            return None;
        }
        Some(named.objection(format!("the request is made by {requester:?}")))
    }

    /// Objects to groups. Those that the attestation opens are allowed by it.
    fn groups_objection(&self, asked: &Asked<'_>) -> Option<Objection> {
        let opened = asked.claims.map_or_else(Vec::new, |claims| claims.groups().to_vec());
        let allowed = self.groups.as_ref().map_or(&[][..], |groups| &groups.value);
        let others = asked.groups.iter();
        let others = others.filter(|group| !opened.contains(group) && !allowed.contains(group));
        let others: Vec<_> = others.cloned().collect();
        if others.is_empty() {
            return None;
        }
        let others = quoted(&others);
        Some(match &self.groups {
            Some(groups) => groups.objection(format!("the request is also for {others}")),
            None => self.name.objection(format!("the user has no groups, and wants {others}")),
        })
    }
}

impl UserDevices {
    /// Objects to a key that is in none of the devices.
    fn objection(&self, claims: Option<&Claims>) -> Option<Objection> {
        let (is_named, device) = match claims {
            Some(Claims::YubiKey(claims)) => {
                let number = claims.serial_number;
                (self.serial_numbers.contains(&number), format!("YubiKey {number}"))
            }
            Some(Claims::Device(DeviceClaims { device, .. })) => {
                (self.names.contains(device), device.clone())
            }
            None => {
                let reason = "nothing shows that the key is in one of these".to_owned();
                return Some(Objection { place: self.place.clone(), reason });
            }
        };
        if is_named {
            return None;
        }
        let reason = format!("the key is in {device}, which is none of these");
        Some(Objection { place: self.place.clone(), reason })
    }
}

impl Requirements {
    fn objections(&self, claims: &YubiKeyClaims) -> Vec<Objection> {
        let Self { least_firmware, pin_policies, touch_policies, slots } = self;
        let firmware = least_firmware.as_ref().filter(|least| claims.firmware < least.value);
        let firmware = firmware.map(|least| {
            least.objection(format!("the YubiKey's firmware is older: {}", claims.firmware))
        });
        let kept = [
            other_than(pin_policies, &claims.pin_policy, ""),
            other_than(touch_policies, &claims.touch_policy, ""),
            other_than(slots, &claims.slot, "slot "),
        ];
        firmware.into_iter().chain(kept.into_iter().flatten()).collect()
    }
}

/// The reason if the claim is none of those that are allowed. `kind` says what is claimed, if its own text doesn't.
fn other_than<T: Display + PartialEq>(
    allowed: &Option<Placed<Vec<T>>>,
    claimed: &T,
    kind: &str,
) -> Option<Objection> {
    let allowed = allowed.as_ref().filter(|allowed| !allowed.value.contains(claimed))?;
    Some(allowed.objection(format!("the key has {kind}{claimed}")))
}

impl<T> Placed<T> {
    fn objection(&self, reason: impl Into<String>) -> Objection {
        Objection { place: self.place.clone(), reason: reason.into() }
    }
}

impl Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {} ({})", self.line, self.field)
    }
}

impl Display for Objection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.reason)
    }
}

#[cfg(test)]
mod tests;
