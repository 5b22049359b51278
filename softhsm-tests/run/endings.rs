//! How a run ends: as its command does, and with nothing left behind.

use super::{left_behind, run, run_recorded};
use crate::fixture::*;

#[test]
fn the_exit_code_is_the_commands() {
    let store = token_with_pair(Kind::P256);
    for (script, code) in [
        ("exit 0", 0),
        ("exit 7", 7),
        ("exit 255", 255),
        ("kill -KILL $$", 137),
        ("kill -TERM $$", 143),
    ] {
        let outcome = run(&store, &["sh", "-c", script]).run();
        assert_eq!(outcome.status.code(), Some(code), "{script}: {outcome:?}");
        outcome.silently();
        assert!(left_behind(&store).is_empty(), "{script}");
    }
}

#[test]
fn a_command_that_does_not_start_is_an_error() {
    let store = token_with_pair(Kind::P256);
    run(&store, &["no-such-command"]).run().fails(127, &["no-such-command", "not found"]);
    let home = store.directory.path().to_str().unwrap();
    run(&store, &[home]).run().fails(126, &[home]);
    assert!(left_behind(&store).is_empty());
}

#[test]
fn signals_are_passed_on() {
    let store = token_with_pair(Kind::P256);
    for (name, signal) in
        [("HUP", Signal::HUP), ("INT", Signal::INT), ("TERM", Signal::TERM), ("USR1", Signal::USR1)]
    {
        let script = format!(
            "trap 'echo {name}; exit 3' {name}; echo ready; for i in $(seq 6000); do sleep 0.1; done"
        );
        let mut running = run(&store, &["sh", "-c", &script]).start(None);
        assert_eq!(running.line(), "ready");
        assert_eq!(left_behind(&store).len(), 1);
        kill_process(running.pid(), signal).unwrap();
        let outcome = running.finish();
        assert_eq!(outcome.status.code(), Some(3), "{outcome:?}");
        assert_eq!(outcome.stdout, format!("{name}\n").as_bytes());
        assert!(left_behind(&store).is_empty(), "after SIG{name}");
    }
}

/// As a container's main process gets them, whose sender has no number in its PID namespace.
#[test]
fn signals_from_outside_the_namespace_are_passed_on() {
    needs_isolation!();
    let store = token_with_pair(Kind::P256);
    let command = "trap 'echo TERM; exit 3' TERM; echo ready; sleep 600 & wait";
    // The shell itself stays outside: only what it starts is in the new namespace.
    let script = "trap 'kill -TERM $!' TERM; \"$SIGNER\" run sh -c \"$COMMAND\" & wait; wait $!";
    let mut running = run(&store, &[])
        .variable("COMMAND", command)
        .within("sh", script)
        .through("unshare", &["--pid"])
        .start(None);
    assert_eq!(running.line(), "ready");
    kill_process(running.pid(), Signal::TERM).unwrap();
    assert_eq!(running.finish().told(3), "TERM\n");
    assert!(left_behind(&store).is_empty());
}

#[test]
fn what_was_ignored_stays_ignored() {
    let store = token_with_pair(Kind::P256);
    let command = "kill -HUP $PPID; kill -HUP $$; echo alive";
    let script = "trap '' HUP; exec \"$SIGNER\" run sh -c \"$COMMAND\"";
    let outcome = run(&store, &[]).variable("COMMAND", command).within("sh", script).run();
    assert_eq!(outcome.printed(), "alive\n");
}

#[test]
fn standard_streams_are_the_commands_own() {
    let store = token_with_pair(Kind::P256);
    let bytes: Vec<u8> = (0..=255).cycle().take(1 << 20).collect();
    // The library prints wherever it can.
    let outcome = run_recorded(&store, "load:print,C_Login:print", &["cat"]).piped(&bytes).run();
    assert!(outcome.status.success(), "{outcome:?}");
    outcome.says_only(&[]);
    assert!(outcome.stdout == bytes, "{} bytes", outcome.stdout.len());
    outcome.says(&["noise"]);
    let told = run(&store, &["sh", "-c", "echo out; echo err >&2"]).run();
    assert_eq!(told.printed(), "out\n");
    assert_eq!(told.stderr, "err\n");
}

#[test]
fn the_command_inherits_what_it_would_without_us() {
    let store = token_with_pair(Kind::P256);
    let look =
        "cat <&5; ulimit -Sn; ulimit -Sc; ls /proc/self/fd | sort -n | tr '\\n' ' '; echo; env";
    let script = |command: &str| {
        format!("ulimit -Sn 100; ulimit -Sc 7; exec 5<<<five; exec {command} bash -c \"$LOOK\"")
    };
    let of = |command: &str| {
        let outcome =
            run(&store, &[]).variable("LOOK", look).within("bash", &script(command)).run();
        let printed = outcome.printed();
        let own = |line: &&str| {
            [
                "KUBECONFIG=",
                "PKCS11_EXTERNAL_SIGNER_RUN=",
                "TOKEN_PIN=",
                "_=",
                "NO_PROXY=",
                "no_proxy=",
            ]
            .iter()
            .all(|name| !line.starts_with(name))
        };
        let mut lines: Vec<_> = printed.lines().filter(own).map(str::to_owned).collect();
        lines.sort();
        (lines, printed)
    };
    let (without, _) = of("env -u TOKEN_PIN");
    let (with, all) = of("\"$SIGNER\" run --");
    assert_eq!(with, without);
    assert!(!all.contains("TOKEN_PIN"), "the PIN is not the command's");
}

#[test]
fn what_a_killed_run_leaves_is_useless() {
    let store = token_with_pair(Kind::P256);
    let (running, command) = run(&store, &["sh", "-c", "echo ready; read end"]).held();
    let mut running = running.start(None);
    assert_eq!(running.line(), "ready");
    let [left] = &left_behind(&store)[..] else {
        panic!("one directory for one run");
    };
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let kubeconfig = left.join("kubeconfig");
    assert_eq!((mode(left), mode(&kubeconfig)), (0o700, 0o600));
    kill_process(running.pid(), Signal::KILL).unwrap();
    let copy: Value = read_json(&kubeconfig);
    let server = copy["clusters"][0]["cluster"]["server"].as_str().unwrap();
    let address = server.strip_prefix("https://").unwrap();
    // The kernel closes its port a moment after the kill.
    wait_until("the port is closed", || TcpStream::connect(address).is_err());
    assert!(!fs::read_to_string(&kubeconfig).unwrap().contains(PIN));
    // What the kill left of the command ends.
    drop(command);
    running.finish();
}

#[test]
fn a_place_that_others_can_read_is_not_for_its_kubeconfig() {
    let store = token_with_pair(Kind::P256);
    let runtime = store.path("runtime/pkcs11-external-signer");
    fs::create_dir_all(&runtime).unwrap();
    fs::set_permissions(&runtime, fs::Permissions::from_mode(0o755)).unwrap();
    let place = run(&store, &["sh", "-c", "echo $KUBECONFIG"]).run().printed();
    assert!(!place.starts_with(runtime.to_str().unwrap()), "{place}");
}
