//! The process that holds a PIN: what others can read of it while it works.

use std::fs;

use rustix::process::{Signal, kill_process};

use crate::fixture::*;

/// Looked at while the library signs, with the PIN from the configuration and from a variable.
#[test]
fn no_core_file_can_be_left() {
    let store = token_with_pair(Kind::P256);
    let ask = |configuration| {
        let request =
            sign_request(&store.faulty(configuration), &Options::hash(Hash::Sha256), &sample(32));
        store.ask(&request).suffering(&store, "C_Sign:stop")
    };
    for invocation in [
        ask(store.configuration_with_pin()).without_variable("TOKEN_PIN"),
        ask(store.configuration_with_pin_source()),
    ] {
        let run = invocation.start(None);
        let process = format!("/proc/{}", run.pid().as_raw_nonzero());
        run.wait_until_stopped();
        let limits = fs::read_to_string(format!("{process}/limits")).unwrap();
        let core = limits.lines().find(|line| line.starts_with("Max core file size")).unwrap();
        assert_eq!(core.split_whitespace().nth(4), Some("0"), "{core}");
        kill_process(run.pid(), Signal::CONT).unwrap();
        run.finish().signature();
    }
}
