//! Exit code 7: there was no PIN to log in with.

use std::fmt;
use std::path::PathBuf;

use crate::error::{Failure, Remedy};

/// Where a PIN came from, for messages.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum PinOrigin {
    /// Somebody entered it into this program.
    Askpass(PathBuf),
    /// The key `pin` of the configuration.
    Configuration,
    Environment(String),
    File(PathBuf),
    /// Somebody typed it at the terminal.
    Person,
    /// Somebody entered it at the reader's own keypad.
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

#[derive(Debug, thiserror::Error)]
pub enum PinError {
    /// The program that was to ask for the PIN.
    #[error("pinSource: {} gave no PIN: {reason}", .program.display())]
    Askpass { program: PathBuf, reason: String },
    /// The prompt was answered with nothing.
    #[error("no PIN was entered for token {token}")]
    Cancelled { token: String },
    /// That of another process, a moment ago.
    #[error(
        "not asking for the PIN of token {token}: its last prompt was cancelled or timed out a \
         moment ago"
    )]
    CancelledBefore { token: String },
    #[error("pinSource: the environment variable {name} {reason}")]
    Environment { name: String, reason: &'static str },
    #[error("pinSource: file {}: {reason}", .path.display())]
    File { path: PathBuf, reason: String },
    #[error("token {token} has one PIN try left; the PIN {origin} was not sent to it")]
    FinalTry { token: String, origin: PinOrigin },
    #[error("token {token} has one PIN try left, so the reader was not told to ask for it")]
    FinalTryAtReader { token: String },
    /// A PIN that the token can't have.
    #[error(
        "the PIN {origin} was not sent: PINs of token {token} have {shortest} to {longest} bytes"
    )]
    Length {
        token: String,
        origin: PinOrigin,
        shortest: usize,
        longest: usize,
    },
    /// No program was found that asks for a PIN.
    #[error("pinSource askpass: no program to ask for the PIN")]
    NoAskpass,
    /// No source has a PIN.
    #[error("token {token} wants a PIN, and there is no terminal to ask for it and no pinSource")]
    NoPin { token: String },
    /// A stored PIN, after the token has refused one.
    #[error("token {token} seems to have refused a PIN; the PIN {origin} was not sent to it")]
    RefusedBefore { token: String, origin: PinOrigin },
    /// A program gave a PIN once more that the token has refused.
    #[error("token {token} refused the PIN {origin}, which gave the same one again")]
    Repeated { token: String, origin: PinOrigin },
    #[error("pinSource: standard input {reason}")]
    StandardInput { reason: String },
    #[error("the terminal can't be asked for a PIN: {reason}")]
    Terminal { reason: String },
    /// The PIN would have to be asked for, but a command has the terminal.
    #[error("token {token} wants a PIN, and the terminal belongs to the command")]
    TerminalLeft { token: String },
    #[error("the prompt for the PIN of token {token} was not answered within {seconds} s")]
    TimedOut { token: String, seconds: u64 },
}

impl Failure for PinError {
    fn exit_code(&self) -> u8 {
        7
    }

    fn remedy(&self) -> Remedy {
        Remedy::new(match self {
            Self::Askpass { .. } | Self::NoAskpass => {
                "set PKCS11_EXTERNAL_SIGNER_ASKPASS to the whole path of a program that asks for \
                 passwords (ksshaskpass, ssh-askpass), install pinentry, or choose another pinSource"
            }
            Self::Cancelled { .. } => "run the command again and type the PIN",
            Self::CancelledBefore { .. } => {
                "wait five seconds, run the command again and type the PIN"
            }
            Self::Environment { .. } => {
                "export the variable where the client starts, or choose another pinSource: prompt, \
                 stdin or file:/path"
            }
            Self::File { .. } => {
                "the file must hold the PIN in its first line, belong to you or root, and be \
                 readable by nobody else (chmod 600)"
            }
            Self::FinalTry { .. } => {
                "run the command from a terminal without pin and pinSource and type the PIN \
                 yourself; a wrong one locks the token"
            }
            Self::FinalTryAtReader { .. } => {
                "run the command from a terminal, type yes there and enter the PIN at the reader; a \
                 wrong one locks the token"
            }
            Self::Length { .. } => {
                "check which PIN is meant (a YubiKey: the PIV PIN, 6 to 8 characters); \
                 no try was spent"
            }
            Self::NoPin { .. } => {
                "run the command from a terminal (with ssh: -t), or set pinSource to askpass, stdin, \
                 file:/path or env:NAME"
            }
            Self::RefusedBefore {
                origin: PinOrigin::Askpass(_),
                ..
            } => {
                "two logins with this PIN came to no clear end: look at the token and at the PIN \
                 before you try again"
            }
            Self::RefusedBefore { .. } => {
                "correct the PIN, then, in a terminal (with ssh: -t), log in yourself: \
                 pkcs11-external-signer check --pin-source prompt; where nobody can type, check --despite-refusal sends the stored PIN once"
            }
            Self::Repeated { .. } => {
                "correct what that program answers before you try again; a PIN that was refused is \
                 not sent twice"
            }
            Self::StandardInput { .. } => {
                "write the PIN and a newline to standard input, or choose another pinSource: \
                 prompt, file:/path or env:NAME"
            }
            Self::Terminal { .. } => {
                "run the command in a terminal of your own, or set pinSource to stdin, file:/path \
                 or env:NAME"
            }
            Self::TerminalLeft { .. } => {
                "end the run and start it again with --context for the context that needs this \
                 token, which asks for the PIN first; or set pinSource"
            }
            Self::TimedOut { .. } => {
                "run the command again and type the PIN in time; where nobody can, set pinSource \
                 to stdin, file:/path or env:NAME"
            }
        })
    }
}
