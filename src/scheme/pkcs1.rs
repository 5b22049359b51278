//! EMSA-PKCS1-v1_5 (RFC 8017, section 9.2): the DigestInfo, and the padding for tokens that
//! have the bare RSA operation alone.

#![forbid(unsafe_code)]

use crate::hash::Hash;

/// 0x00 0x01, at least eight 0xff, 0x00.
const SHORTEST_PADDING: usize = 11;

/// DER of DigestInfo around a digest (RFC 8017, section 9.2, note 1). MD5SHA1 has none: TLS 1.1
/// signs the bare digests (RFC 2246, section 7.4.3).
pub fn digest_info(hash: Hash, digest: &[u8]) -> Vec<u8> {
    [prefix(hash), digest].concat()
}

/// The block an RSA key is applied to; `None` where the message is too long for the modulus.
pub fn pad(message: &[u8], modulus_length: usize) -> Option<Vec<u8>> {
    let ones = modulus_length.checked_sub(message.len() + SHORTEST_PADDING)? + 8;
    let mut block = Vec::with_capacity(modulus_length);
    block.extend([0, 1]);
    block.resize(2 + ones, 0xff);
    block.push(0);
    block.extend(message);
    Some(block)
}

fn prefix(hash: Hash) -> &'static [u8] {
    const SHA1: &[u8] = &[
        0x30, 0x21, 0x30, 0x09, 0x06, 0x05, 0x2b, 0x0e, 0x03, 0x02, 0x1a, 0x05, 0x00, 0x04, 0x14,
    ];
    /// SHA-2's prefixes differ in the last arc of the object identifier and in two lengths.
    const fn sha2(arc: u8, length: u8) -> [u8; 19] {
        [
            0x30,
            0x11 + length,
            0x30,
            0x0d,
            0x06,
            0x09,
            0x60,
            0x86,
            0x48,
            0x01,
            0x65,
            0x03,
            0x04,
            0x02,
            arc,
            0x05,
            0x00,
            0x04,
            length,
        ]
    }
    const SHA224: &[u8] = &sha2(4, 28);
    const SHA256: &[u8] = &sha2(1, 32);
    const SHA384: &[u8] = &sha2(2, 48);
    const SHA512: &[u8] = &sha2(3, 64);
    match hash {
        Hash::Md5Sha1 => &[],
        Hash::Sha1 => SHA1,
        Hash::Sha224 => SHA224,
        Hash::Sha256 => SHA256,
        Hash::Sha384 => SHA384,
        Hash::Sha512 => SHA512,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::printable::hex;

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
            assert_eq!(
                hex(&digest_info(hash, &digest)),
                expected.to_owned() + &hex(&digest)
            );
        }
    }

    #[test]
    fn padding_fills_the_modulus() {
        assert_eq!(
            hex(&pad(&[0xaa, 0xbb], 14).unwrap()),
            "0001ffffffffffffffffff00aabb"
        );
        assert_eq!(hex(&pad(&[0xaa], 12).unwrap()), "0001ffffffffffffffff00aa");
        assert_eq!(pad(&[0xaa, 0xbb], 12), None);
        assert_eq!(pad(&[], 10), None);
        assert_eq!(pad(&[0; 51], 256).unwrap().len(), 256);
    }
}
