//! Somebody at a terminal: what is asked, what is shown, and the terminal as it was afterwards,
//! which every run checks at its end.

use crate::fixture::*;

fn sign(store: &Store) -> Invocation {
    store.sign_with(&store.configuration())
}

/// The same through the library that keeps a record.
fn sign_recorded(store: &Store) -> Invocation {
    store.sign_suffering(store.configuration(), "")
}

#[test]
fn the_prompt_names_token_and_user_and_takes_the_pin() {
    let store = token_with_pair(Kind::P256);
    let (outcome, screen) = sign(&store).at_terminal().expect_prompt().type_line(PIN).finish();
    assert_signed(outcome.silently());
    assert!(screen.starts_with("PIN for \"test token\" (test p256): "), "{screen}");
}

/// The end of input (Ctrl-D) says the same, and in the middle of a PIN it doesn't send the half.
#[test]
fn an_empty_entry_is_the_end_without_a_try() {
    let store = token_with_pair(Kind::P256);
    for typed in ["\n", "\x04", "half\x04"] {
        let mut terminal = sign_recorded(&store).at_terminal();
        terminal.expect_prompt().type_text(typed).finish().0.fails(7, &["test token"]);
    }
    assert_eq!(store.calls("C_Login"), [""; 0]);
}

#[test]
fn erasing_a_character_and_the_line_works_while_typing() {
    let store = token_with_pair(Kind::P256);
    let mut terminal = sign(&store).at_terminal();
    terminal.expect_prompt().type_text("nonsense").press_ctrl('u');
    assert_signed(&terminal.type_text(PIN).type_text("x\x7f").type_line("").finish().0);
}

#[test]
fn ctrl_c_is_heard_where_the_client_is_deaf_to_it() {
    let store = token_with_pair(Kind::P256);
    let mut terminal = sign(&store).within("sh", "trap '' INT; exec \"$SIGNER\"").at_terminal();
    terminal.expect_prompt().press_ctrl('c').finish().0.fails(7, &["no PIN was entered"]);
}

#[test]
fn ctrl_c_and_signals_end_it_and_leave_the_terminal_as_it_was() {
    let store = token_with_pair(Kind::P256);
    let mut terminal = sign(&store).at_terminal();
    terminal.expect_prompt().type_text("half a P").press_ctrl('c').finish().0.dies_of(Signal::INT);
    for signal in [Signal::TERM, Signal::HUP, Signal::QUIT] {
        sign(&store).at_terminal().expect_prompt().send(signal).finish().0.dies_of(signal);
    }
}

#[test]
fn a_terminal_that_goes_away_ends_it() {
    let store = token_with_pair(Kind::P256);
    let outcome = sign(&store).at_terminal().expect_prompt().hang_up().finish().0.failed();
    // Not the end of a prompt that nobody answers.
    assert!(!outcome.stderr.contains("60 s"), "{outcome:?}");
}

/// Under a shell with job control, which is what makes Ctrl-Z mean something.
#[test]
fn ctrl_z_gives_the_terminal_back_and_fg_asks_again() {
    let store = token_with_pair(Kind::P256);
    let script = "set -m; \"$SIGNER\"; echo \"stopped $?\" >/dev/tty; read -r _ </dev/tty; \
                  fg >/dev/null; exit $?";
    let mut terminal = sign(&store).within("sh", script).at_terminal();
    terminal.expect_prompt().type_text("half a P").press_ctrl('z');
    // 128 + SIGTSTP
    terminal.expect("stopped 148");
    terminal.expect_settings_restored();
    assert_signed(&terminal.type_line("").finish_with_pin());
}

/// As from `kubectl … &` in a shell with a line editor: what it made of the terminal while it
/// waited for a command is nothing to ask with, and nothing to go back to.
#[test]
fn a_prompt_in_the_background_waits_for_fg() {
    let store = token_with_pair(Kind::P256);
    let script = "set -m; stty -icanon -icrnl -echo </dev/tty; \"$SIGNER\" & \
                  until grep -q '^State:.*T' /proc/$!/status; do sleep 0.1; done; \
                  stty icanon icrnl echo </dev/tty; fg >/dev/null; exit $?";
    assert_signed(&sign(&store).within("sh", script).at_terminal().finish_with_pin());
}

/// k9s and its like run their clients in a terminal where Enter is no end of a line.
#[test]
fn a_client_may_have_the_terminal_in_raw_mode() {
    let store = token_with_pair(Kind::P256);
    let script = "before=$(stty -g </dev/tty); stty raw -echo </dev/tty; \
                  raw=$(stty -g </dev/tty); \"$SIGNER\"; status=$?; \
                  [ \"$(stty -g </dev/tty)\" = \"$raw\" ] || status=99; \
                  stty \"$before\" </dev/tty; exit $status";
    let mut terminal = sign(&store).within("sh", script).at_terminal();
    assert_signed(&terminal.expect_prompt().type_text(PIN).type_text("\r").finish().0);
}

#[test]
fn a_terminal_that_is_held_with_ctrl_s_can_be_left() {
    needs_isolation!();
    let store = token_with_pair(Kind::P256);
    let mut terminal = Terminal::new();
    terminal.press_ctrl('s');
    let mut terminal = terminal.start(sign(&store));
    let place = format!("/proc/{}/wchan", terminal.program().pid().as_raw_nonzero());
    // When the echo is off, nothing else is waited for before the prompt is shown.
    wait_until("a wait to show the prompt", || {
        assert!(!terminal.program().has_ended(), "it has ended");
        !terminal.echoes()
            && fs::read_to_string(&place).unwrap().starts_with("poll_schedule_timeout")
    });
    terminal.send(Signal::TERM).finish().0.dies_of(Signal::TERM);
}

#[test]
fn what_was_typed_before_the_prompt_is_no_pin() {
    let store = token_with_pair(Kind::P256);
    let mut terminal = Terminal::new();
    terminal.type_line("typed ahead");
    let mut terminal = terminal.start(sign_recorded(&store));
    assert_signed(&terminal.finish_with_pin());
    assert_eq!(store.calls("C_Login"), ["0x0"]);
}

#[test]
fn piped_input_is_left_to_the_next_reader_where_there_is_a_terminal() {
    let store = token_with_pair(Kind::P256);
    for input in ["kind: List\nitems: []\n", &format!("{WRONG_PIN}\n")] {
        let outcome =
            sign(&store).piped(input).before_another_reader().at_terminal().finish_with_pin();
        assert_signed(&outcome);
        assert_eq!(outcome.remainder.unwrap(), input.as_bytes());
    }
}

#[test]
fn escape_sequences_in_labels_stay_off_the_terminal() {
    let [key_object, certificate] = Object::pair(key(Kind::P256), &[1]);
    let label = "\x1b[2J\x1b]0;owned\x07 \u{202e}";
    let store =
        Store::new([blueprint(label, [key_object.labelled(label), certificate.labelled(label)])]);
    for configuration in [
        store.configuration(),
        store.configuration().without("objectId").with("objectLabel", label),
    ] {
        let mut terminal = store.sign_with(&configuration).at_terminal();
        terminal.expect_prompt().type_line(WRONG_PIN);
        let (outcome, screen) = terminal.expect_prompt().type_line("").finish();
        outcome.fails(7, &["owned"]);
        for text in [&screen, &outcome.stderr] {
            for harmful in ["\x1b[2J", "\x1b]", "\x07", "\u{202e}"] {
                assert!(!text.contains(harmful), "{harmful:?} in {text:?}");
            }
        }
    }
}

#[test]
fn a_pin_that_the_token_cannot_have_costs_no_try() {
    let store = token_with_pair(Kind::P256);
    let mut terminal = sign_recorded(&store).at_terminal();
    terminal.expect_prompt().type_line("123");
    terminal.expect("4 to 255");
    terminal.type_line("").finish().0.fails(7, &[]);
    assert_eq!(store.calls("C_Login"), [] as [&str; 0]);
}

/// Who thinks about a PIN doesn't hold the library.
#[test]
fn a_request_that_needs_nobody_does_not_wait_for_the_prompt_of_another() {
    let store = token_with_pair(Kind::P256);
    let mut terminal = sign(&store).at_terminal();
    terminal.expect_prompt();
    assert_signed(store.sign(&Options::hash(Hash::Sha256), &sample(32)).run().silently());
    assert_signed(&terminal.type_line(PIN).finish().0);
}

/// Takes a minute, because the prompt does.
#[test]
fn a_prompt_that_nobody_answers_ends_after_a_minute() {
    let store = token_with_pair(Kind::P256);
    let mut terminal = sign_recorded(&store).at_terminal();
    let outcome = terminal.expect_prompt().type_text("half a P").finish().0;
    outcome.fails(7, &["60 s", "test token"]);
    assert!(outcome.took.as_secs() >= 55, "it took {:?}", outcome.took);
    assert_eq!(store.calls("C_Login"), [] as [&str; 0]);
}
