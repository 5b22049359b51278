//! `kubelet-credential-provider`: answers kubelet with the registry login that the node's token opens.
//!
//! kubelet waits for it before each pull, so the program of requests does it itself, which starts faster than that of the
//! commands.

use std::ffi::OsString;
use std::io::{self, Read as _};
use std::path::PathBuf;
use std::time::Duration;

use clap::Parser as _;

use super::{OpeningOptions, open, read, recipient_key};
use crate::cli::key::options::{self, KeyOptions};
use crate::start::Started;
use config::{Config, PinSource, duration};
use keyring::library::{self, Library};
use messages::error::{Error, Exit};
use messages::report;
use pin_entry::Sources;
use sealed::credential_provider::{LONGEST_REQUEST, ProviderRequest, answer};
use system::environment::{SingleThreaded, TakenVariables};
use system::limits;
use system::output::{StandardOutput, answer_lost};
use token::{Callers, watchdog};

/// The command's name.
const NAME: &str = "kubelet-credential-provider";

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

/// A process that does nothing but answer kubelet.
#[derive(clap::Parser)]
#[command(disable_help_flag = true)]
pub struct KubeletCall {
    #[command(flatten)]
    arguments: ProviderArguments,
}

impl KubeletCall {
    /// What this process was called with; `None` for any other command, and where it is for the commands' program to say
    /// what is wrong.
    pub fn of_this_process() -> Option<Self> {
        let mut words = std::env::args_os().skip(1);
        if words.next()? != NAME {
            return None;
        }
        Self::try_parse_from([OsString::from(NAME)].into_iter().chain(words)).ok()
    }

    /// Answers kubelet; the exit code.
    pub fn answer(&self, Started { alone, .. }: Started) -> u8 {
        report::log_steps(report::logged());
        self.arguments.answer(alone)
    }
}

impl ProviderArguments {
    /// Answers kubelet, which logs an error as one line; the exit code.
    pub(in crate::cli) fn answer(&self, alone: SingleThreaded) -> u8 {
        // The library is finalised after the answer is out, so that one that hangs or crashes then can't spoil it.
        let mut library = None;
        let outcome = self.print_login(alone, &mut library);
        let code = outcome.map_or_else(|error| report::error_in_one_line(&error), |()| 0);
        if let Some(library) = library {
            library.module.finalize(code);
        }
        code
    }

    fn print_login(
        &self,
        alone: SingleThreaded,
        opened: &mut Option<Library>,
    ) -> Result<(), Error> {
        let pin_source = self.pin_source.clone();
        let options = KeyOptions { pin_source, ..self.opening.key_options() };
        options.set_call();
        let mut kubelet = StandardOutput::set_aside()?;
        let mut config = Config::of_token(&mut options.configuration())?;
        let source = std::mem::take(&mut config.pin);
        if matches!(source, PinSource::Askpass | PinSource::StandardInput) {
            let text = "kubelet's provider has no person to ask for the PIN, and standard input is kubelet's request";
            return Err(Error::new(Exit::Configuration, text)
                .help("write --pin-source file:/path or env:NAME; docs/kubelet.md shows how systemd keeps it encrypted"));
        }
        let variables = TakenVariables::take(source.variable(), alone);
        let mut pins = Sources::new(source, &variables);
        drop(variables);
        // kubelet would kill this process, and has no error of its own to log.
        watchdog::limit_process(limits::PROVIDER);
        let mut request = Vec::new();
        // A request that can't be read is refused when it is decoded.
        let _ = io::stdin().lock().take(LONGEST_REQUEST + 1).read_to_end(&mut request);
        let request = ProviderRequest::decode(&request)?;
        let file = read(&self.sealed)?;

        let init_args = config.init_args.as_deref();
        let library =
            library::open(&config.library, init_args, Callers::OneThread, limits::PROVIDER_LOCK)?;
        let library = opened.insert(library);
        let mut token = library.token(&config.token)?;
        let key = recipient_key(&mut token, &config, &file, Some(&mut pins))?;
        let registries = open(&mut token, &file, key, &mut pins)?;
        let document = answer(&request, &registries, self.cache);
        kubelet.write(&document).map_err(|error| answer_lost(&error))
    }
}
