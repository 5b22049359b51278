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
