//! Questions to the person at the terminal: which of several, and whether something is meant.

use crate::error::{Error, Exit};
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
        match number.checked_sub(1).filter(|index| *index < items.len()) {
            Some(index) => return Some(index),
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

/// Has a person say by a typed yes that `what` is meant.
pub(super) fn confirm(what: &str) -> Result<(), Error> {
    let question = format!("{}?\nType yes to go on: ", printable(what));
    let (text, help) = match says_yes(&question) {
        Some(true) => return Ok(()),
        Some(false) => (
            format!("{what}: that was not confirmed"),
            "nothing was changed; type yes if it is meant",
        ),
        None => (
            format!("{what}: type \"yes\" at a terminal to confirm that; there is no terminal"),
            "run the command at a terminal",
        ),
    };
    Err(Error::new(Exit::Login, text).help(help))
}
