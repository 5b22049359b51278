//! `kubelet-credential-provider`: answers kubelet with the registry login that the node's token opens.

#![forbid(unsafe_code)]

use std::io::{self, Read as _};
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use super::again::Invocation;
use super::output::CommandOutput;
use super::sealed::{self, FileOpener, ProviderOptions, SealedCommandError};
use crate::config::{Config, PinSource};
use crate::credential_provider::{
    LONGEST_REQUEST, ProviderAnswer, ProviderLogin, ProviderRequest, ProviderRequestError, best,
};
use crate::error::Error;
use crate::pin::{Pin, PinError, PinOrigin, PinProvider, PinRequest};
use crate::pin_entry::Sources;
use crate::pipeline::Library;
use crate::process::environment::{SingleThreaded, TakenVariables};
use crate::process::leave;
use crate::protocol::Configuration;
use crate::report;
use crate::sealed::{Registries, Registry, SealedFile};

/// kubelet kills a provider after a minute.
const LIMIT: Duration = Duration::from_secs(45);

/// How long the processes for other images may use the library.
const PATIENCE: Duration = Duration::from_secs(40);

/// Answer kubelet's request for a registry login, from a sealed file that the node's token opens
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  pkcs11-external-signer kubelet-credential-provider --sealed registry.cms \\
      --token-label node --pin-source file:/run/credentials/pin

kubelet runs it with a CredentialProviderRequest on standard input; `kubelet-config` prints what kubelet has to be told. \
By hand, `check --sealed FILE --image NAME` does the same and shows each step.")]
pub(super) struct ProviderArguments {
    #[command(flatten)]
    provider: ProviderOptions,
    /// How long kubelet keeps a login, such as 30m; without it, kubelet's defaultCacheDuration
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    cache: Option<Duration>,
}

impl ProviderArguments {
    pub(super) fn invocation(&self) -> Invocation<'_> {
        let source = self.provider.pin_source.as_deref();
        let opening = &self.provider.opening;
        opening.invocation(source)
    }

    fn configuration(&self) -> Configuration {
        self.provider.opening.configuration(self.provider.pin_source.as_deref())
    }
}

/// Seconds, or a number with s, m or h.
fn duration(text: &str) -> Result<Duration, &'static str> {
    let (number, unit) = match text.char_indices().last() {
        Some((at, 's')) => (&text[..at], 1),
        Some((at, 'm')) => (&text[..at], 60),
        Some((at, 'h')) => (&text[..at], 3600),
        _ => (text, 1),
    };
    let number: u32 = number.parse().map_err(|_| "it is no duration such as 90s, 30m or 12h")?;
    Ok(Duration::from_secs(u64::from(number) * unit))
}

/// Answers the request; the exit code.
#[cold]
pub(super) fn run(arguments: &ProviderArguments, alone: SingleThreaded) -> u8 {
    let mut library = None;
    let code = match answer(arguments, alone, &mut library) {
        Ok(()) => 0,
        Err(error) => report::error_in_one_line(&error),
    };
    // The answer is out: a library that hangs or crashes at its end changes nothing.
    if let Some(library) = library {
        library.finalize(code);
    }
    code
}

fn answer(
    arguments: &ProviderArguments,
    alone: SingleThreaded,
    opened: &mut Option<Library>,
) -> Result<(), Error> {
    let mut output = CommandOutput::open()?;
    let mut map = arguments.configuration();
    let variables = super::take_variables(arguments.configuration(), alone);
    end_in_time();
    let request = request()?;
    let files = files(&arguments.provider.sealed)?;
    let mut config = Config::of_token(&mut map)?;
    let source = std::mem::replace(&mut config.pin, PinSource::Prompt);
    let mut pins = Unattended::new(source, &variables)?;
    drop(variables);

    let mut observer = ();
    let mut logins: Vec<Option<Registries>> = files.iter().map(|_| None).collect();
    // A file that doesn't say what it is for has to be opened for that.
    let unnamed = files.iter().enumerate().filter(|(_, it)| it.registries.is_none());
    let unnamed: Vec<_> = unnamed.map(|(place, _)| place).collect();
    let named = files.iter().flat_map(|it| it.registries.iter().flatten());
    if unnamed.is_empty() && best(&request.image, named).is_none() {
        return Ok(output.print(&ProviderAnswer::Nothing.encode(request.version))?);
    }
    let library = opened.insert(sealed::library(&config, PATIENCE)?);
    let mut opener = FileOpener::new(library, &config, None, &mut observer)?;
    let mut open = |place: usize, logins: &mut Vec<Option<Registries>>| -> Result<(), Error> {
        let (Some(file), Some(slot)) = (files.get(place), logins.get_mut(place)) else {
            return Err(Error::internal("a file that isn't there"));
        };
        if slot.is_none() {
            let own = opener.own_key(file, Some(&mut pins))?;
            *slot = Some(opener.open(file, own, &mut pins)?);
        }
        Ok(())
    };
    for place in unnamed {
        open(place, &mut logins)?;
    }
    // All entries, each with the place of its file and its place there.
    let mut entries: Vec<(Registry, usize, usize)> = Vec::new();
    for (place, (file, opened)) in files.iter().zip(&logins).enumerate() {
        let names: Vec<Registry> = match (&file.registries, opened) {
            (Some(names), _) => names.clone(),
            (None, Some(opened)) => {
                let logins = opened.logins().iter();
                logins.map(|it| it.registry.clone()).collect()
            }
            (None, None) => Vec::new(),
        };
        for (number, name) in names.into_iter().enumerate() {
            if let Some((_, other, _)) = entries.iter().find(|(it, ..)| *it == name) {
                let other = files.get(*other).map_or("", |it| it.name.as_str());
                return Err(SealedCommandError::Twice {
                    registry: name.to_string(),
                    files: [other.to_owned(), file.name.clone()],
                }
                .into());
            }
            entries.push((name, place, number));
        }
    }
    let names = || entries.iter().map(|(name, ..)| name);
    let Some((_, place, number)) = best(&request.image, names()).and_then(|it| entries.get(it))
    else {
        return Ok(output.print(&ProviderAnswer::Nothing.encode(request.version))?);
    };
    open(*place, &mut logins)?;
    let login = logins.get(*place).and_then(Option::as_ref);
    let login = login.and_then(|it| it.logins().get(*number));
    let login = login.ok_or_else(|| Error::internal("an entry that isn't there"))?;
    let login = ProviderLogin::new(&request.image, login, names(), arguments.cache);
    Ok(output.print(&ProviderAnswer::Login(login).encode(request.version))?)
}

/// From now on, ends the process before kubelet kills it: its own error says more.
fn end_in_time() {
    // Without a thread, kubelet's limit is left.
    let _ = thread::Builder::new().spawn(|| {
        thread::sleep(LIMIT);
        let error = Error::from(SealedCommandError::Late { seconds: LIMIT.as_secs() });
        leave(report::error_in_one_line(&error))
    });
}

fn request() -> Result<ProviderRequest, Error> {
    let mut bytes = Vec::new();
    let read = io::stdin().lock().take(LONGEST_REQUEST + 1).read_to_end(&mut bytes);
    read.map_err(|error| ProviderRequestError::Unreadable(error.to_string()))?;
    Ok(ProviderRequest::decode(&bytes)?)
}

fn files(paths: &[PathBuf]) -> Result<Vec<SealedFile>, Error> {
    paths.iter().map(|path| sealed::read(path)).collect()
}

/// PINs from where no person is asked.
struct Unattended {
    /// `None` if nothing says where the PIN is.
    sources: Option<Sources>,
}

impl Unattended {
    /// # Errors
    /// The source asks a person, or reads kubelet's request.
    fn new(source: PinSource, variables: &TakenVariables) -> Result<Self, SealedCommandError> {
        let sources = match source {
            PinSource::Prompt => None,
            PinSource::Askpass => {
                return Err(SealedCommandError::PinSource { source_name: "askpass" });
            }
            PinSource::StandardInput => {
                return Err(SealedCommandError::PinSource { source_name: "stdin" });
            }
            source => Some(Sources::new(source, variables)),
        };
        Ok(Self { sources })
    }
}

impl PinProvider for Unattended {
    fn origin(&mut self) -> PinOrigin {
        match &mut self.sources {
            Some(sources) => sources.origin(),
            None => PinOrigin::Person,
        }
    }

    fn pin(&mut self, request: &PinRequest<'_>) -> Result<Pin, PinError> {
        let token = request.token.to_owned();
        match &mut self.sources {
            Some(sources) => sources.pin(request),
            None => Err(PinError::NoPin { token }),
        }
    }

    fn confirm_at_reader(&mut self, request: &PinRequest<'_>) -> Result<(), PinError> {
        let token = request.token.to_owned();
        Err(PinError::FinalTryAtReader { token })
    }

    fn insert(&mut self, _missing: &str) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_a_unit_or_are_seconds() {
        for (text, seconds) in [("90", 90), ("90s", 90), ("30m", 1800), ("12h", 43200), ("0", 0)] {
            assert_eq!(duration(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for text in ["", "m", "-1s", "1d", "1.5h"] {
            duration(text).unwrap_err();
        }
    }
}
