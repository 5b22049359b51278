//! kubectl runs a plugin that fails five times, and asks a server that is away as often: it shows all that it is told.

use super::PlainUser;
use crate::fixture::*;

const GET: [&str; 2] = ["get", "namespaces"];

/// What a person is told to do, so often for one kubectl; the next one is told it as well.
#[track_caller]
fn assert_told(user: &PlainUser, times: usize, told: &str) {
    for _ in 0..2 {
        let outcome = user.kubectl(&GET).run().failed();
        assert_eq!(outcome.stderr.matches(told).count(), times, "{}", outcome.stderr);
    }
}

#[test]
fn a_kubectl_is_told_once_that_there_is_nobody_to_ask_for_the_pin() {
    let user = PlainUser::prompted(&[]);
    assert_told(&user, 1, "run it from a terminal");
    let outcome = user.kubectl(&GET).run().failed();
    outcome.says(&["error: the same again: token \"test token\""]);
    // One that asks by itself is no client that asks again.
    let credential = ["credential", "--context", &user.context()];
    let credential = credential.map(|word| format!("'{word}'")).join(" ");
    let twice = format!("for i in 1 2; do \"$SIGNER\" {credential}; done");
    let outcome = user.shell(&twice).run();
    assert_eq!(outcome.stderr.matches("run it from a terminal").count(), 2, "{outcome:?}");
}

#[test]
fn a_kubectl_is_told_once_that_the_token_is_gone() {
    let user = PlainUser::new(&[]);
    fs::rename(user.path("tokens"), user.path("drawer")).unwrap();
    fs::create_dir(user.path("tokens")).unwrap();
    assert_told(&user, 1, "insert the token");
}

#[test]
fn a_kubectl_is_not_told_each_time_what_to_do_where_the_server_is_down() {
    let user = PlainUser::new(&["--keep=15m"]);
    let mut current = user.current();
    let real = "/clusters/0/cluster/extensions/0/extension/server";
    *current.pointer_mut(real).unwrap() = format!("https://{}", free_address()).into();
    fs::write(user.kubeconfig(), current.to_string()).unwrap();
    // Other commands don't show the first answer.
    assert_told(&user, 2, "check that the API server runs");
    user.program(&["stop"]).run().printed();
}
