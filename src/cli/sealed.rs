//! Sealed files: `seal`, for which no token is needed, `unseal`, and what other commands share with them: reading one, which
//! of its recipients is a key of the token, and what that key makes of it.

use std::io::{self, IsTerminal as _, Read as _};
use std::path::{Path, PathBuf};

use clap::ValueHint;

use super::key_options::{self, HEADING, KeyOptions, Selection};
use super::session::{CommandSession, write_file};
use crate::certificate::{Certificate, ValidityState};
use crate::config::{Config, ObjectSelector, PinSource};
use crate::error::{Error, Exit, Help, PROGRAM, THIS_KEY};
use crate::library;
use crate::pin::PinProvider;
use crate::pin_entry::{self, Sources};
use crate::printable::{printable, shell_word};
use crate::process::environment::TakenVariables;
use crate::process::{read_regular, unix_time};
use crate::report;
use crate::sealed::{NewEnvelope, Registries, RegistryLogin, SealedFile, describe, names};
use crate::token::{KeyReference, Token};

/// In bytes; a thousand recipients take a fifth of it.
const LONGEST_FILE: u64 = 1 << 20;

/// In bytes; no password has more.
const LONGEST_PASSWORD: u64 = 64 * 1024;

/// Seal registry passwords to nodes' certificates, for kubelet-credential-provider
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  pkcs11-external-signer seal --recipient node1.pem --recipient node2.pem \\
      --out registry.cms config.json
  pkcs11-external-signer seal --recipient node1.pem --out registry.cms \\
      --registry registry.example --username nodes

The password for --username is asked for; without a terminal on standard input it is read from there.")]
pub(super) struct SealArguments {
    /// docker's config.json, with the passwords in it
    #[arg(
        value_name = "CONFIG",
        required_unless_present = "registry",
        conflicts_with = "registry"
    )]
    config: Option<PathBuf>,
    /// A node's certificate, in PEM or DER; once for each node that opens the file
    #[arg(long, value_name = "FILE", required = true)]
    recipient: Vec<PathBuf>,
    /// The registry, as HOST, HOST:PORT or HOST/PATH
    #[arg(long, value_name = "HOST", requires = "username")]
    registry: Option<String>,
    /// The user name for the registry
    #[arg(long, value_name = "USER", requires = "registry")]
    username: Option<String>,
    /// The sealed file; without it, standard output
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// Print what is in a sealed file, after a PIN typed at the terminal
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  pkcs11-external-signer unseal registry.cms --token-label node1 \\
      --module /usr/lib/softhsm/libsofthsm2.so

It prints docker's config.json, with the passwords.")]
pub(super) struct UnsealArguments {
    /// The sealed file
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    options: OpeningOptions,
}

/// The options that say with which token files are opened. Which key of it follows from the file.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct OpeningOptions {
    #[command(flatten)]
    selection: Selection,
    /// The key's certificate, for a token that holds none
    #[arg(long, value_name = "FILE", value_parser = key_options::path, help_heading = HEADING, value_hint = ValueHint::FilePath)]
    certificate_file: Option<String>,
}

impl OpeningOptions {
    pub(super) fn key_options(&self) -> KeyOptions {
        let Self { selection, certificate_file } = self.clone();
        KeyOptions { selection, certificate_file, ..KeyOptions::default() }
    }
}

pub(super) fn seal(arguments: &SealArguments, session: &mut CommandSession) -> Result<(), Error> {
    let certificates = arguments.recipient.iter().map(|path| certificate(path));
    let certificates: Vec<_> = certificates.collect::<Result<_, Error>>()?;
    let envelope = NewEnvelope::new(&certificates)?;
    let has_expired = |it: &&Certificate| it.validity.at(unix_time()) == ValidityState::Expired;
    for certificate in certificates.iter().filter(has_expired) {
        report::warning(&format!("the certificate of {} has expired", certificate.subject));
    }
    let text = envelope.seal(&registries(arguments)?)?;
    match &arguments.out {
        None => session.output.print(&text),
        Some(path) => write_file(path, &text, 0o600),
    }
}

fn registries(arguments: &SealArguments) -> Result<Registries, Error> {
    if let Some(path) = &arguments.config {
        return Registries::from_config(&content(path)?, &path.display().to_string());
    }
    let registry = arguments.registry.clone().unwrap_or_default();
    let username = arguments.username.clone().unwrap_or_default();
    let login = |password| {
        let login = RegistryLogin::new(registry.clone(), username.clone(), password);
        login.map_err(|reason| {
            Error::new(Exit::Configuration, reason).help("give both as the registry knows them")
        })
    };
    // Before a person types anything.
    login("x".to_owned())?;
    Ok(Registries { logins: vec![login(password(&username, &registry)?)?] })
}

fn password(username: &str, registry: &str) -> Result<String, Error> {
    let missing = |what| {
        let text = format!("{what} for {registry}");
        Error::new(Exit::Configuration, text)
            .help("enter it at the prompt, or write it to standard input, in one line")
    };
    let mut bytes = Vec::new();
    if io::stdin().is_terminal() {
        let question = format!("Password of {} for {registry}: ", printable(username));
        bytes = pin_entry::ask(&question, false).flatten().unwrap_or_default();
    } else if io::stdin().lock().take(LONGEST_PASSWORD).read_to_end(&mut bytes).is_err() {
        bytes.clear();
    }
    let mut text = String::from_utf8(bytes).map_err(|_| missing("the password is not text"))?;
    text.truncate(text.strip_suffix('\n').map_or(text.len(), |it| it.trim_end_matches('\r').len()));
    match text.is_empty() {
        true => Err(missing("no password was given")),
        false => Ok(text),
    }
}

pub(super) fn unseal(
    arguments: &UnsealArguments,
    session: &mut CommandSession,
) -> Result<(), Error> {
    let options = arguments.options.key_options();
    options.set_call();
    if !io::stdin().is_terminal() {
        let text = "unsealing wants a person at a terminal, and there is none";
        let help = format!(
            "run it at a terminal; `{PROGRAM} check --sealed {}{THIS_KEY}` says without one whether the file can \
             be opened",
            shell_word(&arguments.file.to_string_lossy())
        );
        return Err(Error::new(Exit::Login, text).help(help));
    }
    let file = read(&arguments.file)?;
    let config = Config::of_token(&mut options.configuration())?;
    // A PIN that lies somewhere shows no person.
    let mut pins = Sources::new(PinSource::Prompt, &TakenVariables::default());
    let mut token = library::open_in(&mut session.library, &config)?.token(&config.token)?;
    let key = recipient_key(&mut token, &config, &file, Some(&mut pins))?;
    let registries = open(&mut token, &file, key, &mut pins)?;
    session.output.print(&format!("{}\n", registries.to_config().trim_end()))
}

/// Reads a sealed file.
pub(super) fn read(path: &Path) -> Result<SealedFile, Error> {
    SealedFile::read(&content(path)?, &path.display().to_string())
}

/// The content of a regular file, which is no longer than any sealed file.
pub(super) fn content(path: &Path) -> Result<Vec<u8>, Error> {
    let reason = match read_regular(path, LONGEST_FILE + 1) {
        Ok(bytes) if bytes.len() as u64 <= LONGEST_FILE => return Ok(bytes),
        Ok(_) => "it is longer than 1 MiB".to_owned(),
        Err(error) => error.to_string(),
    };
    let help = "name a file that is there and that you may read";
    Err(Error::new(Exit::Configuration, format!("{}: {reason}", path.display())).help(help))
}

/// A node's certificate from a file of PEM or DER; the others of a chain are passed over.
pub(super) fn certificate(path: &Path) -> Result<Certificate, Error> {
    let name = path.display().to_string();
    let parsed = Certificate::chain_from_pem_or_der(&content(path)?, &name);
    let unusable = |error: Error| {
        Error::new(Exit::Configuration, error.to_string())
            .help("name a node's certificate, in PEM or DER")
    };
    Ok(parsed.map_err(unusable)?.0)
}

/// A key of the token that opens a file, and the place of its recipient there.
pub(super) type RecipientKey = (KeyReference, usize);

/// The first recipient that is a key of the token, by the certificates on it or by `certificateFile`. Logs in only if none is visible without, and not without `pins`.
pub(super) fn recipient_key(
    token: &mut Token,
    config: &Config,
    file: &SealedFile,
    pins: Option<&mut dyn PinProvider>,
) -> Result<RecipientKey, Error> {
    let selector = &config.object;
    let Some(path) = &config.certificate_file else {
        let visible = |token: &Token| visible(token, selector, file);
        let found = token.visible_or_hidden("the key of a sealed file", pins, visible)?;
        return found.ok_or_else(|| no_recipient(token, file));
    };
    let certificate = certificate(path)?;
    let recipient = file.recipient(&names(&certificate));
    let recipient = recipient.ok_or_else(|| no_recipient(token, file))?;
    let reference = match selector.is_given() {
        true => KeyReference::of_certificate(&certificate, selector, Vec::new()),
        false => {
            let (key, subject) = (certificate.public_key(), &certificate.subject);
            token.key_of(key, subject, pins)?
        }
    };
    Ok((reference, recipient))
}

fn visible(
    token: &Token,
    wanted: &ObjectSelector,
    file: &SealedFile,
) -> Result<Option<RecipientKey>, Error> {
    Ok(token.candidates()?.into_iter().find_map(|candidate| {
        // Any object is meant if the options name none.
        let is_meant = wanted.id.as_ref().is_none_or(|it| it.as_bytes() == candidate.id)
            && wanted.label.as_ref().is_none_or(|it| *it == candidate.label);
        let certificate = candidate.certificate?.ok().filter(|_| is_meant)?;
        let recipient = file.recipient(&names(&certificate))?;
        let label = Some(&*candidate.label).filter(|it| !it.is_empty());
        let object = ObjectSelector::of(&candidate.id, label);
        Some((KeyReference::of_certificate(&certificate, &object, candidate.id), recipient))
    }))
}

fn no_recipient(token: &Token, file: &SealedFile) -> Error {
    let names: Vec<_> = file.recipients.iter().map(|it| describe(&it.name)).collect();
    let help = "seal the passwords to the certificate of a key of this token, or name the certificate with \
                --certificate-file if the token doesn't hold it; the file is for:";
    let (name, token) = (&file.name, token.name());
    let text = format!("none of the recipients of {name} is a key of token {token}");
    Error::new(Exit::Object, text).help(Help::from(help).with_candidates(&names))
}

/// Opens the file with a key of the token.
pub(super) fn open(
    token: &mut Token,
    file: &SealedFile,
    (reference, recipient): RecipientKey,
    pins: &mut dyn PinProvider,
) -> Result<Registries, Error> {
    let Some(recipient) = file.recipients.get(recipient) else {
        return Err(Error::internal("a recipient that isn't there"));
    };
    let key = token.key(reference, pins)?;
    let decrypted = token.open(&key, &recipient.locked, pins)?;
    file.open(recipient, &decrypted)
}
