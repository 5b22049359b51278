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
    cluster().administrate(&[&binding[..], &["--user=tess-writes"]].concat(), "");
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

    kubectl(&["config", "set-context", "prod", "--namespace=default"]).succeeded();

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
    assert!(line.contains(" kuberc set --section=defaults --command=\"$command\" "), "{line}");
    assert!(line.contains(" --overwrite --option=user=tess-writes; done"), "{line}");
    let namespace = "--output=jsonpath={.contexts[?(@.name == 'prod-writes')].context.namespace}";
    assert_eq!(kubectl(&["config", "view", namespace]).printed(), "default");
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

    // Another key for writes, by whichever context, is the same user's, who asks for its certificate.
    let keep = ["--write", "--context=prod-writes", "--object-id=0x77", "--keep=15m"];
    let kubeconfig = newcomer.enter(newcomer.person.command("kubeconfig")).arguments(&keep);
    kubeconfig
        .arguments(&newcomer.options())
        .argument("--pin-source=env:TOKEN_PIN")
        .run()
        .succeeded();
    let known = kubectl(&["--context=prod-writes", "auth", "whoami"]).printed();
    assert!(known.contains("tess-writes"), "{known}");
    for context in ["--context=prod", "--context=prod-writes"] {
        let name = newcomer.ask(&["--writes-by-touch", "--object-id=0x78", context]);
        assert!(name.starts_with("tess-writes-"), "{name}");
        assert!(!name.starts_with("tess-writes-writes"), "{name}");
    }

    // kubectl takes one user in all contexts: another one goes after a yes.
    let set = ["kuberc", "set", "--section=defaults", "--overwrite"];
    let other = ["--command=edit", "--option=user=of-another-cluster"];
    kubectl(&[&set[..], &other].concat()).succeeded();
    let asked = || newcomer.enroll(&enroll).argument("--kuberc");
    asked().piped("yes\n").run().fails(7, &["no terminal", "kubectl --user=tess-writes …"]);
    let mut terminal = asked().at_terminal();
    terminal.expect("kubectl takes user \"of-another-cluster\"").expect("Type yes: ");
    terminal.type_line("yes").finish().0.succeeded();
    // As kubectl 1.35 has it; what stands there without options is read, too.
    let kubectl_1_35 = newcomer.older_kubectl();
    let preferences = newcomer.person.directory().join(".kube/kuberc");
    let text = fs::read_to_string(&preferences).unwrap();
    let without = "- command: scale\n  options:\n  - default: tess-writes\n    name: user\n";
    assert!(text.contains(without), "{text}");
    let null = "- command: scale\n  options: null\n";
    fs::write(&preferences, text.replace(without, null)).unwrap();
    asked().variable("PATH", &kubectl_1_35).run().succeeded();
    assert!(fs::read_to_string(&preferences).unwrap().contains(without));
    let printed = newcomer.enroll(&enroll).variable("PATH", &kubectl_1_35).run().succeeded();
    assert!(printed.shown().contains("do kubectl alpha kuberc set "), "{printed:?}");
    fs::write(&preferences, "defaults: 5\n").unwrap();
    asked().run().fails(9, &["kubectl could not show its preferences"]);
    fs::remove_file(&preferences).unwrap();
    newcomer.enroll(&enroll).argument("--kuberc").run().succeeded();

    // kubectl of before 1.34, and other clients, stay with the first one.
    let older = newcomer.kubectl(&["delete", "configmap", "touched"]);
    older.variable("KUBERC", "off").run().failed().says(&["User \"tess\" cannot delete"]);
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

    // A context of that name that is for something else is left alone.
    let config = |arguments: &[&str]| {
        newcomer.kubectl(&[&["config"], arguments].concat()).run().succeeded();
    };
    config(&["set-cluster", "other", "--server=https://127.0.0.1:9"]);
    config(&["set-context", "prod-writes", "--cluster=other", "--user=jane"]);
    let told = [
        "\"prod-writes\" is not the one for writes beside \"prod\": it is for the cluster at \
                 https://127.0.0.1:9",
        "rename-context prod-writes NEW",
    ];
    newcomer.enroll(&["--writes-by-touch"]).run().fails(3, &told);
    newcomer.stop();
}

impl Newcomer<'_> {
    /// PATH with a kubectl whose command for its preferences is as in 1.35.
    fn older_kubectl(&self) -> String {
        let folder = self.person.directory().join("programs");
        fs::create_dir(&folder).unwrap();
        let script = format!(
            "#!/bin/sh\ncase $1 in\nkuberc) echo 'error: unknown command \"kuberc\"' >&2; exit 1;;\n\
             alpha) shift;;\nesac\nexec {} \"$@\"\n",
            cluster().programs().join("kubectl").display()
        );
        fs::write(folder.join("kubectl"), script).unwrap();
        fs::set_permissions(folder.join("kubectl"), fs::Permissions::from_mode(0o755)).unwrap();
        format!("{}:/usr/bin:/bin", folder.display())
    }
}
