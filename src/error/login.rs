//! Exit code 7: the login, and that there was no PIN to log in with.

use std::fmt;
use std::path::PathBuf;

use super::{CallFailure, Help};
use crate::printable::shell_word;

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

/// What a token says of the tries that are left after a refused PIN.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum TriesLeft {
    Fewer,
    None,
    One,
    Untold,
}

/// To append to a sentence on a refused PIN.
impl fmt::Display for TriesLeft {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Fewer => "; the token has counted a wrong PIN since the last right one",
            Self::None => "; the PIN is locked now",
            Self::One => "; the token says that one try is left before it locks",
            Self::Untold => "",
        })
    }
}

#[derive(Debug)]
pub enum LoginError {
    /// The program that was to ask for the PIN.
    Askpass {
        program: PathBuf,
        reason: String,
    },
    Call {
        token: String,
        failure: CallFailure,
    },
    /// The prompt was answered with nothing.
    Cancelled {
        token: String,
    },
    /// That of another process, a moment ago.
    CancelledBefore {
        token: String,
    },
    /// A key that wants its PIN for every signature, behind a library that can't be asked for one.
    ContextUnreachable {
        key: String,
        module: PathBuf,
        failure: CallFailure,
    },
    Environment {
        name: String,
        reason: &'static str,
    },
    File {
        path: PathBuf,
        reason: String,
    },
    FinalTry {
        token: String,
        origin: PinOrigin,
    },
    Incorrect {
        token: String,
        origin: PinOrigin,
        left: TriesLeft,
        failure: CallFailure,
    },
    /// A PIN that the token can't have.
    Length {
        token: String,
        origin: PinOrigin,
        shortest: usize,
        longest: usize,
    },
    Locked {
        token: String,
    },
    /// No program was found that asks for a PIN.
    NoAskpass,
    /// A stored PIN, where a refusal couldn't be remembered.
    NoMemory {
        token: String,
        origin: PinOrigin,
        reason: String,
    },
    /// No source has a PIN.
    NoPin {
        token: String,
    },
    NotSet {
        token: String,
        failure: CallFailure,
    },
    /// The reader's own keypad, or a window of the library's, was left or its cancel key pressed.
    ReaderCancelled {
        token: String,
        failure: CallFailure,
    },
    /// A stored PIN, after the token has refused one.
    RefusedBefore {
        token: String,
        origin: PinOrigin,
    },
    /// A program gave a PIN once more that the token has refused.
    Repeated {
        token: String,
        origin: PinOrigin,
    },
    StandardInput {
        reason: String,
    },
    Terminal {
        reason: String,
    },
    /// The PIN would have to be asked for, but a command has the terminal.
    TerminalLeft {
        token: String,
    },
    TimedOut {
        token: String,
        seconds: u64,
    },
    ToBeChanged {
        token: String,
        module: PathBuf,
        /// The flag or the return value that says so.
        told: String,
    },
    /// A person's, which all logins of a process have in common.
    TriesSpent {
        token: String,
    },
}

impl fmt::Display for LoginError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Askpass { program, reason } => {
                write!(f, "pinSource: {} gave no PIN: {reason}", program.display())
            }
            Self::NoAskpass => f.write_str("pinSource askpass: no program to ask for the PIN"),
            Self::RefusedBefore { token, origin } => write!(
                f,
                "token {token} seems to have refused a PIN; the PIN {origin} was not sent to it"
            ),
            Self::NoMemory {
                token,
                origin,
                reason,
            } => write!(
                f,
                "a PIN that token {token} refuses could not be remembered ({reason}), so the PIN {origin} was not sent to it"
            ),
            Self::Repeated { token, origin } => write!(
                f,
                "token {token} refused the PIN {origin}, which gave the same one again"
            ),
            Self::Call { token, failure } => write!(f, "login to token {token} failed: {failure}"),
            Self::Cancelled { token } => write!(f, "no PIN was entered for token {token}"),
            Self::CancelledBefore { token } => write!(
                f,
                "not asking for the PIN of token {token}: its last prompt was cancelled or timed out a \
                 moment ago"
            ),
            Self::ContextUnreachable {
                key,
                module,
                failure,
            } => write!(
                f,
                "{key} wants the PIN for every signature, which can't be given through {}: {failure}",
                module.display()
            ),
            Self::Environment { name, reason } => {
                write!(f, "pinSource: the environment variable {name} {reason}")
            }
            Self::File { path, reason } => {
                write!(f, "pinSource: file {}: {reason}", path.display())
            }
            Self::FinalTry {
                token,
                origin: PinOrigin::Reader,
            } => write!(
                f,
                "token {token} has one PIN try left, so the reader was not told to ask for it"
            ),
            Self::FinalTry { token, origin } => write!(
                f,
                "token {token} has one PIN try left; the PIN {origin} was not sent to it"
            ),
            Self::Incorrect {
                token,
                origin,
                left,
                failure,
            } => {
                write!(f, "token {token} refused the PIN {origin}{left}: {failure}")
            }
            Self::Length {
                token,
                origin,
                shortest,
                longest,
            } => write!(
                f,
                "the PIN {origin} was not sent: PINs of token {token} have {shortest} to {longest} bytes"
            ),
            Self::Locked { token } => {
                write!(f, "the PIN of token {token} is locked (CKR_PIN_LOCKED)")
            }
            Self::NoPin { token } => write!(
                f,
                "token {token} wants a PIN, and there is no terminal to ask for it and no pinSource"
            ),
            Self::NotSet { token, failure } => {
                write!(f, "token {token} has no user PIN yet: {failure}")
            }
            Self::ReaderCancelled { token, failure } => {
                write!(f, "the login to token {token} was cancelled: {failure}")
            }
            Self::StandardInput { reason } => write!(f, "pinSource: standard input {reason}"),
            Self::Terminal { reason } => {
                write!(f, "the terminal can't be asked for a PIN: {reason}")
            }
            Self::TerminalLeft { token } => write!(
                f,
                "token {token} wants a PIN, and the terminal belongs to the command"
            ),
            Self::TimedOut { token, seconds } => {
                write!(
                    f,
                    "the prompt for the PIN of token {token} was not answered within {seconds} s"
                )
            }
            Self::ToBeChanged { token, told, .. } => write!(
                f,
                "the PIN of token {token} must be changed before it can be used ({told})"
            ),
            Self::TriesSpent { token } => write!(
                f,
                "token {token} was sent three PINs and has accepted none, so no other is asked for"
            ),
        }
    }
}

impl LoginError {
    /// Whether a call to the token failed, as it does when the token is gone.
    pub fn is_a_failed_call(&self) -> bool {
        matches!(self, Self::Call { .. })
    }

    pub(super) fn help(&self) -> Help {
        Help::new(match self {
            Self::Call { .. } => {
                "check that the token is still inserted and no other program holds it, then try again"
            }
            Self::Askpass { .. } | Self::NoAskpass => {
                "set PKCS11_EXTERNAL_SIGNER_ASKPASS to the whole path of a program that asks for \
                 passwords (ksshaskpass, ssh-askpass), install pinentry, or choose another pinSource"
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
            Self::Cancelled { .. } => "run the command again and type the PIN",
            Self::CancelledBefore { .. } => {
                "wait five seconds, run the command again and type the PIN"
            }
            Self::ContextUnreachable { .. } => {
                "name the token's own library in pathLib instead of a proxy such as p11-kit-proxy.so"
            }
            Self::Environment { .. } => {
                "export the variable where the client starts, or choose another pinSource: prompt, \
                 stdin or file:/path"
            }
            Self::File { .. } => {
                "the file must hold the PIN in its first line, belong to you or root, and be \
                 readable by nobody else (chmod 600)"
            }
            Self::FinalTry {
                origin: PinOrigin::Reader,
                ..
            } => {
                "run the command from a terminal, type yes there and enter the PIN at the reader; a \
                 wrong one locks the token"
            }
            Self::FinalTry { .. } => {
                "run the command from a terminal without pin and pinSource and type the PIN \
                 yourself; a wrong one locks the token"
            }
            Self::Locked { .. }
            | Self::Incorrect {
                left: TriesLeft::None,
                ..
            } => {
                "unblock it with the PUK or the SO PIN: ykman piv access unblock-pin (YubiKey), \
                 pkcs15-tool --unblock-pin (OpenSC), tpm2_dictionarylockout --clear-lockout (TPM), \
                 or the token's own tool"
            }
            Self::Incorrect {
                origin: PinOrigin::Person | PinOrigin::Reader,
                ..
            } => {
                "make sure which PIN the token wants (a YubiKey: the PIV PIN) before you try again"
            }
            Self::Incorrect {
                origin: PinOrigin::Askpass(_),
                ..
            } => {
                "make sure which PIN the token wants (a YubiKey: the PIV PIN), or correct what that \
                 program answers by itself, before you try again"
            }
            Self::Incorrect { .. } => {
                "correct the PIN at its source, then log in yourself: pkcs11-external-signer check \
                 --pin-source prompt; until then no stored PIN is sent, since every try counts"
            }
            Self::Length { .. } => {
                "check which PIN is meant (a YubiKey: the PIV PIN, 6 to 8 characters); \
                 no try was spent"
            }
            Self::NoMemory { .. } => {
                "see that you can write to .local/state/pkcs11-external-signer in your home, or to one \
                 of those directories, with mode 0700; or type the PIN: set pinSource to prompt"
            }
            Self::NoPin { .. } => {
                "run the command from a terminal (with ssh: -t), or set pinSource to askpass, stdin, \
                 file:/path or env:NAME"
            }
            Self::NotSet { .. } => {
                "initialise the user PIN first, with pkcs11-tool --init-pin or the token's own tool"
            }
            Self::ReaderCancelled { .. } => {
                "run the command again and enter the PIN where the library asks for it: at the reader, \
                 or in a window of its own"
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
            Self::ToBeChanged { module, .. } => {
                return Help::new(format!(
                    "change it: pkcs11-tool --module {} --login --change-pin, or the token's own tool",
                    shell_word(&module.to_string_lossy())
                ));
            }
            Self::TriesSpent { .. } => {
                "make sure which PIN the token wants (check --no-login tells how it counts), then start \
                 the command again"
            }
        })
    }
}
