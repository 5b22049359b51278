//! `check --server` of a context with the plugin: the cluster is asked as a client asks it.

use std::path::Path;

use serde_json::json;

use super::{ASK, PlainUser};
use crate::fixture::cluster::{ADMINISTRATOR, cluster};
use crate::fixture::keys::{Kind, key};
use crate::fixture::softhsm::PIN;
use crate::run::trouble::{Server, server_certificate};

const CHECK: &str = "\"$SIGNER\" check --server | grep cluster\\ ";

/// What the last line says.
fn known(user: &PlainUser) -> String {
    format!(
        "knows us as user \"jane\", groups \"system:masters\", \"system:authenticated\" \
         (asked by {}, as clients do)\n",
        user.address()
    )
}

#[test]
fn the_cluster_is_asked_by_the_local_address_with_one_prompt() {
    let user = PlainUser::prompted(&[]);
    let outcome = user.program(&["check", "--server"]).at_terminal().finish_with_pin();
    let text = outcome.printed();
    assert!(text.ends_with(&known(&user)), "{text}");
    // One in the process of the check, and one in the tunnel process.
    assert_eq!(user.store.calls("C_Login").len(), 2);
    user.expect_nothing_left();
}

#[test]
fn a_key_that_is_kept_is_used_and_stays_open() {
    let user = PlainUser::prompted(&["--keep=terminal"]);
    let mut terminal = user.shell(&format!("{ASK} && {CHECK} && {ASK}")).at_terminal();
    terminal.expect_prompt().type_line(PIN);
    terminal.expect_prompt().type_line(PIN);
    let (outcome, screen) = terminal.finish();
    let text = outcome.printed();
    assert!(text.contains(&known(&user)), "{text}");
    assert_eq!(screen.matches("PIN for token").count(), 2, "{screen}");
    assert_eq!(user.store.calls("C_Login").len(), 2);
    user.expect_nothing_left();
}

/// The tunnel process of the first one is just ending.
#[test]
fn right_after_a_command_it_finds_nothing_wrong() {
    let user = PlainUser::new(&[]);
    let script =
        format!("for i in $(seq 25); do {ASK} >/dev/null && \"$SIGNER\" check --server; done");
    let text = user.shell(&script).run().printed();
    assert_eq!(text.matches(&known(&user)).count(), 25, "{text}");
    user.expect_nothing_left();
}

/// Its answer is what kubectl shows, too.
#[test]
fn what_the_tunnel_answers_in_the_servers_place_is_told() {
    let store = cluster().token(Kind::P256, ADMINISTRATOR);
    let user = PlainUser::at(
        store,
        &json!({"server": "https://127.0.0.1:1", "insecure-skip-tls-verify": true}),
        &["--pin-source=env:TOKEN_PIN"],
    );
    let outcome = user.program(&["check", "--server"]).run();
    let text = outcome.told(9);
    let told = text.lines().rev().take(2).collect::<Vec<_>>();
    let [help, failed] = told[..] else { panic!("{text}") };
    let what = "✘ cluster        cluster \"test\" (https://127.0.0.1:1): no connection: ";
    assert!(failed.starts_with(what), "{text}");
    let remedy = "  help: check that the API server runs, and the network";
    assert!(help.starts_with(remedy), "{text}");
    user.expect_nothing_left();
}

/// In TLS 1.3 the refusal comes after the handshake, in place of an answer.
#[test]
fn a_server_that_refuses_the_certificate_is_told_by_kubectl_and_check() {
    let stranger = key(Kind::P521).certificate_pem();
    for version in ["-tls1_2", "-tls1_3"] {
        let store = cluster().token(Kind::P256, ADMINISTRATOR);
        let own = server_certificate(store.directory.path());
        let own = own.each_ref().map(Path::new);
        let (_server, url) = Server::start(&own, &stranger, &[version]);
        let mut entry = cluster().entry();
        entry["server"] = url.into();
        let user = PlainUser::at(store, &entry, &["--pin-source=env:TOKEN_PIN"]);
        for script in ["kubectl get --raw /", "\"$SIGNER\" check --server"] {
            let outcome = user.shell(script).run();
            let told = [&*outcome.stdout, outcome.stderr.as_bytes()].concat();
            let told = String::from_utf8_lossy(&told);
            let refused =
                "the server refused the certificate of O=system:masters, CN=jane: TLS alert";
            assert!(told.contains(refused), "{version}: {outcome:?}");
            assert!(!told.contains("does not answer"), "{version}: {outcome:?}");
        }
    }
}
