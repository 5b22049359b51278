//! `approve`, with a real API server and the signer of kube-controller-manager.

mod policy;
mod verifier;

use rcgen::KeyPair;

use crate::fixture::der::{COMMON_NAME, ORGANIZATION, element, relative, request, request_pem};
use crate::fixture::*;

/// Jane of the group dev, who may ask.
fn jane(cluster: &Cluster) -> Person {
    cluster.person("jane", &["dev", REQUESTERS])
}

fn approver(cluster: &Cluster) -> Person {
    cluster.person("otto", &[APPROVERS])
}

fn approve(person: &Person, name: &str) -> Invocation {
    person.command("approve").argument(name)
}

/// What openssl says of a certificate.
fn openssl_x509(pem: &[u8], option: &str) -> String {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("certificate");
    fs::write(&path, pem).unwrap();
    printed(
        tool("openssl", "openssl")
            .args(["x509", "-noout", option, "-nameopt", "oneline", "-in"])
            .arg(path),
    )
}

#[test]
fn a_request_that_is_its_requesters_is_approved_after_a_yes_and_signed() {
    let cluster = hasty_cluster();
    let (jane, otto) = (jane(cluster), approver(cluster));
    jane.asks("good", &Wanted::default());
    let mut terminal = approve(&otto, "good").argument("--context=prod").at_terminal();
    terminal.expect("becomes \"jane\", in \"dev\".");
    terminal.expect("Type yes: ");
    assert!(cluster.conditions("good").is_empty());
    let outcome = terminal.type_line("yes").finish().0;
    assert_eq!(outcome.printed(), "good approved\n");
    outcome.says(&[
        "requester             \"jane\"",
        "authenticated by    X509SHA256=",
        "asks to be            \"jane\"",
        "subject             O=dev, CN=jane",
        "key                 ECDSA P-256",
        "usages              client auth",
        "for                 10 minutes",
        "✔                     the requester is who the certificate will be for",
    ]);
    assert!(!outcome.stderr.contains("yourself"), "{outcome:?}");
    let certificate = cluster.issued_certificate("good");
    assert_eq!(openssl_x509(&certificate, "-subject"), "subject=O = dev, CN = jane");
    // What is shown as the key's fingerprint is what openssl says of the key.
    let public = openssl_x509(&certificate, "-pubkey");
    let mut command = tool("bash", "bash");
    command.args(["-c", "openssl pkey -pubin -outform DER <<<\"$1\" | sha256sum", "-", &public]);
    let hash = printed(&mut command);
    let hash = hash.split_whitespace().next().unwrap();
    let mut shown = outcome.stderr.lines().skip_while(|line| *line != "  SHA-256 of the key");
    assert_eq!(shown.nth(1).map(|digits| digits.replace(' ', "")).as_deref(), Some(hash));
    // Shorter than asked.
    let mut openssl = tool("bash", "bash");
    let pem = String::from_utf8(certificate).unwrap();
    openssl.args(["-c", "openssl x509 -noout -checkend 70 <<<\"$1\"", "-", &pem]);
    assert!(!openssl.output().unwrap().status.success());

    let again = approve(&otto, "good").run().printed();
    assert_eq!(again, "good has been approved before, and its certificate is issued\n");
}

#[test]
fn what_the_requester_is_not_is_refused() {
    let cluster = cluster();
    let (jane, otto) = (jane(cluster), approver(cluster));
    let wanted = |user, groups| Wanted { user, groups, ..Wanted::default() };
    for (name, wanted, said) in [
        (
            "other-name",
            wanted("kubernetes-admin", &["dev"]),
            "is for \"kubernetes-admin\", who is not the requester",
        ),
        (
            "other-group",
            wanted("jane", &["ops"]),
            "names groups that the requester isn't in: \"ops\"",
        ),
        (
            "control",
            wanted("\u{1b}[2J\u{202e}jane", &["dev"]),
            "is for \"\\u{1b}[2J\\u{202e}jane\", who is not the requester",
        ),
        (
            "server",
            Wanted { usages: &["client auth", "server auth"], ..Wanted::default() },
            "is for the usages client auth and server auth, not for client auth alone",
        ),
    ] {
        jane.asks(name, &wanted);
        let (outcome, screen) = approve(&otto, name).at_terminal().finish();
        outcome.fails(9, &[said, "--despite-mismatch"]);
        assert_eq!(screen, "");
        assert!(!outcome.stderr.contains('\u{1b}') && !outcome.stderr.contains('\u{202e}'));
        assert!(cluster.conditions(name).is_empty(), "{name}");
    }
    let mut terminal = approve(&otto, "other-group").argument("--despite-mismatch").at_terminal();
    terminal.expect("Approve DESPITE what speaks against it? Type yes: ");
    assert_eq!(terminal.type_line("yes").finish().0.printed(), "other-group approved\n");
    assert_eq!(cluster.conditions("other-group"), ["Approved"]);
}

/// A token of an hour would become a certificate that outlives the account.
#[test]
fn an_account_of_the_cluster_itself_is_no_requester() {
    let cluster = cluster();
    let otto = approver(cluster);
    for (name, user) in
        [("pod", "system:serviceaccount:default:robot"), ("kubelet", "system:node:worker-1")]
    {
        let requester = cluster.person(user, &[REQUESTERS]);
        requester.asks(name, &Wanted { user, groups: &[], ..Wanted::default() });
        let (outcome, screen) = approve(&otto, name).at_terminal().finish();
        let said = format!("is made by \"{user}\", an account of the cluster itself");
        outcome.fails(9, &[&said, "--despite-mismatch"]);
        assert_eq!(screen, "");
        assert!(cluster.conditions(name).is_empty(), "{name}");
    }
}

/// The API server and its signer would read cluster-admin in each of these.
#[test]
fn a_request_that_can_be_read_in_two_ways_is_refused() {
    let cluster = cluster();
    let (jane, otto) = (jane(cluster), approver(cluster));
    let key = KeyPair::generate().unwrap();
    let of = |parts: &[Vec<u8>]| request_pem(&request(&key, &element(0x30, &[&parts.concat()])));
    let usual = [relative(ORGANIZATION, "dev"), relative(COMMON_NAME, "jane")];
    let evil = [relative(ORGANIZATION, "ops-admins"), relative(COMMON_NAME, "cluster-admin")];
    let with_empty_set = [&usual[..], &[element(0x31, &[])], &evil[..]].concat();
    let other_end = of(&usual).replace("END CERTIFICATE REQUEST", "END X") + &of(&evil);
    for (name, pem, said) in [
        ("two-requests", other_end, "is not one CERTIFICATE REQUEST in canonical PEM and DER"),
        ("empty-set", of(&with_empty_set), "its subject has an empty part"),
    ] {
        jane.asks_by(name, &Wanted::default(), &pem);
        for more in [&[][..], &["--despite-mismatch"]] {
            let (outcome, screen) = approve(&otto, name).arguments(more).at_terminal().finish();
            outcome.fails(9, &[said, "asked for anew"]);
            assert_eq!(screen, "");
        }
        assert!(cluster.conditions(name).is_empty(), "{name}");
    }
}

/// Who may impersonate can choose keys of `extra`, and names with quotes.
#[test]
fn no_text_of_a_request_passes_for_another_line_or_for_two_names() {
    let cluster = cluster();
    let otto = approver(cluster);
    let wanted = Wanted { user: "a\", \"b", groups: &["c\", \"d\\"], ..Wanted::default() };
    let impersonator = cluster.person("proxy", &["system:masters"]);
    let [certificate, private] = impersonator.key_file();
    let user = json!({
        "client-certificate": certificate, "client-key": private,
        "as": wanted.user, "as-groups": [wanted.groups[0], "system:masters"],
        "as-user-extra": {"x\n✔\u{1b}": ["v", "w\", \"x"]},
    });
    impersonator.write_kubeconfig(cluster, &user);
    impersonator.asks("forged", &wanted);
    let mut terminal = approve(&otto, "forged").at_terminal();
    terminal.expect(r#"becomes "a\", \"b", in "c\", \"d\\"."#);
    let outcome = terminal.type_line("no").finish().0;
    for shown in [r#"requester             "a\", \"b""#, r#"  x\u{a}✔\u{1b}       "v", "w\", \"x""#]
    {
        assert!(outcome.stderr.lines().any(|it| it == shown), "{outcome:?}");
    }
}

#[test]
fn nothing_is_approved_without_a_person_or_without_their_yes() {
    let cluster = cluster();
    let (jane, otto) = (jane(cluster), approver(cluster));
    jane.asks("unconfirmed", &Wanted::default());
    approve(&otto, "unconfirmed").run().fails(7, &["no terminal", "nothing was done", "\"jane\""]);
    approve(&otto, "unconfirmed").piped("yes\n").run().fails(7, &["no terminal"]);
    for answer in ["y", "YES", "", " yes"] {
        let mut terminal = approve(&otto, "unconfirmed").at_terminal();
        terminal.expect("Type yes: ").type_line(answer);
        terminal.finish().0.fails(7, &["not confirmed: you did not type yes"]);
    }
    assert!(cluster.conditions("unconfirmed").is_empty());
}

#[test]
fn a_request_that_was_made_anew_meanwhile_is_not_approved() {
    let cluster = cluster();
    let (jane, otto) = (jane(cluster), approver(cluster));
    for is_made_anew in [true, false] {
        jane.asks("moving", &Wanted::default());
        let mut terminal = approve(&otto, "moving").at_terminal();
        terminal.expect("Type yes: ");
        cluster.administrate(&["delete", "csr", "moving"], "");
        if is_made_anew {
            jane.asks("moving", &Wanted { user: "kubernetes-admin", ..Wanted::default() });
        }
        terminal.type_line("yes");
        terminal
            .finish()
            .0
            .fails(9, &["\"moving\" is no longer the one that was shown; nothing was approved"]);
        if is_made_anew {
            assert!(cluster.conditions("moving").is_empty());
            cluster.administrate(&["delete", "csr", "moving"], "");
        }
    }
}

#[test]
fn what_was_decided_before_is_told() {
    let cluster = cluster();
    let (jane, otto) = (jane(cluster), approver(cluster));
    jane.asks("refused", &Wanted::default());
    otto.kubectl().arguments(&["certificate", "deny", "refused"]).run().printed();
    let outcome = approve(&otto, "refused").run();
    outcome.fails(9, &["the request refused was denied: KubectlDeny", "--again"]);
    let outcome = approve(&otto, "never-made").run();
    outcome.fails(9, &["there is no CertificateSigningRequest \"never-made\""]);
    let outcome = approve(&otto, "../nodes").run();
    outcome.fails(2, &["can't be the name of a CertificateSigningRequest"]);
}

#[test]
fn who_may_not_approve_is_told_what_they_lack() {
    let cluster = cluster();
    let jane = jane(cluster);
    jane.asks("own", &Wanted::default());
    let mut terminal = approve(&jane, "own").at_terminal();
    terminal.expect("Type yes: ").type_line("yes");
    let told = [
        "Error from server (Forbidden)",
        "\"jane\" cannot update",
        "kubectl could not approve the CertificateSigningRequest",
    ];
    let outcome = terminal.finish().0;
    outcome.fails(9, &told);
    outcome.says(&["you are the requester yourself", "have another person approve it"]);
    assert!(cluster.conditions("own").is_empty());
}

#[test]
fn without_kubectl_or_a_context_it_says_so() {
    let otto = approver(cluster());
    let outcome = approve(&otto, "a").variable("PATH", "/nowhere").run();
    outcome.fails(9, &["there is no kubectl in PATH", "install kubectl"]);
    // kubectl 1.37 and later tells its plugins which one has started them.
    let asked = approve(&otto, "gone").variable("PATH", "/nowhere");
    let outcome = asked.variable("KUBECTL_PATH", kubectl()).run();
    outcome.fails(9, &["there is no CertificateSigningRequest \"gone\""]);
    let outcome = approve(&otto, "a").argument("--context=test").run();
    outcome.fails(3, &["no context \"test\"", "kubectl config get-contexts"]);
    approve(&otto, "a").variable("KUBECONFIG", "/dev/null").run().fails(3, &["no current-context"]);
}

/// Gives the person's kubeconfig a credential plugin.
fn log_in_with(person: &Person, cluster: &Cluster, script: &str, mode: &str) {
    let plugin = person.directory().join("login");
    write_file(&plugin, format!("#!/bin/sh\n{script}\n"), 0o755);
    let exec = json!({
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": plugin,
        "interactiveMode": mode,
    });
    person.write_kubeconfig(cluster, &json!({"exec": exec}));
}

#[test]
fn what_a_plugin_of_kubectls_asks_is_passed_on_and_its_failure_told() {
    let cluster = cluster();
    let otto = approver(cluster);
    log_in_with(&otto, cluster, "printf 'Enter the code: ' >&2; exit 7", "IfAvailable");
    let outcome = approve(&otto, "a").run();
    assert!(outcome.stderr.starts_with("Enter the code: "), "{outcome:?}");
    let told = [
        "context \"prod\": kubectl could not tell who this user is",
        "login failed with exit code 7",
    ];
    outcome.fails(9, &told);
}

#[test]
fn a_plugin_of_kubectls_can_ask_the_person_at_standard_input() {
    let cluster = cluster();
    let (jane, otto) = (jane(cluster), approver(cluster));
    jane.asks("interactive", &Wanted::default());
    let [certificate, private] = otto.key_file().map(|path| fs::read_to_string(path).unwrap());
    let answer = json!({
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "status": {"clientCertificateData": certificate, "clientKeyData": private},
    });
    let file = otto.directory().join("answer.json");
    fs::write(&file, answer.to_string()).unwrap();
    let script = format!(
        "printf 'Enter the code: ' >/dev/tty
        read -r code
        [ \"$code\" = 42 ] && cat '{}'",
        file.display()
    );
    log_in_with(&otto, cluster, &script, "Always");
    let terminal = Terminal::new();
    let input = terminal.input();
    let mut terminal = terminal.start(approve(&otto, "interactive").input_file(input));
    for _ in ["who approves", "the request"] {
        terminal.expect("Enter the code: ").type_line("42");
    }
    terminal.expect("Type yes: ").type_line("yes");
    // The approval has a body, which takes nothing from standard input.
    let outcome = terminal.expect("Enter the code: ").type_line("42").finish().0;
    assert_eq!(outcome.printed(), "interactive approved\n");
    assert_eq!(cluster.conditions("interactive"), ["Approved"]);
}

/// As on a busy machine, where the program sees kubectl's end first.
#[test]
fn what_kubectl_says_is_heard_when_it_has_ended_already() {
    let cluster = cluster();
    let (jane, otto) = (jane(cluster), approver(cluster));
    jane.asks("late", &Wanted::default());
    let folder = otto.directory().join("programs");
    fs::create_dir(&folder).unwrap();
    let real = cluster.programs().join("kubectl");
    let script = format!(
        "#!/bin/sh\nsaid=$('{}' \"$@\")\n(sleep 0.3; echo \"$said\") & exit 0\n",
        real.display()
    );
    fs::write(folder.join("kubectl"), script).unwrap();
    fs::set_permissions(folder.join("kubectl"), fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:/usr/bin:/bin", folder.display());
    let outcome = approve(&otto, "late").variable("PATH", path).run();
    outcome.fails(7, &["asks to be            \"jane\"", "no terminal"]);
}
