//! The tunnel process can't be started, reached or made to serve a cluster.

use std::io;
use std::path::Path;

use super::message::RegisteredCluster;
use super::status::ClusterStatus;
use crate::error::{Error, Exit};
use crate::kubeconfig::write_command;
use crate::tunnel::tunnel_error;

/// Two entries of a kubeconfig, or of two, have the same local address, or one has changed while it was in use.
pub fn address_of_another(wanted: &RegisteredCluster, served: &ClusterStatus) -> Error {
    tunnel_error(
        format!(
            "{} leads to cluster \"{}\" ({}) already, whose server, CA, tls-server-name or proxy-url is \
             another than that of \"{}\"",
            wanted.address, served.name, served.server, wanted.name
        ),
        format!(
            "give one of them another address: {}; or end what is served with `pkcs11-external-signer stop`",
            write_command("NAME")
        ),
    )
}

/// The entries of a kubeconfig are of no use here.
pub(super) fn foreign_entry(what: impl Into<String>) -> Error {
    Error::new(Exit::Configuration, what).help(format!(
        "have the context's entries written for this user on this machine: {}",
        write_command("NAME")
    ))
}

/// The program that ran the plugin has ended meanwhile, belongs to another user, or runs in another container.
pub fn caller_error(reason: &str) -> Error {
    tunnel_error(
        format!("the program that asked for the credential can't be watched: {reason}"),
        "run the command again, outside of the container if it is in one",
    )
}

/// A library that others than root can change could read the PINs of the keys beside it.
pub(super) fn other_library(loaded: &Path, wanted: &Path) -> Error {
    tunnel_error(
        format!(
            "the tunnel process has {} loaded, and loads {} beside it only if nobody but root can change either",
            loaded.display(),
            wanted.display()
        ),
        "end what is served with `pkcs11-external-signer stop` and run the command again; or give the library and \
         the directories above it to root",
    )
}

/// It was stopped or killed, or has crashed.
pub(super) fn lost() -> Error {
    tunnel_error("the tunnel process has ended before it answered", "run the command again")
}

pub(super) fn no_socket(reason: &str) -> Error {
    tunnel_error(
        format!("no place for the control socket: {reason}"),
        "see that one of those directories is yours alone (mode 0700) and its disk is not full; where there is \
         none, set XDG_RUNTIME_DIR to one",
    )
}

pub(super) fn not_started(reason: &io::Error) -> Error {
    tunnel_error(
        format!("the tunnel process can't be started: {reason}"),
        "the system lacks something: memory, processes, or open files (`ulimit -u`, `ulimit -n`)",
    )
}

/// It hangs, serves as many connections as it can, or is of another build of this program.
pub(super) fn unreachable(socket: &Path, reason: &io::Error) -> Error {
    tunnel_error(
        format!("the tunnel process can't be reached at {}: {reason}", socket.display()),
        "end it with `pkcs11-external-signer stop`, and run the command again",
    )
}
