//! `enroll` with a cluster's own CA: from a bare token and a key file to stock kubectl with the token's key; what is
//! refused before anything is made; and what an interruption leaves.

mod attested;
mod expired;
mod second_cluster;
mod touch;
mod waiting;

use crate::fixture::*;

/// Somebody with a key file, in the group dev, whose next key is to be on a token.
pub(crate) struct Newcomer<'t> {
    person: Person,
    /// The options that name the token.
    token: Vec<String>,
    /// Gives the program what it needs to reach the token.
    enter: Box<dyn Fn(Invocation) -> Invocation + 't>,
    /// What the approver needs beside the request's name.
    approval: Vec<String>,
}

impl<'t> Newcomer<'t> {
    /// Jane, who may ask for certificates.
    pub(crate) fn jane(token: Vec<String>, enter: impl Fn(Invocation) -> Invocation + 't) -> Self {
        Self::named("jane", token, enter)
    }

    pub(crate) fn named(
        name: &str,
        token: Vec<String>,
        enter: impl Fn(Invocation) -> Invocation + 't,
    ) -> Self {
        let person = cluster().person(name, &["dev"]);
        Self { person, token, enter: Box::new(enter), approval: Vec::new() }
    }

    /// The same, with whose attestations this root vouches for.
    pub(crate) fn attested_below(mut self, root: &Path) -> Self {
        self.approval = vec![format!("--root={}", root.display())];
        self
    }

    /// What comes of it when an approver with these options looks at the request, and types yes where they are asked.
    pub(crate) fn approve(name: &str, options: &[&str], is_asked: bool) -> Outcome {
        let approver = cluster().person("otto", &[APPROVERS]);
        let approve = approver.command("approve").argument(name).arguments(options);
        let mut terminal = approve.at_terminal();
        if is_asked {
            terminal.expect("Type yes: ").type_line("yes");
        }
        terminal.finish().0
    }

    /// Those that name the token.
    fn options(&self) -> Vec<&str> {
        self.token.iter().map(String::as_str).collect()
    }

    fn enter(&self, invocation: Invocation) -> Invocation {
        (self.enter)(invocation)
    }

    pub(crate) fn enroll(&self, arguments: &[&str]) -> Invocation {
        let token: Vec<_> = self.token.iter().map(String::as_str).collect();
        self.enter(self.person.command("enroll"))
            .arguments(&token)
            .arguments(&["--pin-source=env:TOKEN_PIN", "--duration=1h"])
            .arguments(arguments)
    }

    /// What the token holds.
    pub(crate) fn keys(&self) -> Vec<Value> {
        let token: Vec<_> = self.token.iter().map(String::as_str).collect();
        let list = self.enter(self.person.command("list")).arguments(&token);
        list.arguments(&["--json", "--login", "--pin-source=env:TOKEN_PIN"]).run().keys()
    }

    /// Asks for a certificate and leaves; the request's name.
    fn ask(&self, arguments: &[&str]) -> String {
        self.ask_with(arguments, Invocation::run)
    }

    pub(crate) fn ask_with(
        &self,
        arguments: &[&str],
        run: impl Fn(Invocation) -> Outcome,
    ) -> String {
        let outcome = run(self.enroll(&["--wait=1s"]).arguments(arguments));
        outcome.fails(9, &["was not approved within 1 seconds"]);
        let (_, name) = outcome.stderr.split_once(" approve ").unwrap();
        name.split_whitespace().next().unwrap().to_owned()
    }

    /// Whom stock kubectl is taken for, and by which certificate.
    pub(crate) fn whoami(&self) -> String {
        let known = self
            .enter(self.person.kubectl())
            .arguments(&["auth", "whoami"])
            .argument("--output=jsonpath={.status.userInfo.username} {.status.userInfo.extra}")
            .run();
        known.printed()
    }

    /// Stock kubectl.
    pub(crate) fn kubectl(&self, arguments: &[&str]) -> Invocation {
        self.enter(self.person.kubectl()).arguments(arguments)
    }

    pub(crate) fn stop(&self) {
        self.enter(self.person.command("stop")).run();
    }

    /// From the token as it is to stock kubectl with its key, for jane: asked for, left, approved by
    /// another person and gone on with, in a call that says these things alone. `run` is a person at the terminal,
    /// where the token wants one.
    #[track_caller]
    pub(crate) fn assert_enrolls(
        &self,
        arguments: &[&str],
        said: &[&str],
        run: impl Fn(Invocation) -> Outcome,
    ) {
        let before = self.whoami();
        let name = self.ask_with(arguments, &run);
        assert!(name.starts_with("jane-"), "{name}");
        let options: Vec<_> = self.approval.iter().map(String::as_str).collect();
        let approved = Self::approve(&name, &options, true);
        assert_eq!(approved.printed(), format!("{name} approved\n"));
        let printed = run(self.enroll(arguments)).printed_beside(said);
        let proof = step_of(&printed, "cluster");
        assert!(proof.starts_with("https://127.0.0.1:"), "{printed}");
        let known = "knows us as user \"jane\", groups dev, system:authenticated";
        assert!(proof.ends_with(known), "{printed}");
        // Some libraries show a process what it had when it began: docs/enroll.md.
        self.stop();
        let after = self.whoami();
        self.stop();
        for known in [&before, &after] {
            assert!(known.starts_with("jane ") && known.contains("X509SHA256="), "{known}");
        }
        assert_ne!(before, after);
    }

    /// From the key that the context has to a new one, which stock kubectl is known by, while the old one stays. The
    /// request is made with the old one, which one PIN serves for a while.
    #[track_caller]
    pub(crate) fn assert_changes_key(&self) {
        let before = self.keys();
        let is_janes = |key: &&Value| key["certificate"]["user"] == "jane";
        let id = before.iter().find(is_janes).unwrap()["objectId"].as_str().unwrap();
        let keys = before.len();
        let token: Vec<_> = self.token.iter().map(String::as_str).collect();
        self.enter(self.person.command("kubeconfig"))
            .arguments(&["--write", "--context=prod", "--keep=15m"])
            .argument(&format!("--object-id={id}"))
            .arguments(&token)
            .run()
            .succeeded();
        let before = self.whoami();
        let new = ["--object-id=0x7777"];
        cluster().administrate(&["certificate", "approve", &self.ask(&new)], "");
        let printed = self.enroll(&new).run().printed();
        let known = " knows us as user \"jane\", groups dev, system:authenticated";
        assert!(step_of(&printed, "cluster").ends_with(known), "{printed}");
        assert!(step_of(&printed, "key").contains(", objectId 0x7777, "), "{printed}");
        let now = self.keys();
        assert_eq!(now.len(), keys + 1, "{now:?}");
        let new = now.iter().find(|key| key["objectId"] == "0x7777").unwrap();
        let own = new["certificate"]["credentialId"].as_str().unwrap();
        // Some libraries show a process what it had when it began: docs/enroll.md.
        self.stop();
        let after = self.whoami();
        self.stop();
        assert!(after.contains(own) && !before.contains(own), "{after}");
    }
}

/// A token of SoftHSM without a key.
pub(crate) fn bare_token() -> Store {
    Store::new([blueprint("prod", [])])
}

/// What names it, and how the program reaches it.
fn of_store(store: &Store) -> (Vec<String>, impl Fn(Invocation) -> Invocation + use<>) {
    let configuration = store.path("softhsm2.conf");
    let enter = move |invocation: Invocation| {
        invocation.variable("SOFTHSM2_CONF", &configuration).variable("TOKEN_PIN", PIN)
    };
    (vec![softhsm_option().to_owned(), "--token-label=prod".to_owned()], enter)
}

pub(crate) fn jane(store: &Store) -> Newcomer<'static> {
    let (token, enter) = of_store(store);
    Newcomer::jane(token, enter)
}

#[test]
fn a_bare_token_becomes_the_key_of_stock_kubectl_and_the_context_can_have_back_what_it_had() {
    let store = bare_token();
    let newcomer = jane(&store);
    newcomer.assert_enrolls(&[], &[], Invocation::run);
    let keys = newcomer.keys();
    assert_eq!(keys.len(), 1, "{keys:?}");
    assert_eq!(keys[0]["certificate"]["subject"], "O=dev, CN=jane");
    let id = keys[0]["certificate"]["credentialId"].as_str().unwrap();
    assert!(newcomer.whoami().contains(id));
    newcomer.stop();

    // Once more there is nothing left to do.
    let again = newcomer.enroll(&[]).run().succeeded();
    again.printed();
    assert!(again.step("cluster").ends_with("groups dev, system:authenticated"), "{again:?}");
    assert_eq!(newcomer.keys().len(), 1);

    let undo = newcomer.person.command("kubeconfig").arguments(&["--undo", "--context=prod"]);
    newcomer.enter(undo).run().succeeded();
    assert!(!newcomer.whoami().contains(id));
}

#[test]
fn an_approval_is_waited_for_by_one_watch() {
    let store = bare_token();
    let jane = jane(&store);
    let calls = store.path("calls");
    let script = format!(
        "#!/bin/sh\necho \"$*\" >>'{}'\nexec '{}' \"$@\"\n",
        calls.display(),
        kubectl().display()
    );
    let noting = store.file("noting-kubectl", script, 0o755);
    let outcome = jane.enroll(&["--wait=5s"]).variable("KUBECTL_PATH", noting).run();
    outcome.fails(9, &["was not approved within 5 seconds"]);
    let calls = fs::read_to_string(calls).unwrap();
    let watches: Vec<_> = calls.lines().filter(|call| call.contains("watch=true")).collect();
    assert_eq!(watches.len(), 1, "{calls}");
    assert!(watches[0].ends_with("--request-timeout=0"), "{calls}");
}

#[test]
fn a_context_is_given_a_new_key_by_its_name() {
    needs_isolation!();
    let store = bare_token();
    let newcomer = jane(&store);
    newcomer.assert_enrolls(&[], &[], Invocation::run);
    newcomer.assert_changes_key();
}

#[test]
fn a_key_that_wants_the_pin_for_each_signature_is_enrolled_with_a_stored_one() {
    let pair = key(Kind::P256);
    let store = Store::new([blueprint(
        "prod",
        [
            Object::key(pair, &[1]).labelled("jane").always_authenticate(),
            Object::public_key(pair, &[1]).labelled("jane"),
        ],
    )]);
    jane(&store).assert_enrolls(&[], &[], Invocation::run);
}

/// The certificate of a key that is no more stands in the new one's way.
#[test]
fn a_context_keeps_its_user_where_the_new_one_would_not_work() {
    let (new, old, id) = (key(Kind::P384), key(Kind::P256), &[2]);
    let objects = [Object::key(new, id), Object::public_key(new, id), Object::certificate(old, id)];
    let store = Store::new([blueprint("prod", objects.map(|it| it.labelled("jane")))]);
    let (newcomer, arguments) = (jane(&store), ["--object-id=2"]);
    let before = newcomer.whoami();
    cluster().administrate(&["certificate", "approve", &newcomer.ask(&arguments)], "");
    newcomer.enroll(&arguments).run().fails(6, &["2 certificates with objectId \"2\""]);
    assert_eq!(newcomer.whoami(), before);
}

/// Jane may approve, too, so that the line is hers to paste.
#[test]
fn the_line_for_the_approver_works_as_it_stands_with_their_own_kubeconfig() {
    let store = bare_token();
    let newcomer = jane(&store);
    let directory = newcomer.person.directory();
    let file = directory.join("jane's own");
    fs::rename(directory.join("kubeconfig"), &file).unwrap();
    let asked = newcomer.enroll(&["--wait=1s", &format!("--kubeconfig={}", file.display())]).run();
    asked.fails(9, &["was not approved within 1 seconds"]);
    let line = asked.stderr.lines().find(|line| line.contains(" approve "));
    let pasted = line.unwrap().trim_start();
    let (_, name) = pasted.split_once(" approve ").unwrap();
    let approver = cluster().person("olga", &[APPROVERS]);
    let pasted = pasted.replacen("pkcs11-external-signer", "\"$SIGNER\"", 1);
    let mut terminal = approver.command("approve").within("sh", &pasted).at_terminal();
    let approved = terminal.expect("Type yes: ").type_line("yes").finish().0;
    assert_eq!(approved.printed(), format!("{name} approved\n"));
}

/// From the context with a key file, that `check` refuses, to one with a key on the token, by what `check` names.
#[test]
fn a_context_without_a_key_is_told_how_to_get_one() {
    let store = bare_token();
    let newcomer = jane(&store);
    let told = newcomer.enter(newcomer.person.command("check")).run().told(3);
    let enroll = told_command(&told, " enroll ");
    let typed = newcomer.enter(newcomer.person.command("enroll").within("sh", &enroll));
    let mut terminal = typed.at_terminal();
    terminal.expect_prompt().type_line(PIN);
    let asked = terminal.program().wait_for_error("waiting for the approval");
    let (_, name) = asked.rsplit_once(" approve ").unwrap();
    let name = name.split_whitespace().next().unwrap();
    cluster().administrate(&["certificate", "approve", name], "");
    let enrolled = terminal.finish_with_pins().0.succeeded().shown();
    assert!(step_of(&enrolled, "context").contains(" uses the key, as user "), "{enrolled}");
    newcomer.stop();
}

/// As a container mounts it: nothing is made, and nobody is sent for.
#[test]
fn a_kubeconfig_that_can_not_be_changed_is_told_before_anything_is_made() {
    needs_isolation!();
    let store = bare_token();
    let newcomer = jane(&store);
    let directory = newcomer.person.directory();
    let file = directory.join("kubeconfig");
    let mount = "mount --bind \"$0\" \"$0\" && exec \"$@\"";
    let mounted = ["--mount", "sh", "-c", mount, file.to_str().unwrap()];
    let before = fs::read_to_string(&file).unwrap();
    let refused = newcomer.enroll(&["--wait=1s"]).through("unshare", &mounted).run();
    let told = ["can't be written: it is a mount point", "nothing was made", "--kubeconfig FILE"];
    refused.fails(3, &told);
    assert!(!refused.stderr.contains("waiting for the approval"), "{refused:?}");
    assert_eq!(newcomer.keys(), [] as [Value; 0]);
    assert_eq!(fs::read_to_string(&file).unwrap(), before);
    let copies =
        below(directory).into_iter().filter(|it| it.to_string_lossy().contains(".backup-"));
    assert_eq!(copies.count(), 0);
}

#[test]
fn what_was_interrupted_goes_on_with_the_same_key_and_the_same_request() {
    let store = bare_token();
    let newcomer = jane(&store);
    let mut running = newcomer.enroll(&[]).start(None);
    running.wait_for_error("waiting for the approval");
    kill_process(running.pid(), Signal::KILL).unwrap();
    running.finish();
    let keys = newcomer.keys();
    assert_eq!(keys.len(), 1);
    assert_eq!(keys[0]["certificate"], Value::Null);
    let mut running = newcomer.enroll(&[]).start(None);
    running.wait_for_error("waiting for the approval");
    kill_process(running.pid(), Signal::INT).unwrap();
    running.finish();
    let name = newcomer.ask(&[]);
    let requests = cluster().administrate(&["get", "csr", "--output=name"], "");
    assert_eq!(requests.matches(&name).count(), 1, "{requests}");
    cluster().administrate(&["certificate", "approve", &name], "");
    cluster().issued_certificate(&name);
    let outcome = newcomer.enroll(&[]).run();
    assert!(!outcome.stderr.contains("waiting for the approval"), "{outcome:?}");
    let printed = outcome.printed();
    assert!(step_of(&printed, "certificate").ends_with(", beside the key"), "{printed}");
    assert!(step_of(&printed, "context").contains(" uses the key, as user "), "{printed}");
    assert_eq!(newcomer.keys().len(), 1);
}

#[test]
fn what_can_not_work_is_told_before_anything_is_made() {
    let store = bare_token();
    let jane = jane(&store);
    for (arguments, code, texts) in [
        (&["--context=nowhere"][..], 3, &["nowhere"][..]),
        (&["--group=system:masters"], 2, &["system:masters"]),
        (&["--user=ja\u{202e}ne"], 2, &["control characters"]),
        (&["--key=dsa"], 2, &["dsa"]),
    ] {
        let outcome = jane.enroll(arguments).run();
        assert_eq!(outcome.status.code(), Some(code), "{outcome:?}");
        for text in texts {
            assert!(outcome.stderr.contains(text) || *text == "dsa", "{outcome:?}");
        }
    }
    jane.enroll(&[]).variable("PATH", "/nowhere").run().fails(9, &["no kubectl in PATH"]);
    assert_eq!(jane.keys(), [] as [Value; 0]);
    // No right to make requests.
    let (token, enter) = of_store(&store);
    let nora = Newcomer::named("nora", token, enter);
    let refused = nora.enroll(&[]).run();
    refused.fails(9, &["user \"nora\" may not create CertificateSigningRequests"]);
    assert_eq!(nora.keys(), [] as [Value; 0]);
    // What an administrator is to apply, as it is printed; and at a terminal, one PIN serves it.
    let yaml = told_lines(&refused.stderr, "apply this (`kubectl apply -f -`)");
    cluster().administrate(&["apply", "-f", "-"], yaml);
    cluster().wait_for_right(&["create", "certificatesigningrequests", "--as=nora"]);
    let name = nora.ask(&[]);
    cluster().administrate(&["certificate", "approve", &name], "");
    nora.enroll(&[]).at_terminal().finish().0.succeeded();
    let kept = nora.enter(nora.person.kubectl()).arguments(&["config", "view"]).run().printed();
    assert!(kept.contains("--keep=terminal"), "{kept}");
    nora.stop();
}
