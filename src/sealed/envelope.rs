//! The CMS structure: its recipients, and its content once the token has done its part.

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use cms::authenveloped_data::AuthEnvelopedData;
use cms::cert::x509::spki::AlgorithmIdentifierOwned;
use cms::content_info::{CmsVersion, ContentInfo};
use cms::enveloped_data::{
    EnvelopedData, KeyAgreeRecipientIdentifier, KeyAgreeRecipientInfo, KeyTransRecipientInfo,
    OriginatorIdentifierOrKey, RecipientIdentifier, RecipientInfo,
};
use const_oid::ObjectIdentifier;
use const_oid::db::{rfc5911, rfc5912};
use der::asn1::{OctetString, OctetStringRef};
use der::{Decode as _, Encode as _};

use super::agreement;
use super::error::SealedError;
use super::recipient::RecipientName;
use super::registries::Registries;
use crate::certificate::Curve;
use crate::hash::Hash;

/// In bytes: AES-256.
pub(super) const CONTENT_KEY_LENGTH: usize = 32;

/// AES-GCM's authentication code, in bytes; shorter ones are easier to guess.
pub(super) const TAG_LENGTH: usize = 16;

/// No file has more: each takes a hundred bytes and an operation of somebody's token.
const MOST_RECIPIENTS: usize = 1024;

/// RFC 5084, section 3.2.
#[derive(der::Sequence)]
pub(super) struct GcmParameters {
    pub(super) nonce: OctetString,
    #[asn1(default = "default_tag_length")]
    pub(super) tag_length: u8,
}

fn default_tag_length() -> u8 {
    12
}

/// RFC 8017, appendix A.2.1.
#[derive(der::Sequence)]
pub(super) struct OaepParameters {
    #[asn1(context_specific = "0", tag_mode = "EXPLICIT", optional = "true")]
    pub(super) hash: Option<AlgorithmIdentifierOwned>,
    #[asn1(context_specific = "1", tag_mode = "EXPLICIT", optional = "true")]
    pub(super) mask: Option<AlgorithmIdentifierOwned>,
    #[asn1(context_specific = "2", tag_mode = "EXPLICIT", optional = "true")]
    pub(super) label: Option<AlgorithmIdentifierOwned>,
}

/// A sealed document whose structure was read. Nothing of its content is known to be genuine until it is opened.
#[derive(Debug)]
pub struct SealedEnvelope {
    pub recipients: Vec<Recipient>,
    nonce: [u8; NONCE_LEN],
    /// With the tag.
    ciphertext: Vec<u8>,
}

/// A key that opens the document.
#[derive(Debug)]
pub struct Recipient {
    pub name: RecipientName,
    pub lock: KeyLock,
}

/// What the recipient's private key has to be applied to.
#[derive(Debug)]
pub enum KeyLock {
    /// RSAES-OAEP, whose result is the content's key.
    Oaep {
        hash: Hash,
        /// Of the mask.
        mask_hash: Hash,
        ciphertext: Vec<u8>,
    },
    /// ECDH with this point, whose result is the shared secret.
    Ecdh {
        curve: Curve,
        /// As SEC 1 encodes it, uncompressed.
        point: Vec<u8>,
        unwrapping: Unwrapping,
    },
}

/// What makes the content's key of a shared secret.
#[derive(Debug)]
pub struct Unwrapping {
    hash: Hash,
    key_wrap: AlgorithmIdentifierOwned,
    user_info: Option<Vec<u8>>,
    wrapped: Vec<u8>,
}

/// What keeps an envelope from being read, before it is known of which file it is.
#[derive(Debug)]
pub(super) enum Unreadable {
    Cbc(String),
    Damaged(String),
    Unsupported(String),
}

impl Unreadable {
    pub(super) fn of(self, file: &str) -> SealedError {
        let file = file.to_owned();
        match self {
            Self::Cbc(cipher) => SealedError::Cbc { file, cipher },
            Self::Damaged(reason) => SealedError::Damaged { file, reason },
            Self::Unsupported(what) => SealedError::Unsupported { file, what },
        }
    }
}

impl From<der::Error> for Unreadable {
    fn from(error: der::Error) -> Self {
        Self::Damaged(format!("its DER does not parse ({error})"))
    }
}

fn unsupported<T>(what: impl Into<String>) -> Result<T, Unreadable> {
    Err(Unreadable::Unsupported(what.into()))
}

impl SealedEnvelope {
    /// Reads a ContentInfo in DER.
    pub(super) fn read(bytes: &[u8]) -> Result<Self, Unreadable> {
        if bytes.starts_with(&[0x30, 0x80]) {
            return unsupported("indefinite lengths (openssl cms writes others without -stream)");
        }
        let info = ContentInfo::from_der(bytes)?;
        if info.content_type == rfc5911::ID_ENVELOPED_DATA {
            let data: EnvelopedData = info.content.decode_as()?;
            let cipher = data.encrypted_content.content_enc_alg.oid;
            return Err(Unreadable::Cbc(cipher_name(cipher)));
        }
        if info.content_type != rfc5911::ID_CT_AUTH_ENVELOPED_DATA {
            return unsupported(format!("the content type {}", info.content_type));
        }
        let data: AuthEnvelopedData = info.content.decode_as()?;
        // What has several encodings could be changed without being noticed.
        if info.to_der()? != bytes || data.to_der()? != info.content.to_der()? {
            return Err(Unreadable::Damaged("it is not in DER".to_owned()));
        }
        if data.version != CmsVersion::V0 {
            return unsupported("an unknown version");
        }
        if data.originator_info.is_some()
            || data.auth_attrs.is_some()
            || data.unauth_attrs.is_some()
        {
            return unsupported("attributes");
        }
        let content = data.auth_encrypted_content_info;
        if content.content_type != rfc5911::ID_DATA {
            return unsupported(format!("content of type {}", content.content_type));
        }
        let cipher = content.content_enc_alg;
        if cipher.oid != rfc5911::ID_AES_256_GCM {
            return unsupported(format!("the cipher {}", cipher_name(cipher.oid)));
        }
        let Some(parameters) = cipher.parameters else {
            return unsupported("a cipher without parameters");
        };
        let parameters: GcmParameters = parameters.decode_as()?;
        let Ok(nonce) = parameters.nonce.as_bytes().try_into() else {
            return unsupported("a nonce that is not of 12 bytes");
        };
        let tag = data.mac.as_bytes();
        if usize::from(parameters.tag_length) != TAG_LENGTH || tag.len() != TAG_LENGTH {
            return unsupported("an authentication code that is not of 16 bytes");
        }
        let Some(ciphertext) = content.encrypted_content else {
            return unsupported("its content elsewhere");
        };
        let infos = data.recip_infos.0;
        if infos.len() > MOST_RECIPIENTS {
            return unsupported("more than 1024 recipients");
        }
        let mut recipients = Vec::new();
        for info in infos.iter() {
            match info {
                RecipientInfo::Ktri(info) => recipients.push(transported(info)?),
                RecipientInfo::Kari(info) => agreed(info, &mut recipients)?,
                RecipientInfo::Kekri(_) | RecipientInfo::Pwri(_) | RecipientInfo::Ori(_) => {
                    return unsupported("a recipient without a certificate");
                }
            }
        }
        Ok(Self { recipients, nonce, ciphertext: [ciphertext.as_bytes(), tag].concat() })
    }

    /// The registries, with what the token has made of a recipient's lock: the content's key, or the shared secret. Whatever
    /// is wrong with it is the same error.
    ///
    /// # Errors
    /// [`SealedError::NotOpened`], and [`SealedError::NotSealed`] if what is sealed is no `config.json`.
    pub fn open(
        &self,
        lock: &KeyLock,
        unlocked: &[u8],
        file: &str,
    ) -> Result<Registries, SealedError> {
        let not_opened = || SealedError::NotOpened { file: file.to_owned() };
        let content = self.content(lock, unlocked).ok_or_else(not_opened)?;
        Registries::from_config(&content).map_err(|error| SealedError::NotSealed {
            file: file.to_owned(),
            reason: format!("what is sealed in it is no usable config.json: {error}"),
        })
    }

    fn content(&self, lock: &KeyLock, unlocked: &[u8]) -> Option<Vec<u8>> {
        let unwrapped;
        let key = match lock {
            KeyLock::Oaep { .. } => unlocked,
            KeyLock::Ecdh { unwrapping, .. } => {
                unwrapped = agreement::unwrap(
                    unlocked,
                    unwrapping.hash,
                    &unwrapping.key_wrap,
                    unwrapping.user_info.as_deref(),
                    &unwrapping.wrapped,
                )?;
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

fn transported(info: &KeyTransRecipientInfo) -> Result<Recipient, Unreadable> {
    let (name, version) = match &info.rid {
        RecipientIdentifier::IssuerAndSerialNumber(named) => {
            (RecipientName::of_certificate(named)?, CmsVersion::V0)
        }
        RecipientIdentifier::SubjectKeyIdentifier(identifier) => {
            (RecipientName::of_identifier(identifier), CmsVersion::V2)
        }
    };
    if info.version != version {
        return unsupported("an unknown version of a recipient");
    }
    if info.key_enc_alg.oid == rfc5912::RSA_ENCRYPTION {
        return unsupported(
            "RSA encryption without OAEP (openssl cms takes -keyopt rsa_padding_mode:oaep)",
        );
    }
    if info.key_enc_alg.oid != rfc5912::ID_RSAES_OAEP {
        return unsupported(format!("the key encryption {}", info.key_enc_alg.oid));
    }
    let Some(parameters) = &info.key_enc_alg.parameters else {
        return unsupported("RSAES-OAEP without parameters");
    };
    let parameters: OaepParameters = parameters.decode_as()?;
    // Without one it is SHA-1, also for the mask.
    let hash = parameters.hash.map_or(Ok(Hash::Sha1), |it| hash_of(&it))?;
    let mask_hash = match parameters.mask {
        None => Hash::Sha1,
        Some(mask) if mask.oid == rfc5912::ID_MGF_1 => match mask.parameters {
            Some(inner) => hash_of(&inner.decode_as()?)?,
            None => return unsupported("a mask without a hash"),
        },
        Some(mask) => return unsupported(format!("the mask function {}", mask.oid)),
    };
    if let Some(label) = parameters.label {
        let empty = OctetStringRef::new(&[])?;
        let is_empty = label.oid == rfc5912::ID_P_SPECIFIED
            && label.parameters.as_ref().is_some_and(|it| {
                it.decode_as::<OctetString>().is_ok_and(|it| it.as_bytes() == empty.as_bytes())
            });
        if !is_empty {
            return unsupported("a label of RSAES-OAEP");
        }
    }
    Ok(Recipient {
        name,
        lock: KeyLock::Oaep { hash, mask_hash, ciphertext: info.enc_key.as_bytes().to_owned() },
    })
}

fn agreed(info: &KeyAgreeRecipientInfo, recipients: &mut Vec<Recipient>) -> Result<(), Unreadable> {
    if info.version != CmsVersion::V3 {
        return unsupported("an unknown version of a recipient");
    }
    let OriginatorIdentifierOrKey::OriginatorKey(originator) = &info.originator else {
        return unsupported("a sender with a certificate");
    };
    if originator.algorithm.oid != rfc5912::ID_EC_PUBLIC_KEY {
        return unsupported(format!("the key agreement {}", originator.algorithm.oid));
    }
    let point = originator.public_key.as_bytes().unwrap_or_default();
    let curve = match (point.first(), point.len()) {
        (Some(4), 65) => Curve::P256,
        (Some(4), 97) => Curve::P384,
        (Some(4), 133) => Curve::P521,
        _ => return unsupported("a curve other than P-256, P-384 and P-521"),
    };
    // RFC 5753 has the curve follow from the recipient's key.
    if let Some(named) = &originator.algorithm.parameters {
        let is_same = Curve::from_parameters(&named.to_der()?) == Some(curve);
        if !is_same && !named.is_null() {
            return unsupported("a sender's key on another curve");
        }
    }
    let Some(hash) = agreement::hash(info.key_enc_alg.oid) else {
        return unsupported(format!("the key agreement {}", info.key_enc_alg.oid));
    };
    let Some(key_wrap) = &info.key_enc_alg.parameters else {
        return unsupported("a key agreement without key wrap");
    };
    let key_wrap: AlgorithmIdentifierOwned = key_wrap.decode_as()?;
    if key_wrap.oid != rfc5911::ID_AES_256_WRAP {
        return unsupported(format!("the key wrap {}", key_wrap.oid));
    }
    for key in &info.recipient_enc_keys {
        let name = match &key.rid {
            KeyAgreeRecipientIdentifier::IssuerAndSerialNumber(named) => {
                RecipientName::of_certificate(named)?
            }
            KeyAgreeRecipientIdentifier::RKeyId(identifier) => {
                if identifier.date.is_some() || identifier.other.is_some() {
                    return unsupported("a recipient's key with a date");
                }
                RecipientName::of_identifier(&identifier.subject_key_identifier)
            }
        };
        recipients.push(Recipient {
            name,
            lock: KeyLock::Ecdh {
                curve,
                point: point.to_owned(),
                unwrapping: Unwrapping {
                    hash,
                    key_wrap: key_wrap.clone(),
                    user_info: info.ukm.as_ref().map(|it| it.as_bytes().to_owned()),
                    wrapped: key.enc_key.as_bytes().to_owned(),
                },
            },
        });
    }
    Ok(())
}

fn hash_of(algorithm: &AlgorithmIdentifierOwned) -> Result<Hash, Unreadable> {
    if algorithm.parameters.as_ref().is_some_and(|it| !it.is_null()) {
        return unsupported("a hash with parameters");
    }
    Ok(match algorithm.oid {
        rfc5912::ID_SHA_1 => Hash::Sha1,
        rfc5912::ID_SHA_224 => Hash::Sha224,
        rfc5912::ID_SHA_256 => Hash::Sha256,
        rfc5912::ID_SHA_384 => Hash::Sha384,
        rfc5912::ID_SHA_512 => Hash::Sha512,
        other => return unsupported(format!("the hash {other}")),
    })
}

fn cipher_name(cipher: ObjectIdentifier) -> String {
    let name = match cipher {
        rfc5911::ID_AES_128_CBC => "AES-128-CBC",
        rfc5911::ID_AES_192_CBC => "AES-192-CBC",
        rfc5911::ID_AES_256_CBC => "AES-256-CBC",
        rfc5911::ID_AES_128_GCM => "AES-128-GCM",
        rfc5911::ID_AES_192_GCM => "AES-192-GCM",
        other => return other.to_string(),
    };
    name.to_owned()
}

impl KeyLock {
    /// For the list of recipients, such as `RSA-OAEP (SHA-256)`.
    pub fn describe(&self) -> String {
        match self {
            Self::Oaep { hash, .. } => format!("RSA-OAEP ({hash})"),
            Self::Ecdh { curve, .. } => format!("ECDH on {curve}"),
        }
    }
}
