//! Silent servers and slow tokens: no other connection waits for them, who waits is told, and it has an end.

use std::collections::BTreeSet;

use super::trouble::full_queue;
use super::{changed_kubeconfig, run, run_recorded};
use crate::fixture::*;

const WHOAMI: &str = "kubectl auth whoami -o jsonpath={.status.userInfo.username}";

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
    numbers: impl Fn(usize) -> bool + Send + Sync + 'static,
    script: &str,
) -> (Forwarder, Invocation) {
    drop(run(store, &["true"]));
    let server = Forwarder::silent_at(numbers, cluster().entry()["server"].as_str().unwrap());
    let file = changed_kubeconfig(store, |config| {
        let mut hung = config["clusters"][0]["cluster"].clone();
        hung["server"] = json!(server.url());
        add_cluster(config, "hung", hung, "jane");
    });
    (server, run(store, &bash(&file, script)))
}

/// Runs the script, which begins with commands that hang, reads a line when there are so many connections, and asks
/// who it is. Demands the answer while somebody still waits for the silent server.
fn answered_meanwhile(
    numbers: impl Fn(usize) -> bool + Copy + Send + Sync + 'static,
    connections: usize,
    hanging: &str,
) -> Outcome {
    let script = format!("{hanging}; read line; {WHOAMI}; echo; read line; exit 7");
    // On a busy machine the wait may have had its own end before the answer.
    for _ in 0..10 {
        let store = cluster().token(Kind::P256, JANE);
        let (server, run) = with_hung(&store, numbers, &script);
        let (run, mut command) = run.held();
        let mut run = run.start(None);
        server.wait_for_connections(connections);
        command.write_all(b"\n").unwrap();
        assert_eq!(run.line(), "jane");
        let is_waited_for = server.is_waited_for();
        drop(command);
        let outcome = run.finish();
        assert_eq!(outcome.status.code(), Some(7), "{outcome:?}");
        if is_waited_for {
            return outcome;
        }
    }
    panic!("no answer as long as the server was silent");
}

const TWENTY: &str =
    "for i in $(seq 20); do kubectl --context hung get --raw /x >/dev/null 2>&1 & done";

#[test]
fn a_silent_server_holds_up_no_other_and_the_end_is_quiet() {
    answered_meanwhile(|_| true, 20, TWENTY).silently();
    // Nor when they were given up.
    let store = cluster().token(Kind::P256, JANE);
    let hanging = TWENTY.replace("kubectl", "timeout 1 kubectl");
    let (_server, run) = with_hung(&store, |_| true, &format!("{hanging}; wait; {WHOAMI}"));
    let outcome = run.run();
    assert_eq!(outcome.stdout, b"jane", "{outcome:?}");
    outcome.silently();
}

#[test]
fn a_handshake_that_hangs_does_not_hold_up_the_next() {
    let script =
        format!("kubectl config use-context hung >/dev/null; ({WHOAMI} >/dev/null 2>&1) &");
    // One of them asks for the protocol, the other one is kubectl's.
    for hanging in [0, 1] {
        answered_meanwhile(move |number| number == hanging, 2, &format!("{script} true"));
    }
}

/// A VPN that is down, say: each is told after the 30 s that a connection may take.
#[test]
fn connections_to_a_server_that_drops_them_do_not_wait_for_each_other() {
    let store = cluster().token(Kind::P256, JANE);
    let deaf = free_address();
    let _queue = full_queue(deaf);
    let script = "for i in 1 2 3; do kubectl get --raw /version & done; wait";
    let run = run(&store, &["bash", "-c", script]);
    cluster().lead_to(&store, &format!("https://{deaf}"));
    let outcome = run.run();
    let told = outcome.stderr.matches("connecting took longer than 30 s").count();
    assert_eq!(told, 3, "{outcome:?}");
    assert!(outcome.took < Duration::from_secs(60), "{outcome:?}");
}

#[test]
fn a_server_that_could_not_be_asked_for_its_protocol_is_asked_again() {
    let store = cluster().token(Kind::P256, JANE);
    drop(run(&store, &["true"]));
    // The second connection is the one that asks.
    let server =
        Forwarder::silent_at(|number| number == 1, cluster().entry()["server"].as_str().unwrap());
    let file = changed_kubeconfig(&store, |config| {
        config["clusters"][0]["cluster"]["server"] = json!(server.url());
    });
    let script = format!(
        "{WHOAMI}; read; end=$((SECONDS + 60)); while [ $SECONDS -lt $end ] && ! read -t 0.1; do {WHOAMI}; done"
    );
    let (run, mut command) =
        run(&store, &["-v", "--kubeconfig", &file, "--", "bash", "-c", &script]).held();
    let mut run = run.start(None);
    server.wait_for_connections(2);
    command.write_all(b"\n").unwrap();
    run.wait_for_error(", h2,");
    command.write_all(b"\n").unwrap();
    drop(command);
    assert!(run.finish().status.success());
}

#[test]
fn a_signature_may_take_longer_than_a_handshake() {
    let store = cluster().token(Kind::P256, JANE);
    let outcome = run_recorded(&store, "C_SignInit:delay=11000", &["sh", "-c", WHOAMI]).run();
    assert_eq!(outcome.printed(), "jane");
    outcome.silently();
    assert_eq!(store.calls("C_SignInit").len(), 1);
}

/// The sockets that the process has open, as /proc names them.
fn sockets(process: Pid) -> BTreeSet<String> {
    let open = open_files(process).into_iter().map(|it| it.to_str().unwrap().to_owned());
    open.filter(|it| it.starts_with("socket:")).collect()
}

/// Those of them that are connections which it has accepted.
fn clients(process: Pid) -> BTreeSet<String> {
    let open = sockets(process);
    let table = fs::read_to_string(format!("/proc/{}/net/tcp", process.as_raw_nonzero())).unwrap();
    // Its own address, whether it listens there, and its name.
    let rows = table.lines().skip(1).map(|row| {
        let fields: Vec<_> = row.split_ascii_whitespace().collect();
        (fields[1], fields[3] == "0A", format!("socket:[{}]", fields[9]))
    });
    let rows: Vec<_> = rows.filter(|(_, _, name)| open.contains(name)).collect();
    let listens = |it: &str| rows.iter().any(|(own, listens, _)| *listens && *own == it);
    let accepted = rows.iter().filter(|(own, is_listening, _)| !is_listening && listens(own));
    accepted.map(|(_, _, name)| name.clone()).collect()
}

#[test]
fn a_signature_that_comes_too_late_is_the_next_commands() {
    needs_isolation!();
    let store = cluster().token(Kind::P256, JANE);
    let script =
        format!("{WHOAMI} & read line; kill $!; wait $!; echo gone; read line; exec {WHOAMI}");
    let is_ready = store.path("ready");
    let faults = format!("C_SignInit#1:print=error,C_SignInit#1:until={}", is_ready.display());
    let (run, mut command) = run_recorded(&store, &faults, &["bash", "-c", &script]).held();
    let mut run = run.start(None);
    run.wait_for_error("complaint from the module");
    let clients = clients(run.pid());
    assert!(!clients.is_empty(), "{}", run.describe());
    command.write_all(b"\n").unwrap();
    assert_eq!(run.line(), "gone");
    wait_until("the end of kubectl is noticed", || sockets(run.pid()).is_disjoint(&clients));
    fs::write(is_ready, "").unwrap();
    let told = run.wait_for_error(" s, and the command had given up");
    assert!(told.contains("the signature came after "), "{told}");
    drop(command);
    let outcome = run.finish();
    assert_eq!(outcome.stdout, b"jane", "{outcome:?}");
    assert_eq!(store.calls("C_SignInit").len(), 1, "{outcome:?}");
}

/// Each cluster waits for a signature of its own, and the token makes one after the other.
#[test]
fn eight_slow_signatures_hold_up_no_ninth_cluster() {
    let store = cluster().token(Kind::P256, JANE);
    drop(run_recorded(&store, "", &["true"]));
    let server = Forwarder::to(cluster().entry()["server"].as_str().unwrap());
    let file = changed_kubeconfig(&store, |config| {
        let mut cluster = config["clusters"][0]["cluster"].clone();
        // Its address has to be looked up.
        cluster["server"] = json!(server.url().replace("127.0.0.1", "localhost"));
        cluster["tls-server-name"] = json!("127.0.0.1");
        for number in 1..=8 {
            add_cluster(config, &format!("c{number}"), cluster.clone(), "jane");
        }
        add_cluster(config, "other", cluster, "jane");
    });
    let script = format!(
        "{WHOAMI} --context other; echo
         for i in $(seq 8); do kubectl --context c$i get --raw /x >/dev/null 2>&1 & done
         read line; {WHOAMI} --context other; echo; read line; kill $(jobs -p)"
    );
    let faults = "C_SignInit#2:print=error,C_SignInit#2+:hang";
    let run = run_recorded(&store, faults, &bash(&file, &script));
    let (run, mut command) = run.held();
    let mut run = run.start(None);
    assert_eq!(run.line(), "jane");
    // Two of the first one.
    server.wait_for_connections(10);
    run.wait_for_error("complaint from the module");
    command.write_all(b"\n").unwrap();
    assert_eq!(run.line(), "jane");
    assert_eq!(store.calls("C_SignInit").len(), 1, "the token was faster");
    drop(command);
    run.finish();
}
