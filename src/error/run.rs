//! Why a command was not run: exit codes 126 and 127 as a shell has them, otherwise 9.

use std::ffi::OsString;
use std::fmt;
use std::io;

use super::Help;

#[derive(Debug)]
pub enum RunError {
    /// The command exists, but can't be started.
    Command {
        name: OsString,
        reason: io::Error,
    },
    CommandNotFound {
        name: OsString,
    },
    /// The directory for the command's kubeconfig.
    Directory {
        reason: String,
    },
    /// The interrupt came before the command was there to receive it.
    Interrupted {
        signal: i32,
    },
    /// The port that the command is to connect to.
    Listener {
        reason: String,
    },
    /// No context leads to a key in a token.
    NothingToServe {
        kubeconfig: String,
        inside: bool,
    },
    /// The run's own certificates, or the threads that serve it.
    Preparation {
        reason: String,
    },
}

impl RunError {
    pub(super) fn exit_code(&self) -> u8 {
        match self {
            Self::Command { .. } => 126,
            Self::CommandNotFound { .. } => 127,
            Self::Directory { .. } | Self::Listener { .. } | Self::Preparation { .. } => 9,
            Self::Interrupted { signal } => u8::try_from(128 + signal).unwrap_or(128),
            Self::NothingToServe { .. } => 3,
        }
    }

    pub(super) fn help(&self) -> Help {
        Help::new(match self {
            Self::Command { .. } => "check that it is a program that you may execute",
            Self::CommandNotFound { .. } => {
                "check its spelling and PATH; the command follows `run --`, as in \
                 `run -- kubectl get pods`"
            }
            Self::Directory { .. } => {
                "set XDG_RUNTIME_DIR to a directory of your own (mode 0700), and check that its \
                 disk is not full"
            }
            Self::Interrupted { .. } => "run the command again",
            Self::Listener { .. } => "check that this user may listen on 127.0.0.1",
            Self::NothingToServe { inside: true, .. } => {
                "this shell is inside a run already: start the command as it is"
            }
            Self::NothingToServe { .. } => {
                "name the file with --kubeconfig or KUBECONFIG, or make a context in \
                 it whose user has `auth-provider: {name: externalSigner, config: {pathLib: …, tokenLabel: …, \
                 objectId: …}}`"
            }
            Self::Preparation { .. } => {
                "this says that the system lacks something: memory, threads, or open files \
                 (`ulimit -n`)"
            }
        })
    }
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Command { name, reason } => {
                write!(f, "{} can't be started: {reason}", name.display())
            }
            Self::CommandNotFound { name } => write!(f, "{}: command not found", name.display()),
            Self::Directory { reason } => {
                write!(f, "no place for the command's kubeconfig: {reason}")
            }
            Self::Interrupted { signal } => {
                write!(
                    f,
                    "interrupted by signal {signal} before the command was started"
                )
            }
            Self::Listener { reason } => write!(f, "no port on 127.0.0.1: {reason}"),
            Self::NothingToServe { kubeconfig, .. } => write!(
                f,
                "no context of {kubeconfig} has a user with auth-provider externalSigner"
            ),
            Self::Preparation { reason } => write!(f, "the tunnel can't be made: {reason}"),
        }
    }
}
