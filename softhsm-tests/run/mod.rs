//! `run`: stock kubectl, and what else one runs, against a real API server with a key in a token.

use crate::fixture::*;

/// What a command is told by the tunnel.
mod answers;
/// PINs from a program, over several connections.
mod askpass;
/// How a run ends, and what it leaves.
mod endings;
/// Who is let in.
mod gate;
/// Connections that the server ends.
mod goaway;
/// As whom the command acts.
mod identities;
/// Which contexts are led through tunnels.
mod kubeconfigs;
/// What kubectl does.
mod kubectl;
/// Clusters behind a proxy.
mod proxies;
/// Signatures, sessions and PINs.
mod signatures;
/// Servers and tokens that take their time.
mod silence;
/// What is streamed to a kubelet and back.
pub(crate) mod streaming;
/// A run at a terminal.
mod terminal;
/// What fails on a connection, and how it is reported.
pub(crate) mod trouble;

/// A run with the PIN from the environment.
fn run(store: &Store, arguments: &[&str]) -> Invocation {
    cluster().run(store, &store.configuration_with_pin_source(), arguments)
}

/// The same through the library that keeps a record.
fn run_recorded(store: &Store, faults: &str, arguments: &[&str]) -> Invocation {
    let configuration = store.faulty(store.configuration_with_pin_source());
    cluster().run(store, &configuration, arguments).suffering(store, faults)
}

/// The kubeconfig of the run before with this change, as a file of its own.
fn changed_kubeconfig(store: &Store, change: impl FnOnce(&mut Value)) -> String {
    let mut config = read_json(store.path("kubeconfig"));
    change(&mut config);
    let file = store.file("changed", config.to_string(), 0o600);
    file.into_os_string().into_string().unwrap()
}

/// The kubeconfig of a run, which there is then.
fn written(store: &Store) -> Value {
    drop(run(store, &["true"]));
    read_json(store.path("kubeconfig"))
}

/// The directories of runs that are there.
fn left_behind(store: &Store) -> Vec<PathBuf> {
    let place = store.path("runtime/pkcs11-external-signer");
    fs::read_dir(place)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_dir())
        .collect()
}
