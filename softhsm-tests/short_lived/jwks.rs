//! `jwks`: the key set, without a PIN.

use super::with_key;
use crate::fixture::*;

/// With a certificate file alone: no library is named.
fn of_file(directory: &Path, kind: Kind) -> Outcome {
    let file = key(kind).certificate_pem();
    Invocation::new(directory)
        .arguments(&["jwks", "--certificate-file", file.to_str().unwrap()])
        .run()
}

fn set(outcome: &Outcome) -> Value {
    outcome.json()
}

#[test]
fn a_certificate_file_is_enough() {
    let place = tempfile::tempdir().unwrap();
    for (kind, members) in [
        (Kind::P256, json!({"kty": "EC", "crv": "P-256"})),
        (Kind::P384, json!({"kty": "EC", "crv": "P-384"})),
        (Kind::P521, json!({"kty": "EC", "crv": "P-521"})),
        (Kind::Rsa(2048), json!({"kty": "RSA", "e": "AQAB"})),
    ] {
        let set = set(&of_file(place.path(), kind));
        assert_eq!(set["keys"].as_array().unwrap().len(), 1);
        for (name, value) in members.as_object().unwrap() {
            assert_eq!(set["keys"][0][name], *value);
        }
    }
    of_file(place.path(), Kind::Ed25519).fails(6, &["Ed25519", "use an ECDSA key"]);
}

#[test]
fn a_token_is_asked_without_a_pin() {
    let both = token_with_pair(Kind::P256);
    let with_certificate = with_key(&both, "1", &["jwks"]).run();
    // A key that has a public key, and no certificate.
    let [private, public] =
        [Object::key(key(Kind::P256), &[1]), Object::public_key(key(Kind::P256), &[1])];
    let bare = token_with([private, public]);
    assert_eq!(set(&with_certificate), set(&with_key(&bare, "1", &["jwks"]).run()));
    for store in [&both, &bare] {
        assert!(store.calls("C_Login").is_empty());
        assert!(store.calls("C_Sign").is_empty());
    }
}
