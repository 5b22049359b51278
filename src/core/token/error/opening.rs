//! Exit code 8: what was sealed to a key, and the token doesn't open.

use super::CallFailure;
use crate::error::{Failure, Help, listed, remedy};

#[derive(Debug, thiserror::Error)]
pub enum OpeningError {
    #[error("opening with {key} failed: {failure}")]
    Call { key: String, failure: CallFailure },
    #[error("token {token} can't open what was sealed to such a key: it offers no {}", listed(.wanted, "or"))]
    NoMechanism { token: String, wanted: &'static [&'static str] },
    #[error("{key} is not for opening sealed files: its {attribute} is false")]
    NotForOpening { key: String, attribute: &'static str },
    #[error("{key} does not open what was sealed: it was sealed to another key, or is damaged")]
    NotOpened { key: String },
    #[error("{key} ({kind}) is of another kind than the key that it was sealed to")]
    OtherKey { key: String, kind: String },
    #[error("the token refuses to open with {key}: {failure}")]
    Refused { key: String, failure: CallFailure },
}

impl Failure for OpeningError {
    fn exit_code(&self) -> u8 {
        8
    }

    fn remedy(&self) -> Help {
        match self {
            Self::Call { .. } => remedy!(
                "check that the token is there and works: `pkcs11-tool --module FILE --login -O`"
            ),
            Self::NoMechanism { .. } => remedy!(
                "use a token or a library that decrypts (RSA) or derives keys (EC), or a key of the other kind"
            ),
            Self::NotForOpening { .. } | Self::Refused { .. } => {
                remedy!("seal to a key that was made with CKA_DECRYPT (RSA) or CKA_DERIVE (EC)")
            }
            Self::NotOpened { .. } | Self::OtherKey { .. } => {
                remedy!("seal the passwords again, to the certificate of this key")
            }
        }
    }
}
