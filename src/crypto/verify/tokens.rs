//! Verifies the signatures of tokens, of which a signer of service account tokens makes thousands a second.
//!
//! Here it is aws-lc-rs that verifies: docs/decisions/0003-verification-crates.md.

use std::ops::RangeInclusive;

use aws_lc_rs::digest::{self, Digest};
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1, ECDSA_P384_SHA384_ASN1, ECDSA_P521_SHA512_ASN1, ParsedPublicKey,
    RSA_PKCS1_2048_8192_SHA256, VerificationAlgorithm,
};

use super::VerifiedSignature;
use crate::certificate::{Curve, PublicKey, with_leading_zeros};
use messages::error::{Error, Exit};

/// How long an RSA modulus may be, in bits: aws-lc-rs takes other keys, and then accepts none of their signatures.
const BITS: RangeInclusive<usize> = 2048..=8192;

/// A key that verifies tokens: it is parsed once for all of them.
#[derive(Clone, Debug)]
pub struct TokenVerifier {
    key: ParsedPublicKey,
    hash: &'static digest::Algorithm,
    /// The length of an RSA key's signatures in bytes.
    modulus_length: Option<usize>,
}

impl TokenVerifier {
    /// A verifier of tokens of the algorithm that RFC 7518 (section 3.1) has for this key, for RSA of RS256. An error for a
    /// key that has none, or that is malformed.
    pub fn new(key: &PublicKey) -> Result<Self, Error> {
        let unfit = |reason: String| {
            let text = format!("no token can be verified with a key {key}: {reason}");
            Error::new(Exit::Object, text).help(
                "use an ECDSA key on P-256, P-384 or P-521, or an RSA key of 2048 to 8192 bits",
            )
        };
        let (algorithm, hash): (&'static dyn VerificationAlgorithm, _) = match key {
            PublicKey::Rsa { .. } if !BITS.contains(&key.modulus_bits()) => {
                return Err(unfit("it is shorter or longer than API servers' keys are".to_owned()));
            }
            PublicKey::Rsa { .. } => (&RSA_PKCS1_2048_8192_SHA256, &digest::SHA256),
            PublicKey::Ecdsa { curve, .. } => match curve {
                Curve::P256 => (&ECDSA_P256_SHA256_ASN1, &digest::SHA256),
                Curve::P384 => (&ECDSA_P384_SHA384_ASN1, &digest::SHA384),
                Curve::P521 => (&ECDSA_P521_SHA512_ASN1, &digest::SHA512),
            },
            PublicKey::Ed25519(_) | PublicKey::MlDsa { .. } => {
                return Err(unfit("API servers take no tokens of its type".to_owned()));
            }
        };
        let parsed = ParsedPublicKey::new(algorithm, key.to_der()?);
        let is_rsa = matches!(key, PublicKey::Rsa { .. });
        Ok(Self {
            key: parsed.map_err(|rejected| unfit(rejected.to_string()))?,
            hash,
            modulus_length: is_rsa.then(|| key.modulus_length()),
        })
    }

    /// Verifies the signature of the digest, which is one of the algorithm's hash; `None` if it isn't valid. ECDSA signatures
    /// are in DER.
    pub fn verify(&self, digest: &[u8], signature: Vec<u8>) -> Option<VerifiedSignature> {
        let signature = match self.modulus_length {
            // Some modules leave out leading zeros, which a token has to have.
            Some(length) => with_leading_zeros(&signature, length)?,
            None => signature,
        };
        let digest = Digest::import_less_safe(digest, self.hash).ok()?;
        self.key.verify_digest_sig(&digest, &signature).ok()?;
        Some(VerifiedSignature(signature))
    }
}

#[cfg(test)]
mod tests {
    use p256::ecdsa::signature::hazmat::PrehashSigner as _;

    use super::*;

    const DIGEST: [u8; 32] = [7; 32];

    #[test]
    fn a_signature_of_the_digest_is_valid_and_no_other() {
        let secret = p256::ecdsa::SigningKey::from_slice(&[3; 32]).unwrap();
        let point = secret.verifying_key().to_sec1_point(false).as_bytes().to_vec();
        let verifier = TokenVerifier::new(&PublicKey::Ecdsa { curve: Curve::P256, point }).unwrap();
        let signature: p256::ecdsa::Signature = secret.sign_prehash(&DIGEST).unwrap();
        let signature = signature.to_der().as_bytes().to_vec();
        let verified = verifier.verify(&DIGEST, signature.clone()).unwrap();
        assert_eq!(verified.as_bytes(), signature);
        assert!(verifier.verify(&[8; 32], signature.clone()).is_none());
        assert!(verifier.verify(&DIGEST[..31], signature.clone()).is_none());
        let mut other = signature;
        *other.last_mut().unwrap() ^= 1;
        assert!(verifier.verify(&DIGEST, other).is_none());
    }

    #[test]
    fn a_key_that_verifies_no_tokens_is_refused() {
        let off_the_curve = PublicKey::Ecdsa { curve: Curve::P256, point: vec![4; 65] };
        let short = PublicKey::Rsa { modulus: vec![0xff; 128], exponent: vec![1, 0, 1] };
        let long = PublicKey::Rsa { modulus: vec![0xff; 1025], exponent: vec![1, 0, 1] };
        for key in [off_the_curve, short, long, PublicKey::Ed25519([0; 32])] {
            assert!(TokenVerifier::new(&key).is_err(), "{key}");
        }
    }
}
