//! The first minute, as the README and the guide have it, run as it stands, and the demo.

use crate::fixture::*;

/// The first `sh` block behind this heading of the page.
fn commands_of(page: &str, heading: &str) -> String {
    blocks_of(page, heading, "sh").remove(0)
}

/// These commands at a terminal, in this directory, with the program in PATH.
fn typed(invocation: Invocation, directory: &Path, commands: &str) -> Terminal {
    let folder = Path::new(PROGRAM).parent().unwrap().display();
    let directory = directory.display();
    let script = format!("set -ex\ncd {directory}\nPATH=\"{folder}\":$PATH\n{commands}");
    invocation.within("bash", &script).at_terminal()
}

/// A kubeconfig as `kubectl config` makes it: a cluster, a context without a user, and the context
/// that is the current one.
fn made_by_kubectl(store: &Store, current: Option<&str>) {
    let path = store.path("kubeconfig");
    let mut config: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    let entry = config["clusters"][0]["cluster"].take();
    fs::remove_file(&path).unwrap();
    let text = |key: &str| entry[key].as_str().unwrap().to_owned();
    let kubectl = |arguments: &[&str]| {
        let run = cluster().administrator(store).variable("KUBECONFIG", &path);
        run.argument("config").arguments(arguments).run().printed();
    };
    let server = format!("--server={}", text("server"));
    let authority = format!("--certificate-authority={}", text("certificate-authority"));
    kubectl(&["set-cluster", "prod", &server, &authority]);
    kubectl(&["set-context", "prod", "--cluster=prod"]);
    if let Some(current) = current {
        kubectl(&["set-credentials", "somebody", "--token=unused"]);
        kubectl(&["set-context", current, "--cluster=prod", "--user=somebody"]);
        kubectl(&["use-context", current]);
    }
}

#[test]
fn the_first_minute_leads_from_a_bare_token_to_a_cluster_that_issues_the_certificate() {
    let nina = cluster().person("nina", &["dev", REQUESTERS]);
    let store = token_with([]);
    let invocation = nina.command("unused").variable("SOFTHSM2_CONF", store.path("softhsm2.conf"));
    let commands = commands_of("README.md", "The first minute");
    let mut terminal = typed(invocation, nina.directory(), &commands);
    terminal.expect_prompt().type_line(PIN);
    approve_next(&mut terminal, &[]);
    assert_knows(&terminal.finish_with_pin().printed(), "nina");
}

#[test]
fn the_first_minute_leads_from_a_bare_token_to_a_cluster_with_another_ca() {
    for current in [None, Some("other"), Some("prod")] {
        first_minute(current);
    }
}

fn first_minute(current: Option<&str>) {
    let store = token_with([]);
    let invocation = cluster().command(&store, &store.configuration(), "unused");
    made_by_kubectl(&store, current);
    let directory = store.directory.path();
    for (file, name) in cluster().authority().iter().zip(["ca.pem", "ca.key"]) {
        fs::copy(file, directory.join(name)).unwrap();
    }
    let commands = commands_of("docs/enroll.md", "With any other CA");
    let mut terminal = typed(invocation, directory, &commands);
    for _ in ["request", "certificate", "check", "kubectl"] {
        terminal.expect_prompt().type_line(PIN);
    }
    let (outcome, _) = terminal.finish();
    let shown = outcome.printed();
    for expected in [
        ", made on token \"test token\"",
        "✔ certificate    user \"jane\", group \"dev\", expires 20",
        " uses the key, as user \"jane\"",
    ] {
        assert!(shown.contains(expected), "no {expected:?} in\n{shown}");
    }
    assert_knows(&shown, "jane");
    // What is to be typed next is what the guide types next.
    let lines: Vec<_> = commands.lines().collect();
    let next = lines[lines.len() - 2].split('#').next().unwrap().trim_end();
    let told = format!("\nNext:\n  {next}\n  kubectl ");
    assert!(shown.contains(&told), "{shown}");
}

/// Ruth is jane, and SoftHSM the YubiKey. The roles are those that the documented ones collect, which nobody does here.
#[test]
fn one_key_reads_and_another_one_writes() {
    needs_isolation!();
    let ruth = cluster().person("ruth", &[REQUESTERS]);
    let store = token_with([]);
    let heading = "Reads without a touch, writes with one";
    let [keys, rights] = &blocks_of("docs/enroll.md", heading, "sh")[..] else {
        panic!("another number of blocks")
    };
    let rights = adapted(
        rights,
        &[
            ["jane", "ruth"],
            ["=view", "=system:aggregate-to-view"],
            ["=edit", "=system:aggregate-to-edit"],
        ],
    );
    for line in rights.lines() {
        let words: Vec<_> = line.split(' ').skip(1).collect();
        cluster().administrate(&words, "");
    }
    cluster().administrate(&["create", "deployment", "old", "--image=old"], "");
    let keys = adapted(
        keys,
        &[
            ["jane", "ruth"],
            ["--slot=9a", "--object-id=1"],
            ["--writes-by-touch", "--writes-by-touch --object-id=2"],
        ],
    );
    // As before kubectl 1.34.
    let keys = keys + "export KUBERC=off\n! kubectl --context=prod delete deployment old\n";
    let invocation = ruth.command("unused").variable("SOFTHSM2_CONF", store.path("softhsm2.conf"));
    let mut terminal = typed(invocation, ruth.directory(), &keys);
    terminal.expect_prompt().type_line(PIN);
    approve_next(&mut terminal, &[]);
    for _ in ["the cluster as ruth", "a key for ruth-writes"] {
        terminal.expect_prompt().type_line(PIN);
    }
    approve_next(&mut terminal, &["--despite-mismatch"]);
    terminal.expect_prompt().type_line(PIN);
    let (outcome, _) = terminal.finish();
    let said = ["+ kubectl --context=prod get pods", "User \"ruth\" cannot delete resource"];
    let printed = outcome.printed_beside(&said);
    let (_, printed) = printed.split_once("\nNAME ").expect(&printed);
    assert!(printed.contains("shell ") && printed.contains("\"old\" deleted"), "{printed}");
}

/// SoftHSM is the TPM, kubectl the deployer, and the file systems are as the unit's lines have them. systemd gives a service's
/// user a file of this mode.
#[cfg(target_os = "linux")]
#[test]
fn a_machine_has_a_key_in_a_unit_of_systemd() {
    needs_isolation!();
    let blocks = ["ini", "sh"].map(|it| blocks_of("docs/run.md", "A key for a machine", it));
    let [unit, setup] = blocks.each_ref().map(|it| it[0].as_str());
    let store = cluster().token(Kind::P256, ADMINISTRATOR);
    let [once, service] =
        ["once", "service"].map(|it| cluster().command(&store, &store.configuration(), it));
    made_by_kubectl(&store, None);
    let (pin, file) = (store.path("pin"), store.path("deployer.service"));
    write_file(&pin, PIN, 0o440);
    let credential = ["/run/credentials/deployer.service/pin", pin.to_str().unwrap()];
    let setup = setup.replace("\\\n", "");
    let line = setup.lines().nth(1).unwrap();
    let line = adapted(line, &[["sudo -u deployer -H ", ""], credential]);
    typed(once, store.directory.path(), &line).finish().0.succeeded();

    // Each a word for systemd and the shell.
    let [program, kubectl] =
        [Path::new(PROGRAM), kubectl()].map(|it| format!("\"{}\"", it.display()));
    let programs = [["/usr/bin/pkcs11-external-signer", &program], ["/usr/bin/deployer", &kubectl]];
    let unit = adapted(unit, &programs);
    fs::write(&file, &unit).unwrap();
    let verify = Invocation::new(store.directory.path()).program("systemd-analyze".as_ref());
    let verify = verify.arguments(&["verify", "--man=no", file.to_str().unwrap()]);
    verify.run().succeeded().silently();
    assert!(unit.contains("\nProtectSystem=strict\nPrivateTmp=yes\n"));
    let (_, command) = unit.split_once("\nExecStart=").unwrap();
    let command = command.lines().next().unwrap();
    let script = format!(
        "for place in $(cut -d ' ' -f 5 /proc/self/mountinfo); do
            case $place in /tmp | *.local/*) ;; *) mount -o remount,bind,ro $place 2>/dev/null ;; esac
        done
        touch /run/user/0/file 2>/dev/null || exec {command} auth whoami"
    );
    let printed = service.within("bash", &script).run().printed();
    assert!(printed.contains(" jane\n"), "{printed}");
}

/// The HSM is SoftHSM, and the job asks who it is.
#[test]
fn a_job_has_a_key_whose_pin_is_a_variable_that_the_job_does_not_see() {
    let store = token_with([]);
    let invocation = cluster().command(&store, &store.configuration(), "unused");
    made_by_kubectl(&store, None);
    let directory = store.directory.path();
    for (file, name) in cluster().authority().iter().zip(["ca.pem", "ca.key"]) {
        fs::copy(file, directory.join(name)).unwrap();
    }
    fs::copy(store.path("kubeconfig"), store.path("ci.kubeconfig")).unwrap();
    let setup = commands_of("docs/ci.md", "Once, where the HSM can be reached");
    let module = format!("--module={}", softhsm_library().display());
    let setup =
        adapted(&setup, &[["--module=/opt/vendor/lib/pkcs11.so --token-label=ci", &module]]);
    let job = commands_of("docs/ci.md", "In a job");
    let job = adapted(
        &job,
        &[["kubectl apply -f deploy/", "sh -c 'kubectl auth whoami; echo PIN: ${HSM_PIN-none}'"]],
    );
    let folder = Path::new(PROGRAM).parent().unwrap().display();
    let script = format!(
        "set -e; cd {}; PATH=\"{folder}\":$PATH\n{setup}\nexport KUBECONFIG=$PWD/ci.kubeconfig\n{job}",
        directory.display()
    );
    let job = invocation.variable("HSM_PIN", PIN).within("bash", &script).run().succeeded();
    let shown = job.shown();
    assert_contains(&shown, &[" deployer\n", " [ci system:authenticated]\n", "\nPIN: none\n"]);
}

/// Another person approves the request for which this waits.
fn approve_next(waiting: &mut Terminal, options: &[&str]) {
    let approve = "pkcs11-external-signer approve ";
    let told = waiting.program().wait_for_error(approve);
    let (_, name) = told.rsplit_once(approve).unwrap();
    let name = name.split_whitespace().next().unwrap();
    let approver = cluster().person("otto", &[APPROVERS]);
    let approving = approver.command("approve").argument(name).arguments(options);
    let mut terminal = approving.at_terminal();
    terminal.expect("Type yes: ").type_line("yes");
    assert_eq!(terminal.finish().0.printed(), format!("{name} approved\n"));
}

/// The cluster knows us as this user, and then stock kubectl.
#[track_caller]
fn assert_knows(shown: &str, user: &str) {
    let (_, whoami) = shown.split_once(&format!("knows us as user \"{user}\"")).expect(shown);
    assert!(whoami.contains(&format!("{user}\n")), "{shown}");
}

/// The words of a text, wherever its lines end.
fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// What the demo shows.
fn demo(arguments: &[&str]) -> String {
    let output = Command::new(at_root("scripts/demo")).args(arguments).output().unwrap();
    let shown = String::from_utf8(output.stdout).unwrap().replace('\r', "");
    assert!(output.status.success(), "{shown}\n{}", String::from_utf8_lossy(&output.stderr));
    shown
}

#[test]
fn the_demo_ends_with_kubectl_through_a_key_in_a_token() {
    let shown = words(&demo(&[]));
    for (command, answer) in [
        ("enroll --token-label=demo --context=prod", " uses the key, as user \"jane+token\""),
        ("approve jane-", " approved "),
        ("kubectl auth whoami", " Username jane "),
        ("kubectl get namespaces", " kube-system Active"),
        ("exit", " OK: jane's key was made in the token and never left it"),
    ] {
        let behind = shown.split_once(command);
        assert!(behind.is_some_and(|(_, rest)| rest.contains(answer)), "{command} in\n{shown}");
    }
}

#[test]
fn the_demo_without_a_cluster_ends_with_a_signature_that_openssl_accepts() {
    let shown = demo(&["--no-cluster"]);
    for expected in ["made on token \"demo\"", "subject=O = dev, CN = jane\n", "Verified OK\n"] {
        assert_eq!(shown.matches(expected).count(), 2, "{expected:?} in\n{shown}");
    }
    assert!(shown.contains("*rsa.PSSOptions") && shown.contains("rsa_padding_mode:pss"), "{shown}");
    assert!(shown.contains("\nOK: the keys were made in the token"), "{shown}");
    // Each step says what it took.
    for line in shown.lines().filter(|line| line.starts_with("$ ")) {
        assert!(line.contains("   # ") && line.ends_with(" s"), "{line}");
    }
}

#[test]
fn the_rights_of_a_lost_token_are_taken_away_as_the_page_says() {
    let administrator = |words: &str| {
        let words: Vec<_> = words.split(' ').collect();
        cluster().administrate(&words, "")
    };
    administrator("create clusterrolebinding lost-edits --clusterrole=edit --user=lost-jane");
    administrator("create clusterrolebinding lost-card --clusterrole=edit --group=hw:yubikey:4712");
    let certificate = format!("X509SHA256={}", "97ec".repeat(16));
    let commands = commands_of("docs/lost-token.md", "At once");
    let words = [["jane", "lost-jane"], ["15873456", "4712"], ["X509SHA256=97ec…", &certificate]];
    let olaf = cluster().person("olaf", &["system:masters"]);
    let commands = adapted(&commands, &words);
    let mut terminal = typed(olaf.command("unused"), olaf.directory(), &commands);
    for _ in ["the user", "the card", "the certificate"] {
        terminal.expect("? Type yes: ").type_line("yes");
    }
    let shown = terminal.finish().0.printed();
    let names = ["lost-edits\"\n", "lost-card\"\n", " created\n", "selfsubjectreviews"];
    assert_contains(&shown, &names);
    let policy = format!("revoked-{}", "97ec".repeat(16));
    let kinds = "validatingadmissionpolicybinding,validatingadmissionpolicy";
    administrator(&format!("delete {kinds} {policy}"));
}
