//! Verifies signatures with the certificate's public key. No other signature leaves the program.
//!
//! That catches another key's certificate, a broken library and a fault in the token alike.

use aws_lc_rs::signature::{ML_DSA_44, ML_DSA_65, ML_DSA_87, UnparsedPublicKey};
use p256::ecdsa::signature::hazmat::PrehashVerifier as _;
use rsa::BoxedUint;
use rsa::pkcs1v15::Pkcs1v15Sign;
use rsa::pss::Pss;
use sha1::Sha1;
use sha2::digest::FixedOutputReset;
use sha2::{Digest, Sha224, Sha256, Sha384, Sha512};

use crate::certificate::{
    CertificationRequest, MlDsaSet, PublicKey, SignatureAlgorithm, with_leading_zeros,
};
use crate::scheme::ecdsa::{self, with_crate_of};
use crate::scheme::{Scheme, pkcs1};
use protocol::hash::Hash;

pub use tokens::TokenVerifier;

/// A signature that the public key accepts. Only [`verify`] and a [`TokenVerifier`] make one.
#[must_use]
#[derive(Debug)]
pub struct VerifiedSignature(Vec<u8>);

impl VerifiedSignature {
    /// The signature in the form that TLS carries: ECDSA in DER, RSA as long as the modulus.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The bytes of [`Self::as_bytes`], taken out.
    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}

/// Verifies the signature of this digest with the key; `None` if it isn't valid. ECDSA signatures are in DER. For
/// Ed25519 and ML-DSA, the digest is the message.
pub fn verify(
    key: &PublicKey,
    scheme: &Scheme,
    digest: &[u8],
    signature: Vec<u8>,
) -> Option<VerifiedSignature> {
    let signature = match key {
        // Some modules leave out leading zeros, which TLS demands.
        PublicKey::Rsa { .. } => with_leading_zeros(&signature, key.modulus_length())?,
        PublicKey::Ecdsa { .. } | PublicKey::Ed25519(_) | PublicKey::MlDsa { .. } => signature,
    };
    let is_accepted = match (key, scheme) {
        (PublicKey::Rsa { modulus, exponent }, Scheme::RsaPss { hash, salt }) => {
            let key = rsa_key(modulus, exponent)?;
            pss_verifier(*hash)?(&key, *salt, digest, &signature)
        }
        (PublicKey::Rsa { modulus, exponent }, Scheme::RsaPkcs1 { hash }) => {
            let key = rsa_key(modulus, exponent)?;
            let info = pkcs1::digest_info(*hash, digest);
            key.verify(Pkcs1v15Sign::new_unprefixed(), &info, &signature).is_ok()
        }
        (PublicKey::Ecdsa { curve, point }, Scheme::Ecdsa { .. }) => {
            let digest = ecdsa::digest_for(*curve, digest);
            with_crate_of!(*curve, curve_crate => {
                let key = curve_crate::ecdsa::VerifyingKey::from_sec1_bytes(point).ok()?;
                let signature = curve_crate::ecdsa::Signature::from_der(&signature).ok()?;
                key.verify_prehash(&digest, &signature).is_ok()
            })
        }
        (PublicKey::Ed25519(point), Scheme::Ed25519) => {
            let key = ed25519_dalek::VerifyingKey::from_bytes(point).ok()?;
            let signature = ed25519_dalek::Signature::from_slice(&signature).ok()?;
            key.verify_strict(digest, &signature).is_ok()
        }
        (PublicKey::MlDsa { set, key }, Scheme::MlDsa { set: of_scheme }) if set == of_scheme => {
            let algorithm = match set {
                MlDsaSet::MlDsa44 => &ML_DSA_44,
                MlDsaSet::MlDsa65 => &ML_DSA_65,
                MlDsaSet::MlDsa87 => &ML_DSA_87,
            };
            UnparsedPublicKey::new(algorithm, key).verify(digest, &signature).is_ok()
        }
        _ => false,
    };
    is_accepted.then_some(VerifiedSignature(signature))
}

fn rsa_key(modulus: &[u8], exponent: &[u8]) -> Option<rsa::PublicKey> {
    let [n, e] = [modulus, exponent].map(BoxedUint::from_be_slice_vartime);
    rsa::PublicKey::new(n, e).ok()
}

/// Whether a key accepts a signature of this digest with a salt of this length in bytes.
type PssVerifier = fn(&rsa::PublicKey, usize, &[u8], &[u8]) -> bool;

/// The verification of RSA-PSS with this hash; `None` for one that PSS isn't used with.
fn pss_verifier(hash: Hash) -> Option<PssVerifier> {
    match hash {
        Hash::Md5Sha1 => None,
        Hash::Sha1 => Some(pss_accepts::<Sha1>),
        Hash::Sha224 => Some(pss_accepts::<Sha224>),
        Hash::Sha256 => Some(pss_accepts::<Sha256>),
        Hash::Sha384 => Some(pss_accepts::<Sha384>),
        Hash::Sha512 => Some(pss_accepts::<Sha512>),
    }
}

fn pss_accepts<D: Digest + FixedOutputReset>(
    key: &rsa::PublicKey,
    salt: usize,
    digest: &[u8],
    signature: &[u8],
) -> bool {
    key.verify(Pss::<D>::new_with_salt(salt), digest, signature).is_ok()
}

/// Whether the request is signed with the key that it names.
pub fn is_signed_by_its_key(request: &CertificationRequest) -> bool {
    let message = request.signed.as_slice();
    let Some(SignatureAlgorithm { scheme, hash }) = request.algorithm else { return false };
    let digest = hash.map_or_else(|| Some(message.to_vec()), |hash| hash.digest(&[message]));
    let signature = request.signature.clone();
    digest.is_some_and(|digest| verify(&request.public_key, &scheme, &digest, signature).is_some())
}

mod tokens;
#[cfg(test)]
pub(crate) mod vectors;

#[cfg(test)]
mod tests {
    use rcgen::{
        CertificateParams, DistinguishedName, DnType, KeyPair, PKCS_ECDSA_P256_SHA256,
        PKCS_ECDSA_P384_SHA384, PKCS_ED25519, PKCS_ML_DSA_44, PKCS_ML_DSA_65, PKCS_ML_DSA_87,
    };

    use super::*;

    #[test]
    fn a_request_is_its_keys_or_it_is_not() {
        let post_quantum = [&PKCS_ML_DSA_44, &PKCS_ML_DSA_65, &PKCS_ML_DSA_87];
        let others = [&PKCS_ECDSA_P256_SHA256, &PKCS_ECDSA_P384_SHA384, &PKCS_ED25519];
        for algorithm in others.into_iter().chain(post_quantum) {
            let key = KeyPair::generate_for(algorithm).unwrap();
            let mut name = DistinguishedName::new();
            name.push(DnType::OrganizationName, "dev");
            name.push(DnType::CommonName, "jane");
            let mut parameters = CertificateParams::default();
            parameters.distinguished_name = name;
            let pem = parameters.serialize_request(&key).unwrap().pem().unwrap();
            let mut request = CertificationRequest::from_pem(&pem).unwrap();
            assert_eq!(request.user.as_deref(), Some("jane"));
            assert_eq!(request.groups, ["dev"]);
            assert!(request.is_plain && request.attributes.is_empty());
            assert!(is_signed_by_its_key(&request));
            *request.signed.last_mut().unwrap() ^= 1;
            assert!(!is_signed_by_its_key(&request));
        }
    }

    #[test]
    fn what_is_asked_for_beside_user_and_groups_is_seen() {
        let key = KeyPair::generate().unwrap();
        let request = |kind: DnType, names: Vec<String>| {
            let mut parameters = CertificateParams::new(names).unwrap();
            parameters.distinguished_name = DistinguishedName::new();
            parameters.distinguished_name.push(DnType::CommonName, "jane");
            parameters.distinguished_name.push(kind, "more");
            let pem = parameters.serialize_request(&key).unwrap().pem().unwrap();
            CertificationRequest::from_pem(&pem).unwrap()
        };
        assert!(request(DnType::OrganizationName, Vec::new()).is_plain);
        assert!(!request(DnType::OrganizationalUnitName, Vec::new()).is_plain);
        let uid = DnType::CustomDnType(vec![1, 3, 6, 1, 4, 1, 57683, 2]);
        assert!(!request(uid, Vec::new()).is_plain);
        let named = request(DnType::OrganizationName, vec!["prod.example".to_owned()]);
        assert!(!named.attributes.is_empty());
    }
}
