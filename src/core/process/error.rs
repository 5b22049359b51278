//! What this process, and the command of a run, can fail with.

use std::ffi::OsString;
use std::io;

use crate::error::{Failure, Help, PROGRAM, THIS_KUBECONFIG, remedy};

/// The answer has nowhere to go.
#[derive(Debug, thiserror::Error)]
pub enum AnswerError {
    #[error("standard output is closed: the answer has nowhere to go")]
    Closed,
    /// *Broken pipe*: the client gave up, often after its 10 seconds for a handshake. Answer the prompt
    /// or touch the token faster.
    #[error("the answer could not be written to standard output: {0}")]
    Lost(io::Error),
    #[error("standard output can't be set aside: {0}")]
    NotSetAside(io::Error),
}

impl Failure for AnswerError {
    fn exit_code(&self) -> u8 {
        2
    }

    fn remedy(&self) -> Help {
        match self {
            Self::Closed | Self::Lost(_) => {
                "run the program with a standard output that stays open until it ends"
            }
            Self::NotSetAside(_) => {
                "too many files are open for the limit: raise it (`ulimit -n`), or start the \
                 program with fewer open"
            }
        }
        .into()
    }
}

/// Why a command was not run.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// *Permission denied*: not executable, a directory, or on a `noexec` mount. *Exec format error*:
    /// built for another machine, or a script without `#!`.
    #[error("{} can't be started: {reason}", .name.display())]
    Command { name: OsString, reason: io::Error },
    /// `run` doesn't know a shell's aliases and functions: `run -- bash -ic 'NAME …'`.
    #[error("{}: command not found", .name.display())]
    CommandNotFound { name: OsString },
    #[error("no place for the command's kubeconfig: {reason}")]
    Directory { reason: String },
    #[error("interrupted by signal {signal} before the command was started")]
    Interrupted { signal: i32 },
    /// Look at `ulimit -u`, `ulimit -n`, `free -m` and the container's limits.
    #[error("the tunnel can't be made: {reason}")]
    Preparation { reason: String },
}

impl Failure for RunError {
    fn exit_code(&self) -> u8 {
        match self {
            Self::Directory { .. } | Self::Preparation { .. } => 9,
            Self::Command { .. } => 126,
            Self::CommandNotFound { .. } => 127,
            Self::Interrupted { signal } => u8::try_from(128 + signal).unwrap_or(128),
        }
    }

    fn remedy(&self) -> Help {
        match self {
            Self::Command { .. } => "check that it is a program that you may execute",
            Self::CommandNotFound { .. } => {
                "check its spelling and PATH; the command follows `run --`, as in \
                 `run -- kubectl get pods`"
            }
            Self::Directory { .. } => {
                "see that one of those directories is yours alone (mode 0700) and its disk is not full; \
                 where there is none, set XDG_RUNTIME_DIR to one"
            }
            Self::Interrupted { .. } => "run the command again",
            Self::Preparation { .. } => {
                "this says that the system lacks something: memory, threads, or open files \
                 (`ulimit -n`)"
            }
        }
        .into()
    }
}

/// A file that stays can't be used.
#[derive(Debug, thiserror::Error)]
pub enum DataError {
    /// Clients know the tunnel by it. It is made once, by `kubeconfig --write`.
    #[error("the tunnel's own key can't be kept: {reason}")]
    NotKept { reason: String },
    /// Another user could have made it, and would then be taken for the tunnel.
    #[error("the tunnel's own key can't be used: {reason}")]
    NotRead { reason: String },
}

impl Failure for DataError {
    fn exit_code(&self) -> u8 {
        9
    }

    fn remedy(&self) -> Help {
        match self {
            Self::NotKept { .. } => remedy!(
                "see that your home can be written, that its disk is not full, and that this directory \
                 is yours alone (mode 0700)"
            ),
            Self::NotRead { .. } => remedy!(
                "see that the file and its directory are yours alone (modes 0600 and 0700); if in doubt, \
                     remove the file and have the contexts written again: `",
                format!("{PROGRAM} kubeconfig --write{THIS_KUBECONFIG}"),
                " --context NAME`"
            ),
        }
    }
}
