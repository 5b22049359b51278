//! Signatures of every kind that the protocol can ask for, judged by openssl.

/// ECDSA on three curves.
mod ecdsa;
/// Ed25519.
mod ed25519;
/// PKCS #1 v1.5, padded by the token or by the program.
mod pkcs1;
/// RSA-PSS, padded by the token or by the program.
mod pss;
/// What is refused as a bad request before any PIN is asked.
mod refused;

use cryptoki::mechanism::MechanismType;

use crate::fixture::keys::{Kind, key};
use crate::fixture::openssl::assert_verifies;
use crate::fixture::request::{Options, Scheme};
use crate::fixture::softhsm::{Object, Store, blueprint};

/// A token with one pair that does without these mechanisms.
fn token_withholding(mechanisms: &[MechanismType], kind: Kind) -> Store {
    Store::withholding(
        mechanisms,
        [blueprint("test token", Object::pair(key(kind), &[1]))],
    )
}

/// Demands an answer whose signature openssl accepts, and silence on standard error.
#[track_caller]
fn assert_signs(store: &Store, kind: Kind, options: &Options, scheme: Scheme, input: &[u8]) {
    let signature = store.sign(options, input).run().silently().signature();
    assert_verifies(key(kind), scheme, input, &signature);
}
