//! kryoptic: a token that counts wrong PINs up to the lock, has keys that want their PIN each time,
//! and, with some of its mechanisms hidden, is the token that our own padding is for.

use super::conformance::Held;
use super::differences::assert_documented;
use super::environment::{Environment, Offer, Pair, Token, ecdsa};
use super::opening::Unpadding;
use crate::fixture::*;
use crate::run::trouble::{Server, server_certificate};
use crate::short_lived::structured::Trusted;

const LIBRARY: &str = "KRYOPTIC_MODULE";

fn environment(pairs: impl IntoIterator<Item = Pair>, withheld: &str) -> Environment {
    Environment::holding("kryoptic", pairs, &[("WITHHELD", withheld)], &[])
}

fn token(environment: &Environment) -> Token<'_> {
    environment.token(LIBRARY, "kryoptic", &["KRYOPTIC_CONF"])
}

#[test]
#[ignore = "scripts/test --all"]
fn it_does_what_the_table_says() {
    assert_documented("kryoptic", |ask| {
        ask(&token(&environment([Pair::new("01", Kind::Rsa(2048))], "")))
    });
}

#[test]
#[ignore = "scripts/test --all"]
fn it_conforms() {
    let kinds = [
        ("01", Kind::Rsa(2048)),
        ("02", Kind::Rsa(3072)),
        ("03", Kind::P256),
        ("04", Kind::P384),
        ("05", Kind::P521),
    ];
    let keys = kinds.map(|(id, kind)| Held::new(id, kind));
    let environment = environment(kinds.iter().zip(&keys).map(|((id, _), it)| it.pair(id)), "");
    let listed = "tokenLabel \"kryoptic\"";
    let token = token(&environment);
    token.assert_conforms(&keys, listed, |_, _| Offer::Made);
    token.assert_offers_no_ed25519();
}

#[test]
#[ignore = "scripts/test --all"]
fn it_signs_service_account_tokens() {
    let kinds = [("01", Kind::Rsa(2048), "RS256"), ("02", Kind::P256, "ES256")];
    let environment = environment(kinds.map(|(id, kind, _)| Pair::new(id, kind)), "");
    for (id, _, algorithm) in kinds {
        token(&environment).assert_signs_for_api_servers(id, algorithm);
    }
}

#[test]
#[ignore = "scripts/test --all"]
fn what_the_token_does_not_pad_is_padded_here() {
    let kind = Kind::Rsa(2048);
    let pair = || [Pair::new("01", kind)];
    let unpadded = environment(pair(), "CKM_RSA_PKCS_PSS CKM_RSA_PKCS");
    token(&unpadded).assert_signs("01", kind, |_| Offer::PaddedHere);
    let in_part = environment([Pair::administrator("01", kind)], "CKM_RSA_PKCS_PSS");
    token(&in_part).assert_kubectl_gets("01");
    let without_pss = environment(pair(), "CKM_RSA_PKCS_PSS CKM_RSA_X_509");
    token(&without_pss).assert_signs("01", kind, |scheme| match scheme {
        Scheme::Pss { .. } => Offer::Refused(&[
            "offers no CKM_RSA_PKCS_PSS or CKM_RSA_X_509",
            "hold the client to TLS 1.2",
        ]),
        _ => Offer::Made,
    });
}

#[test]
#[ignore = "scripts/test --all"]
fn a_curve_that_the_token_does_not_sign_on_is_told() {
    let environment = environment([Pair::new("01", Kind::P256)], "CKM_ECDSA");
    // Before a PIN is sent.
    token(&environment)
        .sign("01", &ecdsa(), &sample(32))
        .variable("TOKEN_PIN", WRONG_PIN)
        .run()
        .fails(8, &["offers no CKM_ECDSA", "a key of another kind"]);
}

#[test]
#[ignore = "scripts/test --all"]
fn the_way_to_the_lock_is_told_and_its_last_step_is_a_persons() {
    let environment = environment([Pair::new("01", Kind::P256)], "");
    let token = token(&environment);
    let sign = || token.sign("01", &ecdsa(), &sample(32));
    let module = format!("--module={}", environment.variable(LIBRARY));
    let listed = |words: &str| {
        let listed = token.command(&["list", &module]).run().printed();
        assert!(listed.contains(words), "no {words:?} in\n{listed}");
    };
    let asking = token.configuration("01").without("pinSource");
    let request = sign_request(&asking, &ecdsa(), &sample(32));
    let terminal = || token.ask(&request).at_terminal();
    let three_wrong = || {
        let mut terminal = terminal();
        for _ in 0..3 {
            terminal.expect_prompt().type_line(WRONG_PIN);
        }
        terminal.finish()
    };
    let last_try = |terminal: &mut Terminal, pin: &str| {
        terminal.expect("last try").expect("yes").type_line("yes");
        terminal.expect_prompt().type_line(pin);
    };
    let counted = "it has counted a wrong PIN since the last right one";

    // kryoptic raises no flag for the first ones, and still no other process sends a stored one.
    let stored = sign().variable("TOKEN_PIN", WRONG_PIN).run();
    stored.fails(7, &["refused the PIN from", "CKR_PIN_INCORRECT"]);
    assert!(!stored.stderr.contains(counted), "{stored:?}");
    sign().variable("TOKEN_PIN", WRONG_PIN).run().fails(7, &["refused a PIN", "was not sent"]);
    let (fourth, screen) = three_wrong();
    assert!(!(fourth.stderr + &screen).contains(counted), "{screen}");
    let (seventh, _) = three_wrong();
    seventh.fails(7, &[counted]);
    let mut last = terminal();
    last.expect_prompt().type_line(WRONG_PIN).expect_prompt();
    last.type_line(WRONG_PIN).expect("one try is left");
    last_try(&mut last, PIN);
    assert_signed(&last.finish().0);

    // The right one has given the token its tries back.
    listed("slotId 1, tokenLabel \"kryoptic\"");
    assert_signed(&sign().run());
    for _ in 0..2 {
        three_wrong().0.fails(7, &["CKR_PIN_INCORRECT"]);
    }
    three_wrong().0.fails(7, &["one try is left before it locks"]);
    listed("one PIN try left");
    // Not even the right one is sent by itself.
    sign().run().fails(7, &["was not sent"]);
    let mut last = terminal();
    last_try(&mut last, WRONG_PIN);
    last.finish().0.fails(7, &["is locked (CKR_PIN_LOCKED)"]);
    listed("locked");
    sign().run().fails(7, &["is locked (CKR_PIN_LOCKED)", "unblock it"]);
    let check = ["check", &module, "--token-label=kryoptic", "--object-id=01"];
    let checked = token.command(&check).argument("--no-login").run();
    let checked = String::from_utf8(checked.stdout).unwrap();
    assert!(checked.contains("is locked"), "{checked}");
    // The officer does what the help says, as it is printed.
    let locked = sign().run().stderr;
    let command = locked.split("pkcs11-tool").nth(1).and_then(|it| it.split(" (").next()).unwrap();
    let unblock = format!("exec </dev/tty >/dev/tty 2>&1; pkcs11-tool{command}");
    let mut officer = token.command(&[]).within("sh", &unblock).at_terminal();
    for (prompt, pin) in [("SO PIN: ", "87654321"), ("new PIN: ", PIN), ("again: ", PIN)] {
        officer.expect(prompt);
        wait_until("the echo is off", || !officer.echoes());
        officer.type_line(pin);
    }
    let (outcome, screen) = officer.finish();
    assert!(outcome.status.success(), "{unblock}: {screen}");
    let mut owner = terminal();
    assert_signed(&owner.expect_prompt().type_line(PIN).finish().0);
}

#[test]
#[ignore = "scripts/test --all"]
fn a_key_that_wants_its_pin_each_time_gets_it_from_one_entry() {
    let pair = Pair::administrator("01", Kind::P256).always_authenticate();
    let environment = environment([pair], "");
    let token = token(&environment);
    assert_signed(token.sign("01", &ecdsa(), &sample(32)).run().silently());
    let asking = token.configuration("01").without("pinSource");
    let mut terminal = token.ask(&sign_request(&asking, &ecdsa(), &sample(32))).at_terminal();
    let (outcome, screen) = terminal.expect_prompt().type_line(PIN).finish();
    assert_signed(&outcome);
    assert_eq!(screen.matches("PIN").count(), 1, "{screen}");
    token.assert_kubectl_gets("01");
}

#[test]
#[ignore = "scripts/test --all"]
fn a_token_file_that_is_not_there_is_told() {
    let environment = environment([Pair::new("01", Kind::P256)], "");
    let token = token(&environment);
    let nowhere = environment.store.path("nowhere.conf");
    let slot = "[[slots]]\nslot = 1\ndbtype = \"sqlite\"\ndbargs = \"/nowhere/token.sql\"\n";
    fs::write(&nowhere, slot).unwrap();
    let with = |configuration: &str| {
        token.certificate("01").variable("KRYOPTIC_CONF", configuration).run()
    };
    with(nowhere.to_str().unwrap()).fails(4, &["CKR_TOKEN_NOT_PRESENT", "configuration file"]);
    with("/nowhere").fails(5, &["Kryoptic", "the library's configuration"]);
}

#[test]
#[ignore = "scripts/test --all"]
fn keys_are_made_and_certified_by_enroll() {
    let environment = environment([Pair::new("09", Kind::P256)], "");
    token(&environment).assert_enrolls(LIBRARY, "kryoptic", &["ec-p256", "ec-p384", "rsa-2048"]);
}

#[test]
#[ignore = "scripts/test --all"]
fn a_cluster_issues_the_certificate_of_a_new_key() {
    let environment = environment([Pair::new("09", Kind::P256)], "");
    let token = token(&environment);
    let newcomer = token.newcomer(LIBRARY);
    newcomer.assert_enrolls(&[], &[], Invocation::run);
    newcomer.assert_changes_key();
}

#[test]
#[ignore = "scripts/test --all"]
fn sealed_files_are_opened() {
    let kinds =
        [("01", Kind::Rsa(2048)), ("02", Kind::P256), ("03", Kind::P384), ("04", Kind::P521)];
    let pairs = || kinds.map(|(id, kind)| Pair::new(id, kind));
    let token_pads = environment(pairs(), "");
    for (_, kind) in kinds {
        token(&token_pads).assert_opens(&key(kind).certificate_pem(), kind, Unpadding::Tokens);
    }
    let kind = Kind::Rsa(2048);
    let bare_rsa = environment(pairs(), "CKM_RSA_PKCS_OAEP");
    token(&bare_rsa).assert_opens(&key(kind).certificate_pem(), kind, Unpadding::Ours);
    let each_time = environment([Pair::new("01", kind).always_authenticate()], "");
    token(&each_time).assert_opens(&key(kind).certificate_pem(), kind, Unpadding::Tokens);
}

#[test]
#[ignore = "scripts/test --all"]
fn what_lives_minutes_is_handed_out() {
    const RSA: &str = "https://keys.example/rsa";
    const EC: &str = "https://keys.example/ec";
    let (rsa, ec) = ("01", "02");
    let pairs = [(rsa, Kind::Rsa(2048)), (ec, Kind::P256)];
    let pairs = pairs.map(|(id, kind)| Pair::administrator(id, kind));
    let all = environment(pairs.clone(), "");
    let all = token(&all);
    let trusted = Trusted::new([(RSA, rsa), (EC, ec)], |id| all.jwks(id));
    all.assert_signs_tokens(&trusted, rsa, RSA, "RS256");
    all.assert_signs_tokens(&trusted, ec, EC, "ES256");
    for id in [rsa, ec] {
        all.assert_gets_an_accounts_token(id);
    }
    let without_pss = environment(pairs, "CKM_RSA_PKCS_PSS CKM_RSA_X_509");
    token(&without_pss).assert_signs_tokens(&trusted, rsa, RSA, "RS256");
}

#[test]
#[ignore = "scripts/test --all"]
fn keys_for_unsealing_are_made_by_enroll() {
    let environment = environment([Pair::new("09", Kind::P256)], "");
    let kinds = [("ec-p256", Kind::P256), ("rsa-2048", Kind::Rsa(2048))];
    token(&environment).assert_enrolls_for_unsealing(&kinds);
}

/// From a bare token to stock kubectl, with keys that quantum computers can't forge signatures of.
#[test]
#[ignore = "scripts/test --all"]
fn a_cluster_knows_the_bearer_of_an_ml_dsa_key() {
    let environment = environment([Pair::new("09", Kind::P256)], "");
    let token = token(&environment);
    for (kind, name) in
        [("ml-dsa-44", "ML-DSA-44"), ("ml-dsa-65", "ML-DSA-65"), ("ml-dsa-87", "ML-DSA-87")]
    {
        let newcomer = token.newcomer(LIBRARY);
        let id = format!("--object-id={}", &kind[7..]);
        newcomer.assert_enrolls(&["--key", kind, &id], &[], Invocation::run);
        let keys = newcomer.keys();
        let shown = keys.iter().find(|key| key["objectId"] == id["--object-id=".len()..]).unwrap();
        assert_eq!(shown["kind"], name, "{shown}");
        assert_eq!(shown["certificate"]["user"], "jane", "{shown}");
    }
}

#[test]
#[ignore = "scripts/test --all"]
fn a_server_that_does_not_know_ml_dsa_is_told_of() {
    let environment = environment([Pair::new("09", Kind::P256)], "");
    let token = token(&environment);
    let key = ["--object-id=65", "--key=ml-dsa-65"];
    token.newcomer(LIBRARY).assert_enrolls(&key, &[], Invocation::run);
    for (only, said) in [
        ("-tls1_3", "takes no signature that the ML-DSA key of O=dev, CN=jane can make"),
        (
            "-tls1_2",
            "refused TLS 1.3 (TLS alert ProtocolVersion), and the ML-DSA key of O=dev, CN=jane",
        ),
    ] {
        // OpenSSL before 3.5 knows as little of it as servers of Go 1.26.
        let store = &environment.store;
        let own = server_certificate(store.directory.path());
        let (_server, url) =
            Server::start(&own.each_ref().map(Path::new), &cluster().authority()[0], &[only]);
        let configuration = token.configuration("65");
        let command = cluster().run(store, &configuration, &["--", "kubectl", "get", "--raw", "/"]);
        cluster().lead_to(store, &url);
        let outcome = environment.enter(command, token.variables).run();
        outcome.says(&[said, "Go 1.27 or later", "Kubernetes 1.38", "ECDSA key"]);
    }
}
