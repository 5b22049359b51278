//! EMSA-PSS (RFC 8017, section 9.1), for tokens that have the bare RSA operation alone.

#![forbid(unsafe_code)]

use sha1::Sha1;
use sha2::{Digest, Sha224, Sha256, Sha384, Sha512};

use crate::hash::Hash;

/// The longest salt in bytes that fits a modulus of this many bits; `None` where the hash alone
/// is too long.
pub fn longest_salt(hash: Hash, modulus_bits: usize) -> Option<usize> {
    encoded_length(modulus_bits).checked_sub(hash.length() + 2)
}

/// The encoded message, as long as the modulus: what an RSA key is applied to. `None` where
/// digest and salt don't fit, or the hash is not one that PSS is used with.
pub fn encode(hash: Hash, digest: &[u8], salt: &[u8], modulus_bits: usize) -> Option<Vec<u8>> {
    if digest.len() != hash.length() || salt.len() > longest_salt(hash, modulus_bits)? {
        return None;
    }
    let length = encoded_length(modulus_bits);
    let hashed = digest_of(hash, &[&[0; 8], digest, salt])?;
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
fn apply_mask(hash: Hash, seed: &[u8], block: &mut [u8]) -> Option<()> {
    for (counter, chunk) in (0_u32..).zip(block.chunks_mut(hash.length())) {
        let mask = digest_of(hash, &[seed, &counter.to_be_bytes()])?;
        for (byte, mask) in chunk.iter_mut().zip(mask) {
            *byte ^= mask;
        }
    }
    Some(())
}

fn digest_of(hash: Hash, parts: &[&[u8]]) -> Option<Vec<u8>> {
    fn digest<D: Digest>(parts: &[&[u8]]) -> Vec<u8> {
        let mut state = D::new();
        for part in parts {
            state.update(part);
        }
        state.finalize().to_vec()
    }
    Some(match hash {
        Hash::Md5Sha1 => return None,
        Hash::Sha1 => digest::<Sha1>(parts),
        Hash::Sha224 => digest::<Sha224>(parts),
        Hash::Sha256 => digest::<Sha256>(parts),
        Hash::Sha384 => digest::<Sha384>(parts),
        Hash::Sha512 => digest::<Sha512>(parts),
    })
}
