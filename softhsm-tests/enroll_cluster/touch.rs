//! `--writes-by-touch`: a second key and user for what changes something, which stock kubectl takes by itself. SoftHSM's
//! keys want a PIN each time instead of a touch.

use super::{Newcomer, bare_token, jane, of_store};
use crate::fixture::*;

#[test]
fn kubectl_writes_with_the_second_key_by_itself_and_reads_with_the_first_one() {
    needs_isolation!();
    let store = bare_token();
    let (token, enter) = of_store(&store);
    let newcomer = Newcomer::named("tess", token, enter);
    let requester = "--clusterrole=certificate-requester";
    let binding = ["create", "clusterrolebinding", "touch-requester", requester, "--user=tess"];
    cluster().administrate(&binding, "");
    cluster().wait_for_right(&["create", "certificatesigningrequests", "--as=tess"]);
    let keep = ["--keep=15m"];
    cluster().administrate(&["certificate", "approve", &newcomer.ask(&keep)], "");
    newcomer.enroll(&keep).run().succeeded();
    // The second key is asked for with the first one, which is open from now on.
    newcomer.whoami();
    let [view, edit] = ["view", "edit"].map(|it| format!("--clusterrole=system:aggregate-to-{it}"));
    for binding in [
        &["touch-reads", &view, "--user=tess", "--user=tess-writes"][..],
        &["touch-writes", &edit, "--user=tess-writes"],
    ] {
        let create = [&["create", "clusterrolebinding"], binding].concat();
        cluster().administrate(&create, "");
    }
    // The first one reads.
    let kubectl = |arguments: &[&str]| newcomer.kubectl(arguments).run();
    wait_until("the right", || kubectl(&["get", "configmaps"]).status.success());
    let refused = kubectl(&["create", "configmap", "touched"]).failed();
    refused.says(&["User \"tess\" cannot create resource \"configmaps\""]);

    // With a default of its own that stays.
    let own = ["kuberc", "set", "--section=defaults", "--command=delete", "--option=wait=false"];
    kubectl(&own).succeeded();
    let enroll = ["--writes-by-touch", "--object-id=0x77"];
    let name = newcomer.ask(&enroll);
    assert!(name.starts_with("tess-writes-"), "{name}");
    cluster().administrate(&["certificate", "approve", &name], "");
    let outcome = newcomer.enroll(&enroll).run();
    let printed = outcome.printed_beside(&["doesn't say whether it wants a touch"]);
    assert!(step_of(&printed, "context").starts_with("\"prod-writes\" in "), "{printed}");
    let line = printed.lines().find(|line| line.contains("kubectl kuberc set")).unwrap();
    assert!(line.contains(" --option=user=tess-writes; done"), "{line}");
    // Nothing of that was done, and the context reads as before.
    kubectl(&["create", "configmap", "touched"]).failed().says(&["User \"tess\" cannot create"]);

    let outcome = newcomer.enroll(&enroll).argument("--kuberc").run().succeeded();
    let expected = "takes user \"tess-writes\" for what changes something, in every context";
    assert_eq!(outcome.step("kubectl"), expected);
    kubectl(&["create", "configmap", "touched"]).printed();
    kubectl(&["label", "configmap", "touched", "a=b"]).printed();
    kubectl(&["exec", "shell", "--", "true"]).printed();
    kubectl(&["get", "configmaps"]).printed();
    assert_eq!(newcomer.whoami().split(' ').next(), Some("tess"));
    let preferences = kubectl(&["kuberc", "view", "--output=json"]).document();
    let defaults = preferences["defaults"].as_array().unwrap();
    let delete = defaults.iter().find(|it| it["command"] == "delete").unwrap();
    let options = delete["options"].as_array().unwrap();
    assert_eq!(options.len(), 2, "{delete}");
    assert!(!defaults.iter().any(|it| it["command"] == "get"), "{preferences}");

    // kubectl of before 1.34, and other clients, stay with the first one.
    let older = newcomer.kubectl(&["delete", "configmap", "touched"]);
    older.variable("KUBECTL_KUBERC", "false").run().failed().says(&["User \"tess\" cannot delete"]);
    kubectl(&["delete", "configmap", "touched"]).printed();
    newcomer.stop();
    let bindings = ["clusterrolebinding", "touch-requester", "touch-reads", "touch-writes"];
    cluster().administrate(&[&["delete"], &bindings[..]].concat(), "");
}

#[test]
fn what_can_not_be_touched_is_told_before_anything_is_made() {
    let store = bare_token();
    let newcomer = jane(&store);
    let told = ["context \"prod\" has no key on a token yet", "enroll"];
    newcomer.enroll(&["--writes-by-touch"]).run().fails(3, &told);
    assert_eq!(newcomer.keys(), [] as [Value; 0]);
    newcomer.assert_enrolls(&[], &[], Invocation::run);
    let told = ["--writes-by-touch without --object-id is for YubiKeys"];
    newcomer.enroll(&["--writes-by-touch"]).run().fails(6, &told);
    assert_eq!(newcomer.keys().len(), 1);
    newcomer.stop();
}
