//! What is proven of a key, by whatever device holds it.

use std::fmt::{self, Display};

use crate::yubikey::Advisory;
use crate::{DeviceClaims, YubiKeyClaims};
use crypto::certificate::PublicKey;

/// What is proven of a key.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Claims {
    /// A YubiKey's attestation proves it, up to a root.
    YubiKey(YubiKeyClaims),
    /// A verifier claims it.
    Device(DeviceClaims),
}

impl Claims {
    /// The groups that the proof opens: `hw:attested`, and one for the device alone.
    pub fn groups(&self) -> [String; 2] {
        match self {
            Self::YubiKey(claims) => claims.groups(),
            Self::Device(claims) => claims.groups(),
        }
    }

    /// Why such a key is weak although it is in this device.
    pub fn advisory(&self, key: &PublicKey) -> Option<Advisory> {
        match self {
            Self::YubiKey(claims) => claims.firmware.advisory(key),
            Self::Device(_) => None,
        }
    }

    /// The claims with what identifies the verifier, to be recorded.
    pub fn recorded(&self) -> String {
        match self {
            Self::YubiKey(claims) => claims.to_string(),
            Self::Device(claims) => format!("{claims} with SHA-256 {}", claims.verifier_sha256),
        }
    }
}

impl Display for Claims {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::YubiKey(claims) => claims.fmt(f),
            Self::Device(claims) => claims.fmt(f),
        }
    }
}
