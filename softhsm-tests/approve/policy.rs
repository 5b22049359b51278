//! `approve --policy`: what the policy doesn't allow is refused whoever types yes, and what it allows is approved by one.

use std::sync::MutexGuard;

use super::{approver, jane};
use crate::fixture::yubikey::{Device, bundle, claims, claims_with, janes, key};
use crate::fixture::*;

/// A cluster in which nobody has asked for anything. One test at a time: the table has all that is pending.
fn fresh() -> (MutexGuard<'static, ()>, &'static Cluster) {
    static TURN: Mutex<()> = Mutex::new(());
    // A test that has failed leaves nothing but requests.
    let turn = TURN.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let cluster = quiet_cluster();
    cluster.administrate(&["delete", "csr", "--all"], "");
    (turn, cluster)
}

/// Jane has YubiKey 15873456, of the device's make.
fn write_policy(person: &Person, device: &Device) -> PathBuf {
    let policy = "\
apiVersion: pkcs11-external-signer/v1alpha1
kind: ApprovalPolicy
require:
  minFirmware: 5.7.0
  pinPolicies: [once, always]
maxLifetime: 1h
users:
- name: jane
  serialNumbers: [15873456]
  groups: [dev]
";
    write_with_root(person, policy, device)
}

/// The policy, whose root is the device's.
fn write_with_root(person: &Person, policy: &str, device: &Device) -> PathBuf {
    let root: String = device.root_pem().lines().map(|line| format!("  {line}\n")).collect();
    let policy = format!("{policy}roots:\n- |\n{root}");
    let path = person.directory().join("policy.yaml");
    fs::write(&path, policy).unwrap();
    path
}

fn approve_all(person: &Person, policy: &Path) -> Invocation {
    person.command("approve").argument(&format!("--policy={}", policy.display()))
}

/// The lines of a request in the table: its own, with the verdict, and those of what speaks against it.
fn row(shown: &str, name: &str) -> Vec<String> {
    let is_of = |line: &&str| line.split_whitespace().nth(1) == Some(name);
    let mut lines = shown.lines().skip_while(|line| !is_of(line));
    let first = lines.next().unwrap_or_else(|| panic!("no {name} in\n{shown}"));
    let reasons = lines.take_while(|line| line.starts_with("     "));
    let lines = [first].into_iter().chain(reasons);
    lines.map(|line| line.trim().to_owned()).collect()
}

/// The only condition of a request.
fn condition(cluster: &Cluster, name: &str) -> Value {
    let conditions = cluster.request(name)["status"]["conditions"].take();
    let [condition] = conditions.as_array().unwrap().as_slice() else {
        panic!("{conditions}");
    };
    condition.clone()
}

#[test]
fn fifty_requests_are_one_table_and_one_yes() {
    let (_turn, cluster) = fresh();
    let (jane, otto) = (jane(cluster), approver(cluster));
    let device = Device::new();
    let policy = write_policy(&otto, &device);
    let hardware = ["dev", "hw:attested", "hw:yubikey:15873456"];
    let good = |number| (format!("good-{number}"), device.request(&hardware, claims()));
    let good: Vec<_> = (10..60).map(good).collect();
    jane.asks_for_all(&Wanted::default(), &good);
    jane.asks_by("admin", &Wanted::default(), &device.request(&["ops"], claims()));
    jane.asks("in-a-file", &Wanted::default());
    let forever = Wanted { seconds: Some(31_536_000), ..Wanted::default() };
    jane.asks_by("forever", &forever, &device.request(&[], claims()));

    let dry = approve_all(&otto, &policy).argument("--dry-run").run();
    dry.says(&["error: 3 of 53 requests were not approved"]);
    let would = dry.told(6);
    assert_eq!(would.lines().count(), 50, "{would}");
    assert!(would.lines().all(|line| line.ends_with(" would be approved")), "{would}");
    assert!(cluster.conditions("good-10").is_empty());
    approve_all(&otto, &policy).run().fails(7, &["needs somebody to type yes"]);

    let mut terminal = approve_all(&otto, &policy).at_terminal();
    terminal.expect("Approve 50 of 53 requests, as the table has them? Type yes: ");
    let (outcome, screen) = terminal.type_line("yes").finish();
    assert_eq!(screen.matches("Type yes").count(), 1, "{screen}");
    outcome.says(&["error: 3 of 53 requests were not approved"]);
    let approved = outcome.told(6);
    let expected: String = good.iter().map(|(name, _)| format!("{name} approved\n")).collect();
    assert_eq!(approved, expected);

    let shown = &outcome.stderr;
    assert_eq!(
        row(shown, "good-10"),
        ["✔  good-10    \"jane\"  \"dev\", \"hw:attested\", \"hw:yubikey:15873456\"  10 minutes  \
          YubiKey 15873456, firmware 5.7.4, slot 9a, PIN once, touch never"]
    );
    let line = |number: u8, field: &str| format!("{}, line {number} ({field}): ", policy.display());
    for (name, reasons) in [
        (
            "admin",
            vec![
                line(10, "users[0].groups") + "the request is also for \"ops\"",
                "the request names groups that the requester isn't in: \"ops\"".to_owned(),
            ],
        ),
        (
            "in-a-file",
            vec![
                line(9, "users[0].serialNumbers") + "nothing shows that the key is in one of these",
            ],
        ),
        ("forever", vec![line(6, "maxLifetime") + "the request is for longer than 1h"]),
    ] {
        let row = row(shown, name);
        assert!(row[0].starts_with("✘"), "{row:?}");
        assert_eq!(row[1..], reasons, "{name}");
        assert!(cluster.conditions(name).is_empty(), "{name}");
    }

    // The record says on what the approval rests.
    let hash = printed(tool("sha256sum", "coreutils").arg(&policy));
    let hash = hash.split_whitespace().next().unwrap();
    let condition = condition(cluster, "good-59");
    assert_eq!(condition["reason"], "HardwareAttested");
    assert_eq!(
        condition["message"],
        format!(
            "allowed by the policy with SHA-256 {hash}; YubiKey 15873456, firmware 5.7.4, slot 9a, PIN once, touch \
             never; compared with the requester by pkcs11-external-signer approve"
        )
    );
    assert!(shown.contains(&format!("policy.yaml, SHA-256 {hash}")), "{shown}");
    cluster.issued_certificate("good-59");
}

/// Nobody would compare them but their requester.
#[test]
fn who_has_made_some_of_the_requests_is_warned_of_these() {
    let (_turn, cluster) = fresh();
    let jane = cluster.person("jane", &["dev", REQUESTERS, APPROVERS]);
    let mallory = cluster.person("mallory", &["dev", REQUESTERS]);
    let device = Device::new();
    let policy = write_policy(&jane, &device);
    let text = fs::read_to_string(&policy).unwrap();
    let writes = "- name: jane-writes\n  requester: mallory\n  serialNumbers: [15873456]\nroots:";
    fs::write(&policy, text.replace("roots:", writes)).unwrap();
    jane.asks_by("own", &Wanted::default(), &device.request(&["dev"], claims()));
    let others = device.request_of("jane-writes", &[], claims());
    mallory.asks_by("others", &Wanted::default(), &others);
    let both = "others would be approved\nown would be approved\n";
    let warned = ["you have made \"own\" yourself, so nobody but you and the policy compares that"];
    let outcome = approve_all(&jane, &policy).argument("--dry-run").run();
    assert_eq!(outcome.printed_beside(&warned), both);
    let otto = approver(cluster);
    assert_eq!(approve_all(&otto, &policy).argument("--dry-run").run().printed(), both);
}

#[test]
fn one_that_was_changed_meanwhile_stops_no_other() {
    let (_turn, cluster) = fresh();
    let (jane, otto) = (jane(cluster), approver(cluster));
    let device = Device::new();
    let policy = write_policy(&otto, &device);
    for name in ["first", "moving", "second"] {
        jane.asks_by(name, &Wanted::default(), &device.request(&["dev"], claims()));
    }
    let mut terminal = approve_all(&otto, &policy).at_terminal();
    terminal.expect("Approve 3 of 3 requests, as the table has them? Type yes: ");
    cluster.administrate(&["delete", "csr", "moving"], "");
    jane.asks_by("moving", &Wanted::default(), &device.request(&["dev"], claims()));
    let outcome = terminal.type_line("yes").finish().0;
    assert_eq!(outcome.told(9), "first approved\nsecond approved\n");
    outcome.says(&[
        "warning: the request \"moving\" is no longer the one that was shown",
        "error: 1 of 3 requests were not approved",
    ]);
    assert!(cluster.conditions("moving").is_empty());

    let mut terminal = approve_all(&otto, &policy).at_terminal();
    terminal.expect("Approve 1 of 1 requests, as the table has them? Type yes: ");
    assert_eq!(terminal.type_line("yes").finish().0.printed(), "moving approved\n");
    let nothing = approve_all(&otto, &policy).run();
    assert_eq!(nothing.printed(), "");
    nothing.says(&["no request for a client certificate is pending"]);
}

#[test]
fn a_yes_opens_nothing_that_the_policy_does_not_allow() {
    let (_turn, cluster) = fresh();
    let (jane, otto) = (jane(cluster), approver(cluster));
    let device = Device::new();
    let policy = write_policy(&otto, &device);
    let option = format!("--policy={}", policy.display());
    let approve = |name| otto.command("approve").argument(name).argument(&option);
    jane.asks_by("never", &Wanted::default(), &device.request(&[], claims_with(8, &[1, 1])));
    for more in [&[][..], &["--despite-mismatch"]] {
        let (outcome, screen) = approve("never").arguments(more).at_terminal().finish();
        let told = "line 5 (require.pinPolicies): the key has PIN never";
        outcome.fails(6, &["the policy doesn't allow it", told, "change the policy"]);
        assert_eq!(screen, "");
    }
    assert!(cluster.conditions("never").is_empty());

    jane.asks_by("good", &Wanted::default(), &device.request(&["dev"], claims()));
    let dry = approve("good").argument("--dry-run").run();
    assert_eq!(dry.printed(), "good would be approved\n");
    assert!(cluster.conditions("good").is_empty());
    let mut terminal = approve("good").at_terminal();
    terminal.expect("becomes \"jane\", in \"dev\".").expect("Approve? Type yes: ");
    let outcome = terminal.type_line("yes").finish().0;
    assert_eq!(outcome.printed(), "good approved\n");
    outcome.says(&["policy                ", "hardware            ✔ YubiKey 15873456"]);
    assert_eq!(condition(cluster, "good")["reason"], "HardwareAttested");

    let text = fs::read_to_string(&policy).unwrap();
    fs::write(&policy, text.replace("minFirmware", "minFirmwre")).unwrap();
    let outcome = approve_all(&otto, &policy).run();
    outcome.fails(3, &["policy.yaml is not a valid policy: line 4: unknown field \"minFirmwre\"; the known ones are"]);
    let missing = otto.command("approve").argument("--policy=none.yaml").run();
    missing.fails(3, &["none.yaml: No such file", "docs/policy.md"]);
    let unnamed = otto.command("approve").run();
    unnamed.fails(2, &["which request", "<NAME>", "many at once", "--policy <FILE>"]);
}

/// Whoever counts on the policy must hear that somebody has approved without it.
#[test]
fn what_was_approved_before_is_told_and_fails_unless_it_was_by_this_policy() {
    let (_turn, cluster) = fresh();
    let (jane, otto) = (jane(cluster), approver(cluster));
    let device = Device::new();
    let policy = write_policy(&otto, &device);
    let option = format!("--policy={}", policy.display());
    let approve = |name| otto.command("approve").argument(name).argument(&option);
    for name in ["ours", "theirs"] {
        jane.asks_by(name, &Wanted::default(), &device.request(&["dev"], claims()));
    }
    let mut terminal = approve("ours").at_terminal();
    terminal.expect("Type yes: ").type_line("yes").finish().0.succeeded();
    otto.kubectl().arguments(&["certificate", "approve", "theirs"]).run().succeeded();
    let again = approve("ours").run().printed();
    assert!(again.starts_with("ours has been approved before, and "), "{again}");
    let told =
        ["\"theirs\" has been approved before", "by another policy or none", "was not applied"];
    approve("theirs").run().fails(6, &told);

    let text = fs::read_to_string(&policy).unwrap();
    fs::write(&policy, format!("# Another one\n{text}")).unwrap();
    approve("ours").run().fails(
        6,
        &["by another policy or none: its record says \"allowed by the policy with SHA-256 "],
    );
}

#[test]
fn a_policy_is_checked_without_a_cluster() {
    let otto = approver(quiet_cluster());
    let policy = write_policy(&otto, &Device::new());
    let check =
        || approve_all(&otto, &policy).argument("--check").variable("KUBECONFIG", "/dev/null");
    let printed = check().run().silently().printed();
    assert!(printed.contains("policy.yaml is a policy for 1 user, SHA-256 "), "{printed}");
    let text = fs::read_to_string(&policy).unwrap();
    for (wrong, reason) in [
        (
            text.replace("1h", "1M"),
            "line 6 (maxLifetime): it is not a duration in w, d, h, m and s",
        ),
        (text.replace("minFirmware", "minFirmwre"), "line 4: unknown field \"minFirmwre\""),
        (
            format!("verifier: [no/verifier]\n{text}"),
            "line 1 (verifier): no/verifier: No such file",
        ),
        (format!("verifier: [policy.yaml]\n{text}"), "policy.yaml: it is not executable"),
    ] {
        fs::write(&policy, wrong).unwrap();
        check().run().fails(3, &[reason]);
    }
}

/// jane-writes is a user of jane's, and of nobody else.
#[test]
fn a_policy_says_who_makes_the_requests_of_another_user() {
    let (_turn, cluster) = fresh();
    let (jane, otto) = (jane(cluster), approver(cluster));
    let device = Device::new();
    let policy = write_policy(&otto, &device);
    let mallory = cluster.person("mallory", &["dev", REQUESTERS]);
    let request = || device.request_of("jane-writes", &[], claims());
    let text = fs::read_to_string(&policy).unwrap();
    let writes = "- name: jane-writes\n  requester: jane\n  serialNumbers: [15873456]\nroots:";
    fs::write(&policy, text.replace("roots:", writes)).unwrap();
    jane.asks_by("hers", &Wanted::default(), &request());
    mallory.asks_by("stolen", &Wanted::default(), &request());
    let mut terminal = approve_all(&otto, &policy).at_terminal();
    terminal.expect("Approve 1 of 2 requests, as the table has them? Type yes: ");
    let outcome = terminal.type_line("yes").finish().0;
    assert_eq!(outcome.told(6), "hers approved\n");
    let row = row(&outcome.stderr, "stolen");
    let reason = "line 12 (users[1].requester): the request is made by \"mallory\"";
    assert!(row[1].ends_with(reason), "{row:?}");
    assert!(cluster.conditions("stolen").is_empty());

    let option = format!("--policy={}", policy.display());
    let refused = otto.command("approve").arguments(&["stolen", "--despite-mismatch", &option]);
    refused.run().fails(6, &[reason]);
    let shown = otto.command("approve").arguments(&["hers", &option]).run();
    shown.says(&["the policy has this requester ask for the user"]);
}

/// Eighty columns have no room for a table of all that.
#[test]
fn a_narrow_terminal_has_a_paragraph_for_each_request() {
    let (_turn, cluster) = fresh();
    let (jane, otto) = (jane(cluster), approver(cluster));
    let device = Device::new();
    let policy = write_policy(&otto, &device);
    let hardware = ["dev", "hw:attested", "hw:yubikey:15873456"];
    jane.asks_by("good", &Wanted::default(), &device.request(&hardware, claims()));
    jane.asks("in-a-file", &Wanted::default());
    let script =
        format!("exec 2>/dev/tty\n\"$SIGNER\" approve --dry-run --policy={}", policy.display());
    let (outcome, screen) =
        approve_all(&otto, &policy).within("bash", &script).at_terminal().finish();
    assert_eq!(outcome.told(6), "good would be approved\n");
    let lines: Vec<_> = screen.lines().map(str::trim_end).collect();
    assert!(lines.iter().all(|line| line.chars().count() <= 80), "{screen}");
    let start = lines.iter().position(|line| *line == "✔  good").unwrap();
    assert_eq!(
        lines[start + 1..start + 5],
        [
            "     user \"jane\", groups \"dev\", \"hw:attested\", \"hw:yubikey:15873456\", for 10",
            "       minutes",
            "     YubiKey 15873456, firmware 5.7.4, slot 9a, PIN once, touch never",
            "✘  in-a-file",
        ],
        "{screen}"
    );
}

/// The administrator's page as it stands, and the rights on the approver's: the same user with a key in a file gets none.
#[test]
fn the_page_lets_in_who_has_the_card_and_nobody_else() {
    let (_turn, cluster) = fresh();
    let (jane, otto) = (jane(cluster), approver(cluster));
    let device = Device::new();
    let policy = blocks_of("docs/policy.md", "The policy", "yaml").remove(0);
    let policy = write_with_root(&otto, &policy, &device);
    let rights = blocks_of("docs/approve.md", "Only keys that a YubiKey made", "yaml").remove(0);
    // Nothing fills the role `view` here.
    let rights = adapted(&rights, &[["name: view", "name: certificate-approvers"]]);
    cluster.administrate(&["apply", "-f", "-"], &rights);
    let list = ["get", "certificatesigningrequests", "--output=name"];
    cluster.wait_for_right(&["list", list[1], "--as=x", "--as-group=hw:attested"]);
    jane.kubectl().arguments(&list).run().failed().says(&["Forbidden", "cannot list resource"]);

    let slot_key = key();
    let attribute = bundle(&[&device.attest(&slot_key, claims())], &[&device.certificate()]);
    let groups = ["dev", "hw:attested", "hw:yubikey:15873456"];
    let wanted = Wanted { seconds: Some(86_400), ..Wanted::default() };
    jane.asks_by("hardware", &wanted, &janes(&slot_key, &groups, &[&attribute]));
    // What she asks for with her password alone.
    jane.asks_by("copied", &wanted, &janes(&key(), &groups, &[]));
    let mut terminal = approve_all(&otto, &policy).at_terminal();
    terminal.expect("Approve 1 of 2 requests, as the table has them? Type yes: ");
    assert_eq!(terminal.type_line("yes").finish().0.told(6), "hardware approved\n");
    assert!(cluster.conditions("copied").is_empty());

    let [certificate, private] = ["card.pem", "card.key"].map(|name| jane.directory().join(name));
    fs::write(&certificate, cluster.issued_certificate("hardware")).unwrap();
    fs::write(&private, slot_key.serialize_pem()).unwrap();
    let user = json!({"client-certificate": certificate, "client-key": private});
    jane.write_kubeconfig(cluster, &user);
    let listed = jane.kubectl().arguments(&list).run().succeeded().shown();
    assert!(listed.contains("/hardware\n"), "{listed}");
}

/// Who made it up has jane's password, and wants her rights with a key that can be copied.
#[test]
fn a_bad_attestation_is_refused_with_its_reason() {
    let (_turn, cluster) = fresh();
    let (jane, otto) = (jane(cluster), approver(cluster));
    let device = Device::new();
    let policy = write_policy(&otto, &device);
    let slot_key = key();
    let attestation = device.attest(&slot_key, claims());
    let certificate = device.certificate();
    let by = |attestation: &[u8]| bundle(&[attestation], &[&certificate]);
    let with_claims = |claims| by(&device.attest(&slot_key, claims));
    let good = by(&attestation);
    let expired = device.attest_with(&slot_key, claims(), |parameters| {
        parameters.not_before = rcgen::date_time_ymd(2019, 1, 1);
        parameters.not_after = rcgen::date_time_ymd(2020, 1, 1);
    });
    let twice = claims().into_iter().chain([(8, vec![2, 2])]).collect();
    let other = Device::new();
    let others = bundle(&[&other.attest(&slot_key, claims())], &[&other.certificate()]);
    let many = [
        &vec![certificate.as_slice(); 8][..],
        &[&[0x30, 0x83, 0x01, 0x86, 0xa0][..], &[7; 100_000]],
    ]
    .concat();
    let mut requests: Vec<(&str, Vec<Vec<u8>>, &str)> = vec![
        (
            "other-root",
            vec![others],
            "names CN=Test Root as its issuer, whose key has not signed it",
        ),
        (
            "other-device",
            vec![bundle(&[&attestation], &[&other.certificate()])],
            "names CN=Yubico PIV Attestation as its issuer, whose key has not signed it",
        ),
        (
            "extension-twice",
            vec![with_claims(twice)],
            "has the extension 1.3.6.1.4.1.41482.3.8 twice",
        ),
        (
            "one-byte",
            vec![with_claims(claims_with(8, &[2]))],
            "the attestation's PIN and touch policy has 1 byte instead of 2",
        ),
        (
            "three-bytes",
            vec![with_claims(claims_with(8, &[2, 1, 1]))],
            "the attestation's PIN and touch policy has 3 bytes instead of 2",
        ),
        (
            "other-key",
            vec![by(&device.attest(&key(), claims()))],
            "is about another key than the request's",
        ),
        ("expired", vec![by(&expired)], "it expired 2020-01-01 00:00 UTC"),
        (
            "two-attestations",
            vec![bundle(&[&attestation, &attestation], &[&certificate])],
            "the request has 2 attestations, and one is wanted",
        ),
        (
            "attribute-twice",
            vec![good.clone(), good.clone()],
            "the request has the attestation attribute twice",
        ),
        (
            "serial-of-another",
            vec![with_claims(claims_with(7, &[2, 1, 42]))],
            "line 9 (users[0].serialNumbers): the key is in YubiKey 42, which is none of these",
        ),
        (
            "old-firmware",
            vec![with_claims(claims_with(3, &[5, 4, 3]))],
            "line 4 (require.minFirmware): the YubiKey's firmware is older: 5.4.3",
        ),
        ("huge", vec![bundle(&[&attestation], &many)], "bytes, and 16384 are the most"),
        ("none", vec![], "nothing shows that the key is in one of these"),
    ];
    let pem = |attributes: &[Vec<u8>], key| {
        let attributes: Vec<_> = attributes.iter().map(Vec::as_slice).collect();
        janes(key, &["dev"], &attributes)
    };
    let mut all: Vec<_> = requests
        .iter()
        .map(|(name, attributes, _)| ((*name).to_owned(), pem(attributes, &slot_key)))
        .collect();
    let no_ca = device.sibling(|parameters| parameters.is_ca = rcgen::IsCa::ExplicitNoCa);
    all.push(("no-ca".to_owned(), no_ca.request(&["dev"], claims())));
    requests.push(("no-ca", vec![], "has issued another, and is no CA (CA:FALSE)"));
    jane.asks_for_all(&Wanted::default(), &all);

    let (outcome, screen) = approve_all(&otto, &policy).at_terminal().finish();
    outcome.fails(6, &["14 of 14 requests were not approved"]);
    assert_eq!((screen.as_str(), outcome.stdout.len()), ("", 0));
    for (name, _, reason) in requests {
        let row = row(&outcome.stderr, name);
        assert!(row[0].starts_with("✘") && row[1].contains(reason), "{row:?}");
        assert_eq!(row.len(), 2, "{row:?}");
        assert!(cluster.conditions(name).is_empty(), "{name}");
    }
}
