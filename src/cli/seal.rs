//! `seal`: registry passwords to a file that only the nodes' tokens open. No token is needed for it.

#![forbid(unsafe_code)]

use std::fmt::Write as _;
use std::io::{self, IsTerminal as _, Read as _};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::again::Invocation;
use super::completions::values;
use super::new_file;
use super::output::CommandOutput;
use super::sealed::{self, FileOpener, OpeningOptions, SealedCommandError};
use crate::certificate::{Certificate, ValidityState};
use crate::config::Config;
use crate::error::Error;
use crate::library::{self, LockReports};
use crate::pin_entry;
use crate::pipeline::Library;
use crate::printable::printable;
use crate::process::{lock, unix_time};
use crate::report;
use crate::sealed::{Registries, RegistryLogin, SealedError, SealedFile, SealingKey, seal};

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
  pkcs11-external-signer seal --list registry.cms
  pkcs11-external-signer seal --list registry.cms --token-label node1 \\
      --module /usr/lib/softhsm/libsofthsm2.so

The password for --username is asked for; without a terminal on standard input it is read from there.")]
pub(super) struct SealArguments {
    /// docker's config.json, with the passwords in it
    #[arg(value_name = "CONFIG", conflicts_with_all = ["registry", "list"], add = values::files())]
    config: Option<PathBuf>,
    /// A node's certificate, in PEM or DER; once for each node that opens the file
    #[arg(long, value_name = "FILE", required_unless_present = "list", conflicts_with_all = ["Selection", "OpeningOptions"], add = values::files())]
    recipient: Vec<PathBuf>,
    /// The registry, as HOST, HOST:PORT or HOST/PATH
    #[arg(long, value_name = "HOST", requires = "username", conflicts_with = "list")]
    registry: Option<String>,
    /// The user name for the registry
    #[arg(long, value_name = "USER", requires = "registry")]
    username: Option<String>,
    /// The sealed file; without it, standard output
    #[arg(long, value_name = "FILE", conflicts_with = "list", add = values::files())]
    out: Option<PathBuf>,
    /// Show what a sealed file is for and who opens it, without opening it
    #[arg(long, value_name = "FILE", conflicts_with = "recipient", add = values::files())]
    list: Option<PathBuf>,
    /// Print the list as a JSON document
    #[arg(long, requires = "list")]
    json: bool,
    #[command(flatten)]
    options: OpeningOptions,
}

impl SealArguments {
    pub(super) fn invocation(&self) -> Invocation<'_> {
        self.options.invocation(None)
    }
}

/// Seals or lists; the exit code.
#[cold]
pub(super) fn run(arguments: &SealArguments) -> u8 {
    let mut library = None;
    let outcome = match &arguments.list {
        Some(path) => list(path, arguments, &mut library),
        None => make(arguments),
    };
    let code = match outcome {
        Ok(()) => 0,
        Err(error) => report::error(&error),
    };
    if let Some(library) = library {
        library.finalize(code);
    }
    code
}

fn make(arguments: &SealArguments) -> Result<(), Error> {
    let mut output = CommandOutput::open()?;
    let (mut keys, mut seen) = (Vec::new(), Vec::new());
    for path in &arguments.recipient {
        let certificate = sealed::certificate(path)?;
        keys.push(SealingKey::of(&certificate)?);
        if seen.contains(certificate.public_key()) {
            let certificate = path.display().to_string();
            let reason = "its key is named twice".to_owned();
            return Err(SealedError::Certificate { certificate, reason }.into());
        }
        seen.push(certificate.public_key().clone());
        warn_of_validity(path, &certificate);
    }
    let registries = registries(arguments)?;
    let text = seal(&registries, &keys)?;
    match &arguments.out {
        None => Ok(output.print(&text)?),
        Some(path) => Ok(new_file::write(path, &text, 0o600)?),
    }
}

/// The key stays the same when its certificate ends, and opens the file all the same.
fn warn_of_validity(path: &Path, certificate: &Certificate) {
    let when = match certificate.validity.at(unix_time()) {
        ValidityState::Expired => "has expired",
        ValidityState::NotYetValid => "is not valid yet",
        ValidityState::Valid | ValidityState::RenewalDue => return,
    };
    let path = path.display();
    report::warning(&format!("{path}: the certificate of {} {when}", certificate.subject));
}

fn registries(arguments: &SealArguments) -> Result<Registries, Error> {
    if let Some(path) = &arguments.config {
        let content = sealed::content(path)?;
        let registries = Registries::from_config(&content);
        return Ok(registries
            .map_err(|reason| SealedCommandError::Config { path: path.clone(), reason })?);
    }
    let (Some(registry), Some(username)) = (&arguments.registry, &arguments.username) else {
        return Err(SealedCommandError::NothingToSeal.into());
    };
    // Before a person types anything.
    let login = |password| RegistryLogin::new(registry.clone(), username.clone(), password);
    let name = login("x".to_owned())?.registry.to_string();
    let login = login(password(username, &name)?)?;
    Ok(Registries::new(vec![login])?)
}

fn password(username: &str, registry: &str) -> Result<String, Error> {
    let missing = || SealedCommandError::NoPassword { registry: registry.to_owned() };
    let not_text = |_| SealedCommandError::Password;
    if io::stdin().is_terminal() {
        let question = format!("Password of {} for {registry}: ", printable(username));
        let answer = pin_entry::ask_hidden(&question).flatten().ok_or_else(missing)?;
        return Ok(String::from_utf8(answer).map_err(not_text)?);
    }
    let mut bytes = Vec::new();
    let input = io::stdin().lock().take(LONGEST_PASSWORD).read_to_end(&mut bytes);
    input.map_err(|_| SealedCommandError::Password)?;
    let mut text = String::from_utf8(bytes).map_err(not_text)?;
    for ending in ['\n', '\r'] {
        if text.ends_with(ending) {
            text.pop();
        }
    }
    match text.is_empty() {
        true => Err(missing().into()),
        false if text.contains(['\n', '\r', '\0']) => Err(SealedCommandError::Password.into()),
        false => Ok(text),
    }
}

fn list(path: &Path, arguments: &SealArguments, opened: &mut Option<Library>) -> Result<(), Error> {
    let mut output = CommandOutput::open()?;
    let file = sealed::read(path)?;
    let own = match arguments.options.is_empty() {
        true => None,
        false => Some(own_recipient(&file, &arguments.options, opened)?),
    };
    match arguments.json {
        true => output.print_json(&document(&file, own.as_ref())),
        false => Ok(output.print(&text(&file, own.as_ref()))?),
    }
}

/// The key of the token that opens the file, as far as it is seen without a PIN.
fn own_recipient(
    file: &SealedFile,
    options: &OpeningOptions,
    opened: &mut Option<Library>,
) -> Result<(usize, String), Error> {
    let config = Config::of_token(&mut options.configuration(None))?;
    let init_args = config.init_args.as_ref();
    let library = library::open(&config.library, init_args, lock::LIMIT, &mut LockReports)?;
    let mut observer = ();
    let mut opener = FileOpener::new(opened.insert(library), &config, None, &mut observer)?;
    let own = opener.own_key(file, None)?;
    Ok((own.recipient, format!("{} of token {}", own.describe(), opener.token.name())))
}

fn document(file: &SealedFile, own: Option<&(usize, String)>) -> Value {
    let names = file.registries.as_ref().map(|registries| {
        let names = registries.iter().map(ToString::to_string);
        names.collect::<Vec<_>>()
    });
    let recipients = file.envelope.recipients.iter().enumerate();
    let recipients = recipients.map(|(place, recipient)| {
        let mut shown =
            json!({ "name": recipient.name.to_string(), "method": recipient.lock.describe() });
        if let Some((_, key)) = own.filter(|(own, _)| *own == place) {
            shown["key"] = json!(key);
        }
        shown
    });
    json!({
        "apiVersion": "pkcs11-external-signer/v1",
        "registries": names,
        "recipients": recipients.collect::<Vec<_>>(),
    })
}

fn text(file: &SealedFile, own: Option<&(usize, String)>) -> String {
    let mut text = String::from("Registries\n");
    match &file.registries {
        None => text.push_str("  not named beside what is sealed\n"),
        Some(registries) => {
            for registry in registries {
                let _ = writeln!(text, "  {registry}");
            }
        }
    }
    text.push_str("Recipients\n");
    for (place, recipient) in file.envelope.recipients.iter().enumerate() {
        let name = recipient.name.to_string();
        let method = recipient.lock.describe();
        let _ = write!(text, "  {}, {method}", printable(&name));
        if let Some((_, key)) = own.filter(|(own, _)| *own == place) {
            let _ = write!(text, ", opened by {}", printable(key));
        }
        text.push('\n');
    }
    text
}
