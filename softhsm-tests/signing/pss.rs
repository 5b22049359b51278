//! RSA-PSS, padded by the token or by the program.

use cryptoki::mechanism::MechanismType;

use super::assert_signs;
use crate::fixture::keys::Kind;
use crate::fixture::request::{Hash, Options, Scheme, sample};
use crate::fixture::softhsm::token_withholding;

/// What a token does without: nothing, and the mechanism that pads.
const WAYS: [&[MechanismType]; 2] = [&[], &[MechanismType::RSA_PKCS_PSS]];

/// Every hash with a salt as long as the hash, as long as possible, and of 20 bytes.
fn every_hash_and_salt(bits: u32) {
    let kind = Kind::Rsa(bits);
    // emLen of RFC 8017, section 9.1.1, for a modulus of this many bits.
    let encoded = (bits as usize - 1).div_ceil(8);
    for mechanisms in WAYS {
        let store = token_withholding(mechanisms, kind);
        for hash in Hash::OF_PSS {
            let longest = encoded - hash.length() - 2;
            for (asked, salt) in [(-1, hash.length()), (0, longest), (20, 20)] {
                let (options, digest) = (Options::pss(hash, asked), sample(hash.length()));
                if salt > longest {
                    store.sign(&options, &digest).run().fails(2, &["SaltLength"]);
                } else {
                    assert_signs(&store, kind, &options, Scheme::Pss { hash, salt }, &digest);
                }
            }
        }
    }
}

#[test]
fn rsa_1024() {
    every_hash_and_salt(1024);
}

/// The encoded message is one byte shorter than the modulus.
#[test]
fn rsa_1025() {
    every_hash_and_salt(1025);
}

#[test]
fn rsa_2048() {
    every_hash_and_salt(2048);
}

#[test]
fn rsa_3072() {
    every_hash_and_salt(3072);
}

#[test]
fn rsa_4096() {
    every_hash_and_salt(4096);
}

#[test]
fn rsa_8192() {
    every_hash_and_salt(8192);
}

#[test]
fn salts_are_not_repeated() {
    for mechanisms in WAYS {
        let store = token_withholding(mechanisms, Kind::Rsa(2048));
        let sign = || store.sign(&Options::pss(Hash::Sha256, -1), &sample(32)).run().signature();
        assert_ne!(sign(), sign(), "without {mechanisms:?}");
    }
}

#[test]
fn a_token_with_no_way_to_pss_is_named() {
    let store = token_withholding(
        &[MechanismType::RSA_PKCS_PSS, MechanismType::RSA_X_509],
        Kind::Rsa(2048),
    );
    store
        .sign(&Options::pss(Hash::Sha256, -1), &sample(32))
        .run()
        .fails(8, &["test token", "CKM_RSA_PKCS_PSS", "CKM_RSA_X_509"]);
}
