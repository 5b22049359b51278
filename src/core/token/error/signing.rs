//! Exit code 8: the signature.

use std::path::PathBuf;

use super::CallFailure;
use crate::error::{Failure, Help, Setting, listed, remedy};

#[derive(Debug, thiserror::Error)]
pub enum SigningError {
    #[error("signing with {key} ({scheme}) failed: {failure}")]
    Call { key: String, scheme: String, failure: CallFailure },
    #[error(
        "the signature made by {key} ({scheme}) does not verify with its certificate and was withheld"
    )]
    Invalid { key: String, scheme: String },
    #[error("the token returned {length} bytes that are no {scheme} signature; they were withheld")]
    Malformed { scheme: String, length: usize },
    #[error("token {token} can't make {scheme} signatures: it offers no {}", listed(.wanted, "or"))]
    NoMechanism { token: String, scheme: String, wanted: &'static [&'static str] },
    #[error("{key} is not for signing ({scheme}): {failure}")]
    NotForSigning { key: String, scheme: String, failure: CallFailure },
    #[error("the token behind {} has not answered within {seconds} s", .library.display())]
    NoReply { library: PathBuf, seconds: u64 },
    #[error("no random salt for RSA-PSS: {0}")]
    Random(String),
    #[error("the token refuses to sign with {key} ({scheme}): {failure}")]
    Refused { key: String, scheme: String, failure: CallFailure },
}

impl Failure for SigningError {
    fn exit_code(&self) -> u8 {
        8
    }

    fn remedy(&self) -> Help {
        match self {
            Self::Call { .. } => remedy!(
                "check that the token is still inserted, take it out and put it back, then try again"
            ),
            Self::Invalid { .. } => remedy!(
                "check that certificate and key under this ",
                Setting("objectId"),
                " belong together; if they do, \
                 the token or its library is faulty"
            ),
            Self::Malformed { .. } => {
                remedy!("the token or its library is faulty: update the library and try again")
            }
            Self::NoReply { .. } => remedy!(
                "touch the token if it blinks; if it stays silent, end the run, take the token out \
                 and put it back, and start again"
            ),
            Self::NotForSigning { .. } => {
                remedy!("use another key, one that was made or imported for signing (CKA_SIGN)")
            }
            Self::NoMechanism { scheme, .. } | Self::Refused { scheme, .. }
                if scheme.starts_with("RSA-PSS") =>
            {
                remedy!(
                    "TLS 1.3 needs RSA-PSS of an RSA key: use an ECDSA key, a newer token or library, \
                 or hold the client to TLS 1.2"
                )
            }
            Self::NoMechanism { .. } | Self::Refused { .. } => remedy!(
                "use a token, a library or a path to the token that can sign with such a key, or a \
                 key of another kind"
            ),
            Self::Random(_) => remedy!("the operating system's random source is not available"),
        }
    }
}
