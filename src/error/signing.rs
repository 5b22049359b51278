//! Exit code 8: the signature.

use std::fmt;

use super::{CallFailure, Help};

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
                super::one_of(wanted)
            ),
            Self::Random(reason) => write!(f, "no random salt for RSA-PSS: {reason}"),
        }
    }
}

impl SigningError {
    pub(super) fn help(&self) -> Help {
        Help::new(match self {
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
            Self::NoMechanism { .. } => {
                "TLS 1.3 needs RSA-PSS of an RSA key: use an ECDSA key, a newer token or library, \
                 or hold the client to TLS 1.2"
            }
            Self::Random(_) => "the operating system's random source is not available",
        })
    }
}
