//! PKCS #1 v1.5: with DigestInfo for a hash, without for TLS 1.0's pair of hashes.

use cryptoki::mechanism::MechanismType;

use super::assert_signs;
use crate::fixture::keys::Kind;
use crate::fixture::request::{Hash, Options, Scheme, sample};
use crate::fixture::softhsm::token_withholding;

const HASHES: [Hash; 6] =
    [Hash::Md5Sha1, Hash::Sha1, Hash::Sha224, Hash::Sha256, Hash::Sha384, Hash::Sha512];

fn every_hash(bits: u32) {
    for mechanisms in [&[][..], &[MechanismType::RSA_PKCS]] {
        let store = token_withholding(mechanisms, Kind::Rsa(bits));
        for hash in HASHES {
            let (options, digest) = (Options::hash(hash), sample(hash.length()));
            assert_signs(&store, Kind::Rsa(bits), &options, Scheme::Pkcs1(hash), &digest);
        }
    }
}

#[test]
fn rsa_1024() {
    every_hash(1024);
}

#[test]
fn rsa_2048() {
    every_hash(2048);
}

#[test]
fn rsa_3072() {
    every_hash(3072);
}

#[test]
fn rsa_4096() {
    every_hash(4096);
}

#[test]
fn rsa_8192() {
    every_hash(8192);
}

#[test]
fn a_token_with_no_way_to_pkcs1_is_named() {
    let store =
        token_withholding(&[MechanismType::RSA_PKCS, MechanismType::RSA_X_509], Kind::Rsa(2048));
    store
        .sign(&Options::hash(Hash::Sha256), &sample(32))
        .run()
        .fails(8, &["test token", "CKM_RSA_PKCS", "CKM_RSA_X_509"])
        .fails(8, &["a key of another kind"]);
}
