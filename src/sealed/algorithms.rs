//! How the content's key is encrypted: RSAES-OAEP, or AES key wrap with the result of an ephemeral ECDH, both with
//! SHA-256.

use aws_lc_rs::digest::{Context, SHA256};
use aws_lc_rs::key_wrap::{AES_256, AesKek, KeyWrap as _};
use cms::cert::x509::spki::AlgorithmIdentifierOwned;
use const_oid::ObjectIdentifier;
use const_oid::db::{rfc5753, rfc5911, rfc5912};
use der::Any;
use der::asn1::OctetString;

/// In bytes: AES-256.
pub(super) const CONTENT_KEY_LENGTH: usize = 32;

/// AES-GCM's authentication tag, in bytes.
pub(super) const TAG_LENGTH: u8 = 16;

/// What AES key wrap adds (RFC 3394).
const WRAP_LENGTH: usize = 8;

/// ECC-CMS-SharedInfo in DER (RFC 5753, section 7.2) for AES-256 key wrap, whose key has 256 bits.
const SHARED_INFO: &[u8] =
    b"\x30\x15\x30\x0b\x06\x09\x60\x86\x48\x01\x65\x03\x04\x01\x2d\xa2\x06\x04\x04\0\0\x01\0";

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

/// RFC 8017, appendix A.2.1, without a label.
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

/// RSAES-OAEP with SHA-256, for the mask too. The parameters of SHA-256 are NULL, or absent as openssl writes them
/// (RFC 4055, section 2.1).
pub(super) fn oaep(of_hash: Option<Any>) -> der::Result<AlgorithmIdentifierOwned> {
    let hash = algorithm(rfc5912::ID_SHA_256, of_hash);
    let mask = algorithm(rfc5912::ID_MGF_1, Some(Any::encode_from(&hash)?));
    let parameters = Any::encode_from(&OaepParameters { hash, mask })?;
    Ok(algorithm(rfc5912::ID_RSAES_OAEP, Some(parameters)))
}

/// Ephemeral ECDH with X9.63's key derivation and AES-256 key wrap.
pub(super) fn key_agreement() -> der::Result<AlgorithmIdentifierOwned> {
    let wrap = Any::encode_from(&algorithm(rfc5911::ID_AES_256_WRAP, None))?;
    Ok(algorithm(rfc5753::DH_SINGLE_PASS_STD_DH_SHA_256_KDF_SCHEME, Some(wrap)))
}

/// An EC key whose curve follows from its point (RFC 5753, section 7.1.2).
pub(super) fn ec_key() -> AlgorithmIdentifierOwned {
    algorithm(rfc5912::ID_EC_PUBLIC_KEY, None)
}

pub(super) fn gcm(nonce: &[u8]) -> der::Result<AlgorithmIdentifierOwned> {
    let parameters = GcmParameters { nonce: OctetString::new(nonce)?, tag_length: TAG_LENGTH };
    Ok(algorithm(rfc5911::ID_AES_256_GCM, Some(Any::encode_from(&parameters)?)))
}

/// The key that wraps the content's key: ANSI X9.63's derivation (SEC 1, section 3.6.1), of which one block is enough.
fn wrapping_key(secret: &[u8]) -> Option<AesKek> {
    let mut hash = Context::new(&SHA256);
    for part in [secret, &1_u32.to_be_bytes(), SHARED_INFO] {
        hash.update(part);
    }
    AesKek::new(&AES_256, hash.finish().as_ref()).ok()
}

/// `None` if that fails, which it doesn't with keys of these lengths.
pub(super) fn wrap(secret: &[u8], content_key: &[u8]) -> Option<Vec<u8>> {
    let mut wrapped = vec![0; content_key.len() + WRAP_LENGTH];
    wrapping_key(secret)?.wrap(content_key, &mut wrapped).ok()?;
    Some(wrapped)
}

/// `None` if anything is wrong with it.
pub(super) fn unwrap(secret: &[u8], wrapped: &[u8]) -> Option<Vec<u8>> {
    let mut content_key = vec![0; CONTENT_KEY_LENGTH];
    let length = wrapping_key(secret)?.unwrap(wrapped, &mut content_key).ok()?.len();
    (length == CONTENT_KEY_LENGTH).then_some(content_key)
}
