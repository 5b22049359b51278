//! The PIN sources of the configuration: the configuration itself, a file, the environment, standard
//! input, a person at the terminal, or another program that asks one.

#![forbid(unsafe_code)]

mod askpass;
mod file;
mod notice;
mod pinentry;
mod prompt;
mod queue;
mod sources;
mod standard_input;

pub use notice::show_after;
pub use sources::Sources;

use std::time::Duration;

use crate::pin::{PinError, PinOrigin, PinRequest};
use crate::printable::printable;

/// How long a person may take for an answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(60);

/// What a person is asked, in one line that is fit for a terminal.
fn question(request: &PinRequest<'_>) -> String {
    format!(
        "PIN for token {}, {}: ",
        printable(request.token),
        printable(request.key)
    )
}

fn wrong_length(request: &PinRequest<'_>, origin: PinOrigin) -> PinError {
    PinError::Length {
        token: request.token.to_string(),
        origin,
        shortest: request.shortest,
        longest: request.longest,
    }
}

/// Asks the person at the terminal something that is no secret. `None` without a terminal; no
/// answer is `Some(None)`. The question must be fit for a terminal.
pub fn ask_openly(question: &str) -> Option<Option<String>> {
    let terminal = prompt::Terminal::open()?;
    Some(terminal.ask_openly(question).ok().flatten())
}
