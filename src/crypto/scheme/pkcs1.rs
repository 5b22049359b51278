//! EMSA-PKCS1-v1_5 (RFC 8017, section 9.2), also for tokens that only have the bare RSA operation.

use rsa::pkcs1v15::Pkcs1v15Sign;
use sha1::Sha1;
use sha2::{Sha224, Sha256, Sha384, Sha512};

use protocol::hash::Hash;

/// The length of the shortest padding in bytes: 0x00 0x01, at least eight 0xff, 0x00.
const SHORTEST_PADDING: usize = 11;

/// The DER of DigestInfo around a digest (RFC 8017, section 9.2, note 1). MD5SHA1 has none: TLS 1.1 signs the bare
/// digests (RFC 2246, section 7.4.3).
pub fn digest_info(hash: Hash, digest: &[u8]) -> Vec<u8> {
    let prefix = match hash {
        Hash::Md5Sha1 => return digest.to_vec(),
        Hash::Sha1 => Pkcs1v15Sign::new::<Sha1>().prefix,
        Hash::Sha224 => Pkcs1v15Sign::new::<Sha224>().prefix,
        Hash::Sha256 => Pkcs1v15Sign::new::<Sha256>().prefix,
        Hash::Sha384 => Pkcs1v15Sign::new::<Sha384>().prefix,
        Hash::Sha512 => Pkcs1v15Sign::new::<Sha512>().prefix,
    };
    [&prefix, digest].concat()
}

/// The block that an RSA key is applied to; `None` if the message is too long for the modulus.
pub fn pad(message: &[u8], modulus_length: usize) -> Option<Vec<u8>> {
    let ones = modulus_length.checked_sub(message.len() + SHORTEST_PADDING)? + 8;
    let mut block = Vec::with_capacity(modulus_length);
    block.extend([0, 1]);
    block.resize(2 + ones, 0xff);
    block.push(0);
    block.extend(message);
    Some(block)
}

#[cfg(test)]
mod tests {
    use super::*;
    use messages::printable::hex;

    /// RFC 8017, section 9.2, note 1.
    #[test]
    fn prefixes_are_those_of_the_rfc() {
        for (hash, expected) in [
            (Hash::Md5Sha1, ""),
            (Hash::Sha1, "3021300906052b0e03021a05000414"),
            (Hash::Sha224, "302d300d06096086480165030402040500041c"),
            (Hash::Sha256, "3031300d060960864801650304020105000420"),
            (Hash::Sha384, "3041300d060960864801650304020205000430"),
            (Hash::Sha512, "3051300d060960864801650304020305000440"),
        ] {
            let digest = vec![0xab; hash.length()];
            assert_eq!(hex(&digest_info(hash, &digest)), expected.to_owned() + &hex(&digest));
        }
    }

    #[test]
    fn padding_fills_the_modulus() {
        assert_eq!(hex(&pad(&[0xaa, 0xbb], 14).unwrap()), "0001ffffffffffffffffff00aabb");
        assert_eq!(hex(&pad(&[0xaa], 12).unwrap()), "0001ffffffffffffffff00aa");
        assert_eq!(pad(&[0xaa, 0xbb], 12), None);
        assert_eq!(pad(&[], 10), None);
        assert_eq!(pad(&[0; 51], 256).unwrap().len(), 256);
    }
}
