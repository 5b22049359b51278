//! `check --server` of a context with the plugin.

use super::{ASK, PlainUser, has_socket};
use crate::fixture::*;
use crate::run::trouble::{Server, server_certificate};

#[test]
fn the_cluster_is_asked_with_one_prompt_and_no_tunnel() {
    let user = PlainUser::prompted(&[]);
    let text = user.program(&["check", "--server"]).at_terminal().finish_with_pin().printed();
    let known = "knows us as user \"jane\", groups \"system:masters\", \"system:authenticated\"\n";
    assert!(text.ends_with(known), "{text}");
    user.expect_nothing_left();
}

/// The tunnel process of the first one is just ending.
#[test]
fn right_after_a_command_it_finds_nothing_wrong() {
    let user = PlainUser::new(&[]);
    let script =
        format!("for i in $(seq 25); do {ASK} >/dev/null && \"$SIGNER\" check --server; done");
    let text = user.shell(&script).run().printed();
    assert_eq!(text.matches("knows us as user \"jane\"").count(), 25, "{text}");
    user.expect_nothing_left();
}

#[test]
fn a_tunnel_process_that_ends_while_it_is_asked_is_none() {
    needs_isolation!();
    let user = PlainUser::new(&["--keep=15m"]);
    user.shell(ASK).run().printed();
    let tunnel = user.tunnel().unwrap().pid;
    kill_process(tunnel, Signal::STOP).unwrap();
    let checking = user.program(&["check", "--no-login"]).start(None);
    wait_until("it asks", || has_socket(checking.pid()));
    kill_process(tunnel, Signal::KILL).unwrap();
    checking.finish().told(0);
}

/// In TLS 1.3 the refusal comes after the handshake, in place of an answer.
#[test]
fn a_server_that_refuses_the_certificate_is_told_by_kubectl_and_check() {
    let stranger = key(Kind::P521).certificate_pem();
    for version in ["-tls1_2", "-tls1_3"] {
        let store = cluster().token(Kind::P256, ADMINISTRATOR);
        let own = server_certificate(store.directory.path());
        let (_server, url) = Server::start(&own.each_ref().map(Path::new), &stranger, &[version]);
        let mut entry = cluster().entry();
        entry["server"] = url.into();
        let user = PlainUser::at(store, &entry, &["--pin-source=env:TOKEN_PIN"]);
        for script in ["kubectl get --raw /", "\"$SIGNER\" check --server"] {
            let outcome = user.shell(script).run();
            let told = [&*outcome.stdout, outcome.stderr.as_bytes()].concat();
            let told = String::from_utf8_lossy(&told);
            let refused =
                "the server refused the certificate of O=system:masters, CN=jane: TLS alert";
            assert!(told.contains(refused) && told.contains("client CA"), "{version}: {outcome:?}");
            assert!(!told.contains("does not answer"), "{version}: {outcome:?}");
        }
    }
}

/// `kubectl config` would fail for as long as the file is locked.
#[test]
fn kubectl_can_change_the_kubeconfig_while_a_hanging_tunnel_process_is_asked() {
    needs_isolation!();
    let user = PlainUser::new(&["--keep=15m"]);
    user.shell(ASK).run().printed();
    let tunnel = user.tunnel().unwrap().pid;
    kill_process(tunnel, Signal::STOP).unwrap();
    let context = user.context();
    let mut writing = user.program(&["kubeconfig", "--write", "--context", &context]).start(None);
    wait_until("it asks", || has_socket(writing.pid()));
    user.kubectl(&["config", "set-context", &context, "--namespace=dev"]).run().succeeded();
    assert!(!writing.has_ended(), "{}", writing.describe());
    kill_process(tunnel, Signal::CONT).unwrap();
    writing.finish().succeeded();
    user.program(&["stop"]).run().succeeded();
}
