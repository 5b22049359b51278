//! A sealed file: its recipients, and its content once the token has done its part.

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use cms::authenveloped_data::AuthEnvelopedData;
use cms::content_info::{CmsVersion, ContentInfo};
use cms::enveloped_data::{
    KeyAgreeRecipientIdentifier, KeyAgreeRecipientInfo, KeyTransRecipientInfo,
    OriginatorIdentifierOrKey, RecipientIdentifier, RecipientInfo,
};
use const_oid::db::rfc5911;
use der::{Any, Decode as _, Encode as _, pem};

use super::algorithms::{GcmParameters, TAG_LENGTH, ec_key, gcm, key_agreement, oaep, unwrap};
use super::registries::Registries;
use crate::certificate::Curve;
use crate::error::{Error, Exit};

pub(super) const LABEL: &str = "CMS";

const SEAL_AGAIN: &str = "seal it with `pkcs11-external-signer seal`; openssl cms needs -outform PEM -aes-256-gcm, and for an \
                          RSA key -keyopt rsa_padding_mode:oaep -keyopt rsa_oaep_md:sha256, for an EC key -keyopt \
                          ecdh_kdf_md:sha256";

/// A sealed file that was read. Nothing of its content is known to be genuine until it is opened.
#[derive(Debug)]
pub struct SealedFile {
    /// For messages: its path.
    pub name: String,
    pub recipients: Vec<Recipient>,
    nonce: [u8; NONCE_LEN],
    /// With the tag.
    ciphertext: Vec<u8>,
}

/// Who can open the file.
#[derive(Debug)]
pub struct Recipient {
    pub name: RecipientIdentifier,
    pub key: EncryptedKey,
}

/// The content's key, as the recipient's private key has to decrypt it.
#[derive(Debug)]
pub enum EncryptedKey {
    /// RSAES-OAEP with SHA-256, whose result is the content's key.
    RsaOaep(Vec<u8>),
    /// ECDH with this point (SEC 1, uncompressed), whose result is the shared secret.
    Ecdh { curve: Curve, point: Vec<u8>, wrapped: Vec<u8> },
}

impl SealedFile {
    /// Reads a file's text; `name` is for messages.
    pub fn read(bytes: &[u8], name: &str) -> Result<Self, Error> {
        let refused = |reason| {
            Error::new(Exit::Configuration, format!("{name} is no sealed file: {reason}"))
                .help(SEAL_AGAIN)
        };
        let decoded = pem::decode_vec(bytes).ok().filter(|(label, _)| *label == LABEL);
        let (_, der) = decoded.ok_or_else(|| refused("it is not CMS in PEM"))?;
        let data = decoded_data(&der).map_err(|_| refused("its DER does not parse"))?;
        let data = data.ok_or_else(|| {
            refused("it is not AuthEnvelopedData in DER, without which changes would go unnoticed")
        })?;
        Self::of(data, name).map_err(refused)
    }

    fn of(data: AuthEnvelopedData, name: &str) -> Result<Self, &'static str> {
        let content = data.auth_encrypted_content_info;
        let has_others = data.originator_info.is_some()
            || data.auth_attrs.is_some()
            || data.unauth_attrs.is_some();
        if data.version != CmsVersion::V0 || has_others || content.content_type != rfc5911::ID_DATA
        {
            return Err("it has attributes, or another version or content than plain data");
        }
        let parameters = content.content_enc_alg.parameters.as_ref();
        let parameters: Option<GcmParameters> = parameters.and_then(|it| it.decode_as().ok());
        let nonce = parameters.and_then(|it| it.nonce.as_bytes().try_into().ok());
        // Shorter tags are easier to guess.
        let nonce = nonce.filter(|nonce: &[u8; NONCE_LEN]| {
            gcm(nonce).as_ref() == Ok(&content.content_enc_alg)
                && data.mac.as_bytes().len() == usize::from(TAG_LENGTH)
        });
        let nonce = nonce.ok_or("it is not encrypted with AES-256-GCM and a tag of 16 bytes")?;
        let ciphertext = content.encrypted_content.ok_or("its content is elsewhere")?;
        let mut recipients = Vec::new();
        for info in data.recip_infos.0.iter() {
            match info {
                RecipientInfo::Ktri(info) => recipients.push(transported(info)?),
                RecipientInfo::Kari(info) => agreed(info, &mut recipients)?,
                _ => return Err("it has a recipient without a certificate"),
            }
        }
        Ok(Self {
            name: name.to_owned(),
            recipients,
            nonce,
            ciphertext: [ciphertext.as_bytes(), data.mac.as_bytes()].concat(),
        })
    }

    /// The registries, with what the token has made of a recipient's key: the content's key, or the shared secret. Whatever
    /// is wrong with it is the same error.
    pub fn open(&self, key: &EncryptedKey, decrypted: &[u8]) -> Result<Registries, Error> {
        let content = self.content(key, decrypted).ok_or_else(|| {
            Error::new(
                Exit::Configuration,
                format!("{} is damaged, or was sealed to another key", self.name),
            )
            .help("copy the file again from where it was sealed, or seal it again")
        })?;
        Registries::from_config(&content, &format!("what is sealed in {}", self.name))
    }

    fn content(&self, key: &EncryptedKey, decrypted: &[u8]) -> Option<Vec<u8>> {
        let unwrapped;
        let key = match key {
            EncryptedKey::RsaOaep(_) => decrypted,
            EncryptedKey::Ecdh { wrapped, .. } => {
                unwrapped = unwrap(decrypted, wrapped)?;
                &unwrapped
            }
        };
        let key = LessSafeKey::new(UnboundKey::new(&AES_256_GCM, key).ok()?);
        let nonce = Nonce::assume_unique_for_key(self.nonce);
        let mut content = self.ciphertext.clone();
        let length = key.open_in_place(nonce, Aad::empty(), &mut content).ok()?.len();
        content.truncate(length);
        Some(content)
    }
}

/// `None` for other content, and for what could be encoded in another way: that could be changed without being noticed.
fn decoded_data(der: &[u8]) -> der::Result<Option<AuthEnvelopedData>> {
    let info = ContentInfo::from_der(der)?;
    if info.content_type != rfc5911::ID_CT_AUTH_ENVELOPED_DATA {
        return Ok(None);
    }
    let data: AuthEnvelopedData = info.content.decode_as()?;
    let is_canonical = info.to_der()? == der && data.to_der()? == info.content.to_der()?;
    Ok(is_canonical.then_some(data))
}

fn transported(info: &KeyTransRecipientInfo) -> Result<Recipient, &'static str> {
    let version = match info.rid {
        RecipientIdentifier::IssuerAndSerialNumber(_) => CmsVersion::V0,
        RecipientIdentifier::SubjectKeyIdentifier(_) => CmsVersion::V2,
    };
    let mut encodings = [Some(Any::null()), None].into_iter();
    let is_oaep = encodings.any(|of_hash| oaep(of_hash).as_ref() == Ok(&info.key_enc_alg));
    match info.version == version && is_oaep {
        true => Ok(Recipient {
            name: info.rid.clone(),
            key: EncryptedKey::RsaOaep(info.enc_key.as_bytes().to_owned()),
        }),
        false => Err("it is sealed to an RSA key by another method than OAEP with SHA-256"),
    }
}

fn agreed(
    info: &KeyAgreeRecipientInfo,
    recipients: &mut Vec<Recipient>,
) -> Result<(), &'static str> {
    let refused = "it is sealed to an EC key by another method than ephemeral ECDH with SHA-256 and \
                   AES-256 key wrap, on P-256, P-384 or P-521";
    let OriginatorIdentifierOrKey::OriginatorKey(sender) = &info.originator else {
        return Err(refused);
    };
    let is_ours = info.version == CmsVersion::V3
        && info.ukm.is_none()
        && sender.algorithm == ec_key()
        && key_agreement().as_ref() == Ok(&info.key_enc_alg);
    let point = sender.public_key.as_bytes().unwrap_or_default();
    let curve = match (point.first(), point.len()) {
        (Some(4), 65) if is_ours => Curve::P256,
        (Some(4), 97) if is_ours => Curve::P384,
        (Some(4), 133) if is_ours => Curve::P521,
        _ => return Err(refused),
    };
    for key in &info.recipient_enc_keys {
        let name = match &key.rid {
            KeyAgreeRecipientIdentifier::IssuerAndSerialNumber(named) => {
                RecipientIdentifier::IssuerAndSerialNumber(named.clone())
            }
            KeyAgreeRecipientIdentifier::RKeyId(id) if id.date.is_none() && id.other.is_none() => {
                RecipientIdentifier::SubjectKeyIdentifier(id.subject_key_identifier.clone())
            }
            KeyAgreeRecipientIdentifier::RKeyId(_) => return Err(refused),
        };
        let (point, wrapped) = (point.to_owned(), key.enc_key.as_bytes().to_owned());
        recipients.push(Recipient { name, key: EncryptedKey::Ecdh { curve, point, wrapped } });
    }
    Ok(())
}
