//! The key that a command is about: the one that is named, the only one that can be used, or the one that a
//! person picks; and the configuration that names it.

use std::path::PathBuf;

use super::key_options::{KeyOptions, KeySource, set};
use super::listing::{
    KeyEntry, KeyNote, Listing, SelectedKey, among, none_fits, token_configuration,
};
use super::question;
use super::session::CommandSession;
use crate::config::{Config, Filter};
use crate::error::{Error, Exit, Help, Kind, PLUGIN, PROGRAM};
use crate::pin::PinProvider;
use crate::printable::shell_word;
use crate::process::environment::TakenVariables;
use crate::process::unix_time;
use crate::protocol::Configuration;
use crate::report;
use crate::token::{Identity, KeyReference, Token};

impl KeyOptions {
    /// What the library and the token that are named hold, or all of them.
    pub(super) fn look(
        &self,
        login: Option<&TakenVariables>,
        session: &mut CommandSession,
    ) -> Result<Listing, Error> {
        // All objects, so that a miss can say which there are.
        let of_token = self.of_token();
        let mut listing = of_token.list(login, session)?;
        // What wasn't seen can be why nothing is found.
        let of_libraries = listing.libraries.iter().filter_map(|it| it.error.as_ref());
        let of_tokens = listing.tokens().filter_map(|(_, token)| token.error.as_ref());
        for fault in of_libraries.filter(|fault| fault.is_busy).chain(of_tokens) {
            report::warning(&format!("not everything was seen: {}", fault.message));
        }
        if let Some(error) = of_token.miss(&listing) {
            return Err(error);
        }
        let wanted = self.filter()?.object;
        // A certificate that is a CA's is seen by its name alone.
        if wanted.is_given() && !listing.keys().any(|(_, _, key)| key.fits(&wanted)) {
            let named = self.list(None, session)?;
            if named.keys().next().is_some() {
                listing = named;
            }
        }
        Ok(listing)
    }

    /// [`Self::source`], with what the options don't say if there is only one or a person picks one; and the variable that
    /// it names, before a library is loaded. If it `may_guess`, nothing need name a key.
    pub(super) fn whole_source(
        &self,
        may_guess: bool,
        session: &mut CommandSession,
    ) -> Result<(KeySource, TakenVariables), Error> {
        let may_guess = may_guess && self.context.is_none() && self.kubeconfig.is_none();
        let (mut source, no_key) = match self.source() {
            Err(error) if may_guess && error.is(Kind::NoContextKey) => {
                (self.options_source(), Some(error))
            }
            source => (source?, None),
        };
        let variables = session.take_variables(source.configuration.clone());
        if source.context.is_none() {
            let found = self.complete(&mut source.configuration, session);
            source.found = match (found, no_key) {
                // Several keys are listed; if there is none, what is wrong is that nothing names one.
                (Err(error), Some(why)) if !error.is(Kind::SeveralKeys) => return Err(why),
                (found, no_key) => found?.map(|uri| (uri, no_key)),
            };
        }
        Ok((source, variables))
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
        // If there is only one key, its use says what is wrong with it.
        let mut keys = listing.keys();
        let only_key = keys.next().filter(|_| keys.next().is_none());
        let chosen = self.choose(&listing).or_else(|error| match error.is(Kind::NoUsableKey) {
            true => only_key.ok_or(error),
            false => Err(error),
        });
        let mut tokens = listing.tokens();
        let (config, uri) = match (chosen, tokens.next().filter(|_| tokens.next().is_none())) {
            (Ok(it @ (_, _, key)), _) => (key_configuration(None, it, None), key.uri.clone()),
            // The token may hide the key.
            (Err(error), Some((library, token))) if error.is(Kind::NoneFits) => {
                (token_configuration(library, token), format!("token {}", token.name))
            }
            (Err(error), _) => return Err(error),
        };
        *map = config.pairs().chain(map.pairs()).collect();
        Ok(Some(uri))
    }

    /// The key that is named, the only one that can be used, or the one that the user picks.
    pub(super) fn choose<'a>(&self, listing: &'a Listing) -> Result<SelectedKey<'a>, Error> {
        let wanted = self.filter()?.object;
        let has_file = self.certificate_file.is_some();
        let can_be_meant = |key: &KeyEntry| match wanted.is_given() {
            true => key.fits(&wanted),
            false => key.usable || has_file && !key.notes.contains(&KeyNote::NoPrivateKey),
        };
        let mut found: Vec<SelectedKey<'_>> =
            listing.keys().filter(|(_, _, key)| can_be_meant(key)).collect();
        let is_superseded =
            |(_, _, key): &SelectedKey<'_>| key.notes.contains(&KeyNote::Superseded);
        if !found.iter().all(is_superseded) {
            found.retain(|key| !is_superseded(key));
        }
        // What nothing tells apart is no choice either: the selection that is tried says so.
        found.dedup_by(|(_, _, one), (_, _, other)| one.uri == other.uri);
        match found.as_slice() {
            [only] => Ok(*only),
            [] => {
                if let Some(busy) = listing.busy() {
                    return Err(busy);
                }
                let found: Vec<_> = listing.keys().map(described).collect();
                Err(match wanted.is_given() {
                    true => none_fits(&wanted, &found),
                    false => listing.emptiness().unwrap_or_else(|| no_usable(&found)),
                })
            }
            several => pick(several),
        }
    }

    /// The name of the key's user: the one that is asked for, or what the certificate or the label says. The key is
    /// looked at as the configuration that is written finds it, with the certificate of the file, if one is named.
    /// Nothing is done that needs a PIN.
    pub(super) fn user_name(
        &self,
        requested: Option<&str>,
        selected: SelectedKey<'_>,
        session: &mut CommandSession,
    ) -> Result<String, Error> {
        let ((_, _, key), file) = (selected, self.certificate_file.as_deref());
        let config = Config::from_map(&mut key_configuration(file, selected, None))?;
        let mut token = session.open(&config)?.token(&config.token)?;
        let mut of_certificate = key.certificate.as_ref().and_then(|it| it.user.clone());
        match token.identity(&config, None) {
            Ok(Identity { certificate, .. }) if file.is_some() => {
                certificate.warnings(unix_time()).iter().for_each(|it| report::warning(it));
                of_certificate = certificate.user;
            }
            Ok(_) => {}
            Err(error) if error.is(Kind::CertificateUnseen) => {}
            // One that was named although it has none, or none yet.
            Err(error) if file.is_none() && key.certificate.is_none() => {
                report::warning(&format!("nothing works with this user yet: {error}"));
            }
            Err(error) => return Err(error),
        }
        let mut names = of_certificate.into_iter().chain([key.object_label.clone()]);
        let name = requested.map(str::to_owned).or_else(|| names.find(|name| !name.is_empty()));
        name.filter(|name| !name.is_empty()).ok_or_else(|| {
            Error::new(Exit::Configuration, "the kubeconfig's user would have no name").help(
                "name it with --user; without that it is called as the certificate's CN, or else as the key's label",
            )
        })
    }
}

/// Asks at the terminal.
fn pick<'a>(found: &[SelectedKey<'a>]) -> Result<SelectedKey<'a>, Error> {
    let items: Vec<_> = found.iter().map(|it| described(*it)).collect();
    let picked = question::pick("Which key?", &items);
    if let Some(picked) = picked.and_then(|index| found.get(index)) {
        return Ok(*picked);
    }
    let found = found.iter().map(|(_, _, key)| format!("--uri={}", shell_word(&key.uri)));
    let (found, help) = (found.collect::<Vec<_>>(), Help::from("name one:"));
    Err(Error::new(Exit::Object, format!("{} keys can be meant", found.len()))
        .help(help.with_candidates(&found))
        .kind(Kind::SeveralKeys))
}

/// `found` is what there is, each with what is wrong with it.
fn no_usable(found: &[String]) -> Error {
    let help = "correct what is wrong with one of these (docs/tokens.md#a-key-and-its-certificate has how a \
                certificate is issued), or choose one as it is with --object-id:";
    Error::new(Exit::Object, "no key that can be used was found")
        .help(among(found, help))
        .kind(Kind::NoUsableKey)
}

/// In one line: `CN=jane, RSA-2048, expires 2026-11-22 14:05 UTC, serial number 0A; object 2 on token "prod"
/// (serial 5d9c, slotId 1), LIBRARY`.
fn described((library, token, key): SelectedKey<'_>) -> String {
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
pub(super) fn key_configuration(
    certificate_file: Option<&str>,
    (library, token, key): SelectedKey<'_>,
    pin_source: Option<&str>,
) -> Configuration {
    let mut configuration = token_configuration(library, token);
    set(&mut configuration, "pathExec", program().as_deref());
    set(&mut configuration, "objectId", key.object_id.as_deref());
    set(&mut configuration, "objectLabel", key.needs_label.then_some(&*key.object_label));
    set(&mut configuration, "certificateFile", certificate_file);
    set(&mut configuration, "pinSource", pin_source);
    configuration
}

/// This program, by a name that outlives an update: as PATH finds it, or as it was started, links not followed.
fn program() -> Option<String> {
    let executable = std::env::current_exe().ok()?.canonicalize().ok()?.with_file_name(PROGRAM);
    let folders = std::env::var_os("PATH").unwrap_or_default();
    // By the second name alone where kubectl's plugin manager has installed it.
    let started = std::env::args_os().next().map(PathBuf::from);
    // A name alone was looked up in PATH.
    let started = started.filter(|it| it.components().count() > 1);
    let found = [PROGRAM, PLUGIN]
        .into_iter()
        .flat_map(|name| std::env::split_paths(&folders).map(move |folder| folder.join(name)))
        .chain(started.and_then(|it| std::path::absolute(it).ok()))
        .filter(|path| path.is_absolute())
        .find(|path| path.canonicalize().is_ok_and(|it| it == executable));
    found.unwrap_or(executable).into_os_string().into_string().ok()
}

/// Whether a configuration names this key, by any selectors. Its URI, if it has one, is then unfolded.
pub(super) fn names_key(
    configuration: &mut Configuration,
    (library, token, key): SelectedKey<'_>,
) -> bool {
    let path = configuration.take("pathLib");
    let Ok(Filter { token: wanted, object, .. }) = Filter::from_map(configuration) else {
        return false;
    };
    let same = |wanted: &Option<String>, actual: &str| {
        wanted.as_deref().is_none_or(|wanted| wanted.trim_end_matches(' ') == actual)
    };
    // Another library numbers its slots otherwise, and can have a token of the same label.
    let is_same_library = path.is_none_or(|it| *it == library.path_lib);
    let names_token = is_same_library && (wanted.label.is_some() || wanted.slot.is_some())
        || wanted.serial.is_some() && (wanted.label.is_some() || !token.needs_label);
    names_token
        && (object.label.is_some() || object.id.is_some() && !key.needs_label)
        && wanted.slot.map_or(!token.needs_slot_id, |slot| slot == token.name.slot)
        && same(&wanted.label, &token.name.label)
        && same(&wanted.serial, &token.name.serial)
        && key.fits(&object)
}

/// The key by its certificate, and the user that this names; or by its public key where there is no certificate. Without
/// `pins` only what the token shows without a login is found.
pub(super) fn key_and_user(
    token: &mut Token,
    config: &Config,
    mut pins: Option<&mut dyn PinProvider>,
) -> Result<(KeyReference, Option<String>), Error> {
    match token.identity(config, pins.as_mut().map(|it| &mut **it as &mut dyn PinProvider)) {
        Ok(identity) => Ok((identity.key, identity.certificate.user)),
        Err(error) if error.is(Kind::NoCertificate) || error.is(Kind::CertificateUnseen) => {
            // What is missing is rather the certificate than a public key.
            token.bare_key(&config.object, pins).map(|key| (key, None)).map_err(|_| error)
        }
        Err(error) => Err(error),
    }
}
