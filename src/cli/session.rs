//! What a command has open while it runs: standard output for what it prints, and the library or the keyring, which are
//! finalised when that is out.

use std::ffi::OsString;
use std::sync::Arc;

use super::output::CommandOutput;
use crate::config::PinSource;
use crate::error::Error;
use crate::keyring::Keyring;
use crate::library::Library;
use crate::process::environment::{self, SingleThreaded, TakenVariables};
use crate::protocol::Configuration;

pub(super) struct CommandSession {
    pub(super) output: CommandOutput,
    pub(super) library: Option<Library>,
    pub(super) keyring: Arc<Keyring>,
    /// With which the process ends if nothing has failed.
    pub(super) exit_code: u8,
    /// Until the first library is loaded.
    alone: Option<SingleThreaded>,
}

impl CommandSession {
    /// Runs a command; its exit code. An error is shown. A library that hangs or crashes at its end changes nothing.
    pub(super) fn run(
        alone: SingleThreaded,
        show: fn(&Error) -> u8,
        command: impl FnOnce(&mut Self) -> Result<(), Error>,
    ) -> u8 {
        let output = match CommandOutput::open() {
            Ok(output) => output,
            Err(error) => return show(&error),
        };
        let (keyring, alone) = (Arc::default(), Some(alone));
        let mut session = Self { output, library: None, keyring, exit_code: 0, alone };
        let outcome = command(&mut session);
        let code = outcome.map_or_else(|error| show(&error), |()| session.exit_code);
        let Self { output, library, keyring, .. } = session;
        // Who reads it need not wait for the library's end.
        drop(output);
        if let Some(library) = library {
            library.module.finalize(code);
        }
        keyring.finish(code);
        code
    }

    /// The value of this variable, taken out of the environment.
    pub(super) fn take(&self, name: &str) -> Option<OsString> {
        environment::take(name, self.alone.as_ref()?)
    }

    /// Takes the variable that a configuration names for the PIN out of the environment, once and before a library is
    /// opened. Errors in the configuration are ignored here and reported when it is used.
    pub(super) fn take_variables(&mut self, mut configuration: Configuration) -> TakenVariables {
        let source = PinSource::from_map(&mut configuration).ok().flatten();
        let name = source.as_ref().and_then(PinSource::variable);
        let alone = self.alone.take();
        alone.map_or_else(TakenVariables::default, |alone| TakenVariables::take(name, alone))
    }
}
