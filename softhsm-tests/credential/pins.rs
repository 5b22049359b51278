//! PINs that are wrong, missing or not wanted: kubectl runs a failing plugin five times, and the person and
//! the token are bothered once.

use super::{PlainUser, assert_told_through_kubectl};
use crate::fixture::*;

const GET: [&str; 2] = ["get", "pods"];

#[test]
fn a_wrong_pin_that_nobody_typed_is_sent_once() {
    let user = PlainUser::new(&[]);
    for _ in 0..2 {
        let outcome = user.kubectl(&GET).variable("TOKEN_PIN", WRONG_PIN).run();
        assert_told_through_kubectl(&outcome, 7, &[]);
        assert_eq!(user.store.calls("C_Login").len(), 1);
        user.expect_nothing_left();
    }
}

#[test]
fn a_wrong_pin_that_was_typed_is_asked_for_again_at_the_prompt_alone() {
    let user = PlainUser::prompted(&[]);
    let mut terminal = user.kubectl(&GET).at_terminal();
    for _ in 0..3 {
        terminal.expect_prompt().type_line(WRONG_PIN);
    }
    let (outcome, screen) = terminal.finish();
    assert_told_through_kubectl(&outcome, 7, &["CKR_PIN_INCORRECT"]);
    assert_eq!(screen.matches("PIN for \"").count(), 3, "{screen}");
    assert_eq!(user.store.calls("C_Login").len(), 3);
    user.expect_nothing_left();
    // Another command.
    let mut terminal = user.kubectl(&GET).at_terminal();
    terminal.expect_prompt().type_line(WRONG_PIN);
    terminal.finish_with_pin().printed();
}

#[test]
fn a_prompt_that_was_cancelled_does_not_come_again_for_the_same_command() {
    let user = PlainUser::prompted(&[]);
    let mut terminal = user.kubectl(&GET).at_terminal();
    // The end of the input, which leaves kubectl alone.
    let (outcome, screen) = terminal.expect_prompt().press_ctrl('d').finish();
    assert_told_through_kubectl(&outcome, 7, &[]);
    assert_eq!(screen.matches(": ").count(), 1, "{screen}");
    user.expect_nothing_left();

    // With kubectl, Ctrl-C ends all of it.
    user.kubectl(&GET).at_terminal().expect_prompt().press_ctrl('c').finish().0.failed();
    user.expect_nothing_left();
}

/// The same key for the next command is another matter.
#[test]
fn the_next_command_asks_again_after_a_cancelled_prompt() {
    let user = PlainUser::prompted(&["--keep=terminal"]);
    let mut terminal = user
        .shell("exec sh -mc 'kubectl get pods -o name; kubectl get pods -o name'")
        .at_terminal();
    terminal.expect_prompt().press_ctrl('d');
    let (outcome, screen) = terminal.expect_prompt().type_line(PIN).finish();
    assert_eq!(outcome.stdout, b"pod/shell\n", "{outcome:?} {screen}");
    user.expect_nothing_left();
}

#[test]
fn a_locked_pin_is_not_sent() {
    let user = PlainUser::new(&[]);
    let locked =
        user.kubectl(&GET).suffering(&user.store, "C_GetTokenInfo:set=CKF_USER_PIN_LOCKED");
    assert_told_through_kubectl(&locked.run(), 7, &["locked"]);
    assert_eq!(user.store.calls("C_Login").len(), 0);
    user.expect_nothing_left();
}

/// The token says so only when it gets a PIN.
#[test]
fn a_stored_pin_that_turns_out_to_be_locked_is_sent_once() {
    let user = PlainUser::new(&[]);
    let get = || user.kubectl(&GET).suffering(&user.store, "C_Login:return=0xa4");
    assert_told_through_kubectl(&get().run(), 7, &["CKR_PIN_LOCKED"]);
    assert_told_through_kubectl(&get().run(), 7, &["TOKEN_PIN was not sent"]);
    assert_eq!(user.store.calls("C_Login"), ["0xa4"]);
    user.expect_nothing_left();
    // A person has unlocked it, and logs in.
    let context = user.context();
    let check = ["check", "--context", &context, "--pin-source=prompt"];
    user.program(&check).at_terminal().finish_with_pin().printed();
    user.kubectl(&GET).run().printed();
    user.expect_nothing_left();
}

#[test]
fn a_pin_that_turns_out_to_be_locked_is_asked_for_once() {
    let user = PlainUser::prompted(&[]);
    let outcome = user
        .kubectl(&GET)
        .suffering(&user.store, "C_Login:return=0xa4")
        .at_terminal()
        .finish_with_pin();
    assert_told_through_kubectl(&outcome, 7, &["CKR_PIN_LOCKED"]);
    assert_eq!(user.store.calls("C_Login").len(), 1);
    user.expect_nothing_left();
}

#[test]
fn without_a_terminal_and_askpass_it_says_so_at_once() {
    let user = PlainUser::prompted(&[]);
    user.plugin(&user.request().to_string()).run().fails_in_one_line(7, &["PIN"]);
    assert_told_through_kubectl(&user.kubectl(&GET).run(), 7, &[]);
    user.expect_nothing_left();
}

#[test]
fn a_key_that_wants_its_pin_each_time_gets_the_one_that_was_entered() {
    let store = cluster().token_asking_each_time(ADMINISTRATOR);
    let user = PlainUser::of(store, &["--keep=terminal"]);
    let outcome = user
        .shell("for i in 1 2 3; do kubectl get pods -o name; done")
        .at_terminal()
        .finish_with_pin();
    assert_eq!(outcome.printed(), "pod/shell\n".repeat(3));
    // To log in, and for the one signature.
    assert_eq!(user.store.calls("C_Login"), ["0x0", "0x0"]);
}

#[test]
fn standard_input_is_the_clients() {
    let user = PlainUser::prompted(&[]);
    let script = "kubectl get pods -o name; cat";
    let outcome = user.shell(script).piped("left alone\n").at_terminal().finish_with_pin();
    assert_eq!(outcome.printed(), "pod/shell\nleft alone\n");
}
