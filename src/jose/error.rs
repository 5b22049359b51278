//! Exit codes 2 and 6: keys that sign no token, and algorithms that aren't the key's.

use super::Algorithm;
use crate::error::{Failure, Help};

#[derive(Debug, thiserror::Error)]
pub enum JoseError {
    /// An RSA key makes RS256 to PS512; the curve of an EC key says which of ES256, ES384 and ES512 it makes.
    #[error("algorithm {algorithm} is none of a key {key}")]
    Contradiction { algorithm: Algorithm, key: String, possible: Vec<Algorithm> },
    /// kube-apiserver takes RS, PS and ES with SHA-256, SHA-384 and SHA-512, and no EdDSA.
    #[error("an API server takes no token that a key Ed25519 has signed")]
    Ed25519,
    /// The certificate or the token shows a point that isn't on the key's curve.
    #[error("the public key is malformed: its point is not on {curve}")]
    Malformed { curve: String },
    /// RFC 7518 asks for 2048 bits, sections 3.3 and 3.5.
    #[error("a key {key} is too short to sign tokens: they need 2048 bits")]
    TooShort { key: String },
}

impl Failure for JoseError {
    fn exit_code(&self) -> u8 {
        match self {
            Self::Contradiction { .. } => 2,
            Self::Ed25519 | Self::Malformed { .. } | Self::TooShort { .. } => 6,
        }
    }

    fn remedy(&self) -> Help {
        match self {
            Self::Contradiction { possible, .. } => {
                let possible: Vec<_> = possible.iter().map(Algorithm::to_string).collect();
                let possible = possible.join(", ");
                format!("leave --algorithm out, or name one of {possible}").into()
            }
            Self::Malformed { .. } => {
                "write the key's certificate again; `openssl x509 -noout -pubkey` shows its public key"
                    .into()
            }
            Self::Ed25519 | Self::TooShort { .. } => {
                "use an ECDSA key on P-256, P-384 or P-521, or an RSA key of 2048 bits or more"
                    .into()
            }
        }
    }
}
