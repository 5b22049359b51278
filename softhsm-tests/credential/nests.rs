//! Terminals in terminals, and other logins at the same one.

use super::{ANSWER, ASK, PlainUser};
use crate::fixture::*;

fn shell(prompt: &str) -> String {
    format!("PS1='{prompt}: ' exec bash --norc --noprofile --noediting -i")
}

#[test]
fn a_key_is_kept_for_the_terminal_that_it_was_opened_at() {
    // The status line of tmux would say more than the shell, and it does not take /dev/tty.
    let tmux = "tmux -f /dev/null -S ~/tmux new-session \"$INNER\" \\; set status off <>\"/dev/$(ps -o tty= $$)\"";
    for nest in ["script -qec \"$INNER\" /dev/null", tmux] {
        assert_is_kept_for_terminal(nest, true);
    }
}

#[test]
fn a_login_at_the_same_terminal_has_the_key_too() {
    if !rustix::process::geteuid().is_root() {
        return skipped("only root becomes a user without a password");
    }
    assert_is_kept_for_terminal(
        "su --preserve-environment root --session-command \"$INNER\"",
        false,
    );
}

/// Types `nest` in a shell, which begins another one, and opens the key there: whether it is open outside, too, says
/// whether the terminal there is a new one.
fn assert_is_kept_for_terminal(nest: &str, is_new: bool) {
    let user = PlainUser::prompted(&["--keep=terminal"]);
    let outer = format!("{} </dev/tty >/dev/tty 2>&1", shell("outer"));
    let mut terminal = user.shell(&outer).variable("INNER", shell("inner")).at_terminal();
    terminal.expect("outer: ").type_line(nest);
    // Two at the same time have one prompt.
    terminal.expect("inner: ").type_line(&format!("({ASK} & {ASK}; wait)"));
    terminal.expect_prompt().type_line(PIN);
    for _ in 0..2 {
        terminal.expect(ANSWER.trim_end());
    }
    terminal.expect("inner: ").type_line(ASK).expect(ANSWER.trim_end());
    assert_eq!(user.counts().0, 1, "{nest}");
    terminal.expect("inner: ").type_line("exit").expect("outer: ").type_line(ASK);
    if is_new {
        terminal.expect_prompt().type_line(PIN);
    }
    terminal.expect(ANSWER.trim_end()).expect("outer: ").type_line("exit").finish();
    assert_eq!(user.counts().0, 1 + usize::from(is_new), "{nest}");
    user.expect_nothing_left();
}
