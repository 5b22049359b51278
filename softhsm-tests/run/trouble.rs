//! What goes wrong between the command and the API server: told once, and a clean end for the
//! command, never a hang.

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use super::{run, run_recorded};
use crate::fixture::cluster::{JANE, cluster};
use crate::fixture::keys::{Kind, key};
use crate::fixture::openssl::{Issue, issue};
use crate::fixture::program::Outcome;
use crate::fixture::softhsm::{Object, Store, token_with};

/// A token below an intermediate authority that is on it: the certificate, and the token.
pub(super) fn token_below_an_intermediate() -> (Vec<u8>, Store) {
    let workshop = tempfile::tempdir().unwrap();
    let [root, root_key] = cluster().authority();
    let middle_key = key(Kind::P384).private_pem();
    let [middle_pem, middle] = issue(
        workshop.path(),
        "middle",
        &Issue {
            key: &middle_key,
            subject: "/CN=intermediate",
            extensions: "basicConstraints=critical,CA:TRUE\nkeyUsage=keyCertSign\n",
            days: 30,
            issuer: [&root, &root_key],
        },
    );
    let [_, own] = issue(
        workshop.path(),
        "own",
        &Issue {
            key: &key(Kind::P256).private_pem(),
            subject: JANE.subject,
            extensions: "extendedKeyUsage=clientAuth\n",
            days: 30,
            issuer: [&middle_pem, &middle_key],
        },
    );
    let [own, middle] = [own, middle].map(|path| fs::read(path).unwrap());
    let store = token_with([
        Object::key(key(Kind::P256), &[1]),
        Object::issued(own.clone(), &[1]),
        Object::issued(middle, &[2]),
    ]);
    (own, store)
}

/// kubectl in a run whose cluster's entry is changed so.
pub(super) fn whoami_with(store: &Store, change: impl FnOnce(&mut Value)) -> Outcome {
    whoami_within(store, change, &[])
}

/// The same with these variables in the environment.
pub(super) fn whoami_within(
    store: &Store,
    change: impl FnOnce(&mut Value),
    variables: &[(&str, &str)],
) -> Outcome {
    drop(run(store, &["true"]));
    let own = store.directory.path().join("kubeconfig");
    let mut config: Value = serde_json::from_slice(&fs::read(&own).unwrap()).unwrap();
    change(&mut config["clusters"][0]["cluster"]);
    let file = store.directory.path().join("changed");
    fs::write(&file, config.to_string()).unwrap();
    let file = file.to_str().unwrap();
    let arguments = ["--kubeconfig", file, "-v", "kubectl", "auth", "whoami"];
    variables
        .iter()
        .fold(run(store, &arguments), |run, (name, value)| {
            run.variable(name, value)
        })
        .run()
}

/// Demands one such error, or as many as fit at two seconds each on a machine that is busy, and not
/// one for each of kubectl's attempts.
#[track_caller]
pub(super) fn assert_told_seldom(outcome: &Outcome, error: &str) {
    let times = outcome.stderr.matches(error).count();
    let most = 1 + outcome.took.as_secs() / 2;
    assert!((1..=most).contains(&(times as u64)), "{outcome:?}");
}

/// Demands an explanation, and that the command had a quick end.
#[track_caller]
pub(super) fn assert_told(outcome: &Outcome, fragments: &[&str]) {
    assert_eq!(outcome.status.code(), Some(1), "{outcome:?}");
    assert_told_seldom(outcome, "error: cluster");
    for fragment in fragments {
        assert!(outcome.stderr.contains(fragment), "{fragment}: {outcome:?}");
    }
    assert!(outcome.took < Duration::from_secs(15), "{outcome:?}");
}

#[test]
fn a_server_that_is_not_there() {
    let store = cluster().token(Kind::P256, JANE);
    let free = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let outcome = whoami_with(&store, |cluster| {
        cluster["server"] = json!(format!("https://{free}"))
    });
    assert_told(&outcome, &["\"test\"", "Connection refused", "VPN"]);
    let outcome = whoami_with(&store, |cluster| {
        cluster["server"] = json!("https://nowhere.invalid")
    });
    assert_told(&outcome, &["nowhere.invalid", "no address", "DNS"]);
    for (server, reason) in [
        ("http://127.0.0.1:1", "not an https URL"),
        ("https://", "not a URL"),
    ] {
        let outcome = whoami_with(&store, |cluster| cluster["server"] = json!(server));
        assert_told(&outcome, &[reason]);
    }
}

#[test]
fn a_server_that_speaks_something_else() {
    let store = cluster().token(Kind::P256, JANE);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for connection in listener.incoming() {
            use std::io::Write as _;
            let _ = connection.unwrap().write_all(b"220 mail.example ESMTP\r\n");
        }
    });
    let outcome = whoami_with(&store, |cluster| {
        cluster["server"] = json!(format!("https://{address}"))
    });
    assert_told(&outcome, &["broke off", "corrupt"]);
}

#[test]
fn a_server_that_is_not_trusted() {
    let store = cluster().token(Kind::P256, JANE);
    let stranger = key(Kind::P256).certificate_pem();
    let outcome = whoami_with(&store, |cluster| {
        cluster["certificate-authority"] = json!(stranger);
    });
    assert_told(&outcome, &["not trusted", "certificate-authority"]);
    let outcome = whoami_with(&store, |cluster| {
        cluster["tls-server-name"] = json!("another.example");
    });
    assert_told(&outcome, &["not trusted", "tls-server-name"]);
    let own = cluster()
        .authority()
        .map(|path| path.to_str().unwrap().to_owned());
    let (_server, address) = Picky::showing(&own, "-tls1_3");
    let outcome = whoami_with(&store, |cluster| cluster["server"] = json!(address));
    assert_told(
        &outcome,
        &["it is a CA's, not a server's", "without CA:TRUE"],
    );
    let outcome = whoami_with(&store, |cluster| {
        cluster["tls-server-name"] = json!("localhost");
    });
    assert!(outcome.printed().contains("jane"), "{outcome:?}");
    let outcome = whoami_with(&store, |cluster| {
        cluster
            .as_object_mut()
            .unwrap()
            .remove("certificate-authority");
        cluster["insecure-skip-tls-verify"] = json!(true);
        cluster["tls-server-name"] = json!("another.example");
    });
    assert!(outcome.printed().contains("jane"), "{outcome:?}");
    assert!(
        outcome
            .stderr
            .contains("warning: cluster \"test\" has insecure-skip-tls-verify"),
        "{outcome:?}"
    );
}

/// A certificate of the cluster's authority for a server at 127.0.0.1, and its key.
pub(super) fn server_certificate(directory: &Path) -> [String; 2] {
    let [root, root_key] = cluster().authority();
    let private = key(Kind::P384).private_pem();
    let [certificate, _] = issue(
        directory,
        "server",
        &Issue {
            key: &private,
            subject: "/CN=server",
            extensions: "subjectAltName=IP:127.0.0.1\n",
            days: 30,
            issuer: [&root, &root_key],
        },
    );
    [certificate, private].map(|path| path.to_str().unwrap().to_owned())
}

/// `openssl s_server`, which accepts only clients of another authority.
struct Picky(Child);

impl Picky {
    fn start(directory: &Path, version: &str) -> (Self, String) {
        Self::showing(&server_certificate(directory), version)
    }

    fn showing([certificate, private]: &[String; 2], version: &str) -> (Self, String) {
        let address = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap();
        let stranger = key(Kind::P521).certificate_pem();
        let child = Command::new("openssl")
            .args(["s_server", "-accept", &address.to_string(), "-www", version])
            .args([
                "-cert",
                certificate,
                "-key",
                private,
                "-Verify",
                "1",
                "-verify_return_error",
            ])
            .arg("-CAfile")
            .arg(stranger)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        while std::net::TcpStream::connect(address).is_err() {
            std::thread::sleep(Duration::from_millis(20));
        }
        (Self(child), format!("https://{address}"))
    }
}

impl Drop for Picky {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_server_that_refuses_the_certificate() {
    let store = cluster().token(Kind::P256, JANE);
    for version in ["-tls1_2", "-tls1_3"] {
        let (_picky, server) = Picky::start(store.directory.path(), version);
        let outcome = whoami_with(&store, |cluster| cluster["server"] = json!(server));
        assert_ne!(outcome.status.code(), Some(0), "{outcome:?}");
        for told in [
            "refused the certificate of O=dev, CN=jane",
            "TLS alert",
            "client CA",
        ] {
            assert!(outcome.stderr.contains(told), "{told}: {outcome:?}");
        }
    }
}

#[test]
fn a_server_that_hangs_up_in_the_handshake() {
    let store = cluster().token(Kind::P256, JANE);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || listener.incoming().for_each(drop));
    let outcome = whoami_with(&store, |cluster| {
        cluster["server"] = json!(format!("https://{address}"))
    });
    assert_told(&outcome, &["broke off"]);
}

#[test]
fn a_pin_that_is_refused_or_locked_starts_nothing() {
    for (faults, told) in [
        ("C_Login:return=0xa0", "CKR_PIN_INCORRECT"),
        ("C_Login:return=0xa4", "locked"),
        ("C_GetTokenInfo:set=CKF_USER_PIN_LOCKED", "locked"),
    ] {
        let store = cluster().token(Kind::P256, JANE);
        let outcome = run_recorded(&store, faults, &["echo", "started"]).run();
        outcome.fails(7, &[told]);
    }
}

#[test]
fn a_key_of_another_type_than_the_certificates_starts_nothing() {
    for (of_key, of_certificate) in [(Kind::P256, Kind::Rsa(2048)), (Kind::Rsa(2048), Kind::P256)] {
        let own = Object::key(key(of_key), &[1]);
        let certificate = cluster().issue(of_certificate, JANE);
        let store = token_with([own, Object::issued(certificate, &[1])]);
        let outcome = run_recorded(&store, "", &["echo", "started"]).run();
        outcome.fails(6, &["does not belong to the key with objectId \"1\""]);
        assert_eq!(store.calls("C_SignInit"), [] as [&str; 0]);
    }
}

#[test]
fn a_signature_that_does_not_verify_is_withheld() {
    let store = cluster().token(Kind::P256, JANE);
    let outcome = run_recorded(&store, "C_Sign:flip", &["kubectl", "auth", "whoami"]).run();
    assert_eq!(outcome.status.code(), Some(1), "{outcome:?}");
    assert!(outcome.stderr.contains("does not verify"), "{outcome:?}");
}
