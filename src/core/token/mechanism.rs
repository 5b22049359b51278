//! From a signature scheme to an operation that this token offers.
//!
//! If a token lacks the padded RSA mechanism, or refuses its parameters, the padding is done
//! here and the token is asked for the bare RSA operation (CKM_RSA_X_509).

#![forbid(unsafe_code)]

use cryptoki::mechanism::eddsa::{EddsaParams, EddsaSignatureScheme};
use cryptoki::mechanism::rsa::{PkcsMgfType, PkcsPssParams};
use cryptoki::mechanism::{Mechanism, MechanismType};

use super::error::SigningError;
use crate::certificate::PublicKey;
use crate::hash::Hash;
use crate::scheme::{Scheme, ecdsa, pkcs1, pss};

/// Who makes the padded block that an RSA key is applied to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Padding {
    Ours,
    /// The token's, or none because the scheme has none.
    Tokens,
}

/// A mechanism with its parameters, and the input prepared for it.
pub(super) struct SigningOperation {
    pub(super) mechanism: Mechanism<'static>,
    pub(super) input: Vec<u8>,
}

/// How this token can pad for such a signature: the better way, and the other one if it has both.
pub(super) fn paddings(
    scheme: &Scheme,
    token: &str,
    offers: impl Fn(MechanismType) -> bool,
) -> Result<(Padding, Option<Padding>), SigningError> {
    let (padded, bare, wanted): (_, _, &[&str]) = match scheme {
        Scheme::RsaPss { .. } => (
            MechanismType::RSA_PKCS_PSS,
            Some(MechanismType::RSA_X_509),
            &["CKM_RSA_PKCS_PSS", "CKM_RSA_X_509"],
        ),
        Scheme::RsaPkcs1 { .. } => (
            MechanismType::RSA_PKCS,
            Some(MechanismType::RSA_X_509),
            &["CKM_RSA_PKCS", "CKM_RSA_X_509"],
        ),
        Scheme::Ecdsa { .. } => (MechanismType::ECDSA, None, &["CKM_ECDSA"]),
        Scheme::Ed25519 => (MechanismType::EDDSA, None, &["CKM_EDDSA"]),
    };
    let ours = bare.is_some_and(&offers).then_some(Padding::Ours);
    let tokens = offers(padded).then_some(Padding::Tokens);
    match (tokens, ours) {
        (Some(tokens), ours) => Ok((tokens, ours)),
        (None, Some(ours)) => Ok((ours, None)),
        (None, None) => Err(SigningError::NoMechanism {
            token: token.to_owned(),
            scheme: scheme.to_string(),
            wanted,
        }),
    }
}

/// The operation for a digest; for Ed25519 the digest is the whole message.
pub(super) fn operation(
    scheme: &Scheme,
    padding: Padding,
    digest: &[u8],
    key: &PublicKey,
) -> Result<SigningOperation, SigningError> {
    let malformed = || SigningError::Malformed { scheme: scheme.to_string(), length: digest.len() };
    let (mechanism, input) = match (scheme, padding) {
        (Scheme::RsaPss { hash, salt }, Padding::Tokens) => (
            Mechanism::RsaPkcsPss(pss_parameters(*hash, *salt).ok_or_else(malformed)?),
            digest.to_owned(),
        ),
        (Scheme::RsaPss { hash, salt }, Padding::Ours) => {
            let mut random = vec![0; *salt];
            getrandom::fill(&mut random)
                .map_err(|error| SigningError::Random(error.to_string()))?;
            let block = pss::encode(*hash, digest, &random, key.modulus_bits());
            (Mechanism::RsaX509, block.ok_or_else(malformed)?)
        }
        (Scheme::RsaPkcs1 { hash }, Padding::Tokens) => {
            (Mechanism::RsaPkcs, pkcs1::digest_info(*hash, digest))
        }
        (Scheme::RsaPkcs1 { hash }, Padding::Ours) => {
            let block = pkcs1::pad(&pkcs1::digest_info(*hash, digest), key.modulus_length());
            (Mechanism::RsaX509, block.ok_or_else(malformed)?)
        }
        // Some tokens refuse a digest that is longer or shorter than the curve's order.
        (Scheme::Ecdsa { curve }, _) => (Mechanism::Ecdsa, ecdsa::digest_for(*curve, digest)),
        // No parameter block: some tokens refuse one.
        (Scheme::Ed25519, _) => {
            (Mechanism::Eddsa(EddsaParams::new(EddsaSignatureScheme::Ed25519)), digest.to_owned())
        }
    };
    Ok(SigningOperation { mechanism, input })
}

/// The same hash for the digest and the mask: tokens refuse two different ones.
fn pss_parameters(hash: Hash, salt: usize) -> Option<PkcsPssParams> {
    let (hash_alg, mgf) = match hash {
        Hash::Md5Sha1 => return None,
        Hash::Sha1 => (MechanismType::SHA1, PkcsMgfType::MGF1_SHA1),
        Hash::Sha224 => (MechanismType::SHA224, PkcsMgfType::MGF1_SHA224),
        Hash::Sha256 => (MechanismType::SHA256, PkcsMgfType::MGF1_SHA256),
        Hash::Sha384 => (MechanismType::SHA384, PkcsMgfType::MGF1_SHA384),
        Hash::Sha512 => (MechanismType::SHA512, PkcsMgfType::MGF1_SHA512),
    };
    Some(PkcsPssParams { hash_alg, mgf, s_len: salt.try_into().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tokens_own_padding_comes_first_and_ours_takes_its_place() {
        let scheme = Scheme::RsaPss { hash: Hash::Sha256, salt: 32 };
        let (pss, bare) = (MechanismType::RSA_PKCS_PSS, MechanismType::RSA_X_509);
        let with = |offered: &[MechanismType]| paddings(&scheme, "t", |it| offered.contains(&it));
        assert_eq!(with(&[bare, pss]).unwrap(), (Padding::Tokens, Some(Padding::Ours)));
        assert_eq!(with(&[pss]).unwrap(), (Padding::Tokens, None));
        assert_eq!(with(&[bare]).unwrap(), (Padding::Ours, None));
        assert!(with(&[MechanismType::ECDSA]).is_err());
    }

    #[test]
    fn an_elliptic_curve_has_no_padding_of_ours() {
        let bare = |it| it == MechanismType::RSA_X_509;
        assert!(paddings(&Scheme::Ed25519, "t", bare).is_err());
    }
}
