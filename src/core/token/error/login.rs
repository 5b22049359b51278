//! Exit code 7: the login.

use super::CallFailure;
use crate::error::{Exit, Failure, Help};

#[derive(Debug, thiserror::Error)]
pub enum LoginError {
    #[error("login to token {token} failed: {failure}")]
    Call { token: String, failure: CallFailure },
    #[error("token {token} has no user PIN yet: {failure}")]
    NotSet { token: String, failure: CallFailure },
}

impl LoginError {
    /// Whether a call to the token failed, as it does when the token is gone.
    pub fn is_a_failed_call(&self) -> bool {
        matches!(self, Self::Call { .. })
    }
}

impl Failure for LoginError {
    fn exit_code(&self) -> u8 {
        Exit::Login as u8
    }

    fn remedy(&self) -> Help {
        match self {
            Self::Call { .. } => {
                "check that the token is still inserted and no other program holds it, then try again"
            }
            Self::NotSet { .. } => {
                "initialise the user PIN first, with pkcs11-tool --init-pin or the token's own tool"
            }
        }
        .into()
    }
}
