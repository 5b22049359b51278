//! `revoke`, with a real API server: who has rights by a binding has none a second after it, and who comes with a
//! revoked certificate changes nothing. What goes on is shown, too, since the pages say it.

use std::thread::sleep;

use crate::fixture::*;

/// Whoever a token was taken from calls.
fn administrator() -> Person {
    cluster().person("olaf", &["system:masters"])
}

fn revoke(person: &Person, what: &str) -> Invocation {
    person.command("revoke").argument(what)
}

/// Types yes where it is asked.
fn revoked(person: &Person, what: &str) -> Outcome {
    let mut terminal = revoke(person, what).argument("--apply").at_terminal();
    terminal.expect("? Type yes: ").type_line("yes");
    terminal.finish().0
}

/// Has the administrator make these with `kubectl create`.
fn create(objects: &[&str]) {
    for object in objects {
        let words: Vec<_> = ["create"].into_iter().chain(object.split(' ')).collect();
        cluster().administrate(&words, "");
    }
}

fn may(person: &Person, arguments: &[&str]) -> bool {
    let outcome = person.kubectl().arguments(arguments).run();
    let is_forbidden =
        outcome.stderr.contains("(Forbidden)") || outcome.stderr.contains(" is forbidden: ");
    assert!(outcome.status.success() || is_forbidden, "{outcome:?}");
    outcome.status.success()
}

/// Waits until they may, who have just been given the right.
fn wait_until_allowed(person: &Person, arguments: &[&str]) {
    wait_until("the right", || may(person, arguments));
}

/// By which certificate the cluster knows this person.
fn credential_id(person: &Person) -> String {
    let path = "--output=jsonpath={.status.userInfo.extra}";
    let extra: Value = serde_json::from_str(
        &person.kubectl().arguments(&["auth", "whoami", path]).run().printed(),
    )
    .unwrap();
    extra["authentication.kubernetes.io/credential-id"][0].as_str().unwrap().to_owned()
}

const READ: &[&str] = &["get", "configmaps"];

#[test]
fn a_cards_group_has_no_rights_a_second_later_and_an_open_watch_goes_on() {
    let card = cluster().person("lost-card", &["hw:attested", "hw:yubikey:4711"]);
    create(&[
        "clusterrolebinding lost-card --clusterrole=system:aggregate-to-view --group=hw:yubikey:4711",
    ]);
    wait_until_allowed(&card, READ);
    create(&["configmap before-revocation"]);
    let mut watch =
        card.kubectl().arguments(&["get", "configmaps", "--watch", "--output=name"]).start(None);
    while watch.line() != "configmap/before-revocation" {}

    let outcome = revoked(&administrator(), "4711");
    outcome.says(&[
        "ClusterRoleBinding \"lost-card\" gives ClusterRole \"system:aggregate-to-view\" to group \
         \"hw:yubikey:4711\" alone, and is to be deleted",
        "this leaves",
        "what the certificate's user and its other groups are given, such as hw:attested",
        "a watch, a followed log, an exec or port-forward goes on until it ends",
    ]);
    assert_eq!(outcome.printed(), "✔ deleted        ClusterRoleBinding \"lost-card\"\n");
    sleep(Duration::from_secs(1));
    assert!(!may(&card, READ));

    // What was open is told of what happens afterwards.
    create(&["configmap after-revocation"]);
    while watch.line() != "configmap/after-revocation" {}
    kill_process(watch.pid(), Signal::TERM).unwrap();
    watch.finish();
    cluster().administrate(&["delete", "configmap", "before-revocation", "after-revocation"], "");
}

#[test]
fn a_binding_with_others_loses_the_user_alone() {
    let (jane, kept) = (cluster().person("lost-user", &[]), cluster().person("kept-user", &[]));
    let role = "--clusterrole=system:aggregate-to-view";
    create(&[
        &format!("clusterrolebinding lost-user-s --user=kept-user --user=lost-user {role}"),
        &format!("rolebinding lost:user --namespace=default --user=lost-user {role}"),
        // Others of the same name.
        &format!("clusterrolebinding lost-group --group=lost-user {role}"),
        &format!(
            "rolebinding lost-account --namespace=default --serviceaccount=default:lost-user {role}"
        ),
    ]);
    wait_until_allowed(&jane, READ);
    wait_until_allowed(&kept, READ);
    let printed = revoked(&administrator(), "lost-user").printed();
    let done = [
        "✔ changed        ClusterRoleBinding \"lost-user-s\"\n",
        "✔ deleted        RoleBinding \"lost:user\" in namespace \"default\"\n",
    ];
    assert_eq!(printed, done.concat());
    sleep(Duration::from_secs(1));
    assert!(!may(&jane, READ));
    assert!(may(&kept, READ));
    let others = ["clusterrolebinding/lost-user-s", "clusterrolebinding/lost-group"];
    cluster().administrate(&[&["delete"], &others[..]].concat(), "");
    cluster().administrate(&["delete", "rolebinding/lost-account"], "");
}

/// What is printed is for a shell, whatever the names are.
#[test]
fn without_apply_nothing_is_changed_and_what_is_printed_does_it() {
    let (jane, kept) = (cluster().person("o'hara", &[]), cluster().person("mr hyde", &[]));
    let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:aggregate-to-view"});
    let binding = |kind: &str, name: &str, users: &[&str]| {
        let user = |name: &&str| json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name});
        let subjects: Vec<_> = users.iter().map(user).collect();
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "roleRef": role, "subjects": subjects,
               "metadata": {"name": name, "namespace": if kind == "RoleBinding" { "default" } else { "" }}})
    };
    let both = ["o'hara", "mr hyde", "o'hara"];
    let list = json!({"apiVersion": "v1", "kind": "List", "items": [
        binding("ClusterRoleBinding", "both; touch x", &both),
        binding("RoleBinding", "only $(touch x)", &["o'hara"]),
    ]});
    cluster().administrate(&["apply", "-f", "-"], &list.to_string());
    wait_until_allowed(&jane, READ);

    let olaf = administrator();
    let outcome = revoke(&olaf, "o'hara").run();
    outcome.says(&["nothing was changed; with --apply this command carries it out", "this leaves"]);
    let commands = outcome.printed();
    assert_eq!(commands.lines().count(), 4, "{commands}");
    assert!(may(&jane, READ));
    olaf.command("unused").within("sh", &commands).run().printed();
    sleep(Duration::from_secs(1));
    assert!(!may(&jane, READ));
    assert!(may(&kept, READ));
    assert!(!olaf.directory().join("x").exists());
    let told = [
        "no RoleBinding or ClusterRoleBinding of the cluster names user \"o'hara\"",
        "X509SHA256=",
    ];
    revoke(&olaf, "o'hara").run().fails(9, &told);
    cluster().administrate(&["delete", "clusterrolebinding", "both; touch x"], "");
}

/// Digits alone are a card, whatever the bindings have.
#[test]
fn a_user_whose_name_is_a_number_is_told_from_a_card() {
    create(&[
        "clusterrolebinding number-user --clusterrole=view --user=20251128",
        "clusterrolebinding number-writes --clusterrole=edit --user=20251128-writes",
    ]);
    let olaf = administrator();
    let of_user = |what: &str| {
        let outcome = revoke(&olaf, what).argument("--context=prod").run();
        let second = "this leaves user \"20251128-writes\", who has roles of its own: \
                      `pkcs11-external-signer revoke 20251128-writes --context=prod` takes them";
        outcome.says(&[second]);
        let printed = outcome.printed();
        let command = "\nkubectl --context=prod delete clusterrolebinding/number-user\n";
        assert!(printed.ends_with(command), "{printed}");
    };
    of_user("user=20251128");
    let user = "user \"20251128\", whose name is the YubiKey's serial number: \
                `pkcs11-external-signer revoke user=20251128` takes";
    for what in ["20251128", "serial=20251128"] {
        let none = revoke(&olaf, what).run();
        none.fails(9, &["names group \"hw:yubikey:20251128\"", user]);
    }
    create(&["clusterrolebinding number-card --clusterrole=view --group=hw:yubikey:20251128"]);
    for what in ["20251128", "serial=20251128"] {
        let outcome = revoke(&olaf, what).run();
        outcome.says(&[user]);
        let printed = outcome.printed();
        assert!(printed.ends_with(" delete clusterrolebinding/number-card\n"), "{printed}");
        assert!(!printed.contains("number-user"), "{printed}");
    }
    of_user("user=20251128");
    let bindings = ["clusterrolebinding", "number-user", "number-writes", "number-card"];
    cluster().administrate(&[&["delete"], &bindings[..]].concat(), "");
}

#[test]
fn a_server_that_is_dead_is_told_in_a_line_of_kubectls_and_one_of_ours() {
    let olaf = administrator();
    let dead = ["config", "set-cluster", "dead", "--server=https://127.0.0.1:9"];
    olaf.kubectl().arguments(&dead).run().succeeded();
    let user = ["config", "view", "--output=jsonpath={.contexts[0].context.user}"];
    let user = format!("--user={}", olaf.kubectl().arguments(&user).run().printed());
    let context = ["config", "set-context", "dead", "--cluster=dead", &user];
    olaf.kubectl().arguments(&context).run().succeeded();
    for command in
        [&["revoke", "jane"][..], &["enroll", softhsm_option()], &["approve", "jane-0a1b2c3d4e"]]
    {
        let [name, argument] = command else { panic!("{command:?}") };
        let outcome = olaf.command(name).arguments(&[argument, "--context=dead"]).run();
        outcome.fails(9, &["127.0.0.1:9 was refused", "it says why above"]);
        assert!(!outcome.stderr.contains(".go:"), "{outcome:?}");
    }
}

#[test]
fn what_was_changed_since_it_was_shown_is_left_and_the_rest_is_done() {
    let names = ["moved-a", "moved-b", "moved-c"];
    for name in names {
        create(&[&format!("clusterrolebinding {name} --clusterrole=view --user=moved")]);
    }
    let olaf = administrator();
    let mut terminal = revoke(&olaf, "moved").argument("--apply").at_terminal();
    terminal.expect("Take these roles from user \"moved\"? Type yes: ");
    let subjects = "--patch=[{\"op\": \"add\", \"path\": \"/subjects/-\", \"value\": \
                    {\"kind\": \"User\", \"name\": \"new\", \"apiGroup\": \"rbac.authorization.k8s.io\"}}]";
    cluster().administrate(&["patch", "clusterrolebinding/moved-a", "--type=json", subjects], "");
    cluster().administrate(&["delete", "clusterrolebinding/moved-b"], "");
    create(&["clusterrolebinding moved-b --clusterrole=view --user=moved"]);
    let outcome = terminal.type_line("yes").finish().0;
    outcome.fails(9, &["of 3 bindings, 2 may still name user \"moved\"", "run this command again"]);
    outcome.says(&[
        "ClusterRoleBinding \"moved-a\" is no longer as it was shown, and was left as it is",
    ]);
    assert_eq!(outcome.shown(), "✔ deleted        ClusterRoleBinding \"moved-c\"\n");
    let printed = revoked(&olaf, "moved").printed();
    let done = "✔ changed        ClusterRoleBinding \"moved-a\"\n✔ deleted        ClusterRoleBinding \"moved-b\"\n";
    assert_eq!(printed, done);
    cluster().administrate(&["delete", "clusterrolebinding/moved-a"], "");
}

/// Somebody with every right, by two certificates of which one is lost.
#[test]
fn a_revoked_certificate_reads_and_changes_nothing() {
    let [lost, other] = [0, 1].map(|_| cluster().person("lost-admin", &["system:masters"]));
    let id = credential_id(&lost);
    let olaf = administrator();
    create(&["configmap of-the-lost"]);
    let label = ["label", "configmap", "of-the-lost", "--overwrite"];
    let write = [&label[..], &["is=written"]].concat();
    assert!(may(&lost, &write));

    // The manifest alone, which needs no cluster.
    let outcome =
        revoke(&olaf, &id).argument("--context=of mine").variable("KUBECONFIG", "/dev/null").run();
    outcome.says(&["`kubectl --context='of mine' apply -f -` applies what is printed"]);
    let manifest = outcome.printed();
    let reader =
        olaf.kubectl().arguments(&["apply", "--dry-run=server", "-f", "-"]).piped(manifest.clone());
    assert!(reader.run().printed().contains(" created (server dry run)\n"));
    assert!(may(&lost, &write));

    let outcome = revoked(&olaf, &id);
    let named = outcome.stderr.contains(&manifest);
    assert!(named && outcome.printed().ends_with(" created\n"), "{outcome:?}");
    // Each time another one: kubectl asks for nothing that is as it should be already.
    let mut labels = (0..).map(|number| format!("is=lost-{number}"));
    let mut next = || labels.next().unwrap();
    wait_until("the revocation", || !may(&lost, &[&label[..], &[&next()]].concat()));
    for arguments in [
        &["exec", "shell", "--", "true"][..],
        &["get", "--raw=/api/v1/nodes/node/proxy/"],
        &["create", "configmap", "another"],
        &["delete", "configmap", "of-the-lost"],
        &["certificate", "approve", "any"],
    ] {
        let refused = lost.kubectl().arguments(arguments).run().failed();
        let is_missing = arguments[0] == "certificate" && refused.stderr.contains("NotFound");
        assert!(
            is_missing || refused.stderr.contains(&format!("the certificate {id} is revoked")),
            "{refused:?}"
        );
    }
    // What remains: it reads, another certificate of the same user writes, and so does who may act for somebody else.
    assert!(may(&lost, READ));
    assert!(may(&other, &[&label[..], &["is=others"]].concat()));
    let impersonated = ["--as=anybody", "--as-group=system:masters"];
    assert!(may(&lost, &[&label[..], &["is=impersonated"], &impersonated].concat()));
    for what in ["a watch", "in the name of others (--as)", "cluster-admin", "Kubernetes 1.32"] {
        assert!(outcome.stderr.contains(what), "{outcome:?}");
    }

    // Once more nothing is left to do, and what is said undoes it: the lost one itself can.
    assert!(revoked(&olaf, &id).printed().ends_with(" unchanged\n"));
    let undo = told_command(&outcome.stderr, "kubectl delete ");
    lost.command("unused").within("sh", &undo).run().printed();
    wait_until("the right", || may(&lost, &write));
    cluster().administrate(&["delete", "configmap", "of-the-lost"], "");
}

#[test]
fn nothing_is_revoked_without_a_person_or_without_their_yes() {
    create(&["clusterrolebinding unconfirmed --clusterrole=view --user=unconfirmed"]);
    let olaf = administrator();
    let apply = |what: &str| revoke(&olaf, what).argument("--apply");
    let certificate = format!("X509SHA256={}", "0".repeat(64));
    for what in ["unconfirmed", &certificate] {
        apply(what).piped("yes\n").run().fails(7, &["no terminal", "nothing was done"]);
        let mut terminal = apply(what).at_terminal();
        terminal.expect("Type yes: ").type_line("y");
        terminal.finish().0.fails(7, &["not confirmed: you did not type yes"]);
    }
    cluster().administrate(&["delete", "clusterrolebinding", "unconfirmed"], "");
    let policies =
        cluster().administrate(&["get", "validatingadmissionpolicies", "--output=name"], "");
    assert!(!policies.contains("revoked-0000"), "{policies}");
}

#[test]
fn who_may_not_see_bindings_is_told_and_what_is_none_is_refused() {
    let nobody = cluster().person("nobody", &[]);
    revoke(&nobody, "jane")
        .run()
        .fails(9, &["kubectl could not list the bindings of roles", "(Forbidden)"]);
    for what in ["X509SHA256=97ec", "system:kube-scheduler", "!!!", ""] {
        let refused = revoke(&nobody, what).run();
        assert_eq!(refused.told(2), "");
        refused.says(&["invalid value", "for '<WHAT>'"]);
    }
}
