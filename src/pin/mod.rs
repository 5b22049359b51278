//! Where a PIN can come from: the configuration, a file, the environment, standard input, a person
//! at the terminal, or another program that asks one.
//!
//! `token` sees it as the trait [`PinProvider`] and decides how often a PIN is sent; this part
//! knows nothing of tokens but what a prompt has to say.

#![forbid(unsafe_code)]

mod askpass;
mod error;
mod file;
mod notice;
mod pinentry;
mod prompt;
mod queue;
mod sources;
mod standard_input;
mod tried;

pub use error::{PinError, PinOrigin};
pub use notice::Notice;
pub use sources::{Shared, Sources};

use std::time::Duration;

use crate::config::TokenName;
use crate::printable::printable;
use crate::secret::Pin;

/// What a PIN is asked for. The texts are as they come from the token; whoever shows them makes
/// them fit for a terminal.
pub struct PinRequest<'a> {
    pub token: &'a TokenName,
    pub key: &'a str,
    /// In bytes.
    pub shortest: usize,
    /// In bytes, at most [`crate::secret::MAX_PIN_LENGTH`].
    pub longest: usize,
    /// What has to be said before the prompt, such as that the last PIN was wrong.
    pub notice: Option<&'a str>,
    /// Set when a wrong PIN would lock the token: what a person must agree to first.
    pub confirm: Option<&'a str>,
}

/// How long a person may take for an answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(60);

impl PinRequest<'_> {
    /// What a person is asked, in one line that is fit for a terminal.
    fn question(&self) -> String {
        format!(
            "PIN for token {}, {}: ",
            printable(&self.token.to_string()),
            printable(self.key)
        )
    }

    fn allows(&self, pin: &Pin) -> bool {
        (self.shortest..=self.longest).contains(&pin.length())
    }

    fn wrong_length(&self, origin: PinOrigin) -> PinError {
        PinError::Length {
            token: self.token.to_string(),
            origin,
            shortest: self.shortest,
            longest: self.longest,
        }
    }
}

/// Asks the person at the terminal something that is no secret. `None` without a terminal; no
/// answer is `Some(None)`. The question must be fit for a terminal.
pub fn ask_openly(question: &str) -> Option<Option<String>> {
    let terminal = prompt::Terminal::open()?;
    Some(terminal.ask_openly(question).ok().flatten())
}

/// The stored PINs and the person, as a token sees them.
pub trait PinProvider {
    /// Where the next PIN would come from. Nothing is asked or consumed for the answer.
    fn origin(&mut self) -> PinOrigin;

    /// The PIN, of a length that the token can have.
    fn pin(&mut self, request: &PinRequest<'_>) -> Result<Pin, PinError>;

    /// A person's word that the reader may ask for the PIN, where a wrong one locks the token.
    fn confirm_at_reader(&mut self, request: &PinRequest<'_>) -> Result<(), PinError>;

    /// The token has accepted one.
    fn accepted(&mut self, token: &TokenName);

    /// The token was sent one that a person or their program gave, and hasn't accepted it. Unless
    /// it was refused, that is because the login came to no clear end.
    fn not_accepted(&mut self, token: &TokenName, pin: &Pin, is_refused: bool);

    /// How many of those the token was sent in this process since it accepted one.
    fn tries(&self, token: &TokenName) -> usize;

    /// Asks a person to insert the token that is missing; whether they say that they have. Nobody
    /// is asked who wouldn't be asked for the PIN at a terminal.
    fn insert(&mut self, missing: &str) -> bool;

    /// A line on the terminal that comes after `delay` and goes when the guard is dropped.
    fn notice(&self, delay: Duration, text: &str) -> Notice;
}
