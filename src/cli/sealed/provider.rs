//! `kubelet-credential-provider`: answers kubelet with the registry login that the node's token opens.

use std::io::{self, Read as _};
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use super::{OpeningOptions, open, read, recipient_key};
use crate::cli::key::options::{self, KeyOptions};
use crate::cli::session::StartingSession;
use config::{Config, PinSource, duration};
use messages::error::{Error, Exit};
use messages::report;
use pin_entry::Sources;
use sealed::credential_provider::{LONGEST_REQUEST, ProviderRequest, answer};
use system::leave;
use system::limits;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  pkcs11-external-signer kubelet-credential-provider --sealed registry.cms \\
      --token-label node --pin-source file:/run/credentials/pin

kubelet runs this with a CredentialProviderRequest on standard input; docs/kubelet.md says how to configure it. \
`check --sealed FILE --image NAME` does the same by hand, and shows each step.")]
pub(in crate::cli) struct ProviderArguments {
    /// The file that `seal` has made
    #[arg(long, value_name = "FILE")]
    sealed: PathBuf,
    #[command(flatten)]
    opening: OpeningOptions,
    /// Where the PIN comes from: file:/path or env:NAME
    #[arg(long, value_name = "SOURCE", value_parser = options::pin_source)]
    pin_source: Option<String>,
    /// How long kubelet caches a login, such as 30m [default: kubelet's defaultCacheDuration]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    cache: Option<Duration>,
}

pub(in crate::cli) fn run(
    arguments: &ProviderArguments,
    start: StartingSession<'_>,
) -> Result<(), Error> {
    let pin_source = arguments.pin_source.clone();
    let options = KeyOptions { pin_source, ..arguments.opening.key_options() };
    options.set_call();
    let (session, variables) = start.take_pin_variable(options.configuration());
    end_in_time();
    let mut request = Vec::new();
    // A request that can't be read is refused when it is decoded.
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
    session.output.print_document(&answer(&request, &registries, arguments.cache))
}

/// Ends the process before kubelet would kill it, since the error that it prints says more.
fn end_in_time() {
    // If no thread can be started, kubelet's limit remains.
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
