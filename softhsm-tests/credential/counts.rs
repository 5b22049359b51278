//! How often the person and the token are asked, in each `--keep`.

use super::{ANSWER, ASK, PlainUser, count_plugins};
use crate::fixture::softhsm::PIN;

/// So many commands in a shell at a terminal, where the PIN is asked for so often.
#[track_caller]
fn in_a_shell(user: &PlainUser, commands: usize, prompts: usize) {
    let script = format!("for i in $(seq {commands}); do {ASK}; done");
    let mut terminal = user.shell(&script).at_terminal();
    for _ in 0..prompts {
        terminal.expect_prompt().type_line(PIN);
    }
    let (outcome, screen) = terminal.finish();
    assert_eq!(outcome.printed(), ANSWER.repeat(commands), "{screen}");
    assert_eq!(screen.matches("PIN").count(), prompts, "{screen}");
}

#[test]
fn each_command_costs_one_pin_and_one_signature() {
    for options in [&[][..], &["--keep=command"]] {
        let user = PlainUser::prompted(options);
        in_a_shell(&user, 3, 3);
        assert_eq!(user.counts(), (3, 3));
        user.expect_nothing_left();
    }
}

#[test]
fn a_hundred_commands_at_a_terminal_cost_one_pin_and_one_signature() {
    let user = PlainUser::prompted(&["--keep=terminal"]);
    in_a_shell(&user, 100, 1);
    assert_eq!(user.counts(), (1, 1));
    user.expect_nothing_left();
    // The next terminal begins anew.
    in_a_shell(&user, 2, 1);
    assert_eq!(user.counts(), (2, 2));
}

#[test]
fn what_is_kept_for_a_time_serves_other_terminals_too() {
    let user = PlainUser::prompted(&["--keep=15m"]);
    in_a_shell(&user, 3, 1);
    in_a_shell(&user, 3, 0);
    assert_eq!(
        user.kubectl(&["get", "pods", "-o=name"]).run().printed(),
        "pod/shell\n"
    );
    assert_eq!(user.counts(), (1, 1));
    user.program(&["stop"]).run().printed();
    user.expect_nothing_left();
}

/// A command keeps the shortest of several wishes.
#[test]
fn the_shortest_of_several_wishes_for_a_key_holds() {
    let user = PlainUser::new(&["--keep=15m"]);
    user.kubectl(&["get", "pods"]).run().printed();
    let mut config = user.current();
    let arguments = config["users"][0]["user"]["exec"]["args"].to_string();
    config["users"][0]["user"]["exec"]["args"] =
        serde_json::from_str(&arguments.replace("15m", "command")).unwrap();
    assert!(arguments.contains("15m"), "{arguments}");
    user.write(&config);
    user.kubectl(&["get", "pods"]).run().printed();
    user.expect_nothing_left();
}

/// `kubectl apply -f -` runs the plugin twice in one process.
#[test]
fn apply_from_standard_input_runs_the_plugin_twice_and_asks_once() {
    let user = PlainUser::prompted(&[]);
    let runs = count_plugins(&user);
    let manifest = format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {}}}\ndata: {{key: value}}\n",
        user.context()
    );
    let mut terminal = user
        .kubectl(&["apply", "-f", "-"])
        .piped(&manifest)
        .at_terminal();
    terminal.expect_prompt().type_line(PIN);
    let (outcome, screen) = terminal.finish();
    let created = format!("configmap/{} created\n", user.context());
    assert_eq!(outcome.printed(), created);
    assert_eq!(screen.matches("PIN").count(), 1, "{screen}");
    assert_eq!(runs(), 2);
    assert_eq!(user.counts(), (1, 1));
}
