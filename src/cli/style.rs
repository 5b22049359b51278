//! Colour, where it is wanted: on a terminal, and never with NO_COLOR (no-color.org).

use std::io::{self, IsTerminal as _};

/// How text is set off.
#[derive(Clone, Copy)]
pub(super) enum Style {
    Heading,
    Good,
    Concern,
    Bad,
}

/// Whether to colour what goes to one stream.
#[derive(Clone, Copy)]
pub(super) struct Palette {
    is_coloured: bool,
}

impl Palette {
    /// To be made before standard output is taken for an answer.
    pub(super) fn for_standard_output() -> Self {
        let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let is_dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        Self { is_coloured: io::stdout().is_terminal() && !is_set("NO_COLOR") && !is_dumb }
    }

    /// `text` must be fit for a terminal already.
    pub(super) fn paint(self, style: Style, text: &str) -> String {
        if !self.is_coloured || text.is_empty() {
            return text.to_owned();
        }
        let code = match style {
            Style::Heading => "1",
            Style::Good => "32",
            Style::Concern => "33",
            Style::Bad => "31",
        };
        format!("\x1b[{code}m{text}\x1b[0m")
    }
}
