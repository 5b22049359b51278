//! What the signer answers over its socket, and to whom.

use std::os::unix::net::UnixDatagram;

use super::*;

#[test]
fn each_kind_of_key_signs_as_api_servers_allow_it() {
    for (kind, algorithm) in [
        (Kind::Rsa(2048), "RS256"),
        (Kind::P256, "ES256"),
        (Kind::P384, "ES384"),
        (Kind::P521, "ES512"),
    ] {
        let signer = Signer::start(token_of_keys(&[kind]), &["--key=1"]);
        let token =
            signer.token(r#"{"sub":"system:serviceaccount:default:web","a":[1.0,"\u00fc"]}"#);
        let header = token.header.as_object().unwrap();
        assert_eq!(header.keys().map(String::as_str).collect::<Vec<_>>(), ["alg", "kid", "typ"]);
        assert_eq!((&header["alg"], &header["typ"]), (&json!(algorithm), &json!("JWT")));
        assert_eq!(token.claims["sub"], "system:serviceaccount:default:web");
        // An API server would give a key in a file the same id.
        let id = key_id("-pubin", &key(kind).public_pem());
        assert_eq!(token.key(), id, "{kind:?}");
    }
}

#[test]
fn a_key_of_which_api_servers_take_no_tokens_is_refused_at_once() {
    let store = token_of_keys(&[Kind::Ed25519]);
    let outcome = Signer::invocation(&store, softhsm_option(), &["--key=1"]).run();
    outcome.fails(6, &["an API server takes no token that a key Ed25519 has signed"]);
    let store = token_of_keys(&[Kind::P256]);
    let outcome = Signer::invocation(&store, softhsm_option(), &["--key=7"]).run();
    outcome.fails(6, &["no private key with objectId \"7\""]);
    assert!(!store.path("run/api.sock").exists());
    for (more, text) in [
        (&["--key=1", "--refresh=5m", "--publish-first=9m"][..], "less than twice --refresh"),
        (&["--key=1 shown"], "\"1 shown\" names no key"),
        (&["--key=file:/nowhere.pub"], "no key is named that can sign"),
        (&["--key=1", "--pin-source=prompt"], ""),
    ] {
        let outcome = Signer::invocation(&store, softhsm_option(), more).run();
        assert_ne!(outcome.status.code(), Some(0));
        outcome.says(&[text]);
    }
}

#[test]
fn what_is_no_request_for_a_token_gets_none() {
    let signer = Signer::start(token_of_keys(&[Kind::P256]), &["--key=1", "--longest-life=24h"]);
    signer
        .ask(&["sign", "[]"])
        .failed()
        .says(&["InvalidArgument", "the claims are no JSON object"]);
    assert_eq!(signer.ask(&["metadata"]).printed(), "86400\n");
    let keys = signer.ask(&["keys"]).json();
    assert_eq!((keys["refresh"].as_u64(), keys["keys"].as_array().unwrap().len()), (Some(300), 1));
    let status = signer.status();
    assert_eq!(status["token"]["state"], "open");
    assert_eq!(status["counts"]["failures"], json!({"InvalidArgument": 1}));
    assert_eq!(status["counts"]["signatures"], json!({}));
}

/// What a person and a monitor read; and nothing of the claims, however much is logged.
#[test]
fn what_was_signed_is_counted_and_not_told() {
    let mut signer = Signer::start(token_of_keys(&[Kind::P256]), &["--key=1", "-vv"]);
    for _ in 0..3 {
        signer.token(r#"{"sub":"very-secret-subject"}"#);
    }
    let told = signer.told();
    assert_contains(
        &told,
        &["can sign", "signs new tokens", "3 tokens signed", "next: nothing; for a rotation"],
    );
    let socket = format!("--socket={}", signer.socket.display());
    let command = ["service-account-signer", "status", &socket, "--metrics"];
    let metrics = signer.store.command(&command).run().printed();
    let id = signer.status()["keys"][0]["id"].as_str().unwrap().to_owned();
    let line = format!("pkcs11_service_account_signer_signatures_total{{kid=\"{id}\"}} 3\n");
    assert_contains(&metrics, &[&line, "pkcs11_service_account_signer_ready 1\n"]);
    let mut curl = tool("curl", "curl");
    curl.args(["--silent", "--unix-socket"]).arg(&signer.socket).arg("http://localhost/metrics");
    assert!(printed(&mut curl).contains(line.trim_end()));
    let outcome = signer.end();
    assert_eq!(outcome.status.code(), Some(0), "{outcome:?}");
    assert!(!outcome.stderr.contains("very-secret-subject"), "{outcome:?}");
    assert!(!outcome.stderr.contains("dmVyeS1zZWNyZXQ"), "{outcome:?}");
    assert!(!signer.socket.exists());
}

#[test]
fn two_signers_have_no_socket_in_common() {
    let signer = Signer::start(token_of_keys(&[Kind::P256]), &["--key=1"]);
    let other = Signer::invocation(&signer.store, softhsm_option(), &["--key=1"]).run();
    other.fails(3, &["another process listens there"]);
    signer.token("{}");
}

/// As `pkcs11-external-signer-service-accounts.socket` has it.
#[test]
fn systemd_opens_the_socket_and_hears_of_the_start() {
    let store = token_of_keys(&[Kind::P256]);
    let directory = store.path("run");
    fs::create_dir(&directory).unwrap();
    set_mode(&directory, 0o700);
    let socket = directory.join("api.sock");
    let notified = UnixDatagram::bind(store.path("notify")).unwrap();
    let options = options(&store);
    let activated: Vec<_> = options.iter().filter(|it| !it.starts_with("--socket")).collect();
    let listen = format!("--listen={}", socket.display());
    let notify = format!("NOTIFY_SOCKET={}", store.path("notify").display());
    let kept = ["TOKEN_PIN", "SOFTHSM2_CONF", &notify].map(|name| format!("--setenv={name}"));
    let mut before: Vec<String> = vec![listen];
    before.extend(kept);
    let running = store
        .with_pin(&[])
        .arguments(&activated.iter().map(|it| it.as_str()).collect::<Vec<_>>())
        .arguments(&[softhsm_option(), "--key=1"])
        .through("systemd-socket-activate", &before)
        .start(None);
    wait_until("systemd listens", || socket.exists());
    let signer = Signer { store, running: Some(running), socket };
    signer.token("{}");
    let mut told = String::new();
    while !told.contains("READY=1") {
        let mut text = [0; 4096];
        let length = notified.recv(&mut text).unwrap();
        told += str::from_utf8(&text[..length]).unwrap();
    }
    assert!(told.contains("STATUS=signs with 1 (ECDSA P-256, kid "), "{told}");
    let mut signer = signer;
    signer.end();
    // It is systemd's.
    assert!(signer.socket.exists());
}

/// With the program of the tests in place of the installed one.
#[test]
fn the_units_of_the_packages_are_in_order() {
    let directory = tempfile::tempdir().unwrap();
    let unit = |ending: &str| {
        let name = format!("pkcs11-external-signer-service-accounts.{ending}");
        let text = fs::read_to_string(at_root("scripts/systemd").join(&name)).unwrap();
        let text = text.replace("/usr/bin/pkcs11-external-signer", &format!("\"{PROGRAM}\""));
        let file = directory.path().join(&name);
        fs::write(&file, &text).unwrap();
        (file.to_str().unwrap().to_owned(), text)
    };
    let [(service, text), (socket, _)] = ["service", "socket"].map(unit);
    let verify = Invocation::new(directory.path()).program("systemd-analyze".as_ref());
    verify.arguments(&["verify", "--man=no", &service, &socket]).run().succeeded().silently();
    // The options are those that there are: a list that isn't there is what is wrong.
    let (_, command) = text.split_once("\nExecStart=").unwrap();
    let command = command.lines().next().unwrap();
    let here = directory.path().to_str().unwrap();
    let command = command.replace("%S", here).replace("%d", here);
    let run = Invocation::new(directory.path()).within("sh", &format!("exec {command}"));
    run.run().fails(3, &["the list of keys /etc/pkcs11-external-signer/service-account-keys"]);
}
