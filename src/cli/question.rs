//! Questions to the person at the terminal: which of several, and whether something is meant.

use crate::error::{Failure, Help, remedy};
use crate::pin_entry;
use crate::printable::printable;

/// How many answers a choice may take.
const TRIES: usize = 3;

/// The place of the item that is picked; `None` if there is no terminal or no answer.
pub(super) fn pick(question: &str, items: &[String]) -> Option<usize> {
    let mut text = format!("{question}\n");
    for (number, item) in (1..).zip(items) {
        text += &format!("{number:4}  {}\n", printable(item));
    }
    for _ in 0..TRIES {
        text += &format!("Its number (1 to {}): ", items.len());
        let answer = pin_entry::ask_openly(&text)??;
        let number: usize = answer.trim().parse().unwrap_or_default();
        match number.checked_sub(1).filter(|place| *place < items.len()) {
            Some(place) => return Some(place),
            None => text.clear(),
        }
    }
    None
}

/// Asks the question, which only the whole word yes answers; `None` if there is no terminal.
pub(super) fn says_yes(question: &str) -> Option<bool> {
    let answer = pin_entry::ask_openly(question)?;
    Some(answer.is_some_and(|it| it == "yes"))
}

/// Asks whether `what` is meant.
///
/// # Errors
/// [`Unconfirmed`]
pub(super) fn confirm(what: &str) -> Result<(), Unconfirmed> {
    let question = format!("{}?\nType yes to go on: ", printable(what));
    let what = what.to_owned();
    match says_yes(&question) {
        None => Err(Unconfirmed::NoTerminal { what }),
        Some(true) => Ok(()),
        Some(false) => Err(Unconfirmed::Refused { what }),
    }
}

/// Exit code 7.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unconfirmed {
    #[error("{what}: that wants a yes that is typed, and there is no terminal")]
    NoTerminal { what: String },
    #[error("{what}: that was not confirmed")]
    Refused { what: String },
}

impl Failure for Unconfirmed {
    fn exit_code(&self) -> u8 {
        7
    }

    fn remedy(&self) -> Help {
        match self {
            Self::NoTerminal { .. } => remedy!("run the command at a terminal"),
            Self::Refused { .. } => remedy!("nothing was changed; type yes if it is meant"),
        }
    }
}
