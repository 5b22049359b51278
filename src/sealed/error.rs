//! Exit code 3: a sealed file that can't be read, and certificates that nothing can be sealed to.

use crate::error::{Failure, Help};

#[derive(Debug, thiserror::Error)]
pub enum SealedError {
    /// Without the authentication code of AES-GCM whoever can write the file could change what is in it unnoticed.
    /// `openssl cms -encrypt` makes such files unless it is told `-aes-256-gcm`.
    #[error("{file} is encrypted with {cipher}, which does not show whether it was changed")]
    Cbc { file: String, cipher: String },
    #[error("nothing can be sealed to {certificate}: {reason}")]
    Certificate { certificate: String, reason: String },
    /// One byte is another one, or the file was cut off or edited. A file with the lines `Registry:` and `SHA-256:`
    /// can't be changed by hand.
    #[error("{file} is damaged: {reason}")]
    Damaged { file: String, reason: String },
    /// The file was damaged or exchanged, or a key was used that isn't the recipient's.
    #[error(
        "{file} can't be opened with what the token has made of it: it is damaged or was sealed to another key"
    )]
    NotOpened { file: String },
    #[error("{file} is no sealed file: {reason}")]
    NotSealed { file: String, reason: String },
    #[error("there is no certificate to seal to")]
    NoRecipient,
    #[error("no random key: {0}")]
    SealingFailed(&'static str),
    /// It is CMS as the standard has it, with a part that neither `seal` nor openssl writes.
    #[error("{file} has {what}, which this program does not open")]
    Unsupported { file: String, what: String },
}

impl Failure for SealedError {
    fn exit_code(&self) -> u8 {
        3
    }

    fn remedy(&self) -> Help {
        match self {
            Self::Cbc { .. } => {
                "seal it again with `pkcs11-external-signer seal`, or give openssl cms the option -aes-256-gcm"
            }
            Self::Certificate { .. } => {
                "name the certificate of an RSA key of 2048 to 8192 bits, or of an EC key on P-256, P-384 or P-521"
            }
            Self::Damaged { .. } | Self::NotOpened { .. } => {
                "copy the file again from where it was sealed, or seal it again"
            }
            Self::NotSealed { .. } => "make one with `pkcs11-external-signer seal`",
            Self::NoRecipient => "name each node's certificate with --recipient",
            Self::SealingFailed(_) => "the operating system's random source is not available",
            Self::Unsupported { .. } => "seal it again with `pkcs11-external-signer seal`",
        }
        .into()
    }
}
