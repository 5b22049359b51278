//! What a command has open while it runs: standard output for what it prints, and the library or the keyring, which are
//! finalised when that is out.

use std::sync::Arc;

use super::output::CommandOutput;
use super::style::Palette;
use crate::error::Error;
use crate::keyring::Keyring;
use crate::library::Library;

pub(super) struct CommandSession {
    pub(super) output: CommandOutput,
    pub(super) palette: Palette,
    /// The number of `-v`.
    pub(super) verbosity: u8,
    pub(super) library: Option<Library>,
    pub(super) keyring: Arc<Keyring>,
    /// With which the process ends if nothing has failed.
    pub(super) exit_code: u8,
}

impl CommandSession {
    /// Runs a command; its exit code. An error is shown. A library that hangs or crashes at its end changes nothing.
    pub(super) fn run(
        verbosity: u8,
        show: fn(&Error) -> u8,
        command: impl FnOnce(&mut Self) -> Result<(), Error>,
    ) -> u8 {
        let palette = Palette::for_standard_output();
        let output = match CommandOutput::open() {
            Ok(output) => output,
            Err(error) => return show(&error),
        };
        let keyring = Arc::default();
        let mut session = Self { output, palette, verbosity, library: None, keyring, exit_code: 0 };
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
}
