//! Libraries that misbehave: what they print, how they end, what they say of the token's PIN, and what they sign.

use cryptoki::mechanism::MechanismType;
use system::limits::TOUCH_NOTICE;

use crate::fixture::*;
use crate::secrecy::wait_for_call;

/// A signature with the PIN from the environment, through the library that misbehaves so.
fn sign(store: &Store, faults: &str) -> Invocation {
    store.sign_suffering(store.configuration_with_pin_source(), faults)
}

#[test]
fn what_a_library_prints_does_not_reach_the_answer() {
    let store = token_with_pair(Kind::P256);
    for place in ["load", "C_Initialize", "C_Sign", "C_Finalize", "unload", "exit"] {
        assert_signed(&sign(&store, &format!("{place}:print")).run());
    }
    let everywhere = "load:print,C_Initialize:print,C_GetTokenInfo:print,C_Login:print,\
                      C_Sign:print,C_Finalize:print,unload:print,exit:print";
    assert_signed(&sign(&store, everywhere).run());
    let outcome = sign(&store, &format!("{everywhere},C_Sign:return=0x30")).run();
    assert_eq!((outcome.status.code(), outcome.stdout.len()), (Some(8), 0), "{}", outcome.stderr);
}

#[test]
fn an_answer_survives_the_end_of_a_library() {
    let store = token_with_pair(Kind::P256);
    let certificate = certificate_request(&store.faulty(store.configuration()));
    for faults in [
        "C_Finalize:hang",
        "C_Finalize:crash=segv",
        "C_Finalize:crash=abort",
        "C_Finalize:crash=exit",
        "C_Finalize:return=5",
        "unload:crash=segv",
        "unload:crash=abort",
        "unload:hang",
        "exit:crash=segv",
        "exit:hang",
    ] {
        let outcome = sign(&store, faults).run();
        assert_signed(&outcome);
        // Before, it would have been given a minute.
        assert!(outcome.took < Duration::from_secs(60), "{faults}: {outcome:?}");
        let outcome = store.ask(&certificate).suffering(&store, faults).run();
        assert_eq!(outcome.certificate(), key(Kind::P256).certificate, "{faults}");
    }
}

#[test]
fn an_answer_survives_an_interruption_that_comes_too_late() {
    let store = token_with_pair(Kind::P256);
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let mut running = sign(&store, "C_Finalize:stop,C_Finalize:hang").start(None);
        assert!(running.line().contains("SignResponse"));
        wait_until_stopped(running.pid());
        kill_process(running.pid(), signal).unwrap();
        kill_process(running.pid(), Signal::CONT).unwrap();
        let outcome = running.finish().succeeded();
        assert_eq!((outcome.stdout.as_slice(), outcome.stderr.as_str()), (&b""[..], ""));
    }
}

/// The kernel keeps the default action of a signal from a container's first process.
#[test]
fn an_interruption_of_a_containers_first_process_is_no_crash() {
    needs_isolation!();
    let store = token_with_pair(Kind::P256);
    let hanging = sign(&store, "C_OpenSession:hang").through("unshare", &["--pid", "--fork"]);
    let running = hanging.start(None);
    wait_for_call(&store, "C_Initialize");
    kill_process(child_of(running.pid()), Signal::TERM).unwrap();
    let outcome = running.finish();
    assert_eq!(outcome.status.code(), Some(143), "{outcome:?}");
    assert!(!outcome.stderr.contains("crashed"), "{outcome:?}");
}

#[test]
fn an_error_survives_the_end_of_a_library() {
    let store = token_with_pair(Kind::P256);
    let missing = store.faulty(store.configuration().with("objectId", "9"));
    for faults in ["C_Finalize:hang", "C_Finalize:crash=segv", "unload:crash=abort"] {
        store
            .certificate_with(&missing)
            .suffering(&store, faults)
            .run()
            .fails(6, &["objectId \"9\""]);
    }
}

#[test]
fn calls_that_fail_are_told_by_their_names() {
    for (fault, code, name) in [
        ("C_Initialize:return=0x5", 4, "CKR_GENERAL_ERROR"),
        ("C_OpenSession:return=0x30", 5, "CKR_DEVICE_ERROR"),
        ("C_FindObjects:return=0x30", 6, "CKR_DEVICE_ERROR"),
        ("C_Login:return=0x30", 7, "CKR_DEVICE_ERROR"),
        ("C_SignInit:return=0x30", 8, "CKR_DEVICE_ERROR"),
        ("C_Sign:return=0x30", 8, "CKR_DEVICE_ERROR"),
        ("C_Sign:return=0x32", 5, "CKR_DEVICE_REMOVED"),
        ("C_Login:return=0xa4", 7, "CKR_PIN_LOCKED"),
    ] {
        // A login that failed holds the stored PIN back.
        let store = token_with_pair(Kind::P256);
        sign(&store, fault).run().fails(code, &[name]);
    }
}

#[test]
fn tls_1_2_is_a_remedy_for_rsa_pss_alone() {
    const TLS_1_2: &str = "hold the client to TLS 1.2";
    let store = token_with_pair(Kind::Rsa(2048));
    let configuration = store.faulty(store.configuration_with_pin_source());
    let refused = |options: &Options, code: &str| {
        let request = sign_request(&configuration, options, &sample(32));
        store.ask(&request).suffering(&store, &format!("C_SignInit:return={code}")).run()
    };
    let (pss, pkcs1) = (Options::pss(Hash::Sha256, -1), Options::hash(Hash::Sha256));
    refused(&pss, "0x70").fails(8, &["is refused by the token", "CKR_MECHANISM_INVALID", TLS_1_2]);
    let outcome = refused(&pkcs1, "0x70");
    outcome.fails(8, &["is refused by the token", "a key of another kind"]);
    assert!(!outcome.stderr.contains(TLS_1_2), "{}", outcome.stderr);
    for (options, code, name) in [
        (&pss, "0x68", "C_SignInit: CKR_KEY_FUNCTION_NOT_PERMITTED"),
        (&pkcs1, "0x68", "C_SignInit: CKR_KEY_FUNCTION_NOT_PERMITTED"),
        // Of OpenSC for an EC key that only derives.
        (&pkcs1, "0x63", "C_SignInit: CKR_KEY_TYPE_INCONSISTENT"),
    ] {
        let outcome = refused(options, code);
        outcome.fails(8, &["is refused by the token", name, "another key"]);
        assert!(!outcome.stderr.contains(TLS_1_2), "{}", outcome.stderr);
    }
}

#[test]
fn a_wrong_signature_does_not_leave() {
    for (kind, options, length) in [
        (Kind::P256, Options::hash(Hash::Sha256), 32),
        (Kind::Rsa(2048), Options::pss(Hash::Sha256, -1), 32),
        (Kind::Rsa(2048), Options::hash(Hash::Sha256), 32),
        (Kind::Ed25519, Options::not_hashed(), 130),
    ] {
        let store = token_with_pair(kind);
        let configuration = store.faulty(store.configuration_with_pin_source());
        let request = sign_request(&configuration, &options, &sample(length));
        store.ask(&request).suffering(&store, "C_Sign:flip").run().fails(8, &["withheld"]);
    }
}

#[test]
fn a_token_that_lacks_the_mechanism_is_told_so_before_any_pin() {
    let store = token_withholding(&[MechanismType::ECDSA], Kind::P256);
    sign(&store, "").run().fails(8, &["test token", "CKM_ECDSA"]);
    assert_eq!(store.calls("C_Login"), [] as [&str; 0]);
}

/// A list is asked for its length and for itself, which are two calls.
#[test]
fn nothing_is_asked_of_a_token_twice() {
    let store = token_with_pair(Kind::P256);
    assert_signed(sign(&store, "").run().silently());
    for (function, calls) in [
        ("C_GetFunctionList", 1),
        ("C_Initialize", 1),
        ("C_GetSlotList", 2),
        // To find it, and before the login.
        ("C_GetTokenInfo", 2),
        ("C_OpenSession", 1),
        ("C_GetSessionInfo", 0),
        ("C_GetMechanismList", 2),
        // For the certificate, for a key that is there without a login, and for one behind it.
        ("C_FindObjectsInit", 3),
        // What two of them found, and that there is nothing more.
        ("C_FindObjects", 5),
        ("C_Login", 1),
        ("C_SignInit", 1),
        ("C_Sign", 1),
    ] {
        assert_eq!(store.calls(function).len(), calls, "{function}");
    }
}

#[test]
fn a_silent_token_brings_a_notice() {
    let store = token_with_pair(Kind::P256);
    let (outcome, screen) = sign(&store, "C_Sign:delay=1500").at_terminal().finish();
    assert_signed(outcome.silently());
    assert_eq!(screen.matches("touch").count(), 1, "{screen:?}");
    assert!(screen.contains("test token"), "{screen:?}");

    let (outcome, screen) = sign(&store, "").at_terminal().finish();
    assert_signed(outcome.silently());
    assert!(screen.is_empty() || outcome.took > TOUCH_NOTICE, "{screen:?}");
}

#[test]
fn a_terminal_that_is_held_with_ctrl_s_holds_back_no_answer() {
    let store = token_with_pair(Kind::P256);
    let mut terminal = Terminal::new();
    terminal.press_ctrl('s');
    let mut terminal = terminal.start(sign(&store, "C_Sign:delay=1000"));
    assert_signed(terminal.finish().0.silently());
}

#[test]
fn a_reader_with_a_keypad_asks_for_the_pin_itself() {
    let store = token_with_pair(Kind::P256);
    let faults =
        "C_GetTokenInfo:set=CKF_PROTECTED_AUTHENTICATION_PATH,C_Login:pin-pad,C_Login:delay=500";
    let (outcome, screen) =
        store.sign_suffering(store.configuration(), faults).at_terminal().finish();
    assert_signed(&outcome);
    assert!(screen.contains("reader"), "{screen:?}");
    assert_eq!(store.calls("C_Login"), ["0x0"]);

    // Without a terminal, and beside input that may be the client's, too.
    let asked = |faults: &str| store.sign_suffering(store.configuration(), faults);
    assert_signed(&asked(faults).run());
    assert_signed(&asked(faults).piped(format!("{WRONG_PIN}\n")).run());
    // It says that the login was there before.
    assert_signed(&asked(&format!("{faults},C_Login:then-return=0x100")).run());
    for code in ["0x50", "0x1"] {
        let flag = "C_GetTokenInfo:set=CKF_PROTECTED_AUTHENTICATION_PATH";
        let cancelled = format!("{flag},C_Login:return={code}");
        asked(&cancelled).run().fails(7, &["was cancelled: C_Login: CKR_", "at the reader"]);
    }
    // A library may ask in a window of its own.
    sign(&store, "C_Login:return=0x50")
        .run()
        .fails(7, &["was cancelled: C_Login: CKR_FUNCTION_CANCELED"]);
    let refused = "C_GetTokenInfo:set=CKF_PROTECTED_AUTHENTICATION_PATH,C_Login:return=0xa0";
    asked(refused).run().fails(7, &["refused the PIN entered at the reader", "find out which PIN"]);
}

#[test]
fn a_readers_keypad_gets_the_last_try_only_after_a_persons_word() {
    let at_reader =
        |store: &Store, faults: &str| store.sign_suffering(store.configuration(), faults);
    let store = token_with_pair(Kind::P256);
    let flags = "CKF_PROTECTED_AUTHENTICATION_PATH+CKF_USER_PIN_FINAL_TRY";
    let faults = format!("C_GetTokenInfo:set={flags},C_Login:pin-pad");
    let remedy = ["one PIN try left", "type yes there", "at the reader"];
    at_reader(&store, &faults).run().fails(7, &remedy);
    let mut refused = at_reader(&store, &faults).at_terminal();
    refused.expect("last try").expect("yes").type_line("no").finish().0.fails(7, &remedy);
    assert_eq!(store.calls("C_Login"), [] as [&str; 0]);

    let locks = format!("{faults},C_Login:return=0xa0,C_GetTokenInfo#4+:set=CKF_USER_PIN_LOCKED");
    let other = token_with_pair(Kind::P256);
    let mut locked = at_reader(&other, &locks).at_terminal();
    let outcome = locked.expect("last try").expect("yes").type_line("yes").finish().0;
    outcome.fails(7, &["refused the PIN entered at the reader", "unblock it"]);
    assert!(!outcome.stderr.contains("which PIN"), "{outcome:?}");

    let another = token_with_pair(Kind::P256);
    let mut agreed = at_reader(&another, &faults).at_terminal();
    assert_signed(&agreed.expect("last try").expect("yes").type_line("yes").finish().0);
    assert_eq!(another.calls("C_Login"), ["0x0"]);
}

/// As a machine needs it at whose reader nobody sits.
#[test]
fn a_stored_pin_is_sent_although_the_reader_has_a_keypad() {
    let store = token_with_pair(Kind::P256);
    let keypad = "C_GetTokenInfo:set=CKF_PROTECTED_AUTHENTICATION_PATH";
    let (outcome, screen) = sign(&store, keypad).at_terminal().finish();
    assert_signed(&outcome);
    assert!(!screen.contains("reader"), "{screen:?}");
    let checked = check(&store, keypad).told(0);
    let accepted = "the PIN from the environment variable TOKEN_PIN was accepted";
    assert!(checked.contains(accepted), "{checked}");
    // By the same rules as elsewhere.
    let last = format!("{keypad},C_GetTokenInfo:set=CKF_USER_PIN_FINAL_TRY");
    sign(&store, &last).run().fails(7, &["has one PIN try left"]);
    for told in ["CKR_PIN_INCORRECT", "seems to have refused a PIN"] {
        sign(&store, keypad).variable("TOKEN_PIN", WRONG_PIN).run().fails(7, &[told]);
    }
    assert_eq!(store.calls("C_Login"), ["0x0", "0x0", "0xa0"]);
}

#[test]
fn a_library_that_crashes_is_named_by_every_command() {
    let store = token_with_pair(Kind::P256);
    for (fault, signal) in [
        ("C_OpenSession:crash=abort", "SIGABRT"),
        ("C_OpenSession:crash=segv", "SIGSEGV"),
        ("C_OpenSession:crash=exit", "exit"),
        ("load:crash=abort", "SIGABRT"),
    ] {
        let crashed = format!("libfault_module.so crashed the process ({signal})\nhelp: update");
        let told = [&*crashed];
        sign(&store, fault).run().fails(4, &told);
        let checked = check(&store, fault);
        assert_eq!(checked.status.code(), Some(4), "{checked:?}");
        assert!(checked.stderr.contains(&crashed), "{checked:?}");
        let listed =
            store.command(&["list", &store.faulty_module()]).suffering(&store, fault).run();
        listed.fails(4, &told);
    }
}

#[test]
fn a_fallback_that_fails_hides_no_cause() {
    let store = token_with_pair(Kind::Rsa(2048));
    let configuration = store.faulty(store.configuration_with_pin_source());
    let request = sign_request(&configuration, &Options::pss(Hash::Sha256, -1), &sample(32));
    let refused = "C_Sign#1:return=0x71,C_SignInit#2:return=0x6";
    let outcome = store.ask(&request).suffering(&store, refused).run();
    outcome.fails(8, &["is refused by the token", "C_Sign: CKR_MECHANISM_PARAM_INVALID"]);
    assert!(!outcome.stderr.contains("FUNCTION_FAILED"), "{outcome:?}");
}

/// SoftHSM isn't called for the first C_Sign, so that what C_SignInit has begun stays active; NSS does it by itself.
#[test]
fn an_operation_that_stays_active_keeps_no_other_from_the_token() {
    let store = token_with_pair(Kind::Rsa(2048));
    let configuration = store.configuration_with_pin_source();
    let options = Options::pss(Hash::Sha256, -1);
    let request = sign_request(&store.faulty(configuration), &options, &sample(32));
    let outcome = store.ask(&request).suffering(&store, "C_Sign#1:return=0x71").run();
    let scheme = Scheme::Pss { hash: Hash::Sha256, salt: 32 };
    assert_verifies(key(Kind::Rsa(2048)), scheme, &sample(32), &outcome.signature());
    assert_eq!(store.calls("C_SignInit"), ["0x0", "0x90", "0x0"]);
    assert_eq!(store.calls("C_OpenSession"), ["0x0", "0x0"]);
    // The login is the token's.
    assert_eq!(store.calls("C_Login"), ["0x0"]);
}

#[test]
fn where_no_pin_can_help_nothing_else_is_blamed() {
    let [key_object, certificate] = Object::pair(key(Kind::P256), &[1]);
    let store = token_with([key_object, certificate.private()]);
    let slot = store.tokens[0].slot;
    let change = format!("libfault_module.so --slot {slot} --login --change-pin");
    for (faults, told, remedy) in [
        ("C_GetTokenInfo:set=CKF_USER_PIN_LOCKED", "CKR_PIN_LOCKED", "unblock it"),
        ("C_GetTokenInfo:set=CKF_USER_PIN_TO_BE_CHANGED", "(CKF_USER_PIN_TO_BE_CHANGED)", &change),
    ] {
        let checked = check(&store, faults).told(7);
        assert!(checked.contains(told) && checked.contains(remedy), "{checked}");
        assert_eq!(checked.matches('✘').count(), 1, "{checked}");
        assert!(!checked.contains("no wrong PIN"), "{checked}");
        assert_eq!(store.calls("C_Login"), [] as [&str; 0]);
    }
    let expired = ["must be changed", "(C_Login: CKR_PIN_EXPIRED)", "--change-pin"];
    sign(&store, "C_Login:return=0xa3").run().fails(7, &expired);
    let none =
        ["has no user PIN yet", "CKR_USER_PIN_NOT_INITIALIZED", "--login-type so --init-pin"];
    sign(&store, "C_Login:return=0x102").run().fails(7, &none);
}

/// `check` with the pair and a stored PIN.
fn check(store: &Store, faults: &str) -> Outcome {
    store
        .command(&["check", "--object-id=1", "--pin-source=env:TOKEN_PIN"])
        .argument(&store.faulty_module())
        .argument(&format!("--slot-id={}", store.tokens[0].slot))
        .variable("TOKEN_PIN", PIN)
        .suffering(store, faults)
        .run()
}

#[test]
fn a_token_that_needs_no_login_gets_none() {
    let [key_object, certificate] = Object::pair(key(Kind::P256), &[1]);
    let store = token_with([key_object.public(), certificate]);
    let faults = "C_GetTokenInfo:clear=CKF_LOGIN_REQUIRED";
    for configuration in [store.configuration(), store.configuration_with_pin_source()] {
        assert_signed(store.sign_suffering(configuration, faults).run().silently());
    }
    assert_eq!(store.calls("C_Login"), [] as [&str; 0]);
}

/// The standard wants sixteen digits; opencryptoki gives what `asctime` has and NULs.
#[test]
fn a_clock_that_tells_no_time_keeps_nobody_from_a_token() {
    let store = token_with_pair(Kind::P256);
    let certificate = key(Kind::P256).certificate.as_slice();
    for time in ["", "________________", "20261122_040000", "2026112204"] {
        let faults = format!("C_GetTokenInfo:clock={time}");
        let outcome = store.certificate_suffering(store.configuration(), &faults).run();
        assert_eq!(outcome.silently().certificate(), certificate, "{time}");
        assert_signed(sign(&store, &faults).run().silently());
        for command in [vec!["list"], vec!["check", "--no-login", "--object-id=1"]] {
            let outcome = store
                .command(&command)
                .argument(&store.faulty_module())
                .argument(&format!("--slot-id={}", store.tokens[0].slot))
                .suffering(&store, &faults)
                .run();
            outcome.silently();
            let printed = outcome.printed();
            assert!(printed.contains("test p256"), "{time}: {printed}");
        }
    }
    // Nor what is reserved in C_GetInfo's answer.
    let outcome =
        sign(&store, "C_GetInfo:garble").variable("PKCS11_EXTERNAL_SIGNER_LOG", "info").run();
    assert!(outcome.stderr.contains("libfault_module.so: \u{fffd}"), "{}", outcome.stderr);
}

/// As in cackey, whose slots claim tokens that aren't there.
#[test]
fn a_slot_whose_token_is_not_there_is_an_empty_one() {
    let store = token_with_pair(Kind::P256);
    let absent = "C_GetTokenInfo:return=0xe0";
    let module = store.faulty_module();
    let list = store.command(&["list", &module]).suffering(&store, absent).run();
    let shown = list.silently().printed();
    assert!(shown.contains("  no token in SoftHSM slot ID"), "{shown}");
    let outcome = store.certificate_suffering(store.configuration(), absent).run();
    outcome.fails(5, &["no token with slotId", "insert the token"]);
    let by_label = store.configuration().without("slotId");
    let by_label = store.faulty(by_label.with("tokenLabel", "test token"));
    let outcome = store.certificate_with(&by_label).suffering(&store, absent).run();
    outcome.fails(5, &["no token with tokenLabel \"test token\"", "insert the token"]);
}

/// Two tokens of one OpenPGP card, or of one TPM.
#[test]
fn tokens_of_one_serial_number_are_told_apart_by_what_differs() {
    let store = Store::new([
        blueprint("work", Object::pair(key(Kind::P256), &[1])),
        blueprint("home", Object::pair(key(Kind::Ed25519), &[1])),
    ]);
    let faults = "C_GetTokenInfo:serial=0000000000000000";
    let by_serial = store.configuration().without("slotId");
    let by_serial = store.faulty(by_serial.with("tokenSerial", "0000000000000000"));
    let ask = |configuration: &Configuration| {
        store.certificate_with(configuration).suffering(&store, faults).run()
    };
    let both = ["help: name one with tokenSerial", "\"work\"", "\"home\""];
    ask(&by_serial).fails(5, &both);
    let by_both = by_serial.with("tokenLabel", "home");
    assert_eq!(ask(&by_both).silently().certificate(), key(Kind::Ed25519).certificate);
}

#[test]
fn tokens_of_one_serial_number_and_label_are_told_apart_by_their_slots() {
    let pair = || Object::pair(key(Kind::P256), &[1]);
    let store = Store::new([blueprint("twin", pair()), blueprint("twin", pair())]);
    let faults = "C_GetTokenInfo:serial=";
    let twins = store.configuration().without("slotId");
    let outcome = store.certificate_suffering(twins.with("tokenLabel", "twin"), faults).run();
    outcome.fails(5, &["tokenLabel (--token-label) or slotId", "(no serial, slotId"]);

    let module = store.faulty_module();
    let command = |arguments: &[&str]| {
        store.command(arguments).argument(&module).suffering(&store, faults).run()
    };
    let document = command(&["list", "--json"]).json();
    let tokens = document["libraries"][0]["tokens"].as_array().unwrap();
    assert_eq!(tokens.len(), 2);
    for token in tokens {
        assert_eq!(
            (&token["needsLabel"], &token["needsSlotId"]),
            (&Value::Bool(false), &Value::Bool(true))
        );
        let slot = token["slotId"].to_string();
        let uri = token["keys"][0]["uri"].as_str().unwrap();
        assert!(uri.contains(&format!(";slot-id={slot}")), "{uri}");
        let entry = command(&["kubeconfig", &format!("--uri={uri}")]).silently().printed();
        assert!(entry.contains(&format!("--slot-id={slot}")), "{entry}");
    }
    // What there is to name is typed as it is printed.
    let enroll = ["enroll", "--user=jane", "--csr=-", "--pin-source=env:TOKEN_PIN"];
    for (arguments, code, what) in
        [(&["kubeconfig"][..], 6, "2 keys match"), (&enroll, 5, "2 tokens match")]
    {
        let outcome = command(arguments);
        outcome.fails(code, &[what, "slot-id="]);
        let line = outcome.stderr.lines().find(|it| it.starts_with("  --")).unwrap();
        let script = format!("\"$SIGNER\" {} {line}", arguments.join(" "));
        let typed = store.with_pin(&[]).within("sh", &script).suffering(&store, faults).run();
        assert!(typed.status.success(), "{script}: {typed:?}");
    }
}

/// The token doesn't ask for a login, but its keys are hidden before one.
#[test]
fn a_key_that_is_hidden_on_a_token_that_wants_no_login_is_looked_for_after_one() {
    let store = token_with_pair(Kind::P256);
    let faults = "C_GetTokenInfo:clear=CKF_LOGIN_REQUIRED";
    store
        .sign_suffering(store.configuration(), faults)
        .run()
        .fails(6, &["no private key with objectId \"1\"", "if it wants no login"]);
    assert_eq!(store.calls("C_Login"), [] as [&str; 0]);
    assert_signed(sign(&store, faults).run().silently());
    assert_eq!(store.calls("C_Login"), ["0x0"]);
    // Without a PIN there can't be hidden ones. Otherwise it is the login that has failed.
    for (code, exit_code, told) in [("0x102", 6, "no private key"), ("0x30", 7, "C_Login")] {
        sign(&store, &format!("{faults},C_Login:return={code}")).run().fails(exit_code, &[told]);
    }
}

#[test]
fn a_key_that_is_no_private_object_costs_no_pin() {
    let [key_object, certificate] = Object::pair(key(Kind::P256), &[1]);
    let store = token_with([key_object.public(), certificate]);
    for configuration in [store.configuration(), store.configuration_with_pin_source()] {
        assert_signed(store.sign_suffering(configuration, "").run().silently());
    }
    assert_eq!(store.calls("C_Login"), [] as [&str; 0]);
    // A token that wants one for it all the same gets it.
    let wanted = "C_SignInit#1:return=0x101";
    store.sign_suffering(store.configuration(), wanted).run().fails(7, &["PIN"]);
    assert_signed(&sign(&store, wanted).run());
    assert_eq!(store.calls("C_Login"), ["0x0"]);
}

#[test]
fn a_locked_pin_or_one_to_be_changed_is_not_tried() {
    let store = token_with_pair(Kind::P256);
    for flag in ["CKF_USER_PIN_LOCKED", "CKF_USER_PIN_TO_BE_CHANGED"] {
        let faults = format!("C_GetTokenInfo:set={flag}");
        sign(&store, &faults).run().fails(7, &["test token"]);
        let (outcome, screen) =
            store.sign_suffering(store.configuration(), &faults).at_terminal().finish();
        outcome.fails(7, &["test token"]);
        assert_eq!(screen, "");
    }
    assert_eq!(store.calls("C_Login"), [] as [&str; 0]);
}

#[test]
fn the_final_try_is_not_made_with_a_pin_that_nobody_typed() {
    let store = token_with_pair(Kind::P256);
    let faults = "C_GetTokenInfo:set=CKF_USER_PIN_FINAL_TRY";
    for configuration in [
        store.configuration_with_pin(),
        store.configuration_with_pin_source(),
        store.configuration().with("pinSource", "stdin"),
    ] {
        let run = store.sign_suffering(configuration, faults).piped(format!("{PIN}\n")).run();
        run.fails(7, &["one PIN try left", "test token"]);
    }
    assert_eq!(store.calls("C_Login"), [] as [&str; 0]);
}

#[test]
fn the_final_try_wants_a_persons_word() {
    let store = token_with_pair(Kind::P256);
    let faults = "C_GetTokenInfo:set=CKF_USER_PIN_FINAL_TRY";
    let begin = || {
        let mut terminal = store.sign_suffering(store.configuration(), faults).at_terminal();
        terminal.expect("last try").expect("yes");
        terminal
    };
    for word in ["no", "", "y"] {
        let mut terminal = begin();
        terminal.type_line(word).finish().0.fails(7, &["test token"]);
    }
    assert_eq!(store.calls("C_Login"), [] as [&str; 0]);

    let mut terminal = begin();
    assert_signed(&terminal.type_line("yes").finish_with_pin());
    assert_eq!(store.calls("C_Login"), ["0x0"]);
}

#[test]
fn few_tries_left_are_told_and_the_pin_is_asked() {
    let store = token_with_pair(Kind::P256);
    let faults = "C_GetTokenInfo:set=CKF_USER_PIN_COUNT_LOW";
    let mut terminal = store.sign_suffering(store.configuration(), faults).at_terminal();
    assert_signed(&terminal.expect("counted a wrong PIN").finish_with_pin());
}

/// Takes a minute, because that is what a library is given.
#[test]
fn a_library_that_hangs_is_named_with_what_it_was_doing() {
    // Each has a token and with it a lock of its own, so that none waits for another.
    let running: Vec<_> = [
        ("load", "loading it"),
        ("C_Initialize", "C_Initialize"),
        ("C_GetSlotList", "C_GetSlotList"),
        ("C_OpenSession", "C_OpenSession"),
        ("C_FindObjects", "C_FindObjects"),
        ("C_Login", "C_Login"),
        ("C_Sign", "C_Sign"),
    ]
    .into_iter()
    .map(|(place, text)| {
        let store = token_with_pair(Kind::P256);
        let run = sign(&store, &format!("{place}:hang")).start(None);
        (run, text, store)
    })
    .collect();
    for (run, text, _store) in running {
        let outcome = run.finish();
        outcome.fails(4, &["libfault_module.so hangs", text, "60 s"]);
        assert!(outcome.took.as_secs() >= 58, "it took {:?}", outcome.took);
    }
}

/// Takes a minute, because that is what a library is given.
#[test]
fn a_process_that_was_stopped_has_not_hung() {
    let store = token_with_pair(Kind::P256);
    let run = sign(&store, "C_Login:stop").start(None);
    wait_until_stopped(run.pid());
    thread::sleep(Duration::from_secs(62));
    kill_process(run.pid(), Signal::CONT).unwrap();
    assert_signed(&run.finish());
}
