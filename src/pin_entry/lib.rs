//! The PIN sources of the configuration: the configuration itself, a file, the environment, standard
//! input, a person at the terminal, or another program that asks one.

#![forbid(unsafe_code)]

mod askpass;
mod pinentry;
mod prompt;
mod queue;
mod sources;
mod stored;

pub use prompt::{ask, show_after};
pub use sources::{Sources, failed};

use config::pin::{Pin, PinOrigin, PinRequest};
use messages::error::{Error, Exit};
use messages::printable::printable;
use system::limits;

/// The question to a person, in a line that fits a narrow terminal.
fn question(request: &PinRequest<'_>) -> String {
    format!("PIN for \"{}\" ({}): ", printable(&request.label), printable(&request.what))
}

fn timed_out(token: &str) -> Error {
    let seconds = limits::ANSWER.as_secs();
    let text =
        format!("the prompt for the PIN of token {token} was not answered within {seconds} s");
    Error::new(Exit::Login, text).help(
        "run the command again; where nobody can type it, set pinSource (--pin-source) to stdin, file:/path or env:NAME",
    )
}

fn wrong_length(request: &PinRequest<'_>, origin: &PinOrigin) -> Error {
    let PinRequest { token, shortest, longest, .. } = request;
    let text = format!(
        "the PIN {origin} was not sent: PINs of token {token} have {shortest} to {longest} bytes"
    );
    Error::new(Exit::Login, text).help(
        "check which PIN is meant (for a YubiKey, the PIV PIN, with 6 to 8 characters); no try was used up",
    )
}

/// Makes a PIN of these bytes; `None` if they can't be one.
fn pin_of(bytes: &[u8]) -> Option<Pin> {
    Pin::new(str::from_utf8(bytes).ok()?)
}

fn first_line(bytes: &[u8]) -> Option<Pin> {
    let line = bytes.split(|byte| *byte == b'\n').next()?;
    pin_of(line.strip_suffix(b"\r").unwrap_or(line))
}
