//! What the token's side needs to get a PIN: the PIN itself, the request for one, and the trait of
//! its provider.
//!
//! Nothing here knows a terminal. `pin_entry` asks a person at one; another [`PinProvider`] may ask
//! over a socket. The provider doesn't decide how often a PIN is sent: `token` does.

#![forbid(unsafe_code)]

mod error;

use std::fmt;

use crate::error::Error;
pub use error::{PinOrigin, cancelled, final_try, no_pin, terminal_unusable};

/// The longest PIN that is handed to a token, in bytes.
pub const MAX_PIN_LENGTH: usize = 255;

/// A PIN, never empty: an empty one would tell some modules to use a reader's own keypad. The allocator
/// wipes it when it is freed, and it can be neither printed nor cloned by accident.
pub struct Pin(String);

impl Pin {
    /// `None` for a text that can't be a PIN: empty, longer than [`MAX_PIN_LENGTH`], or with a control
    /// character. A line ending that a file or a variable has at its end would cost a try.
    pub fn new(text: &str) -> Option<Self> {
        let can_be_one =
            (1..=MAX_PIN_LENGTH).contains(&text.len()) && !text.chars().any(char::is_control);
        can_be_one.then(|| Self(text.to_owned()))
    }

    /// The PIN itself, for the one call that sends it to the token.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// A second copy, for a source that may be asked again.
    pub fn duplicate(&self) -> Self {
        Self(self.0.clone())
    }

    /// Its length in bytes, which PKCS#11's limits count (CK_TOKEN_INFO, ulMinPinLen).
    pub fn length(&self) -> usize {
        self.0.len()
    }
}

impl fmt::Debug for Pin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pin(…)")
    }
}

/// What a PIN is asked for. The texts are as they come from the token: a provider that shows them
/// makes them printable first.
pub struct PinRequest<'a> {
    /// Label, serial and slot.
    pub token: &'a str,
    pub key: &'a str,
    /// In bytes.
    pub shortest: usize,
    /// In bytes, at most [`MAX_PIN_LENGTH`].
    pub longest: usize,
    /// What to say before the prompt, such as that the last PIN was wrong.
    pub notice: Option<&'a str>,
    /// Set when a wrong PIN would lock the token: what a person must agree to first.
    pub confirm: Option<&'a str>,
}

impl PinRequest<'_> {
    /// Whether the token can have such a PIN.
    pub fn allows(&self, pin: &Pin) -> bool {
        (self.shortest..=self.longest).contains(&pin.length())
    }
}

/// Has the PIN or can get it: a configuration, a person at a terminal, another process.
pub trait PinProvider {
    /// Where the next PIN would come from. Nothing is asked or consumed for the answer.
    fn origin(&mut self) -> PinOrigin;

    /// The PIN, of a length that the token can have.
    fn pin(&mut self, request: &PinRequest<'_>) -> Result<Pin, Error>;

    /// Asks a person to agree that the reader asks for the PIN, where a wrong one locks the token.
    fn confirm_at_reader(&mut self, request: &PinRequest<'_>) -> Result<(), Error>;

    /// From now on the reader waits for the PIN. Says so to a person who doesn't sit at the terminal of
    /// this process, where it is shown anyway.
    fn at_reader(&mut self, _notice: &str) {}
}
