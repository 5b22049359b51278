//! The registry's password: the answer has it, and nothing else that others can see. That it is in no message and not in
//! kubelet's log is looked at wherever a test asks for one.

use super::{IMAGE, V1, faulty_provider, node, request, sealed};
use crate::fixture::*;
use crate::secrecy::{AT_ITS_END, PIN as PASSWORD, traces_of};

/// So that the program, when it has answered, waits to be looked at.
fn answering(store: &Store, kind: Kind, fault: &str) -> Invocation {
    let config =
        json!({"auths": {"registry.example:5000": {"username": "nodes", "password": PASSWORD}}});
    let file = sealed(store, "registry.cms", &config.to_string(), &[kind]);
    let _ = fs::remove_file(store.path("config.json"));
    faulty_provider(store, &file, fault).piped(request(IMAGE, V1))
}

#[test]
fn it_is_in_no_memory_once_kubelet_has_it_nor_in_arguments_and_environment() {
    needs_isolation!();
    for kind in [Kind::Rsa(2048), Kind::P256] {
        let store = node(kind);
        let running = answering(&store, kind, AT_ITS_END).start(None);
        wait_until_stopped(running.pid());
        let process = format!("/proc/{}", running.pid().as_raw_nonzero());
        for name in ["cmdline", "environ", "status"] {
            let bytes = fs::read(format!("{process}/{name}")).unwrap();
            let text = String::from_utf8_lossy(&bytes);
            assert!(!text.is_empty() && !text.contains(PASSWORD), "{name}: {text}");
        }
        let found = traces_of(&[PASSWORD], running.pid());
        assert!(found.is_empty(), "{kind:?}: {found:#?}");
        let outcome = running.finish();
        let auth = &outcome.answer()["auth"]["registry.example:5000"];
        assert_eq!(auth["password"], PASSWORD);
        assert!(outcome.stderr.is_empty(), "{}", outcome.stderr);
    }
}

/// That this machine leaves any is shown by `secrecy::no_core_file_is_left`.
#[test]
fn it_is_in_no_core_file() {
    let (kind, store) = (Kind::P256, node(Kind::P256));
    let script = "cd \"$HOME\"; ulimit -c unlimited; exec \"$@\"";
    let answering = answering(&store, kind, AT_ITS_END).through("sh", &["-c", script, "sh"]);
    let running = answering.start(None);
    wait_until_stopped(running.pid());
    for signal in [Signal::QUIT, Signal::CONT] {
        kill_process(running.pid(), signal).unwrap();
    }
    let outcome = running.finish();
    assert_eq!(outcome.status.signal(), Some(Signal::QUIT.as_raw()), "{outcome:?}");
    assert!(!outcome.status.core_dumped());
}
