//! What a command prints on standard output.

use std::io::{self, ErrorKind, IsTerminal as _};

use clap::builder::styling::{AnsiColor, Style};
use serde::Serialize;

use crate::error::Error;
use crate::printable::printable_json;
use crate::process::output::StandardOutput;
use crate::process::output::answer_lost;

pub(super) const HEADING: Style = Style::new().bold();
pub(super) const GOOD: Style = AnsiColor::Green.on_default();
pub(super) const CONCERN: Style = AnsiColor::Yellow.on_default();
pub(super) const BAD: Style = AnsiColor::Red.on_default();

/// Standard output, out of the reach of modules, for a command's text.
pub(super) struct CommandOutput {
    output: StandardOutput,
    is_coloured: bool,
}

impl CommandOutput {
    /// To be called once, before a module is loaded.
    pub(super) fn open() -> Result<Self, Error> {
        let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let is_dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        // Never with NO_COLOR (no-color.org).
        let is_coloured = io::stdout().is_terminal() && !is_set("NO_COLOR") && !is_dumb;
        Ok(Self { output: StandardOutput::set_aside()?, is_coloured })
    }

    /// `text` must be fit for a terminal already.
    pub(super) fn paint(&self, style: Style, text: &str) -> String {
        match self.is_coloured && !text.is_empty() {
            true => format!("{style}{text}{style:#}"),
            false => text.to_owned(),
        }
    }

    /// Prints the text. A reader that stops reading, such as `head`, is no error.
    pub(super) fn print(&mut self, text: &str) -> Result<(), Error> {
        match self.output.write(text) {
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
