//! The key that a command is about, and the configuration that names it. The key is the one that is named, the only one
//! that can be used, or the one that a person picks.

use std::path::PathBuf;

use super::options::{KeyOptions, KeySource, set};
use crate::cli::listing::NONE_FITS;
use crate::cli::listing::{
    KeyEntry, KeyNote, Listing, SelectedKey, TokenEntry, among, none_fits, token_configuration,
};
use crate::cli::question;
use crate::cli::session::{CommandSession, StartingSession};
use config::pin::PinProvider;
use config::{Config, Filter, ObjectSelector, TokenSelector};
use kubeconfig::NO_CONTEXT_KEY;
use messages::error::{Error, Exit, Kind, PLUGIN, PROGRAM};
use messages::help::Help;
use messages::printable::shell_word;
use messages::report;
use protocol::Configuration;
use system::clock::unix_time;
use system::environment::TakenVariables;
use token::kind;
use token::{Identity, KeyReference, Token};

/// Several keys match.
pub(crate) const SEVERAL_KEYS: Kind = Kind::new("several keys");

/// No token has a key that can be used.
pub(crate) const NO_USABLE_KEY: Kind = Kind::new("no usable key");

/// A source that names a key, before a library is loaded to complete it.
pub(in crate::cli) struct NamedSource {
    source: KeySource,
    /// Why the current context names no key, if no option names one either.
    unnamed: Option<Error>,
}

impl NamedSource {
    /// The configuration that is known so far.
    pub(in crate::cli) fn configuration(&self) -> Configuration {
        self.source.configuration.clone()
    }
}

/// A source that names a key in full, and the session in which the key can be opened.
pub(in crate::cli) struct WholeSource<'a> {
    pub(in crate::cli) source: KeySource,
    /// The variable that the source names for the PIN, with its value.
    pub(in crate::cli) variables: TakenVariables,
    pub(in crate::cli) session: &'a mut CommandSession,
}

impl KeyOptions {
    /// Lists what is on the token that the options name, or on all tokens.
    pub(in crate::cli) fn look(
        &self,
        login: Option<&TakenVariables>,
        session: &mut CommandSession,
    ) -> Result<Listing, Error> {
        // All objects are listed, so that the error for a missing one can say which there are.
        let of_token = self.of_token();
        let mut listing = of_token.list(login, session)?;
        // A token that couldn't be read may be the one with the key.
        let of_libraries = listing.libraries.iter().filter_map(|library| library.error.as_ref());
        let of_tokens = listing.tokens().filter_map(|(_, token)| token.error.as_ref());
        for fault in of_libraries.filter(|fault| fault.is_busy).chain(of_tokens) {
            report::warning(&format!("not everything was seen: {}", fault.message));
        }
        if let Some(error) = of_token.miss(&listing) {
            return Err(error);
        }
        let wanted = self.filter()?.object;
        // The certificate of a CA is listed only if it is named.
        if wanted.is_given() && !listing.keys().any(|selected| selected.key.fits(&wanted)) {
            let named = self.list(None, session)?;
            if named.keys().next().is_some() {
                listing = named;
            }
        }
        Ok(listing)
    }

    /// Names the key in full: as the options or a context name it, and with what they leave out if there is only one or
    /// a person picks one. If it `may_guess`, nothing need name a key.
    pub(in crate::cli) fn whole_source<'a>(
        &self,
        may_guess: bool,
        start: StartingSession<'a>,
    ) -> Result<WholeSource<'a>, Error> {
        let named = self.named_source(may_guess)?;
        let (session, variables) = start.take_pin_variable(named.configuration());
        let source = self.completed(named, session)?;
        Ok(WholeSource { source, variables, session })
    }

    /// Reads which key the options or a context name, without loading a library. If it `may_guess`, nothing need name a
    /// key.
    pub(in crate::cli) fn named_source(&self, may_guess: bool) -> Result<NamedSource, Error> {
        let may_guess = may_guess && self.context.is_none() && self.kubeconfig.is_none();
        match self.source() {
            Err(error) if may_guess && error.is(&NO_CONTEXT_KEY) => {
                Ok(NamedSource { source: self.options_source(), unnamed: Some(error) })
            }
            source => Ok(NamedSource { source: source?, unnamed: None }),
        }
    }

    /// Completes the source with what the options leave out, if there is only one or a person picks one.
    pub(in crate::cli) fn completed(
        &self,
        NamedSource { mut source, unnamed }: NamedSource,
        session: &mut CommandSession,
    ) -> Result<KeySource, Error> {
        if source.context.is_none() {
            let found = self.complete(&mut source.configuration, session);
            source.found = match (found, unnamed) {
                // If there are several keys, the error lists them. If there is none, what is wrong is that nothing
                // names one.
                (Err(error), Some(why)) if !error.is(&SEVERAL_KEYS) => return Err(why),
                (found, unnamed) => found?.map(|uri| (uri, unnamed)),
            };
        }
        Ok(source)
    }

    /// Adds what the options don't say of library, token and key. Returns the URI of the key, or `None` if nothing was
    /// missing.
    fn complete(
        &self,
        map: &mut Configuration,
        session: &mut CommandSession,
    ) -> Result<Option<String>, Error> {
        let named = self.filter()?;
        if named.library.is_some() && named.token.is_given() && named.object.is_given() {
            return Ok(None);
        }
        let listing = self.look(None, session)?;
        session.close_library();
        // If there is only one key, using it shows what is wrong with it.
        let mut keys = listing.keys();
        let only_key = keys.next().filter(|_| keys.next().is_none());
        let chosen = match (self.choose(&listing), only_key) {
            (Err(error), Some(only_key)) if error.is(&NO_USABLE_KEY) => Ok(only_key),
            (chosen, _) => chosen,
        };
        let mut tokens = listing.tokens();
        let (config, uri) = match (chosen, tokens.next().filter(|_| tokens.next().is_none())) {
            (Ok(selected), _) => {
                (key_configuration(None, selected, None), selected.key.uri.clone())
            }
            // The token may hide the key until a login.
            (Err(error), Some((library, token))) if error.is(&NONE_FITS) => {
                (token_configuration(library, token), format!("token {}", token.name))
            }
            (Err(error), _) => return Err(error),
        };
        *map = config.pairs().chain(map.pairs()).collect();
        Ok(Some(uri))
    }

    /// Chooses a key: the one that is named, the only one that can be used, or the one that the person picks.
    pub(in crate::cli) fn choose<'a>(
        &self,
        listing: &'a Listing,
    ) -> Result<SelectedKey<'a>, Error> {
        let wanted = self.filter()?.object;
        let has_file = self.certificate_file.is_some();
        let can_be_meant = |key: &KeyEntry| {
            if wanted.is_given() {
                key.fits(&wanted)
            } else {
                key.usable || has_file && !key.notes.contains(&KeyNote::NoPrivateKey)
            }
        };
        let mut found: Vec<SelectedKey<'_>> =
            listing.keys().filter(|selected| can_be_meant(selected.key)).collect();
        let is_superseded =
            |selected: &SelectedKey<'_>| selected.key.notes.contains(&KeyNote::Superseded);
        if !found.iter().all(is_superseded) {
            found.retain(|selected| !is_superseded(selected));
        }
        // Nobody can choose among keys that nothing tells apart. The error comes when the selection is tried.
        found.dedup_by(|one, other| one.key.uri == other.key.uri);
        match found.as_slice() {
            [only] => Ok(*only),
            [] => {
                if let Some(busy) = listing.busy() {
                    return Err(busy);
                }
                let there: Vec<_> = listing.keys().map(described).collect();
                Err(if wanted.is_given() {
                    none_fits(&wanted, &there)
                } else {
                    listing.emptiness().unwrap_or_else(|| no_usable(&there))
                })
            }
            several => pick(several),
        }
    }

    /// The name of the key's user: `requested`, or what the certificate or the label says. The key is looked at as the
    /// configuration that is written finds it, with the certificate of the file, if one is named. Nothing is done that
    /// needs a PIN.
    pub(in crate::cli) fn user_name(
        &self,
        requested: Option<&str>,
        selected: SelectedKey<'_>,
        session: &mut CommandSession,
    ) -> Result<String, Error> {
        let key = selected.key;
        let file = self.certificate_file.as_deref();
        let config = Config::from_map(&mut key_configuration(file, selected, None))?;
        let mut token = session.open(&config)?.token(&config.token)?;
        let mut of_certificate =
            key.certificate.as_ref().and_then(|certificate| certificate.user.clone());
        match token.identity(&config, None) {
            Ok(Identity { certificate, .. }) if file.is_some() => {
                for warning in certificate.warnings(unix_time()) {
                    report::warning(&warning);
                }
                of_certificate = certificate.user;
            }
            Ok(_) => {}
            Err(error) if error.is(&kind::CERTIFICATE_UNSEEN) => {}
            // The key was named although it has no certificate, or none yet.
            Err(error) if file.is_none() && key.certificate.is_none() => {
                report::warning(&format!("nothing works with this user yet: {error}"));
            }
            Err(error) => return Err(error),
        }
        let mut names = of_certificate.into_iter().chain([key.object_label.clone()]);
        let name = requested.map(str::to_owned).or_else(|| names.find(|name| !name.is_empty()));
        name.filter(|name| !name.is_empty()).ok_or_else(|| {
            Error::new(Exit::Configuration, "the user in the kubeconfig would have no name").help(
                "name it with --user; without that, it would be called like the certificate's CN or the key's label",
            )
        })
    }
}

/// The key that the person at the terminal picks. An error lists the keys if nobody picks one.
fn pick<'a>(found: &[SelectedKey<'a>]) -> Result<SelectedKey<'a>, Error> {
    let items: Vec<_> = found.iter().map(|selected| described(*selected)).collect();
    let picked = question::pick("Which key?", &items);
    if let Some(picked) = picked.and_then(|index| found.get(index)) {
        return Ok(*picked);
    }
    let option = |selected: &SelectedKey<'_>| format!("--uri={}", shell_word(&selected.key.uri));
    let options: Vec<_> = found.iter().map(option).collect();
    Err(Error::new(Exit::Object, format!("{} keys match", options.len()))
        .help(Help::from("name one:").with_candidates(&options))
        .kind(SEVERAL_KEYS))
}

/// The error that none of the keys can be used. `found` describes them, each with what is wrong with it.
fn no_usable(found: &[String]) -> Error {
    let help = "correct what is wrong with one of these (docs/tokens.md#a-key-and-its-certificate says how to \
                get a certificate), or choose one as it is with --object-id:";
    Error::new(Exit::Object, "no usable key was found").help(among(found, help)).kind(NO_USABLE_KEY)
}

/// Describes a key in one line: `CN=jane, RSA-2048, expires 2026-11-22 14:05 UTC, serial number 0A; object 2 on token
/// "prod" (serial 5d9c, slotId 1), LIBRARY`.
fn described(selected: SelectedKey<'_>) -> String {
    let SelectedKey { library, token, key } = selected;
    let mut parts = vec![key.kind.clone()];
    if let Some(certificate) = &key.certificate {
        parts.insert(0, certificate.subject.clone());
        parts.push(format!("expires {}", certificate.expires));
        parts.push(format!("serial number {}", certificate.serial_number));
    }
    parts.extend(key.notes.iter().map(KeyNote::to_string));
    parts.extend(token.pin_note().map(|(note, _)| note.to_owned()));
    let parts = parts.join(", ");
    let object = key.object_id.as_deref().unwrap_or(&key.object_label);
    let token = &token.name;
    let path = &library.path_lib;
    format!("{parts}; object {object} on token {token}, {path}")
}

/// The configuration that selects the key.
pub(in crate::cli) fn key_configuration(
    certificate_file: Option<&str>,
    selected: SelectedKey<'_>,
    pin_source: Option<&str>,
) -> Configuration {
    let SelectedKey { library, token, key } = selected;
    let mut configuration = token_configuration(library, token);
    set(&mut configuration, "pathExec", program().as_deref());
    set(&mut configuration, "objectId", key.object_id.as_deref());
    set(&mut configuration, "objectLabel", key.needs_label.then_some(&*key.object_label));
    set(&mut configuration, "certificateFile", certificate_file);
    set(&mut configuration, "pinSource", pin_source);
    configuration
}

/// The path of this program that outlives an update: as PATH finds it, or as it was started. Links are not followed.
fn program() -> Option<String> {
    let executable = std::env::current_exe().ok()?.canonicalize().ok()?.with_file_name(PROGRAM);
    let folders = std::env::var_os("PATH").unwrap_or_default();
    // kubectl's plugin manager installs only the second name.
    let started = std::env::args_os()
        .next()
        .map(PathBuf::from)
        // A name without a folder was looked up in PATH.
        .filter(|path| path.components().count() > 1)
        .and_then(|path| std::path::absolute(path).ok());
    let found = [PROGRAM, PLUGIN]
        .into_iter()
        .flat_map(|name| std::env::split_paths(&folders).map(move |folder| folder.join(name)))
        .chain(started)
        .filter(|path| path.is_absolute())
        .find(|path| path.canonicalize().is_ok_and(|file| file == executable));
    found.unwrap_or(executable).into_os_string().into_string().ok()
}

/// Whether a configuration names this key and no other one, by any selectors. If it has a URI, that is unfolded into
/// them.
pub(in crate::cli) fn names_key(
    configuration: &mut Configuration,
    selected: SelectedKey<'_>,
) -> bool {
    let SelectedKey { library, token, key } = selected;
    let path = configuration.take("pathLib");
    let Ok(Filter { token: wanted_token, object: wanted_object, .. }) =
        Filter::from_map(configuration)
    else {
        return false;
    };
    let is_same_library = path.is_none_or(|path| *path == library.path_lib);
    names_token(&wanted_token, is_same_library, token) && names_object(&wanted_object, key)
}

/// Whether the selectors fit the token, and tell it from the others that are known.
fn names_token(wanted: &TokenSelector, is_same_library: bool, token: &TokenEntry) -> bool {
    let TokenEntry { name, needs_label, needs_slot_id, .. } = token;
    let is = |wanted: &Option<String>, actual: &str| {
        wanted.as_deref().is_none_or(|wanted| wanted.trim_end_matches(' ') == actual)
    };
    let fits = is(&wanted.label, &name.label)
        && is(&wanted.serial, &name.serial)
        && wanted.slot.is_none_or(|slot| slot == name.slot);
    // Only the slot tells the token from another one with its serial number and label.
    if !fits || *needs_slot_id && wanted.slot.is_none() {
        return false;
    }
    // A serial number names the token, whatever library shows it.
    let has_own_serial = wanted.serial.is_some() && (wanted.label.is_some() || !needs_label);
    // Another library numbers its slots differently, and may have a token of the same label.
    let has_own_place = is_same_library && (wanted.label.is_some() || wanted.slot.is_some());
    has_own_serial || has_own_place
}

/// Whether the selectors fit the key, and tell it from the others of its token.
fn names_object(wanted: &ObjectSelector, key: &KeyEntry) -> bool {
    let tells_it_apart = wanted.label.is_some() || wanted.id.is_some() && !key.needs_label;
    tells_it_apart && key.fits(wanted)
}

/// The key that a configuration names, with or without a certificate.
pub(in crate::cli) struct NamedKey {
    pub(in crate::cli) key: KeyReference,
    /// The user that the key's certificate names, if it has one.
    pub(in crate::cli) user: Option<String>,
}

impl NamedKey {
    /// Finds the key by its certificate, or by its public key if there is no certificate. Without `pins`, only what the
    /// token shows without a login is found.
    pub(in crate::cli) fn find(
        token: &mut Token,
        config: &Config,
        mut pins: Option<&mut dyn PinProvider>,
    ) -> Result<Self, Error> {
        let provider = pins.as_mut().map(|pins| &mut **pins as &mut dyn PinProvider);
        let error = match token.identity(config, provider) {
            Ok(Identity { key, certificate, .. }) => {
                return Ok(Self { key, user: certificate.user });
            }
            Err(error) => error,
        };
        if !error.is(&kind::NO_CERTIFICATE) && !error.is(&kind::CERTIFICATE_UNSEEN) {
            return Err(error);
        }
        match token.bare_key(&config.object, pins) {
            Ok(key) => Ok(Self { key, user: None }),
            // Such a configuration is rather meant for a certificate than for a public key.
            Err(_) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cli::listing::LibraryEntry;

    fn is_named(
        selectors: &[(&str, &str)],
        [needs_label, needs_slot_id, key_needs_label]: [bool; 3],
    ) -> bool {
        let library: LibraryEntry = serde_json::from_value(json!({
            "pathLib": "/lib/here.so", "error": null, "tokens": [],
        }))
        .unwrap();
        let token: TokenEntry = serde_json::from_value(json!({
            "slotId": 3, "tokenLabel": "prod", "tokenSerial": "5d9c", "loginRequired": true,
            "needsLabel": needs_label, "needsSlotId": needs_slot_id, "pin": "unknown",
            "error": null, "caCertificates": 0, "keys": [],
        }))
        .unwrap();
        let key: KeyEntry = serde_json::from_value(json!({
            "objectId": "2", "objectLabel": "jane", "kind": "", "fingerprint": null,
            "certificate": null, "notes": [], "usable": true, "uri": "",
            "needsLabel": key_needs_label,
        }))
        .unwrap();
        let selected = SelectedKey { library: &library, token: &token, key: &key };
        names_key(&mut selectors.iter().copied().collect(), selected)
    }

    #[test]
    fn a_key_is_named_by_what_tells_it_from_all_others() {
        const LIBRARY: (&str, &str) = ("pathLib", "/lib/here.so");
        const ANOTHER: (&str, &str) = ("pathLib", "/lib/there.so");
        const SLOT: (&str, &str) = ("slotId", "3");
        const LABEL: (&str, &str) = ("tokenLabel", "prod");
        const SERIAL: (&str, &str) = ("tokenSerial", "5d9c");
        const ID: (&str, &str) = ("objectId", "2");
        const NAME: (&str, &str) = ("objectLabel", "jane");
        let alone = [false; 3];
        let same_serial = [true, false, false];
        let same_serial_and_label = [true, true, false];
        let same_id = [false, false, true];
        for (selectors, needs, expected) in [
            (&[LIBRARY, LABEL, ID][..], alone, true),
            (&[LIBRARY, SLOT, ID], alone, true),
            (&[LABEL, ID], alone, true),
            (&[SERIAL, ID], alone, true),
            (&[LIBRARY, ID], alone, false),
            (&[LIBRARY, LABEL], alone, false),
            // Its label, or the number of its slot, is another library's too.
            (&[ANOTHER, LABEL, ID], alone, false),
            (&[ANOTHER, SLOT, ID], alone, false),
            (&[ANOTHER, SERIAL, ID], alone, true),
            (&[LIBRARY, SERIAL, ID], same_serial, false),
            (&[ANOTHER, SERIAL, LABEL, ID], same_serial, true),
            (&[LIBRARY, SERIAL, LABEL, ID], same_serial_and_label, false),
            (&[LIBRARY, SERIAL, LABEL, SLOT, ID], same_serial_and_label, true),
            (&[LIBRARY, LABEL, ID], same_id, false),
            (&[LIBRARY, LABEL, ID, NAME], same_id, true),
            (&[LIBRARY, LABEL, NAME], same_id, true),
            // Of another one.
            (&[LIBRARY, ("slotId", "4"), ID], alone, false),
            (&[LIBRARY, ("tokenLabel", "test"), ID], alone, false),
            (&[LIBRARY, LABEL, ("tokenSerial", "77aa"), ID], alone, false),
            (&[LIBRARY, LABEL, ("objectId", "3")], alone, false),
            (&[LIBRARY, LABEL, ID, ("objectLabel", "joe")], alone, false),
        ] {
            assert_eq!(is_named(selectors, needs), expected, "{selectors:?} {needs:?}");
        }
    }
}
