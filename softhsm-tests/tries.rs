//! PIN tries over many processes, counted at the library: what one process was refused, the others
//! don't try; and prompts, one at a time.

use rustix::fs::{FlockOperation, flock};

use crate::fixture::*;

/// A token that reports no wrong PINs, as some modules don't.
const FORGETFUL: &str = "C_GetTokenInfo:clear=CKF_USER_PIN_COUNT_LOW";

fn sign(store: &Store, configuration: &Configuration, faults: &str) -> Invocation {
    store.sign_with(configuration).suffering(store, faults)
}

/// The configuration through the library that keeps a record.
fn recorded(store: &Store) -> Configuration {
    store.faulty(store.configuration())
}

/// Where it is remembered what tokens have refused.
fn state(store: &Store) -> PathBuf {
    store.path("state")
}

/// The token's ledger, where it stands that it has refused a PIN.
fn ledger(store: &Store) -> Option<PathBuf> {
    fs::read_dir(state(store))
        .ok()?
        .flatten()
        .map(|entry| entry.path())
        .find(|path| path.extension().is_some_and(|it| it == "ledger"))
}

/// Its lines, without the first, which is the number of the process that had it last.
fn remembered(store: &Store) -> String {
    let text = ledger(store).map(|path| fs::read_to_string(path).unwrap());
    let lines = text.iter().flat_map(|text| text.lines().skip(1));
    lines.map(|line| format!("{line}\n")).collect()
}

#[test]
fn a_stored_pin_that_was_refused_is_sent_by_no_other_process() {
    for faults in ["", FORGETFUL] {
        let store = token_with_pair(Kind::P256);
        let wrong = recorded(&store).with("pin", WRONG_PIN);
        let running: Vec<Running> =
            (0..8).map(|_| sign(&store, &wrong, faults).start(None)).collect();
        let texts: Vec<String> = running
            .into_iter()
            .map(|run| run.finish().fails(7, &["test token"]).stderr.clone())
            .collect();
        let count = |text: &str| texts.iter().filter(|it| it.contains(text)).count();
        assert_eq!(count("CKR_PIN_INCORRECT"), 1, "{texts:#?}");
        assert_eq!(count("seems to have refused a PIN"), 7, "{texts:#?}");
        assert_eq!(store.calls("C_Login"), ["0xa0"]);

        // Later ones don't either, wherever they have it from.
        sign(&store, &wrong, faults)
            .run()
            .fails(7, &["seems to have refused a PIN", "pin in the configuration was not"]);
        let from_variable = recorded(&store).with("pinSource", "env:TOKEN_PIN");
        sign(&store, &from_variable, faults)
            .variable("TOKEN_PIN", WRONG_PIN)
            .run()
            .fails(7, &["--despite-refusal", "TOKEN_PIN was not sent"]);
        assert_eq!(store.calls("C_Login"), ["0xa0"]);

        // A person clears it.
        assert_signed(&sign(&store, &recorded(&store), faults).at_terminal().finish_with_pin());
        assert_signed(&sign(&store, &from_variable, faults).run());
        assert_eq!(store.calls("C_Login"), ["0xa0", "0x0", "0x0"]);
    }
}

/// Wherever the PIN comes from: whether it is another one by now is not known.
#[test]
fn a_stored_pin_that_was_corrected_waits_for_a_login() {
    for faults in ["", FORGETFUL] {
        let store = cluster().token(Kind::P256, JANE);
        let path = store.path("pin");
        let configuration = recorded(&store).with("pinSource", &format!("file:{}", path.display()));
        let with = |pin: &str| {
            // Some services write their secrets anew at each start.
            let _ = fs::remove_file(&path);
            write_file(&path, pin, 0o600);
            sign(&store, &configuration, faults).run()
        };
        for pin in [WRONG_PIN, WRONG_PIN, "wrong-2", PIN] {
            with(pin).fails(7, &["refused"]);
        }
        assert_eq!(store.calls("C_Login"), ["0xa0"]);
        let check = cluster().command(&store, &configuration, "check");
        check.arguments(&["--despite-refusal"]).suffering(&store, faults).run().succeeded();
        assert_signed(&with(PIN));
    }
}

#[test]
fn no_variable_gives_a_stored_pin_another_try() {
    needs_isolation!();
    let store = token_with_pair(Kind::P256);
    let wrong = recorded(&store).with("pin", WRONG_PIN);
    for number in 0..5 {
        let place = store.path(format!("place-{number}"));
        fs::create_dir(&place).unwrap();
        fs::set_permissions(&place, fs::Permissions::from_mode(0o700)).unwrap();
        let request = sign(&store, &wrong, FORGETFUL)
            .variable("XDG_RUNTIME_DIR", &place)
            .variable("XDG_STATE_HOME", &place)
            .variable("HOME", &place);
        request.run().fails(7, &["refused"]);
    }
    sign(&store, &wrong, FORGETFUL)
        .without_variable("XDG_RUNTIME_DIR")
        .run()
        .fails(7, &["seems to have refused a PIN"]);
    // A session that is over takes nothing of it along.
    fs::remove_dir_all(store.path("runtime")).unwrap();
    sign(&store, &wrong, FORGETFUL).run().fails(7, &["seems to have refused a PIN"]);
    assert_eq!(store.calls("C_Login"), ["0xa0"]);
}

/// A client that kills at once. It may have had the right PIN.
#[test]
fn a_login_that_is_killed_at_once_is_counted() {
    needs_isolation!();
    let store = token_with_pair(Kind::P256);
    let stored = recorded(&store).with("pinSource", "env:TOKEN_PIN");
    let run = sign(&store, &stored, "C_Login:stop").start(None);
    wait_until_stopped(run.pid());
    assert_eq!(remembered(&store).matches("PIN sent").count(), 1);
    kill_process(run.pid(), Signal::KILL).unwrap();
    run.finish();
    for _ in 0..3 {
        sign(&store, &stored, "").run().fails(7, &["was not sent"]);
    }
    assert_eq!(remembered(&store).matches("PIN sent").count(), 1);
    // Until a person logs in.
    assert_signed(&sign(&store, &recorded(&store), "").at_terminal().finish_with_pin());
    assert_signed(&sign(&store, &stored, "").run());
}

/// As an OpenPGP card shows itself. Their PIN may be one or two.
#[test]
fn tokens_with_one_serial_number_count_together() {
    let store = Store::new([
        blueprint("one", Object::pair(key(Kind::P256), &[1])),
        blueprint("two", Object::pair(key(Kind::P256), &[1])),
    ]);
    let one_card = format!("{FORGETFUL},C_GetTokenInfo:serial=0000000012345678");
    let of = |label: &str| recorded(&store).without("slotId").with("tokenLabel", label);
    let ask = |label: &str, pin: &str| sign(&store, &of(label).with("pin", pin), &one_card).run();
    let log_in = |label: &str| {
        assert_signed(&sign(&store, &of(label), &one_card).at_terminal().finish_with_pin());
    };
    ask("one", WRONG_PIN).fails(7, &["CKR_PIN_INCORRECT"]);
    ask("two", WRONG_PIN).fails(7, &["was not sent"]);
    // A login ends that for its own token, as the help says, and for no other.
    log_in("two");
    assert_signed(&ask("two", PIN));
    ask("one", WRONG_PIN).fails(7, &["was not sent"]);
    assert_signed(&ask("two", PIN));
    ask("two", WRONG_PIN).fails(7, &["CKR_PIN_INCORRECT"]);
    ask("two", WRONG_PIN).fails(7, &["was not sent"]);
    log_in("one");
    assert_signed(&ask("one", PIN));
    ask("two", WRONG_PIN).fails(7, &["was not sent"]);
    log_in("two");
    assert_eq!(remembered(&store), "");
}

#[test]
fn a_refusal_counts_whatever_has_become_of_its_place() {
    needs_isolation!();
    let open_to_others = |store: &Store, mode| {
        fs::set_permissions(state(store), fs::Permissions::from_mode(mode)).unwrap();
    };
    let changes: [&dyn Fn(&Store); 3] = [
        &|store| open_to_others(store, 0o711),
        &|store| open_to_others(store, 0o777),
        // A previous release put it here.
        &|store| {
            let ledger = ledger(store).unwrap();
            let name = ledger.file_name().unwrap().to_owned();
            let locks = store.path("runtime/pkcs11-external-signer");
            fs::create_dir(&locks).unwrap();
            set_mode(&locks, 0o700);
            let earlier = locks.join(name).with_extension("refused");
            fs::write(earlier, "token \"test token\" refused a PIN at 1795500000\n").unwrap();
            fs::remove_file(ledger).unwrap();
        },
    ];
    // Without a serial number its name is the same in all releases.
    let faults = format!("{FORGETFUL},C_GetTokenInfo:serial=0000000000000000");
    for (number, change) in changes.into_iter().enumerate() {
        let store = token_with_pair(Kind::P256);
        let stored = |pin| sign(&store, &recorded(&store).with("pin", pin), &faults);
        stored(WRONG_PIN).run().fails(7, &["CKR_PIN_INCORRECT"]);
        // To prepare one sets the modes of the places back.
        let (again, third) = (stored(WRONG_PIN), stored(WRONG_PIN));
        let (person, last) = (sign(&store, &recorded(&store), &faults), stored(PIN));
        change(&store);
        for stored in [again, third] {
            stored.run().fails(7, &["seems to have refused a PIN"]);
        }
        assert_signed(&person.at_terminal().finish_with_pin());
        assert_signed(&last.run());
        let calls = store.calls("C_Login");
        assert_eq!(calls, ["0xa0", "0x0", "0x0"], "{number}");
    }
}

/// What an older or a later release has written, and this one under another clock.
#[test]
fn a_record_of_another_release_or_of_another_time_holds_stored_pins_back() {
    needs_isolation!();
    let ahead = |store: &Store| {
        let line = remembered(store);
        let (what, rest) = line.trim_end().split_once(" at ").unwrap();
        let (_, end) = rest.split_once(' ').unwrap();
        format!("{what} at 4102444800 {end}")
    };
    let unknown: [fn(&Store) -> String; 3] = [
        |_: &Store| "PIN refused by token \"test token\" at 1700000000".to_owned(),
        |_: &Store| "{\"refused\":2}".to_owned(),
        ahead,
    ];
    for write in unknown {
        let store = token_with_pair(Kind::P256);
        let stored = recorded(&store).with("pin", WRONG_PIN);
        sign(&store, &stored, FORGETFUL).run().fails(7, &["CKR_PIN_INCORRECT"]);
        let ledger = ledger(&store).unwrap();
        let text = fs::read_to_string(&ledger).unwrap();
        fs::write(&ledger, format!("{}{}\n", &text[..11], write(&store))).unwrap();
        sign(&store, &stored, FORGETFUL).run().fails(7, &["seems to have refused a PIN"]);
        assert_signed(&sign(&store, &recorded(&store), FORGETFUL).at_terminal().finish_with_pin());
        assert_signed(&sign(&store, &recorded(&store).with("pin", PIN), FORGETFUL).run());
        assert_eq!(store.calls("C_Login"), ["0xa0", "0x0", "0x0"]);
    }
}

#[test]
fn a_token_that_was_put_in_the_place_of_another_gets_no_pin() {
    let store = token_with_pair(Kind::P256);
    let stored = recorded(&store).with("pinSource", "env:TOKEN_PIN");
    let swapped = "C_GetTokenInfo#2+:serial=0000000000000815";
    sign(&store, &stored, swapped).run().fails(5, &["test token", "another token is in its place"]);
    assert_eq!(store.calls("C_Login"), [] as [&str; 0]);

    // During a run, whose key wants its PIN again for the signature.
    let store = cluster().token_asking_each_time(JANE);
    let stored = recorded(&store)
        .with("pinSource", "env:TOKEN_PIN")
        .with("tokenSerial", &store.tokens[0].serial);
    let run = cluster().run(&store, &stored, &["kubectl", "auth", "whoami"]);
    let outcome = run.suffering(&store, "C_GetTokenInfo#5+:serial=0000000000000815").run().failed();
    assert!(outcome.stderr.contains("0000000000000815"), "{outcome:?}");
    assert_eq!(store.calls("C_Login"), ["0x0"]);
}

#[test]
fn a_login_that_ends_in_doubt_is_counted() {
    // Codes that may mean anything, and those of a token that is gone: a card may have counted by
    // then, and some libraries say so of a card that is there.
    for (code, status) in
        [("0x6", 7), ("0x30", 7), ("0x32", 5), ("0xe0", 5), ("0xe1", 5), ("0xb0", 7), ("0xb3", 7)]
    {
        let store = token_with_pair(Kind::P256);
        let stored = recorded(&store).with("pinSource", "env:TOKEN_PIN");
        let faults = format!("C_Login:return={code}");
        sign(&store, &stored, &faults).run().fails(status, &["C_Login: CKR_"]);
        sign(&store, &stored, "").run().fails(7, &["was not sent"]);
        assert_eq!(store.calls("C_Login"), [code]);
    }
}

/// The PIN may have been changed since the token accepted it.
#[test]
fn a_login_that_ends_in_doubt_is_counted_for_a_pin_that_was_right_too() {
    let store = cluster().token_asking_each_time(JANE);
    let stored = recorded(&store).with("pinSource", "env:TOKEN_PIN");
    let script = "kubectl auth whoami; kubectl auth whoami";
    let run = cluster().run(&store, &stored, &["sh", "-c", script]);
    let outcome = run.suffering(&store, "C_Login#2+:return=0x5").run();
    assert_eq!(store.calls("C_Login"), ["0x0", "0x5"]);
    outcome.says(&["was not sent"]);
}

#[test]
fn others_may_use_up_the_tries_while_somebody_types() {
    let store = token_with_pair(Kind::P256);
    let faults = "C_GetTokenInfo#3:set=CKF_USER_PIN_FINAL_TRY,\
                  C_GetTokenInfo#4:set=CKF_USER_PIN_FINAL_TRY";
    let mut terminal = sign(&store, &recorded(&store), faults).at_terminal();
    terminal.expect_prompt().type_line(WRONG_PIN);
    terminal.expect("last try").expect("yes").type_line("yes");
    assert_signed(&terminal.finish_with_pin());
    assert_eq!(store.calls("C_Login"), ["0x0"]);
}

#[test]
fn others_may_lock_the_pin_while_somebody_types() {
    let store = token_with_pair(Kind::P256);
    let faults = "C_GetTokenInfo#3+:set=CKF_USER_PIN_LOCKED";
    sign(&store, &recorded(&store), faults).at_terminal().finish_with_pin().fails(7, &["locked"]);
    assert_eq!(store.calls("C_Login"), [] as [&str; 0]);
}

/// Through whichever library: each has a lock of its own, and so has the token. Also while its reader asks.
#[test]
fn no_other_pin_is_sent_while_the_token_has_one() {
    needs_isolation!();
    let store = token_with_pair(Kind::P256);
    let keypad = "C_GetTokenInfo:set=CKF_PROTECTED_AUTHENTICATION_PATH,C_Login:pin-pad";
    let stored = recorded(&store).with("pinSource", "env:TOKEN_PIN");
    for (configuration, faults) in [(stored, ""), (recorded(&store), keypad)] {
        let first = sign(&store, &configuration, &format!("{faults},C_Login:stop")).start(None);
        wait_until_stopped(first.pid());
        let ledger = ledger(&store).unwrap();
        let file = File::open(&ledger).unwrap();
        flock(file, FlockOperation::NonBlockingLockExclusive).expect_err("nobody has it");
        // The record of the first one's calls is no record of this one's.
        let other_library = store.configuration_with_pin_source();
        let second = locking(&store, sign(&store, &other_library, "")).start(None);
        wait_until("the second waits for the ledger", || {
            let name = ledger.file_name().unwrap().to_str().unwrap();
            locks(&store).lines().any(|it| it.contains(name) && it.contains("EAGAIN"))
        });
        kill_process(first.pid(), Signal::CONT).unwrap();
        first.finish().signature();
        assert_signed(&second.finish());
        fs::remove_file(store.path("locks")).unwrap();
    }
    assert_eq!(store.calls("C_Login"), ["0x0"; 2]);
}

/// The program under strace, which writes down what it and its children lock.
fn locking(store: &Store, invocation: Invocation) -> Invocation {
    let path = store.path("locks");
    let options = ["-f", "-y", "-e", "trace=flock", "-o", path.to_str().unwrap()];
    let strace = tool("strace", "strace");
    invocation.through(strace.get_program().to_str().unwrap(), &options)
}

fn locks(store: &Store) -> String {
    fs::read_to_string(store.path("locks")).unwrap_or_default()
}

/// Takes as long as others may keep a token.
#[test]
fn a_token_that_has_not_answered_anothers_pin_gets_no_other() {
    needs_isolation!();
    let store = token_with_pair(Kind::P256);
    assert_signed(&sign(&store, &store.configuration_with_pin_source(), "").run());
    // As a request through that library that was stopped in C_Login.
    let place = state(&store);
    let held: Vec<_> = fs::read_dir(place)
        .unwrap()
        .map(|lock| File::open(lock.unwrap().path()).unwrap())
        .inspect(|lock| flock(lock, FlockOperation::LockExclusive).unwrap())
        .collect();
    assert!(!held.is_empty());
    let stored = recorded(&store).with("pinSource", "env:TOKEN_PIN");
    sign(&store, &stored, "").run().fails(5, &["in use by another request", "90 s"]);
    assert_eq!(store.calls("C_Login"), [] as [&str; 0]);
}

#[test]
fn what_is_remembered_names_the_token_and_nothing_of_the_pin() {
    needs_isolation!();
    let store = token_with_pair(Kind::P256);
    sign(&store, &recorded(&store).with("pin", WRONG_PIN), FORGETFUL).run().fails(7, &[]);
    let path = ledger(&store).expect("a ledger");
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let text = remembered(&store);
    assert_no_pin("the ledger", &text);
    let line = text.strip_prefix("PIN sent to token ").unwrap();
    let (token, rest) = line.trim_end().split_once(" at ").unwrap();
    assert!(token.contains("test token") && token.contains(&store.tokens[0].serial));
    let (seconds, rest) = rest.split_once(' ').unwrap();
    seconds.parse::<u64>().unwrap();
    // By which the token is known.
    assert_eq!(rest.len(), "(0a0b0c0d)".len(), "{rest}");

    assert_signed(&sign(&store, &recorded(&store), FORGETFUL).at_terminal().finish_with_pin());
    assert_eq!(remembered(&store), "", "a login clears it");
}

#[test]
fn a_run_and_a_check_keep_to_what_another_process_was_refused() {
    let store = cluster().token(Kind::P256, JANE);
    let wrong = recorded(&store).with("pin", WRONG_PIN);
    sign(&store, &wrong, FORGETFUL).run().fails(7, &[]);
    let run = cluster().run(&store, &wrong, &["true"]);
    run.suffering(&store, FORGETFUL).run().fails(7, &["seems to have refused a PIN"]);
    let check = cluster().command(&store, &wrong, "check");
    let told = check.suffering(&store, FORGETFUL).run().shown();
    assert!(told.contains("✘ PIN            token \"test token\""), "{told}");
    assert_eq!(store.calls("C_Login"), ["0xa0"]);

    // The PIN in the kubeconfig was corrected, and there is no terminal.
    let right = recorded(&store).with("pin", PIN);
    let check = cluster().command(&store, &right, "check");
    check.arguments(&["--despite-refusal"]).suffering(&store, FORGETFUL).run().succeeded();
    assert_signed(&sign(&store, &right, FORGETFUL).run());
}

#[test]
fn no_kind_of_wrong_pin_is_sent_twice_and_what_cannot_be_one_is_not_sent() {
    for (pin, tries) in [
        (WRONG_PIN, 1),
        ("größe-пин-密码", 1),
        ("esc\u{1b}[2J\u{7}bell", 0),
        (" right-horse-4711", 1),
        ("123", 0),
        ("", 0),
        ("right-horse-4711\0", 0),
        ("right-horse-4711\n", 0),
        (&"9".repeat(256), 0),
    ] {
        let store = token_with_pair(Kind::P256);
        let configuration = recorded(&store).with("pin", pin);
        for _ in 0..3 {
            let outcome = sign(&store, &configuration, FORGETFUL).run();
            assert!(matches!(outcome.status.code(), Some(3 | 7)), "{pin:?}: {outcome:?}");
        }
        let calls = fs::read_to_string(store.path("calls")).unwrap_or_default();
        assert_eq!(calls.matches("C_Login 0xa0").count(), tries, "{pin:?}");
        assert_eq!(calls.matches("C_Login").count(), tries, "{pin:?}");
    }
}

/// ykcs11 says CKR_ARGUMENTS_BAD of one with nine characters, which the card never sees.
#[test]
fn a_pin_that_the_library_itself_calls_malformed_is_neither_refused_nor_sent_to_a_lost_card() {
    let malformed = ["did not accept the PIN", "CKR_ARGUMENTS_BAD", "no try was used up"];
    let store = token_with_pair(Kind::P256);
    let stored = |pin: &str| recorded(&store).with("pin", pin);
    let outcome = sign(&store, &stored(WRONG_PIN), "C_Login:return=0x7").run();
    outcome.fails(7, &malformed);
    // The corrected one is sent.
    assert_signed(&sign(&store, &stored(PIN), "").run());
    let mut terminal = sign(&store, &recorded(&store), "C_Login#1:return=0x7").at_terminal();
    terminal.expect_prompt().type_line(WRONG_PIN);
    terminal.expect("used up").expect_prompt();
    assert_signed(&terminal.type_line(PIN).finish().0);
    // A token that has counted one meanwhile may have counted this one.
    let counted = "C_Login:return=0x7,C_GetTokenInfo#3+:set=CKF_USER_PIN_COUNT_LOW";
    sign(&store, &stored(WRONG_PIN), counted).run().fails(7, &["login to token", "failed"]);
    sign(&store, &stored(PIN), "").run().fails(7, &["seems to have refused a PIN"]);
}

/// The module was logged in already, so it didn't look at the PIN. A second line of the input is
/// the user's, and no PIN.
#[test]
fn a_pin_that_was_not_looked_at_is_kept_and_no_other_is_taken() {
    let store = token_asking_each_time(Kind::P256);
    let configuration = recorded(&store).with("pinSource", "stdin");
    let outcome = sign(&store, &configuration, "C_Login#1:then-return=0x100")
        .piped(format!("{PIN}\n{WRONG_PIN}\n"))
        .before_another_reader()
        .run();
    assert_signed(&outcome);
    assert_eq!(outcome.remainder.unwrap(), format!("{WRONG_PIN}\n").as_bytes());
    assert_eq!(store.calls("C_Login"), ["0x100", "0x0"]);
}

/// A shell script in which `request N` is the program, its standard error in the file `error.N`.
fn in_one_session(store: &Store, configuration: &Configuration, script: &str) -> Invocation {
    let functions = r#"
        request() { "$SIGNER" >"$HOME/answer.$1" 2>"$HOME/error.$1"; }
    "#;
    sign(store, configuration, "").within("sh", &format!("{functions}\n{script}"))
}

fn error(store: &Store, number: u8) -> String {
    fs::read_to_string(store.path(format!("error.{number}"))).unwrap()
}

fn prompts(screen: &str) -> usize {
    let lines = visible(screen);
    // Each on a line of its own.
    assert!(lines.iter().all(|line| line.matches("PIN for \"").count() <= 1), "{lines:?}");
    screen.matches("PIN for \"").count()
}

#[test]
fn prompts_for_different_libraries_come_one_after_the_other() {
    let store = token_with_pair(Kind::P256);
    // Another path is another library, with a lock of its own.
    let other = sign_request(&store.configuration(), &Options::hash(Hash::Sha256), &sample(32));
    let script = "request 1 & EXTERNAL_SIGNER_PLUGIN_CONFIG=$OTHER request 2 & wait";
    let requests = in_one_session(&store, &recorded(&store), script);
    let mut terminal = locking(&store, requests).variable("OTHER", other.to_string()).at_terminal();
    terminal.expect_prompt();
    wait_until("one waits for the other's prompt", || locks(&store).contains("EAGAIN"));
    let (_, screen) = terminal.type_line(PIN).expect_prompt().type_line(PIN).finish();
    assert_eq!(prompts(&screen), 2, "{screen:?}");
    for number in [1, 2] {
        assert_eq!(error(&store, number), "");
    }
}

/// What is told of one that was asked for again too soon.
const LEFT: &str = "its prompt was cancelled a moment ago";

#[test]
fn a_prompt_that_was_left_brakes_those_behind_it_and_those_of_its_job() {
    let store = token_with_pair(Kind::P256);
    let script = "for i in 1 2 3 4; do request $i & done; wait; request 5";
    let mut terminal = in_one_session(&store, &recorded(&store), script).at_terminal();
    let (_, screen) = terminal.expect_prompt().type_line("").finish();
    assert_eq!(prompts(&screen), 1, "{screen:?}");
    assert_eq!((1..=5).filter(|number| error(&store, *number).contains(LEFT)).count(), 4);
    assert!(store.calls("C_Login").is_empty());
}

/// A client that tries again would spend the next three, and must not tell of a cancelled prompt.
#[test]
fn after_three_wrong_pins_the_same_job_is_not_asked_again() {
    let store = token_with_pair(Kind::P256);
    let script = "request 1; request 2";
    let mut terminal = in_one_session(&store, &recorded(&store), script).at_terminal();
    for _ in 0..3 {
        terminal.expect_prompt().type_line(WRONG_PIN);
    }
    let (_, screen) = terminal.finish();
    assert_eq!(prompts(&screen), 3, "{screen:?}");
    let told = error(&store, 2);
    assert!(told.contains("it refused what was entered a moment ago"), "{told}");
    assert_eq!(store.calls("C_Login"), ["0xa0"; 3]);
}

#[test]
fn a_no_to_the_final_try_is_said_for_those_behind_it_too() {
    let store = token_with_pair(Kind::P256);
    let script = "for i in 1 2 3; do request $i & done; wait";
    let mut terminal = in_one_session(&store, &recorded(&store), script)
        .variable("FAULT_MODULE", "C_GetTokenInfo:set=CKF_USER_PIN_FINAL_TRY")
        .at_terminal();
    let (_, screen) = terminal.expect("last try").expect("yes").type_line("no").finish();
    assert_eq!(screen.matches("last try").count(), 1, "{screen:?}");
    assert_eq!((1..=3).filter(|number| error(&store, *number).contains(LEFT)).count(), 2);
}

/// With job control, as at a person's own prompt, each command is a job of its own. Nothing is shown in which
/// a person could type the PIN in clear.
#[test]
fn a_persons_next_command_asks_at_once() {
    for (number, answers) in
        ["\x03", "\x04", "\n", "wrong-1\nwrong-2\nwrong-3\n"].iter().enumerate()
    {
        let store = token_with_pair(Kind::P256);
        let script = "set -m; trap : INT; request 1; request 2; exit 0";
        let mut terminal = in_one_session(&store, &recorded(&store), script).at_terminal();
        for answer in answers.split_inclusive('\n') {
            terminal.expect_prompt().type_text(answer);
        }
        let (_, screen) = terminal.expect_prompt().type_line(PIN).finish();
        let asked = answers.split_inclusive('\n').count() + 1;
        assert_eq!(prompts(&screen), asked, "{number}: {screen:?}");
        assert!(!screen.contains("again"), "{screen:?}");
        assert_ne!(error(&store, 1), "");
        assert_eq!(error(&store, 2), "");
    }
}
