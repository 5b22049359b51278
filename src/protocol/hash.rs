//! The hashes over which signatures are made, with their lengths and the names that Go gives them.

use std::fmt;

use serde::{Deserialize, Serialize};
use sha1::Sha1;
use sha2::digest::DynDigest;
use sha2::{Sha224, Sha256, Sha384, Sha512};

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
    /// The length of a digest in bytes.
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

    /// The digest of these parts together; `None` for that of TLS 1.0, which is never made here.
    pub fn digest(self, parts: &[&[u8]]) -> Option<Vec<u8>> {
        let mut state: Box<dyn DynDigest> = match self {
            Self::Md5Sha1 => return None,
            Self::Sha1 => Box::<Sha1>::default(),
            Self::Sha224 => Box::<Sha224>::default(),
            Self::Sha256 => Box::<Sha256>::default(),
            Self::Sha384 => Box::<Sha384>::default(),
            Self::Sha512 => Box::<Sha512>::default(),
        };
        for part in parts {
            state.update(part);
        }
        Some(state.finalize().into_vec())
    }
}

/// Shows the name that Go gives the hash.
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
