//! Ed25519 over messages as TLS has them: 130 bytes in TLS 1.3, a whole transcript in TLS 1.2.

use super::assert_signs;
use crate::fixture::keys::Kind;
use crate::fixture::request::{Options, Scheme, sample};
use crate::fixture::softhsm::token_with_pair;

#[test]
fn messages_are_signed_unhashed() {
    let store = token_with_pair(Kind::Ed25519);
    for length in [1, 64, 130, 146, 4096] {
        let message = sample(length);
        assert_signs(&store, Kind::Ed25519, &Options::not_hashed(), Scheme::Ed25519, &message);
    }
}
