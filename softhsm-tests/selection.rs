//! Which token, which certificate, which key: found by every way of naming them, and nothing
//! chosen where there is more than one.

use std::fs;

use crate::fixture::keys::{Key, Kind, key};
use crate::fixture::openssl::{assert_verifies, openssl};
use crate::fixture::program::Outcome;
use crate::fixture::request::{
    Configuration, Hash, Options, Scheme, certificate_request, sample, sign_request,
};
use crate::fixture::softhsm::{Object, Store, blueprint, token_with, token_with_pair};

fn certificate_with(store: &Store, configuration: &Configuration) -> Outcome {
    store.ask(&certificate_request(configuration)).run()
}

fn signature_with(store: &Store, configuration: &Configuration) -> Outcome {
    let configuration = configuration.clone().with("pinSource", "env:TOKEN_PIN");
    store.ask(&sign_request(&configuration, &Options::hash(Hash::Sha256), &sample(32))).run()
}

#[test]
fn the_certificate_is_the_one_on_the_token_byte_for_byte() {
    for kind in
        [Kind::Rsa(2048), Kind::Rsa(3072), Kind::P256, Kind::P384, Kind::P521, Kind::Ed25519]
    {
        let store = token_with_pair(kind);
        // Standard input would be taken for the PIN if one were wanted.
        let outcome = store.ask(&certificate_request(&store.configuration())).run();
        assert_eq!(outcome.silently().certificate(), key(kind).certificate, "{kind:?}");
    }
}

#[test]
fn a_certificate_request_does_no_login_where_certificates_are_public() {
    let store = token_with_pair(Kind::P256);
    let configuration = store.faulty(store.configuration_with_pin());
    let outcome = store.ask(&certificate_request(&configuration)).suffering(&store, "").run();
    assert_eq!(outcome.silently().certificate(), key(Kind::P256).certificate);
    assert_eq!(store.calls("C_Login"), [] as [&str; 0]);
}

#[test]
fn a_private_certificate_is_found_after_a_login() {
    let [key_object, certificate] = Object::pair(key(Kind::P256), &[1]);
    let store = token_with([key_object, certificate.private()]);
    let outcome = certificate_with(&store, &store.configuration_with_pin_source());
    assert_eq!(outcome.certificate(), key(Kind::P256).certificate);
    certificate_with(&store, &store.configuration())
        .fails(6, &["no certificate", "without a login"]);
}

#[test]
fn two_certificates_under_one_id_are_listed_and_none_is_chosen() {
    let store = token_with([
        Object::key(key(Kind::Rsa(2048)), &[1]),
        Object::certificate(key(Kind::Rsa(2048)), &[1]).labelled("this year"),
        Object::certificate(key(Kind::OtherRsa), &[1]).labelled("last year"),
    ]);
    let both = ["2 certificates", "objectLabel \"this year\"", "objectLabel \"last year\""];
    certificate_with(&store, &store.configuration()).fails(6, &both);
    signature_with(&store, &store.configuration()).fails(6, &both);

    let chosen = store.configuration().with("objectLabel", "this year");
    assert_eq!(certificate_with(&store, &chosen).certificate(), key(Kind::Rsa(2048)).certificate);
    signature_with(&store, &chosen).signature();
}

#[test]
fn a_ca_certificate_under_the_same_id_is_passed_over() {
    let store = token_with([
        Object::key(key(Kind::P256), &[1]),
        Object::certificate(key(Kind::Authority), &[1]),
        Object::certificate(key(Kind::P256), &[1]),
    ]);
    let outcome = certificate_with(&store, &store.configuration());
    assert_eq!(outcome.certificate(), key(Kind::P256).certificate);
}

#[test]
fn an_attestation_certificate_of_the_session_is_passed_over() {
    let store = token_with([
        Object::key(key(Kind::P256), &[1]),
        Object::certificate(key(Kind::OtherRsa), &[1]).labelled("attestation of 9c"),
        Object::certificate(key(Kind::P256), &[1]),
    ]);
    let request = certificate_request(&store.faulty(store.configuration()));
    let faults = "C_GetAttributeValue:session-object=attestation";
    let outcome = store.ask(&request).suffering(&store, faults).run();
    assert_eq!(outcome.certificate(), key(Kind::P256).certificate);
}

#[test]
fn an_object_that_is_not_there_brings_a_list_of_what_is() {
    let store = token_with(
        Object::pair(key(Kind::P256), &[2])
            .into_iter()
            .chain(Object::pair(key(Kind::Ed25519), &[0xab, 0xcd])),
    );
    let configuration = store.configuration().with("objectId", "7");
    let listed = [
        "no certificate with objectId \"7\"",
        "objectId \"2\"",
        "objectId \"0xabcd\"",
        "objectLabel \"P256 certificate\"",
    ];
    certificate_with(&store, &configuration).fails(6, &listed);
    signature_with(&store, &configuration).fails(6, &listed);
    // What is listed can be pasted.
    for (id, kind) in [("2", Kind::P256), ("0xabcd", Kind::Ed25519), ("ab:cd", Kind::Ed25519)] {
        let outcome = certificate_with(&store, &store.configuration().with("objectId", id));
        assert_eq!(outcome.certificate(), key(kind).certificate);
    }
}

#[test]
fn a_label_names_an_object_too() {
    let [key_object, certificate] = Object::pair(key(Kind::P256), &[1]);
    let store = token_with([
        key_object.labelled("jane"),
        certificate.labelled("jane"),
        Object::certificate(key(Kind::Ed25519), &[2]).labelled("john"),
    ]);
    let by_label = store.configuration().without("objectId").with("objectLabel", "jane");
    assert_eq!(certificate_with(&store, &by_label).certificate(), key(Kind::P256).certificate);
    let signature = signature_with(&store, &by_label).signature();
    assert_verifies(key(Kind::P256), Scheme::Ecdsa, &sample(32), &signature);

    let contradiction = store.configuration().with("objectId", "2").with("objectLabel", "jane");
    certificate_with(&store, &contradiction).fails(6, &["objectId \"2\"", "jane"]);
}

#[test]
fn a_key_that_is_not_there_brings_a_list_of_what_is() {
    let store = token_with([
        Object::certificate(key(Kind::P256), &[1]),
        Object::key(key(Kind::P256), &[3]).labelled("orphan"),
    ]);
    signature_with(&store, &store.configuration())
        .fails(6, &["no private key", "objectId \"3\"", "orphan"]);
}

#[test]
fn a_certificate_file_serves_a_token_without_certificates() {
    let store = token_with([Object::key(key(Kind::Rsa(2048)), &[1])]);
    certificate_with(&store, &store.configuration()).fails(6, &["certificateFile"]);
    for file in [key(Kind::Rsa(2048)).certificate_pem(), key(Kind::Rsa(2048)).certificate_der()] {
        let configuration = store.configuration().with("certificateFile", file.to_str().unwrap());
        let outcome = certificate_with(&store, &configuration);
        assert_eq!(outcome.certificate(), key(Kind::Rsa(2048)).certificate);
        let signature = signature_with(&store, &configuration).signature();
        let scheme = Scheme::Pkcs1(Hash::Sha256);
        assert_verifies(key(Kind::Rsa(2048)), scheme, &sample(32), &signature);
    }
}

#[test]
fn a_certificate_file_that_does_not_fit_is_refused() {
    let store = token_with([Object::key(key(Kind::Rsa(2048)), &[1])]);
    let other = key(Kind::OtherRsa).certificate_pem();
    let configuration = store.configuration().with("certificateFile", other.to_str().unwrap());
    signature_with(&store, &configuration).fails(6, &["does not belong"]);

    let nonsense = store.directory.path().join("nonsense.pem");
    fs::write(&nonsense, "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n").unwrap();
    for path in [nonsense.as_path(), "/nowhere/at/all.pem".as_ref()] {
        let path = path.to_str().unwrap();
        let configuration = store.configuration().with("certificateFile", path);
        certificate_with(&store, &configuration).fails(6, &["certificateFile", path]);
    }
}

#[test]
fn a_certificate_file_is_taken_as_tools_write_it() {
    let own = key(Kind::Rsa(2048));
    let store = token_with([Object::key(own, &[1])]);
    let pem = |key: &Key| fs::read_to_string(key.certificate_pem()).unwrap();
    let (leaf, authority) = (pem(own), pem(key(Kind::Authority)));
    let file = store.directory.path().join("certificate.pem");
    let with_file = || {
        let path = file.to_str().unwrap();
        store.configuration().with("certificateFile", path)
    };
    for text in [
        format!("{authority}{leaf}"),
        format!("{leaf}{authority}"),
        format!("\u{feff}{leaf}"),
        leaf.replace('\n', "\r\n"),
    ] {
        fs::write(&file, text).unwrap();
        let outcome = certificate_with(&store, &with_file());
        assert_eq!(outcome.silently().certificate(), own.certificate);
        signature_with(&store, &with_file()).signature();
    }
    let [private, certificate] = [own.private_pem(), own.certificate_pem()];
    let [private, certificate, out] =
        [&private, &certificate, &file].map(|it| it.to_str().unwrap());
    openssl([
        "pkcs12",
        "-export",
        "-passout",
        "pass:",
        "-inkey",
        private,
        "-in",
        certificate,
        "-out",
        out,
    ]);
    certificate_with(&store, &with_file()).fails(6, &["it is PKCS #12; `openssl pkcs12 -clcerts"]);
}

#[test]
fn those_that_are_near_to_what_was_named_are_listed_first() {
    let others = (0_u8..30).map(|id| Object::certificate(key(Kind::P256), &[id]).labelled("other"));
    let near = Object::certificate(key(Kind::P256), &[0x77, 0x77]).labelled("say \"Jane\"");
    let store = token_with(others.chain([near]));
    let configuration = store.configuration().without("objectId");
    let outcome = certificate_with(&store, &configuration.with("objectLabel", "jane"));
    let first = "have it:\n  objectId \"0x7777\", objectLabel \"say \\\"Jane\\\"\": certificate of";
    let first = first.replace("have it", "holds none for this key");
    outcome.fails(6, &[&first, "and 11 more"]);
}

#[test]
fn a_certificate_of_another_key_under_the_same_id_is_refused() {
    let store = token_with([
        Object::key(key(Kind::Rsa(2048)), &[1]),
        Object::certificate(key(Kind::OtherRsa), &[1]),
    ]);
    signature_with(&store, &store.configuration()).fails(6, &["does not belong"]);
}

/// SoftHSM crashes, for one, where an elliptic curve's key is asked for an RSA-PSS signature.
#[test]
fn a_certificate_of_another_key_is_refused_before_the_key_is_used() {
    let rsa = [(Options::hash(Hash::Sha256), 32), (Options::pss(Hash::Sha256, -1), 32)];
    let ecdsa = [(Options::hash(Hash::Sha256), 32)];
    let ed25519 = [(Options::not_hashed(), 100)];
    for (of_key, of_certificate, requests) in [
        (Kind::P384, Kind::P256, &ecdsa[..]),
        (Kind::OtherRsa, Kind::Rsa(2048), &rsa),
        (Kind::P256, Kind::Rsa(2048), &rsa),
        (Kind::Ed25519, Kind::Rsa(2048), &rsa),
        (Kind::Rsa(2048), Kind::P256, &ecdsa),
        (Kind::Ed25519, Kind::P256, &ecdsa),
        (Kind::Rsa(2048), Kind::Ed25519, &ed25519),
    ] {
        let (own, other) = (key(of_key), key(of_certificate));
        let alone = token_with([Object::key(own, &[1])]);
        let file = other.certificate_pem();
        let by_file =
            alone.configuration_with_pin_source().with("certificateFile", file.to_str().unwrap());
        let beside = token_with([Object::key(own, &[1]), Object::certificate(other, &[1])]);
        let on_token = beside.configuration_with_pin_source();
        for (store, configuration) in [(&alone, by_file), (&beside, on_token)] {
            let configuration = store.faulty(configuration);
            for (options, length) in requests {
                let request = sign_request(&configuration, options, &sample(*length));
                let outcome = store.ask(&request).suffering(store, "").run();
                outcome.fails(6, &["does not belong to the key with objectId \"1\""]);
                assert_eq!(store.calls("C_SignInit"), [] as [&str; 0]);
            }
        }
    }
}

#[test]
fn a_public_key_of_another_type_is_seen_without_a_login() {
    for (own, other) in [
        (Kind::P256, Kind::Rsa(2048)),
        (Kind::Rsa(2048), Kind::P256),
        (Kind::Ed25519, Kind::P256),
        (Kind::P256, Kind::Ed25519),
    ] {
        let store = token_with([Object::key(key(own), &[1]), Object::public_key(key(own), &[1])]);
        let with_file = |kind| {
            let file = key(kind).certificate_pem();
            let file = file.to_str().unwrap();
            certificate_with(&store, &store.configuration().with("certificateFile", file))
        };
        assert_eq!(with_file(own).certificate(), key(own).certificate);
        with_file(other).fails(6, &["does not belong to the key with objectId \"1\""]);
    }
}

/// No more is asked of the token for it than was: the type comes with another attribute.
#[test]
fn the_type_of_a_key_costs_no_call() {
    let store = token_with_pair(Kind::P256);
    let configuration = store.faulty(store.configuration_with_pin_source());
    let options = Options::hash(Hash::Sha256);
    let request = sign_request(&configuration, &options, &sample(32));
    let outcome = store.ask(&request).suffering(&store, "").run();
    outcome.signature();
    // CKA_TOKEN and CKA_VALUE of the certificate and this: the length, and the value.
    assert_eq!(store.calls("C_GetAttributeValue").len(), 6);
}

/// Two tokens with a certificate each, and SoftHSM's own slot with none.
fn two_tokens() -> Store {
    Store::new([
        blueprint("work", Object::pair(key(Kind::P256), &[1])),
        blueprint("home", Object::pair(key(Kind::Ed25519), &[1])),
    ])
}

#[test]
fn a_token_is_found_by_label_serial_and_slot() {
    let store = two_tokens();
    let unnamed = store.configuration().without("slotId");
    for (token, kind) in [(0, Kind::P256), (1, Kind::Ed25519)] {
        let token = &store.tokens[token];
        let slot = token.slot.to_string();
        for configuration in [
            unnamed.clone().with("tokenLabel", &token.label),
            unnamed.clone().with("tokenSerial", &token.serial),
            unnamed.clone().with("slotId", &slot),
            unnamed
                .clone()
                .with("tokenLabel", &token.label)
                .with("tokenSerial", &token.serial)
                .with("slotId", &slot),
        ] {
            let outcome = certificate_with(&store, &configuration);
            assert_eq!(outcome.certificate(), key(kind).certificate);
        }
    }
}

#[test]
fn tokens_that_are_not_there_or_not_the_one_bring_a_list() {
    let store = two_tokens();
    let (work, home) = (&store.tokens[0], &store.tokens[1]);
    let unnamed = store.configuration().without("slotId");
    let both = ["\"work\"", "\"home\"", work.serial.as_str(), home.serial.as_str()];
    for missing in [
        unnamed.clone().with("tokenLabel", "elsewhere"),
        unnamed.clone().with("tokenSerial", "0123456789abcdef"),
        unnamed.clone().with("slotId", "12345"),
        unnamed.clone().with("tokenLabel", &work.label).with("tokenSerial", &home.serial),
    ] {
        certificate_with(&store, &missing).fails(5, &both);
    }
    let contradiction =
        unnamed.with("slotId", &work.slot.to_string()).with("tokenLabel", &home.label);
    certificate_with(&store, &contradiction).fails(5, &["\"work\"", "\"home\""]);
}

#[test]
fn two_tokens_with_one_label_are_listed_and_none_is_chosen() {
    let store = Store::new([blueprint("twin", []), blueprint("twin", [])]);
    let configuration = store.configuration().without("slotId").with("tokenLabel", "twin");
    let serials = [store.tokens[0].serial.as_str(), store.tokens[1].serial.as_str()];
    certificate_with(&store, &configuration).fails(5, &serials);
}

#[test]
fn a_slot_with_an_uninitialised_token_is_refused() {
    let store = Store::new([]);
    let configuration = Configuration::default()
        .with("pathLib", crate::fixture::softhsm::softhsm_library().to_str().unwrap())
        .with("slotId", "0")
        .with("objectId", "1");
    certificate_with(&store, &configuration).fails(5, &["slotId 0", "not initialised"]);
}

#[test]
fn with_a_certificate_file_the_label_is_the_keys() {
    let store = token_with([
        Object::key(key(Kind::P256), &[1]).labelled("jane"),
        Object::key(key(Kind::OtherRsa), &[2]).labelled("hans"),
    ]);
    let pem = key(Kind::P256).certificate_pem();
    let configuration = store.configuration().with("certificateFile", pem.to_str().unwrap());
    let labelled =
        |label| signature_with(&store, &configuration.clone().with("objectLabel", label));
    labelled("jane").signature();
    labelled("hans").fails(
        6,
        &["no private key with objectId \"1\" and objectLabel \"hans\"", "objectLabel \"jane\""],
    );
}
