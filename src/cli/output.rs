//! What a command prints on standard output.

#![forbid(unsafe_code)]

use std::io::ErrorKind;

use serde::Serialize;

use crate::error::Error;
use crate::printable::printable_json;
use crate::process::AnswerError;
use crate::process::output::StandardOutput;

/// Standard output, out of the reach of modules, for a command's text.
pub(super) struct CommandOutput(StandardOutput);

impl CommandOutput {
    /// To be called once, before a module is loaded.
    pub(super) fn open() -> Result<Self, AnswerError> {
        StandardOutput::set_aside().map(Self)
    }

    /// Prints the text. A reader that stops reading, such as `head`, is no error.
    pub(super) fn print(&mut self, text: &str) -> Result<(), AnswerError> {
        match self.0.write(text) {
            Err(AnswerError::Lost(error)) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
            outcome => outcome,
        }
    }

    /// Prints a JSON document.
    pub(super) fn print_json(&mut self, document: &impl Serialize) -> Result<(), Error> {
        let document = serde_json::to_string_pretty(document)
            .map_err(|error| Error::internal(format!("JSON: {error}")))?;
        Ok(self.print(&format!("{}\n", printable_json(&document)))?)
    }
}
