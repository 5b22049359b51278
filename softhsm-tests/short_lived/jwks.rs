//! `jwks`: the key, the discovery document and the AuthenticationConfiguration, without a PIN.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use serde_json::{Value, json};

use super::{ISSUER, with_key};
use crate::fixture::keys::{Kind, key};
use crate::fixture::program::{Invocation, Outcome};
use crate::fixture::softhsm::{Object, token_with, token_with_pair};

/// With a certificate file alone: no library is named.
fn of_file(directory: &Path, kind: Kind, arguments: &[&str]) -> Invocation {
    let file = key(kind).certificate_pem();
    Invocation::new(directory)
        .arguments(&["jwks", "--certificate-file", file.to_str().unwrap()])
        .arguments(arguments)
}

/// The two documents in JSON and the one in YAML.
fn documents(outcome: &Outcome) -> (Value, Value, String) {
    let printed = outcome.printed();
    let documents: Vec<_> = printed.split("\n---\n").collect();
    let [discovery, keys, configuration] = documents[..] else { panic!("{printed}") };
    let json = |text: &str| {
        let (comment, text) = text.split_once('\n').unwrap();
        assert!(comment.starts_with("# To be served at https://"), "{comment}");
        serde_json::from_str(text).unwrap()
    };
    (json(discovery), json(keys), configuration.to_owned())
}

#[test]
fn a_certificate_file_is_enough() {
    let place = tempfile::tempdir().unwrap();
    for (kind, members, algorithms) in [
        (Kind::P256, json!({"kty": "EC", "crv": "P-256"}), json!(["ES256"])),
        (Kind::P384, json!({"kty": "EC", "crv": "P-384"}), json!(["ES384"])),
        (Kind::P521, json!({"kty": "EC", "crv": "P-521"}), json!(["ES512"])),
        (
            Kind::Rsa(2048),
            json!({"kty": "RSA", "e": "AQAB"}),
            json!(["RS256", "RS384", "RS512", "PS256", "PS384", "PS512"]),
        ),
    ] {
        let outcome = of_file(place.path(), kind, &["--issuer", ISSUER, "--user=jane"]).run();
        let (discovery, keys, configuration) = documents(&outcome);
        assert_eq!(discovery["issuer"], ISSUER);
        assert_eq!(discovery["jwks_uri"], format!("{ISSUER}/jwks.json"));
        let possible = &discovery["id_token_signing_alg_values_supported"];
        assert_eq!(*possible, algorithms);
        assert_eq!(keys["keys"].as_array().unwrap().len(), 1);
        for (name, value) in members.as_object().unwrap() {
            assert_eq!(keys["keys"][0][name], *value);
        }
        assert!(configuration.contains(&format!("url: \"{ISSUER}\"")));
        assert!(configuration.contains("username: {expression: \"'jane'\"}"));
    }
}

#[test]
fn a_token_is_asked_without_a_pin() {
    let both = token_with_pair(Kind::P256);
    // The certificate's user.
    let with_certificate = with_key(&both, "1", &["jwks", "--issuer", ISSUER]).run();
    let (_, keys, configuration) = documents(&with_certificate);
    assert!(configuration.contains("username: {expression: \"'test p256'\"}"), "{configuration}");
    // A key that has a public key, and no certificate.
    let [private, public] =
        [Object::key(key(Kind::P256), &[1]), Object::public_key(key(Kind::P256), &[1])];
    let bare = token_with([private, public]);
    let without = |more: &[&str]| {
        let arguments = [&["jwks", "--issuer", ISSUER], more].concat();
        with_key(&bare, "1", &arguments).run()
    };
    without(&[]).fails(2, &["nothing names the user", "--user NAME"]);
    let (_, same, _) = documents(&without(&["--user=jane"]));
    assert_eq!(keys, same);
    for store in [&both, &bare] {
        assert!(store.calls("C_Login").is_empty());
        assert!(store.calls("C_Sign").is_empty());
    }
}

#[test]
fn a_directory_is_laid_out_for_a_web_server() {
    let place = tempfile::tempdir().unwrap();
    let out = place.path().join("srv/jane");
    let write = |kind| {
        let option = format!("--out={}", out.display());
        of_file(place.path(), kind, &["--issuer", ISSUER, "--user=jane", &option]).run()
    };
    let printed = write(Kind::P256).printed();
    assert!(printed.starts_with("apiVersion: apiserver.config.k8s.io/v1 "), "{printed}");
    let read = |name: &str| -> Value {
        let path = out.join(name);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o644);
        serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
    };
    assert_eq!(read(".well-known/openid-configuration")["issuer"], ISSUER);
    assert_eq!(read("jwks.json")["keys"][0]["crv"], "P-256");
    // The new key's files replace the old one's.
    write(Kind::P384).printed();
    assert_eq!(read("jwks.json")["keys"][0]["crv"], "P-384");
    assert_eq!(fs::read_dir(&out).unwrap().count(), 2);
    let file = out.join("jwks.json/below");
    let option = format!("--out={}", file.display());
    let refused = of_file(place.path(), Kind::P256, &["--issuer", ISSUER, "--user=jane", &option]);
    refused.run().fails(9, &["jwks.json/below"]);
}

#[test]
fn another_place_and_its_authority_stand_in_the_configuration() {
    let place = tempfile::tempdir().unwrap();
    let authority = key(Kind::Authority).certificate_pem();
    let authority = authority.to_str().unwrap();
    let arguments = [
        "--issuer",
        ISSUER,
        "--served-at=https://127.0.0.1:9443/jane",
        "--certificate-authority",
        authority,
        "--user=hw:jane",
        "--group=dev",
        "--group=ops",
        "--audience=prod",
        "--duration=5m",
    ];
    let outcome = of_file(place.path(), Kind::P256, &arguments).run();
    let (discovery, _, configuration) = documents(&outcome);
    assert_eq!(discovery["jwks_uri"], "https://127.0.0.1:9443/jane/jwks.json");
    for line in [
        "discoveryURL: \"https://127.0.0.1:9443/jane/.well-known/openid-configuration\"",
        "certificateAuthority: |\n      -----BEGIN CERTIFICATE-----\n",
        "audiences: [\"prod\"]",
        "username: {expression: \"'hw:jane'\"}",
        "groups: {expression: \"['dev', 'ops']\"}",
        "expression: \"claims.exp - claims.nbf <= 300\"",
    ] {
        assert!(configuration.contains(line), "no {line} in {configuration}");
    }
    let private = key(Kind::P256).private_pem();
    let arguments = ["--issuer", ISSUER, "--user=jane", "--certificate-authority"];
    let refused = of_file(place.path(), Kind::P256, &arguments);
    let refused = refused.argument(private.to_str().unwrap()).run();
    refused.fails(2, &["--certificate-authority", "no certificates in PEM"]);
}

#[test]
fn what_no_api_server_takes_is_refused() {
    let place = tempfile::tempdir().unwrap();
    for (issuer, said) in [
        ("http://keys.example", "doesn't begin with https://"),
        ("https://keys.example?a=b", "a query or a fragment"),
        ("https://keys.example#a", "a query or a fragment"),
        ("https://jane:secret@keys.example", "a user or a password"),
        ("keys.example", "not a URL"),
    ] {
        let outcome = of_file(place.path(), Kind::P256, &["--issuer", issuer]).run();
        assert_eq!(outcome.status.code(), Some(2), "{outcome:?}");
        assert!(outcome.stderr.contains(said), "{outcome:?}");
        assert!(!outcome.stderr.contains("secret"), "{outcome:?}");
    }
    for (who, said) in [
        (&["--user=jane", "--group=system:masters"][..], "system:masters is the cluster's own"),
        (&["--user="], "it is empty"),
    ] {
        let arguments = [&["--issuer", ISSUER], who].concat();
        let outcome = of_file(place.path(), Kind::P256, &arguments).run();
        outcome.fails(2, &[said]);
    }
    let ed25519 = of_file(place.path(), Kind::Ed25519, &["--issuer", ISSUER]).run();
    ed25519.fails(6, &["Ed25519", "use an ECDSA key"]);
}
