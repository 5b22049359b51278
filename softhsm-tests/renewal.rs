//! Several certificates of a key, and several keys, under one CKA_ID: what a renewal leaves behind.

use rcgen::ExtendedKeyUsagePurpose::ClientAuth;

use crate::fixture::*;

/// A certificate of the P-256 key for jane, this many days from now.
fn janes(days: i32) -> Vec<u8> {
    issued(Kind::P256, "/O=dev/CN=jane", days, "clientAuth")
}

fn jane(der: &[u8]) -> Object {
    Object::issued(der.to_owned(), &[1]).labelled("jane")
}

/// The P-256 key and these certificates, all with the same CKA_ID, subject and label.
fn renewed(certificates: &[&[u8]]) -> Store {
    let private = Object::key(key(Kind::P256), &[1]).labelled("jane");
    token_with(std::iter::once(private).chain(certificates.iter().map(|der| jane(der))))
}

fn signed(store: &Store, configuration: &Configuration) -> Outcome {
    store.sign_with(&configuration.clone().with("pinSource", "env:TOKEN_PIN")).run()
}

#[track_caller]
fn assert_is_of(outcome: &Outcome, key: &Key) {
    let scheme = match key.kind {
        Kind::Rsa(_) | Kind::OtherRsa => Scheme::Pkcs1(Hash::Sha256),
        _ => Scheme::Ecdsa,
    };
    assert_verifies(key, scheme, &sample(32), &outcome.silently().signature());
}

fn command(store: &Store, name: &str, arguments: &[&str]) -> Invocation {
    store.with_pin(&[name, softhsm_option()]).arguments(arguments)
}

/// The keys of the only token, as `list --json` has them.
fn listed(store: &Store, arguments: &[&str]) -> Vec<Value> {
    command(store, "list", &["--json"]).arguments(arguments).run().keys()
}

/// Notes, usable and needsLabel of each key.
fn remarks(store: &Store, arguments: &[&str]) -> Value {
    let keys = listed(store, arguments).into_iter();
    keys.map(|key| json!([key["notes"], key["usable"], key["needsLabel"]])).collect()
}

#[test]
fn of_several_certificates_of_a_key_the_one_valid_now_and_longest_is_meant_everywhere() {
    let [older, expired, short, long] = [-2, -1, 20, 100].map(|days| {
        expiring(Kind::P256, "jane", time::Duration::days(days), ClientAuth, authority())
    });
    for (certificates, meant, is_expired) in [
        (&[&*expired, &*long][..], &long, false),
        (&[&*long, &*expired], &long, false),
        (&[&*short, &*long, &*expired], &long, false),
        (&[&*long, &*short], &long, false),
        (&[&*older, &*expired], &expired, true),
    ] {
        let store = renewed(certificates);
        let by_id = store.configuration();
        let by_label = by_id.clone().without("objectId").with("objectLabel", "jane");
        let by_both = by_id.clone().with("objectLabel", "jane");
        for configuration in [by_id, by_label, by_both] {
            let outcome = store.certificate_with(&configuration).run();
            assert_eq!(outcome.certificate(), **meant);
            if is_expired {
                assert!(outcome.stderr.contains("it expired"), "{}", outcome.stderr);
            } else {
                outcome.silently();
                assert_is_of(&signed(&store, &configuration), key(Kind::P256));
            }
        }
        if is_expired {
            continue;
        }
        let object = ["--object-id=1", "--token-label=test token"];
        let check = command(&store, "check", &object).argument("--pin-source=env:TOKEN_PIN");
        let (report, end) = (check.run(), expiry(meant));
        assert!(report.silently().printed().contains(&format!("it expires {end}")), "{report:?}");

        let keys = listed(&store, &["--login", "--pin-source=env:TOKEN_PIN"]);
        let (good, others): (Vec<_>, Vec<_>) =
            keys.iter().partition(|key| key["usable"] == json!(true));
        let [good] = good[..] else { panic!("{keys:?}") };
        assert_eq!((&good["needsLabel"], &good["notes"]), (&json!(false), &json!([])));
        assert_eq!(good["certificate"]["expires"], end);
        let is_superseded = |key: &&&Value| key["notes"].to_string().contains("superseded");
        assert_eq!(others.iter().filter(is_superseded).count(), certificates.len() - 1);

        for arguments in [&[][..], &["--object-id=1"], &["--object-label=jane"]] {
            let entry = command(&store, "kubeconfig", arguments).run();
            let entry = entry.silently().printed();
            assert!(entry.contains("--object-id=1"), "{entry}");
            assert!(!entry.contains("--object-label"), "{entry}");
        }
    }
}

#[test]
fn which_of_several_certificates_is_taken_is_told_with_v() {
    let long = janes(100);
    let store = renewed(&[&janes(-1), &long]);
    let asked = store.certificate_with(&store.configuration());
    let outcome = asked.variable("PKCS11_EXTERNAL_SIGNER_LOG", "info").run();
    let (_, parsed) = x509_parser::parse_x509_certificate(&long).unwrap();
    let serial = parsed.raw_serial_as_string().replace(':', "").to_uppercase();
    let told = format!("is taken, serial number {serial}");
    assert!(outcome.stderr.contains("2 certificates with objectId \"1\""), "{}", outcome.stderr);
    assert!(outcome.stderr.contains(&told), "{}", outcome.stderr);
}

#[test]
fn a_certificate_that_is_there_twice_is_one() {
    let der = janes(100);
    let store = renewed(&[&der, &der]);
    assert_eq!(remarks(&store, &[]), json!([[[], true, false]]));
    assert_eq!(store.certificate_with(&store.configuration()).run().silently().certificate(), der);
    command(&store, "kubeconfig", &[]).run().silently().printed();
}

#[test]
fn of_certificates_that_nothing_tells_apart_none_is_taken() {
    let other = issued(Kind::Rsa(2048), "/O=dev/CN=jane", 100, "clientAuth");
    let store = token_with([
        Object::key(key(Kind::P256), &[1]).labelled("jane"),
        Object::key(key(Kind::Rsa(2048)), &[1]).labelled("jane"),
        jane(&janes(100)),
        jane(&other),
    ]);
    let told = [
        "2 certificates with objectId \"1\"",
        "to the certificate that is meant, or remove what is not used",
    ];
    store.certificate_with(&store.configuration()).run().fails(6, &told);
    let remark = json!([["ambiguous"], false, true]);
    assert_eq!(remarks(&store, &[]), json!([remark, remark]));
    // What would never work isn't written, nor is there a choice of two that are the same.
    command(&store, "kubeconfig", &["--object-id=1"]).run().fails(6, &told);
    command(&store, "kubeconfig", &[]).run().fails(6, &["no usable key"]);
    // The remedy works.
    for kind in [Kind::P256, Kind::Rsa(2048)] {
        let file = key(kind).certificate_pem();
        let configuration = store.configuration();
        let configuration = configuration.with("certificateFile", file.to_str().unwrap());
        assert_is_of(&signed(&store, &configuration), key(kind));
    }
}

#[test]
fn of_several_keys_the_certificates_is_meant() {
    for (own, other) in [
        (Kind::Rsa(2048), Kind::OtherRsa),
        (Kind::P256, Kind::P384),
        (Kind::P384, Kind::P256),
        (Kind::P256, Kind::Rsa(2048)),
    ] {
        let (own, other) = (key(own), key(other));
        let keys = |first, second| [Object::key(first, &[1]), Object::key(second, &[1])];
        for keys in [keys(own, other), keys(other, own)] {
            let [first, second] = keys.map(|key| key.labelled("jane"));
            let certificate = Object::certificate(own, &[1]).labelled("jane");
            let on_token = token_with([first.clone(), second.clone(), certificate]);
            assert_is_of(&signed(&on_token, &on_token.configuration()), own);
            let rows = remarks(&on_token, &["--login", "--pin-source=env:TOKEN_PIN"]);
            assert_eq!(rows[0], json!([[], true, true]), "{rows}");
            let alone = token_with([first, second]);
            let file = own.certificate_pem();
            let configuration = alone.configuration();
            let by_file = configuration.with("certificateFile", file.to_str().unwrap());
            assert_is_of(&signed(&alone, &by_file), own);
        }
    }
}

/// A private key of an elliptic curve shows no point, but its public key does and has its label.
#[test]
fn keys_on_one_curve_are_told_apart_by_their_labels() {
    let (own, other) = (key(Kind::P256), key(Kind::Authority));
    let store = token_with([
        Object::key(other, &[1]).labelled("old"),
        Object::key(own, &[1]).labelled("jane"),
        Object::certificate(own, &[1]).labelled("jane"),
    ]);
    signed(&store, &store.configuration()).fails(6, &["2 private keys with objectId \"1\""]);
    assert_is_of(&signed(&store, &store.configuration().with("objectLabel", "jane")), own);
}

/// What `openssl req -x509` makes is a CA's, and its private key is hidden before a login.
#[test]
fn a_self_signed_certificate_is_found_by_its_id() {
    let own = key(Kind::Authority);
    let store = token_with(Object::pair(own, &[1]));
    store.certificate_with(&store.configuration()).run().silently().certificate();
    let shown = command(&store, "list", &[]).run().silently().printed();
    assert!(shown.contains("no certificate but those of CAs"), "{shown}");
    let shown = command(&store, "list", &["--object-id=1"]).run().silently().printed();
    assert!(shown.contains("test authority"), "{shown}");
    for arguments in [
        &["--object-id=1"][..],
        &["--uri=pkcs11:id=%01"],
        &["--login", "--pin-source=env:TOKEN_PIN"],
    ] {
        let entry = command(&store, "kubeconfig", arguments).run();
        let entry = entry.silently().printed();
        assert!(entry.contains("name: test authority"), "{entry}");
    }
    command(&store, "kubeconfig", &["--object-id=2"])
        .run()
        .fails(6, &["no key or certificate with", "--login` shows also what a token hides"]);
    // One beside a public key that isn't its own is a CA's, as those in cackey are.
    let beside = Object::public_key(key(Kind::OtherRsa), &[1]);
    let store = token_with([Object::certificate(own, &[1]), beside]);
    let shown = command(&store, "list", &[]).run().silently().printed();
    assert!(shown.contains("no certificate but those of CAs"), "{shown}");
}

/// Key types that are found on tokens are reported by name.
#[test]
fn a_key_of_an_unsupported_type_is_told_by_its_name() {
    let directory = tempfile::tempdir().unwrap();
    let private = directory.path().join("private.pem");
    let out = private.to_str().unwrap();
    openssl(["genpkey", "-algorithm", "ED448", "-out", out]);
    let (file, usage) = (directory.path().join("ed448"), "extendedKeyUsage=clientAuth");
    let [_, der] = issue(&file, &private, "/CN=jane", usage, 1, &authority());
    let store = token_with([Object::issued(fs::read(der).unwrap(), &[1])]);
    let told = ["a key of an unsupported type: 1.3.101.113"];
    store.certificate_with(&store.configuration()).run().fails(6, &told);
}

/// Requests don't look at it, and `check` ends as they do.
#[test]
fn a_stale_public_key_is_remarked_and_the_private_key_decides() {
    let (own, other) = (key(Kind::P256), key(Kind::P384));
    let certificate = Object::certificate(own, &[1]);
    let object = ["--object-id=1", "--token-label=test token"];
    let check = |store: &Store, arguments: &[&str]| {
        command(store, "check", &object).arguments(arguments).run()
    };
    let stale =
        token_with([Object::key(own, &[1]), Object::public_key(other, &[1]), certificate.clone()]);
    assert_is_of(&signed(&stale, &stale.configuration()), own);
    let report = check(&stale, &["--pin-source=env:TOKEN_PIN"]).told(0);
    assert!(report.contains("the token holds another public key under this id"), "{report}");
    // Without the private key it can't be told.
    let report = check(&stale, &["--no-login"]).told(6);
    assert!(report.contains("does not belong to"), "{report}");
    let foreign =
        token_with([Object::key(other, &[1]), Object::public_key(other, &[1]), certificate]);
    signed(&foreign, &foreign.configuration()).fails(6, &["does not belong to"]);
    let report = check(&foreign, &["--pin-source=env:TOKEN_PIN"]).told(6);
    assert_eq!(report.matches("does not belong to").count(), 1, "{report}");
}

#[test]
fn a_key_that_may_not_sign_is_told_as_that() {
    let store = token_with([
        Object::key(key(Kind::P256), &[1]).not_for_signing(),
        Object::certificate(key(Kind::P256), &[1]),
    ]);
    let login = ["--login", "--pin-source=env:TOKEN_PIN"];
    assert_eq!(remarks(&store, &login), json!([[["not-for-signing"], false, false]]));
}
