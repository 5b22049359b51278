//! Sealing: a random key encrypts the content, and is encrypted itself for each recipient.

use aws_lc_rs::aead::{AES_256_GCM, Aad, RandomizedNonceKey};
use aws_lc_rs::agreement::{
    ECDH_P256, ECDH_P384, ECDH_P521, EphemeralPrivateKey, UnparsedPublicKey, agree_ephemeral,
};
use aws_lc_rs::rand::{SystemRandom, fill};
use aws_lc_rs::rsa::{OAEP_SHA256_MGF1SHA256, OaepPublicEncryptingKey, PublicEncryptingKey};
use cms::enveloped_data::{RecipientIdentifier, RecipientInfo, RecipientInfos};
use der::{Any, Decode as _, Encode as _, pem};

use super::encoding::{CONTENT_KEY_LENGTH, TAG_LENGTH, agreed, enveloped, transported, wrap};
use super::envelope::{LABEL, Parsed, names};
use super::registries::Registries;
use crypto::certificate::{Certificate, Curve, PublicKey};
use messages::error::{Error, Exit};

/// A new key for a content, encrypted for each recipient.
pub struct NewEnvelope {
    content_key: Vec<u8>,
    recipients: Vec<RecipientInfo>,
}

impl NewEnvelope {
    /// Makes a new key, and encrypts it to the key of each certificate. An error for a key that is named twice, or that
    /// nothing can be sealed to.
    pub fn new(certificates: &[Certificate]) -> Result<Self, Error> {
        // The heap is wiped when it is freed.
        let mut content_key = vec![0; CONTENT_KEY_LENGTH];
        fill(&mut content_key).map_err(|_| Error::internal("no random key"))?;
        let mut recipients = Vec::new();
        for (index, certificate) in certificates.iter().enumerate() {
            let key = certificate.public_key();
            if certificates.iter().take(index).any(|earlier| earlier.public_key() == key) {
                return Err(refused(certificate, "its key is named twice"));
            }
            recipients.push(recipient(certificate, &content_key)?);
        }
        Ok(Self { content_key, recipients })
    }

    /// The text of a file in which these registries are sealed.
    pub fn seal(self, registries: &Registries) -> Result<String, Error> {
        let sealed = || {
            let key = RandomizedNonceKey::new(&AES_256_GCM, &self.content_key).ok()?;
            let mut content = registries.to_config().into_bytes();
            let nonce = key.seal_in_place_append_tag(Aad::empty(), &mut content).ok()?;
            let tag = content.split_off(content.len().checked_sub(TAG_LENGTH.into())?);
            let recipients = RecipientInfos::try_from(self.recipients).ok()?;
            let der = enveloped(recipients, nonce.as_ref(), &content, &tag).ok()?;
            pem::encode_string(LABEL, pem::LineEnding::LF, &der).ok()
        };
        sealed().ok_or_else(|| Error::internal("the sealed file can't be encoded"))
    }
}

/// The recipient with this certificate: the content's key, encrypted to the certificate's.
fn recipient(certificate: &Certificate, content_key: &[u8]) -> Result<RecipientInfo, Error> {
    let name = names(certificate).into_iter().next().ok_or_else(|| {
        let reason =
            "it has no subject key identifier, and its serial number has more than 20 bytes";
        refused(certificate, reason)
    })?;
    encrypted(name, certificate, content_key).ok_or_else(|| match certificate.public_key() {
        PublicKey::Ecdsa { curve, .. } => {
            refused(certificate, &format!("its key is no point on {curve}"))
        }
        key => refused(certificate, &format!("its key is {key}")),
    })
}

fn refused(certificate: &Certificate, reason: &str) -> Error {
    let text = format!("nothing can be sealed to {}: {reason}", certificate.subject);
    Error::new(Exit::Configuration, text).help(
        "name each node's certificate once, of an RSA key of 2048 to 8192 bits or an EC key on P-256, P-384 \
         or P-521, with a subject key identifier or a serial number of 20 bytes at most",
    )
}

/// The content's key, encrypted for the recipient of this name. `None` if nothing can be encrypted to the certificate's
/// key.
fn encrypted(
    name: RecipientIdentifier,
    certificate: &Certificate,
    content_key: &[u8],
) -> Option<RecipientInfo> {
    match certificate.public_key() {
        PublicKey::Rsa { .. } => {
            let parsed = Parsed::from_der(certificate.der()).ok()?;
            let info = parsed.tbs_certificate().subject_public_key_info().to_der().ok()?;
            let key = PublicEncryptingKey::from_der(&info).ok()?;
            let key = OaepPublicEncryptingKey::new(key).ok()?;
            let mut encrypted = vec![0; key.ciphertext_size()];
            key.encrypt(&OAEP_SHA256_MGF1SHA256, content_key, &mut encrypted, None).ok()?;
            transported(name, &encrypted, Some(Any::null())).ok()
        }
        PublicKey::Ecdsa { curve, point } => {
            let algorithm = match curve {
                Curve::P256 => &ECDH_P256,
                Curve::P384 => &ECDH_P384,
                Curve::P521 => &ECDH_P521,
            };
            let ephemeral = EphemeralPrivateKey::generate(algorithm, &SystemRandom::new()).ok()?;
            let sender = ephemeral.compute_public_key().ok()?;
            let peer = UnparsedPublicKey::new(algorithm, point);
            let wrapped = |secret: &[u8]| wrap(secret, content_key).ok_or(());
            let wrapped = agree_ephemeral(ephemeral, peer, (), wrapped).ok()?;
            agreed(name, sender.as_ref(), &wrapped).ok()
        }
        PublicKey::Ed25519(_) | PublicKey::MlDsa { .. } => None,
    }
}
