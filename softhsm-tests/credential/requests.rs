//! Requests of the external signer protocol whose configuration has `keep`.

use crate::fixture::*;

/// Ten requests at once, as a client makes them for ten connections.
const TEN: &str = "cd \"$HOME\"; for i in 0 1 2 3 4 5 6 7 8 9; do \"$SIGNER\" >answer.$i & done; wait; cat answer.*";

/// A shell that has a request to sign.
fn shell(store: &Store, keep: &str, script: &str) -> Invocation {
    faulty_shell(store, keep, "", script)
}

fn faulty_shell(store: &Store, keep: &str, faults: &str, script: &str) -> Invocation {
    let configuration = store.faulty(store.configuration()).with("keep", keep);
    let request = sign_request(&configuration, &Options::hash(Hash::Sha256), &sample(32));
    store.ask(&request).suffering(store, faults).within("sh", script)
}

fn command(store: &Store, name: &str) -> Invocation {
    store.command(&[]).argument(name)
}

/// Demands so many answers with the key's signature, and nothing else.
#[track_caller]
fn assert_signatures(printed: &str, count: usize) {
    let answers: Vec<Value> =
        printed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(answers.len(), count, "{printed}");
    for answer in answers {
        assert_eq!(answer["kind"], "SignResponse");
        assert_verifies(key(Kind::P256), Scheme::Ecdsa, &sample(32), &decode(&answer["signature"]));
    }
}

#[test]
fn ten_requests_of_a_terminal_cost_one_pin_and_one_login() {
    let store = token_with_pair(Kind::P256);
    let outcome = shell(&store, "terminal", TEN).at_terminal().finish_with_pin();
    assert_signatures(&outcome.printed(), 10);
    assert_eq!(store.calls("C_Login"), ["0x0"]);
    assert_eq!(store.calls("C_Sign").len(), 10);
    // The process ends with the terminal's shell.
    let status = || command(&store, "status").run().printed();
    wait_until("no tunnel process", || status() == "no tunnel process is running\n");
}

/// The tunnel process has no terminal to say so.
#[test]
fn a_touch_that_is_waited_for_is_told_on_the_terminal() {
    let store = token_with_pair(Kind::P256);
    let script = "\"$SIGNER\"; \"$SIGNER\" stop";
    let mut terminal = faulty_shell(&store, "15m", "C_Sign:delay=3000", script).at_terminal();
    terminal.expect_prompt().type_line(PIN);
    assert_signatures(&terminal.expect("touch the token if it blinks").finish().0.printed(), 1);
}

#[test]
fn without_keep_each_request_logs_in_and_no_process_is_left() {
    let store = token_with_pair(Kind::P256);
    let script = "\"$SIGNER\"; \"$SIGNER\"; \"$SIGNER\" status";
    for (keep, prompts) in [("command", 2), ("15m", 1)] {
        let mut terminal = shell(&store, keep, script).at_terminal();
        for _ in 0..prompts {
            terminal.expect_prompt().type_line(PIN);
        }
        let (outcome, _) = terminal.finish();
        let printed = outcome.printed();
        let (answers, status) = printed.split_at(printed.rfind("}\n").unwrap() + 2);
        assert_signatures(answers, 2);
        assert_eq!(status.starts_with("no tunnel process"), keep == "command");
    }
    command(&store, "stop").run().printed();
}

#[test]
fn errors_are_those_of_a_request_without_keep() {
    let store = token_with_pair(Kind::P256);
    for (keep, code) in [("15m", 7), ("command", 7), ("15 x", 3)] {
        let configuration =
            store.faulty(store.configuration()).with("keep", keep).with("pin", WRONG_PIN);
        let request = sign_request(&configuration, &Options::hash(Hash::Sha256), &sample(32));
        let outcome = store.ask(&request).suffering(&store, "").run();
        outcome.fails(code, &[if code == 3 { "keep \"15 x\"" } else { "PIN" }]);
    }
    // Sent once: the second request finds the refusal in the token's ledger.
    assert_eq!(store.calls("C_Login"), ["0xa0"]);
}

/// A token with two keys.
fn two_keys() -> Store {
    let pairs = [1, 2].map(|id| Object::pair(key(Kind::P256), &[id]));
    token_with(pairs.into_iter().flatten())
}

/// A request to sign with the key of this objectId, which stays open.
fn sign_with_key(store: &Store, id: &str, faults: &str) -> Invocation {
    let configuration = store.faulty(store.configuration()).with("keep", "15m");
    let configuration = configuration.with("objectId", id);
    let request = sign_request(&configuration, &Options::hash(Hash::Sha256), &sample(32));
    store.ask(&request).suffering(store, faults)
}

#[test]
fn a_prompt_that_is_open_keeps_no_other_key_of_the_library_from_signing() {
    needs_isolation!();
    let store = two_keys();
    let sign = |id| sign_with_key(&store, id, "");
    assert_signed(&sign("1").at_terminal().finish_with_pin());
    let mut asked = sign("2").at_terminal();
    asked.expect_prompt();
    for _ in 0..5 {
        assert_signed(&sign("1").run());
    }
    // Nor another process from the library: one that wants its own PIN has it asked for.
    let own = store.faulty(store.configuration());
    let own = sign_request(&own, &Options::hash(Hash::Sha256), &sample(32));
    assert_signed(&store.ask(&own).suffering(&store, "").at_terminal().finish_with_pin());
    let (outcome, _) = asked.type_line(PIN).finish();
    assert_signed(&outcome);
    command(&store, "stop").run().printed();
}

#[test]
fn a_wrong_pin_for_one_key_ends_nothing_of_another_key_of_its_token() {
    needs_isolation!();
    let store = two_keys();
    let sign = |id| sign_with_key(&store, id, "");
    assert_signed(&sign("1").at_terminal().finish_with_pin());
    let mut asked = sign("2").at_terminal();
    asked.expect_prompt().type_line(WRONG_PIN);
    asked.expect("the token refused the PIN").expect_prompt().press_ctrl('d').finish();
    // The wrong one, and the one that was accepted before.
    assert_eq!(store.calls("C_Login"), ["0x0", "0xa0", "0x0"]);
    assert_signed(&sign("1").run());
    // The right one is known to be right.
    assert_signed(&sign("2").at_terminal().finish_with_pin());
    assert_eq!(store.calls("C_Login").len(), 3);
    command(&store, "stop").run().printed();
}

/// The right one sets the token's count back each time.
#[test]
fn beside_an_open_key_nobody_tries_one_pin_after_the_other() {
    needs_isolation!();
    let store = two_keys();
    let sign = |id| sign_with_key(&store, id, "");
    assert_signed(&sign("1").at_terminal().finish_with_pin());
    for _ in 0..2 {
        let mut asked = sign("2").at_terminal();
        asked.expect_prompt().type_line(WRONG_PIN);
        asked.expect("the token refused the PIN").expect_prompt().press_ctrl('d').finish();
    }
    let mut asked = sign("2").at_terminal();
    asked
        .expect_prompt()
        .type_line(WRONG_PIN)
        .finish()
        .0
        .fails(7, &["has accepted none of three PINs"]);
    let told = ["has accepted none of three PINs", "stop` ends the login, for everybody"];
    sign("2").at_terminal().finish().0.fails(7, &told);
    assert_eq!(store.calls("C_Login").iter().filter(|it| *it == "0xa0").count(), 3);
    assert_signed(&sign("1").run());
    // What the help says leads on.
    command(&store, "stop").run().printed();
    assert_signed(&sign("2").at_terminal().finish_with_pin());
    command(&store, "stop").run().printed();
}

/// Where a login doesn't end, a library takes any PIN for the one that was right.
#[test]
fn no_pin_counts_as_right_where_the_login_before_does_not_end() {
    needs_isolation!();
    let store = two_keys();
    let sign = |id| sign_with_key(&store, id, "C_Logout:return=0x30");
    assert_signed(&sign("1").at_terminal().finish_with_pin());
    let mut asked = sign("2").at_terminal();
    asked.expect_prompt().type_line(WRONG_PIN);
    asked.finish().0.fails(7, &["stays logged in after C_Logout", "stop` ends the process"]);
    assert_signed(&sign("1").run());
    assert_eq!(store.calls("C_Login").len(), 1);
    command(&store, "stop").run().printed();
}

#[test]
fn status_says_that_any_digest_is_signed() {
    needs_isolation!();
    let store = token_with_pair(Kind::P256);
    assert_signed(&sign_with_key(&store, "1", "").at_terminal().finish_with_pin());
    let told = command(&store, "status").run().printed();
    assert_contains(&told, &["signs any digest for every program of yours", "\"test token\""]);
    let told: Value = command(&store, "status").argument("--json").run().json();
    assert_eq!(told["keys"][0]["signsDigests"], true);
    command(&store, "stop").run().printed();
}

/// Its library sees the token again without being initialised, which it is once where a PIN is.
#[test]
fn a_library_is_not_initialised_again_beside_the_pin() {
    needs_isolation!();
    let store = token_with_pair(Kind::P256);
    let lost = "C_SignInit#2:return=0x32,C_SignInit#3:return=0x32";
    assert_signed(&sign_with_key(&store, "1", lost).at_terminal().finish_with_pin());
    // Lost, and lost once more in a new session: the next one is told, and asked by another process.
    sign_with_key(&store, "1", lost).run().fails(5, &["is gone"]);
    assert_eq!(store.calls("C_Initialize").len(), 1);
    command(&store, "stop").run().printed();
}

/// SoftHSM knows the tokens that were there when it was initialised.
#[test]
fn a_key_that_is_made_meanwhile_is_found_without_a_new_tunnel_process() {
    let store = token_with_pair(Kind::P256);
    let configuration = |label: &str| {
        store
            .faulty(store.configuration())
            .without("slotId")
            .with("tokenLabel", label)
            .with("keep", "15m")
    };
    let sign = |label: &str| {
        let request =
            sign_request(&configuration(label), &Options::hash(Hash::Sha256), &sample(32));
        store.ask(&request).suffering(&store, "")
    };
    assert_signed(&sign("test token").at_terminal().finish_with_pin());
    let script = format!(
        "softhsm2-util --init-token --free --label second --so-pin 87654321 --pin '{PIN}' >/dev/null"
    );
    store.command(&[]).program(Path::new("/bin/sh")).arguments(&["-c", &script]).run().succeeded();
    // It is found; that it has no key is the next thing to say.
    sign("second").at_terminal().finish_with_pin().fails(6, &["no certificate with objectId"]);
    // The key of the first token is open all the while.
    assert_signed(&sign("test token").run());
    command(&store, "stop").run().printed();
}

/// As an administrator's `kill`, or a session manager at logout, has it.
#[test]
fn a_tunnel_process_that_is_told_to_end_ends_in_order() {
    needs_isolation!();
    for signal in [Signal::TERM, Signal::HUP, Signal::INT] {
        let store = token_with_pair(Kind::P256);
        assert_signed(&sign_with_key(&store, "1", "").at_terminal().finish_with_pin());
        let status: Value = command(&store, "status").argument("--json").run().json();
        let number = i32::try_from(status["pid"].as_i64().unwrap()).unwrap();
        let has_socket = || {
            let files = below(&store.path("runtime"));
            files.iter().any(|it| it.extension().is_some_and(|it| it == "socket"))
        };
        assert!(has_socket());
        kill_process(Pid::from_raw(number).unwrap(), signal).unwrap();
        wait_until("it removes its socket", || !has_socket());
        // Its library was finalised, and not left behind.
        wait_until("the library is finalised", || store.calls("C_Finalize").len() == 1);
        assert_eq!(command(&store, "stop").run().printed(), "");
    }
}

/// Else everybody who connects waits for ever.
#[test]
fn a_token_process_that_stands_still_is_told() {
    needs_isolation!();
    let store = token_with_pair(Kind::P256);
    assert_signed(&sign_with_key(&store, "1", "").at_terminal().finish_with_pin());
    let status: Value = command(&store, "status").argument("--json").run().json();
    let tunnel = i32::try_from(status["pid"].as_i64().unwrap()).unwrap();
    let process = child_of(Pid::from_raw(tunnel).unwrap());
    kill_process(process, Signal::STOP).unwrap();
    wait_until_stopped(process);
    let told = ["has not answered within 65 s", "pkcs11-external-signer stop"];
    sign_with_key(&store, "1", "").run().fails(8, &told);
    kill_process(process, Signal::CONT).unwrap();
    assert_signed(&sign_with_key(&store, "1", "").run());
    command(&store, "stop").run().printed();
}

/// A key that isn't for signing, say: to open the token anew would not help.
#[test]
fn what_the_token_refuses_a_key_ends_no_session() {
    needs_isolation!();
    let store = token_with_pair(Kind::P256);
    let refused = "C_SignInit#2:return=0x68";
    assert_signed(&sign_with_key(&store, "1", refused).at_terminal().finish_with_pin());
    sign_with_key(&store, "1", refused).run().fails(8, &["is refused by the token"]);
    assert_signed(&sign_with_key(&store, "1", refused).run());
    assert_eq!(store.calls("C_OpenSession").len(), 1);
    command(&store, "stop").run().printed();
}
