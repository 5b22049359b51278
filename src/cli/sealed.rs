//! Sealed files: `seal`, for which no token is needed, `unseal`, and `kubelet-credential-provider`, which answers kubelet with
//! the registry login that the node's token opens.

use std::io::{self, IsTerminal as _, Read as _};
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use super::key_options::{self, KeyOptions};
use super::opening::{OpeningOptions, certificate, content, open, read, recipient_key};
use super::session::{CommandSession, write_file};
use crate::certificate::{Certificate, ValidityState};
use crate::config::{Config, PinSource, duration};
use crate::credential_provider::{LONGEST_REQUEST, ProviderRequest, answer};
use crate::error::{Error, Exit, PROGRAM, THIS_KEY};
use crate::pin_entry::{self, Sources};
use crate::printable::{printable, shell_word};
use crate::process::environment::TakenVariables;
use crate::process::{leave, unix_time};
use crate::report;
use crate::sealed::{NewEnvelope, Registries, RegistryLogin};
use base::limits;

/// In bytes; no password has more.
const LONGEST_PASSWORD: u64 = 64 * 1024;

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

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  pkcs11-external-signer kubelet-credential-provider --sealed registry.cms \\
      --token-label node --pin-source file:/run/credentials/pin

kubelet runs it with a CredentialProviderRequest on standard input, as docs/kubelet.md has it configured. \
By hand, `check --sealed FILE --image NAME` does the same and shows each step.")]
pub(super) struct ProviderArguments {
    /// The file that `seal` has made
    #[arg(long, value_name = "FILE")]
    sealed: PathBuf,
    #[command(flatten)]
    opening: OpeningOptions,
    /// Where the PIN comes from: file:/path or env:NAME
    #[arg(long, value_name = "SOURCE", value_parser = key_options::pin_source)]
    pin_source: Option<String>,
    /// How long kubelet keeps a login, such as 30m; without it, kubelet's defaultCacheDuration
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    cache: Option<Duration>,
}

pub(super) fn seal(arguments: &SealArguments, session: &mut CommandSession) -> Result<(), Error> {
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
    let pins = Sources::new(PinSource::Prompt, &TakenVariables::default());
    let library = session.open(&config)?;
    let mut pins = library.lock.asking_unlocked(&config.library, pins);
    let mut token = library.token(&config.token)?;
    let key = recipient_key(&mut token, &config, &file, Some(&mut pins))?;
    let registries = open(&mut token, &file, key, &mut pins)?;
    session.output.print_document(&format!("{}\n", registries.to_config().trim_end()))
}

pub(super) fn provide(
    arguments: &ProviderArguments,
    session: &mut CommandSession,
) -> Result<(), Error> {
    let pin_source = arguments.pin_source.clone();
    let options = KeyOptions { pin_source, ..arguments.opening.key_options() };
    options.set_call();
    let variables = session.take_variables(options.configuration());
    end_in_time();
    let mut request = Vec::new();
    // What can't be read is no request.
    let _ = io::stdin().lock().take(LONGEST_REQUEST + 1).read_to_end(&mut request);
    let request = ProviderRequest::decode(&request)?;
    let file = read(&arguments.sealed)?;
    let mut config = Config::of_token(&mut options.configuration())?;
    let source = std::mem::take(&mut config.pin);
    if matches!(source, PinSource::Askpass | PinSource::StandardInput) {
        let text = "kubelet's provider has no person to ask for the PIN, and standard input is kubelet's request";
        return Err(Error::new(Exit::Configuration, text)
            .help("write --pin-source file:/path or env:NAME; docs/kubelet.md shows how systemd keeps it encrypted"));
    }
    let mut pins = Sources::new(source, &variables);
    drop(variables);

    let library =
        session.open_within(limits::PROVIDER_LOCK, &config.library, config.init_args.as_deref())?;
    let mut token = library.token(&config.token)?;
    let key = recipient_key(&mut token, &config, &file, Some(&mut pins))?;
    let registries = open(&mut token, &file, key, &mut pins)?;
    session.output.print_document(&answer(&request, &registries.logins, arguments.cache))
}

/// From now on, ends the process before kubelet kills it: its own error says more.
fn end_in_time() {
    // Without a thread, kubelet's limit is left.
    let _ = thread::Builder::new().spawn(|| {
        thread::sleep(limits::PROVIDER);
        let seconds = limits::PROVIDER.as_secs();
        let text =
            format!("the login was not there after {seconds} s, and kubelet doesn't wait longer");
        let error = Error::new(Exit::Token, text)
            .help("see which process uses the token; kubelet asks again with the next image pull");
        leave(report::error_in_one_line(&error))
    });
}
