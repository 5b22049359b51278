//! `credential --as jwt`: signatures that openssl judges, and the forms they come in.

use cryptoki::mechanism::MechanismType;
use sha2::{Digest as _, Sha256, Sha384, Sha512};

use super::plugin;
use super::{ISSUER, parts, with_key};
use crate::fixture::*;

const JWT: [&str; 5] = ["credential", "--as=jwt", "--issuer", ISSUER, "--subject=jane"];

fn jwt(store: &Store, more: &[&str]) -> Outcome {
    with_key(store, "1", &[&JWT, more].concat()).run()
}

/// The token alone.
fn raw(store: &Store, more: &[&str]) -> String {
    let printed = jwt(store, &[&["--output=raw"], more].concat()).silently().printed();
    printed.strip_suffix('\n').unwrap().to_owned()
}

fn digest(hash: Hash, text: &str) -> Vec<u8> {
    match hash {
        Hash::Sha384 => Sha384::digest(text).to_vec(),
        Hash::Sha512 => Sha512::digest(text).to_vec(),
        _ => Sha256::digest(text).to_vec(),
    }
}

/// `r ‖ s` as DER, which openssl takes.
fn der(raw: &[u8]) -> Vec<u8> {
    let integer = |number: &[u8]| {
        let number = &number[number.iter().take_while(|byte| **byte == 0).count()..];
        let sign: &[u8] = if number[0] & 0x80 == 0 { &[] } else { &[0] };
        [&[2, u8::try_from(sign.len() + number.len()).unwrap()], sign, number].concat()
    };
    let (r, s) = raw.split_at(raw.len() / 2);
    let both = [integer(r), integer(s)].concat();
    let length = u8::try_from(both.len()).unwrap();
    match length {
        0x80.. => [vec![0x30, 0x81, length], both].concat(),
        _ => [vec![0x30, length], both].concat(),
    }
}

#[test]
fn every_kind_of_key_signs_what_openssl_accepts() {
    for (kind, name, hash, scheme) in [
        (Kind::P256, "ES256", Hash::Sha256, Scheme::Ecdsa),
        (Kind::P384, "ES384", Hash::Sha384, Scheme::Ecdsa),
        (Kind::P521, "ES512", Hash::Sha512, Scheme::Ecdsa),
        (Kind::Rsa(2048), "RS256", Hash::Sha256, Scheme::Pkcs1(Hash::Sha256)),
    ] {
        let store = token_with_pair(kind);
        let (header, _, signed, signature) = parts(&raw(&store, &[]));
        assert_eq!(header["alg"], name);
        let signature = match scheme {
            Scheme::Ecdsa => der(&signature),
            _ => signature,
        };
        assert_verifies(key(kind), scheme, &digest(hash, &signed), &signature);
        assert_eq!(store.calls("C_Login"), ["0x0"]);
        assert_eq!(store.calls("C_Sign"), ["0x0"]);
    }
}

#[test]
fn what_nobody_can_take_back_is_short_lived_and_for_somebody() {
    let store = token_with_pair(Kind::P256);
    let refused = |more: &[&str]| with_key(&store, "1", &[&JWT[..], more].concat()).run();
    refused(&["--duration=25h"]).fails_in_one_line(2, &["for a day at most", "at most 24h"]);
    assert_eq!(refused(&["--audience="]).status.code(), Some(2));
    refused(&["--duration=24h"]).succeeded();
}

#[test]
fn the_claims_are_those_that_were_asked_for() {
    let store = token_with_pair(Kind::P256);
    let now = || i64::try_from(std::time::UNIX_EPOCH.elapsed().unwrap().as_secs()).unwrap();
    let before = now();
    let (header, claims, ..) = parts(&raw(&store, &["--audience=prod", "--duration=90s"]));
    let number = |claims: &Value, name: &str| claims[name].as_i64().unwrap();
    let issued = number(&claims, "iat");
    assert!((before..=now()).contains(&issued));
    assert_eq!(number(&claims, "nbf"), issued);
    assert_eq!(number(&claims, "exp"), issued + 90);
    assert_eq!([&claims["iss"], &claims["sub"], &claims["aud"]], [ISSUER, "jane", "prod"]);
    // As which the set of keys has it.
    let keys = with_key(&store, "1", &["jwks"]).run().printed();
    assert!(keys.contains(header["kid"].as_str().unwrap()));
    // Without what needn't be said.
    let (_, other, ..) = parts(&raw(&store, &[]));
    assert_eq!(other["aud"], "kubernetes");
    assert_eq!(number(&other, "exp"), number(&other, "iat") + 300);
    assert_ne!(claims["jti"], other["jti"]);
    let outcome = with_key(&store, "1", &[&JWT[..4], &["--output=raw"]].concat()).run();
    let (_, claims, ..) = parts(outcome.printed().trim());
    assert_eq!(claims["sub"], "test p256");
    let (_, claims, ..) = parts(&raw(&store, &["--audience=a", "--audience=b"]));
    assert_eq!(claims["aud"], json!(["a", "b"]));
}

#[test]
fn a_key_without_a_certificate_signs() {
    let store =
        token_with([Object::key(key(Kind::P256), &[1]), Object::public_key(key(Kind::P256), &[1])]);
    let (_, claims, signed, signature) = parts(&raw(&store, &[]));
    assert_eq!(claims["sub"], "jane");
    let input = digest(Hash::Sha256, &signed);
    assert_verifies(key(Kind::P256), Scheme::Ecdsa, &input, &der(&signature));
    let unnamed = with_key(&store, "1", &JWT[..4]).run();
    unnamed.fails_in_one_line(2, &["nothing names the token's subject", "--subject NAME"]);
}

#[test]
fn a_token_that_lacks_the_algorithm_is_refused_before_the_pin() {
    let mechanisms =
        [MechanismType::RSA_PKCS, MechanismType::SHA256_RSA_PKCS, MechanismType::RSA_X_509];
    let store = token_withholding(&mechanisms, Kind::Rsa(2048));
    jwt(&store, &[]).fails_in_one_line(8, &["RSA PKCS #1 v1.5"]);
    assert!(store.calls("C_Login").is_empty());
}

#[test]
fn keys_and_options_that_make_no_token_are_refused_before_the_pin() {
    for (kind, said) in [
        (Kind::Ed25519, "an API server takes no token that a key Ed25519 has signed"),
        (Kind::Rsa(1024), "takes no token that a key RSA"),
    ] {
        let store = token_with_pair(kind);
        jwt(&store, &[]).fails_in_one_line(6, &[said]);
        assert!(store.calls("C_Login").is_empty());
    }
    let store = token_with_pair(Kind::P256);
    let nobody = ["credential", "--as=jwt", "--issuer", ISSUER, "--subject="];
    let nobody = with_key(&store, "1", &nobody).run();
    assert_eq!(nobody.status.code(), Some(2), "{nobody:?}");
    let missing = with_key(&store, "1", &["credential", "--as=jwt"]).run();
    assert_eq!(missing.status.code(), Some(2), "{missing:?}");
    assert!(missing.stderr.contains("--issuer"), "{missing:?}");
    let missing = with_key(&store, "1", &["credential", "--issuer", ISSUER]).run();
    assert_eq!(missing.status.code(), Some(2), "{missing:?}");
}

/// Clients would ask again at once, for ever.
#[test]
fn what_has_ended_by_the_time_it_is_signed_is_not_handed_out() {
    let store = token_with_pair(Kind::P256);
    let slow = with_key(&store, "1", &[&JWT[..], &["--duration=1s"]].concat());
    let outcome = slow.suffering(&store, "C_Sign:delay=2000").run();
    outcome.fails_in_one_line(9, &["the credential has expired already, at "]);
}

#[test]
fn clients_get_it_in_their_version() {
    let store = token_with_pair(Kind::P256);
    for version in ["v1", "v1beta1", "v1alpha1"] {
        let version = format!("client.authentication.k8s.io/{version}");
        // Clients up to 1.23 ask again after a 401.
        let spec = json!({"response": {"code": 401, "header": {"Date": ["today"]}}});
        let request = json!({"kind": "ExecCredential", "apiVersion": version, "spec": spec});
        let outcome =
            with_key(&store, "1", &JWT).variable("KUBERNETES_EXEC_INFO", request.to_string()).run();
        let answer = outcome.silently().answer();
        assert_eq!(answer["apiVersion"], version);
        assert_eq!(answer["kind"], "ExecCredential");
        let (_, claims, ..) = parts(answer["status"]["token"].as_str().unwrap());
        // A request that was begun before it is still answered.
        let ends = time(claims["exp"].as_i64().unwrap() - 30);
        assert_eq!(answer["status"]["expirationTimestamp"], ends);
        // A client that sets no request expects what its user's entry says.
        let own = [&store.faulty_module(), "--token-label=test token", "--object-id=1"];
        let own = [&JWT[..1], &own, &["--pin-source=env:TOKEN_PIN"], &JWT[1..]];
        let user = json!({"name": "jane", "user": plugin::user(&version, &own.concat())});
        let path = store.path("own");
        fs::write(&path, json!({"users": [user]}).to_string()).unwrap();
        let outcome = with_key(&store, "1", &JWT).variable("KUBECONFIG", path).run();
        assert_eq!(outcome.answer()["apiVersion"], version);
    }
    let garbage = with_key(&store, "1", &JWT).variable("KUBERNETES_EXEC_INFO", "{");
    garbage.run().fails_in_one_line(2, &["KUBERNETES_EXEC_INFO is not a request"]);
}

fn time(seconds: i64) -> String {
    let time = time::OffsetDateTime::from_unix_timestamp(seconds).unwrap();
    time.format(&time::format_description::well_known::Rfc3339).unwrap()
}

#[test]
fn a_kubeconfig_for_another_machine_is_complete_and_private() {
    let store = token_with_pair(Kind::P256);
    let authority = key(Kind::Authority).certificate_pem();
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "prod", "cluster": {
            "server": "https://10.0.0.1:6443", "certificate-authority": authority,
            "tls-server-name": "api.example", "proxy-url": "http://proxy:3128",
        }}],
        "contexts": [{"name": "prod", "context": {"cluster": "prod", "user": "other"}}],
        "current-context": "prod",
    });
    let directory = store.directory.path();
    let (kubeconfig, out) = (directory.join("kubeconfig"), directory.join("out"));
    fs::write(&kubeconfig, config.to_string()).unwrap();
    let file = format!("--out={}", out.display());
    let outcome = with_key(&store, "1", &JWT)
        .arguments(&["--output=kubeconfig", &file, "--kubeconfig", kubeconfig.to_str().unwrap()])
        .run();
    assert_eq!(outcome.silently().printed(), "");
    assert_eq!(fs::metadata(&out).unwrap().permissions().mode() & 0o777, 0o600);
    let text = fs::read_to_string(out).unwrap();
    let (comment, document) = text.split_once('\n').unwrap();
    let document: Value = serde_json::from_str(document).unwrap();
    let (_, claims, ..) = parts(document["users"][0]["user"]["token"].as_str().unwrap());
    let ends = time(claims["exp"].as_i64().unwrap());
    assert_eq!(comment, format!("# Expires at {ends}."));
    assert_eq!(document["contexts"][0]["context"], json!({"cluster": "prod", "user": "jane"}));
    let cluster = &document["clusters"][0]["cluster"];
    assert_eq!(cluster["server"], "https://10.0.0.1:6443");
    assert_eq!(cluster["tls-server-name"], "api.example");
    assert_eq!(cluster["proxy-url"], "http://proxy:3128");
    use base64::Engine as _;
    let pem = STANDARD.encode(fs::read(authority).unwrap());
    assert_eq!(cluster["certificate-authority-data"], pem);
}
