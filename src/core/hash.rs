//! The hashes a TLS signature is made over, with their lengths and the names Go gives them.

#![forbid(unsafe_code)]

use std::fmt;

use serde::{Deserialize, Serialize};

/// A hash, or TLS 1.0's concatenation of two.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub enum Hash {
    /// MD5 and SHA-1 of the same message, one after the other (RFC 2246, section 7.4.3).
    Md5Sha1,
    Sha1,
    Sha224,
    Sha256,
    Sha384,
    Sha512,
}

impl Hash {
    /// The digest's length in bytes.
    pub fn length(self) -> usize {
        match self {
            Self::Md5Sha1 => 36,
            Self::Sha1 => 20,
            Self::Sha224 => 28,
            Self::Sha256 => 32,
            Self::Sha384 => 48,
            Self::Sha512 => 64,
        }
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Md5Sha1 => "MD5SHA1",
            Self::Sha1 => "SHA-1",
            Self::Sha224 => "SHA-224",
            Self::Sha256 => "SHA-256",
            Self::Sha384 => "SHA-384",
            Self::Sha512 => "SHA-512",
        })
    }
}
