//! `credential --as` and `jwks`: what lives minutes and comes from the key in the token.

use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::fixture::*;

mod certificate;
mod checked;
mod jwks;
mod jwt;
mod long_lived;
pub(crate) mod plugin;
mod secrecy;
pub(crate) mod structured;
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

/// Header and claims of a token, what is signed, and the signature.
pub(crate) fn parts(token: &str) -> (Value, Value, String, Vec<u8>) {
    let decoded = |part: &str| URL_SAFE_NO_PAD.decode(part).unwrap();
    let (signed, signature) = token.rsplit_once('.').unwrap();
    let (header, claims) = signed.split_once('.').unwrap();
    let json = |part: &str| serde_json::from_slice(&decoded(part)).unwrap();
    (json(header), json(claims), signed.to_owned(), decoded(signature))
}
