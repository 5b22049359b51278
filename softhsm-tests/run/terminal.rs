//! A run at a terminal: the PIN is asked for first, then the terminal is the command's.

use super::left_behind;
use crate::fixture::*;

fn run(store: &Store, arguments: &[&str]) -> Invocation {
    cluster().run(store, &store.configuration(), arguments)
}

fn run_recorded(store: &Store, arguments: &[&str]) -> Invocation {
    cluster().run(store, &store.faulty(store.configuration()), arguments).suffering(store, "")
}

#[test]
fn nothing_is_started_without_the_pin() {
    needs_isolation!();
    let store = cluster().token(Kind::P256, JANE);
    let mut terminal = run_recorded(&store, &["echo", "started"]).at_terminal();
    for _ in 0..3 {
        terminal.expect_prompt().type_line(WRONG_PIN);
    }
    terminal.finish().0.fails(7, &["CKR_PIN_INCORRECT"]);
    assert_eq!(store.calls("C_Login").len(), 3);

    let mut terminal = run(&store, &["echo", "started"]).at_terminal();
    terminal.expect_prompt().press_ctrl('c').finish().0.dies_of(Signal::INT);
    assert!(left_behind(&store).is_empty());
}

#[test]
fn the_keys_are_the_commands_once_it_runs() {
    let store = cluster().token(Kind::P256, JANE);
    let script =
        "trap 'echo caught' INT; echo ready >/dev/tty; read line </dev/tty; echo \"$line\"";
    let mut terminal = run(&store, &["bash", "-c", script]).at_terminal();
    terminal.expect_prompt().type_line(PIN);
    terminal.expect("ready").press_ctrl('c');
    let printed = terminal.type_line("typed").finish().0.printed();
    assert!(printed.contains("caught") && printed.contains("typed"), "{printed}");
}

#[test]
fn ctrl_z_stops_both_and_fg_continues_both() {
    let store = cluster().token(Kind::P256, ADMINISTRATOR);
    let configuration = store.configuration_with_pin_source();
    let shell = "export PS1='ready: '; exec bash --norc --noprofile -i </dev/tty >/dev/tty 2>&1";
    let mut terminal =
        cluster().run(&store, &configuration, &[]).within("bash", shell).at_terminal();
    let command =
        "\"$SIGNER\" run sh -c 'echo run\"\"ning; read x; kubectl get namespace default -o name'";
    terminal.expect("ready: ").type_line(command);
    terminal.expect("running").press_ctrl('z');
    // The shell sees one job.
    terminal.expect("Stopped").expect("ready: ").type_line("fg");
    terminal.expect("run sh -c").type_line("");
    terminal.expect("namespace/default").expect("ready: ");
    terminal.type_line("echo code=$?").expect("code=0");
    let (outcome, screen) = terminal.type_line("exit").finish();
    assert!(outcome.status.success(), "{screen}");
}

#[test]
fn a_token_that_is_needed_later_is_not_asked_for_over_the_command() {
    let store = cluster().token(Kind::P256, JANE);
    let directory = store.directory.path();
    let other = directory.join("other");
    // The current context needs no token; the other one does.
    fs::write(
        &other,
        "{current-context: none, contexts: [{name: none, context: {cluster: none, user: none}}]}",
    )
    .unwrap();
    let invocation = run(&store, &["sh", "-c", "kubectl --context test auth whoami; echo went on"]);
    let files = format!("{}:{}", other.display(), directory.join("kubeconfig").display());
    let mut terminal = invocation.variable("KUBECONFIG", files).at_terminal();
    let (outcome, screen) = terminal.finish();
    assert_eq!(outcome.printed(), "went on\n");
    assert!(outcome.stderr.contains("can no longer be asked for at the terminal"), "{outcome:?}");
    assert!(!screen.contains("PIN"), "{screen}");

    // Named among the command's own arguments, it is asked for first.
    let invocation = run(&store, &["kubectl", "--context", "test", "auth", "whoami"]);
    let files = format!("{}:{}", other.display(), directory.join("kubeconfig").display());
    let outcome = invocation.variable("KUBECONFIG", files).at_terminal().finish_with_pin();
    assert!(outcome.printed().contains("jane"), "{outcome:?}");
}

#[test]
fn a_typed_pin_serves_a_token_that_was_put_back() {
    let store = cluster().token(Kind::P256, JANE);
    let outcome = run_recorded(&store, &["kubectl", "auth", "whoami"])
        .suffering(&store, "C_SignInit#1:return=0x32")
        .at_terminal()
        .finish_with_pin();
    assert!(outcome.silently().printed().contains("jane"), "{outcome:?}");
    assert_eq!(store.calls("C_Login"), ["0x0", "0x0"]);
}

/// It may have been changed since; no prompt is possible, and the PIN that was right is not sent.
#[test]
fn the_pin_is_not_sent_again_after_another_process_has_sent_a_wrong_one() {
    // Not all tokens show a wrong one; the record has a line of it.
    for flags in ["", ",C_GetTokenInfo:clear=CKF_USER_PIN_COUNT_LOW"] {
        let store = cluster().token(Kind::P256, JANE);
        let wrong = store.configuration().with("pin", WRONG_PIN);
        let wrong = sign_request(&wrong, &Options::hash(Hash::Sha256), &sample(32));
        let script = "EXTERNAL_SIGNER_PLUGIN_CONFIG=\"$WRONG\" \"$SIGNER\"; kubectl auth whoami";
        let outcome = run_recorded(&store, &["sh", "-c", script])
            // The token is lost and has to be opened again.
            .suffering(&store, &format!("C_SignInit#1:return=0x32{flags}"))
            .variable("SIGNER", PROGRAM)
            .variable("WRONG", wrong.to_string())
            .at_terminal()
            .finish_with_pin();
        outcome.says(&["CKR_PIN_INCORRECT", "can no longer be asked for at the terminal"]);
        assert_eq!(store.calls("C_Login"), ["0x0"]);
    }
}

#[test]
fn what_a_tunnel_tells_stops_nobody_where_a_shell_has_the_terminal() {
    let store = cluster().token(Kind::P256, JANE);
    let configuration = store.configuration_with_pin_source();
    // The inner shell is in a group of its own, which leaves us in the background.
    let shell = "export PS1='ready: '; stty tostop </dev/tty; \
        exec \"$SIGNER\" run -v -- bash --norc --noprofile -i </dev/tty >/dev/tty 2>&1";
    let mut terminal =
        cluster().run(&store, &configuration, &[]).within("bash", shell).at_terminal();
    terminal.expect("ready: ").type_line("kubectl auth whoami");
    terminal.expect("connected, TLS 1.3").expect("jane");
    let (outcome, screen) = terminal.expect("ready: ").type_line("stty -tostop; exit").finish();
    assert!(outcome.status.success(), "{screen}");
}
