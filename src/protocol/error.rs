//! Exit code 2: the request can't be answered as it was asked.

use std::fmt;

use crate::error::{Failure, Remedy};
use crate::hash::Hash;

#[derive(Debug)]
pub enum RequestError {
    ApiVersion(String),
    DigestLength {
        hash: Hash,
        actual: usize,
    },
    EmptyDigest,
    /// A number of Go's `crypto.Hash` that can't be signed with.
    Hash(i64),
    Kind(String),
    /// A field that is there with a value it can't have.
    Malformed {
        field: String,
        expected: &'static str,
    },
    Missing {
        field: &'static str,
    },
    NotJson {
        line: usize,
        column: usize,
    },
    /// JSON, but something other than an object.
    NotObject,
    NotUtf8,
    OptionsContradictKey {
        options: String,
        key: String,
    },
    OptionsType(String),
    Salt(i64),
    SaltTooLong {
        salt: usize,
        longest: usize,
        hash: Hash,
        key: String,
    },
    /// The hash itself is too long for the key.
    KeyTooShort {
        hash: Hash,
        key: String,
    },
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ApiVersion(version) => write!(f, "unsupported apiVersion \"{version}\""),
            Self::DigestLength { hash, actual } => write!(
                f,
                "the digest has {actual} bytes, but a {hash} digest has {}",
                hash.length()
            ),
            Self::EmptyDigest => write!(f, "the digest is empty"),
            Self::Hash(number) => write!(f, "unsupported hash {number} in signerOpts"),
            Self::Kind(kind) => write!(f, "unknown kind \"{kind}\""),
            Self::Malformed { field, expected } => {
                write!(f, "malformed field {field}: expected {expected}")
            }
            Self::Missing { field } => write!(f, "missing field {field}"),
            Self::NotJson { line, column } => {
                write!(
                    f,
                    "the request is not valid JSON (line {line}, column {column})"
                )
            }
            Self::NotObject => write!(f, "the request is not a JSON object"),
            Self::NotUtf8 => write!(f, "the request is not valid UTF-8"),
            Self::OptionsContradictKey { options, key } => {
                write!(
                    f,
                    "{options} can't be made with the certificate's {key} key"
                )
            }
            Self::OptionsType(name) => write!(f, "unknown signerOptsType \"{name}\""),
            Self::Salt(length) => write!(f, "invalid SaltLength {length} in signerOpts"),
            Self::SaltTooLong {
                salt,
                longest,
                hash,
                key,
            } => write!(
                f,
                "SaltLength {salt} is too long for the certificate's {key} key with {hash}: at most {longest} fit"
            ),
            Self::KeyTooShort { hash, key } => {
                write!(
                    f,
                    "the certificate's {key} key is too short for a signature with {hash}"
                )
            }
        }
    }
}

impl std::error::Error for RequestError {}

impl Failure for RequestError {
    fn exit_code(&self) -> u8 {
        2
    }

    fn remedy(&self) -> Remedy {
        Remedy::new(match self {
            Self::ApiVersion(_) => {
                "this program speaks external-signer.authentication.k8s.io/v1alpha1"
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
        })
    }
}
