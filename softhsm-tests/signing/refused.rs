//! What is refused before any PIN is asked: the PIN here is wrong and counted, and no run gets as far as finding out.

use crate::fixture::*;

#[test]
fn what_does_not_fit_the_key_is_refused() {
    let pss = |value| Options::new("*rsa.PSSOptions", value);
    let rsa = [
        (Options::pss(Hash::Sha256, -1), 31, "digest"),
        (Options::pss(Hash::Sha384, -1), 32, "digest"),
        (Options::pss(Hash::Sha256, -1), 0, "digest"),
        (Options::hash(Hash::Sha256), 20, "digest"),
        (Options::hash(Hash::Md5Sha1), 20, "digest"),
        (Options::pss(Hash::Sha256, -2), 32, "SaltLength"),
        (Options::pss(Hash::Sha256, 223), 32, "SaltLength"),
        (pss("{\"SaltLength\":-1,\"Hash\":0}"), 32, "hash"),
        (pss("{\"SaltLength\":-1,\"Hash\":2}"), 16, "MD5"),
        (pss("{\"SaltLength\":-1,\"Hash\":8}"), 36, "MD5SHA1"),
        (pss("{\"SaltLength\":-1,\"Hash\":99}"), 32, "99"),
        (pss("{\"SaltLength\":-1}"), 32, "Hash"),
        (Options::new("crypto.Hash", "2"), 16, "MD5"),
        (Options::new("crypto.Hash", "99"), 32, "99"),
        (Options::not_hashed(), 32, "RSA"),
        (Options::new("crypto.Hash", "{}"), 32, "signerOpts"),
        (Options::new("*ed25519.Options", "{}"), 32, "*ed25519.Options"),
        (Options::new("", "5"), 32, "signerOptsType"),
    ];
    let short_rsa = [
        (Options::pss(Hash::Sha512, -1), 64, "SaltLength"),
        (Options::pss(Hash::Sha512, 63), 64, "SaltLength"),
    ];
    let ecdsa = [
        (Options::pss(Hash::Sha256, -1), 32, "P-256"),
        (Options::hash(Hash::Sha256), 31, "digest"),
        (Options::hash(Hash::Sha256), 0, "digest"),
    ];
    let ed25519 = [
        (Options::pss(Hash::Sha256, -1), 32, "Ed25519"),
        (Options::hash(Hash::Sha512), 64, "Ed25519"),
        (Options::not_hashed(), 0, "digest"),
    ];
    for (kind, cases) in [
        (Kind::Rsa(2048), &rsa[..]),
        (Kind::Rsa(1024), &short_rsa),
        (Kind::P256, &ecdsa),
        (Kind::Ed25519, &ed25519),
    ] {
        let store = token_with_pair(kind);
        let configuration = store.faulty(store.configuration().with("pin", WRONG_PIN));
        for (options, length, reason) in cases {
            let request = sign_request(&configuration, options, &sample(*length));
            store.ask(&request).suffering(&store, "").run().fails(2, &[reason]);
        }
        assert_eq!(store.calls("C_Login"), [] as [&str; 0]);
    }
}

#[test]
fn a_certificate_that_has_expired_costs_no_pin() {
    let store = token_of("/CN=jane", -1, 1);
    let configuration = store.faulty(store.configuration().with("pin", WRONG_PIN));
    let request = sign_request(&configuration, &Options::hash(Hash::Sha256), &sample(32));
    let outcome = store.ask(&request).suffering(&store, "").run();
    outcome.fails(6, &["CN=jane: it expired 20", "`pkcs11-external-signer enroll`"]);
    assert_eq!(store.calls("C_Login"), [] as [&str; 0]);
}
