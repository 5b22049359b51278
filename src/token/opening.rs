//! How a key opens a sealed file: by RSAES-OAEP (C_DecryptInit, C_Decrypt) or by ECDH (C_DeriveKey).

use cryptoki::error::{Error as CryptokiError, RvError};
use cryptoki::mechanism::elliptic_curve::{EcKdf, Ecdh1DeriveParams};
use cryptoki::mechanism::rsa::{PkcsMgfType, PkcsOaepParams, PkcsOaepSource};
use cryptoki::mechanism::{Mechanism, MechanismType};
use cryptoki::object::{Attribute, AttributeType, KeyType, ObjectClass};

use super::key::PrivateKey;
use super::raw::{KeyOperation, Session};
use super::sign::{OperationOutcome, refuses_mechanism};
use super::{Token, ckr};
use config::pin::PinProvider;
use crypto::certificate::{Curve, PublicKey, with_leading_zeros};
use crypto::scheme::{LockedSecret, ecdsa, oaep};
use messages::error::{Error, Exit, listed};
use protocol::hash::Hash;

/// The length in bytes of what is encrypted with OAEP: an AES-256 key.
const KEY_LENGTH: usize = 32;

impl Token {
    /// Opens a secret that was sealed to the key: decrypts the message (C_Decrypt), or computes ECDH's shared secret
    /// (C_DeriveKey).
    pub fn open(
        &mut self,
        key: &PrivateKey,
        locked: &LockedSecret,
        pins: &mut dyn PinProvider,
    ) -> Result<Vec<u8>, Error> {
        self.check_usage(key, locked)?;
        let public_key = &key.reference.public_key;
        let opened = match (locked, public_key) {
            (LockedSecret::Oaep(ciphertext), PublicKey::Rsa { .. })
                if ciphertext.len() == public_key.modulus_length() =>
            {
                self.decrypt(key, pins, ciphertext)?
            }
            // The point is checked: a library that computes with any point could give the key away, bit by bit.
            (LockedSecret::Ecdh { curve, point }, PublicKey::Ecdsa { curve: key_curve, .. })
                if curve == key_curve =>
            {
                match ecdsa::coordinates(point, *curve) {
                    Some(_) => self.derive(key, pins, *curve, point)?,
                    None => None,
                }
            }
            _ => {
                let key = key.reference.describe();
                let text = format!(
                    "{key} ({public_key}) is of another kind than the key that it was sealed to"
                );
                return Err(Error::new(Exit::Signing, text).help(SEAL_AGAIN));
            }
        };
        // Whatever is wrong with the result, the error is the same: a difference would help whoever tries to open the
        // secret.
        opened.ok_or_else(|| not_opened(key))
    }

    /// Fails for a key that may not be used to open anything. The token would refuse as well, but each library with another
    /// return value.
    fn check_usage(&self, key: &PrivateKey, locked: &LockedSecret) -> Result<(), Error> {
        let (kind, attribute) = match locked {
            LockedSecret::Oaep(_) => (AttributeType::Decrypt, "CKA_DECRYPT"),
            // Yubico's library says that no key may derive, and derives with each.
            LockedSecret::Ecdh { .. } if self.state().is_yubikey() => return Ok(()),
            LockedSecret::Ecdh { .. } => (AttributeType::Derive, "CKA_DERIVE"),
        };
        match self.flag(key.object, kind) {
            Ok(Some(false)) => {
                let key = key.reference.describe();
                let text =
                    format!("{key} is not for opening sealed files: its {attribute} is false");
                Err(Error::new(Exit::Signing, text).help(OTHER_KEY))
            }
            // A key that doesn't show the attribute is tried.
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// Decrypts with the token's OAEP mechanism. If it has none, or not for these hashes, its bare RSA operation is used,
    /// and the padding is removed here.
    fn decrypt(
        &mut self,
        key: &PrivateKey,
        pins: &mut dyn PinProvider,
        ciphertext: &[u8],
    ) -> Result<Option<Vec<u8>>, Error> {
        let mut decrypt = |token: &mut Self, mechanism: &Mechanism<'_>| -> OperationOutcome {
            token.perform(KeyOperation::Decrypt, key, mechanism, ciphertext, pins)
        };
        let has_bare = self.offers(MechanismType::RSA_X_509);
        if self.offers(MechanismType::RSA_PKCS_OAEP) {
            let mask = PkcsMgfType::MGF1_SHA256;
            let parameters =
                PkcsOaepParams::new(MechanismType::SHA256, mask, PkcsOaepSource::empty());
            match decrypt(self, &Mechanism::RsaPkcsOaep(parameters))? {
                Ok(message) => {
                    return Ok(Some(message).filter(|message| message.len() == KEY_LENGTH));
                }
                Err(error) if has_bare && refuses_mechanism(&error) => {}
                Err(error) => return Err(self.opening_failure(key, &error)),
            }
        } else if !has_bare {
            return Err(self.no_opening_mechanism(&["CKM_RSA_PKCS_OAEP", "CKM_RSA_X_509"]));
        }
        log::debug!("opening: OAEP is taken off here");
        let block = decrypt(self, &Mechanism::RsaX509)?;
        let block = block.map_err(|error| self.opening_failure(key, &error))?;
        // Some libraries leave out zeros at the beginning of the block.
        let block = with_leading_zeros(&block, ciphertext.len());
        Ok(block.and_then(|block| oaep::message(Hash::Sha256, Hash::Sha256, &block, KEY_LENGTH)))
    }

    /// The shared secret: the value of the object that C_DeriveKey makes, which is removed afterwards.
    fn derive(
        &mut self,
        key: &PrivateKey,
        pins: &mut dyn PinProvider,
        curve: Curve,
        point: &[u8],
    ) -> Result<Option<Vec<u8>>, Error> {
        if !self.offers(MechanismType::ECDH1_DERIVE) {
            return Err(self.no_opening_mechanism(&["CKM_ECDH1_DERIVE"]));
        }
        let length = curve.field_length();
        let mechanism = Mechanism::Ecdh1Derive(Ecdh1DeriveParams::new(EcKdf::null(), point));
        let template = [
            Attribute::Class(ObjectClass::SECRET_KEY),
            Attribute::KeyType(KeyType::GENERIC_SECRET),
            Attribute::Token(false),
            Attribute::Sensitive(false),
            Attribute::Extractable(true),
            Attribute::ValueLen((length as u64).into()),
        ];
        let call = |session: &Session| {
            let object = session.derive_key(&mechanism, key.object, &template)?;
            let shown = session.attributes(object, &[AttributeType::Value]);
            // The object ends with the session at the latest.
            if let Err(error) = session.destroy(object) {
                log::info!("{}", ckr::failure(&error));
            }
            Ok(shown?.pop().map(|(_, value)| value).unwrap_or_default())
        };
        let secret = self.perform_at_once(key, pins, &call)?;
        let secret = secret.map_err(|error| self.opening_failure(key, &error))?;
        Ok(Some(secret)
            .filter(|secret| !secret.is_empty())
            .and_then(|secret| with_leading_zeros(&secret, length)))
    }

    fn no_opening_mechanism(&self, wanted: &[&str]) -> Error {
        let text = format!(
            "token {} can't open what was sealed to such a key: it offers no {}",
            self.name(),
            listed(wanted, "or")
        );
        Error::new(Exit::Signing, text).help(
            "use a token or a library that decrypts (RSA) or derives keys (EC), or a key of the other kind",
        )
    }

    fn opening_failure(&self, key: &PrivateKey, error: &CryptokiError) -> Error {
        use RvError::{DataInvalid, EncryptedDataInvalid, EncryptedDataLenRange};
        if ckr::is_one_of(error, &[DataInvalid, EncryptedDataInvalid, EncryptedDataLenRange]) {
            return not_opened(key);
        }
        self.operation_failure("opening", &key.reference.describe(), error, OTHER_KEY)
    }
}

const OTHER_KEY: &str = "seal to a key that was made with CKA_DECRYPT (RSA) or CKA_DERIVE (EC)";
const SEAL_AGAIN: &str = "seal the passwords again, to the certificate of this key";

fn not_opened(key: &PrivateKey) -> Error {
    let key = key.reference.describe();
    let text =
        format!("{key} does not open what was sealed: it was sealed to another key, or is damaged");
    Error::new(Exit::Signing, text).help(SEAL_AGAIN)
}
