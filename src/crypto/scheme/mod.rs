//! Signature schemes: what a key can make, and the encodings that PKCS#11 leaves to its caller.

pub mod ecdsa;
pub mod oaep;
pub mod pkcs1;
pub mod pss;
mod requested;

pub use requested::requested;

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::certificate::{Curve, MlDsaSet, PublicKey};
use protocol::hash::Hash;

/// What a private key is applied to in order to open what was sealed to its public key.
#[derive(Debug, Eq, PartialEq)]
pub enum LockedSecret {
    /// A key for AES-256, encrypted by RSAES-OAEP with SHA-256 and without a label (RFC 8017, section 7.1).
    Oaep(Vec<u8>),
    /// The point of an ECDH (SEC 1, uncompressed). The X coordinate of the result is the secret.
    Ecdh { curve: Curve, point: Vec<u8> },
}

/// A signature scheme, with everything that its name leaves open.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub enum Scheme {
    /// ECDSA over a digest as long as the curve's order (FIPS 186-5, section 6.4).
    Ecdsa { curve: Curve },
    /// Ed25519 over the message itself (RFC 8032, PureEdDSA).
    Ed25519,
    /// ML-DSA over the message itself (FIPS 204, section 5.2, with an empty context).
    MlDsa { set: MlDsaSet },
    /// RSASSA-PKCS1-v1_5 (RFC 8017, section 8.2).
    RsaPkcs1 { hash: Hash },
    /// RSASSA-PSS (RFC 8017, section 8.1). The salt's length is in bytes.
    RsaPss { hash: Hash, salt: usize },
}

impl Scheme {
    /// RSASSA-PKCS1-v1_5; `None` if the modulus of `key` has no room for it.
    pub fn rsa_pkcs1(hash: Hash, key: &PublicKey) -> Option<Self> {
        let info = pkcs1::digest_info(hash, &vec![0; hash.length()]);
        pkcs1::pad(&info, key.modulus_length()).map(|_| Self::RsaPkcs1 { hash })
    }

    /// RSASSA-PSS with a salt of this length in bytes; `None` if the modulus of `key` has no room for it.
    pub fn rsa_pss(hash: Hash, salt: usize, key: &PublicKey) -> Option<Self> {
        let longest = pss::longest_salt(hash, key.modulus_bits())?;
        (salt <= longest).then_some(Self::RsaPss { hash, salt })
    }

    /// The schemes that TLS can demand of the key (RFC 8446, section 4.2.3; for ML-DSA, draft-ietf-tls-mldsa). RSA-PSS comes
    /// before PKCS #1 v1.5.
    pub fn of_tls(key: &PublicKey) -> Vec<Self> {
        let hashes = || [Hash::Sha256, Hash::Sha384, Hash::Sha512].into_iter();
        match key {
            PublicKey::Ecdsa { curve, .. } => vec![Self::Ecdsa { curve: *curve }],
            PublicKey::Ed25519(_) => vec![Self::Ed25519],
            PublicKey::MlDsa { set, .. } => vec![Self::MlDsa { set: *set }],
            PublicKey::Rsa { .. } => hashes()
                .filter_map(|hash| Self::rsa_pss(hash, hash.length(), key))
                .chain(hashes().filter_map(|hash| Self::rsa_pkcs1(hash, key)))
                .collect(),
        }
    }

    /// The length of a digest to sign, in bytes. For ECDSA, Ed25519 and ML-DSA, it is one of many.
    pub fn digest_length(&self) -> usize {
        match self {
            Self::RsaPkcs1 { hash } | Self::RsaPss { hash, .. } => hash.length(),
            Self::Ecdsa { .. } | Self::Ed25519 | Self::MlDsa { .. } => Hash::Sha256.length(),
        }
    }

    /// Whether TLS 1.3 has the scheme.
    pub fn is_of_tls_1_3(&self) -> bool {
        !matches!(self, Self::RsaPkcs1 { .. })
    }

    /// Whether TLS 1.2 has it.
    pub fn is_of_tls_1_2(&self) -> bool {
        !matches!(self, Self::MlDsa { .. })
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ecdsa { curve } => write!(f, "ECDSA {curve}"),
            Self::Ed25519 => f.write_str("Ed25519"),
            Self::MlDsa { set } => write!(f, "{set}"),
            Self::RsaPkcs1 { hash } => write!(f, "RSA PKCS #1 v1.5 with {hash}"),
            Self::RsaPss { hash, salt } => write!(f, "RSA-PSS with {hash}, salt {salt}"),
        }
    }
}
