//! The commands of docs/tokens.md, and of docs/tpm.md, run as they stand.

use crate::fixture::*;

/// The `sh` blocks below a heading.
pub(super) fn blocks(heading: &str) -> Vec<String> {
    blocks_of("docs/tokens.md", heading, "sh")
}

/// A block in this store's directory, exactly as it is printed, for [`typing`].
pub(super) fn follow(store: &Store, block: &str) -> Invocation {
    following(Invocation::new(store.directory.path()), store, block)
}

fn following(invocation: Invocation, store: &Store, block: &str) -> Invocation {
    let directory = store.directory.path();
    let program = Path::new(PROGRAM).parent().unwrap().display();
    let script = format!(
        "set -eu\ncd {}\nPATH=$PATH:\"{program}\"\nexec </dev/tty >/dev/tty 2>&1\n{block}",
        directory.display()
    );
    invocation.within("bash", &script)
}

/// Runs it at a terminal, and types the PIN wherever the block asks for it; what the terminal has shown.
pub(super) fn typing(invocation: Invocation, block: &str, pin: &str) -> String {
    let asked = ["--login ", "enroll ", "read -rs "].map(|it| block.matches(it).count());
    let mut terminal = invocation.at_terminal();
    for _ in 0..asked.iter().sum() {
        terminal.expect("PIN").expect(": ");
        wait_until("the echo goes off", || !terminal.echoes());
        terminal.type_line(pin);
    }
    let (outcome, screen) = terminal.finish();
    assert!(outcome.status.success(), "{screen}");
    screen
}

/// The cluster's CA issues jane.pem for jane.csr, and makes her an administrator.
pub(super) fn issue(store: &Store) {
    let [authority, authority_key] = cluster().authority();
    let subject = ["-subj", "/O=system:masters/CN=jane"];
    certify(&store.path("jane.csr"), [&authority, &authority_key], 30, "", &subject);
}

/// Demands a kubeconfig's user that names this object.
#[track_caller]
pub(super) fn assert_names(printed: &str, object: &str) {
    let named = format!("--object-id={object}");
    assert!(printed.contains(&named), "no {named} in\n{printed}");
    assert!(printed.contains("- name: jane"), "{printed}");
}

#[test]
fn a_key_is_made_and_certified_with_its_module() {
    let store = token_with([]);
    let [make, certify] = &blocks("A key and its certificate")[..] else {
        panic!("another number of blocks")
    };
    let run = |block| {
        let invocation = follow(&store, block).variable("module", softhsm_library());
        typing(invocation.variable("token", "test token"), block, PIN)
    };
    run(make);
    issue(&store);
    assert_names(&run(certify), "16");
    let configuration = store.configuration_with_pin_source().with("objectId", "0x10");
    let get = ["--", "kubectl", "get", "namespace", "default", "-o", "name"];
    assert_eq!(cluster().run(&store, &configuration, &get).run().printed(), "namespace/default\n");
}
