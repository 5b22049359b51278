//! Why there was no PIN to log in with.

use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Exit, Kind};

/// Where a PIN came from, for messages.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub enum PinOrigin {
    /// A person entered it into this program.
    Askpass(PathBuf),
    /// The key `pin` of the configuration.
    Configuration,
    Environment(String),
    File(PathBuf),
    /// A person typed it at the terminal.
    Person,
    /// A person entered it at the reader's own keypad.
    Reader,
    StandardInput,
}

impl PinOrigin {
    /// Whether a person is there to see what became of it and to decide what follows.
    pub fn is_attended(&self) -> bool {
        matches!(self, Self::Askpass(_) | Self::Person | Self::Reader)
    }
}

impl fmt::Display for PinOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Askpass(program) => write!(f, "from {}", program.display()),
            Self::Configuration => f.write_str("from pin in the configuration"),
            Self::Environment(name) => write!(f, "from the environment variable {name}"),
            Self::File(path) => write!(f, "from the file {}", path.display()),
            Self::Person => f.write_str("typed at the terminal"),
            Self::Reader => f.write_str("entered at the reader"),
            Self::StandardInput => f.write_str("from standard input"),
        }
    }
}

pub fn cancelled(token: &str) -> Error {
    Error::new(Exit::Login, format!("no PIN was entered for token {token}"))
        .help("run the command again and type the PIN")
        .kind(Kind::PinCancelled)
}

/// There is nobody to ask, and no source.
pub fn no_pin(token: &str) -> Error {
    let text = format!(
        "token {token} wants a PIN, and there is no terminal to ask for it and no pinSource"
    );
    Error::new(Exit::Login, text).kind(Kind::NoPin).help(
        "run the command from a terminal (with ssh: -t), or set pinSource (--pin-source) to askpass, stdin, \
         file:/path or env:NAME",
    )
}

/// The last try is a person's, after a yes.
pub fn final_try(token: &str, origin: &PinOrigin) -> Error {
    let (text, help) = match origin {
        PinOrigin::Reader => (
            format!("token {token} has one PIN try left, so the reader was not asked for it"),
            "run the command from a terminal, type yes there and enter the PIN at the reader; a wrong one \
             locks the token",
        ),
        _ => (
            format!("token {token} has one PIN try left; the PIN {origin} was not sent to it"),
            "run the command from a terminal without pin and pinSource (--pin-source) and type the PIN \
             yourself; a wrong one locks the token, and unblocking it with the PUK is safer than guessing",
        ),
    };
    Error::new(Exit::Login, text).help(help)
}

/// The terminal is there, and nobody can be asked at it.
pub fn terminal_unusable(reason: impl fmt::Display) -> Error {
    Error::new(Exit::Login, format!("the terminal can't be asked for a PIN: {reason}")).help(
        "run the command in a terminal of your own, or set pinSource (--pin-source) to stdin, file:/path or \
         env:NAME",
    )
}
