//! ECDSA on three curves, with digests shorter and longer than the curve's order.

use super::assert_signs;
use crate::fixture::keys::Kind;
use crate::fixture::request::{Hash, Options, Scheme, sample};
use crate::fixture::softhsm::token_with_pair;

fn every_digest(kind: Kind) {
    let store = token_with_pair(kind);
    for hash in [Hash::Sha1, Hash::Sha256, Hash::Sha384, Hash::Sha512] {
        let digest = sample(hash.length());
        assert_signs(&store, kind, &Options::hash(hash), Scheme::Ecdsa, &digest);
    }
}

#[test]
fn p256() {
    every_digest(Kind::P256);
}

#[test]
fn p384() {
    every_digest(Kind::P384);
}

#[test]
fn p521() {
    every_digest(Kind::P521);
}

/// r and s have leading zeros in about one signature of 128: openssl refuses them if they are
/// not encoded as DER has it.
#[test]
fn many_signatures_in_a_row_are_der() {
    let store = token_with_pair(Kind::P256);
    for index in 0..40 {
        let digest = sample(32 + index)[index..].to_owned();
        assert_signs(&store, Kind::P256, &Options::hash(Hash::Sha256), Scheme::Ecdsa, &digest);
    }
}
