//! `enroll` on a card: from a slot without a key to a certificate, through `libykcs11.so`; and what OpenSC
//! can't do, with the key that is there.

use super::super::differences::library_version;
use super::super::guide;
use super::super::opening::Unpadding;
use super::cards::{self, Cards, OPENSC, PIN, YKCS11};
use crate::enroll_cluster::Newcomer;
use crate::fixture::*;
use crate::kubelet::keys::issued;

/// What an owner may have changed it to.
const OTHER_KEY: &str = "a1a2a3a4a5a6a7a8b1b2b3b4b5b6b7b8c1c2c3c4c5c6c7c8";
const MANAGEMENT_KEY: &str = "management key (48 hexadecimal digits";

struct Enrollment {
    cards: Cards,
    library: &'static str,
}

impl Enrollment {
    fn on_a_card(library: &'static str) -> Self {
        let cards = Cards::inserted(1);
        Self { cards, library }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.cards.environment.store.path(name)
    }

    fn path(&self, name: &str) -> String {
        self.at(name).to_str().unwrap().to_owned()
    }

    fn command(&self, command: &str, arguments: &[&str]) -> Invocation {
        let module = format!("--module={}", self.cards.environment.variable(self.library));
        let serial = cards::serial(self.library, 1);
        let token = self.cards.token(self.library, 1);
        token.command(&[command, &module, "--token-serial", &serial]).arguments(arguments)
    }

    /// With the PIN at hand, and a person for the rest.
    fn enroll(&self, arguments: &[&str]) -> Terminal {
        let stored = ["--pin-source", "env:TOKEN_PIN"];
        self.command("enroll", &stored).arguments(arguments).at_terminal()
    }

    /// For jane.
    fn request(&self, arguments: &[&str]) -> Terminal {
        let csr = self.path("jane.csr");
        self.enroll(&[&["--user", "jane", "--group", "dev", "--csr", &csr][..], arguments].concat())
    }

    /// The CA issues jane.pem.
    fn issue(&self) -> String {
        let state = Path::new(self.cards.environment.variable("PIV_STATE"));
        let [pem, key] = ["ca.pem", "ca.key"].map(|name| state.join(name));
        let csr = self.path("jane.csr");
        openssl(["req", "-in", &csr, "-noout", "-verify"]);
        certify(csr.as_ref(), [&pem, &key], 30, "extendedKeyUsage=clientAuth\n", &[]);
        self.path("jane.pem")
    }

    #[track_caller]
    fn assert_checked(&self, arguments: &[&str]) {
        let stored = ["--pin-source", "env:TOKEN_PIN"];
        let checked = self.command("check", &stored).arguments(arguments).run();
        let checked = checked.told(0);
        assert!(checked.contains("user \"jane\", groups \"dev\""), "{checked}");
        let end = "✔ TLS            this key can serve TLS 1.3 and TLS 1.2\n";
        assert!(checked.ends_with(end), "{checked}");
    }

    fn listed(&self) -> String {
        self.command("list", &[]).run().printed()
    }
}

/// Demands that it ended well; what the terminal has shown, and what was printed.
#[track_caller]
fn done(mut terminal: Terminal) -> String {
    let (outcome, screen) = terminal.finish();
    assert_eq!(outcome.status.code(), Some(0), "{screen}\n{outcome:?}");
    // Messages are folded to the terminal's width.
    let told = outcome.stderr.split_whitespace().collect::<Vec<_>>();
    [screen, outcome.shown(), told.join(" ")].concat()
}

#[track_caller]
fn failed(mut terminal: Terminal, code: i32, fragments: &[&str]) -> Outcome {
    let (outcome, _) = terminal.finish();
    outcome.fails(code, fragments);
    outcome
}

#[test]
#[ignore = "scripts/test --all"]
fn a_slot_without_a_key_gets_one_and_its_certificate() {
    let enrollment = Enrollment::on_a_card(YKCS11);
    let mut terminal = enrollment.request(&["--slot", "82"]);
    terminal.expect(MANAGEMENT_KEY).type_line("default");
    done(terminal);
    // The stand-in that the library has made is none.
    assert!(enrollment.listed().contains("no certificate"), "{}", enrollment.listed());
    // Made again, it goes on with the key, for which no management key is needed.
    let before = fs::read_to_string(enrollment.at("jane.csr")).unwrap();
    done(enrollment.request(&["--slot", "82"]));
    let public_key = |request: &str| request.lines().nth(2).unwrap().to_owned();
    let again = fs::read_to_string(enrollment.at("jane.csr")).unwrap();
    assert_eq!(public_key(&before), public_key(&again));
    let certificate = enrollment.issue();
    let mut terminal = enrollment.enroll(&["--certificate", &certificate]);
    terminal.expect(MANAGEMENT_KEY).type_line("default");
    let screen = done(terminal);
    assert!(screen.contains("beside the key"), "{screen}");
    enrollment.assert_checked(&["--object-id", "5"]);
    assert!(!enrollment.listed().contains("no certificate"));
    // It was made on the card, and says so.
    let attested = enrollment.command("attestation", &["--object-id=5"]).run();
    assert!(attested.stderr.contains("PIN once, touch never"), "{attested:?}");
    // Once more, nothing is left to do.
    let screen = done(enrollment.enroll(&["--certificate", &certificate]));
    assert!(!screen.contains("management key"), "{screen}");
}

/// In a slot that is free here, and as far as the token goes.
#[test]
#[ignore = "scripts/test --all"]
fn a_key_is_made_attested_and_certified_as_the_page_says() {
    let cards = Cards::inserted(1);
    let store = &cards.environment.store;
    for (file, name) in cluster().authority().iter().zip(["ca.pem", "ca.key"]) {
        fs::copy(file, store.path(name)).unwrap();
    }
    fs::copy(cards.attestation_root(1), store.path("yubico-piv-ca-1.pem")).unwrap();
    let [make, issue, take] =
        ["The key and its request", "At the CA", "The certificate, and kubectl"]
            .map(|heading| blocks_of("docs/yubikey.md", heading, "sh").remove(0));
    let module = "/usr/lib/x86_64-linux-gnu/libykcs11.so";
    let words = [
        [module, cards.environment.variable(YKCS11)],
        ["--slot 9a", "--slot 82"],
        ["--object-id 1", "--object-id 5"],
    ];
    let make = adapted(&make, &words);
    let (variable, _) = make.split_once('\n').unwrap();
    let take = format!("{variable}\n{}", take.lines().next().unwrap());
    let typed = |block: &str| {
        let mut terminal = cards.enter(guide::follow(store, block)).at_terminal();
        terminal.expect("PIN").expect(": ");
        terminal.type_line(PIN);
        terminal.expect(MANAGEMENT_KEY).type_line("default");
        done(terminal)
    };
    typed(&make);
    let shown = cards.enter(guide::follow(store, &issue)).at_terminal();
    assert_contains(&done(shown), &["attestation.pem: OK", "the same key"]);
    assert_contains(&typed(&take), &["user \"jane\", group \"dev\"", "beside the key"]);
}

#[test]
#[ignore = "scripts/test --all"]
fn what_is_in_a_slot_is_lost_only_after_a_yes_that_names_it() {
    let enrollment = Enrollment::on_a_card(YKCS11);
    let before = enrollment.listed();
    // Of the slot that is taken where none is named, too.
    failed(enrollment.request(&[]), 6, &["has a certificate for user \"card 1 9a\""]);
    let replace = ["--slot", "9d", "--replace"];
    let mut terminal = enrollment.request(&replace);
    terminal
        .expect("Destroy the ECDSA P-384 key in slot 9d of token \"YubiKey PIV #15873456\"")
        .expect("CN=card 1 9d?")
        .expect("Type yes")
        .type_line("y");
    failed(terminal, 7, &["not confirmed"]);
    assert_eq!(enrollment.listed(), before);
    let mut terminal = enrollment.request(&replace);
    terminal.expect("Type yes").type_line("yes");
    terminal.expect(MANAGEMENT_KEY).type_line("default");
    done(terminal);
    let listed = enrollment.listed();
    assert!(listed.contains("objectId 3, ") && !listed.contains("card 1 9d"), "{listed}");
    // The same once more goes on with the key that was made.
    let made = fs::read(enrollment.path("jane.csr")).unwrap();
    assert_contains(&done(enrollment.request(&replace)), &["nothing is destroyed"]);
    assert_eq!(enrollment.listed(), listed);
    assert_ne!(fs::read(enrollment.path("jane.csr")).unwrap(), made);
}

/// Neither while its request waits nor with another one is the new key lost.
#[test]
#[ignore = "scripts/test --all"]
fn a_key_that_was_made_in_the_place_of_another_is_gone_on_with() {
    let cards = Cards::inserted(1);
    let token = cards.token(YKCS11, 1);
    let newcomer = token.newcomer(YKCS11);
    let replace = ["--slot=9d", "--replace"];
    let name = newcomer.ask_with(&replace, |invocation| {
        let mut terminal = invocation.at_terminal();
        terminal.expect("Type yes").type_line("yes");
        terminal.expect(MANAGEMENT_KEY).type_line("default");
        terminal.finish().0
    });
    let again = |options: &[&str]| {
        newcomer.ask_with(&[&replace[..], options].concat(), |invocation| {
            let outcome = invocation.run();
            outcome.says(&[&format!("was made for the request {name}"), "nothing is destroyed"]);
            outcome
        })
    };
    assert_eq!(again(&[]), name);
    assert_eq!(again(&["--again"]), name);
    cluster().administrate(&["certificate", "deny", &name], "");
    assert_eq!(again(&["--again"]), format!("{name}-2"));
    // A policy that is given again, and is the key's.
    let policies = ["--slot=9d", "--touch-policy=never", "--pin-policy=default"];
    assert_eq!(newcomer.ask_with(&policies, Invocation::run), format!("{name}-2"));
    let other = newcomer.enroll(&["--slot=9d", "--touch-policy=always"]).run();
    other.fails(6, &["PIN and touch policies can't be changed"]);
}

#[test]
#[ignore = "scripts/test --all"]
fn a_wrong_management_key_is_told() {
    let enrollment = Enrollment::on_a_card(YKCS11);
    let before = enrollment.listed();
    let mut terminal = enrollment.request(&["--slot", "82"]);
    let (outcome, screen) = terminal.expect(MANAGEMENT_KEY).type_line(OTHER_KEY).finish();
    let version = library_version(&enrollment.cards.token(YKCS11, 1));
    let code = if version < [2, 71] { "CKR_PIN_INCORRECT" } else { "CKR_ARGUMENTS_BAD" };
    outcome.fails(7, &[&format!("refused the management key: C_Login: {code}")]);
    assert!(!screen.contains(OTHER_KEY), "{screen}");
    assert_eq!(enrollment.listed(), before);
    // It was no try of the PIN.
    let checked = enrollment.command("check", &["--object-id=1", "--no-login"]).run();
    assert!(checked.told(0).contains("the token reports no wrong PIN"));
}

/// The card's PIN is sent for it only where a person says so.
#[test]
#[ignore = "scripts/test --all"]
fn a_pin_in_the_place_of_the_management_key_is_sent_after_a_word() {
    let enrollment = Enrollment::on_a_card(YKCS11);
    let mut terminal = enrollment.request(&["--slot", "82"]);
    terminal.expect(MANAGEMENT_KEY).type_line(PIN);
    failed(terminal, 7, &["can't be the management key, and was not sent"]);
    // This card has no key under its PIN.
    let mut terminal = enrollment.request(&["--slot", "82"]);
    let outcome = terminal.expect(MANAGEMENT_KEY).type_line("pin").finish().0;
    outcome.fails(7, &["doesn't keep its management key under its PIN"]);
    let checked = enrollment.command("check", &["--object-id=1", "--no-login"]).run();
    assert!(checked.told(0).contains("the token reports no wrong PIN"));
}

#[test]
#[ignore = "scripts/test --all"]
fn only_a_person_gives_the_management_key() {
    let enrollment = Enrollment::on_a_card(YKCS11);
    let csr = enrollment.path("jane.csr");
    for source in ["env:TOKEN_PIN", "stdin"] {
        let arguments = ["--pin-source", source, "--user", "jane", "--slot", "82", "--csr", &csr];
        let outcome =
            enrollment.command("enroll", &arguments).piped(format!("{PIN}\ndefault\n")).run();
        outcome.fails(7, &["wants its management key, which only a person gives"]);
    }
    assert!(!enrollment.listed().contains("\n  5 "));
}

#[test]
#[ignore = "scripts/test --all"]
fn policies_are_set_or_refused_before_anything_is_made_where_they_are_unknown() {
    let enrollment = Enrollment::on_a_card(YKCS11);
    let before = enrollment.listed();
    let policies = ["--pin-policy", "always", "--touch-policy", "cached"];
    let mut terminal = enrollment.request(&[&["--slot", "82"][..], &policies].concat());
    terminal.expect(MANAGEMENT_KEY).type_line("default");
    // Version 2.2 of the library, told as 2.20, takes none.
    if library_version(&enrollment.cards.token(YKCS11, 1)) < [2, 30] {
        failed(terminal, 6, &["knows no PIN and touch policies", "CKR_ATTRIBUTE_TYPE_INVALID"]);
        assert_eq!(enrollment.listed(), before);
    } else {
        done(terminal);
        let attested = enrollment.command("attestation", &["--object-id=5"]).run();
        attested.succeeded().says(&["slot 82, PIN always, touch cached"]);
    }
    // Nor are they changed for a key that is there.
    let taken = [&["--object-id", "3"][..], &policies].concat();
    failed(enrollment.request(&taken), 6, &["PIN and touch policies can't be changed"]);
    let enrollment = Enrollment::on_a_card(OPENSC);
    for option in [["--slot", "9a"], ["--pin-policy", "once"], ["--touch-policy", "never"]] {
        let text = format!("{} is for YubiKeys behind ykcs11", option[0]);
        failed(enrollment.request(&option), 6, &[&text]);
    }
}

#[test]
#[ignore = "scripts/test --all"]
fn opensc_makes_no_key_and_goes_on_with_one_that_is_there() {
    let enrollment = Enrollment::on_a_card(OPENSC);
    let csr = enrollment.path("jane.csr");
    let request = ["--user", "jane", "--csr", &csr, "--object-id", "5"];
    let enroll = enrollment.command("enroll", &request).argument("--pin-source=env:TOKEN_PIN");
    enroll.run().fails(6, &["it offers no CKM_EC_KEY_PAIR_GEN", "docs/tokens.md"]);
    done(enrollment.request(&["--object-id", "1"]));
    let certificate = enrollment.issue();
    let kept = enrollment.path("kept.pem");
    let arguments = ["--certificate", &certificate, "--certificate-file", &kept];
    let screen = done(enrollment.enroll(&[&arguments[..], &["--user", "jane"]].concat()));
    assert!(screen.contains("OpenSC writes nothing to a PIV card"), "{screen}");
    enrollment.assert_checked(&["--object-id", "1", "--certificate-file", &kept]);
}

#[test]
#[ignore = "scripts/test --all"]
fn a_cluster_issues_the_certificate_of_a_new_key() {
    let cards = Cards::inserted(1);
    let token = cards.token(YKCS11, 1);
    let newcomer = token.newcomer(YKCS11).attested_below(&cards.attestation_root(1));
    // For the key, and for the certificate.
    newcomer.assert_enrolls(&["--slot=82"], &[], |invocation| {
        let mut terminal = invocation.at_terminal();
        terminal.expect(MANAGEMENT_KEY).type_line("default");
        terminal.finish().0
    });
}

#[test]
#[ignore = "scripts/test --all"]
fn a_cluster_issues_the_certificate_of_a_key_that_opensc_did_not_make() {
    let cards = Cards::inserted(1);
    cards.yubico_piv_tool(1, &["--slot", "9a", "--action", "delete-certificate"]);
    let token = cards.token(OPENSC, 1);
    let newcomer = token.newcomer(OPENSC);
    let object = ["--object-id=1"];
    newcomer.enroll(&object).run().fails(6, &["it offers no CKM_EC_KEY_PAIR_GEN"]);
    let [make, ..] = &guide::blocks("A YubiKey, or another PIV card")[..] else {
        panic!("no block")
    };
    guide::typing(cards.enter(guide::follow(&cards.environment.store, make)), make, PIN);
    newcomer.assert_enrolls(&object, &["OpenSC writes nothing to a PIV card"], Invocation::run);
}

/// The request says what OpenSC goes by.
#[test]
#[ignore = "scripts/test --all"]
fn a_key_for_unsealing_is_made_in_slot_9d_and_opens() {
    for (name, kind) in [("ec-p256", Kind::P256), ("rsa-2048", Kind::Rsa(2048))] {
        let enrollment = Enrollment::on_a_card(YKCS11);
        let csr = enrollment.path("node1.csr");
        let request = ["--for=unsealing", "--user=node1", "--key", name, "--csr", &csr];
        let mut terminal = enrollment.enroll(&[&request[..], &["--replace"]].concat());
        terminal.expect("in slot 9d of token").expect("Type yes").type_line("yes");
        terminal.expect(MANAGEMENT_KEY).type_line("default");
        done(terminal);
        let certificate = issued(&csr);
        let mut terminal = enrollment.enroll(&["--certificate", &certificate]);
        terminal.expect(MANAGEMENT_KEY).type_line("default");
        done(terminal);
        for library in [OPENSC, YKCS11] {
            let token = enrollment.cards.token(library, 1);
            token.assert_opens(Path::new(&certificate), kind, Unpadding::Tokens);
        }
    }
}

/// Yubico's tool makes it, since the library of Debian 12 knows no touch policies; the card says which one it has.
#[test]
#[ignore = "scripts/test --all"]
fn a_key_for_writes_is_one_that_the_card_wants_a_touch_for() {
    let cards = Cards::inserted(1);
    let make = |slot: &str, policy: &str| {
        let file = cards.environment.store.path("public.pem");
        let touch = format!("--touch-policy={policy}");
        let output = file.to_str().unwrap();
        let options = ["--slot", slot, "--algorithm=ECCP256", "--action=generate", &touch];
        cards.yubico_piv_tool(1, &[&options[..], &["--output", output]].concat());
    };
    make("82", "never");
    make("83", "always");
    let token = cards.token(YKCS11, 1);
    let newcomer = token.newcomer(YKCS11).attested_below(&cards.attestation_root(1));
    let run = |invocation: Invocation| {
        let mut terminal = invocation.at_terminal();
        terminal.expect(MANAGEMENT_KEY).type_line("default");
        terminal.finish().0
    };
    newcomer.assert_enrolls(&["--slot=84", "--keep=15m"], &[], run);
    // The second one is asked for with the first one's key, which is open from now on.
    newcomer.whoami();
    let by_touch = |slot: &str| newcomer.enroll(&["--writes-by-touch", slot]);
    by_touch("--slot=82").run().fails(6, &["wants no touch for the key with objectId \"5\""]);
    let asked = by_touch("--slot=83").argument("--wait=1s").run();
    asked.fails(9, &["was not approved within 1 seconds"]);
    let (_, name) = asked.stderr.split_once(" approve ").unwrap();
    let name = name.split_whitespace().next().unwrap();
    let root = format!("--root={}", cards.attestation_root(1).display());
    let options = ["--despite-mismatch", &*root];
    Newcomer::approve(name, &options, true).says(&["slot 83, PIN once, touch always"]);
    let enrolled = run(by_touch("--slot=83").argument("--kuberc")).succeeded();
    assert!(enrolled.step("cluster").contains("user \"jane-writes\""), "{enrolled:?}");
    let whoami = |context: &str| newcomer.kubectl(&[context, "auth", "whoami"]);
    let known = whoami("--context=prod-writes").run().printed();
    assert!(known.contains("jane-writes"), "{known}");
    newcomer.stop();

    // Each use takes a touch, and one is good for no more; reading takes none.
    cards.take_finger_away(1);
    let mut writing = whoami("--context=prod-writes").start(None);
    cards.touch(1);
    wait_for("kubectl's end", || writing.has_ended().then_some(()));
    assert!(writing.finish().succeeded().stdout.starts_with(b"ATTRIBUTE"));
    newcomer.stop();
    whoami("--context=prod").run().succeeded();
    whoami("--context=prod-writes").run().failed();
    newcomer.stop();
}
