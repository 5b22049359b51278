//! Exit code 8: the signature.

use std::fmt;
use std::path::PathBuf;

use super::CallFailure;
use crate::error::{Failure, Remedy, one_of};

#[derive(Debug)]
pub enum SigningError {
    Call {
        key: String,
        scheme: String,
        failure: CallFailure,
    },
    /// The certificate's public key doesn't accept what the token returned.
    Invalid { key: String, scheme: String },
    /// Bytes that are no signature of this scheme at all.
    Malformed { scheme: String, length: usize },
    NoMechanism {
        token: String,
        scheme: String,
        wanted: &'static [&'static str],
    },
    /// The token doesn't let this key sign at all.
    NotForSigning {
        key: String,
        scheme: String,
        failure: CallFailure,
    },
    /// The library has not come back from a call.
    NoReply { library: PathBuf, seconds: u64 },
    /// The token has the mechanism, but not for this key or not with these parameters.
    Refused {
        key: String,
        scheme: String,
        failure: CallFailure,
    },
    /// No random salt to be had.
    Random(String),
}

impl fmt::Display for SigningError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Call {
                key,
                scheme,
                failure,
            } => {
                write!(f, "signing with {key} ({scheme}) failed: {failure}")
            }
            Self::Invalid { key, scheme } => write!(
                f,
                "the signature made by {key} ({scheme}) does not verify with its certificate and was withheld"
            ),
            Self::Malformed { scheme, length } => write!(
                f,
                "the token returned {length} bytes that are no {scheme} signature; they were withheld"
            ),
            Self::NoMechanism {
                token,
                scheme,
                wanted,
            } => write!(
                f,
                "token {token} can't make {scheme} signatures: it offers no {}",
                one_of(wanted)
            ),
            Self::NotForSigning {
                key,
                scheme,
                failure,
            } => {
                write!(f, "{key} is not for signing ({scheme}): {failure}")
            }
            Self::NoReply { library, seconds } => write!(
                f,
                "the token behind {} has not answered within {seconds} s",
                library.display()
            ),
            Self::Refused {
                key,
                scheme,
                failure,
            } => {
                write!(
                    f,
                    "the token refuses to sign with {key} ({scheme}): {failure}"
                )
            }
            Self::Random(reason) => write!(f, "no random salt for RSA-PSS: {reason}"),
        }
    }
}

impl std::error::Error for SigningError {}

impl Failure for SigningError {
    fn exit_code(&self) -> u8 {
        8
    }

    fn remedy(&self) -> Remedy {
        Remedy::new(match self {
            Self::Call { .. } => {
                "check that the token is still inserted, take it out and put it back, then try again"
            }
            Self::Invalid { .. } => {
                "check that certificate and key under this objectId belong together; if they do, \
                 the token or its library is faulty"
            }
            Self::Malformed { .. } => {
                "the token or its library is faulty: update the library and try again"
            }
            Self::NoReply { .. } => {
                "touch the token if it blinks; if it stays silent, end the run, take the token out \
                 and put it back, and start again"
            }
            Self::NotForSigning { .. } => {
                "use another key, one that was made or imported for signing (CKA_SIGN)"
            }
            Self::NoMechanism { scheme, .. } | Self::Refused { scheme, .. }
                if scheme.starts_with("RSA-PSS") =>
            {
                "TLS 1.3 needs RSA-PSS of an RSA key: use an ECDSA key, a newer token or library, \
                 or hold the client to TLS 1.2"
            }
            Self::NoMechanism { .. } | Self::Refused { .. } => {
                "use a token, a library or a path to the token that can sign with such a key, or a \
                 key of another kind"
            }
            Self::Random(_) => "the operating system's random source is not available",
        })
    }
}
