//! Exit code 6: a certificate that can't be used.

use crate::error::{Failure, Help, Setting, remedy};

#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// It is damaged or empty, or is PEM or gzip in place of DER. Read it: `pkcs11-tool --module FILE
    /// --read-object --type cert --id 02 | openssl x509 -inform DER -noout -subject`. Make DER: `openssl
    /// x509 -in cert.pem -outform DER -out cert.der`.
    #[error("{source_name} is not a usable X.509 certificate: {reason}")]
    Unusable { source_name: String, reason: String },
    #[error("{source_name} holds a key of an unsupported type: {algorithm}")]
    UnsupportedKey { source_name: String, algorithm: String },
}

impl Failure for CertificateError {
    fn exit_code(&self) -> u8 {
        6
    }

    fn remedy(&self) -> Help {
        match self {
            Self::Unusable { .. } => remedy!(
                "write the certificate to the token again, as DER, or set ",
                Setting("certificateFile")
            ),
            Self::UnsupportedKey { .. } => remedy!(
                "use an RSA key of 1024 to 8192 bits, an ECDSA key on P-256, P-384 or P-521, or an \
                 Ed25519 key"
            ),
        }
    }
}
