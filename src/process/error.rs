//! What this process and the command of a run can fail with.

use std::ffi::OsString;
use std::fmt;
use std::io;

use crate::error::{Failure, Remedy};

/// Exit code 2: the answer has nowhere to go.
#[derive(Debug, thiserror::Error)]
pub enum AnswerError {
    /// Standard output was closed before the program started.
    #[error("standard output is closed: the answer has nowhere to go")]
    Closed,
    #[error("the answer could not be written to standard output: {0}")]
    Lost(io::Error),
    /// There is no descriptor left under which it could be kept from the library.
    #[error("standard output can't be set aside: {0}")]
    NotSetAside(io::Error),
}

impl Failure for AnswerError {
    fn exit_code(&self) -> u8 {
        2
    }

    fn remedy(&self) -> Remedy {
        Remedy::new(match self {
            Self::Closed | Self::Lost(_) => {
                "run the program with a standard output that stays open until it ends"
            }
            Self::NotSetAside(_) => {
                "too many files are open for the limit: raise it (`ulimit -n`), or start the \
                 program with fewer open"
            }
        })
    }
}

/// Why a command was not run: exit codes 126 and 127 as a shell has them, otherwise 9.
#[derive(Debug)]
pub enum RunError {
    /// A connection of the command's to one of so many ports.
    Accept {
        reason: io::Error,
        ports: usize,
    },
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
    /// A port that the command is to connect to, of so many.
    Listener {
        reason: io::Error,
        ports: usize,
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
    /// Of open files, in this process or on the whole machine.
    pub fn is_shortage(&self) -> bool {
        /// On Linux and on macOS; the standard library has no kind for them.
        const ENFILE: i32 = 23;
        const EMFILE: i32 = 24;
        match self {
            Self::Accept { reason, .. } | Self::Listener { reason, .. } => {
                matches!(reason.raw_os_error(), Some(ENFILE | EMFILE))
            }
            _ => false,
        }
    }
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Accept { reason, .. } => {
                write!(f, "a connection of the command has to wait: {reason}")
            }
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
            Self::Listener { reason, .. } => write!(f, "no port on 127.0.0.1: {reason}"),
            Self::NothingToServe { kubeconfig, .. } => write!(
                f,
                "no context of {kubeconfig} has a user with auth-provider externalSigner"
            ),
            Self::Preparation { reason } => write!(f, "the tunnel can't be made: {reason}"),
        }
    }
}

impl std::error::Error for RunError {}

impl Failure for RunError {
    fn exit_code(&self) -> u8 {
        match self {
            Self::Command { .. } => 126,
            Self::CommandNotFound { .. } => 127,
            Self::Accept { .. }
            | Self::Directory { .. }
            | Self::Listener { .. }
            | Self::Preparation { .. } => 9,
            Self::Interrupted { signal } => u8::try_from(128 + signal).unwrap_or(128),
            Self::NothingToServe { .. } => 3,
        }
    }

    fn remedy(&self) -> Remedy {
        Remedy::new(match self {
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
            Self::Accept { ports, .. } | Self::Listener { ports, .. } if self.is_shortage() => {
                return Remedy::new(format!(
                    "the run needs a port for each cluster, {ports} of them, and an open file for \
                     each: raise the limit (`ulimit -n`), or name one context with --only-context"
                ));
            }
            Self::Accept { .. } | Self::Listener { .. } => {
                "check that this user may listen on 127.0.0.1"
            }
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
