//! What this process, and the command of a run, can fail with.

use std::ffi::OsStr;
use std::fmt::Display;
use std::io;

use crate::error::{Error, Exit, PROGRAM};

/// The answer has nowhere to go.
pub fn answer_lost(error: &io::Error) -> Error {
    Error::new(
        Exit::Request,
        format!("the answer could not be written to standard output: {error}"),
    )
    .help("run the program with a standard output that stays open until it ends")
}

/// The system lacks what a tunnel needs.
pub fn preparation(reason: impl Display) -> Error {
    Error::new(Exit::Cluster, format!("the tunnel can't be made: {reason}")).help(
        "this says that the system lacks something: memory, threads, or open files (`ulimit -n`)",
    )
}

pub fn command_not_found(name: &OsStr) -> Error {
    Error::new(Exit::NotFound, format!("{}: command not found", name.display()))
        .help(format!(
            "check its spelling and PATH; the command follows `--`, as in `{PROGRAM} run -- kubectl get pods`"
        ))
}
