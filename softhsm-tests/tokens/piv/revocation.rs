//! `revoke` of a card whose key has rights by its group alone.

use std::thread::sleep;

use super::cards::{Cards, YKCS11};
use super::with_management_key;
use crate::enroll_cluster::Newcomer;
use crate::fixture::*;

#[test]
#[ignore = "scripts/test --all"]
fn a_lost_card_is_out_a_second_later() {
    let cards = Cards::inserted(1);
    let root = cards.attestation_root(1);
    let token = cards.token(YKCS11, 1);
    let newcomer = token.newcomer(YKCS11).attested_below(&root);
    let enroll = ["--slot=82", "--hardware-groups"];
    let name = newcomer.ask_with(&enroll, with_management_key);
    Newcomer::approve(&name, &[&format!("--root={}", root.display())], true).printed();
    with_management_key(newcomer.enroll(&enroll)).succeeded();
    let role = "--clusterrole=system:aggregate-to-view";
    let group = "--group=hw:yubikey:15873456";
    cluster().administrate(&["create", "clusterrolebinding", "card", role, group], "");
    let gets = || newcomer.kubectl(&["get", "configmaps"]).run();
    wait_until("the right", || gets().status.success());

    let administrator = cluster().person("olaf", &["system:masters"]);
    let revoke = administrator.command("revoke").arguments(&["15873456", "--apply"]);
    let mut terminal = revoke.at_terminal();
    let outcome = terminal.expect("? Type yes: ").type_line("yes").finish().0;
    assert_eq!(outcome.printed(), "✔ deleted        ClusterRoleBinding \"card\"\n");
    sleep(Duration::from_secs(1));
    gets().failed().says(&["(Forbidden)", "User \"jane\" cannot list resource \"configmaps\""]);
    newcomer.stop();
}
