//! Exit code 6: a certificate that can't be used.

use crate::error::{Failure, Remedy};

#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// A certificate that can't be read as one.
    #[error("{source_name} is not a usable X.509 certificate: {reason}")]
    Unusable { source_name: String, reason: String },
    /// A key of a type that no TLS client signs with here.
    #[error("{source_name} holds a key of an unsupported type: {algorithm}")]
    UnsupportedKey {
        source_name: String,
        algorithm: String,
    },
}

impl Failure for CertificateError {
    fn exit_code(&self) -> u8 {
        6
    }

    fn remedy(&self) -> Remedy {
        Remedy::new(match self {
            Self::Unusable { .. } => {
                "write the certificate to the token again, as DER, or set certificateFile"
            }
            Self::UnsupportedKey { .. } => {
                "use an RSA key of 1024 to 8192 bits, an ECDSA key on P-256, P-384 or P-521, or an \
                 Ed25519 key"
            }
        })
    }
}
