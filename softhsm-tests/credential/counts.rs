//! How often the person and the token are asked, in each `--keep`.

use super::{ANSWER, ASK, PlainUser, Process, count_plugins, has_socket};
use crate::fixture::*;

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
    assert_eq!(user.kubectl(&["get", "pods", "-o=name"]).run().printed(), "pod/shell\n");
    assert_eq!(user.counts(), (1, 1));
    user.program(&["stop"]).run().printed();
    user.expect_nothing_left();
}

/// A command keeps the shortest of several wishes.
#[test]
fn the_shortest_of_several_wishes_for_a_key_holds() {
    let user = PlainUser::new(&["--keep=15m"]);
    user.kubectl(&["get", "pods"]).run().printed();
    let arguments = user.current()["users"][0]["user"]["exec"]["args"].to_string();
    assert!(arguments.contains("15m"), "{arguments}");
    let shorter: Value = serde_json::from_str(&arguments.replace("15m", "command")).unwrap();
    user.set_plugin("args", shorter);
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
    let outcome =
        user.kubectl(&["apply", "-f", "-"]).piped(&manifest).at_terminal().finish_with_pin();
    assert_eq!(outcome.printed(), format!("configmap/{} created\n", user.context()));
    assert_eq!(runs(), 2);
    assert_eq!(user.counts(), (1, 1));
}

/// The tunnel process was stopped, or had no time to notice.
#[test]
fn a_command_asks_for_the_pin_while_the_end_of_the_one_before_is_not_noticed() {
    needs_isolation!();
    let user = PlainUser::prompted(&[]);
    let mut first = user.kubectl(&["get", "namespaces", "-w", "-o", "name"]).at_terminal();
    first.expect_prompt().type_line(PIN);
    first.program().line();
    let tunnel = user.tunnel().unwrap().pid;
    kill_process(tunnel, Signal::STOP).unwrap();
    first.press_ctrl('c').finish();
    let mut next = user.shell(ASK).at_terminal();
    let is_plugin = |it: &Process| it.is_ours && it.command.contains(" credential ");
    let asks = |it: &Process| is_plugin(it) && has_socket(it.pid);
    wait_until("the plugin asks", || user.processes().iter().any(asks));
    kill_process(tunnel, Signal::CONT).unwrap();
    assert_eq!(next.finish_with_pin().printed(), ANSWER);
    // Where the end is noticed before the PIN is there, the key was closed with it.
    let (logins, signatures) = user.counts();
    assert!((1..=2).contains(&logins) && signatures == 2, "{logins} and {signatures}");
    user.expect_nothing_left();
}

/// Asks the server at $1:$2, named $3, with the credential in standard input, and keeps the connection.
const HOLD: &str = "import json, socket, ssl, sys, time
status = json.load(sys.stdin)['status']
with open('pair', 'w') as pair:
    pair.write(status['clientCertificateData'] + status['clientKeyData'])
context = ssl._create_unverified_context()
context.load_cert_chain('pair')
address = (sys.argv[1], int(sys.argv[2]))
s = context.wrap_socket(socket.create_connection(address), server_hostname=sys.argv[3])
s.sendall(b'GET /version HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n')
s.recv(1)
open('held', 'w').close()
time.sleep(600)";

/// A connection can be held for a while after the command, or for ever.
#[test]
fn a_command_asks_for_the_pin_while_a_connection_of_one_that_has_ended_is_open() {
    let user = PlainUser::prompted(&[]);
    let (address, request) = (user.address(), user.request());
    let (host, port) = address.split_once(':').unwrap();
    let name = request["spec"]["cluster"]["tls-server-name"].as_str();
    let script = format!(
        "cd; answer=$(\"$@\"); setsid python3 -c \"$HOLD\" {host} {port} {} <<<\"$answer\" >/dev/null 2>&1 &
         while [ ! -e held ] && kill -0 $!; do sleep 0.1; done",
        name.unwrap_or("localhost")
    );
    let plugin = user.plugin_within(&script, &request.to_string());
    plugin.variable("HOLD", HOLD).at_terminal().finish_with_pin().printed();
    assert_eq!(user.shell(ASK).at_terminal().finish_with_pin().printed(), ANSWER);
    // The one PIN is known to be right: who enters it needs no login.
    assert_eq!(user.counts(), (1, 2));
    user.program(&["stop"]).run().printed();
}
