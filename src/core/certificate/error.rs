//! A certificate that can't be used.

use std::fmt;

use crate::error::{Error, Exit};

#[derive(Debug)]
pub enum CertificateError {
    /// It is damaged or empty, or is PEM or gzip in place of DER.
    Unusable {
        source_name: String,
        reason: String,
    },
    UnsupportedKey {
        source_name: String,
        algorithm: String,
    },
}

impl fmt::Display for CertificateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unusable { source_name, reason } => {
                write!(f, "{source_name} is not a usable X.509 certificate: {reason}")
            }
            Self::UnsupportedKey { source_name, algorithm } => {
                write!(f, "{source_name} holds a key of an unsupported type: {algorithm}")
            }
        }
    }
}

impl From<CertificateError> for Error {
    fn from(error: CertificateError) -> Self {
        Self::new(Exit::Object, error.to_string()).help(match error {
            CertificateError::Unusable { .. } => {
                "write the certificate to the token again, as DER, or set certificateFile (--certificate-file)"
            }
            CertificateError::UnsupportedKey { .. } => {
                "use an RSA key of 1024 to 8192 bits, an ECDSA key on P-256, P-384 or P-521, or an Ed25519 key"
            }
        })
    }
}
