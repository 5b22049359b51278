//! The structures of a sealed file. A file that is read has to be the same as what would be made here of its parts.
//!
//! The content's key is encrypted by RSAES-OAEP, or wrapped by ephemeral ECDH, with SHA-256.

use aws_lc_rs::digest::{Context, SHA256};
use aws_lc_rs::key_wrap::{AES_256, AesKek, KeyWrap as _};
use cms::authenveloped_data::AuthEnvelopedData;
use cms::cert::x509::spki::AlgorithmIdentifierOwned;
use cms::content_info::{CmsVersion, ContentInfo};
use cms::enveloped_data::{
    EncryptedContentInfo, KeyAgreeRecipientIdentifier, KeyAgreeRecipientInfo,
    KeyTransRecipientInfo, OriginatorIdentifierOrKey, OriginatorPublicKey, RecipientEncryptedKey,
    RecipientIdentifier, RecipientInfo, RecipientInfos, RecipientKeyIdentifier,
};
use const_oid::ObjectIdentifier;
use const_oid::db::{rfc5753, rfc5911, rfc5912};
use der::asn1::{BitString, OctetString};
use der::{Any, Encode as _};

/// The length of the content's key in bytes: that of an AES-256 key.
pub(super) const CONTENT_KEY_LENGTH: usize = 32;

/// The length of AES-GCM's authentication tag, in bytes.
pub(super) const TAG_LENGTH: u8 = 16;

/// How many bytes AES key wrap adds to what it wraps (RFC 3394).
const WRAP_LENGTH: usize = 8;

/// ECC-CMS-SharedInfo in DER (RFC 5753, section 7.2) for AES-256 key wrap, whose key has 256 bits.
const SHARED_INFO: &[u8] =
    b"\x30\x15\x30\x0b\x06\x09\x60\x86\x48\x01\x65\x03\x04\x01\x2d\xa2\x06\x04\x04\0\0\x01\0";

/// GCMParameters (RFC 5084, section 3.2).
#[derive(der::Sequence)]
pub(super) struct GcmParameters {
    pub(super) nonce: OctetString,
    #[asn1(default = "default_tag_length")]
    pub(super) tag_length: u8,
}

fn default_tag_length() -> u8 {
    12
}

/// RSAES-OAEP-params (RFC 8017, appendix A.2.1), without a label.
#[derive(der::Sequence)]
struct OaepParameters {
    #[asn1(context_specific = "0", tag_mode = "EXPLICIT")]
    hash: AlgorithmIdentifierOwned,
    #[asn1(context_specific = "1", tag_mode = "EXPLICIT")]
    mask: AlgorithmIdentifierOwned,
}

fn algorithm(oid: ObjectIdentifier, parameters: Option<Any>) -> AlgorithmIdentifierOwned {
    AlgorithmIdentifierOwned { oid, parameters }
}

/// The content's key, encrypted to an RSA key by OAEP with SHA-256, for the mask too. The parameters of SHA-256 are NULL, or
/// absent as openssl writes them (RFC 4055, section 2.1).
pub(super) fn transported(
    rid: RecipientIdentifier,
    encrypted: &[u8],
    of_hash: Option<Any>,
) -> der::Result<RecipientInfo> {
    let hash = algorithm(rfc5912::ID_SHA_256, of_hash);
    let mask = algorithm(rfc5912::ID_MGF_1, Some(Any::encode_from(&hash)?));
    let parameters = Any::encode_from(&OaepParameters { hash, mask })?;
    Ok(RecipientInfo::Ktri(KeyTransRecipientInfo {
        version: match rid {
            RecipientIdentifier::IssuerAndSerialNumber(_) => CmsVersion::V0,
            RecipientIdentifier::SubjectKeyIdentifier(_) => CmsVersion::V2,
        },
        rid,
        key_enc_alg: algorithm(rfc5912::ID_RSAES_OAEP, Some(parameters)),
        enc_key: OctetString::new(encrypted)?,
    }))
}

/// The content's key, wrapped for an EC key: ephemeral ECDH with X9.63's key derivation and AES-256 key wrap. The curve
/// follows from the sender's point (RFC 5753, section 7.1.2).
pub(super) fn agreed(
    name: RecipientIdentifier,
    point: &[u8],
    wrapped: &[u8],
) -> der::Result<RecipientInfo> {
    let rid = match name {
        RecipientIdentifier::IssuerAndSerialNumber(named) => {
            KeyAgreeRecipientIdentifier::IssuerAndSerialNumber(named)
        }
        RecipientIdentifier::SubjectKeyIdentifier(subject_key_identifier) => {
            let named = RecipientKeyIdentifier { subject_key_identifier, date: None, other: None };
            KeyAgreeRecipientIdentifier::RKeyId(named)
        }
    };
    let wrap = Any::encode_from(&algorithm(rfc5911::ID_AES_256_WRAP, None))?;
    Ok(RecipientInfo::Kari(KeyAgreeRecipientInfo {
        version: CmsVersion::V3,
        originator: OriginatorIdentifierOrKey::OriginatorKey(OriginatorPublicKey {
            algorithm: algorithm(rfc5912::ID_EC_PUBLIC_KEY, None),
            public_key: BitString::from_bytes(point)?,
        }),
        ukm: None,
        key_enc_alg: algorithm(rfc5753::DH_SINGLE_PASS_STD_DH_SHA_256_KDF_SCHEME, Some(wrap)),
        recipient_enc_keys: vec![RecipientEncryptedKey {
            rid,
            enc_key: OctetString::new(wrapped)?,
        }],
    }))
}

/// The DER of a file with plain data in AES-256-GCM. A shorter tag would be easier to guess.
pub(super) fn enveloped(
    recip_infos: RecipientInfos,
    nonce: &[u8],
    ciphertext: &[u8],
    tag: &[u8],
) -> der::Result<Vec<u8>> {
    let parameters = GcmParameters { nonce: OctetString::new(nonce)?, tag_length: TAG_LENGTH };
    let data = AuthEnvelopedData {
        version: CmsVersion::V0,
        originator_info: None,
        recip_infos,
        auth_encrypted_content_info: EncryptedContentInfo {
            content_type: rfc5911::ID_DATA,
            content_enc_alg: algorithm(
                rfc5911::ID_AES_256_GCM,
                Some(Any::encode_from(&parameters)?),
            ),
            encrypted_content: Some(OctetString::new(ciphertext)?),
        },
        auth_attrs: None,
        mac: OctetString::new(tag)?,
        unauth_attrs: None,
    };
    let content_type = rfc5911::ID_CT_AUTH_ENVELOPED_DATA;
    ContentInfo { content_type, content: Any::encode_from(&data)? }.to_der()
}

/// The key that wraps the content's key: ANSI X9.63's derivation (SEC 1, section 3.6.1), of which one block is enough.
fn wrapping_key(secret: &[u8]) -> Option<AesKek> {
    let mut hash = Context::new(&SHA256);
    for part in [secret, &1_u32.to_be_bytes(), SHARED_INFO] {
        hash.update(part);
    }
    AesKek::new(&AES_256, hash.finish().as_ref()).ok()
}

/// Wraps the content's key by ECDH's secret. `None` if that fails, which it doesn't with keys of these lengths.
pub(super) fn wrap(secret: &[u8], content_key: &[u8]) -> Option<Vec<u8>> {
    let mut wrapped = vec![0; content_key.len() + WRAP_LENGTH];
    wrapping_key(secret)?.wrap(content_key, &mut wrapped).ok()?;
    Some(wrapped)
}

/// The content's key that [`wrap`] has wrapped; `None` if anything is wrong with it.
pub(super) fn unwrap(secret: &[u8], wrapped: &[u8]) -> Option<Vec<u8>> {
    let mut content_key = vec![0; CONTENT_KEY_LENGTH];
    let length = wrapping_key(secret)?.unwrap(wrapped, &mut content_key).ok()?.len();
    (length == CONTENT_KEY_LENGTH).then_some(content_key)
}
