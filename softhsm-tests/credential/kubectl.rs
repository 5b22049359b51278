//! What kubectl does, with no prefix: streams, standard input, watches, and many at once.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Signal, kill_process};

use super::{ANSWER, ASK, PlainUser};
use crate::run::streaming::forward;

/// More than what buffers on the way could hold.
const LARGE: usize = 4 << 20;

fn bytes() -> Vec<u8> {
    (0..LARGE).map(|it| (it * 7 + it / 251).to_le_bytes()[0]).collect()
}

#[test]
fn exec_hands_on_streams_and_exit_code() {
    let user = PlainUser::new(&[]);
    let command = ["exec", "-i", "shell", "--", "sh", "-c", "cat; echo told >&2; exit 7"];
    let outcome = user.kubectl(&command).piped(bytes()).run();
    assert_eq!(outcome.status.code(), Some(7), "{}", outcome.stderr);
    assert!(outcome.stdout == bytes(), "{} bytes", outcome.stdout.len());
    assert!(outcome.stderr.starts_with("told\n"), "{}", outcome.stderr);
    user.expect_nothing_left();
}

#[test]
fn attach_carries_both_directions() {
    let user = PlainUser::new(&[]);
    let attach = ["attach", "-i", "-q", "shell"];
    let outcome = user.kubectl(&attach).piped("echoed\n").run();
    assert_eq!(outcome.printed(), "echoed\n", "{outcome:?}");
}

#[test]
fn cp_copies_both_ways() {
    let user = PlainUser::new(&[]);
    let [here, there, back] =
        ["here", "there", "back"].map(|name| user.path(name).to_str().unwrap().to_owned());
    fs::write(&here, bytes()).unwrap();
    let pod = format!("shell:{there}");
    for arguments in [["cp", &here, &pod], ["cp", &pod, &back]] {
        user.kubectl(&arguments).run().printed();
    }
    for copy in [there, back] {
        assert!(fs::read(&copy).unwrap() == bytes(), "{copy}");
    }
}

#[test]
fn port_forward_carries_both_directions() {
    let user = PlainUser::new(&[]);
    forward(&bytes(), |arguments| user.kubectl(arguments));
    user.expect_nothing_left();
}

#[test]
fn logs_are_followed_as_they_come() {
    let user = PlainUser::new(&[]);
    let mut following = user.kubectl(&["logs", "-f", "shell"]).start(None);
    for _ in 0..5 {
        following.line();
    }
    kill_process(following.pid(), Signal::INT).unwrap();
    following.finish();
    user.expect_nothing_left();
}

/// A watch sees what is made at its beginning and at its end.
fn watch(time: Duration) {
    let user = PlainUser::new(&[]);
    let namespace = user.context();
    let made = user.kubectl(&["create", "namespace", &namespace]).run();
    made.printed();
    let create = |name: &str| {
        let made = user.kubectl(&["-n", &namespace, "create", "configmap", name]).run();
        assert_eq!(made.printed(), format!("configmap/{name} created\n"));
    };
    let arguments = ["-n", &namespace, "get", "configmaps", "-w", "-o", "name"];
    let mut watching = user.kubectl(&arguments).start(None);
    create("first");
    while watching.line() != "configmap/first" {}
    let began = Instant::now();
    thread::sleep(time);
    create("last");
    assert_eq!(watching.line(), "configmap/last", "after {:?}", began.elapsed());
    kill_process(watching.pid(), Signal::INT).unwrap();
    watching.finish();
    user.expect_nothing_left();
}

#[test]
fn a_watch_of_a_minute_sees_what_changes_at_its_end() {
    watch(Duration::from_secs(60));
}

/// A client asks for a credential every five minutes.
#[test]
#[ignore = "takes ten minutes"]
fn a_watch_of_ten_minutes_sees_what_changes_at_its_end() {
    watch(Duration::from_secs(600));
}

#[test]
fn a_hundred_kubectls_at_once() {
    for keep in ["--keep=command", "--keep=terminal"] {
        let user = PlainUser::new(&[keep]);
        let script = format!("for i in $(seq 100); do {ASK} & done; wait");
        let outcome = user.shell(&script).run();
        assert_eq!(outcome.silently().printed(), ANSWER.repeat(100), "{keep}");
        user.expect_nothing_left();
    }
}
