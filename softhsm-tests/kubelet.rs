//! Sealed registry passwords, opened in a token: `kubelet-credential-provider`, `unseal` and `check --sealed`.

pub(crate) mod keys;
mod pulls;
mod secrecy;

use crate::fixture::*;
use crate::matrix::codes;
use crate::seal::{CONFIG, PASSWORD, sealed_by_openssl};

pub(crate) const IMAGE: &str = "registry.example:5000/team/app";
const V1: &str = "credentialprovider.kubelet.k8s.io/v1";

/// A key that opens, with its certificate.
fn pair(kind: Kind) -> [Object; 2] {
    let key = key(kind);
    [Object::key(key, &[1]).for_opening(true), Object::certificate(key, &[1])]
}

fn node(kind: Kind) -> Store {
    token_with(pair(kind))
}

/// `config.json` sealed to these.
fn sealed(store: &Store, name: &str, config: &str, kinds: &[Kind]) -> PathBuf {
    let certificates: Vec<_> = kinds.iter().map(|kind| key(*kind).certificate_pem()).collect();
    let certificates: Vec<_> = certificates.iter().map(PathBuf::as_path).collect();
    sealed_to(store, name, config, &certificates)
}

/// The same by the certificates.
fn sealed_to(store: &Store, name: &str, config: &str, certificates: &[&Path]) -> PathBuf {
    let directory = store.directory.path();
    let (config_file, out) = (directory.join("config.json"), directory.join(name));
    fs::write(&config_file, config).unwrap();
    let mut seal = Invocation::new(directory).arguments(&["seal", "--out", text(&out)]);
    for certificate in certificates {
        seal = seal.arguments(&["--recipient", text(certificate)]);
    }
    seal.argument(text(&config_file)).run().printed();
    out
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn request(image: &str, version: &str) -> String {
    let request =
        json!({"kind": "CredentialProviderRequest", "apiVersion": version, "image": image});
    format!("{request}\n")
}

const PROVIDER: &str = "kubelet-credential-provider";

/// The provider for a file, without its request.
fn provider(store: &Store, file: &Path) -> Invocation {
    with_token(store, PROVIDER).arguments(&of(file))
}

/// With the PIN for it.
fn of(file: &Path) -> [&str; 3] {
    ["--sealed", text(file), "--pin-source=env:TOKEN_PIN"]
}

fn with_token(store: &Store, command: &str) -> Invocation {
    with_token_through(store, softhsm_option(), command)
}

fn with_token_through(store: &Store, module: &str, command: &str) -> Invocation {
    store.with_pin(&[command, module, "--token-label", &store.tokens[0].label])
}

pub(crate) fn asked(invocation: Invocation, image: &str) -> Outcome {
    let outcome = invocation.piped(request(image, V1)).run();
    assert!(!outcome.stderr.contains(PASSWORD), "{}", outcome.stderr);
    outcome
}

#[track_caller]
pub(crate) fn assert_answers(outcome: &Outcome, key: &str, cache: &str) {
    assert_eq!(
        outcome.answer(),
        json!({
            "apiVersion": V1,
            "kind": "CredentialProviderResponse",
            "cacheKeyType": cache,
            "auth": {key: {"username": "nodes", "password": PASSWORD}},
        })
    );
}

#[test]
fn a_file_for_four_nodes_opens_on_each_and_on_no_fifth() {
    let kinds = [Kind::Rsa(2048), Kind::P256, Kind::P384, Kind::P521];
    for kind in kinds {
        let store = node(kind);
        let file = sealed(&store, "registry.cms", CONFIG, &kinds);
        let outcome = asked(provider(&store, &file), IMAGE);
        assert_answers(&outcome, "registry.example:5000", "Registry");
        outcome.silently();
    }
    let store = node(Kind::OtherRsa);
    let file = sealed(&store, "registry.cms", CONFIG, &kinds);
    asked(provider(&store, &file), IMAGE).fails_in_one_line(6, &["none of the recipients of"]);
}

/// Whichever place the node has among them.
#[test]
fn a_file_for_four_times_the_nodes_is_opened_with_as_many_calls() {
    let calls_with = |others: usize| {
        let store = node(Kind::P256);
        let other = |i| {
            let node = rcgen::generate_simple_self_signed([format!("node{i}")]).unwrap();
            store.file(&format!("node{i}.pem"), node.cert.pem(), 0o600)
        };
        let mut certificates: Vec<_> = (0..others).map(other).collect();
        certificates.push(key(Kind::P256).certificate_pem());
        let certificates: Vec<_> = certificates.iter().map(PathBuf::as_path).collect();
        let file = sealed_to(&store, "registry.cms", CONFIG, &certificates);
        let provider = with_token_through(&store, &store.faulty_module(), PROVIDER);
        asked(provider.arguments(&of(&file)).suffering(&store, ""), IMAGE).succeeded();
        store.history().len()
    };
    assert_eq!(calls_with(4), calls_with(16));
}

#[test]
fn what_openssl_sealed_as_seal_does_is_opened() {
    let rsa = text(&key(Kind::Rsa(2048)).certificate_pem()).to_owned();
    let ec = text(&key(Kind::P256).certificate_pem()).to_owned();
    let oaep = ["-recip", &rsa, "-keyopt", "rsa_padding_mode:oaep"];
    let oaep_sha256 = [&oaep[..], &["-keyopt", "rsa_oaep_md:sha256"]].concat();
    let ecdh = ["-recip", &ec, "-keyopt", "ecdh_kdf_md:sha256"];
    let cases = [
        (Kind::Rsa(2048), [&["-aes-256-gcm"], &oaep_sha256[..]].concat(), ""),
        (Kind::P256, [&["-aes-256-gcm"], &ecdh[..]].concat(), ""),
        (Kind::Rsa(2048), [&["-aes-256-cbc"], &oaep_sha256[..]].concat(), "AuthEnvelopedData"),
        (Kind::Rsa(2048), [&["-aes-128-gcm"], &oaep_sha256[..]].concat(), "AES-256-GCM"),
        (Kind::Rsa(2048), [&["-aes-256-gcm"], &oaep[..]].concat(), "OAEP with SHA-256"),
        (Kind::Rsa(2048), vec!["-aes-256-gcm", "-recip", &rsa], "OAEP with SHA-256"),
        (Kind::P256, vec!["-aes-256-gcm", "-recip", &ec], "ECDH with SHA-256"),
    ];
    for (kind, options, refused) in cases {
        let store = node(kind);
        let directory = store.directory.path();
        let (config, out) = (directory.join("config.json"), directory.join("openssl.cms"));
        fs::write(&config, CONFIG).unwrap();
        sealed_by_openssl(&out, text(&config), &options);
        let outcome = asked(provider(&store, &out), IMAGE);
        match refused {
            "" => assert_answers(&outcome, "registry.example:5000", "Registry"),
            reason => outcome.fails_in_one_line(3, &[reason]),
        }
    }
}

#[test]
fn every_version_of_the_api_is_answered_in_kind() {
    let store = node(Kind::P256);
    let file = sealed(&store, "registry.cms", CONFIG, &[Kind::P256]);
    for version in ["v1", "v1beta1", "v1alpha1"] {
        let version = format!("credentialprovider.kubelet.k8s.io/{version}");
        let outcome = provider(&store, &file)
            .arguments(&["--cache", "90m"])
            .piped(request(IMAGE, &version))
            .run();
        let answer = outcome.answer();
        assert_eq!(answer["apiVersion"], version.as_str());
        assert_eq!(answer["cacheDuration"], "5400s");
    }
    // What kubelet adds with tokenAttributes.
    let more = json!({
        "kind": "CredentialProviderRequest", "apiVersion": V1, "image": IMAGE,
        "serviceAccountToken": "e30.e30.c2ln", "serviceAccountAnnotations": {"a": "b"},
    });
    let outcome = provider(&store, &file).piped(more.to_string()).run();
    assert_answers(&outcome, "registry.example:5000", "Registry");
}

#[test]
fn a_certificate_that_is_not_on_the_token_is_named() {
    let key = key(Kind::P256);
    let mine = Object::key(key, &[1]).for_opening(true);
    let certificate = key.certificate_pem();
    // Its public key shows which key is meant; where there is none, the options say it.
    let with_public_key = vec![mine.clone(), Object::public_key(key, &[1])];
    for (objects, more) in [(with_public_key, &[][..]), (vec![mine], &["--object-id", "1"])] {
        let store = token_with(objects);
        let file = sealed(&store, "registry.cms", CONFIG, &[Kind::P256]);
        asked(provider(&store, &file), IMAGE).fails_in_one_line(6, &["none of the recipients of"]);
        let named = ["--certificate-file", text(&certificate)];
        let named = provider(&store, &file).arguments(&named).arguments(more);
        assert_answers(&asked(named, IMAGE), "registry.example:5000", "Registry");
    }
}

#[test]
fn a_key_that_wants_its_pin_each_time_opens() {
    let key = key(Kind::Rsa(2048));
    let store = token_with([
        Object::key(key, &[1]).for_opening(true).always_authenticate(),
        Object::certificate(key, &[1]),
    ]);
    let file = sealed(&store, "registry.cms", CONFIG, &[Kind::Rsa(2048)]);
    assert_answers(&asked(provider(&store, &file), IMAGE), "registry.example:5000", "Registry");
}

#[test]
fn a_key_that_is_not_for_opening_is_named() {
    for (kind, attribute) in [(Kind::Rsa(2048), "CKA_DECRYPT"), (Kind::P256, "CKA_DERIVE")] {
        let store = token_with([
            Object::key(key(kind), &[1]).for_opening(false),
            Object::certificate(key(kind), &[1]),
        ]);
        let file = sealed(&store, "registry.cms", CONFIG, &[kind]);
        let outcome = asked(provider(&store, &file), IMAGE);
        outcome.fails_in_one_line(8, &[&format!("its {attribute} is false")]);
    }
}

#[test]
fn what_goes_wrong_is_an_error_and_never_an_empty_answer() {
    let store = node(Kind::P256);
    let file = sealed(&store, "registry.cms", CONFIG, &[Kind::P256]);
    let cut = store.path("cut.cms");
    let whole = fs::read_to_string(&file).unwrap();
    fs::write(&cut, &whole[..whole.len() / 2]).unwrap();
    let gone = store.command(&[PROVIDER, softhsm_option(), "--token-label", "gone"]);
    let no_pin = || with_token(&store, PROVIDER).arguments(&["--sealed", text(&file)]);
    for (provider, code, expected) in [
        (provider(&store, &cut), 3, "is no sealed file"),
        (provider(&store, Path::new("/no/such/file")), 3, "No such file"),
        (gone.arguments(&of(&file)), 5, "no token with tokenLabel \"gone\""),
        (no_pin(), 7, "no terminal to ask for it and no pinSource"),
        (no_pin().argument("--pin-source=askpass"), 3, "has no person to ask"),
    ] {
        asked(provider, IMAGE).fails_in_one_line(code, &[expected]);
    }
    let digest = format!("{IMAGE}@sha256:00");
    asked(provider(&store, &file), &digest).fails_in_one_line(2, &["without tag and digest"]);
    provider(&store, &file).piped("garbage").run().fails_in_one_line(2, &["not valid JSON"]);
}

#[test]
fn the_key_of_a_certificate_that_has_expired_opens() {
    let kind = Kind::P256;
    let expired = issued(kind, "/CN=node1", -1, "clientAuth");
    let store = token_with([
        Object::key(key(kind), &[1]).for_opening(true),
        Object::issued(expired.clone(), &[1]),
    ]);
    let directory = store.directory.path();
    let [certificate, config, out] =
        ["node1.der", "config.json", "registry.cms"].map(|it| directory.join(it));
    fs::write(&certificate, expired).unwrap();
    fs::write(&config, CONFIG).unwrap();
    let seal = Invocation::new(directory).arguments(&["seal", "--recipient", text(&certificate)]);
    let seal = seal.arguments(&["--out", text(&out), text(&config)]).run();
    seal.printed_beside(&["the certificate of CN=node1 has expired"]);
    let outcome = asked(provider(&store, &out), IMAGE);
    assert_answers(&outcome, "registry.example:5000", "Registry");
    outcome.silently();
}

/// A minute before kubelet kills the provider, whichever call doesn't return.
#[test]
fn a_library_that_hangs_is_left_in_time() {
    thread::scope(|scope| {
        for fault in ["C_Initialize:hang", "C_Login:hang", "C_DeriveKey:hang"] {
            scope.spawn(move || {
                let store = node(Kind::P256);
                let file = sealed(&store, "registry.cms", CONFIG, &[Kind::P256]);
                let outcome = asked(faulty_provider(&store, &file, fault), IMAGE);
                let said = ["hangs: ", " has taken all the time that is waited for it; check"];
                outcome.fails_in_one_line(4, &said);
                assert!(outcome.took.as_secs() >= 44, "{outcome:?}");
            });
        }
    });
}

/// The calls that open; those before them are `matrix`'s.
#[test]
fn whatever_a_call_returns_that_opens_it_is_named_and_no_answer_is_given() {
    let rsa = (Kind::Rsa(2048), ["C_DecryptInit", "C_Decrypt"].as_slice());
    let ec = (Kind::P256, ["C_DeriveKey"].as_slice());
    thread::scope(|scope| {
        for (kind, functions) in [rsa, ec] {
            scope.spawn(move || {
                let store = node(kind);
                let file = sealed(&store, "registry.cms", CONFIG, &[kind]);
                for (function, code) in
                    functions.iter().flat_map(|it| codes::ALL.iter().map(move |code| (it, code)))
                {
                    let fault = format!("{function}:return={}", code.value);
                    let outcome = asked(faulty_provider(&store, &file, &fault), IMAGE);
                    let exit = outcome.status.code().unwrap();
                    assert!([4, 5, 6, 7, 8].contains(&exit), "{fault}: {outcome:?}");
                    outcome.fails_in_one_line(exit, &[]);
                    let named = match code.name {
                        // The PIN is given for the operation then, which SoftHSM doesn't expect of this key.
                        "CKR_USER_NOT_LOGGED_IN" => "CKR_OPERATION_NOT_INITIALIZED",
                        name => name,
                    };
                    let is_named = [code.name, named, "does not open"]
                        .iter()
                        .any(|it| outcome.stderr.contains(it));
                    assert!(is_named, "{function} {}: {}", code.name, outcome.stderr);
                }
            });
        }
    });
}

/// The provider through the library that misbehaves.
fn faulty_provider(store: &Store, file: &Path, faults: &str) -> Invocation {
    let provider = with_token_through(store, &store.faulty_module(), PROVIDER);
    provider.arguments(&of(file)).suffering(store, faults)
}

#[test]
fn a_wrong_stored_pin_reaches_the_token_once_however_often_kubelet_asks() {
    let store = node(Kind::P256);
    let file = sealed(&store, "registry.cms", CONFIG, &[Kind::P256]);
    let pull = || {
        let provider = faulty_provider(&store, &file, "").variable("TOKEN_PIN", WRONG_PIN);
        asked(provider, IMAGE).fails_in_one_line(7, &["PIN"]);
    };
    for _ in 0..50 {
        pull();
    }
    assert_eq!(store.calls("C_Login"), ["0xa0"]);
}

#[test]
fn a_person_unseals_at_a_terminal() {
    let store = node(Kind::P256);
    let file = sealed(&store, "registry.cms", CONFIG, &[Kind::P256]);
    let unseal = || with_token(&store, "unseal").argument(text(&file));
    unseal().run().fails(7, &["wants a person at a terminal"]);
    let script = format!(
        "\"$SIGNER\" unseal {} --module {} --token-label '{}' </dev/tty",
        file.display(),
        softhsm_library().display(),
        store.tokens[0].label,
    );
    let outcome = store.command(&[]).within("/bin/sh", &script).at_terminal().finish_with_pin();
    assert_eq!(outcome.shown(), format!("{CONFIG}\n"));
}

#[test]
fn a_check_says_what_kubelet_would_be_told_without_the_password() {
    let store = node(Kind::P256);
    let file = sealed(&store, "registry.cms", CONFIG, &[Kind::P256, Kind::P384]);
    let check =
        |more: &[&str]| with_token(&store, "check").arguments(&of(&file)).arguments(more).run();
    let text = check(&["--image", "registry.example:5000/team/app"]).printed();
    assert_contains(
        &text,
        &[
            "recipient 1 of 2",
            "CN=test p256",
            "registry.example:5000: user \"nodes\"",
            "user \"nodes\" of registry.example:5000, kept for its registry",
        ],
    );
    assert!(!text.contains(PASSWORD));
    let nothing = check(&["--image", "docker.io/library/nginx"]).printed();
    assert!(nothing.contains("kubelet gets no login"), "{nothing}");
    assert_eq!(check(&["--json", "--no-login"]).json()["exitCode"], 0);
    let store = node(Kind::P521);
    let other = with_token(&store, "check").arguments(&of(&file)).run();
    assert!(other.told(6).contains("none of the recipients of"));
}
