//! What opens a sealed file: C_DecryptInit and C_Decrypt with RSAES-OAEP, or C_DeriveKey with ECDH.

#![forbid(unsafe_code)]

use cryptoki::error::{Error as CryptokiError, RvError};
use cryptoki::mechanism::elliptic_curve::{EcKdf, Ecdh1DeriveParams};
use cryptoki::mechanism::rsa::{PkcsMgfType, PkcsOaepParams, PkcsOaepSource};
use cryptoki::mechanism::{Mechanism, MechanismType};
use cryptoki::object::{Attribute, AttributeType, KeyType, ObjectClass};

use super::ckr;
use super::error::OpeningError;
use super::operation::{Calls, KeyUse, Outcome, refuses_mechanism};
use super::raw::{CallResult, ObjectHandle, Session};
use super::yubikey::is_yubikey;
use crate::certificate::{Curve, PublicKey};
use crate::error::Error;
use crate::hash::Hash;
use crate::scheme::oaep;

/// What a private key is applied to, to open what was sealed to its public key.
#[derive(Clone, Copy, Debug)]
pub enum LockedSecret<'a> {
    /// RSAES-OAEP without a label (RFC 8017, section 7.1).
    Oaep {
        hash: Hash,
        mask_hash: Hash,
        ciphertext: &'a [u8],
        /// Of the message, in bytes.
        length: usize,
    },
    /// ECDH with this point (SEC 1, uncompressed), whose X coordinate is the secret.
    Ecdh { curve: Curve, point: &'a [u8] },
}

impl LockedSecret<'_> {
    /// The attribute that allows it.
    fn usage(&self) -> (AttributeType, &'static str) {
        match self {
            Self::Oaep { .. } => (AttributeType::Decrypt, "CKA_DECRYPT"),
            Self::Ecdh { .. } => (AttributeType::Derive, "CKA_DERIVE"),
        }
    }
}

/// A key with what it takes to open with it, and what its token offers.
pub(super) struct Opener<'t, 'm> {
    pub(super) usage: KeyUse<'t, 'm>,
    /// `None` if the library doesn't say.
    pub(super) offered: Option<&'t [MechanismType]>,
}

impl Opener<'_, '_> {
    pub(super) fn open(
        &mut self,
        locked: &LockedSecret<'_>,
        public_key: &PublicKey,
    ) -> Result<Vec<u8>, Error> {
        self.check_usage(locked)?;
        match (locked, public_key) {
            (LockedSecret::Oaep { hash, mask_hash, ciphertext, length }, PublicKey::Rsa { .. })
                if ciphertext.len() == public_key.modulus_length() =>
            {
                self.decrypt((*hash, *mask_hash), ciphertext, *length)
            }
            (LockedSecret::Ecdh { curve, point }, PublicKey::Ecdsa { curve: own, .. })
                if curve == own =>
            {
                // A library that computes with any point could give the key away, bit by bit.
                match is_on_curve(*curve, point) {
                    true => self.derive(*curve, point),
                    false => Err(self.not_opened().into()),
                }
            }
            _ => {
                Err(OpeningError::OtherKey { key: self.words(), kind: public_key.to_string() }
                    .into())
            }
        }
    }

    fn words(&self) -> String {
        self.usage.key.words.clone()
    }

    /// Whatever is wrong with what comes out, it is this error.
    fn not_opened(&self) -> OpeningError {
        OpeningError::NotOpened { key: self.words() }
    }

    /// A key that isn't for it is named before the token is asked: its refusal has many names.
    fn check_usage(&self, locked: &LockedSecret<'_>) -> Result<(), OpeningError> {
        let (kind, attribute) = locked.usage();
        let session = self.usage.session;
        // Yubico's library says of none of its keys that it derives, and derives.
        if kind == AttributeType::Derive && is_yubikey(&session.state) {
            return Ok(());
        }
        let objects = session.objects();
        match objects.flag(self.usage.key.object, kind) {
            Ok(Some(false)) => Err(OpeningError::NotForOpening { key: self.words(), attribute }),
            // A library that doesn't show it is tried.
            Ok(_) | Err(_) => Ok(()),
        }
    }

    fn offers(&self, mechanism: MechanismType) -> bool {
        self.offered.is_none_or(|it| it.contains(&mechanism))
    }

    /// By the token's OAEP or, where it has none or none with these hashes, by its bare RSA.
    fn decrypt(
        &mut self,
        hashes: (Hash, Hash),
        ciphertext: &[u8],
        length: usize,
    ) -> Result<Vec<u8>, Error> {
        let mut refusal = None;
        if let Some(mechanism) = oaep_mechanism(hashes)
            && self.offers(MechanismType::RSA_PKCS_OAEP)
        {
            match self.perform(&mechanism, ciphertext)? {
                Ok(message) if message.len() == length => return Ok(message),
                Ok(_) => return Err(self.not_opened().into()),
                Err(error) if refuses_mechanism(&error) => refusal = Some(error),
                Err(error) => return Err(self.failure(&error)),
            }
        }
        if !self.offers(MechanismType::RSA_X_509) {
            return Err(match refusal {
                Some(error) => self.failure(&error),
                None => self.no_mechanism(&["CKM_RSA_PKCS_OAEP", "CKM_RSA_X_509"]),
            });
        }
        log::debug!("opening: OAEP is taken off here");
        let block = match self.perform(&Mechanism::RsaX509, ciphertext)? {
            Ok(block) => block,
            Err(error) => return Err(self.failure(&error)),
        };
        // Some libraries leave out the zeros that it begins with.
        let missing = ciphertext.len().checked_sub(block.len());
        let missing = missing.ok_or_else(|| self.not_opened())?;
        let block = [vec![0; missing], block].concat();
        let message = oaep::message(hashes.0, hashes.1, &block, length);
        Ok(message.ok_or_else(|| self.not_opened())?)
    }

    fn perform(&mut self, mechanism: &Mechanism<'_>, ciphertext: &[u8]) -> Result<Outcome, Error> {
        let key = self.usage.key.object;
        self.usage.perform(&Calls {
            begin: &|session| session.decrypt_init(mechanism, key),
            end: &|session| session.decrypt(ciphertext),
        })
    }

    fn derive(&mut self, curve: Curve, point: &[u8]) -> Result<Vec<u8>, Error> {
        if !self.offers(MechanismType::ECDH1_DERIVE) {
            return Err(self.no_mechanism(&["CKM_ECDH1_DERIVE"]));
        }
        let length = curve.point_length() / 2;
        let parameters = Ecdh1DeriveParams::new(EcKdf::null(), point);
        let mechanism = Mechanism::Ecdh1Derive(parameters);
        let key = self.usage.key.object;
        let outcome =
            self.usage.perform_at_once(&|session| derived(session, &mechanism, key, length))?;
        match outcome {
            // Some libraries leave out the zeros that it begins with.
            Ok(secret) if (1..=length).contains(&secret.len()) => {
                let missing = length - secret.len();
                Ok([vec![0; missing], secret].concat())
            }
            Ok(_) => Err(self.not_opened().into()),
            Err(error) => Err(self.failure(&error)),
        }
    }

    fn no_mechanism(&self, wanted: &'static [&'static str]) -> Error {
        OpeningError::NoMechanism { token: self.usage.session.state.name.to_string(), wanted }
            .into()
    }

    fn failure(&self, error: &CryptokiError) -> Error {
        let key = self.words();
        self.usage.session.failure(error, |failure| {
            match ckr::code(error) {
                Some(
                    RvError::EncryptedDataInvalid
                    | RvError::EncryptedDataLenRange
                    | RvError::DataInvalid,
                ) => OpeningError::NotOpened { key },
                _ if refuses_mechanism(error) => OpeningError::Refused { key, failure },
                _ => OpeningError::Call { key, failure },
            }
            .into()
        })
    }
}

/// C_DeriveKey, and the value of the object that it makes, which is removed again.
fn derived(
    session: &Session<'_>,
    mechanism: &Mechanism<'_>,
    key: ObjectHandle,
    length: usize,
) -> CallResult<Vec<u8>> {
    let template = [
        Attribute::Class(ObjectClass::SECRET_KEY),
        Attribute::KeyType(KeyType::GENERIC_SECRET),
        Attribute::Token(false),
        Attribute::Sensitive(false),
        Attribute::Extractable(true),
        Attribute::ValueLen((length as u64).into()),
    ];
    let object = session.derive_key(mechanism, key, &template)?;
    let shown = session.attributes(object, &[AttributeType::Value]);
    // It ends with the session at the latest.
    if let Err(error) = session.destroy(object) {
        log::info!("{}", ckr::failure(&error));
    }
    let value = shown?.pop();
    Ok(value.map(|(_, value)| value).unwrap_or_default())
}

/// `None` for hashes that PKCS#11 has no names for.
fn oaep_mechanism((hash, mask_hash): (Hash, Hash)) -> Option<Mechanism<'static>> {
    let hash = match hash {
        Hash::Sha1 => MechanismType::SHA1,
        Hash::Sha224 => MechanismType::SHA224,
        Hash::Sha256 => MechanismType::SHA256,
        Hash::Sha384 => MechanismType::SHA384,
        Hash::Sha512 => MechanismType::SHA512,
        Hash::Md5Sha1 => return None,
    };
    let mask = match mask_hash {
        Hash::Sha1 => PkcsMgfType::MGF1_SHA1,
        Hash::Sha224 => PkcsMgfType::MGF1_SHA224,
        Hash::Sha256 => PkcsMgfType::MGF1_SHA256,
        Hash::Sha384 => PkcsMgfType::MGF1_SHA384,
        Hash::Sha512 => PkcsMgfType::MGF1_SHA512,
        Hash::Md5Sha1 => return None,
    };
    let parameters = PkcsOaepParams::new(hash, mask, PkcsOaepSource::empty());
    Some(Mechanism::RsaPkcsOaep(parameters))
}

fn is_on_curve(curve: Curve, point: &[u8]) -> bool {
    match curve {
        Curve::P256 => p256::PublicKey::from_sec1_bytes(point).is_ok(),
        Curve::P384 => p384::PublicKey::from_sec1_bytes(point).is_ok(),
        Curve::P521 => p521::PublicKey::from_sec1_bytes(point).is_ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_point_beside_the_curve_is_not_computed_with() {
        let mut point = vec![4];
        // The generator of P-256.
        for word in [
            0x6b17_d1f2_u32,
            0xe12c_4247,
            0xf8bc_e6e5,
            0x63a4_40f2,
            0x7703_7d81,
            0x2deb_33a0,
            0xf4a1_3945,
            0xd898_c296,
            0x4fe3_42e2,
            0xfe1a_7f9b,
            0x8ee7_eb4a,
            0x7c0f_9e16,
            0x2bce_3357,
            0x6b31_5ece,
            0xcbb6_4068,
            0x37bf_51f5,
        ] {
            point.extend(word.to_be_bytes());
        }
        assert!(is_on_curve(Curve::P256, &point));
        assert!(!is_on_curve(Curve::P384, &point));
        point[64] ^= 1;
        assert!(!is_on_curve(Curve::P256, &point));
        assert!(!is_on_curve(Curve::P256, &[]));
    }
}
