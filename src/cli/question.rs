//! Questions to the person at the terminal: which of several, and whether something is meant.

use config::pin::Answer;
use messages::error::{Error, Exit};
use messages::printable::printable;
use pin_entry;

/// How many answers a person may give before a choice counts as not made.
const TRIES: usize = 3;

/// Has a person pick an item, and returns its place; `None` if there is no terminal or no answer.
pub(super) fn pick(question: &str, items: &[String]) -> Option<usize> {
    let mut text = format!("{question}\n");
    for (number, item) in (1..).zip(items) {
        text += &format!("{number:4}  {}\n", printable(item));
    }
    for _ in 0..TRIES {
        text += &format!("Its number (1 to {}): ", items.len());
        let Answer::Typed(answer) = pin_entry::ask(&text, true) else { return None };
        let number: usize = String::from_utf8_lossy(&answer).trim().parse().unwrap_or_default();
        match number.checked_sub(1).filter(|index| *index < items.len()) {
            Some(index) => return Some(index),
            None => text.clear(),
        }
    }
    None
}

/// Has a person confirm `what`, by answering the question (fit for a terminal) with the whole word yes.
pub(super) fn confirm(what: &str, question: &str) -> Result<(), Error> {
    let (text, help) = match pin_entry::ask(&format!("{question}? Type yes: "), true) {
        Answer::Typed(answer) if answer == b"yes" => return Ok(()),
        Answer::Typed(_) | Answer::None => {
            ("was not confirmed: you did not type yes", "run the command again, and type yes")
        }
        Answer::NoTerminal => (
            "needs somebody to type yes, and there is no terminal",
            "run the command at a terminal",
        ),
    };
    let text = format!("{what} {text}; nothing was done");
    Err(Error::new(Exit::Login, text).help(help))
}
