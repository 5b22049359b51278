//! `kubeconfig`: what a kubeconfig needs for a key, printed for pasting or written where it belongs.

#![forbid(unsafe_code)]

mod plugin;

use std::path::PathBuf;

use clap::ValueHint;

use super::again::Invocation;
use super::completions;
use super::error::ArgumentNeeds;
use super::listing::{
    CertificateEntry, KeyEntry, KeyNote, LibraryEntry, ListQuery, Listing, TokenEntry,
};
use super::output::CommandOutput;
use super::question;
use super::selection::{self, HEADING, Selection};
use crate::certificate::of_subject;
use crate::config::{Config, Filter, Keep, ObjectSelector, PinSource, TokenName, without_object};
use crate::error::{Error, PROGRAM};
use crate::kubeconfig::{
    Context, KubeconfigError, KubeconfigFile, Provider, ProviderConfig, SELECTORS, Saved, file_for,
};
use crate::library::{self, LockReports};
use crate::pipeline::{Library, Pipeline};
use crate::printable::shell_word;
use crate::process::environment::{SingleThreaded, TakenVariables};
use crate::process::lock;
use crate::process::signals::{Deferral, is_interrupted};
use crate::process::unix_time;
use crate::protocol::Configuration;
use crate::report;
use crate::start;
use crate::token::ObjectError;

/// Have a context of the kubeconfig use a key, or print what that takes
#[derive(Debug, Default, clap::Args)]
#[command(group = clap::ArgGroup::new("what").args(["write", "undo", "context"]).multiple(true))]
#[command(after_help = "\
Examples:
  pkcs11-external-signer kubeconfig --write --context prod
  pkcs11-external-signer kubeconfig --write --context prod --keep terminal
  pkcs11-external-signer kubeconfig --undo --context prod
  pkcs11-external-signer kubeconfig              # print the user alone
  pkcs11-external-signer kubeconfig --uri 'pkcs11:serial=15873456;id=%02'

With several keys, the terminal asks which one. The file keeps everything else as it is, and a copy
of it is made. A PIN is never written.")]
pub(super) struct KubeconfigArguments {
    #[command(flatten)]
    selection: Selection,
    /// All of it as a pkcs11: URI
    #[arg(long, value_name = "URI", help_heading = HEADING)]
    uri: Option<String>,
    /// Log in to the tokens, to see what they hide
    #[arg(long, help_heading = HEADING)]
    login: bool,
    /// The user's name; without it the certificate's
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// Write down a certificate file, for a token that holds none
    #[arg(long, value_name = "FILE", value_parser = selection::path, value_hint = ValueHint::FilePath)]
    certificate_file: Option<String>,
    /// Write down where the PIN comes from: prompt, askpass, stdin, file:/path or env:NAME; that of
    /// --login comes from there, too
    #[arg(long, value_name = "SOURCE", value_parser = selection::pin_source)]
    pin_source: Option<String>,
    /// Write it into the kubeconfig
    #[arg(long)]
    write: bool,
    /// The context that is to use it, by stock kubectl
    #[arg(long, value_name = "NAME", add = completions::contexts())]
    context: Option<String>,
    /// How long one PIN serves: command, terminal, or a time such as 15m
    #[arg(long, value_name = "HOW LONG")]
    keep: Option<Keep>,
    /// For clients with the externalSigner provider, in place of stock ones
    #[arg(long)]
    external_signer: bool,
    /// Give the context back what it had before
    #[arg(
        long,
        requires = "context",
        conflicts_with_all = ["write", "external_signer", "keep", "user", "uri", "login", "certificate_file", "pin_source", "Selection"]
    )]
    undo: bool,
    /// The kubeconfig to write; without it KUBECONFIG, or ~/.kube/config
    #[arg(long, value_name = "FILE", requires = "what")]
    kubeconfig: Option<PathBuf>,
}

impl KubeconfigArguments {
    pub(super) fn invocation(&self) -> Invocation<'_> {
        Invocation {
            selection: Some(&self.selection),
            uri: self.uri.as_deref(),
            certificate_file: self.certificate_file.as_deref(),
            kubeconfig: self.kubeconfig.as_deref(),
            ..Invocation::default()
        }
    }

    /// # Errors
    /// Options don't go together.
    fn check(&self) -> Result<(), Error> {
        let needs = |argument, other| Err(ArgumentNeeds { argument, other }.into());
        match &self.context {
            None if self.write && !self.external_signer => {
                needs("--write", "--context or --external-signer")
            }
            Some(_) if self.external_signer && !self.write => {
                needs("--context beside --external-signer", "--write")
            }
            _ if self.user.as_deref() == Some("") => Err(KubeconfigError::UserUnnamed.into()),
            _ => Ok(()),
        }
    }
}

/// Prints or writes; the exit code.
#[cold]
pub(super) fn run(arguments: &KubeconfigArguments, verbosity: u8, alone: SingleThreaded) -> u8 {
    let mut opened = None;
    let code = match produce(arguments, verbosity, alone, &mut opened) {
        Ok(()) => 0,
        Err(error) => {
            report::error(&error);
            error.exit_code()
        }
    };
    if let Some(library) = opened {
        library.finalize(code);
    }
    code
}

fn produce(
    arguments: &KubeconfigArguments,
    verbosity: u8,
    alone: SingleThreaded,
    opened: &mut Option<Library>,
) -> Result<(), Error> {
    let mut output = CommandOutput::open()?;
    arguments.check()?;
    if let Some(context) = arguments.context.as_deref().filter(|_| arguments.undo) {
        return plugin::undo(arguments, context);
    }
    // Read as one, since options and URI have to agree.
    let configuration = || {
        arguments.selection.configuration([
            ("uri", arguments.uri.as_deref()),
            ("pinSource", arguments.pin_source.as_deref()),
        ])
    };
    let variables = super::take_variables(configuration(), alone);
    let mut map = configuration();
    let wanted = Filter::from_map(&mut map)?.object;
    let pin_source = map.value("pinSource");
    if let Some(source) = pin_source {
        PinSource::parse(source)?;
    }
    let search = Search {
        selection: &arguments.selection,
        uri: arguments.uri.as_deref(),
        wanted,
        has_certificate: arguments.certificate_file.is_some(),
        login: arguments.login,
        pin_source: pin_source.filter(|_| arguments.login),
        variables: &variables,
        verbosity,
    };
    let listing = search.look(opened)?;
    let (library, token, key) = search.choose(&listing)?;
    let key = &tried(arguments, (library, token, key), opened)?;
    let chosen = (library, token, key);
    let name =
        arguments.user.as_deref().or_else(|| user_name(key)).ok_or(KubeconfigError::UserUnnamed)?;
    let config = || {
        let file = arguments.certificate_file.as_deref();
        let mut config = provider_config(file, chosen, pin_source);
        config.set("keep", arguments.keep.map(|keep| keep.to_string()));
        config
    };
    match &arguments.context {
        _ if arguments.external_signer && arguments.write => {
            write(arguments, name, chosen, pin_source)
        }
        _ if arguments.external_signer => Ok(output.print(&config().as_excerpt(name))?),
        Some(context) => {
            let wanted = plugin::Wanted { arguments, context, name, place: chosen, pin_source };
            match arguments.write {
                true => wanted.write(),
                false => Ok(output.print(&wanted.excerpt()?)?),
            }
        }
        None => Ok(output.print(&config().as_plugin_excerpt(name))?),
    }
}

/// A key that a context is to use.
pub(super) struct ContextKey {
    pub(super) selection: Selection,
    pub(super) certificate_file: Option<String>,
    /// To be written down.
    pub(super) pin_source: Option<String>,
    pub(super) context: String,
    pub(super) kubeconfig: Option<PathBuf>,
}

/// Has a context use the key, as `--write --context` does.
///
/// # Errors
/// Those of that command.
pub(super) fn use_in_context(key: ContextKey, opened: &mut Option<Library>) -> Result<(), Error> {
    let arguments = KubeconfigArguments {
        selection: key.selection,
        certificate_file: key.certificate_file,
        kubeconfig: key.kubeconfig,
        ..KubeconfigArguments::default()
    };
    let search = Search {
        selection: &arguments.selection,
        uri: None,
        wanted: Filter::from_map(&mut arguments.selection.configuration([]))?.object,
        has_certificate: arguments.certificate_file.is_some(),
        login: false,
        pin_source: None,
        variables: &TakenVariables::default(),
        verbosity: 0,
    };
    let listing = search.look(opened)?;
    let (library, token, chosen) = search.choose(&listing)?;
    let chosen = &tried(&arguments, (library, token, chosen), opened)?;
    plugin::Wanted {
        arguments: &arguments,
        context: &key.context,
        name: user_name(chosen).ok_or(KubeconfigError::UserUnnamed)?,
        place: (library, token, chosen),
        pin_source: key.pin_source.as_deref(),
    }
    .write()
}

/// A key and where it is.
pub(super) type Place<'a> = (&'a LibraryEntry, &'a TokenEntry, &'a KeyEntry);

/// For the key that is meant, by what was said of it.
pub(super) struct Search<'a> {
    pub(super) selection: &'a Selection,
    pub(super) uri: Option<&'a str>,
    /// What both say of the object.
    pub(super) wanted: ObjectSelector,
    /// Its certificate is in a file.
    pub(super) has_certificate: bool,
    pub(super) login: bool,
    /// Of the login.
    pub(super) pin_source: Option<&'a str>,
    pub(super) variables: &'a TakenVariables,
    pub(super) verbosity: u8,
}

impl Search<'_> {
    /// What the library and the token that are named hold, or all of them.
    pub(super) fn look(&self, opened: &mut Option<Library>) -> Result<Listing, Error> {
        // All objects, so that a miss can say which there are.
        let selection = self.selection.of_token();
        let uri = self.uri.map(without_object);
        let query = ListQuery {
            selection: &selection,
            uri: uri.as_deref(),
            login: self.login,
            pin_source: self.pin_source,
            variables: self.variables,
            verbosity: self.verbosity,
        };
        let mut listing = query.run(opened)?;
        // What wasn't seen can be why nothing is found.
        for fault in listing.faults_of_tokens() {
            report::warning(&format!("not everything was seen: {}", fault.message));
        }
        if let Some(error) = query.miss(&listing) {
            return Err(error);
        }
        // A certificate that is a CA's is seen by its name alone.
        if self.wanted.is_given() && !listing.keys().any(|(_, _, key)| key.fits(&self.wanted)) {
            let query = ListQuery {
                selection: self.selection,
                uri: self.uri,
                login: false,
                pin_source: None,
                ..query
            };
            let named = query.run(opened)?;
            if named.keys().next().is_some() {
                listing = named;
            }
        }
        Ok(listing)
    }

    /// The key that is named, the only one that can be used, or the one that the user picks.
    pub(super) fn choose<'a>(&self, listing: &'a Listing) -> Result<Place<'a>, Error> {
        let selector = self.wanted.to_string();
        let can_be_meant = |key: &KeyEntry| {
            if selector.is_empty() {
                key.usable || self.has_certificate && !key.notes.contains(&KeyNote::NoPrivateKey)
            } else {
                key.fits(&self.wanted)
            }
        };
        let mut found: Vec<Place<'_>> =
            listing.keys().filter(|(_, _, key)| can_be_meant(key)).collect();
        let is_superseded = |(_, _, key): &Place<'_>| key.notes.contains(&KeyNote::Superseded);
        if !found.iter().all(is_superseded) {
            found.retain(|place| !is_superseded(place));
        }
        // What nothing tells apart is no choice either: the selection that is tried says so.
        found.dedup_by(|(_, _, one), (_, _, other)| one.uri == other.uri);
        match found.as_slice() {
            [only] => Ok(*only),
            [] => {
                let found = listing.keys().map(described).collect();
                Err(if selector.is_empty() {
                    let nothing = listing.emptiness();
                    nothing.unwrap_or(ObjectError::NoUsable { found }).into()
                } else {
                    ObjectError::NoneFits { selector, found }.into()
                })
            }
            several => pick(several),
        }
    }
}

/// The key as the configuration that is written finds it: with the certificate of the file, if one
/// is named. Nothing is done that needs a PIN.
fn tried(
    arguments: &KubeconfigArguments,
    place: Place<'_>,
    opened: &mut Option<Library>,
) -> Result<KeyEntry, Error> {
    let (_, _, key) = place;
    let config = provider_config(arguments.certificate_file.as_deref(), place, None);
    let config = Config::from_map(&mut config.pairs().collect())?;
    let library = match opened {
        Some(library) => library,
        None => {
            let init_args = config.init_args.as_ref();
            let reports = &mut LockReports;
            opened.insert(library::open(&config.library, init_args, lock::LIMIT, reports)?)
        }
    };
    let (config, observer) = (&config, &mut ());
    let mut token = library.token(&config.token, None, observer)?;
    let has_file = config.certificate_file.is_some();
    let certificate = match (Pipeline { config, observer }).identity(&mut token, None) {
        Ok(identity) if has_file => identity.certificate,
        Ok(_) => return Ok(key.clone()),
        Err(error) if error.downcast_ref().is_some_and(ObjectError::may_be_hidden) => {
            return Ok(key.clone());
        }
        // One that was named although it has none, or none yet.
        Err(error) if !has_file && key.certificate.is_none() => {
            report::warning(&format!("nothing works with this user yet: {error}"));
            return Ok(key.clone());
        }
        Err(error) => return Err(error),
    };
    let now = unix_time();
    let subject = &certificate.subject;
    for concern in certificate.concerns(now) {
        report::warning(&of_subject(subject, concern));
    }
    if let Some(expiry) = certificate.renewal(now) {
        report::renewal(subject, &expiry);
    }
    Ok(KeyEntry {
        kind: certificate.public_key().to_string(),
        certificate: Some(CertificateEntry::from(&certificate)),
        ..key.clone()
    })
}

/// Asks at the terminal.
fn pick<'a>(found: &[Place<'a>]) -> Result<Place<'a>, Error> {
    let items: Vec<_> = found.iter().map(|place| described(*place)).collect();
    let picked = question::pick("Which key?", &items);
    if let Some(picked) = picked.and_then(|place| found.get(place)) {
        return Ok(*picked);
    }
    let found = found.iter().map(|(_, _, key)| key.uri.clone()).collect();
    Err(ObjectError::Choice { found }.into())
}

/// In one line: `CN=jane, RSA-2048, expires in 3 months, serial number 0A; object 2 on token "prod"
/// (serial 5d9c, slotId 1), LIBRARY`.
fn described((library, token, key): Place<'_>) -> String {
    let mut parts = vec![key.kind.clone()];
    if let Some(certificate) = &key.certificate {
        parts.insert(0, certificate.subject.clone());
        parts.push(format!("expires {}", certificate.expires));
        parts.push(format!("serial number {}", certificate.serial_number));
    }
    parts.extend(key.notes.iter().map(KeyNote::to_string));
    parts.extend(token.pin_words().map(str::to_owned));
    let parts = parts.join(", ");
    let object = key.object_id.as_deref().unwrap_or(&key.object_label);
    let token = TokenName {
        slot: token.slot_id,
        label: token.token_label.clone(),
        serial: token.token_serial.clone(),
    };
    let path = &library.path_lib;
    format!("{parts}; object {object} on token {token}, {path}")
}

/// `None` where neither certificate nor label has one.
fn user_name(key: &KeyEntry) -> Option<&str> {
    let certificate = key.certificate.as_ref();
    let user = certificate.and_then(|certificate| certificate.user.as_deref());
    user.into_iter().chain([key.object_label.as_str()]).find(|name| !name.is_empty())
}

/// The configuration that selects the key.
pub(super) fn provider_config(
    certificate_file: Option<&str>,
    (library, token, key): Place<'_>,
    pin_source: Option<&str>,
) -> ProviderConfig {
    let mut config = ProviderConfig::default();
    config.set("pathExec", program());
    set_token(&mut config, library, token);
    let what = match &key.certificate {
        Some(certificate) => format!(
            "{}, {}, until {}",
            key.kind,
            certificate.subject,
            certificate.not_after.split('T').next().unwrap_or_default()
        ),
        None => key.kind.clone(),
    };
    let label = key.needs_label.then_some(key.object_label.as_str());
    match &key.object_id {
        Some(id) => {
            config.set_explained("objectId", id, what);
            config.set("objectLabel", label);
        }
        None => {
            let label = label.unwrap_or_default();
            config.set_explained("objectLabel", label, what);
        }
    }
    config.set("certificateFile", certificate_file);
    config.set("pinSource", pin_source);
    config
}

/// Library and token, by what stays: the serial number, since slot numbers move.
pub(super) fn set_token(config: &mut ProviderConfig, library: &LibraryEntry, token: &TokenEntry) {
    let (label, serial) = (&token.token_label, &token.token_serial);
    config.set("pathLib", Some(&*library.path_lib));
    config.set("initArgs", library.init_args.as_deref());
    config.set_explained("tokenSerial", serial, format!("token \"{label}\""));
    if serial.is_empty() || token.needs_label {
        config.set("tokenLabel", Some(&**label));
    }
    let slot_id = token.slot_id.to_string();
    if token.needs_slot_id {
        let reason = "may move: another token has the same label and serial";
        config.set_explained("slotId", &slot_id, reason.to_owned());
    } else if serial.is_empty() && label.is_empty() {
        config.set("slotId", Some(slot_id));
    }
}

/// This program, by a name that outlives an update: as PATH finds it, links not followed.
fn program() -> Option<String> {
    let own = std::env::current_exe().ok()?;
    let canonical = own.canonicalize().ok()?;
    let folders = std::env::var_os("PATH").unwrap_or_default();
    // By the second name alone where kubectl's plugin manager has installed it.
    let found = [PROGRAM, start::PLUGIN]
        .into_iter()
        .flat_map(|name| std::env::split_paths(&folders).map(move |folder| folder.join(name)))
        .filter(|path| path.is_absolute())
        .find(|path| path.canonicalize().is_ok_and(|it| it == canonical));
    found.unwrap_or(own).into_os_string().into_string().ok()
}

fn write(
    arguments: &KubeconfigArguments,
    name: &str,
    place: Place<'_>,
    pin_source: Option<&str>,
) -> Result<(), Error> {
    let locations = super::locations(arguments.kubeconfig.as_deref());
    let nowhere = || KubeconfigError::Unwritable {
        path: PathBuf::from("~/.kube/config"),
        reason: "HOME is not set".to_owned(),
    };
    let path = file_for(&locations, |it| it.has_user(name))?.ok_or_else(nowhere)?;
    if let Some(context) = &arguments.context {
        // Refused before anything is written.
        super::load(&locations.required())?.context(context)?;
    }
    // Locks that stay behind would keep kubectl from the files.
    let _deferral = Deferral::for_files();
    let mut inherited = None;
    if let Some(context) = &arguments.context {
        inherited = plugin::replaced(&locations, context, place)?;
    }
    let mut file = KubeconfigFile::open(&path, is_interrupted)?;
    let kubeconfig = super::load(&locations.optional())?;
    let mut old = match kubeconfig.provider(name) {
        Ok(Provider::ExternalSigner(map)) => map,
        _ => Configuration::default(),
    };
    let mut is_same = names(&mut old, place);
    // A user that happens to have the certificate's name can be another cluster's, and what a context
    // of the plugin's form has serves no other form.
    let is_kept = kubeconfig.has_plugin(name) || arguments.user.is_none() && !is_same;
    if is_kept && kubeconfig.has_credentials(name) {
        let name = name.to_owned();
        return Err(KubeconfigError::UserExists { path, name }.into());
    }
    if let Some(inherited) = inherited.filter(|_| !is_same) {
        (old, is_same) = (inherited, true);
    }
    // From a URI, it stays as a key of its own.
    let old_source = old.value("pinSource").filter(|_| is_same);
    let certificate_file = arguments.certificate_file.as_deref();
    let old_file = old.value("certificateFile").filter(|_| is_same);
    let file_and_source = (certificate_file.or(old_file), pin_source.or(old_source));
    let mut config = provider_config(file_and_source.0, place, file_and_source.1);
    let keep = arguments.keep.map(|keep| keep.to_string());
    let old_keep = old.value("keep").filter(|_| is_same).map(str::to_owned);
    config.set("keep", keep.or(old_keep));
    let mut lost = file.set_user(name, &config, |key, value| match key {
        // Relative to the file.
        "pathExec" => path.with_file_name(value).is_file(),
        "uri" => false,
        "certificateFile" => is_same && certificate_file.is_none(),
        // Another token's would cost this one a try.
        "pin" | "pinSource" => is_same && pin_source.is_none(),
        "keep" => false,
        // Written anew, whichever keys said it before.
        _ => !is_selector(key),
    })?;
    lost.retain(|key| !is_selector(key));
    let mut changes = vec![(file, format!("user \"{name}\""))];
    if let Some(context) = &arguments.context {
        let context_path = file_for(&locations, |it| it.context(context).is_ok())?;
        match (context_path, changes.as_mut_slice()) {
            (Some(other), _) if other != path => {
                let mut other = KubeconfigFile::open(&other, is_interrupted)?;
                other.set_context(context, name)?;
                changes.push((other, "the context".to_owned()));
            }
            (_, [(file, what)]) => {
                let has_new_user = file.is_changed();
                file.set_context(context, name)?;
                if file.is_changed() && !has_new_user {
                    *what = format!("context \"{context}\"");
                }
            }
            _ => {}
        }
    }
    if !lost.is_empty() {
        let lost = lost.join(", ");
        report::warning(&format!("user \"{name}\" had {lost}, which the copy still has"));
    }
    for (file, what) in changes {
        save(file, &what)?;
    }
    say_what_is_next(arguments, name, kubeconfig.selected_context().ok());
    Ok(())
}

/// What to run now, if a context uses the user; else how to have one use it.
fn say_what_is_next(arguments: &KubeconfigArguments, name: &str, current: Option<Context>) {
    let option = |name: &str, value: &str| format!(" {name}={}", shell_word(value));
    let file = arguments.kubeconfig.as_ref();
    let file = file.map(|file| option("--kubeconfig", &file.to_string_lossy()));
    let file = file.unwrap_or_default();
    let (context, which, named) = match (&arguments.context, current) {
        (Some(context), _) => (context.clone(), "", option("--context", context)),
        (None, Some(current)) if current.user == name => {
            (current.name, ", the current one,", String::new())
        }
        (None, current) => return note_on_context(current.is_some(), name, &file),
    };
    let program = start::called();
    report::steps(
        &format!("context \"{context}\"{which} uses user \"{name}\"; next:"),
        &[
            format!("{program} check{file}{named} --server"),
            format!("{program} run{file}{named} -- kubectl get namespaces"),
        ],
    );
}

/// What is left to do, where no context was to be changed and the current one uses another user.
fn note_on_context(has_current: bool, name: &str, file: &str) {
    let user = shell_word(name);
    report::note(&match has_current {
        false => format!(
            "no context is the current one; kubectl config set-context NAME --cluster=CLUSTER \
             --user={user}{file} makes one that uses it, and kubectl config use-context \
             NAME{file} makes that the current one"
        ),
        true => format!(
            "no context was changed; kubectl config set-context --current --user={user}{file} \
             points the current one at it"
        ),
    });
}

/// Saves the file, and says what became of it; `what` has changed in it.
///
/// # Errors
/// Those of [`KubeconfigFile::save`].
pub(super) fn save(file: KubeconfigFile, what: &str) -> Result<(), Error> {
    let path = file.path().display().to_string();
    report::note(&match file.save()? {
        Saved::New => format!("{path}: {what} written, in a new file"),
        Saved::Replaced(backup) => {
            format!("{path}: {what} written; what was there is in {}", backup.display())
        }
        Saved::Unchanged => format!("{path}: {what} is there already"),
    });
    Ok(())
}

/// Whether this key of a configuration selects a library, a token or an object.
fn is_selector(key: &str) -> bool {
    SELECTORS.iter().any(|(selector, _)| *selector == key)
}

/// Whether a configuration names this key, by any selectors. Its URI, if it has one, is then
/// unfolded.
fn names(configuration: &mut Configuration, (library, token, key): Place<'_>) -> bool {
    let path = configuration.take("pathLib");
    let Ok(filter) = Filter::from_map(configuration) else {
        return false;
    };
    let same = |wanted: &Option<String>, actual: &str| {
        let wanted = wanted.as_deref();
        wanted.is_none_or(|wanted| wanted.trim_end_matches(' ') == actual)
    };
    let (has_label, has_serial) = (filter.token.label.is_some(), filter.token.serial.is_some());
    // Another library numbers its slots otherwise, and can have a token of the same label.
    let is_same_library = path.is_none_or(|it| *it == library.path_lib);
    let names_token = (has_label || filter.token.slot.is_some()) && is_same_library
        || has_serial && (has_label || !token.needs_label);
    let names_key = filter.object.label.is_some() || filter.object.id.is_some() && !key.needs_label;
    names_token
        && names_key
        && (filter.token.slot.is_some() || !token.needs_slot_id)
        && filter.token.slot.is_none_or(|slot| slot == token.slot_id)
        && same(&filter.token.label, &token.token_label)
        && same(&filter.token.serial, &token.token_serial)
        && key.fits(&filter.object)
}
