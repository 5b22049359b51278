//! `seal`: seals registry passwords to the certificates of nodes. No token is needed.

use std::io::{self, IsTerminal as _, Read as _};
use std::path::PathBuf;

use super::{certificate, content};
use crate::cli::session::{CommandSession, write_file};
use config::pin::Answer;
use crypto::certificate::{Certificate, ValidityState};
use messages::error::{Error, Exit};
use messages::printable::printable;
use messages::report;
use pin_entry;
use sealed::{NewEnvelope, Registries, RegistryLogin};
use system::clock::unix_time;

/// The longest password that is read, in bytes.
const LONGEST_PASSWORD: u64 = 64 * 1024;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  pkcs11-external-signer seal --recipient node1.pem --recipient node2.pem \\
      --out registry.cms config.json
  pkcs11-external-signer seal --recipient node1.pem --out registry.cms \\
      --registry registry.example --username nodes

You are asked for the password of --username. If standard input isn't a terminal, it is read from there.")]
pub(in crate::cli) struct SealArguments {
    /// docker's config.json, with the passwords in it
    #[arg(
        value_name = "CONFIG",
        required_unless_present = "registry",
        conflicts_with = "registry"
    )]
    config: Option<PathBuf>,
    /// The certificate (PEM or DER) of a node that can open the file; give one for each node
    #[arg(long, value_name = "FILE", required = true)]
    recipient: Vec<PathBuf>,
    /// The registry, as HOST, HOST:PORT or HOST/PATH
    #[arg(long, value_name = "HOST", requires = "username")]
    registry: Option<String>,
    /// The user name for the registry
    #[arg(long, value_name = "USER", requires = "registry")]
    username: Option<String>,
    /// The file to write [default: standard output]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

pub(in crate::cli) fn run(
    arguments: &SealArguments,
    session: &mut CommandSession,
) -> Result<(), Error> {
    let certificates: Vec<Certificate> =
        arguments.recipient.iter().map(|path| certificate(path)).collect::<Result<_, Error>>()?;
    let envelope = NewEnvelope::new(&certificates)?;
    for certificate in &certificates {
        if certificate.validity.at(unix_time()) == ValidityState::Expired {
            report::warning(&format!("the certificate of {} has expired", certificate.subject));
        }
    }
    let text = envelope.seal(&registries(arguments)?)?;
    match &arguments.out {
        None => session.output.print_document(&text),
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
    // Wrong options are refused before a person types anything.
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
        if let Answer::Typed(typed) = pin_entry::ask(&question, false) {
            bytes = typed;
        }
    } else if io::stdin().lock().take(LONGEST_PASSWORD).read_to_end(&mut bytes).is_err() {
        bytes.clear();
    }
    let mut text = String::from_utf8(bytes).map_err(|_| missing("the password is not text"))?;
    if text.ends_with('\n') {
        text.pop();
        let length = text.trim_end_matches('\r').len();
        text.truncate(length);
    }
    if text.is_empty() {
        return Err(missing("no password was given"));
    }
    Ok(text)
}
