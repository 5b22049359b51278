//! The wire: what is answered, what is refused and by which name, and where the answer goes.

use rustix::pipe::pipe;

use crate::fixture::*;

/// A sign request that is right in all but its PIN: refused before a login, it says nothing of it.
fn sign_request_with_wrong_pin(store: &Store) -> Value {
    let configuration = store.configuration().with("pin", WRONG_PIN);
    sign_request(&configuration, &Options::pss(Hash::Sha256, -1), &sample(32))
}

#[test]
fn each_spelling_is_answered_in_its_own() {
    let store = token_with_pair(Kind::P256);
    let certificate = certificate_request(&store.configuration());
    let sign = sign_request(
        &store.configuration_with_pin_source(),
        &Options::hash(Hash::Sha256),
        &sample(32),
    );
    for (request, kind, answered, field) in [
        (&certificate, "CertificateRequest", "CertificateResponse", "certificate"),
        (&certificate, "Certificate", "ExternalPublicKey", "certificate"),
        (&sign, "SignRequest", "SignResponse", "signature"),
        (&sign, "Sign", "ExternalSigner", "signature"),
    ] {
        let outcome = store.ask(&replaced(request.clone(), "kind", json!(kind))).run();
        let answer = outcome.silently().answer();
        assert_eq!(answer["apiVersion"], API_VERSION);
        assert_eq!(answer["kind"], answered);
        assert!(!answer[field].as_str().unwrap().is_empty());
        assert_eq!(answer.as_object().unwrap().len(), 3, "{answer}");
    }
}

#[test]
fn what_is_not_ours_passes() {
    let store = token_with_pair(Kind::P256);
    let configuration =
        store.configuration().with("pathExec", "/usr/bin/whatever").with("colour", "blue");
    let request =
        replaced(certificate_request(&configuration), "spec", json!({"interactive": true}));
    store.ask(&request).run().certificate();
}

#[test]
fn a_field_that_is_wrong_or_missing_is_refused_by_its_name() {
    let store = token_with_pair(Kind::Rsa(2048));
    let right = sign_request_with_wrong_pin(&store);
    for (field, wrong) in [
        ("apiVersion", json!("external-signer.authentication.k8s.io/v2")),
        ("kind", json!("Encrypt")),
        ("configuration", json!({"slotId": 0})),
        ("digest", json!("not base64!")),
        ("signerOptsType", json!(7)),
        ("signerOpts", json!({"SaltLength": -1, "Hash": 5})),
        ("signerOpts", json!("{")),
    ] {
        store.ask(&replaced(right.clone(), field, wrong)).run().fails(2, &[field]);
    }
    for field in ["apiVersion", "kind", "configuration", "digest", "signerOptsType", "signerOpts"] {
        store.ask(&lacking(right.clone(), field)).run().fails(2, &["missing", field]);
    }
}

#[test]
fn without_a_request_it_says_what_it_is_and_where_to_start() {
    let home = tempfile::tempdir().unwrap();
    let help = Invocation::new(home.path()).argument("--help").run().silently().printed();
    assert_contains(&help, &["pathLib", "slotId", "objectId", "pinSource", "Exit codes"]);
    let outcome = Invocation::new(home.path()).run();
    assert_eq!(outcome.status.code(), Some(2));
    assert!(outcome.stdout.is_empty());
    outcome.says(&["PKCS#11", "kubeconfig", "EXTERNAL_SIGNER_PLUGIN_CONFIG", "--help"]);
}

#[test]
fn an_answer_that_has_nowhere_to_go_is_an_error() {
    let store = token_with_pair(Kind::P256);
    let request = certificate_request(&store.configuration());

    let full = File::options().write(true).open("/dev/full").unwrap();
    store.ask(&request).output(full).run().fails(2, &["No space left"]);

    let (reader, writer) = pipe().unwrap();
    drop(reader);
    store.ask(&request).output(writer).run().fails(2, &["standard output"]);
}
