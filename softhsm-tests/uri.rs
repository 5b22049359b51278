//! `uri`: a key by one text, as other tools print it.

use crate::fixture::*;

fn with_uri(uri: &str) -> Configuration {
    Configuration::default().with("uri", uri)
}

fn library() -> String {
    softhsm_library().display().to_string()
}

#[test]
fn a_uri_alone_is_a_whole_configuration() {
    let store = token_with_pair(Kind::P256);
    let token = &store.tokens[0];
    let uri = format!(
        "pkcs11:token=test%20token;serial={};slot-id={};id=%01;type=private\
         ?module-path={}&pin-source=env:TOKEN_PIN",
        token.serial,
        token.slot,
        library()
    );
    assert_signed(&store.sign_with(&with_uri(&uri)).run());
    let other = uri.replace("id=%01", "id=%02");
    store.sign_with(&with_uri(&other)).run().fails(6, &["no certificate with objectId \"2\""]);
}

#[test]
fn a_pin_in_a_uri_works_with_the_warning_of_pin_once_a_day() {
    let store = token_with_pair(Kind::P256);
    let uri = format!("pkcs11:token=test%20token;id=%01?module-path={}&pin-value={PIN}", library());
    let outcome = store.sign_with(&with_uri(&uri)).run();
    assert_signed(&outcome);
    outcome.says_only(&["warning: the PIN stands in the kubeconfig"]);
    assert_signed(store.sign_with(&with_uri(&uri)).run().silently());
}

#[test]
fn keys_go_with_a_uri_that_says_the_same_and_with_no_other() {
    let store = token_with_pair(Kind::P256);
    let uri = with_uri("pkcs11:token=test%20token;id=%01?pin-source=env:TOKEN_PIN")
        .with("pathLib", &library())
        .with("objectId", "1");
    assert_signed(&store.sign_with(&uri).run());
    let told = ["uri has another id than objectId", "take id out of uri, or leave objectId out"];
    store.sign_with(&uri.clone().with("objectId", "2")).run().fails(3, &told);
    store
        .sign_with(&with_uri("pkcs11:token=a;slot-description=b").with("objectId", "1"))
        .run()
        .fails(3, &["uri: slot-description is not known here"]);
}

#[test]
fn odd_labels_and_ids_are_found_by_the_uri_that_list_prints() {
    let label = "a;b?c&d%e/f=ö ";
    let id = [0x00, 0xff, b'%', b';'];
    let store = Store::new([blueprint(
        "t;k=%1",
        Object::pair(key(Kind::P256), &id).map(|object| object.labelled(label)),
    )]);
    let listed = store.command(&["list", "--uri", "--module", &library()]).run().printed();
    let uri = listed.trim_end();
    assert!(uri.starts_with("pkcs11:token=t%3Bk=%251;serial="), "{uri}");
    assert!(uri.contains(";id=%00%FF%25%3B?"), "{uri}");
    assert_signed(&store.sign_with(&with_uri(&format!("{uri}&pin-source=env:TOKEN_PIN"))).run());
    let by_label = "pkcs11:object=a%3Bb%3Fc%26d%25e%2Ff%3D%C3%B6%20";
    let configuration =
        with_uri(&format!("{by_label}?module-path={}&pin-source=env:TOKEN_PIN", library()))
            .with("tokenLabel", "t;k=%1");
    assert_signed(&store.sign_with(&configuration).run());
}

/// Of two keys under one id, and of those without one, the label has to say which: some have none that is text.
#[test]
fn each_uri_that_list_prints_is_taken_back() {
    let pair = |kind, id: &[u8], label: &[u8]| {
        let pair = Object::pair(key(kind), id).map(|object| object.labelled(label));
        pair.into_iter().collect::<Vec<_>>()
    };
    let odd = |id: &[u8]| {
        let labels = [&b"key\0\0"[..], b"\xffkey", b"a;b?c&d%e/f=\xc3\xb6 ", b"\x1b[2J\n", b"-o"];
        let kinds = [Kind::P256, Kind::P384, Kind::Rsa(2048), Kind::Ed25519, Kind::P521];
        kinds.into_iter().zip(labels).flat_map(|(kind, label)| pair(kind, id, label)).collect()
    };
    let named: Vec<_> = pair(Kind::OtherRsa, &[7], b"\xff\0");
    let store = Store::new([
        blueprint("t;k=%1", [odd(b""), named].concat()),
        blueprint(" ö", odd(&[0, b'%'])),
        blueprint("", pair(Kind::P256, &[0], b"")),
    ]);
    let list = store.command(&["list", "--uri", softhsm_option()]).run();
    let listed = list.printed_beside(&["warning: no URI for a key of token", "can't be named"]);
    assert_eq!(list.stderr.matches("can't be named").count(), 4, "{}", list.stderr);
    assert_eq!(listed.lines().count(), 8, "{listed}");
    for uri in listed.lines() {
        let check = store.command(&["check", "--no-login", "--uri", uri]).run();
        assert!(check.told(0).contains("✔ certificate"), "{uri}: {check:?}");
    }
    // What can't be named isn't offered for a kubeconfig.
    let store = token_with(pair(Kind::P256, b"", b"key\0\0"));
    let kubeconfig = store.command(&["kubeconfig", softhsm_option(), "--token-label=test token"]);
    kubeconfig.run().fails(6, &["no usable key was found", "can't be named"]);
}

#[test]
fn what_p11tool_prints_can_be_pasted() {
    let store = token_with_pair(Kind::P256);
    let mut p11tool = tool("p11tool", "gnutls-bin");
    p11tool.args(["--provider", &library(), "--list-all-certs", "--only-urls", "--batch"]);
    p11tool.arg("pkcs11:token=test%20token").env("SOFTHSM2_CONF", store.path("softhsm2.conf"));
    let uri = printed(&mut p11tool);
    let uri = uri.lines().find(|line| line.starts_with("pkcs11:")).unwrap().to_owned();
    assert!(uri.contains("model=") && uri.contains("manufacturer="), "{uri}");
    let configuration =
        with_uri(&uri).with("pathLib", &library()).with("pinSource", "env:TOKEN_PIN");
    assert_signed(&store.sign_with(&configuration).run());
    // As it prints what a TPM pads.
    let padded =
        configuration.clone().with("uri", &uri.replace("test%20token", "test%20token%00%00"));
    assert_signed(&store.sign_with(&padded).run());
    let other = configuration.with("uri", &uri.replace("model=", "model=x"));
    store.sign_with(&other).run().fails(5, &["no token with", "model \"xSoftHSM"]);
    // A token whose label is empty is no other one.
    let store = Store::new([
        blueprint("", Object::pair(key(Kind::P256), &[1])),
        blueprint("other", Object::pair(key(Kind::P384), &[1])),
    ]);
    let uri = format!("pkcs11:token=;id=%01?module-path={}&pin-source=env:TOKEN_PIN", library());
    assert_signed(&store.sign_with(&with_uri(&uri)).run());
    let both = with_uri(&uri).with("tokenLabel", "other");
    store.sign_with(&both).run().fails(3, &["uri has another token than tokenLabel"]);
}

/// OpenSC has printed `id=%0102` for the bytes 01 02, and people write the number itself.
#[test]
fn an_id_without_percent_signs_is_told_as_it_was_meant() {
    let store = token_with(Object::pair(key(Kind::P256), &[1, 2]));
    for (id, read, help) in [
        (
            "%0102",
            "no certificate with objectId \"0x013032\"",
            "if a URI has id=%0102, write id=%01%02",
        ),
        ("2", "no certificate with objectId \"50\"", "if a URI has id=2, write id=%02"),
    ] {
        let uri = format!(
            "pkcs11:token=test%20token;id={id}?module-path={}&pin-source=env:TOKEN_PIN",
            library()
        );
        store.sign_with(&with_uri(&uri)).run().fails(6, &[read, help]);
        let listed = store.command(&["list", "--uri", &uri]).run();
        listed.told(6);
        assert_contains(&listed.stderr, &["no key or certificate with", help]);
    }
}

#[test]
fn a_library_that_only_p11_kit_knows_by_name_is_to_be_named_by_its_path() {
    let store = token_with_pair(Kind::P256);
    let uri = "pkcs11:token=test%20token;id=%01?module-name=softhsm2";
    let told = ["module-name is not known here", "module-path=/usr/lib/softhsm/libsofthsm2.so"];
    store.sign_with(&with_uri(uri)).run().fails(3, &told);
}
