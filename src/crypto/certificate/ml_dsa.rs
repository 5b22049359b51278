//! The parameter sets of ML-DSA (FIPS 204), and their names in certificates (RFC 9881).

use std::fmt;

use serde::{Deserialize, Serialize};
use x509_cert::der::asn1::ObjectIdentifier;

/// A parameter set of ML-DSA, a signature scheme that quantum computers can't break either. Keys and signatures of
/// different sets have different lengths, and nothing else in common.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub enum MlDsaSet {
    MlDsa44,
    MlDsa65,
    MlDsa87,
}

impl MlDsaSet {
    /// All sets, the shortest keys first.
    pub const ALL: [Self; 3] = [Self::MlDsa44, Self::MlDsa65, Self::MlDsa87];

    /// The name of a key's algorithm and of its signatures' alike; neither has parameters (RFC 9881, section 2).
    pub fn oid(self) -> ObjectIdentifier {
        ObjectIdentifier::new_unwrap(match self {
            Self::MlDsa44 => "2.16.840.1.101.3.4.3.17",
            Self::MlDsa65 => "2.16.840.1.101.3.4.3.18",
            Self::MlDsa87 => "2.16.840.1.101.3.4.3.19",
        })
    }

    /// The set with this name.
    pub fn from_oid(oid: ObjectIdentifier) -> Option<Self> {
        Self::ALL.into_iter().find(|set| set.oid() == oid)
    }

    /// The length of a public key in bytes (FIPS 204, table 2).
    pub fn public_key_length(self) -> usize {
        match self {
            Self::MlDsa44 => 1312,
            Self::MlDsa65 => 1952,
            Self::MlDsa87 => 2592,
        }
    }
}

impl fmt::Display for MlDsaSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::MlDsa44 => "ML-DSA-44",
            Self::MlDsa65 => "ML-DSA-65",
            Self::MlDsa87 => "ML-DSA-87",
        })
    }
}
