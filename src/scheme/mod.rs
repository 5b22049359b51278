//! What to compute: from the client's options and the certificate's key to a signature scheme.
//!
//! Go's `crypto.Hash` alone does not say which scheme is meant; the key's type decides. Pure
//! functions, with published vectors.

#![forbid(unsafe_code)]

pub mod ecdsa;
pub mod pkcs1;
pub mod pss;

use std::fmt;

use crate::certificate::{Curve, PublicKey};
use crate::error::RequestError;
use crate::hash::Hash;
use crate::protocol::{SaltLength, SignerOptions};

/// A signature scheme with everything that is left open in its name.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Scheme {
    Ecdsa {
        curve: Curve,
    },
    /// Over the message itself (RFC 8032, PureEdDSA).
    Ed25519,
    /// RSASSA-PKCS1-v1_5 (RFC 8017, section 8.2).
    RsaPkcs1 {
        hash: Hash,
    },
    /// RSASSA-PSS (RFC 8017, section 8.1); the salt's length in bytes.
    RsaPss {
        hash: Hash,
        salt: usize,
    },
}

impl Scheme {
    /// What TLS can ask of the key (RFC 8446, section 4.2.3), RSA-PSS before PKCS #1 v1.5.
    pub fn of_tls(key: &PublicKey) -> Vec<Self> {
        let hashes = [Hash::Sha256, Hash::Sha384, Hash::Sha512];
        let options: Vec<_> = match key {
            PublicKey::Rsa { .. } => hashes
                .map(|hash| SignerOptions::Pss {
                    hash,
                    salt: SaltLength::EqualsHash,
                })
                .into_iter()
                .chain(hashes.map(SignerOptions::Hashed))
                .collect(),
            PublicKey::Ecdsa { .. } | PublicKey::Ed25519(_) => vec![SignerOptions::Unhashed],
        };
        options
            .iter()
            .filter_map(|options| Self::choose(options, key).ok())
            .collect()
    }

    /// The length of a digest to sign, in bytes; for ECDSA and Ed25519 one of many.
    pub fn digest_length(&self) -> usize {
        match self {
            Self::RsaPkcs1 { hash } | Self::RsaPss { hash, .. } => hash.length(),
            Self::Ecdsa { .. } | Self::Ed25519 => Hash::Sha256.length(),
        }
    }

    /// Whether TLS 1.3 has it; TLS 1.2 has all.
    pub fn is_of_tls_1_3(&self) -> bool {
        !matches!(self, Self::RsaPkcs1 { .. })
    }

    /// The scheme, if the key can make such a signature.
    pub fn choose(options: &SignerOptions, key: &PublicKey) -> Result<Self, RequestError> {
        let contradiction = |wanted: &str| RequestError::OptionsContradictKey {
            options: wanted.to_owned(),
            key: key.to_string(),
        };
        match (key, *options) {
            (PublicKey::Rsa { .. }, SignerOptions::Pss { hash, salt }) => Ok(Self::RsaPss {
                hash,
                salt: salt_length(hash, salt, key)?,
            }),
            (PublicKey::Rsa { .. }, SignerOptions::Hashed(hash)) => {
                let info = pkcs1::digest_info(hash, &vec![0; hash.length()]);
                if pkcs1::pad(&info, key.modulus_length()).is_none() {
                    return Err(RequestError::KeyTooShort {
                        hash,
                        key: key.to_string(),
                    });
                }
                Ok(Self::RsaPkcs1 { hash })
            }
            (PublicKey::Rsa { .. }, SignerOptions::Unhashed) => {
                Err(contradiction("a signature over an unhashed message"))
            }
            // In TLS 1.2 the hash is chosen apart from the curve.
            (
                PublicKey::Ecdsa { curve, .. },
                SignerOptions::Hashed(_) | SignerOptions::Unhashed,
            ) => Ok(Self::Ecdsa { curve: *curve }),
            (PublicKey::Ed25519(_), SignerOptions::Unhashed) => Ok(Self::Ed25519),
            (PublicKey::Ed25519(_), SignerOptions::Hashed(hash)) => {
                Err(contradiction(&format!("a signature over a {hash} digest")))
            }
            (PublicKey::Ecdsa { .. } | PublicKey::Ed25519(_), SignerOptions::Pss { .. }) => {
                Err(contradiction("an RSA-PSS signature"))
            }
        }
    }
}

/// Go's SaltLength for a key, in bytes.
fn salt_length(hash: Hash, salt: SaltLength, key: &PublicKey) -> Result<usize, RequestError> {
    let Some(longest) = pss::longest_salt(hash, key.modulus_bits()) else {
        return Err(RequestError::KeyTooShort {
            hash,
            key: key.to_string(),
        });
    };
    let salt = match salt {
        SaltLength::EqualsHash => hash.length(),
        SaltLength::Exactly(bytes) => bytes,
        SaltLength::Longest => longest,
    };
    if salt > longest {
        return Err(RequestError::SaltTooLong {
            salt,
            longest,
            hash,
            key: key.to_string(),
        });
    }
    Ok(salt)
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ecdsa { curve } => write!(f, "ECDSA {curve}"),
            Self::Ed25519 => f.write_str("Ed25519"),
            Self::RsaPkcs1 { hash } => write!(f, "RSA PKCS #1 v1.5 with {hash}"),
            Self::RsaPss { hash, salt } => write!(f, "RSA-PSS with {hash}, salt {salt}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rsa(bits: usize) -> PublicKey {
        let mut modulus = vec![0xff; bits.div_ceil(8)];
        if !bits.is_multiple_of(8) {
            modulus[0] = (1 << (bits % 8)) - 1;
        }
        PublicKey::Rsa {
            modulus,
            exponent: vec![1, 0, 1],
        }
    }

    fn pss(hash: Hash, salt: SaltLength, bits: usize) -> Result<Scheme, RequestError> {
        Scheme::choose(&SignerOptions::Pss { hash, salt }, &rsa(bits))
    }

    #[test]
    fn salt_lengths_are_those_of_go() {
        use SaltLength::{EqualsHash, Exactly, Longest};
        for (hash, salt, bits, expected) in [
            (Hash::Sha256, EqualsHash, 2048, 32),
            (Hash::Sha256, Longest, 2048, 222),
            (Hash::Sha512, EqualsHash, 4096, 64),
            // One bit above a whole number of bytes: the encoded message is a byte shorter.
            (Hash::Sha256, Longest, 2049, 222),
            (Hash::Sha256, Longest, 2047, 222),
            (Hash::Sha1, Exactly(1), 1024, 1),
            (Hash::Sha256, Exactly(222), 2048, 222),
        ] {
            assert_eq!(
                pss(hash, salt, bits).unwrap(),
                Scheme::RsaPss {
                    hash,
                    salt: expected
                }
            );
        }
    }

    #[test]
    fn a_salt_that_does_not_fit_is_refused() {
        for (salt, bits) in [
            (SaltLength::Exactly(223), 2048),
            (SaltLength::Exactly(usize::MAX), 2048),
            (SaltLength::Exactly(223), 2049),
        ] {
            let refused = pss(Hash::Sha256, salt, bits);
            assert!(matches!(
                refused,
                Err(RequestError::SaltTooLong { longest: 222, .. })
            ));
        }
        // 128 bytes hold a SHA-512 digest and 62 bytes of salt, but not 64.
        let refused = pss(Hash::Sha512, SaltLength::EqualsHash, 1024);
        assert!(matches!(
            refused,
            Err(RequestError::SaltTooLong { longest: 62, .. })
        ));
    }

    #[test]
    fn options_that_contradict_the_key_are_refused() {
        let ecdsa = PublicKey::Ecdsa {
            curve: Curve::P384,
            point: Vec::new(),
        };
        let ed25519 = PublicKey::Ed25519([0; 32]);
        let pss = SignerOptions::Pss {
            hash: Hash::Sha256,
            salt: SaltLength::EqualsHash,
        };
        for (options, key) in [
            (pss, &ecdsa),
            (pss, &ed25519),
            (SignerOptions::Hashed(Hash::Sha512), &ed25519),
            (SignerOptions::Unhashed, &rsa(2048)),
        ] {
            let refused = Scheme::choose(&options, key);
            assert!(matches!(
                refused,
                Err(RequestError::OptionsContradictKey { .. })
            ));
        }
    }

    #[test]
    fn the_key_decides_what_a_hash_means() {
        let hashed = SignerOptions::Hashed(Hash::Sha256);
        let ecdsa = PublicKey::Ecdsa {
            curve: Curve::P521,
            point: Vec::new(),
        };
        assert_eq!(
            Scheme::choose(&hashed, &rsa(2048)).unwrap(),
            Scheme::RsaPkcs1 { hash: Hash::Sha256 }
        );
        assert_eq!(
            Scheme::choose(&hashed, &ecdsa).unwrap(),
            Scheme::Ecdsa { curve: Curve::P521 }
        );
    }
}
