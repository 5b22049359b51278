//! `check --server` of a context with the plugin: the cluster is asked as a client asks it.

use serde_json::json;

use super::{ASK, PlainUser};
use crate::fixture::cluster::{ADMINISTRATOR, cluster};
use crate::fixture::keys::Kind;
use crate::fixture::softhsm::PIN;

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
    let mut terminal = user.program(&["check", "--server"]).at_terminal();
    terminal.expect_prompt().type_line(PIN);
    let (outcome, screen) = terminal.finish();
    let text = outcome.printed();
    assert!(text.ends_with(&known(&user)), "{text}");
    assert_eq!(screen.matches("PIN for token").count(), 1, "{screen}");
    // One in the process of the check, and one in the tunnel process.
    assert_eq!(user.store.calls("C_Login").len(), 2);
    user.expect_nothing_left();
}

#[test]
fn a_key_that_is_kept_is_used_and_stays_open() {
    let user = PlainUser::prompted(&["--keep=terminal"]);
    let mut terminal = user
        .shell(&format!("{ASK} && {CHECK} && {ASK}"))
        .at_terminal();
    terminal.expect_prompt().type_line(PIN);
    terminal.expect_prompt().type_line(PIN);
    let (outcome, screen) = terminal.finish();
    let text = outcome.printed();
    assert!(text.contains(&known(&user)), "{text}");
    assert_eq!(screen.matches("PIN for token").count(), 2, "{screen}");
    assert_eq!(user.store.calls("C_Login").len(), 2);
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
    let [help, failed] = told[..] else {
        panic!("{text}")
    };
    let what = "✘ cluster        cluster \"test\" (https://127.0.0.1:1): no connection: ";
    assert!(failed.starts_with(what), "{text}");
    let remedy = "  help: check that the API server runs, and the network";
    assert!(help.starts_with(remedy), "{text}");
    user.expect_nothing_left();
}
