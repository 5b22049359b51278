//! Errors of several commands.

use crate::error::{Error, Exit};
use crate::kubeconfig::write_command;

/// Arguments don't go together.
pub(super) fn needs(argument: &str, other: &str) -> Error {
    Error::new(Exit::Request, format!("missing argument: {argument} needs {other}"))
        .help("--help shows what goes with what")
}

/// The entries of a kubeconfig are of no use here.
pub(super) fn foreign_entry(what: impl Into<String>) -> Error {
    Error::new(Exit::Configuration, what).help(format!(
        "have the context's entries written for this user on this machine: {}",
        write_command("NAME")
    ))
}

/// `kubeconfig --write` makes it.
pub(super) fn no_identity() -> Error {
    foreign_entry("this user has no tunnel.pem, by which clients know the tunnel")
}

/// `kubectl apply -f -` needs it for the manifest.
pub(super) fn standard_input_is_the_clients() -> Error {
    Error::new(Exit::Configuration, "pinSource is stdin, and standard input is the client's")
        .help("choose another pinSource (--pin-source): prompt, askpass, file:/path or env:NAME")
}
