//! Why there was no PIN to log in with.

use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Exit, Failure, Help, Setting};

const PIN_SOURCE: Setting = Setting("pinSource");

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

#[derive(Debug, Deserialize, Serialize, thiserror::Error)]
pub enum PinError {
    #[error("no PIN was entered for token {token}")]
    Cancelled { token: String },
    #[error("token {token} wants a PIN, and there is no terminal to ask for it and no pinSource")]
    NoPin { token: String },
    #[error("{0}")]
    Other(Error),
}

impl PinError {
    pub fn new(text: impl Into<String>, help: impl Into<Help>) -> Self {
        Self::Other(Error::new(Exit::Login, text).help(help))
    }

    /// The last try is a person's, after a yes.
    pub fn final_try(token: &str, origin: &PinOrigin) -> Self {
        if *origin == PinOrigin::Reader {
            return Self::new(
                format!("token {token} has one PIN try left, so the reader was not asked for it"),
                "run the command from a terminal, type yes there and enter the PIN at the reader; a \
                 wrong one locks the token",
            );
        }
        Self::new(
            format!("token {token} has one PIN try left; the PIN {origin} was not sent to it"),
            format!(
                "run the command from a terminal without pin and {PIN_SOURCE} and type the PIN \
                 yourself; a wrong one locks the token"
            ),
        )
    }

    /// The terminal is there, and nobody can be asked at it.
    pub fn terminal(reason: impl fmt::Display) -> Self {
        Self::new(
            format!("the terminal can't be asked for a PIN: {reason}"),
            format!(
                "run the command in a terminal of your own, or set {PIN_SOURCE} to stdin, file:/path \
                 or env:NAME"
            ),
        )
    }
}

impl Failure for PinError {
    fn exit_code(&self) -> u8 {
        Exit::Login as u8
    }

    fn remedy(&self) -> Help {
        match self {
            Self::Cancelled { .. } => "run the command again and type the PIN".into(),
            Self::NoPin { .. } => format!(
                "run the command from a terminal (with ssh: -t), or set {PIN_SOURCE} to askpass, stdin, \
                 file:/path or env:NAME"
            )
            .into(),
            Self::Other(error) => error.remedy(),
        }
    }
}
