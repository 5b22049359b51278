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
fn a_pin_in_a_uri_works_with_the_warning_of_pin() {
    let store = token_with_pair(Kind::P256);
    let uri = format!("pkcs11:token=test%20token;id=%01?module-path={}&pin-value={PIN}", library());
    let outcome = store.sign_with(&with_uri(&uri)).run();
    assert_signed(&outcome);
    outcome.says_only(&["warning: the PIN stands in the kubeconfig"]);
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
    let other = configuration.with("uri", &uri.replace("model=", "model=x"));
    store.sign_with(&other).run().fails(5, &["no token with", "model \"xSoftHSM"]);
}
