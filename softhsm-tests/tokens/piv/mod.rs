//! PIV cards, through `opensc-pkcs11.so` and `libykcs11.so`: a YubiKey's slots 9a, 9c (the PIN for every
//! signature), 9d and 9e (no PIN), three tries for the PIN, and cards that are pulled and put back.

mod attestation;
mod cards;
mod enrollment;
mod renewal;
mod revocation;
mod run;

use self::cards::{Cards, Instruction, LIBRARIES, OPENSC, PIN, SLOTS, WRONG_PIN, YKCS11};
use super::differences::{assert_documented, library_version};
use super::environment::{Offer, Token, one_scheme};
use super::guide::{self, assert_names};
use super::opening::Unpadding;
use crate::fixture::*;
use crate::kubelet::{IMAGE, asked};

/// What becomes of a command at a terminal where the card's management key, which was never changed, is typed.
fn with_management_key(invocation: Invocation) -> Outcome {
    let mut terminal = invocation.at_terminal();
    terminal.expect("management key (48 hexadecimal digits").type_line("default");
    terminal.finish().0
}

#[test]
#[ignore = "scripts/test --all"]
fn opensc_does_what_the_table_says() {
    assert_documented("OpenSC", |ask| ask(&Cards::inserted(1).token(OPENSC, 1)));
}

#[test]
#[ignore = "scripts/test --all"]
fn ykcs11_does_what_the_table_says() {
    assert_documented("ykcs11", |ask| ask(&Cards::inserted(1).token(YKCS11, 1)));
}

#[test]
#[ignore = "scripts/test --all"]
fn every_scheme_is_signed_with_every_key() {
    let cards = Cards::inserted(2);
    for library in LIBRARIES {
        for card in [1, 2] {
            let token = cards.token(library, card);
            for (id, slot, _) in SLOTS {
                let key = cards.key(card, slot);
                let certificate = token.certificate(id).run().silently().certificate();
                assert_eq!(certificate, key.certificate, "{library}, card {card}, {slot}");
                token.assert_signs_with(id, &key, |scheme| match scheme {
                    Scheme::Pss { hash, .. } if hash == Hash::Sha224 && library == YKCS11 => {
                        Offer::PaddedHere
                    }
                    _ => Offer::Made,
                });
            }
            // ykcs11 2.7.3, told as 2.73, knows it, and this card doesn't.
            if library == OPENSC || library_version(&token) < [2, 73] {
                token.assert_offers_no_ed25519();
            }
        }
    }
}

/// Somebody asked for a signature.
fn sign_at_terminal(token: &Token<'_>, id: &str, key: &Key) -> Terminal {
    let asking = token.configuration(id).without("pinSource");
    let (options, _) = one_scheme(key.kind);
    token.ask(&sign_request(&asking, &options, &sample(32))).at_terminal()
}

/// Demands an answer with this key's signature.
#[track_caller]
fn assert_signed(outcome: &Outcome, key: &Key) {
    let (_, scheme) = one_scheme(key.kind);
    assert_verifies(key, scheme, &sample(32), &outcome.signature());
}

/// Demands that no PIN of a card is shown.
#[track_caller]
fn assert_no_pin(text: &str) {
    for pin in [PIN, WRONG_PIN] {
        assert!(!text.contains(pin), "a PIN in:\n{text}");
    }
}

#[test]
#[ignore = "scripts/test --all"]
fn three_tries_lead_to_the_lock_and_the_last_wants_a_word() {
    for library in LIBRARIES {
        let cards = Cards::inserted(1);
        let (token, key) = (cards.token(library, 1), cards.key(1, "9a"));
        let (options, _) = one_scheme(key.kind);
        let sign = || token.sign("1", &options, &sample(32));
        let module = format!("--module={}", cards.environment.variable(library));
        let listed = || token.command(&["list", &module]).run().printed();
        let wrong = sign().variable("TOKEN_PIN", WRONG_PIN).run();
        wrong.fails(7, &["refused the PIN", "TOKEN_PIN", "CKR_PIN_INCORRECT"]);
        assert_no_pin(&wrong.stderr);
        // OpenSC says nothing of the first wrong PIN.
        let is_counted = wrong.stderr.contains("counted a wrong PIN");
        assert_eq!(is_counted, library == YKCS11, "{}", wrong.stderr);
        sign().variable("TOKEN_PIN", WRONG_PIN).run().fails(7, &["was not sent"]);
        // The second wrong one, and the right one as the last.
        let mut terminal = sign_at_terminal(&token, "1", &key);
        terminal.expect_prompt().type_line(WRONG_PIN);
        terminal.expect("one try is left").expect("last try");
        terminal.expect("yes").type_line("yes");
        let (outcome, screen) = terminal.expect_prompt().type_line(PIN).finish();
        assert_signed(&outcome, &key);
        assert_no_pin(&screen);
        assert_signed(sign().run().silently(), &key);
        // Three wrong ones.
        let mut terminal = sign_at_terminal(&token, "1", &key);
        terminal.expect_prompt().type_line(WRONG_PIN);
        terminal.expect_prompt().type_line(WRONG_PIN);
        terminal.expect("last try").expect("yes").type_line("no");
        terminal.finish().0.fails(7, &["one PIN try left", "not sent"]);
        sign().run().fails(7, &["one PIN try left", "was not sent"]);
        assert!(listed().contains("one PIN try left"), "{}", listed());
        let mut terminal = sign_at_terminal(&token, "1", &key);
        terminal.expect("last try").expect("yes").type_line("yes");
        terminal.expect_prompt().type_line(WRONG_PIN).finish().0.fails(7, &["locked"]);
        sign().run().fails(7, &["locked", "unblock"]);
        assert!(listed().contains("locked"), "{}", listed());
        // Its owner has a PUK.
        cards.unblock(1);
        let mut terminal = sign_at_terminal(&token, "1", &key);
        assert_signed(&terminal.expect_prompt().type_line(PIN).finish().0, &key);
        assert_signed(sign().run().silently(), &key);
    }
}

/// OpenSC goes by the certificate's key usage; without one, an EC key in slot 9d only derives.
#[test]
#[ignore = "scripts/test --all"]
fn a_key_that_opensc_does_not_let_sign_is_told_and_signs_with_another_library() {
    let cards = Cards::inserted(1);
    let at = |name: &str| format!("{}/{name}", cards.environment.variable("PIV_STATE"));
    let [public, ca, ca_key] = ["1/9d/public.pem", "ca.pem", "ca.key"].map(at);
    let der = cards.environment.store.path("without-usage.der");
    let issued = ["x509", "-new", "-subj", "/CN=jane", "-force_pubkey", &public, "-CA", &ca];
    let form = ["-CAkey", &ca_key, "-days", "30", "-outform", "der", "-out"];
    openssl([&issued[..], &form, &[der.to_str().unwrap()]].concat());
    let key = cards.key(1, "9d");
    cards.certify("9d", &fs::read(der).unwrap());
    let (options, _) = one_scheme(key.kind);
    let sign = |library| cards.token(library, 1).sign("3", &options, &sample(32)).run();
    let told = ["C_SignInit: CKR_KEY_TYPE_INCONSISTENT", "CKA_SIGN", "or another library"];
    sign(OPENSC).fails(8, &told);
    assert_signed(&sign(YKCS11), &key);
}

#[test]
#[ignore = "scripts/test --all"]
fn the_last_try_is_asked_for_at_each_login_that_may_be_it() {
    for library in LIBRARIES {
        let cards = Cards::inserted(1);
        let (token, key) = (cards.token(library, 1), cards.key(1, "9c"));
        let mut terminal = sign_at_terminal(&token, "2", &key);
        terminal.expect_prompt().type_line(WRONG_PIN);
        terminal.expect_prompt().type_line(WRONG_PIN);
        // OpenSC goes on speaking of the last try after the login for the session.
        let logins = if library == OPENSC { 2 } else { 1 };
        for _ in 0..logins {
            terminal.expect("last try").expect("yes").type_line("yes");
            terminal.expect_prompt().type_line(PIN);
        }
        let (outcome, screen) = terminal.finish();
        assert_signed(&outcome, &key);
        assert_eq!(screen.matches("last try").count(), logins, "{screen}");
    }
}

#[test]
#[ignore = "scripts/test --all"]
fn a_key_that_wants_its_pin_each_time_gets_it_from_one_entry() {
    let cards = Cards::inserted(2);
    for library in LIBRARIES {
        for card in [1, 2] {
            let (token, key) = (cards.token(library, card), cards.key(card, "9c"));
            let (options, _) = one_scheme(key.kind);
            for _ in 0..2 {
                assert_signed(token.sign("2", &options, &sample(32)).run().silently(), &key);
            }
            let mut terminal = sign_at_terminal(&token, "2", &key);
            let (outcome, screen) = terminal.expect_prompt().type_line(PIN).finish();
            assert_signed(&outcome, &key);
            assert_eq!(screen.matches("PIN").count(), 1, "{screen}");
            let wrong = token.sign("2", &options, &sample(32));
            wrong.variable("TOKEN_PIN", WRONG_PIN).run().fails(7, &["CKR_PIN_INCORRECT"]);
            let mut terminal = sign_at_terminal(&token, "2", &key);
            assert_signed(&terminal.expect_prompt().type_line(PIN).finish().0, &key);
        }
    }
}

/// OpenSC says which key that is; Yubico's library shows no key before a login.
#[test]
#[ignore = "scripts/test --all"]
fn a_key_that_wants_no_pin_gets_none() {
    let cards = Cards::inserted(2);
    for card in [1, 2] {
        let key = cards.key(card, "9e");
        let (options, _) = one_scheme(key.kind);
        for library in LIBRARIES {
            let token = cards.token(library, card);
            let without = token.configuration("4").without("pinSource");
            let outcome = token.ask(&sign_request(&without, &options, &sample(32))).run();
            if library == OPENSC {
                assert_signed(outcome.silently(), &key);
                let path = cards.environment.variable(library);
                let serial = cards::serial(library, card);
                let checked = token
                    .command(&["check", &format!("--module={path}"), "--object-id=4"])
                    .arguments(&["--token-serial", &serial])
                    .run();
                assert!(checked.told(0).contains("not needed for this key"));
            } else {
                outcome.fails(7, &["PIN"]);
            }
        }
    }
}

#[test]
#[ignore = "scripts/test --all"]
fn twenty_requests_at_once_are_all_answered() {
    let cards = Cards::inserted(2);
    for library in LIBRARIES {
        for (id, slot) in [("1", "9a"), ("2", "9c")] {
            cards.token(library, 1).assert_all_answer_with(id, &cards.key(1, slot), 20);
        }
    }
}

/// One library at a time: OpenSC can hang where another library uses the same card.
#[test]
#[ignore = "scripts/test --all"]
fn two_cards_sign_at_once() {
    let cards = Cards::inserted(2);
    for library in LIBRARIES {
        let running: Vec<_> = (0..20)
            .map(|index| {
                let card = 1 + index % 2;
                let key = cards.key(card, "9a");
                let (options, _) = one_scheme(key.kind);
                (cards.token(library, card).sign("1", &options, &sample(32)).start(None), key)
            })
            .collect();
        for (run, key) in running {
            assert_signed(&run.finish(), &key);
        }
    }
}

#[test]
#[ignore = "scripts/test --all"]
fn both_cards_are_listed_and_every_key_is_checked() {
    let cards = Cards::inserted(2);
    for library in LIBRARIES {
        let path = cards.environment.variable(library);
        let module = format!("--module={path}");
        let token = cards.token(library, 1);
        let listed = token.command(&["list", &module]).run();
        let listed = listed.silently().printed();
        for card in [1, 2] {
            for (_, slot, _) in SLOTS {
                let user = format!("card {card} {slot}");
                assert!(listed.contains(&user), "no {user} in\n{listed}");
            }
        }
        for (serial, card) in [(cards::serial(library, 1), 1), (cards::serial(library, 2), 2)] {
            assert!(listed.contains(&serial), "no {serial} in\n{listed}");
            for (id, slot, _) in SLOTS {
                let checked = token
                    .command(&["check", &module, "--pin-source=env:TOKEN_PIN"])
                    .arguments(&["--token-serial", &serial, "--object-id", id])
                    .run();
                let checked = checked.told(0);
                let end = "✔ TLS            this key can serve TLS 1.3 and TLS 1.2\n";
                assert!(checked.ends_with(end), "card {card}, {slot}:\n{checked}");
                let each_time = checked.contains("wants the PIN for every signature");
                assert_eq!(each_time, slot == "9c", "{checked}");
            }
        }
    }
}

/// Without the reader's service, it lists no slots.
#[test]
#[ignore = "scripts/test --all"]
fn yubicos_library_says_that_there_is_no_card() {
    let cards = Cards::inserted(0);
    let module = format!("--module={}", cards.environment.variable(YKCS11));
    let token = cards.token(YKCS11, 1);
    let list = || token.command(&["list", &module]);
    let empty = list().run();
    let reader = "  no token in Yubico YubiKey (virtual) 00 00";
    assert!(empty.silently().printed().contains(reader), "{empty:?}");
    let unserved = |invocation: Invocation| {
        let outcome = invocation.variable("PCSCLITE_CSOCK_NAME", "/nowhere").run();
        outcome.fails(5, &["C_GetSlotList: CKR_DEVICE_ERROR", "pcscd"]);
    };
    unserved(list());
    unserved(token.certificate("1"));
    let check = token.command(&["check", &module, "--token-serial=1", "--object-id=1"]);
    let checked = check.variable("PCSCLITE_CSOCK_NAME", "/nowhere").run();
    assert!(checked.told(5).contains("C_GetSlotList: CKR_DEVICE_ERROR"));
}

#[test]
#[ignore = "scripts/test --all"]
fn a_card_is_found_once_it_is_there() {
    for library in LIBRARIES {
        let cards = Cards::inserted(0);
        let (token, key) = (cards.token(library, 1), cards.key(1, "9a"));
        token.certificate("1").run().fails(5, &["insert the token"]);
        cards.insert(1);
        assert_eq!(token.certificate("1").run().silently().certificate(), key.certificate);
        // Another card is not taken for it.
        cards.pull(1);
        cards.insert(2);
        let outcome = token.certificate("1").run();
        let other = cards::serial(library, 2);
        outcome.fails(5, &["insert the token, or name one that is there", &other]);
    }
}

/// What happens to the card while its PIN is typed.
#[derive(Clone, Copy, Debug)]
enum Meanwhile {
    Gone,
    /// … and put back.
    Back,
    /// … while it looks at the PIN.
    Interrupted,
}

#[test]
#[ignore = "scripts/test --all"]
fn a_card_that_is_pulled_at_the_prompt_ends_the_request_with_a_word() {
    for library in LIBRARIES {
        let cards = Cards::inserted(1);
        let (token, key) = (cards.token(library, 1), cards.key(1, "9a"));
        // ykcs11 2.7.1, told as 2.71, finds the card that is back by itself.
        let finds_again = library == YKCS11 && library_version(&token) >= [2, 71];
        for meanwhile in [Meanwhile::Gone, Meanwhile::Back, Meanwhile::Interrupted] {
            let mut terminal = sign_at_terminal(&token, "1", &key);
            terminal.expect_prompt();
            match meanwhile {
                Meanwhile::Gone => cards.pull(1),
                Meanwhile::Back => {
                    cards.pull(1);
                    cards.insert(1);
                }
                Meanwhile::Interrupted => cards.stop_at(1, Instruction::Verify),
            }
            terminal.type_line(PIN);
            if matches!(meanwhile, Meanwhile::Interrupted) {
                cards.pull_stopped(1);
            }
            let (outcome, screen) = terminal.finish();
            let code = outcome.status.code();
            if finds_again && matches!((meanwhile, code), (Meanwhile::Back, Some(0))) {
                assert_signed(&outcome, &key);
            } else {
                assert!(matches!(code, Some(5 | 7)), "{library}, {meanwhile:?}: {outcome:?}");
                outcome.fails(code.unwrap_or_default(), &["C_", "CKR_", "try again"]);
            }
            assert_no_pin(&screen);
            if !matches!(meanwhile, Meanwhile::Back) {
                cards.insert(1);
            }
            let mut terminal = sign_at_terminal(&token, "1", &key);
            assert_signed(&terminal.expect_prompt().type_line(PIN).finish().0, &key);
        }
    }
}

/// OpenSC's serial number of a card is that of its CHUID, which the guide sets anew.
#[test]
#[ignore = "scripts/test --all"]
fn a_key_is_made_and_certified_as_the_guide_says() {
    let [make, request, certify] = &guide::blocks("A YubiKey, or another PIV card")[..] else {
        panic!("another number of blocks")
    };
    for library in LIBRARIES {
        let cards = Cards::inserted(1);
        let token = cards.token(library, 1);
        let store = &cards.environment.store;
        let run = |block: &str| {
            let block = format!("module={}\n{block}", cards.environment.variable(library));
            guide::typing(cards.enter(guide::follow(store, &block)), &block, PIN)
        };
        run(make);
        run(request);
        guide::issue(store);
        let certified = run(certify);
        assert_names(&certified, "1");
        let printed = &certified;
        let (_, serial) = printed.split_once("--token-serial=").unwrap();
        let serial = serial.split_whitespace().next().unwrap();
        assert_eq!(serial == cards::serial(library, 1), library == YKCS11, "{printed}");
        let configuration = token.configuration.clone().with("tokenSerial", serial);
        let token = Token { configuration, ..token };
        token.assert_kubectl_gets("1");
    }
}

#[test]
#[ignore = "scripts/test --all"]
fn sealed_files_are_opened_in_slot_9d() {
    let cards = Cards::inserted(2);
    for library in LIBRARIES {
        for card in [1, 2] {
            let key = cards.key(card, "9d");
            let token = cards.token(library, card);
            token.assert_opens(&key.certificate_pem(), key.kind, Unpadding::Tokens);
        }
    }
}

/// PKCS#11 has no moment for the PIN of C_DeriveKey; Yubico's library derives after a login all the same.
#[test]
#[ignore = "scripts/test --all"]
fn a_key_that_wants_its_pin_each_time_opens_what_the_library_lets_it() {
    let cards = Cards::inserted(2);
    let [ec, rsa] = [cards.key(1, "9c"), cards.key(2, "9c")];
    for library in LIBRARIES {
        cards.token(library, 2).assert_opens(&rsa.certificate_pem(), rsa.kind, Unpadding::Tokens);
    }
    cards.token(YKCS11, 1).assert_opens(&ec.certificate_pem(), ec.kind, Unpadding::Tokens);
    // Its certificate allows signatures only.
    let token = cards.token(OPENSC, 1);
    for file in token.sealed(&ec.certificate_pem(), ec.kind) {
        asked(token.provider(&file), IMAGE).fails_in_one_line(8, &["its CKA_DERIVE is false"]);
    }
}
