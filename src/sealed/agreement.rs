//! The key that wraps the content's key for an EC recipient: from the shared secret, as RFC 5753 has it.

use aws_lc_rs::digest;
use aws_lc_rs::key_wrap::{AES_256, AesKek, KeyWrap as _};
use cms::cert::x509::spki::AlgorithmIdentifierOwned;
use const_oid::ObjectIdentifier;
use const_oid::db::{rfc5753, rfc5911};
use der::Encode as _;
use der::asn1::OctetStringRef;

use super::envelope::CONTENT_KEY_LENGTH;
use crate::hash::Hash;

/// In bytes: AES-256.
const WRAPPING_KEY_LENGTH: usize = 32;

/// What AES key wrap adds (RFC 3394).
const WRAP_LENGTH: usize = 8;

/// RFC 5753, section 7.2.
#[derive(der::Sequence)]
struct SharedInfo<'a> {
    key_info: AlgorithmIdentifierOwned,
    #[asn1(context_specific = "0", tag_mode = "EXPLICIT", optional = "true")]
    user_info: Option<&'a OctetStringRef>,
    #[asn1(context_specific = "2", tag_mode = "EXPLICIT")]
    public_info: &'a OctetStringRef,
}

/// The hash of a scheme dhSinglePass-stdDH-…kdf-scheme.
pub(super) fn hash(scheme: ObjectIdentifier) -> Option<Hash> {
    Some(match scheme {
        rfc5753::DH_SINGLE_PASS_STD_DH_SHA_1_KDF_SCHEME => Hash::Sha1,
        rfc5753::DH_SINGLE_PASS_STD_DH_SHA_224_KDF_SCHEME => Hash::Sha224,
        rfc5753::DH_SINGLE_PASS_STD_DH_SHA_256_KDF_SCHEME => Hash::Sha256,
        rfc5753::DH_SINGLE_PASS_STD_DH_SHA_384_KDF_SCHEME => Hash::Sha384,
        rfc5753::DH_SINGLE_PASS_STD_DH_SHA_512_KDF_SCHEME => Hash::Sha512,
        _ => return None,
    })
}

/// The algorithm that [`wrap`] uses, as it stands in the file and in what the key is derived from.
pub(super) fn key_wrap() -> AlgorithmIdentifierOwned {
    AlgorithmIdentifierOwned { oid: rfc5911::ID_AES_256_WRAP, parameters: None }
}

/// Wraps the content's key; `None` if that fails, which it doesn't with keys of these lengths.
pub(super) fn wrap(secret: &[u8], content_key: &[u8]) -> Option<Vec<u8>> {
    let key = wrapping_key(secret, Hash::Sha256, &key_wrap(), None)?;
    let mut wrapped = vec![0; content_key.len() + WRAP_LENGTH];
    let key = AesKek::new(&AES_256, &key).ok()?;
    key.wrap(content_key, &mut wrapped).ok()?;
    Some(wrapped)
}

/// Takes the content's key out; `None` if anything is wrong with it.
pub(super) fn unwrap(
    secret: &[u8],
    hash: Hash,
    key_wrap: &AlgorithmIdentifierOwned,
    user_info: Option<&[u8]>,
    wrapped: &[u8],
) -> Option<Vec<u8>> {
    let key = wrapping_key(secret, hash, key_wrap, user_info)?;
    let mut content_key = vec![0; CONTENT_KEY_LENGTH];
    let key = AesKek::new(&AES_256, &key).ok()?;
    let length = key.unwrap(wrapped, &mut content_key).ok()?.len();
    (length == CONTENT_KEY_LENGTH).then_some(content_key)
}

/// ANSI X9.63's key derivation (SEC 1, section 3.6.1).
fn wrapping_key(
    secret: &[u8],
    hash: Hash,
    key_wrap: &AlgorithmIdentifierOwned,
    user_info: Option<&[u8]>,
) -> Option<Vec<u8>> {
    let bits = u32::try_from(WRAPPING_KEY_LENGTH * 8).ok()?.to_be_bytes();
    let info = SharedInfo {
        key_info: key_wrap.clone(),
        user_info: user_info.map(OctetStringRef::new).transpose().ok()?,
        public_info: OctetStringRef::new(&bits).ok()?,
    };
    let info = info.to_der().ok()?;
    let algorithm = match hash {
        Hash::Sha1 => &digest::SHA1_FOR_LEGACY_USE_ONLY,
        Hash::Sha224 => &digest::SHA224,
        Hash::Sha256 => &digest::SHA256,
        Hash::Sha384 => &digest::SHA384,
        Hash::Sha512 => &digest::SHA512,
        Hash::Md5Sha1 => return None,
    };
    let mut key = Vec::new();
    for counter in 1_u32.. {
        let mut block = digest::Context::new(algorithm);
        block.update(secret);
        block.update(&counter.to_be_bytes());
        block.update(&info);
        key.extend_from_slice(block.finish().as_ref());
        if key.len() >= WRAPPING_KEY_LENGTH {
            break;
        }
    }
    key.truncate(WRAPPING_KEY_LENGTH);
    Some(key)
}
