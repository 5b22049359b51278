//! `run`: stock kubectl, and what else one runs, against a real API server with a key in a token.

use crate::fixture::*;

mod answers;
mod askpass;
mod endings;
mod gate;
mod goaway;
mod identities;
mod kubeconfigs;
mod kubectl;
mod proxies;
mod renewed;
mod signatures;
mod silence;
mod streaming;
mod terminal;
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
    store.file("changed", config.to_string(), 0o600).into_os_string().into_string().unwrap()
}

/// The kubeconfig of a run, which there is then.
fn written(store: &Store) -> Value {
    drop(run(store, &["true"]));
    read_json(store.path("kubeconfig"))
}

/// The directories of runs that are there.
fn left_behind(store: &Store) -> Vec<PathBuf> {
    // The first run makes it.
    let place = fs::read_dir(store.path("runtime/pkcs11-external-signer"));
    let entries = place.into_iter().flatten().map(|entry| entry.unwrap().path());
    entries.filter(|path| path.is_dir()).collect()
}
