//! The scheme that a sign request asks for. It also depends on the key's type.

use super::{Scheme, pss};
use crate::certificate::PublicKey;
use messages::error::Error;
use protocol::hash::Hash;
use protocol::{SaltLength, SignerOptions, refused};

/// The scheme that these options ask for with this key. An error if the key can't make one. The salt's length is kept
/// as far as the key has room for it.
pub fn requested(options: &SignerOptions, key: &PublicKey) -> Result<Scheme, Error> {
    let contradiction = |wanted: &str| {
        Err(refused(
            format!("{wanted} can't be made with the certificate's {key} key"),
            "check that the client uses this key's certificate: Ed25519 and ML-DSA keys take crypto.Hash 0, RSA keys any other",
        ))
    };
    match (key, *options) {
        (PublicKey::Rsa { .. }, SignerOptions::Pss { hash, salt }) => rsa_pss(hash, salt, key),
        (PublicKey::Rsa { .. }, SignerOptions::Hashed(hash)) => {
            Scheme::rsa_pkcs1(hash, key).ok_or_else(|| too_short(hash, key))
        }
        (PublicKey::Rsa { .. }, SignerOptions::Unhashed) => {
            contradiction("a signature over an unhashed message")
        }
        // TLS 1.2 chooses the hash independently of the curve.
        (PublicKey::Ecdsa { curve, .. }, SignerOptions::Hashed(_) | SignerOptions::Unhashed) => {
            Ok(Scheme::Ecdsa { curve: *curve })
        }
        (PublicKey::Ed25519(_), SignerOptions::Unhashed) => Ok(Scheme::Ed25519),
        (PublicKey::MlDsa { set, .. }, SignerOptions::Unhashed) => Ok(Scheme::MlDsa { set: *set }),
        (PublicKey::Ed25519(_) | PublicKey::MlDsa { .. }, SignerOptions::Hashed(hash)) => {
            contradiction(&format!("a signature over a {hash} digest"))
        }
        (
            PublicKey::Ecdsa { .. } | PublicKey::Ed25519(_) | PublicKey::MlDsa { .. },
            SignerOptions::Pss { .. },
        ) => contradiction("an RSA-PSS signature"),
    }
}

fn rsa_pss(hash: Hash, salt: SaltLength, key: &PublicKey) -> Result<Scheme, Error> {
    let longest =
        pss::longest_salt(hash, key.modulus_bits()).ok_or_else(|| too_short(hash, key))?;
    let salt = match salt {
        SaltLength::EqualsHash => hash.length(),
        SaltLength::Exactly(bytes) => bytes,
        SaltLength::Longest => longest,
    };
    Scheme::rsa_pss(hash, salt, key).ok_or_else(|| {
        let what = format!(
            "SaltLength {salt} is too long for the certificate's {key} key with {hash}: at most {longest} fit"
        );
        refused(what, "use a shorter hash or salt, or a longer key")
    })
}

fn too_short(hash: Hash, key: &PublicKey) -> Error {
    let what = format!("the certificate's {key} key is too short for a signature with {hash}");
    refused(what, "use a shorter hash or salt, or a longer key")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rsa(bits: usize) -> PublicKey {
        let mut modulus = vec![0xff; bits.div_ceil(8)];
        if !bits.is_multiple_of(8) {
            modulus[0] = (1 << (bits % 8)) - 1;
        }
        PublicKey::Rsa { modulus, exponent: vec![1, 0, 1] }
    }

    fn pss(hash: Hash, salt: SaltLength, bits: usize) -> Result<Scheme, Error> {
        requested(&SignerOptions::Pss { hash, salt }, &rsa(bits))
    }

    #[test]
    fn salt_lengths_are_those_of_go() {
        use SaltLength::{EqualsHash, Exactly, Longest};
        for (hash, salt, bits, expected) in [
            (Hash::Sha256, EqualsHash, 2048, 32),
            (Hash::Sha256, Longest, 2048, 222),
            (Hash::Sha512, EqualsHash, 4096, 64),
            // One bit above a whole number of bytes: the encoded message is a byte shorter.
            (Hash::Sha256, Longest, 2049, 222),
            (Hash::Sha256, Longest, 2047, 222),
            (Hash::Sha1, Exactly(1), 1024, 1),
            (Hash::Sha256, Exactly(222), 2048, 222),
        ] {
            assert_eq!(pss(hash, salt, bits).unwrap(), Scheme::RsaPss { hash, salt: expected });
        }
    }

    #[test]
    fn a_salt_that_does_not_fit_is_refused() {
        for (salt, bits) in [
            (SaltLength::Exactly(223), 2048),
            (SaltLength::Exactly(usize::MAX), 2048),
            (SaltLength::Exactly(223), 2049),
        ] {
            let refused = pss(Hash::Sha256, salt, bits);
            assert!(refused.unwrap_err().to_string().ends_with("at most 222 fit"));
        }
        // 128 bytes hold a SHA-512 digest and 62 bytes of salt, but not 64.
        let refused = pss(Hash::Sha512, SaltLength::EqualsHash, 1024);
        assert!(refused.unwrap_err().to_string().ends_with("at most 62 fit"));
    }
}
