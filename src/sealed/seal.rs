//! Sealing: one random key for the content, and that key for each recipient.

use aws_lc_rs::aead::{AES_256_GCM, Aad, RandomizedNonceKey};
use aws_lc_rs::agreement::{
    Algorithm, ECDH_P256, ECDH_P384, ECDH_P521, EphemeralPrivateKey, UnparsedPublicKey,
    agree_ephemeral,
};
use aws_lc_rs::rand::{SystemRandom, fill};
use aws_lc_rs::rsa::{OAEP_SHA256_MGF1SHA256, OaepPublicEncryptingKey, PublicEncryptingKey};
use cms::authenveloped_data::AuthEnvelopedData;
use cms::cert::x509::spki::AlgorithmIdentifierOwned;
use cms::content_info::{CmsVersion, ContentInfo};
use cms::enveloped_data::{
    EncryptedContentInfo, KeyAgreeRecipientIdentifier, KeyAgreeRecipientInfo,
    KeyTransRecipientInfo, OriginatorIdentifierOrKey, OriginatorPublicKey, RecipientEncryptedKey,
    RecipientIdentifier, RecipientInfo, RecipientInfos, RecipientKeyIdentifier,
};
use const_oid::db::{rfc5753, rfc5911, rfc5912};
use der::asn1::{BitString, OctetString};
use der::{Any, Encode as _};
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::agreement::{key_wrap, wrap};
use super::envelope::{CONTENT_KEY_LENGTH, GcmParameters, OaepParameters, TAG_LENGTH};
use super::error::SealedError;
use super::file::written;
use super::recipient::{RecipientName, preferred_name};
use super::registries::Registries;
use super::registry::Registry;
use crate::certificate::{Certificate, Curve, PublicKey};

/// The public key of a recipient.
pub struct SealingKey {
    /// For messages: the certificate's subject.
    pub subject: String,
    name: RecipientName,
    key: RecipientKey,
}

enum RecipientKey {
    Rsa(OaepPublicEncryptingKey),
    Ec(&'static Algorithm, Vec<u8>),
}

impl SealingKey {
    /// # Errors
    /// Nothing can be sealed to the certificate's key.
    pub fn of(certificate: &Certificate) -> Result<Self, SealedError> {
        let refused = |reason: String| SealedError::Certificate {
            certificate: certificate.subject.clone(),
            reason,
        };
        let (_, parsed) = X509Certificate::from_der(certificate.der())
            .map_err(|_| refused("its DER does not parse".to_owned()))?;
        let key = match certificate.public_key() {
            PublicKey::Rsa { .. } => {
                let key = PublicEncryptingKey::from_der(parsed.public_key().raw);
                let key = key.ok().and_then(|it| OaepPublicEncryptingKey::new(it).ok());
                let kind = certificate.public_key().to_string();
                RecipientKey::Rsa(key.ok_or_else(|| refused(format!("its key is {kind}")))?)
            }
            PublicKey::Ecdsa { curve, point } => {
                let algorithm = match curve {
                    Curve::P256 => &ECDH_P256,
                    Curve::P384 => &ECDH_P384,
                    Curve::P521 => &ECDH_P521,
                };
                RecipientKey::Ec(algorithm, point.clone())
            }
            PublicKey::Ed25519(_) => return Err(refused("Ed25519 only signs".to_owned())),
        };
        Ok(Self { subject: certificate.subject.clone(), name: preferred_name(&parsed), key })
    }
}

/// Seals the registries to all of these keys: the text of the file.
///
/// # Errors
/// There is no key, or one doesn't work.
pub fn seal(registries: &Registries, keys: &[SealingKey]) -> Result<String, SealedError> {
    if keys.is_empty() {
        return Err(SealedError::NoRecipient);
    }
    // On the heap, which is wiped.
    let mut content_key = vec![0; CONTENT_KEY_LENGTH];
    fill(&mut content_key).map_err(|_| SealedError::SealingFailed("the content's key"))?;
    let mut recipients = Vec::new();
    for key in keys {
        let info = key.info(&content_key);
        recipients.push(info.ok_or_else(|| SealedError::Certificate {
            certificate: key.subject.clone(),
            reason: "its key is not valid".to_owned(),
        })?);
    }
    let names: Vec<Registry> = registries.logins().iter().map(|it| it.registry.clone()).collect();
    let der = encrypted(&content_key, registries.to_config().into_bytes())
        .and_then(|content| document(recipients, content).ok())
        .ok_or(SealedError::SealingFailed("the content can't be encoded"))?;
    Ok(written(Some(&names), &der))
}

/// Nonce, ciphertext and tag.
type Encrypted = (Vec<u8>, Vec<u8>, Vec<u8>);

fn encrypted(key: &[u8], mut content: Vec<u8>) -> Option<Encrypted> {
    let key = RandomizedNonceKey::new(&AES_256_GCM, key).ok()?;
    let nonce = key.seal_in_place_append_tag(Aad::empty(), &mut content).ok()?;
    let tag = content.split_off(content.len().checked_sub(TAG_LENGTH)?);
    Some((nonce.as_ref().to_vec(), content, tag))
}

fn document(
    recipients: Vec<RecipientInfo>,
    (nonce, ciphertext, tag): Encrypted,
) -> der::Result<Vec<u8>> {
    let parameters = GcmParameters { nonce: OctetString::new(nonce)?, tag_length: 16 };
    let data = AuthEnvelopedData {
        version: CmsVersion::V0,
        originator_info: None,
        recip_infos: RecipientInfos::try_from(recipients)?,
        auth_encrypted_content_info: EncryptedContentInfo {
            content_type: rfc5911::ID_DATA,
            content_enc_alg: AlgorithmIdentifierOwned {
                oid: rfc5911::ID_AES_256_GCM,
                parameters: Some(Any::encode_from(&parameters)?),
            },
            encrypted_content: Some(OctetString::new(ciphertext)?),
        },
        auth_attrs: None,
        mac: OctetString::new(tag)?,
        unauth_attrs: None,
    };
    ContentInfo {
        content_type: rfc5911::ID_CT_AUTH_ENVELOPED_DATA,
        content: Any::encode_from(&data)?,
    }
    .to_der()
}

impl SealingKey {
    /// `None` if the key isn't valid.
    fn info(&self, content_key: &[u8]) -> Option<RecipientInfo> {
        match &self.key {
            RecipientKey::Rsa(key) => self.transported(key, content_key),
            RecipientKey::Ec(algorithm, point) => self.agreed(algorithm, point, content_key),
        }
    }

    fn transported(
        &self,
        key: &OaepPublicEncryptingKey,
        content_key: &[u8],
    ) -> Option<RecipientInfo> {
        let mut encrypted = vec![0; key.ciphertext_size()];
        let algorithm = &OAEP_SHA256_MGF1SHA256;
        let length = key.encrypt(algorithm, content_key, &mut encrypted, None).ok()?.len();
        encrypted.truncate(length);
        let (version, rid) = match &self.name {
            RecipientName::Key(identifier) => (
                CmsVersion::V2,
                RecipientIdentifier::SubjectKeyIdentifier(
                    RecipientName::identifier(identifier).ok()?,
                ),
            ),
            RecipientName::Certificate { issuer, serial_number } => (
                CmsVersion::V0,
                RecipientIdentifier::IssuerAndSerialNumber(
                    RecipientName::issuer_and_serial(issuer, serial_number).ok()?,
                ),
            ),
        };
        Some(RecipientInfo::Ktri(KeyTransRecipientInfo {
            version,
            rid,
            key_enc_alg: oaep().ok()?,
            enc_key: OctetString::new(encrypted).ok()?,
        }))
    }

    fn agreed(
        &self,
        algorithm: &'static Algorithm,
        point: &[u8],
        content_key: &[u8],
    ) -> Option<RecipientInfo> {
        let ephemeral = EphemeralPrivateKey::generate(algorithm, &SystemRandom::new()).ok()?;
        let own_point = ephemeral.compute_public_key().ok()?;
        let peer = UnparsedPublicKey::new(algorithm, point);
        let wrapped =
            agree_ephemeral(ephemeral, peer, (), |secret| wrap(secret, content_key).ok_or(()));
        let rid = match &self.name {
            RecipientName::Key(identifier) => {
                KeyAgreeRecipientIdentifier::RKeyId(RecipientKeyIdentifier {
                    subject_key_identifier: RecipientName::identifier(identifier).ok()?,
                    date: None,
                    other: None,
                })
            }
            RecipientName::Certificate { issuer, serial_number } => {
                KeyAgreeRecipientIdentifier::IssuerAndSerialNumber(
                    RecipientName::issuer_and_serial(issuer, serial_number).ok()?,
                )
            }
        };
        Some(RecipientInfo::Kari(KeyAgreeRecipientInfo {
            version: CmsVersion::V3,
            originator: OriginatorIdentifierOrKey::OriginatorKey(OriginatorPublicKey {
                algorithm: AlgorithmIdentifierOwned {
                    oid: rfc5912::ID_EC_PUBLIC_KEY,
                    parameters: None,
                },
                public_key: BitString::from_bytes(own_point.as_ref()).ok()?,
            }),
            ukm: None,
            key_enc_alg: AlgorithmIdentifierOwned {
                oid: rfc5753::DH_SINGLE_PASS_STD_DH_SHA_256_KDF_SCHEME,
                parameters: Some(Any::encode_from(&key_wrap()).ok()?),
            },
            recipient_enc_keys: vec![RecipientEncryptedKey {
                rid,
                enc_key: OctetString::new(wrapped.ok()?).ok()?,
            }],
        }))
    }
}

/// RSAES-OAEP with SHA-256, for the mask too.
fn oaep() -> der::Result<AlgorithmIdentifierOwned> {
    let sha256 =
        || AlgorithmIdentifierOwned { oid: rfc5912::ID_SHA_256, parameters: Some(Any::null()) };
    let parameters = OaepParameters {
        hash: Some(sha256()),
        mask: Some(AlgorithmIdentifierOwned {
            oid: rfc5912::ID_MGF_1,
            parameters: Some(Any::encode_from(&sha256())?),
        }),
        label: None,
    };
    Ok(AlgorithmIdentifierOwned {
        oid: rfc5912::ID_RSAES_OAEP,
        parameters: Some(Any::encode_from(&parameters)?),
    })
}
