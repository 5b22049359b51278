//! What a command prints on standard output.

use std::io::ErrorKind;

use serde::Serialize;

use crate::error::Error;
use crate::printable::printable_json;
use crate::process::output::StandardOutput;
use crate::process::output::answer_lost;

/// Standard output, out of the reach of modules, for a command's text.
pub(super) struct CommandOutput(StandardOutput);

impl CommandOutput {
    /// To be called once, before a module is loaded.
    pub(super) fn open() -> Result<Self, Error> {
        StandardOutput::set_aside().map(Self)
    }

    /// Prints the text. A reader that stops reading, such as `head`, is no error.
    pub(super) fn print(&mut self, text: &str) -> Result<(), Error> {
        match self.0.write(text) {
            Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(answer_lost(&error)),
            _ => Ok(()),
        }
    }

    /// Prints a JSON document.
    pub(super) fn print_json(&mut self, document: &impl Serialize) -> Result<(), Error> {
        let document = serde_json::to_string_pretty(document)
            .map_err(|error| Error::internal(format!("JSON: {error}")))?;
        self.print(&format!("{}\n", printable_json(&document)))
    }
}
