//! Verifies signatures with the certificate's public key. No other signature leaves the program.
//!
//! That catches another key's certificate, a broken library and a fault in the token alike.

mod request;

pub use request::is_signed_by_its_key;

use p256::ecdsa::signature::hazmat::PrehashVerifier as _;
use rsa::BoxedUint;
use rsa::pkcs1v15::Pkcs1v15Sign;
use rsa::pss::Pss;
use sha1::Sha1;
use sha2::digest::FixedOutputReset;
use sha2::{Digest, Sha224, Sha256, Sha384, Sha512};

use crate::certificate::{PublicKey, with_leading_zeros};
use crate::scheme::ecdsa::{self, with_crate_of};
use crate::scheme::{Scheme, pkcs1};
use base::hash::Hash;

/// A signature that the public key accepts. Only [`verify`] makes one.
#[must_use]
#[derive(Debug)]
pub struct VerifiedSignature(Vec<u8>);

impl VerifiedSignature {
    /// As TLS carries it: ECDSA in DER, RSA as long as the modulus.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}

/// ECDSA signatures are in DER; for Ed25519 the digest is the message. `None` if it isn't valid.
pub fn verify(
    key: &PublicKey,
    scheme: &Scheme,
    digest: &[u8],
    signature: Vec<u8>,
) -> Option<VerifiedSignature> {
    let signature = match key {
        // Some modules leave out leading zeros; TLS wants them.
        PublicKey::Rsa { .. } => with_leading_zeros(&signature, key.modulus_length())?,
        PublicKey::Ecdsa { .. } | PublicKey::Ed25519(_) => signature,
    };
    let accepted = match (key, scheme) {
        (PublicKey::Rsa { modulus, exponent }, Scheme::RsaPss { hash, salt }) => {
            let key = rsa_key(modulus, exponent)?;
            let accepts = match hash {
                Hash::Md5Sha1 => return None,
                Hash::Sha1 => pss_accepts::<Sha1>,
                Hash::Sha224 => pss_accepts::<Sha224>,
                Hash::Sha256 => pss_accepts::<Sha256>,
                Hash::Sha384 => pss_accepts::<Sha384>,
                Hash::Sha512 => pss_accepts::<Sha512>,
            };
            accepts(&key, *salt, digest, &signature)
        }
        (PublicKey::Rsa { modulus, exponent }, Scheme::RsaPkcs1 { hash }) => {
            let key = rsa_key(modulus, exponent)?;
            let info = pkcs1::digest_info(*hash, digest);
            key.verify(Pkcs1v15Sign::new_unprefixed(), &info, &signature).is_ok()
        }
        (PublicKey::Ecdsa { curve, point }, Scheme::Ecdsa { .. }) => {
            // The curves' crates refuse a digest shorter than half the order, which TLS 1.2 makes.
            let digest = ecdsa::digest_for(*curve, digest);
            let digest = with_leading_zeros(&digest, curve.field_length())?;
            with_crate_of!(*curve, it => {
                let key = it::ecdsa::VerifyingKey::from_sec1_bytes(point).ok()?;
                let signature = it::ecdsa::Signature::from_der(&signature).ok()?;
                key.verify_prehash(&digest, &signature).is_ok()
            })
        }
        (PublicKey::Ed25519(point), Scheme::Ed25519) => {
            let key = ed25519_dalek::VerifyingKey::from_bytes(point).ok()?;
            let signature = ed25519_dalek::Signature::from_slice(&signature).ok()?;
            key.verify_strict(digest, &signature).is_ok()
        }
        _ => false,
    };
    accepted.then_some(VerifiedSignature(signature))
}

fn rsa_key(modulus: &[u8], exponent: &[u8]) -> Option<rsa::PublicKey> {
    let [n, e] = [modulus, exponent].map(BoxedUint::from_be_slice_vartime);
    rsa::PublicKey::new(n, e).ok()
}

fn pss_accepts<D: Digest + FixedOutputReset>(
    key: &rsa::PublicKey,
    salt: usize,
    digest: &[u8],
    signature: &[u8],
) -> bool {
    key.verify(Pss::<D>::new_with_salt(salt), digest, signature).is_ok()
}

#[cfg(test)]
pub(crate) mod vectors;
