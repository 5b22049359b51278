//! `seal`: registry passwords to a file that only the nodes' tokens open. No token is needed for it.

use std::io::{self, IsTerminal as _, Read as _};
use std::path::PathBuf;

use super::output::write_file;
use super::sealed;
use super::session::CommandSession;
use crate::certificate::ValidityState;
use crate::error::{Error, Exit};
use crate::pin_entry;
use crate::printable::printable;
use crate::process::unix_time;
use crate::report;
use crate::sealed::{NewEnvelope, Registries, RegistryLogin};

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

pub(super) fn run(arguments: &SealArguments, session: &mut CommandSession) -> Result<(), Error> {
    let certificates = arguments.recipient.iter().map(|path| sealed::certificate(path));
    let certificates: Vec<_> = certificates.collect::<Result<_, Error>>()?;
    let envelope = NewEnvelope::new(&certificates)?;
    for certificate in
        certificates.iter().filter(|it| it.validity.at(unix_time()) == ValidityState::Expired)
    {
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
        return Registries::from_config(&sealed::content(path)?, &path.display().to_string());
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
        bytes = pin_entry::ask_hidden(&question).flatten().unwrap_or_default();
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
