//! Requests, kubeconfigs and machines that can't work: a clear error on one line, which kubectl shows, and
//! never a wait without end.

use std::os::unix::net::UnixListener;

use super::{ANSWER, ASK, PlainUser, assert_told_through_kubectl};
use crate::fixture::*;

/// A request with this at a place in it.
fn changed(request: &Value, place: &str, value: Value) -> String {
    let mut request = request.clone();
    *request.pointer_mut(place).unwrap() = value;
    request.to_string()
}

#[test]
fn a_request_that_it_can_not_read_is_an_error() {
    let user = PlainUser::new(&[]);
    let request = user.request();
    let version = |name: &str| changed(&request, "/apiVersion", json!(name));
    for (text, said) in [
        (String::new(), "KUBERNETES_EXEC_INFO"),
        ("garbage".to_owned(), "KUBERNETES_EXEC_INFO"),
        ("{}".to_owned(), "KUBERNETES_EXEC_INFO"),
        ("[]".to_owned(), "KUBERNETES_EXEC_INFO"),
        ("null".to_owned(), "KUBERNETES_EXEC_INFO"),
        (request.to_string() + "{}", "KUBERNETES_EXEC_INFO"),
        ("[".repeat(100_000), "KUBERNETES_EXEC_INFO"),
        (version("client.authentication.k8s.io/v2"), "client.authentication.k8s.io/v2"),
        (version("client.authentication.k8s.io/v1\u{1b}[2J\nx"), "apiVersion"),
        (changed(&request, "/kind", json!("ExecInfo")), "ExecInfo"),
        (changed(&request, "/kind", json!(1)), "is not a request"),
        (changed(&request, "/spec", json!("x")), "is not a request"),
        (changed(&request, "/spec/cluster", json!("x")), "is not a request"),
        (changed(&request, "/spec/cluster/server", json!(1)), "is not a request"),
    ] {
        let outcome = user.plugin(&text).run();
        outcome.fails_in_one_line(2, &[said]);
        assert!(!outcome.stderr.contains('\u{1b}'), "{outcome:?}");
    }
    user.expect_nothing_left();
}

#[test]
fn a_cluster_that_is_not_ours_is_an_error() {
    let user = PlainUser::new(&[]);
    let request = user.request();
    for (place, value) in [
        ("config", json!({"audience": "another program's"})),
        ("config", json!("text")),
        ("config", json!([])),
        ("server", json!("https://10.0.0.1:6443")),
        ("server", json!("https://127.0.0.1")),
        ("server", json!("not a URL")),
        ("server", json!("")),
    ] {
        let text = changed(&request, &format!("/spec/cluster/{place}"), value);
        user.plugin(&text).run().fails_in_one_line(3, &[]);
    }
    user.expect_nothing_left();
    // None of it has kept the right one from working.
    user.plugin(&request.to_string()).run().answer();
    user.program(&["stop"]).run().printed();
}

/// As Python's client 32 and 33 do, and Terraform's provider.
#[test]
fn a_client_that_hands_no_extension_on_is_known_by_the_address() {
    let user = PlainUser::new(&[]);
    let request = user.request();
    let mut without = request.clone();
    let cluster = without["spec"]["cluster"].as_object_mut().unwrap();
    cluster.remove("config").unwrap();
    let mut bare = without.clone();
    let cluster = bare["spec"]["cluster"].as_object_mut().unwrap();
    cluster.retain(|name, _| name == "server");
    let null = changed(&request, "/spec/cluster/config", Value::Null);
    for text in [without.to_string(), bare.to_string(), null] {
        user.plugin(&text).run().answer();
    }
    user.program(&["stop"]).run().printed();
    // A context that was pointed at a cluster itself, with this user.
    let other = changed(&without, "/spec/cluster/server", json!("https://10.0.0.1:6443"));
    let said = ["is missing, or another program's", "kubeconfig --write", "--kubeconfig FILE"];
    user.plugin(&other).run().fails_in_one_line(3, &said);
    user.expect_nothing_left();
}

#[test]
fn a_key_is_named_by_a_context_or_by_options() {
    let user = PlainUser::new(&[]);
    let context = format!("--context={}", user.context());
    let outcome = user.program(&["credential", &context, "--object-id=1"]).run();
    let said = "both --context and other options name the key; leave one of them out";
    outcome.fails_in_one_line(2, &[said]);
    user.expect_nothing_left();
}

/// As Node's and Java's, with a kubeconfig of their own.
#[test]
fn a_client_that_says_nothing_is_answered_by_its_own_entry() {
    let user = PlainUser::new(&[]);
    let file = user.kubeconfig();
    let lost = user.plugin("").without_variable("KUBERNETES_EXEC_INFO");
    let said = [
        "the client doesn't say which cluster it wants, and there is no kubeconfig",
        "kubeconfig --write --context NAME --kubeconfig FILE",
    ];
    lost.without_variable("KUBECONFIG").run().fails_in_one_line(3, &said);
    user.program(&["kubeconfig", "--write", "--pin-source=env:TOKEN_PIN"])
        .arguments(&["--kubeconfig", file.to_str().unwrap()])
        .arguments(&["--context", &user.context(), &user.store.faulty_module()])
        .run()
        .printed();
    user.set_plugin("apiVersion", "client.authentication.k8s.io/v1beta1");
    let plugin = user.plugin("").without_variable("KUBERNETES_EXEC_INFO");
    let answer = plugin.without_variable("KUBECONFIG").run().answer();
    assert_eq!(answer["apiVersion"], "client.authentication.k8s.io/v1beta1");
    user.program(&["stop"]).run().printed();
    // What reads the arguments for the key passes it over.
    user.program(&["check", "--no-login"]).run().told(0);
}

/// Connections of a client stay open when it asks again.
#[test]
fn the_same_pair_is_answered_while_the_tunnel_lives() {
    let user = PlainUser::new(&["--keep=15m"]);
    let request = user.request().to_string();
    let pair = || {
        let status = &user.plugin(&request).run().answer()["status"];
        (status["clientCertificateData"].clone(), status["clientKeyData"].clone())
    };
    let first = pair();
    assert_eq!(pair(), first);
    user.program(&["stop"]).run().printed();
    user.expect_nothing_left();
    assert_ne!(pair(), first);
}

/// What was written for another user, or on another machine, is refused by name.
#[test]
fn a_kubeconfig_that_was_copied_from_elsewhere_is_told() {
    needs_isolation!();
    let elsewhere = PlainUser::new(&[]);
    let user = PlainUser::new(&[]);
    fs::write(user.kubeconfig(), elsewhere.current().to_string()).unwrap();
    assert_told_through_kubectl(&user.kubectl(&["get", "pods"]).run(), 3, &["kubeconfig --write"]);
    user.expect_nothing_left();
}

#[test]
fn a_port_that_somebody_else_holds_is_an_error_with_a_way_out() {
    let user = PlainUser::new(&[]);
    let address = user.address();
    let holder = TcpListener::bind(&address).unwrap();
    holder.set_nonblocking(true).unwrap();
    assert_told_through_kubectl(&user.kubectl(&["get", "pods"]).run(), 9, &[&address]);
    assert!(holder.accept().is_err(), "a client has connected to whoever holds the port");
    user.expect_nothing_left();
    drop(holder);
    assert_eq!(user.shell(ASK).run().printed(), ANSWER);
}

/// The control socket, while a tunnel lives.
pub(super) fn socket(user: &PlainUser) -> PathBuf {
    use std::os::unix::fs::FileTypeExt as _;
    let is_socket = |path: &PathBuf| fs::symlink_metadata(path).unwrap().file_type().is_socket();
    let mut sockets: Vec<_> = user.files().into_iter().filter(is_socket).collect();
    assert_eq!(sockets.len(), 1, "{sockets:?}");
    sockets.pop().unwrap()
}

#[test]
fn a_socket_that_a_killed_tunnel_left_is_replaced() {
    needs_isolation!();
    let user = PlainUser::new(&["--keep=15m"]);
    assert_eq!(user.shell(ASK).run().printed(), ANSWER);
    let path = socket(&user);
    let tunnel = user.tunnel().unwrap();
    kill_process(tunnel.pid, Signal::KILL).unwrap();
    wait_until("the tunnel process is gone", || user.tunnel().is_none());
    assert!(path.exists(), "it was killed");
    assert_eq!(user.shell(ASK).run().printed(), ANSWER);
    user.program(&["stop"]).run().printed();
    user.expect_nothing_left();
    // A socket of something that doesn't answer, and what is none.
    let silent = UnixListener::bind(&path).unwrap();
    assert_told_through_kubectl(&user.shell(ASK).run(), 9, &["it doesn't answer", "tunnel.socket"]);
    drop(silent);
    fs::remove_file(&path).unwrap();
    assert_eq!(user.program(&["stop"]).run().printed(), "");
    user.expect_nothing_left();
    fs::write(&path, "no socket").unwrap();
    assert_eq!(user.shell(ASK).run().printed(), ANSWER);
}

/// Places in which a user's processes meet, all of them full.
const SPOILT: &str = "for place in /run/user/0 /dev/shm; do \
    mount -t tmpfs -o size=4k none $place && ! head -c 9000 /dev/zero >$place/full && [ -s $place/full ] || exit 99; \
    done 2>/dev/null";

#[test]
fn full_disks_do_not_keep_the_tunnel_from_being_found() {
    needs_isolation!();
    let user = PlainUser::new(&[]);
    let outcome = user.shell(&format!("{SPOILT}; {ASK}")).through("unshare", &["--mount"]).run();
    assert_eq!(outcome.printed(), ANSWER);
    user.expect_nothing_left();
}

/// The context's key, which the cluster would be asked with, wants its PIN.
#[test]
fn an_option_for_yubikeys_is_refused_before_anybody_is_asked_for_a_pin() {
    let user = PlainUser::prompted(&[]);
    let token = [softhsm_option(), "--token-label=test token"];
    for option in ["--slot=9a", "--pin-policy=once", "--touch-policy=always", "--replace"] {
        let outcome = user.program(&["enroll", option]).arguments(&token).run();
        let name = option.split('=').next().unwrap();
        outcome.fails(6, &[name, "is for YubiKeys", "leave it out"]);
    }
}
