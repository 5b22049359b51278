//! Silent servers and slow tokens: no other connection waits for them, who waits is told, and it has
//! an end.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;

use serde_json::{Value, json};

use super::{changed_kubeconfig, run, run_recorded};
use crate::fixture::cluster::{JANE, cluster};
use crate::fixture::keys::Kind;
use crate::fixture::program::Outcome;
use crate::fixture::softhsm::Store;

const WHOAMI: &str = "kubectl auth whoami -o jsonpath={.status.userInfo.username}";

/// A port whose connections of these numbers, from 0, are accepted and left alone; the others are led
/// to the server.
fn silent_at(numbers: impl Fn(usize) -> bool + Send + 'static, server: &str) -> SocketAddr {
    let server = server.trim_start_matches("https://").to_owned();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        let mut left_alone = Vec::new();
        for (number, connection) in listener.incoming().enumerate() {
            let connection = connection.unwrap();
            if numbers(number) {
                left_alone.push(connection);
                continue;
            }
            let onward = TcpStream::connect(&server).unwrap();
            for (mut from, mut to) in [
                (connection.try_clone().unwrap(), onward.try_clone().unwrap()),
                (onward, connection),
            ] {
                thread::spawn(move || {
                    let _ = io::copy(&mut from, &mut to);
                    let _ = to.shutdown(std::net::Shutdown::Write);
                });
            }
        }
    });
    address
}

/// The arguments of a run of bash with this kubeconfig.
fn bash<'a>(kubeconfig: &'a str, script: &'a str) -> [&'a str; 6] {
    ["--kubeconfig", kubeconfig, "--", "bash", "-c", script]
}

/// Adds this entry to a list of the kubeconfig.
fn add(config: &mut Value, list: &str, entry: Value) {
    config[list].as_array_mut().unwrap().push(entry);
}

/// Adds this cluster, and a context of its name in which `user` uses it.
fn add_cluster(config: &mut Value, name: &str, cluster: Value, user: &str) {
    add(config, "clusters", json!({"name": name, "cluster": cluster}));
    let context = json!({"cluster": name, "user": user});
    add(config, "contexts", json!({"name": name, "context": context}));
}

/// A run of bash with a second context, `hung`, whose server is silent at these connections.
fn with_hung(
    store: &Store,
    numbers: impl Fn(usize) -> bool + Send + 'static,
    script: &str,
) -> Outcome {
    drop(run(store, &["true"]));
    let file = changed_kubeconfig(store, |config| {
        let mut hung = config["clusters"][0]["cluster"].clone();
        let address = silent_at(numbers, hung["server"].as_str().unwrap());
        hung["server"] = json!(format!("https://{address}"));
        add_cluster(config, "hung", hung, "jane");
    });
    run(store, &bash(&file, script)).run()
}

#[test]
fn a_silent_server_holds_up_no_other_and_the_end_is_quiet() {
    for kubectl in ["kubectl", "timeout 1 kubectl"] {
        let store = cluster().token(Kind::P256, JANE);
        let hanging = format!(
            "for i in $(seq 20); do {kubectl} --context hung get --raw /x >/dev/null 2>&1 & done"
        );
        let script = format!("{hanging}; sleep 1.2; timeout 5 {WHOAMI}; exit 7");
        let outcome = with_hung(&store, |_| true, &script);
        assert_eq!(outcome.status.code(), Some(7), "{outcome:?}");
        assert_eq!(outcome.stdout, b"jane", "{outcome:?}");
        // On a busy machine it may have taken long enough to be told of.
        let mut lines = outcome.stderr.lines();
        assert!(lines.all(|line| line.contains("no answer for")), "{outcome:?}");
    }
}

#[test]
fn a_silent_server_that_a_command_gives_up_is_told_of_once() {
    let store = cluster().token(Kind::P256, JANE);
    let script = "kubectl --context hung --request-timeout=3s get --raw /x";
    let outcome = with_hung(&store, |_| true, script);
    // After nearly three seconds, of which some passed before we were asked.
    let told = outcome.stderr.matches(" s, and the command has given up");
    assert_eq!(told.count(), 1, "{outcome:?}");
    assert!(outcome.stderr.contains("no answer for "), "{outcome:?}");
}

#[test]
fn a_handshake_that_hangs_does_not_hold_up_the_next() {
    let store = cluster().token(Kind::P256, JANE);
    // The first asks for the protocol, the second is the one that hangs.
    for hanging in [0, 1] {
        let script = format!(
            "kubectl config use-context hung >/dev/null
             {WHOAMI} >/dev/null 2>&1 & sleep 1; SECONDS=0; {WHOAMI}; echo \" $((SECONDS < 5))\""
        );
        let outcome = with_hung(&store, move |number| number == hanging, &script);
        assert_eq!(outcome.stdout, b"jane 1\n", "{outcome:?}");
    }
}

#[test]
fn a_signature_may_take_longer_than_a_handshake() {
    let store = cluster().token(Kind::P256, JANE);
    let outcome = run_recorded(&store, "C_SignInit:delay=11000", &["sh", "-c", WHOAMI]).run();
    assert_eq!(outcome.printed(), "jane");
    outcome.silently();
    assert_eq!(store.calls("C_SignInit").len(), 1);
}

#[test]
fn a_signature_that_comes_too_late_is_the_next_commands() {
    let store = cluster().token(Kind::P256, JANE);
    let script = format!("timeout 2 {WHOAMI}; sleep 5; {WHOAMI}");
    let outcome = run_recorded(&store, "C_SignInit:delay=5000", &["bash", "-c", &script]).run();
    let told = "the signature came after 5 s, and the command had given up";
    assert_eq!(outcome.printed_beside(&[told]), "jane");
    assert_eq!(store.calls("C_SignInit").len(), 1, "{outcome:?}");
}

/// Each cluster waits for a signature of its own, and the token makes one after the other.
#[test]
fn eight_slow_signatures_hold_up_no_ninth_cluster() {
    let store = cluster().token(Kind::P256, JANE);
    drop(run_recorded(&store, "", &["true"]));
    let file = changed_kubeconfig(&store, |config| {
        let mut cluster = config["clusters"][0]["cluster"].clone();
        // Its address has to be looked up.
        let server = cluster["server"].as_str().unwrap();
        cluster["server"] = json!(server.replace("127.0.0.1", "localhost"));
        cluster["tls-server-name"] = json!("127.0.0.1");
        for number in 1..=8 {
            add_cluster(config, &format!("c{number}"), cluster.clone(), "jane");
        }
        // A user without a key, who needs no signature.
        add(config, "users", json!({"name": "other", "user": {"token": "none"}}));
        add_cluster(config, "other", cluster, "other");
    });
    let script = "for i in $(seq 8); do kubectl --context c$i get --raw /x >/dev/null 2>&1 & done
        sleep 3; timeout 6 kubectl --context other get --raw /x 2>&1 | grep -c 'logged in'
        kill $(jobs -p)";
    let arguments = bash(&file, script);
    let outcome = run_recorded(&store, "C_SignInit:delay=12000", &arguments).run();
    assert_eq!(outcome.stdout, b"1\n", "{outcome:?}");
}
