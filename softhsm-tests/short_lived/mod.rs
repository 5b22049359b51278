//! `credential --as` and `jwks`: what lives minutes and comes from the key in the token.

use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::fixture::*;

/// Certificates that somebody approves.
mod certificate;
/// `check --as`.
mod checked;
/// What a cluster has to know.
mod jwks;
/// Tokens that the key signs, alone.
mod jwt;
/// Clients that outlive what they are handed.
mod long_lived;
/// kubectl with the plugin.
pub(crate) mod plugin;
/// Secrets, and where they are.
mod secrecy;
/// Tokens that the key signs, at an API server.
pub(crate) mod structured;
/// Tokens of service accounts.
mod token;

const ISSUER: &str = "https://keys.example/jane";

/// The program with the key under this id, through the library that keeps a record; the PIN is in a variable.
fn with_key(store: &Store, id: &str, arguments: &[&str]) -> Invocation {
    let (command, arguments) = arguments.split_first().unwrap();
    Invocation::new(store.directory.path())
        .arguments(&[command, &store.faulty_module(), "--token-label=test token"])
        .arguments(&[&format!("--object-id={id}"), "--pin-source=env:TOKEN_PIN"])
        .arguments(arguments)
        .variable("TOKEN_PIN", PIN)
        .suffering(store, "")
}

/// An error in one line, as clients show it, with these texts.
#[track_caller]
fn refuses(outcome: &Outcome, code: i32, said: &[&str]) {
    assert_eq!(outcome.status.code(), Some(code), "{outcome:?}");
    assert!(outcome.stdout.is_empty(), "{outcome:?}");
    assert_eq!(outcome.stderr.lines().count(), 1, "{outcome:?}");
    for text in said {
        assert!(outcome.stderr.contains(text), "no \"{text}\" in {outcome:?}");
    }
}

/// Header and claims of a token, what is signed, and the signature.
pub(crate) fn parts(token: &str) -> (Value, Value, String, Vec<u8>) {
    let decoded = |part: &str| URL_SAFE_NO_PAD.decode(part).unwrap();
    let (signed, signature) = token.rsplit_once('.').unwrap();
    let (header, claims) = signed.split_once('.').unwrap();
    let json = |part: &str| serde_json::from_slice(&decoded(part)).unwrap();
    (json(header), json(claims), signed.to_owned(), decoded(signature))
}
