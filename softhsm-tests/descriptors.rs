//! What the programs that this one starts inherit: their standard streams, and nothing of ours, of
//! the library's, or of the caller's. Only the command of a run gets what the caller handed on.

use crate::fixture::*;

/// Tells which descriptors a program has; one more is of the look itself.
const LOOK: &str = "ls /proc/self/fd | sort -n | tr '\\n' ' '";
/// The library holds a socket to its service, say, and did not think of programs.
const LEAK: &str = "C_Initialize:leak,C_OpenSession:leak";
const STANDARD: &str = "0 1 2 3 ";

/// The program, called with descriptors of the caller's.
fn called_with_more(invocation: Invocation, arguments: &str) -> Invocation {
    let script = format!("exec 5<<<five 7>\"$HOME/marker\"; exec \"$SIGNER\" {arguments}");
    invocation.within("bash", &script)
}

/// A program of this name in a directory of its own, which writes down what it has.
fn looking(store: &Store, name: &str, script: &str) -> PathBuf {
    let directory = store.path("programs");
    fs::create_dir_all(&directory).unwrap();
    let path = directory.join(name);
    write_file(&path, format!("#!/bin/sh\n{LOOK} > \"$HOME/seen\"\n{script}\n"), 0o755);
    path
}

fn seen(store: &Store) -> String {
    fs::read_to_string(store.path("seen")).unwrap()
}

#[test]
fn who_asks_for_the_pin_has_its_standard_streams() {
    let store = token_with_pair(Kind::P256);
    let configuration = store.faulty(store.configuration().with("pinSource", "askpass"));
    let asking = looking(&store, "ask", &format!("echo {PIN}"));
    let by_program = store
        .sign_with(&configuration)
        .suffering(&store, LEAK)
        .variable("PKCS11_EXTERNAL_SIGNER_ASKPASS", asking);
    assert_signed(&called_with_more(by_program, "").run());
    assert_eq!(seen(&store), STANDARD);

    let dialogue = "while read -r word _; do [ $word != GETPIN ] || echo D";
    looking(&store, "pinentry", &format!("echo OK; {dialogue} {PIN}; echo OK; done"));
    let path = format!("{}/programs:/usr/bin:/bin", store.directory.path().display());
    let by_pinentry =
        store.sign_with(&configuration).suffering(&store, LEAK).variable("PATH", path);
    assert_signed(&called_with_more(by_pinentry, "").run());
    assert_eq!(seen(&store), STANDARD);
}

#[test]
fn a_runs_command_has_what_was_handed_on_and_who_asks_for_its_pin_has_not() {
    let store = token_with_pair(Kind::P256);
    let configuration = store.faulty(store.configuration().with("pinSource", "askpass"));
    let asking = looking(&store, "ask", &format!("echo {PIN}"));
    let run = store
        .with_kubeconfig(&configuration)
        .suffering(&store, LEAK)
        .variable("PKCS11_EXTERNAL_SIGNER_ASKPASS", asking)
        .variable("LOOK", format!("cat <&5; {LOOK}"));
    let outcome = called_with_more(run, "run -- sh -c \"$LOOK\"").run();
    assert_eq!(outcome.printed(), "five\n0 1 2 3 5 7 ");
    assert_eq!(seen(&store), STANDARD);
}

/// `list` has each library looked at by a process of its own.
#[test]
fn a_process_that_looks_at_a_library_has_nothing_of_the_callers() {
    // An ordinary user can't look into a process that hides its memory.
    needs_isolation!();
    let store = token_with_pair(Kind::P256);
    let library = serde_json::to_value(store.faulty(store.configuration())).unwrap();
    let registry = store.path(".config/pkcs11/modules");
    fs::create_dir_all(&registry).unwrap();
    let registration = format!("module: {}\n", library["pathLib"].as_str().unwrap());
    fs::write(registry.join("faulty.module"), registration).unwrap();
    let list = store.command(&[]).suffering(&store, "C_Initialize:stop");
    let running = called_with_more(list, "list").start(None);
    let looked_at = child_with(&library["pathLib"], running.pid());
    let own = |link: &PathBuf| link.starts_with(store.path("marker"));
    assert!(open_files(running.pid()).iter().any(own));
    let links = open_files(looked_at);
    assert!(!links.is_empty() && !links.iter().any(own), "{links:?}");
    kill_process(looked_at, Signal::CONT).unwrap();
    running.finish().printed();
}

/// The child that has loaded this library, and stands still.
fn child_with(library: &Value, parent: Pid) -> Pid {
    let library = library.as_str().unwrap();
    let parent = parent.as_raw_nonzero().to_string();
    wait_for("a child that has loaded the library", || {
        let output = tool("pgrep", "procps").args(["-r", "T", "-P", &parent]).output().unwrap();
        let children = String::from_utf8(output.stdout).unwrap();
        let loaded = children.lines().find(|child| {
            fs::read_to_string(format!("/proc/{child}/maps"))
                .is_ok_and(|maps| maps.contains(library))
        });
        Pid::from_raw(loaded?.parse().unwrap())
    })
}
