//! Exit codes 2 and 6: a new key that `renew` doesn't make.

use crate::error::{Failure, Help, remedy};

#[derive(Debug, thiserror::Error)]
pub(crate) enum NewKeyError {
    /// On a YubiKey, a slot has one key and one certificate, and the management key is wanted for both: `enroll`
    /// makes a key in another slot.
    #[error("token {token} has a slot for each key, which a person chooses")]
    InSlot { token: String, lines: Vec<String> },
    /// A call that was killed while the token made the key can leave one half of it. Only a person removes it.
    #[error("of the new key with {key}, only the {half} is on token {token}")]
    Half {
        key: String,
        half: &'static str,
        token: String,
        /// The command for it.
        removal: String,
    },
    #[error("the present key is {kind}, and no such key can be made")]
    NoSuchKind { kind: String },
}

impl Failure for NewKeyError {
    fn exit_code(&self) -> u8 {
        match self {
            Self::Half { .. } | Self::InSlot { .. } => 6,
            Self::NoSuchKind { .. } => 2,
        }
    }

    fn remedy(&self) -> Help {
        match self {
            Self::Half { removal, .. } => {
                remedy!("remove it, and run the command again:")
                    .with_candidates(std::slice::from_ref(removal))
            }
            Self::InSlot { lines, .. } => remedy!(
                "these lines make one in another slot, write the certificate that a CA issues for it, and have the \
                 context use it:"
            )
            .with_candidates(lines),
            Self::NoSuchKind { .. } => remedy!("name another kind with --key"),
        }
    }
}
