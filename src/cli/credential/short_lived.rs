//! `credential --as`: something that lives minutes and comes from the token's key, for clients that can't use
//! a tunnel.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::ValueEnum;

use super::certificate::CertificateOptions;
use super::connection::SharedPins;
use super::jwt::JwtOptions;
use super::token::TokenOptions;
use super::{CredentialArguments, certificate, jwt, output, token, version};
use crate::certificate::rfc_3339;
use crate::cli::error::CredentialError;
use crate::cli::jwks::lifetime;
use crate::cli::key_options::KeySource;
use crate::cli::output::CommandOutput;
use crate::config::{Config, PinSource};
use crate::error::Error;
use crate::exec_credential::ExecRequest;
use crate::keyring::Keyring;
use crate::pin_entry::Sources;
use crate::pipeline::Library;
use crate::printable::hex;
use crate::process::environment::SingleThreaded;
use crate::process::unix_time;
use crate::tunnel::TunnelTarget;

/// A margin before the end, in seconds, in which a request that was begun is still answered.
const MARGIN: i64 = 30;

/// What is handed out.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(in crate::cli) enum ShortLived {
    /// A certificate for a key that is made for it, from the cluster's signer
    Certificate,
    /// A JSON Web Token that the key signs
    Jwt,
    /// A token of a service account, from the API server
    Token,
}

impl ShortLived {
    /// Whether the API server makes it.
    fn is_asked_for(self) -> bool {
        match self {
            Self::Jwt => false,
            Self::Certificate | Self::Token => true,
        }
    }
}

#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, ValueEnum)]
pub(in crate::cli) enum OutputForm {
    /// An ExecCredential, for clients that run this command
    #[default]
    Exec,
    /// A whole kubeconfig, for another machine
    Kubeconfig,
    /// The token alone, or the certificate and its key in PEM
    Raw,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Something that lives minutes")]
pub(in crate::cli) struct ShortLivedOptions {
    /// Hand out something that lives minutes, for clients that can't use the tunnel
    #[arg(long = "as", value_name = "WHAT")]
    pub(super) kind: Option<ShortLived>,
    /// In which form
    #[arg(long, value_name = "FORM", default_value = "exec", requires = "kind")]
    pub(super) output: OutputForm,
    /// Write it into this file, which you alone can read, rather than to standard output
    #[arg(long, value_name = "FILE", requires = "kind", add = crate::cli::completions::values::files())]
    pub(super) out: Option<PathBuf>,
    /// How long it lives, such as 5m
    #[arg(long, value_name = "TIME", value_parser = lifetime, requires = "kind")]
    pub(super) duration: Option<Duration>,
    /// For whom a token is made; may be repeated
    #[arg(long, value_name = "NAME", requires = "kind")]
    pub(super) audience: Vec<String>,
    #[command(flatten)]
    pub(super) certificate: CertificateOptions,
    #[command(flatten)]
    pub(super) jwt: JwtOptions,
    #[command(flatten)]
    pub(super) token: TokenOptions,
}

impl ShortLivedOptions {
    /// How long it is to live, in seconds: as long as was asked for, and otherwise as short as an API server makes it.
    pub(super) fn life(&self, what: &'static str, shortest: u64) -> Result<u64, CredentialError> {
        let seconds = self.duration.map_or(shortest, |it| it.as_secs());
        match seconds < shortest {
            true => {
                Err(CredentialError::TooShort { what, shortest: Duration::from_secs(shortest) })
            }
            false => Ok(seconds),
        }
    }
}

/// What authenticates a client without the token's key, and until when.
pub(super) struct IssuedCredential {
    pub(super) proof: Proof,
    /// In seconds since 1970.
    pub(super) begins: i64,
    /// In seconds since 1970.
    pub(super) ends: i64,
    /// As whom, for a kubeconfig.
    pub(super) user: String,
}

pub(super) enum Proof {
    /// Both in PEM.
    Certificate {
        certificate: String,
        key: String,
    },
    Token(String),
}

impl IssuedCredential {
    /// When a client has to ask again, which it does not before that moment.
    pub(super) fn renewal(&self) -> String {
        let life = self.ends.saturating_sub(self.begins);
        rfc_3339(self.ends.saturating_sub(MARGIN.min(life / 10)))
    }
}

/// What all kinds are made with.
pub(super) struct Making<'a> {
    pub(super) options: &'a ShortLivedOptions,
    pub(super) config: Config,
    pub(super) pins: SharedPins,
    pub(super) opened: &'a mut OpenedModule,
}

/// What is open when the credential is out.
#[derive(Default)]
pub(super) enum OpenedModule {
    Keyring(Arc<Keyring>),
    Library(Box<Library>),
    #[default]
    None,
}

impl OpenedModule {
    /// Finalises it at the end of the process, which has this exit code.
    pub(super) fn finish(self, code: u8) {
        match self {
            Self::Keyring(keyring) => keyring.finish(code),
            Self::Library(library) => library.finalize(code),
            Self::None => {}
        }
    }
}

/// Makes it and prints or writes it.
pub(super) fn hand_out(
    kind: ShortLived,
    arguments: &CredentialArguments,
    request: Option<ExecRequest>,
    verbosity: u8,
    alone: SingleThreaded,
    opened: &mut OpenedModule,
) -> Result<(), Error> {
    let mut output = CommandOutput::open()?;
    let options = &arguments.short_lived;
    // By hand, the only key there is needs no name.
    let (mut source, no_key) = match &request {
        Some(_) => (arguments.key.source()?, None),
        None => arguments.key.source_if_any()?,
    };
    let variables = crate::cli::take_variables(source.configuration.clone(), alone);
    if source.context.is_none() && request.is_none() {
        let completed = arguments.key.complete(&mut source.configuration, verbosity);
        completed.map_err(|error| no_key.unwrap_or(error))?;
    }
    let KeySource { mut configuration, context } = source;
    let mut config = Config::from_map(&mut configuration)?;
    let pin_source = std::mem::replace(&mut config.pin, PinSource::Prompt);
    if matches!(pin_source, PinSource::StandardInput) {
        return Err(CredentialError::StandardInput.into());
    }
    // Before a PIN is asked for.
    let needs_cluster = kind.is_asked_for() || options.output == OutputForm::Kubeconfig;
    let target = match needs_cluster {
        true => Some(output::target(arguments, request.as_ref(), context)?),
        false => None,
    };
    let mut pins = Sources::new(pin_source, &variables);
    pins.leave_input();
    drop(variables);
    let pins = SharedPins::new(pins);
    let making = Making { options, config, pins: pins.clone(), opened };
    let made = make(kind, making, target.as_ref());
    let credential = made.inspect_err(|error| pins.failed(error))?;
    if credential.ends <= unix_time() {
        let ends = rfc_3339(credential.ends);
        return Err(CredentialError::Ended { ends }.into());
    }
    let version = version(request.as_ref(), &arguments.key);
    let text = output::text(&credential, options.output, version, target.as_ref());
    match &options.out {
        Some(path) => Ok(crate::cli::new_file::write(path, &text, 0o600)?),
        None => Ok(output.print(&text)?),
    }
}

fn make(
    kind: ShortLived,
    making: Making<'_>,
    target: Option<&TunnelTarget>,
) -> Result<IssuedCredential, Error> {
    let now = unix_time();
    let asked = || target.cloned().ok_or_else(|| Error::internal("no cluster to ask"));
    match kind {
        ShortLived::Certificate => certificate::make(making, asked()?),
        ShortLived::Jwt => jwt::make(making, now),
        ShortLived::Token => token::make(making, asked()?, now),
    }
}

/// Never the same again.
pub(super) fn random_id() -> Result<String, Error> {
    let mut random = [0; 16];
    getrandom::fill(&mut random).map_err(|error| Error::internal(error.to_string()))?;
    Ok(hex(&random))
}
