//! What a local address leads to: decided by what the entry says, for as long as the tunnel process lives.

use super::{ANSWER, ASK, PlainUser, assert_told_through_kubectl};
use crate::fixture::*;

/// The script with another kubeconfig, which is this one with a text replaced.
fn elsewhere(user: &PlainUser, text: &str, other: &str, script: &str) -> Invocation {
    let config = fs::read_to_string(user.kubeconfig()).unwrap();
    assert!(config.contains(text), "{config}");
    let file = user.path("elsewhere");
    fs::write(&file, config.replace(text, other)).unwrap();
    user.shell(script).variable("KUBECONFIG", file)
}

#[test]
fn two_kubeconfigs_for_one_server_share_its_address_whatever_they_call_it() {
    let user = PlainUser::new(&["--keep=15m"]);
    assert_eq!(user.shell(ASK).run().printed(), ANSWER);
    assert_eq!(elsewhere(&user, ": test\n", ": my prod cluster\n", ASK).run().printed(), ANSWER);
    assert_eq!(user.counts(), (1, 1));
}

#[test]
fn an_address_stays_with_its_server() {
    let user = PlainUser::new(&["--keep=15m"]);
    assert_eq!(user.shell(ASK).run().printed(), ANSWER);
    let server = cluster().entry()["server"].take();
    let server = server.as_str().unwrap();
    let forwarder = Forwarder::to(server);
    let outcome = elsewhere(&user, server, &forwarder.url(), ASK).run();
    let what = format!("{} leads to cluster \"test\" ({server}) already", user.address());
    assert_told_through_kubectl(
        &outcome,
        9,
        &[&*what, &format!("kubeconfig --write --context {}`", user.context())],
    );
    // Whoever uses the first one still does.
    assert_eq!(user.shell(ASK).run().printed(), ANSWER);
    assert_eq!(user.counts(), (1, 1));
}

/// Two shells with different variables don't take turns.
#[test]
fn the_proxy_is_that_of_who_was_first_at_the_address() {
    let user = PlainUser::at(
        cluster().token(Kind::P256, ADMINISTRATOR),
        &json!({"server": "https://api.invalid", "insecure-skip-tls-verify": true}),
        &["--keep=15m", "--pin-source=env:TOKEN_PIN"],
    );
    for proxy in ["http://127.0.0.1:1", "http://127.0.0.1:2"] {
        let outcome = user.shell("kubectl get --raw /version").variable("HTTPS_PROXY", proxy).run();
        outcome.says(&[
            "no connection through the proxy http://127.0.0.1:1: ",
            "`pkcs11-external-signer stop` ends",
        ]);
    }
}

#[test]
fn a_clients_own_proxy_for_the_tunnels_address_is_told() {
    let user = PlainUser::new(&["--keep=15m"]);
    let outcome = user.kubectl(&["get", "--raw=/version", "--proxy-url=http://127.0.0.1:1"]).run();
    assert_ne!(outcome.status.code(), Some(0), "{outcome:?}");
    outcome.says(&["the client goes to the tunnel, which is on this machine, through a proxy"]);
    assert!(!user.kubectl(&["get", "--raw=/version"]).run().stderr.contains("proxy"));
}
