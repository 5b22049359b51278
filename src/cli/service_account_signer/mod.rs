//! `service-account-signer`: serves an API server that has its service account tokens signed outside, and shows how that goes.

mod status;

use std::path::PathBuf;
use std::time::Duration;

use clap::ValueHint;

use super::key::options::{HEADING, SELDOM, path, pin_source};
use config::{PinSource, duration};
use messages::error::{Error, Exit};
use messages::report;
use protocol::Configuration;
use service_account::{
    KeyListSource, ListenAt, ServerOptions, SignerOptions, Timing, default_history,
    serve as serve_signer,
};
use system::activation::{self, ServiceManager};
use system::environment::{SingleThreaded, TakenVariables};

pub(super) use status::run as status;

/// Where signers listen and are asked, unless somebody says otherwise.
const SOCKET: &str = "/run/pkcs11-external-signer/service-accounts.sock";
/// API servers take no shorter one.
const SHORTEST_LIFE: Duration = Duration::from_secs(600);

const EXAMPLES: &str = "\
Examples:
  pkcs11-external-signer service-account-signer --keys /etc/sa-keys \\
    --pin-source file:/run/credentials/pin
  pkcs11-external-signer service-account-signer --key 2 --token-label sa \\
    --module /usr/lib/libhsm.so --pin-source env:PIN --socket ~/run/api.sock
  pkcs11-external-signer service-account-signer status";

const HELP: &str = "

The API server gets --service-account-signing-endpoint=SOCKET in place of its key files. The first key of the list that \
has been published for long enough signs; a public key (file:) only verifies. With `hidden` behind it, OIDC discovery \
doesn't show a key. SIGHUP has the list read again.";

#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
#[command(disable_help_subcommand = true, after_help = EXAMPLES, after_long_help = format!("{EXAMPLES}{HELP}"))]
pub(super) struct SignerArguments {
    #[command(subcommand)]
    command: Option<SignerCommand>,
    /// The socket for the API server
    #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath, default_value = SOCKET)]
    socket: PathBuf,
    /// A key: its CKA_ID, a pkcs11: URI, or file:/path of a public key
    #[arg(long, value_name = "KEY", required_unless_present = "keys", conflicts_with = "keys")]
    key: Vec<String>,
    /// A file with a line for each key, the newest one first
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    keys: Option<PathBuf>,
    /// The token's PKCS#11 library
    #[arg(long, value_name = "FILE", value_parser = path, help_heading = HEADING, value_hint = ValueHint::FilePath)]
    module: Option<String>,
    /// A text that the library needs, such as configDir='sql:/path' for NSS
    #[arg(long, value_name = "TEXT", help_heading = HEADING, hide_short_help = true)]
    init_args: Option<String>,
    /// The number of the token's slot
    #[arg(long, value_name = "NUMBER", help_heading = HEADING, hide_short_help = true)]
    slot_id: Option<String>,
    /// The token's label
    #[arg(long, value_name = "LABEL", help_heading = HEADING)]
    token_label: Option<String>,
    /// The token's serial number
    #[arg(long, value_name = "SERIAL", help_heading = HEADING, hide_short_help = true)]
    token_serial: Option<String>,
    /// Where the PIN comes from: file:/path or env:VAR
    #[arg(long, value_name = "SOURCE", value_parser = pin_source, help_heading = HEADING)]
    pin_source: Option<String>,
    /// The longest life of a token
    #[arg(long, value_name = "DURATION", value_parser = life, default_value = "8760h")]
    longest_life: Duration,
    /// How long a new key is published before it signs
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "1h", hide_short_help = true)]
    publish_first: Duration,
    /// How often API servers fetch the keys
    #[arg(long, value_name = "DURATION", value_parser = refresh, default_value = "5m", hide_short_help = true)]
    refresh: Duration,
    /// How many signatures the token makes at the same time, at most
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u8).range(1..=64), default_value = "8")]
    #[arg(help_heading = SELDOM, hide_short_help = true)]
    sessions: u8,
    /// The file that remembers when keys were published [default: among this user's records]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = SELDOM, hide_short_help = true)]
    state: Option<PathBuf>,
}

#[derive(Debug, clap::Subcommand)]
enum SignerCommand {
    /// Show what a signer does, and where a rotation stands
    Status(status::StatusArguments),
}

/// A duration that API servers take for a token's life.
fn life(text: &str) -> Result<Duration, String> {
    let life = duration(text)?;
    if life < SHORTEST_LIFE {
        return Err("API servers take no signer whose tokens live shorter than 10m".to_owned());
    }
    Ok(life)
}

/// A duration of whole seconds, which API servers count in.
fn refresh(text: &str) -> Result<Duration, String> {
    let refresh = duration(text)?;
    if refresh < Duration::from_secs(1) {
        return Err("it must be 1s or more".to_owned());
    }
    Ok(refresh)
}

impl SignerArguments {
    /// Whether this is a call to serve, and not one to ask.
    pub(super) fn serves(&self) -> bool {
        self.command.is_none()
    }

    /// What the options say of the library, the token and the PIN.
    fn base(&self) -> Configuration {
        let options = [
            ("pathLib", &self.module),
            ("initArgs", &self.init_args),
            ("slotId", &self.slot_id),
            ("tokenLabel", &self.token_label),
            ("tokenSerial", &self.token_serial),
            ("pinSource", &self.pin_source),
        ];
        options.into_iter().filter_map(|(key, value)| Some((key, value.as_deref()?))).collect()
    }

    fn timing(&self) -> Result<Timing, Error> {
        let Self { refresh, publish_first, longest_life, .. } = self;
        if *publish_first < *refresh * 2 {
            let text = "a key would sign before every API server knows it: --publish-first is less than twice --refresh";
            return Err(Error::new(Exit::Configuration, text)
                .help("leave both out, or make --publish-first longer"));
        }
        Ok(Timing { refresh: *refresh, publish_first: *publish_first, longest_life: *longest_life })
    }

    fn key_list(&self) -> KeyListSource {
        match &self.keys {
            Some(file) => KeyListSource::File(file.clone()),
            None => KeyListSource::Lines(self.key.clone()),
        }
    }
}

/// Serves until a signal ends it; the exit code.
pub(super) fn serve(arguments: &SignerArguments, alone: SingleThreaded) -> u8 {
    match prepare_and_serve(arguments, alone) {
        Ok(()) => 0,
        Err(error) => report::error(&error),
    }
}

fn prepare_and_serve(arguments: &SignerArguments, alone: SingleThreaded) -> Result<(), Error> {
    let base = arguments.base();
    let pin = arguments.pin_source.as_deref().map(PinSource::parse).transpose()?;
    check_unattended(pin.as_ref())?;
    let timing = arguments.timing()?;
    let manager = ServiceManager::take(&alone);
    let opened = activation::take_listener(&alone).map_err(|error| {
        Error::new(
            Exit::Configuration,
            format!("the socket that systemd has opened can't be used: {error}"),
        )
        .help("give the service one ListenStream= with a path, as docs/service-accounts.md has it")
    })?;
    let history = match &arguments.state {
        Some(file) => file.clone(),
        None => default_history(&arguments.socket)?,
    };
    let variables = TakenVariables::take(pin.as_ref().and_then(PinSource::variable), alone);
    let listen_at = match opened {
        Some(listener) => ListenAt::Opened(listener),
        None => ListenAt::Path(arguments.socket.clone()),
    };
    let signer = SignerOptions {
        keys: arguments.key_list(),
        base,
        timing,
        sessions: arguments.sessions.into(),
        history,
    };
    serve_signer(ServerOptions { listen_at, variables, manager }, signer)
}

/// Checks that a PIN is there without a person: nobody may be there when the token is opened again.
fn check_unattended(pin: Option<&PinSource>) -> Result<(), Error> {
    match pin {
        None | Some(PinSource::File(_) | PinSource::Environment(_)) => Ok(()),
        Some(_) => Err(Error::new(Exit::Configuration, "a signer can't ask for its PIN")
            .help("set --pin-source to file:/path, as systemd has credentials, or to env:NAME")),
    }
}
