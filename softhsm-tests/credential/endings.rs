//! The tunnel process lives as long as what it serves, and nothing is left of it.

use super::{ANSWER, ASK, PlainUser, assert_told_through_kubectl, wrap_plugin};
use crate::fixture::*;

/// A person's shell.
const SHELL: &str =
    "export PS1='ready: '; exec bash --norc --noprofile --noediting -i </dev/tty >/dev/tty 2>&1";

/// A shell in which the PIN was typed, for one command that has ended.
fn shell_with_open_key(user: &PlainUser) -> Terminal {
    let mut shell = user.shell(SHELL).at_terminal();
    shell.expect("ready: ").type_line(ASK);
    shell.expect_prompt().type_line(PIN);
    shell.expect(ANSWER.trim_end()).expect("ready: ");
    shell
}

const WATCH: [&str; 5] = ["get", "namespaces", "-w", "-o", "name"];

/// On an idle machine, that is. On a busy one it is slower, as are the commands that run meanwhile: it needs less time than
/// twenty of them.
#[test]
fn it_ends_within_a_second_of_the_command() {
    needs_isolation!();
    let user = PlainUser::new(&[]);
    let expect_end_soon = |of: &str| {
        let mut commands = 0;
        while !user.has_nothing_left() {
            assert!(commands < 20, "{of}: {:#?}, {:?}", user.processes(), user.files());
            user.kubectl(&["version", "--client"]).run().printed();
            commands += 1;
        }
    };
    for arguments in [&["get", "pods"][..], &["get", "pods", "no-such-pod"]] {
        user.kubectl(arguments).run();
        expect_end_soon(&format!("{arguments:?}"));
    }
    for signal in [Signal::INT, Signal::TERM, Signal::KILL] {
        let mut watching = user.kubectl(&WATCH).start(None);
        watching.line();
        assert!(user.tunnel().is_some());
        kill_process(watching.pid(), signal).unwrap();
        watching.finish();
        expect_end_soon(&format!("{signal:?}"));
    }
}

/// A plugin whose client was killed is a child of init, which never ends.
#[test]
fn it_does_not_wait_for_who_inherits_the_plugin() {
    for keep in ["--keep=command", "--keep=terminal"] {
        let user = PlainUser::new(&[keep]);
        let orphan = "(while kill -0 $$; do sleep 0.05; done 2>/dev/null; exec \"$@\") & exit";
        let outcome = user.plugin_within(orphan, &user.request().to_string()).run();
        outcome.says(&["pkcs11-external-signer: error: ", "can't be watched: it has ended"]);
        assert_eq!((&*outcome.stdout, outcome.stderr.lines().count()), (&b""[..], 1));
        user.expect_nothing_left();
    }
}

/// A script around the plugin has ended before its client connects.
#[test]
fn it_stays_for_a_client_whose_plugin_is_wrapped_until_that_has_connected() {
    needs_isolation!();
    let user = PlainUser::new(&[]);
    wrap_plugin(&user, "\"$SIGNER\" \"$@\"; exit $?");
    for round in 1..=3 {
        assert_eq!(user.shell(ASK).run().printed(), ANSWER);
        user.expect_nothing_left();
        assert_eq!(user.counts().0, round);
    }
    // Its connections are its use; others need the PIN.
    let mut watching = user.kubectl(&WATCH).start(None);
    watching.line();
    let without_pin = user.shell(ASK).without_variable("TOKEN_PIN").run();
    assert_told_through_kubectl(&without_pin, 7, &["TOKEN_PIN is not set"]);
    assert_eq!(user.shell(ASK).run().printed(), ANSWER);
    // It is known to be the right one.
    assert_eq!(user.counts().0, 4);
    assert!(user.tunnel().is_some());
    kill_process(watching.pid(), Signal::KILL).unwrap();
    watching.finish();
    user.expect_nothing_left();
}

#[test]
fn it_stays_for_the_last_of_several_commands() {
    let user = PlainUser::new(&[]);
    let mut watching = user.kubectl(&WATCH).start(None);
    watching.line();
    for _ in 0..3 {
        assert_eq!(user.shell(ASK).run().printed(), ANSWER);
        user.wait_for_callers(&[watching.pid()]);
    }
    kill_process(watching.pid(), Signal::KILL).unwrap();
    watching.finish();
    user.expect_nothing_left();
    assert_eq!(user.counts().0, 1, "logins");
}

/// Also one in which nobody has entered the PIN.
#[test]
fn the_last_of_two_terminals_to_end_closes_the_key() {
    let user = PlainUser::prompted(&["--keep=terminal"]);
    let mut first = shell_with_open_key(&user);
    let mut second = user.shell(SHELL).at_terminal();
    second.expect("ready: ").type_line(ASK);
    second.expect(ANSWER.trim_end()).expect("ready: ");
    let shells = || user.status()["keys"][0]["shells"].as_array().map_or(0, Vec::len);
    assert_eq!(shells(), 2);
    first.type_line("exit").finish();
    wait_until("the end of the first is noticed", || shells() == 1);
    second.type_line(ASK).expect(ANSWER.trim_end()).expect("ready: ");
    let (_, screen) = second.type_line("exit").finish();
    assert!(!screen.contains("PIN"), "{screen}");
    user.expect_nothing_left();
    assert_eq!(user.counts(), (1, 1));
}

/// It has no claim.
#[test]
fn a_terminal_that_has_not_used_the_key_does_not_keep_it_open() {
    let user = PlainUser::prompted(&["--keep=terminal"]);
    let mut first = shell_with_open_key(&user);
    let mut second = user.shell(SHELL).at_terminal();
    second.expect("ready: ").type_line("\"$SIGNER\" status").expect("tunnel process");
    first.type_line("exit").finish();
    wait_until("the key is closed", || user.tunnel().is_none());
    second.expect("ready: ").type_line("exit").finish();
}

/// A client waits until everybody has closed its standard output, and so does a pipe's reader.
#[test]
fn it_holds_no_descriptor_of_the_client() {
    needs_isolation!();
    let user = PlainUser::new(&["--keep=15m"]);
    let script = format!("timeout 500 bash -c '{ASK} 2>&1 | cat' >out 2>&1; echo $?; cat out");
    let outcome = user.shell(&format!("cd; exec 7<>/dev/null; {script}")).run();
    assert_eq!(outcome.printed(), format!("0\n{ANSWER}"));
    let tunnel = user.tunnel().unwrap().pid;
    for number in 0..=2 {
        let open = fs::read_link(format!("/proc/{}/fd/{number}", tunnel.as_raw_nonzero()));
        assert_eq!(open.unwrap().to_str(), Some("/dev/null"), "descriptor {number}");
    }
    // The pipes of the client and of the test are not open, and neither is a file.
    for open in open_files(tunnel) {
        let open = open.to_str().unwrap();
        assert!(!open.starts_with("pipe:"), "{open}");
        assert!(!open.ends_with("/out") && !open.starts_with("/dev/pts"), "{open}");
    }
    user.program(&["stop"]).run().printed();
    user.expect_nothing_left();
}

#[test]
fn it_ends_with_the_terminals_session() {
    let user = PlainUser::prompted(&["--keep=terminal"]);
    for ending in ["exit", "kill", "hang-up"] {
        let mut terminal = user.shell(SHELL).at_terminal();
        terminal.expect("ready: ").type_line(ASK);
        terminal.expect_prompt().type_line(PIN);
        terminal.expect(ANSWER.trim_end()).expect("ready: ");
        // It serves the whole session.
        for _ in 0..3 {
            user.wait_for_callers(&[]);
            terminal.type_line(ASK).expect(ANSWER.trim_end()).expect("ready: ");
        }
        match ending {
            "exit" => terminal.type_line("exit"),
            "kill" => terminal.send(Signal::KILL),
            _ => terminal.hang_up(),
        };
        let (_, screen) = terminal.finish();
        assert_eq!(screen.matches("PIN").count(), 1, "{ending}: {screen}");
        user.expect_nothing_left();
    }
}

#[test]
fn it_ends_when_its_time_after_the_last_use_is_over() {
    let user = PlainUser::new(&["--keep=10s"]);
    let limit = Duration::from_secs(10);
    let first = Instant::now();
    assert_eq!(user.shell(ASK).run().printed(), ANSWER);
    thread::sleep(Duration::from_secs(4));
    let last = Instant::now();
    assert_eq!(user.shell(ASK).run().printed(), ANSWER);
    // On a busy machine the time may have been over in between.
    assert!(user.counts() == (1, 1) || first.elapsed() >= limit, "{:?}", user.counts());
    user.expect_nothing_left();
    assert!(last.elapsed() >= limit, "each use begins the time anew: {:?}", last.elapsed());
}

#[test]
fn stop_ends_it_at_once_and_the_next_command_starts_another() {
    needs_isolation!();
    let user = PlainUser::new(&["--keep=15m"]);
    for round in 1..=2 {
        assert_eq!(user.shell(ASK).run().printed(), ANSWER);
        assert!(user.tunnel().is_some());
        assert_eq!(user.program(&["stop"]).run().printed(), "");
        assert!(user.tunnel().is_none());
        user.expect_nothing_left();
        assert_eq!(user.counts(), (round, round));
    }
    // Where nothing runs there is nothing to stop.
    user.program(&["stop"]).run().printed();
}

/// Connects to the socket $1 as often as the process serves clients, and stays.
const FILL: &str = "import socket, sys, time
held = [socket.socket(socket.AF_UNIX) for _ in range(600)]
for s in held:
    s.connect(sys.argv[1])
print('full', flush=True)
time.sleep(600)";

#[test]
fn one_that_does_not_answer_is_told_and_stopped() {
    needs_isolation!();
    let user = PlainUser::new(&["--keep=15m"]);
    for is_full in [true, false] {
        assert_eq!(user.shell(ASK).run().printed(), ANSWER);
        let path = super::refused::socket(&user);
        let tunnel = user.tunnel().unwrap().pid;
        let python = user.client(Path::new("/usr/bin/python3"));
        let fill = python.arguments(&["-c", FILL, path.to_str().unwrap()]);
        let filling = is_full.then(|| fill.start(None));
        let said = match filling {
            Some(mut filling) => {
                assert_eq!(filling.line(), "full");
                "it has as many connections as it takes"
            }
            None => {
                kill_process(tunnel, Signal::STOP).unwrap();
                "it doesn't answer"
            }
        };
        user.program(&["status"]).run().fails(9, &[said, "`pkcs11-external-signer stop`"]);
        assert_told_through_kubectl(&user.kubectl(&["get", "pods"]).run(), 9, &[said]);
        assert_eq!(user.program(&["stop"]).run().printed(), "");
        assert!(user.tunnel().is_none());
    }
    assert_eq!(user.program(&["status"]).run().printed(), "no tunnel process is running\n");
}

#[test]
fn status_says_what_lives_and_for_whom() {
    let user = PlainUser::new(&[]);
    let before = user.program(&["status", "--json"]).run().printed();
    let _: Value = serde_json::from_str(&before).unwrap();
    let mut watching = user.kubectl(&WATCH).start(None);
    watching.line();
    let client = watching.pid().as_raw_nonzero().to_string();
    for arguments in [&["status"][..], &["status", "--json"]] {
        let told = user.program(arguments).run().printed();
        let kubeconfig = user.kubeconfig();
        let kubeconfig = kubeconfig.to_str().unwrap();
        assert_contains(&told, &["jane", "kubectl", "\"test\"", &client, "test token", kubeconfig]);
        assert!(!told.contains(PIN), "{told}");
        assert!(!told.contains("any digest") && !told.contains("last trouble"), "{told}");
    }
    let told = user.program(&["status", "--json"]).run().printed();
    let _: Value = serde_json::from_str(&told).unwrap();
    kill_process(watching.pid(), Signal::INT).unwrap();
    watching.finish();
    user.expect_nothing_left();
    assert_eq!(user.program(&["status", "--json"]).run().printed(), before);
}

/// As those of two jobs of one user, each with a home of its own and the same certificate.
#[test]
fn no_two_keys_look_the_same_in_status() {
    let user = PlainUser::new(&["--keep=15m"]);
    assert_eq!(user.shell(ASK).run().printed(), ANSWER);
    let home = user.path("home");
    fs::create_dir(&home).unwrap();
    let elsewhere = |kubeconfig: &Path| {
        user.shell(ASK).variable("HOME", &home).variable("KUBECONFIG", kubeconfig).run()
    };
    assert_eq!(elsewhere(&user.kubeconfig()).printed(), ANSWER);
    let keys = || {
        let told = user.program(&["status"]).run().printed();
        let blocks: Vec<_> = told.split("\nkey of ").skip(1).map(str::to_owned).collect();
        assert!(blocks.len() == 2 && blocks[0] != blocks[1], "{told}");
        blocks
    };
    keys();
    let copy = user.path("home/kubeconfig");
    fs::copy(user.kubeconfig(), &copy).unwrap();
    assert_eq!(elsewhere(&copy).printed(), ANSWER);
    let [first, second] = &keys()[..] else { panic!() };
    let copy = copy.to_str().unwrap();
    assert!(!first.contains(copy) && second.contains(copy), "{first}\n{second}");
    user.program(&["stop"]).run().printed();
}

#[test]
fn status_says_what_was_last_wrong_with_a_cluster() {
    let mut entry = cluster().entry();
    entry["server"] = format!("https://127.0.0.1:{}", free_port()).into();
    let store = cluster().token(Kind::P256, ADMINISTRATOR);
    let user = PlainUser::at(store, &entry, &["--pin-source=env:TOKEN_PIN", "--keep=15m"]);
    assert!(!user.shell(ASK).run().status.success());
    let told = user.program(&["status"]).run().printed();
    assert_contains(&told, &["last trouble at 20", "Connection refused"]);
    let trouble = &user.status()["clusters"][0]["lastTrouble"];
    assert!(trouble["time"].as_i64().is_some(), "{trouble}");
    user.program(&["stop"]).run().printed();
}

/// It asks the plugin again when its credential expires, and the plugin starts another tunnel.
#[test]
#[ignore = "takes five minutes"]
fn a_client_whose_tunnel_was_killed_is_through_again_within_five_minutes() {
    let user = PlainUser::new(&[]);
    let mut proxy = user.kubectl(&["proxy", "--port=0"]).start(None);
    let line = proxy.line();
    let (_, address) = line.rsplit_once(' ').unwrap();
    let server = format!("--server=http://{address}");
    let get = ["--kubeconfig=/dev/null", &server, "get", "namespace", "default", "-o", "name"];
    let ask = || user.kubectl(&get).run();
    assert_eq!(ask().printed(), ANSWER);
    kill_process(user.tunnel().unwrap().pid, Signal::KILL).unwrap();
    assert!(!ask().status.success());
    wait_until("another tunnel", || ask().status.success());
    kill_process(proxy.pid(), Signal::INT).unwrap();
    proxy.finish();
    user.expect_nothing_left();
}

/// As an agent's socket has: what one of them has open is nothing to the other.
#[test]
fn each_runtime_directory_has_a_tunnel_process_of_its_own() {
    let user = PlainUser::new(&["--keep=15m"]);
    assert_eq!(user.shell(ASK).run().printed(), ANSWER);
    let other = user.path("other");
    fs::create_dir(&other).unwrap();
    set_mode(&other, 0o700);
    let there = |command: &[&str]| user.program(command).variable("XDG_RUNTIME_DIR", &other).run();
    assert_eq!(there(&["status", "--json"]).json(), Value::Null);
    there(&["stop"]).succeeded();
    assert_eq!(user.status()["keys"].as_array().unwrap().len(), 1);
    // Without the variable it is the one of the user's usual directory.
    user.program(&["stop"]).run().printed();
    user.expect_nothing_left();
}
