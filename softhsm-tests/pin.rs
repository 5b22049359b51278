//! Where a stored PIN comes from, how often it is sent, and what becomes of standard input, which belongs to the user.

use rustix::fs::Gid;

use crate::fixture::*;

const MANIFEST: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: piped\n";

fn pin_file(store: &Store, content: &str, mode: u32) -> PathBuf {
    let path = store.path("pin");
    write_file(&path, content, mode);
    path
}

#[test]
fn a_pin_in_the_configuration_works_with_one_warning() {
    let store = token_with_pair(Kind::P256);
    let outcome = store.sign_with(&store.configuration_with_pin()).run();
    assert_signed(&outcome);
    let warnings = outcome.stderr.matches("pkcs11-external-signer: warning: ").count();
    assert_eq!(warnings, 1, "{}", outcome.stderr);
    assert!(outcome.stderr.contains("pinSource"), "{}", outcome.stderr);

    // A request that doesn't use it is no occasion.
    let certificate = store.certificate_suffering(store.configuration_with_pin(), "").run();
    assert_eq!(certificate.silently().certificate(), key(Kind::P256).certificate);
    assert_eq!(store.calls("C_Login"), [""; 0]);
}

#[test]
fn a_pin_in_a_file_of_ones_own_works() {
    let store = token_with_pair(Kind::P256);
    for content in
        [PIN.to_owned(), format!("{PIN}\n"), format!("{PIN}\r\n"), format!("{PIN}\nmore\n")]
    {
        for mode in [0o600, 0o400] {
            let path = pin_file(&store, &content, mode);
            let source = format!("file:{}", path.display());
            let configuration = store.configuration().with("pinSource", &source);
            assert_signed(store.sign_with(&configuration).run().silently());
            fs::remove_file(path).unwrap();
        }
    }
}

#[test]
fn a_pin_file_that_others_can_read_is_refused() {
    let store = token_with_pair(Kind::P256);
    for mode in [0o644, 0o640, 0o604, 0o660, 0o620] {
        let path = pin_file(&store, PIN, mode);
        let source = format!("file:{}", path.display());
        let configuration = store.configuration().with("pinSource", &source);
        store.sign_with(&configuration).run().fails(7, &[path.to_str().unwrap(), "600"]);
    }
}

/// systemd's are root's and its group's, with an access list whose mask shows as the group's mode.
#[test]
fn a_credential_of_systemd_is_no_file_that_others_can_read() {
    needs_isolation!();
    let store = token_with_pair(Kind::P256);
    let path = pin_file(&store, PIN, 0o440);
    let source = format!("file:{}", path.display());
    let configuration = store.configuration().with("pinSource", &source);
    let sign = || store.sign_with(&configuration).run();
    assert_signed(sign().silently());
    rustix::fs::chown(&path, None, Some(Gid::from_raw(1))).unwrap();
    sign().fails(7, &[path.to_str().unwrap(), "0440"]);
}

#[test]
fn a_pin_file_that_holds_no_pin_is_refused() {
    let store = token_with_pair(Kind::P256);
    for content in ["", "\n", "\r\n1234", "12\x0734\n", &"9".repeat(300)] {
        let path = pin_file(&store, content, 0o600);
        let source = format!("file:{}", path.display());
        let configuration = store.configuration().with("pinSource", &source);
        store.sign_with(&configuration).run().fails(7, &[path.to_str().unwrap()]);
    }
    let configuration = store.configuration().with("pinSource", "file:/nowhere/at/all");
    store.sign_with(&configuration).run().fails(7, &["/nowhere/at/all"]);
}

/// A secret that a file with a line ending was read into is none: sent as it is, it would cost a try.
#[test]
fn a_variable_that_holds_no_pin_is_refused_unsent() {
    let store = token_with_pair(Kind::P256);
    let configuration = store.faulty(store.configuration_with_pin_source());
    let sign = || store.sign_with(&configuration).suffering(&store, "");
    sign().without_variable("TOKEN_PIN").run().fails(7, &["TOKEN_PIN is not set"]);
    for ending in ["\n", "\r\n", "\r", "\0"] {
        let pin = format!("{PIN}{ending}");
        let configuration = configuration.clone().with("pin", &pin);
        let configured = store.sign_with(&configuration).suffering(&store, "");
        configured.run().fails(3, &["pin holds", "on one line"]);
    }
    for value in [
        String::new(),
        format!("{PIN}\n"),
        format!("{PIN}\r\n"),
        format!("{PIN}\r"),
        "9".repeat(300),
    ] {
        sign().variable("TOKEN_PIN", &value).run().fails(7, &["TOKEN_PIN holds no PIN"]);
    }
    assert_eq!(store.calls("C_Login"), [] as [&str; 0]);
}

#[test]
fn a_pin_asked_from_standard_input_is_its_first_line_and_no_more() {
    let store = token_with_pair(Kind::P256);
    let configuration = store.configuration().with("pinSource", "stdin");
    for (input, left) in [
        (format!("{PIN}\n{MANIFEST}"), MANIFEST),
        (format!("{PIN}\r\n{MANIFEST}"), MANIFEST),
        (format!("{PIN}\n"), ""),
        (PIN.to_owned(), ""),
    ] {
        let outcome = store.sign_with(&configuration).piped(&input).before_another_reader().run();
        assert_signed(outcome.silently());
        assert_eq!(String::from_utf8(outcome.remainder.unwrap()).unwrap(), left);

        let mut file = tempfile::tempfile().unwrap();
        file.write_all(input.as_bytes()).unwrap();
        let outcome = store
            .sign_with(&configuration)
            .input_file(from_the_start(file))
            .before_another_reader()
            .run();
        assert_signed(outcome.silently());
        assert_eq!(String::from_utf8(outcome.remainder.unwrap()).unwrap(), left);
    }
    store.sign_with(&configuration).run().fails(7, &["standard input"]);
}

#[test]
fn without_a_terminal_input_that_was_not_announced_is_left_to_the_next_reader() {
    let store = token_with_pair(Kind::P256);
    for input in [MANIFEST, &format!("{PIN}\n"), "\n"] {
        let outcome =
            store.sign_with(&store.configuration()).piped(input).before_another_reader().run();
        outcome.fails(7, &["pinSource"]);
        assert_eq!(outcome.remainder.as_deref(), Some(input.as_bytes()));
    }
}

#[test]
fn input_is_left_alone_where_another_source_was_named() {
    let store = token_with_pair(Kind::P256);
    let single_line = format!("{WRONG_PIN}\n");
    let configuration = store.configuration_with_pin_source();
    for input in [MANIFEST, &single_line] {
        let outcome = store.sign_with(&configuration).piped(input).before_another_reader().run();
        assert_signed(outcome.silently());
        assert_eq!(outcome.remainder.unwrap(), input.as_bytes());
    }
}

#[test]
fn a_wrong_pin_that_nobody_typed_is_sent_once() {
    for (name, value) in [
        ("pin", WRONG_PIN),
        ("pinSource", "env:TOKEN_PIN"),
        ("pinSource", "file:"),
        ("pinSource", "stdin"),
    ] {
        let store = token_with_pair(Kind::P256);
        let configuration = store.faulty(store.configuration());
        let value = match value {
            "file:" => format!("file:{}", pin_file(&store, WRONG_PIN, 0o600).display()),
            other => other.to_owned(),
        };
        store
            .sign_with(&configuration.clone().with(name, &value))
            .suffering(&store, "")
            .variable("TOKEN_PIN", WRONG_PIN)
            .piped(format!("{WRONG_PIN}\n{PIN}\n"))
            .run()
            .fails(7, &["test token", "CKR_PIN_INCORRECT"]);
        assert_eq!(store.calls("C_Login"), ["0xa0"]);
    }
}

#[test]
fn a_key_that_wants_its_pin_each_time_gets_it_right_before_it_signs() {
    let store = token_asking_each_time(Kind::P256);
    let configuration = store.faulty(store.configuration_with_pin_source());
    assert_signed(store.sign_with(&configuration).suffering(&store, "").run().silently());
    let history = store.history();
    let place = |call: &str| history.iter().rposition(|made| made == call).unwrap();
    // Some cards take any call between the two for the end of the authentication.
    assert_eq!(place("C_Login 0x0") + 1, place("C_Sign 0x0"));
    assert!(place("C_SignInit 0x0") < place("C_Login 0x0"));
    assert_eq!(store.calls("C_Login").len(), 2);
}

#[test]
fn every_kind_of_key_can_want_its_pin_each_time() {
    for (kind, options, scheme, length) in [
        (
            Kind::Rsa(2048),
            Options::pss(Hash::Sha256, -1),
            Scheme::Pss { hash: Hash::Sha256, salt: 32 },
            32,
        ),
        (Kind::Rsa(2048), Options::hash(Hash::Sha256), Scheme::Pkcs1(Hash::Sha256), 32),
        (Kind::P384, Options::hash(Hash::Sha384), Scheme::Ecdsa, 48),
        (Kind::Ed25519, Options::not_hashed(), Scheme::Ed25519, 130),
    ] {
        let store = token_asking_each_time(kind);
        let signature = store.sign(&options, &sample(length)).run().silently().signature();
        assert_verifies(key(kind), scheme, &sample(length), &signature);
    }
}

fn from_the_start(mut file: File) -> File {
    std::io::Seek::rewind(&mut file).unwrap();
    file
}

/// Some cards take any command for the end of the authentication.
#[test]
fn nothing_comes_between_the_pin_for_a_signature_and_the_signature() {
    let store = token_asking_each_time(Kind::P256);
    let configuration = store.faulty(store.configuration());
    let plan = "C_GetTokenInfo:set=CKF_USER_PIN_COUNT_LOW";
    assert_signed(
        &store.sign_with(&configuration).suffering(&store, plan).at_terminal().finish_with_pin(),
    );
    let history = store.history();
    let after_login = history.rsplit(|call| call.starts_with("C_Login ")).next();
    assert_eq!(after_login.unwrap()[0], "C_Sign 0x0", "{history:#?}");
}

#[test]
fn a_stored_pin_that_was_right_is_not_sent_as_the_final_try() {
    let store = token_asking_each_time(Kind::P256);
    let configuration = store.faulty(store.configuration_with_pin_source());
    // Somebody else tries wrong PINs between the login and the signature.
    let plan = "C_GetTokenInfo#3:set=CKF_USER_PIN_FINAL_TRY";
    let outcome =
        store.sign_with(&configuration).variable("TOKEN_PIN", PIN).suffering(&store, plan).run();
    outcome.fails(7, &["has one PIN try left", "was not sent"]);
    assert_eq!(store.calls("C_Login"), ["0x0"]);
}

/// Somebody else tries a wrong PIN between the login and the signature. A module that was logged in already
/// hasn't looked at ours.
#[test]
fn while_the_token_counts_wrong_pins_a_stored_one_is_sent_again_only_if_it_was_right() {
    let store = token_asking_each_time(Kind::P256);
    let configuration = store.faulty(store.configuration_with_pin_source());
    let counting = "C_GetTokenInfo#3+:set=CKF_USER_PIN_COUNT_LOW";
    let sign = |plan: &str| {
        store.sign_with(&configuration).variable("TOKEN_PIN", PIN).suffering(&store, plan).run()
    };
    assert_signed(&sign(counting));
    assert_eq!(store.calls("C_Login"), ["0x0"; 2]);
    let outcome = sign(&format!("C_Login#1:then-return=0x100,{counting}"));
    outcome.fails(7, &["seems to have refused a PIN", "was not sent"]);
    assert_eq!(store.calls("C_Login")[2..], ["0x100"]);
}

#[test]
fn a_token_that_is_pulled_before_its_right_pin_is_sent_again_has_not_refused_it() {
    let store = token_asking_each_time(Kind::P256);
    let configuration = store.faulty(store.configuration_with_pin_source());
    let signing = || store.sign_with(&configuration).variable("TOKEN_PIN", PIN);
    let removed = "C_Login#2:return=0xe0";
    signing().suffering(&store, removed).run().fails(5, &["is gone", "CKR_TOKEN_NOT_PRESENT"]);
    assert_signed(signing().suffering(&store, "").run().silently());
}

#[test]
fn a_typed_pin_that_was_right_is_sent_as_the_final_try_only_after_a_word() {
    let store = token_asking_each_time(Kind::P256);
    let configuration = store.faulty(store.configuration());
    let plan = "C_GetTokenInfo#4:set=CKF_USER_PIN_FINAL_TRY";
    let begin = || {
        let mut terminal = store.sign_with(&configuration).suffering(&store, plan).at_terminal();
        terminal.expect_prompt().type_line(PIN);
        terminal.expect("last try").expect("yes");
        terminal
    };
    let mut terminal = begin();
    terminal.type_line("no").finish().0.fails(7, &["has one PIN try left"]);
    assert_eq!(store.calls("C_Login"), ["0x0"]);

    let mut terminal = begin();
    assert_signed(&terminal.type_line("yes").finish_with_pin());
    assert_eq!(store.calls("C_Login"), ["0x0"; 3]);
}

/// Whoever has typed it sees what becomes of it, unlike one that is stored.
#[test]
fn a_typed_pin_that_was_not_looked_at_is_sent_although_the_token_has_counted_a_wrong_one() {
    let store = token_asking_each_time(Kind::P256);
    let configuration = store.faulty(store.configuration());
    let plan = "C_Login#1:then-return=0x100,C_GetTokenInfo:set=CKF_USER_PIN_COUNT_LOW";
    let signing = store.sign_with(&configuration).suffering(&store, plan);
    assert_signed(&signing.at_terminal().finish_with_pin());
    assert_eq!(store.calls("C_Login"), ["0x100", "0x0"]);
}
