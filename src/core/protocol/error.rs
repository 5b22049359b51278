//! Exit code 2: the request can't be answered as it was asked.

use crate::error::{Failure, Help};
use crate::hash::Hash;

#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// Stock kubectl works with `run`.
    #[error("unsupported apiVersion \"{0}\"")]
    ApiVersion(String),
    #[error("the digest has {actual} bytes, but a {hash} digest has {}", .hash.length())]
    DigestLength { hash: Hash, actual: usize },
    #[error("the digest is empty")]
    EmptyDigest,
    #[error("unsupported hash {0} in signerOpts")]
    Hash(i64),
    #[error("the certificate's {key} key is too short for a signature with {hash}")]
    KeyTooShort { hash: Hash, key: String },
    #[error("unknown kind \"{0}\"")]
    Kind(String),
    /// In `configuration`, a number or a word stands where text belongs: put the values under `config:`
    /// in the kubeconfig in quotes. For other fields, update the client.
    #[error("malformed field {field}: expected {expected}")]
    Malformed { field: String, expected: &'static str },
    #[error("missing field {field}")]
    Missing { field: &'static str },
    /// A shell's quoting cut the request, or the variable is set by accident: no command needs it.
    #[error("the request is not valid JSON (line {line}, column {column})")]
    NotJson { line: usize, column: usize },
    #[error("the request is not a JSON object")]
    NotObject,
    #[error("the request is not valid UTF-8")]
    NotUtf8,
    /// The client still uses a certificate that was replaced on the token: restart the client.
    #[error("{options} can't be made with the certificate's {key} key")]
    OptionsContradictKey { options: String, key: String },
    #[error("unknown signerOptsType \"{0}\"")]
    OptionsType(String),
    #[error("invalid SaltLength {0} in signerOpts")]
    Salt(i64),
    #[error(
        "SaltLength {salt} is too long for the certificate's {key} key with {hash}: at most \
         {longest} fit"
    )]
    SaltTooLong { salt: usize, longest: usize, hash: Hash, key: String },
}

impl Failure for RequestError {
    fn exit_code(&self) -> u8 {
        2
    }

    fn remedy(&self) -> Help {
        match self {
            Self::ApiVersion(_) => {
                "this program understands external-signer.authentication.k8s.io/v1alpha1"
            }
            Self::DigestLength { .. } | Self::EmptyDigest => {
                "the digest must be made with the hash that signerOpts names"
            }
            Self::Hash(_) => {
                "crypto.Hash numbers understood here: 3 (SHA-1), 4 (SHA-224), 5 (SHA-256), \
                 6 (SHA-384) and 7 (SHA-512); outside *rsa.PSSOptions also 8 (MD5SHA1) and, for \
                 Ed25519 and ECDSA, 0 (not hashed)"
            }
            Self::Kind(_) => "the kinds are CertificateRequest and SignRequest",
            Self::Malformed { .. } | Self::Missing { .. } => {
                "the client that wrote the request and this program disagree on the protocol; \
                 docs/protocol.md shows a request of each kind"
            }
            Self::NotJson { .. } | Self::NotObject | Self::NotUtf8 => {
                "EXTERNAL_SIGNER_PLUGIN_CONFIG must hold one JSON object; \
                 docs/protocol.md shows a request of each kind"
            }
            Self::OptionsContradictKey { .. } => {
                "RSA keys take *rsa.PSSOptions or a crypto.Hash, ECDSA keys a crypto.Hash, \
                 Ed25519 keys crypto.Hash 0; check that the client uses this key's certificate"
            }
            Self::OptionsType(_) => "the types are *rsa.PSSOptions and crypto.Hash",
            Self::Salt(_) => {
                "SaltLength is -1 (as long as the hash), 0 (as long as possible) or a number of bytes"
            }
            Self::SaltTooLong { .. } | Self::KeyTooShort { .. } => {
                "use a shorter hash or salt, or a longer key"
            }
        }
        .into()
    }
}
