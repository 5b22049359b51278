//! The signature algorithms that API servers take.

use std::fmt;
use std::str::FromStr;

use super::JoseError;
use crate::certificate::{Curve, PublicKey};
use crate::hash::Hash;
use crate::scheme::Scheme;

/// In bits (RFC 7518, sections 3.3 and 3.5).
const SHORTEST_MODULUS: usize = 2048;

/// A signature algorithm (RFC 7518, section 3.1).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Algorithm {
    Es256,
    Es384,
    Es512,
    Ps256,
    Ps384,
    Ps512,
    Rs256,
    Rs384,
    Rs512,
}

impl Algorithm {
    const ALL: [(&str, Self); 9] = [
        ("RS256", Self::Rs256),
        ("RS384", Self::Rs384),
        ("RS512", Self::Rs512),
        ("PS256", Self::Ps256),
        ("PS384", Self::Ps384),
        ("PS512", Self::Ps512),
        ("ES256", Self::Es256),
        ("ES384", Self::Es384),
        ("ES512", Self::Es512),
    ];

    /// Those that this key makes. RS256 is the first of an RSA key: every server and almost every token
    /// has it, and many a token has no PSS.
    ///
    /// # Errors
    /// The key makes none.
    pub fn of_key(key: &PublicKey) -> Result<Vec<Self>, JoseError> {
        if let PublicKey::Ed25519(_) = key {
            return Err(JoseError::Ed25519);
        }
        if matches!(key, PublicKey::Rsa { .. }) && key.modulus_bits() < SHORTEST_MODULUS {
            return Err(JoseError::TooShort { key: key.to_string() });
        }
        let all = Self::ALL.into_iter().map(|(_, algorithm)| algorithm);
        Ok(all.filter(|it| it.scheme(key).is_some()).collect())
    }

    /// The scheme of a signature by this algorithm; `None` if it is none of this key's.
    pub fn scheme(self, key: &PublicKey) -> Option<Scheme> {
        let hash = self.hash();
        let of_curve = |its_curve| match key {
            PublicKey::Ecdsa { curve, .. } if *curve == its_curve => {
                Some(Scheme::Ecdsa { curve: its_curve })
            }
            _ => None,
        };
        match self {
            Self::Es256 => of_curve(Curve::P256),
            Self::Es384 => of_curve(Curve::P384),
            Self::Es512 => of_curve(Curve::P521),
            Self::Ps256 | Self::Ps384 | Self::Ps512 => Scheme::rsa_pss(hash, hash.length(), key),
            Self::Rs256 | Self::Rs384 | Self::Rs512 => Scheme::rsa_pkcs1(hash, key),
        }
    }

    /// What the signature is made over.
    pub fn hash(self) -> Hash {
        match self {
            Self::Es256 | Self::Ps256 | Self::Rs256 => Hash::Sha256,
            Self::Es384 | Self::Ps384 | Self::Rs384 => Hash::Sha384,
            Self::Es512 | Self::Ps512 | Self::Rs512 => Hash::Sha512,
        }
    }

    fn name(self) -> &'static str {
        let named = Self::ALL.iter().find(|(_, algorithm)| *algorithm == self);
        named.map_or("", |(name, _)| name)
    }
}

/// The text names no algorithm.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("it is none of RS256, RS384, RS512, PS256, PS384, PS512, ES256, ES384 and ES512")]
pub struct UnknownAlgorithm;

impl FromStr for Algorithm {
    type Err = UnknownAlgorithm;

    fn from_str(text: &str) -> Result<Self, UnknownAlgorithm> {
        let named = Self::ALL.into_iter().find(|(name, _)| *name == text);
        named.map(|(_, algorithm)| algorithm).ok_or(UnknownAlgorithm)
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rsa(bits: usize) -> PublicKey {
        PublicKey::Rsa { modulus: vec![0xff; bits / 8], exponent: vec![1, 0, 1] }
    }

    fn names(key: &PublicKey) -> Vec<&'static str> {
        let algorithms = Algorithm::of_key(key).unwrap();
        algorithms.into_iter().map(Algorithm::name).collect()
    }

    #[test]
    fn a_key_makes_those_of_its_type() {
        let of_rsa = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512"];
        assert_eq!(names(&rsa(2048)), of_rsa);
        for (curve, name, hash) in [
            (Curve::P256, "ES256", Hash::Sha256),
            (Curve::P384, "ES384", Hash::Sha384),
            (Curve::P521, "ES512", Hash::Sha512),
        ] {
            let key = PublicKey::Ecdsa { curve, point: Vec::new() };
            assert_eq!(names(&key), [name]);
            let algorithm: Algorithm = name.parse().unwrap();
            assert_eq!(algorithm.hash(), hash);
            assert_eq!(algorithm.scheme(&key), Some(Scheme::Ecdsa { curve }));
            assert_eq!(algorithm.scheme(&rsa(2048)), None);
        }
    }

    #[test]
    fn the_salt_is_as_long_as_the_hash() {
        for (algorithm, hash, salt) in [
            (Algorithm::Ps256, Hash::Sha256, 32),
            (Algorithm::Ps384, Hash::Sha384, 48),
            (Algorithm::Ps512, Hash::Sha512, 64),
        ] {
            let scheme = algorithm.scheme(&rsa(2048));
            assert_eq!(scheme, Some(Scheme::RsaPss { hash, salt }));
        }
    }

    #[test]
    fn keys_that_api_servers_refuse_make_none() {
        let refused = |key: &PublicKey| Algorithm::of_key(key).unwrap_err();
        let ed25519 = PublicKey::Ed25519([0; 32]);
        assert!(matches!(refused(&ed25519), JoseError::Ed25519));
        assert!(matches!(refused(&rsa(1024)), JoseError::TooShort { .. }));
        assert_eq!("EdDSA".parse::<Algorithm>(), Err(UnknownAlgorithm));
    }
}
