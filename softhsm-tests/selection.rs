//! Which token, which certificate, which key: found by every way of naming them, and nothing
//! chosen where there is more than one.

use crate::fixture::*;

/// What of the configuration is another; a key without a value isn't there.
type Changes<'a> = &'a [(&'a str, &'a str)];

fn changed(store: &Store, changes: Changes<'_>) -> Configuration {
    changes.iter().fold(store.configuration(), |configuration, (name, value)| match *value {
        "" => configuration.without(name),
        value => configuration.with(name, value),
    })
}

fn certificate_with(store: &Store, changes: Changes<'_>) -> Outcome {
    store.certificate_with(&changed(store, changes)).run()
}

fn signature(store: &Store, options: &Options, changes: Changes<'_>) -> Invocation {
    let configuration = changed(store, changes).with("pinSource", "env:TOKEN_PIN");
    store.ask(&sign_request(&configuration, options, &sample(32)))
}

fn signature_with(store: &Store, changes: Changes<'_>) -> Outcome {
    signature(store, &Options::hash(Hash::Sha256), changes).run()
}

/// Demands this certificate, and a signature of its key.
#[track_caller]
fn finds(store: &Store, changes: Changes<'_>, kind: Kind) {
    let found = certificate_with(store, changes);
    assert_eq!(found.silently().certificate(), key(kind).certificate, "{changes:?}");
    let (options, scheme) = match kind {
        Kind::Ed25519 => (Options::not_hashed(), Scheme::Ed25519),
        Kind::Rsa(_) | Kind::OtherRsa => (Options::hash(Hash::Sha256), Scheme::Pkcs1(Hash::Sha256)),
        _ => (Options::hash(Hash::Sha256), Scheme::Ecdsa),
    };
    let signed = signature(store, &options, changes).run();
    assert_verifies(key(kind), scheme, &sample(32), &signed.signature());
}

/// Demands that neither the certificate nor a signature is had, for this reason.
#[track_caller]
fn fails(store: &Store, changes: Changes<'_>, code: i32, says: &[&str]) {
    certificate_with(store, changes).fails(code, says);
    signature_with(store, changes).fails(code, says);
}

#[test]
fn a_private_certificate_is_found_after_a_login() {
    let [key_object, certificate] = Object::pair(key(Kind::P256), &[1]);
    let store = token_with([key_object, certificate.private()]);
    finds(&store, &[("pinSource", "env:TOKEN_PIN")], Kind::P256);
    certificate_with(&store, &[]).fails(6, &["no certificate", "without a login"]);
}

#[test]
fn of_two_certificates_under_one_id_none_is_chosen() {
    let rsa = key(Kind::Rsa(2048));
    let store = token_with([
        Object::key(rsa, &[1]),
        Object::certificate(rsa, &[1]).labelled("this year"),
        Object::certificate(key(Kind::OtherRsa), &[1]).labelled("last year"),
    ]);
    let way_out = "objectLabel (--object-label) together";
    let shown = "`pkcs11-external-signer list` shows what there is";
    fails(&store, &[], 6, &["2 certificates with objectId \"1\"", way_out, shown]);
    finds(&store, &[("objectLabel", "this year")], Kind::Rsa(2048));
}

#[test]
fn certificates_of_cas_and_of_the_session_are_passed_over() {
    let store = token_with([
        Object::key(key(Kind::P256), &[1]),
        Object::certificate(key(Kind::Authority), &[1]),
        Object::certificate(key(Kind::P256), &[1]),
    ]);
    finds(&store, &[], Kind::P256);
    let store = token_with([
        Object::key(key(Kind::P256), &[1]),
        Object::certificate(key(Kind::OtherRsa), &[1]).labelled("attestation of 9c"),
        Object::certificate(key(Kind::P256), &[1]),
    ]);
    let faults = "C_GetAttributeValue:session-object=attestation";
    let outcome = store.certificate_suffering(store.configuration(), faults).run();
    assert_eq!(outcome.certificate(), key(Kind::P256).certificate);
}

#[test]
fn an_object_is_found_by_id_and_label() {
    let [private, certificate] = Object::pair(key(Kind::P256), &[2]);
    let pair = [private.labelled("jane"), certificate.labelled("jane")];
    let store = token_with(pair.into_iter().chain(Object::pair(key(Kind::Ed25519), &[0xab, 0xcd])));
    let shown = "`pkcs11-external-signer list` shows what there is";
    fails(&store, &[("objectId", "7")], 6, &["no certificate with objectId \"7\"", shown]);
    for (id, kind) in [("2", Kind::P256), ("0xabcd", Kind::Ed25519), ("ab:cd", Kind::Ed25519)] {
        finds(&store, &[("objectId", id)], kind);
    }
    finds(&store, &[("objectId", ""), ("objectLabel", "jane")], Kind::P256);
    let contradiction = [("objectId", "0xabcd"), ("objectLabel", "jane")];
    fails(&store, &contradiction, 6, &["objectId \"0xabcd\"", "jane"]);

    let orphan = token_with([
        Object::certificate(key(Kind::P256), &[1]),
        Object::key(key(Kind::P256), &[3]).labelled("orphan"),
    ]);
    signature_with(&orphan, &[]).fails(6, &["no private key with objectId \"1\"", "list"]);
}

/// As tpm2_ptool writes it. An elliptic curve's private key doesn't show its public key, so the public key's object leads to
/// it.
#[test]
fn a_certificate_under_another_id_finds_its_key_by_the_public_key() {
    for kind in [Kind::P256, Kind::Rsa(2048)] {
        let key_object = Object::key(key(kind), b"1").labelled("key1");
        let public_key = Object::public_key(key(kind), b"1");
        let certificate = Object::certificate(key(kind), b"key1").labelled("key1");
        let others = Object::pair(key(Kind::Ed25519), &[9]);
        let store = token_with([key_object, public_key, certificate].into_iter().chain(others));
        let id = ("objectId", "0x6b657931");
        finds(&store, &[id], kind);
        finds(&store, &[("objectId", ""), ("objectLabel", "key1")], kind);
        let by_label = [softhsm_option(), "--token-label=test token", "--object-label=key1"];
        for login in [&[][..], &["--login", "--pin-source=env:TOKEN_PIN"]] {
            let list = store.with_pin(&["list", "--json"]).arguments(&by_label).arguments(login);
            let keys = list.run().keys();
            let shown: Vec<_> = keys.iter().map(|key| (&key["objectId"], &key["usable"])).collect();
            assert_eq!(shown, [(&json!("0x6b657931"), &json!(true))], "{keys:?}");
        }
        let check = store.with_pin(&["check", "--pin-source=env:TOKEN_PIN"]).arguments(&by_label);
        let checked = check.run().told(0);
        assert!(checked.contains("\n✔ private key"), "{checked}");
        let entry = store.command(&["kubeconfig", "--external-signer"]).arguments(&by_label);
        let entry = entry.run().printed();
        assert!(entry.contains("objectId: \"0x6b657931\"\n"), "{entry}");
    }
}

#[test]
fn a_certificate_file_serves_a_token_without_certificates() {
    let rsa = key(Kind::Rsa(2048));
    let store = token_with([Object::key(rsa, &[1])]);
    certificate_with(&store, &[]).fails(6, &["certificateFile"]);
    let file = |path: &Path| path.to_str().unwrap().to_owned();
    for path in [rsa.certificate_pem(), rsa.certificate_der()] {
        finds(&store, &[("certificateFile", &file(&path))], Kind::Rsa(2048));
    }
    let nonsense = store.path("nonsense.pem");
    fs::write(&nonsense, "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n").unwrap();
    for path in [&file(&nonsense), "/nowhere/at/all.pem"] {
        certificate_with(&store, &[("certificateFile", path)]).fails(6, &["certificateFile", path]);
    }
    // Beside it, the label is the key's.
    let store = token_with([
        Object::key(key(Kind::P256), &[1]).labelled("jane"),
        Object::key(key(Kind::OtherRsa), &[2]).labelled("hans"),
    ]);
    let own = file(&key(Kind::P256).certificate_pem());
    finds(&store, &[("certificateFile", &own), ("objectLabel", "jane")], Kind::P256);
    let other = [("certificateFile", &*own), ("objectLabel", "hans")];
    let none = "no private key with objectId \"1\" and objectLabel \"hans\"";
    signature_with(&store, &other).fails(6, &[none]);
}

#[test]
fn a_certificate_file_is_taken_as_tools_write_it() {
    let own = key(Kind::Rsa(2048));
    let store = token_with([Object::key(own, &[1])]);
    let pem = |key: &Key| fs::read_to_string(key.certificate_pem()).unwrap();
    let (leaf, authority) = (pem(own), pem(key(Kind::Authority)));
    let file = store.path("certificate.pem");
    let with_file = [("certificateFile", file.to_str().unwrap())];
    for text in [
        format!("{authority}{leaf}"),
        format!("{leaf}{authority}"),
        format!("\u{feff}{leaf}"),
        leaf.replace('\n', "\r\n"),
    ] {
        fs::write(&file, text).unwrap();
        finds(&store, &with_file, Kind::Rsa(2048));
    }
    let [private, certificate] = [own.private_pem(), own.certificate_pem()];
    let [private, certificate, out] =
        [&private, &certificate, &file].map(|it| it.to_str().unwrap());
    let export = ["pkcs12", "-export", "-passout", "pass:", "-out", out];
    openssl(export.into_iter().chain(["-inkey", private, "-in", certificate]));
    certificate_with(&store, &with_file)
        .fails(6, &["certificate.pem is not a usable X.509 certificate: "]);
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
            certificate_with(&store, &[("certificateFile", file.to_str().unwrap())])
        };
        assert_eq!(with_file(own).certificate(), key(own).certificate);
        with_file(other).fails(6, &["does not belong to the key with objectId \"1\""]);
    }
}

/// Two tokens with a certificate each, and SoftHSM's own slot with none.
#[test]
fn a_token_is_found_by_label_serial_and_slot_and_none_is_chosen_of_several() {
    let store = Store::new([
        blueprint("work", Object::pair(key(Kind::P256), &[1])),
        blueprint("home", Object::pair(key(Kind::Ed25519), &[1])),
    ]);
    let [work, home] = &store.tokens[..] else { panic!("two tokens") };
    for (token, kind) in [(work, Kind::P256), (home, Kind::Ed25519)] {
        let slot = token.slot.to_string();
        let (label, serial) = (("tokenLabel", &*token.label), ("tokenSerial", &*token.serial));
        finds(&store, &[("slotId", ""), label], kind);
        finds(&store, &[("slotId", ""), serial], kind);
        finds(&store, &[("slotId", &slot)], kind);
        finds(&store, &[("slotId", &slot), label, serial], kind);
    }
    let both = ["\"work\"", "\"home\"", &work.serial, &home.serial];
    let none = ("slotId", "");
    fails(&store, &[none, ("tokenLabel", "elsewhere")], 5, &both);
    fails(&store, &[none, ("tokenSerial", "0123456789abcdef")], 5, &both);
    fails(&store, &[("slotId", "12345")], 5, &both);
    fails(&store, &[none, ("tokenLabel", "work"), ("tokenSerial", &home.serial)], 5, &both);
    fails(&store, &[("slotId", &*work.slot.to_string()), ("tokenLabel", "home")], 5, &both[..2]);

    let store = Store::new([blueprint("twin", []), blueprint("twin", [])]);
    let serials = [&*store.tokens[0].serial, &store.tokens[1].serial];
    fails(&store, &[none, ("tokenLabel", "twin")], 5, &serials);
}

#[test]
fn a_slot_with_an_uninitialised_token_is_refused() {
    let store = Store::new([]);
    let configuration = token_with([]).configuration().with("slotId", "0");
    store.certificate_with(&configuration).run().fails(5, &["slotId 0", "not initialised"]);
}
