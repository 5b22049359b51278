//! Many requests at once on one token, as a client with many connections makes them.

use crate::fixture::keys::{Kind, key};
use crate::fixture::openssl::assert_verifies;
use crate::fixture::request::{Hash, Options, Scheme, sample};
use crate::fixture::softhsm::token_with_pair;

/// SoftHSM itself lets fewer than half of them through.
#[test]
fn fifty_processes_sign_at_once_and_all_answer() {
    let store = token_with_pair(Kind::Rsa(2048));
    let (hash, digest) = (Hash::Sha256, sample(32));
    let running: Vec<_> = (0..50)
        .map(|_| store.sign(&Options::pss(hash, -1), &digest).start(None))
        .collect();
    for run in running {
        let signature = run.finish().signature();
        assert_verifies(
            key(Kind::Rsa(2048)),
            Scheme::Pss { hash, salt: 32 },
            &digest,
            &signature,
        );
    }
}
