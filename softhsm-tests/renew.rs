//! `renew`, with the signer of a real cluster: what is asked for, what the token holds before and after each
//! interruption, and what is refused.

mod interrupted;

use std::os::unix::fs::MetadataExt as _;

use rcgen::ExtendedKeyUsagePurpose::ClientAuth;
use rcgen::KeyPair;

use crate::fixture::der::certificates_pem;
use crate::fixture::yubikey::{self, Device, claims};
use crate::fixture::*;

const MINUTE: time::Duration = time::Duration::MINUTE;

/// A token whose certificate is jane's and valid for minutes, and jane's rights in the cluster.
struct Jane {
    store: Store,
    configuration: Configuration,
    /// What it asks for.
    duration: &'static str,
}

impl Jane {
    fn new() -> Self {
        Self::with(janes())
    }

    fn with(certificate: Vec<u8>) -> Self {
        Self::of([
            Object::key(key(Kind::P256), &[1]).labelled("jane"),
            Object::issued(certificate, &[1]).labelled("jane"),
        ])
    }

    /// The key that is used has objectId 1.
    fn of(objects: impl IntoIterator<Item = Object>) -> Self {
        let store = token_with(objects);
        let configuration = store.configuration_with_pin_source();
        Self { store, configuration, duration: "--duration=10m" }
    }

    /// The certificate is in a file.
    fn with_file(certificate: &[u8]) -> (Self, PathBuf) {
        let mut jane = Self::of([Object::key(key(Kind::P256), &[1]).labelled("jane")]);
        let file = jane.store.path("jane.crt");
        fs::write(&file, certificate).unwrap();
        let path = file.to_str().unwrap();
        jane.configuration = jane.configuration.with("certificateFile", path);
        (jane, file)
    }

    fn administrator(&self, arguments: &[&str]) -> Invocation {
        cluster().administrator(&self.store).arguments(arguments)
    }

    fn renew(&self, arguments: &[&str]) -> Invocation {
        cluster()
            .command(&self.store, &self.configuration, "renew")
            .argument(self.duration)
            .arguments(arguments)
    }

    /// Asks for a certificate and leaves; the request's name.
    fn request(&self) -> String {
        let asked = self.renew(&["--wait=1s"]).run();
        asked.fails(9, &["was not approved within 1 seconds"]);
        let (_, name) = asked.stderr.split_once(" approve ").unwrap();
        name.split_whitespace().next().unwrap().to_owned()
    }

    /// What the administrator does to the request, once it is there.
    fn decide(&self, decision: &str, name: &str) {
        wait_until(&format!("the request {name}"), || {
            let decided = self.administrator(&["certificate", decision, name]).run();
            let is_there = decided.status.success();
            assert!(is_there || decided.stderr.contains("not found"), "{decided:?}");
            is_there
        });
    }

    /// Runs `renew` while the administrator decides.
    fn renewed_with(&self, decision: &str, arguments: &[&str]) -> Outcome {
        let name = self.request();
        let running = self.renew(arguments).start(None);
        self.decide(decision, &name);
        running.finish()
    }

    /// What the token holds, and shows after a login.
    fn keys(&self) -> Vec<Value> {
        let list = ["list", "--json", "--login", "--pin-source=env:TOKEN_PIN", softhsm_option()];
        self.store.with_pin(&list).run().keys()
    }

    /// The credential-ids of the certificates on the token.
    fn certificates(&self) -> Vec<String> {
        let keys = self.keys();
        let ids = keys.iter().filter_map(|key| key["certificate"]["credentialId"].as_str());
        ids.map(str::to_owned).collect()
    }

    /// How many requests there are for this name or its followers.
    fn requests(&self, name: &str) -> usize {
        let listed = self.administrator(&["get", "csr", "--output=name"]).run();
        let listed = listed.printed();
        let own = |line: &&str| {
            line.split_once('/')
                .is_some_and(|(_, it)| it == name || it.starts_with(&format!("{name}-")))
        };
        listed.lines().filter(own).count()
    }

    /// Whom stock kubectl is taken for with the key.
    fn user(&self) -> String {
        let arguments =
            ["--", "kubectl", "auth", "whoami", "--output=jsonpath={.status.userInfo.username}"];
        // Beside that the certificate is to be renewed.
        cluster().run(&self.store, &self.configuration, &arguments).run().succeeded().shown()
    }
}

fn janes() -> Vec<u8> {
    expiring(Kind::P256, "jane", 9 * MINUTE, ClientAuth, cluster().authority())
}

/// Behind a library that gives no attestation.
#[test]
fn what_ykman_has_written_of_the_key_is_sent() {
    let jane = Jane::new();
    let device = Device::new();
    let slot_key = KeyPair::try_from(key(Kind::P256).pkcs8.as_slice()).unwrap();
    let file = |key: &KeyPair| {
        let path = jane.store.path("attestation.pem");
        let certificates = [device.attest(key, claims()), device.certificate()];
        fs::write(&path, certificates_pem(&certificates)).unwrap();
        format!("--attestation={}", path.display())
    };
    let others = jane.renew(&["--wait=1s", &file(&yubikey::key())]).run();
    others.fails(6, &["is about another key than the request's"]);
    let asked = jane.renew(&["--wait=1s", &file(&slot_key)]).run();
    asked.fails(9, &["was not approved within 1 seconds"]);
    let told = asked.step("attestation");
    assert!(told.contains("YubiKey 15873456"), "{told}");
    let (_, name) = asked.stderr.split_once(" approve ").unwrap();
    let name = name.split_whitespace().next().unwrap();
    let root = jane.store.path("root.pem");
    fs::write(&root, device.root_pem()).unwrap();
    let otto = cluster().person("otto", &[APPROVERS]);
    let root = format!("--root={}", root.display());
    let shown = otto.command("approve").arguments(&[name, "--dry-run", &root]).run();
    assert_eq!(shown.printed(), format!("{name} would be approved\n"));
    shown.says(&["hardware            ✔ YubiKey 15873456"]);
}

#[track_caller]
fn assert_renewed(jane: &Jane, outcome: &Outcome) {
    let [present] = &jane.certificates()[..] else {
        panic!("{:?}", jane.certificates());
    };
    let printed = outcome.printed();
    let renewed = step_of(&printed, "certificate");
    assert!(renewed.starts_with("of CN=jane, expires 20"), "{renewed}");
    assert!(renewed.ends_with(&format!(" UTC, {present}")), "{renewed}");
    let proof = step_of(&printed, "cluster");
    let known = " knows us as user \"jane\", groups system:authenticated";
    assert!(proof.starts_with("https://127.0.0.1:") && proof.ends_with(known), "{proof}");
    assert_eq!(jane.user(), "jane");
}

#[test]
fn a_certificate_is_renewed_twice_in_a_row_and_the_key_goes_on_working() {
    let first = janes();
    let jane = Jane::with(first.clone());
    let name = jane.request();
    let before = credential_id(&first);
    assert_eq!(jane.certificates(), [before.as_str()]);
    let mut running = jane.renew(&[]).start(None);
    // Approved earlier, it would be found so, and not explained.
    let told = running.wait_for_error("waiting for the approval");
    jane.decide("approve", &name);
    assert_renewed(&jane, &running.finish());
    let command = format!("\n    pkcs11-external-signer approve {name}\n");
    assert!(told.contains(&command), "{told}");
    // What the approver compares.
    for text in [
        "\n    user       jane\n",
        "\n    groups     none\n",
        "\n    requester  jane\n",
        &format!("\n    by         {}…\n", &before[..60]),
        "waiting for the approval",
    ] {
        assert!(told.contains(text), "no {text:?} in {told}");
    }
    // The next one may be made within the same second, and has to end later.
    let jane = Jane { duration: "--duration=11m", ..jane };
    assert_ne!(jane.request(), name);
    assert_renewed(&jane, &jane.renewed_with("approve", &[]));
}

#[test]
fn a_request_that_is_not_approved_in_time_is_found_again() {
    let jane = Jane::new();
    let name = jane.request();
    let file = jane.store.path("kubeconfig");
    let file = file.to_str().unwrap();
    let early = jane.renew(&["--wait=1s", "--kubeconfig", file]).run();
    early.fails(
        9,
        &[
            &format!(" approve {name}\n"),
            "was not approved within 1 seconds",
            "run the same command again",
        ],
    );
    let before = jane.certificates();
    assert_eq!(before.len(), 1);
    // Killed while it waits.
    let mut running = jane.renew(&[]).start(None);
    running.wait_for_error("waiting for the approval");
    kill_process(running.pid(), Signal::KILL).unwrap();
    running.finish();
    assert_eq!(jane.certificates(), before);
    jane.decide("approve", &name);
    assert_renewed(&jane, &jane.renew(&[]).run());
    assert_eq!(jane.requests(&name), 1);
}

#[test]
fn a_denied_request_is_told_until_another_one_is_wanted() {
    let jane = Jane::new();
    let before = jane.certificates();
    let name = jane.request();
    jane.decide("deny", &name);
    jane.renew(&[]).run().fails(9, &[&format!("the request {name} was denied"), "--again"]);
    jane.renew(&[]).run().fails(9, &["was denied"]);
    assert_eq!(jane.certificates(), before);
    assert_eq!(jane.requests(&name), 1);
    let running = jane.renew(&["--again"]).start(None);
    jane.decide("approve", &format!("{name}-2"));
    assert_renewed(&jane, &running.finish());
}

#[test]
fn a_key_that_wants_the_pin_for_each_signature_is_renewed_with_a_stored_one() {
    let private = Object::key(key(Kind::P256), &[1]).labelled("jane");
    let jane =
        Jane::of([private.always_authenticate(), Object::issued(janes(), &[1]).labelled("jane")]);
    assert_renewed(&jane, &jane.renewed_with("approve", &[]));
}

#[test]
fn a_certificate_for_another_key_or_another_name_is_not_installed() {
    for (kind, user, left, text) in [
        (Kind::P384, "jane", 20 * MINUTE, "was answered with a certificate for another key"),
        (
            Kind::P256,
            "kubernetes-admin",
            20 * MINUTE,
            "the certificate is for user \"kubernetes-admin\", not for \"jane\"",
        ),
        (Kind::P256, "jane", 2 * MINUTE, ", and has to be valid after 20"),
    ] {
        let jane = Jane::new();
        let before = jane.certificates();
        let name = jane.request();
        let certificate = expiring(kind, user, left, ClientAuth, cluster().authority());
        let mut running = jane.renew(&[]).start(None);
        running.wait_for_error("waiting for the approval");
        cluster().answer(&name, &certificate);
        let outcome = running.finish();
        assert!(!outcome.status.success());
        assert!(outcome.stderr.contains(text), "{}", outcome.stderr);
        assert_eq!(jane.certificates(), before, "{text}");
        assert_eq!(jane.user(), "jane");
        if left == 2 * MINUTE {
            // Another one would be answered with the same, and an approver's work be wasted.
            let again = jane.renew(&["--wait=1s"]).run();
            again.fails(9, &[&name, ", and has to be valid after 20", "--again"]);
            assert_eq!(jane.requests(&name), 1);
            let jane = Jane { duration: "--duration=11m", ..jane };
            assert_eq!(jane.request(), format!("{name}-2"));
        }
    }
}

/// Other clusters may take the one of the company's CA alone, and it is nowhere else.
#[test]
fn a_certificate_of_another_issuer_is_replaced_after_a_yes_alone() {
    let workshop = tempfile::tempdir().unwrap();
    let (middle, middle_key) = (workshop.path().join("middle"), key(Kind::P384).private_pem());
    let extensions = "basicConstraints=critical,CA:TRUE\nkeyUsage=keyCertSign\n";
    let root = cluster().authority();
    let [middle, middle_der] =
        issue(&middle, &middle_key, "/CN=intermediate", extensions, 30, &root);
    let own = expiring(Kind::P256, "jane", 9 * MINUTE, ClientAuth, [middle, middle_key]);
    let jane = Jane::of([
        Object::key(key(Kind::P256), &[1]).labelled("jane"),
        Object::issued(own.clone(), &[1]).labelled("jane"),
        Object::issued(fs::read(middle_der).unwrap(), &[2]),
    ]);
    let before = [credential_id(&own)];
    let outcome = jane.renewed_with("approve", &[]);
    outcome.fails(7, &["CN=intermediate has issued", "needs somebody to type yes"]);
    assert_eq!(jane.certificates(), before);
    let mut terminal = jane.renew(&[]).at_terminal();
    terminal.expect("by one of CN=test-cluster CA? Type yes: ").type_line("no");
    terminal.finish().0.fails(7, &["was not confirmed: you did not type yes"]);
    assert_eq!(jane.certificates(), before);
    let mut terminal = jane.renew(&[]).at_terminal();
    terminal.expect("? Type yes: ").type_line("yes");
    terminal.finish().0.succeeded();
    assert_ne!(jane.certificates(), before);
    assert_eq!(jane.user(), "jane");
}

/// The new one is written and the present one not yet removed.
#[test]
fn what_an_interruption_has_left_is_finished() {
    let new = expiring(Kind::P256, "jane", 20 * MINUTE, ClientAuth, cluster().authority());
    let old = janes();
    let jane = Jane::with(old.clone());
    cluster().answer(&jane.request(), &new);
    let key_and_both = [
        Object::key(key(Kind::P256), &[1]).labelled("jane"),
        Object::issued(old, &[1]).labelled("jane"),
        Object::issued(new.clone(), &[1]).labelled("jane"),
    ];
    let interrupted = Jane::of(key_and_both);
    assert_eq!(interrupted.certificates().len(), 2);
    interrupted.renew(&[]).run().succeeded();
    assert_eq!(interrupted.certificates(), [credential_id(&new)]);
    assert_eq!(interrupted.user(), "jane");
}

#[test]
fn a_certificate_file_is_replaced_when_the_cluster_has_let_its_successor_in() {
    let (jane, file) = Jane::with_file(&janes());
    let victim = jane.store.path("victim");
    fs::write(&victim, "kept").unwrap();
    let before = fs::read(&file).unwrap();
    let name = jane.request();
    jane.decide("deny", &name);
    jane.renew(&[]).run().fails(9, &["was denied"]);
    assert_eq!(fs::read(&file).unwrap(), before);
    let running = jane.renew(&["--again"]).start(None);
    jane.decide("approve", &format!("{name}-2"));
    running.finish().succeeded();
    assert_ne!(fs::read(&file).unwrap(), before);
    assert_eq!(jane.user(), "jane");
    let left: Vec<_> = fs::read_dir(jane.store.directory.path()).unwrap().collect();
    let left = format!("{left:?}");
    assert!(!left.contains(".new-"), "{left}");

    // A link that is put there is replaced, and not followed.
    let jane = Jane { duration: "--duration=11m", ..jane };
    let name = jane.request();
    let mut running = jane.renew(&[]).start(None);
    running.wait_for_error("waiting for the approval");
    fs::remove_file(&file).unwrap();
    symlink(&victim, &file).unwrap();
    jane.decide("approve", &name);
    running.finish().succeeded();
    assert_eq!(fs::read(&victim).unwrap(), b"kept");
    assert!(!file.is_symlink());
    assert_eq!(jane.user(), "jane");
}

/// It may be for a group that the one who renews it isn't in.
#[test]
fn a_certificate_file_keeps_its_owner_and_its_mode() {
    needs_isolation!();
    let (jane, file) = Jane::with_file(&janes());
    set_mode(&file, 0o640);
    hand_over(&file, 61_301);
    jane.renewed_with("approve", &[]).succeeded();
    let found = fs::metadata(&file).unwrap();
    assert_eq!((found.uid(), found.gid(), found.mode() & 0o7777), (61_301, 61_301, 0o640));
    assert_eq!(jane.user(), "jane");
}

#[test]
fn what_can_not_be_renewed_is_told_and_nothing_is_asked_for() {
    let expired = expiring(Kind::P256, "jane", -MINUTE, ClientAuth, cluster().authority());
    let jane = Jane::with(expired);
    jane.renew(&[]).run().fails(6, &["it expired 20", "`pkcs11-external-signer enroll`"]);
    // No right to make requests.
    let bob = expiring(Kind::P256, "bob", 9 * MINUTE, ClientAuth, cluster().authority());
    let bob = Jane::with(bob);
    let outcome = bob.renew(&[]).run();
    outcome.fails(9, &["certificatesigningrequests", "cannot", "\"bob\""]);
    assert_eq!(bob.certificates().len(), 1);
    // What an administrator is to apply, as it is printed.
    let rob = expiring(Kind::P256, "rob", 9 * MINUTE, ClientAuth, cluster().authority());
    let rob = Jane::with(rob);
    let told = rob.renew(&[]).run().stderr;
    let yaml = told_lines(&told, "apply this (`kubectl apply -f -`)");
    cluster().administrate(&["apply", "-f", "-"], yaml);
    cluster().wait_for_right(&["create", "certificatesigningrequests", "--as=rob"]);
    rob.request();
    let jane = Jane::new();
    jane.renew(&["--context=nowhere"]).run().fails(3, &["nowhere"]);
    for argument in ["--duration=5m", "--duration=x", "--wait=0s"] {
        let outcome = jane.renew(&[]).argument(argument).run();
        assert_eq!(outcome.status.code(), Some(2), "{argument}: {outcome:?}");
    }
}
