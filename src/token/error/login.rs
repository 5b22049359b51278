//! Exit code 7: the login.

use std::fmt;
use std::path::PathBuf;

use super::CallFailure;
use crate::error::{Failure, Remedy};
use crate::pin::PinOrigin;
use crate::printable::shell_word;

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

#[derive(Debug, thiserror::Error)]
pub enum LoginError {
    #[error("login to token {token} failed: {failure}")]
    Call { token: String, failure: CallFailure },
    #[error("token {token} refused the PIN {origin}{left}: {failure}")]
    Incorrect {
        token: String,
        origin: PinOrigin,
        left: TriesLeft,
        failure: CallFailure,
    },
    #[error("the PIN of token {token} is locked (CKR_PIN_LOCKED)")]
    Locked { token: String },
    /// A stored PIN, where a refusal couldn't be remembered.
    #[error(
        "a PIN that token {token} refuses could not be remembered ({reason}), so the PIN {origin} \
         was not sent to it"
    )]
    NoMemory {
        token: String,
        origin: PinOrigin,
        reason: String,
    },
    #[error("token {token} has no user PIN yet: {failure}")]
    NotSet { token: String, failure: CallFailure },
    /// The reader's own keypad, or a window of the library's, was left or its cancel key pressed.
    #[error("the login to token {token} was cancelled: {failure}")]
    ReaderCancelled { token: String, failure: CallFailure },
    #[error("the PIN of token {token} must be changed before it can be used ({told})")]
    ToBeChanged {
        token: String,
        module: PathBuf,
        /// The flag or the return value that says so.
        told: String,
    },
    /// A person's, which all logins of a process have in common.
    #[error("token {token} was sent three PINs and has accepted none, so no other is asked for")]
    TriesSpent { token: String },
}

impl LoginError {
    /// Whether a call to the token failed, as it does when the token is gone.
    pub fn is_a_failed_call(&self) -> bool {
        matches!(self, Self::Call { .. })
    }
}

impl Failure for LoginError {
    fn exit_code(&self) -> u8 {
        7
    }

    fn remedy(&self) -> Remedy {
        Remedy::new(match self {
            Self::Call { .. } => {
                "check that the token is still inserted and no other program holds it, then try again"
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
            Self::NoMemory { .. } => {
                "see that you can write to .local/state/pkcs11-external-signer in your home, or to one \
                 of those directories, with mode 0700; or type the PIN: set pinSource to prompt"
            }
            Self::NotSet { .. } => {
                "initialise the user PIN first, with pkcs11-tool --init-pin or the token's own tool"
            }
            Self::ReaderCancelled { .. } => {
                "run the command again and enter the PIN where the library asks for it: at the reader, \
                 or in a window of its own"
            }
            Self::ToBeChanged { module, .. } => {
                return Remedy::new(format!(
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
