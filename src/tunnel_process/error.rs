//! Exit code 9: the tunnel process can't be started, reached or made to serve a cluster.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use crate::error::{Failure, Help, PROGRAM, THIS_KUBECONFIG, remedy};

#[derive(Debug, thiserror::Error)]
pub enum TunnelProcessError {
    /// Two entries of a kubeconfig, or of two, have the same local address, or one has changed while it was in use.
    #[error(
        "{address} leads to cluster \"{served}\" ({server}) already, whose server, CA, tls-server-name or \
         proxy-url is another than that of \"{wanted}\""
    )]
    AddressOfAnother { address: SocketAddr, served: String, server: String, wanted: String },
    /// The program that ran the plugin has ended meanwhile, belongs to another user, or runs in another container.
    #[error("the program that asked for the credential can't be watched: {reason}")]
    Caller { reason: String },
    /// A library that others than root can change could read the PINs of the keys beside it.
    #[error(
        "the tunnel process has {} loaded, and loads {} beside it only if nobody but root can change either",
        .loaded.display(), .wanted.display()
    )]
    LibraryOfOwn { loaded: PathBuf, wanted: PathBuf },
    /// It was stopped or killed, or has crashed.
    #[error("the tunnel process has ended before it answered")]
    Lost,
    #[error("no place for the control socket: {reason}")]
    NoPlace { reason: String },
    #[error("the tunnel process can't be started: {reason}")]
    NotStarted { reason: String },
    /// It hangs, serves as many connections as it can, or is of another build of this program.
    #[error("the tunnel process can't be reached at {}: {reason}", .path.display())]
    Unreachable { path: PathBuf, reason: io::Error },
}

impl TunnelProcessError {
    pub fn caller(reason: impl ToString) -> Self {
        let reason = reason.to_string();
        Self::Caller { reason }
    }
}

impl Failure for TunnelProcessError {
    fn exit_code(&self) -> u8 {
        9
    }

    fn remedy(&self) -> Help {
        match self {
            Self::AddressOfAnother { .. } => remedy!(
                "give one of them another address: `",
                format!("{PROGRAM} kubeconfig --write{THIS_KUBECONFIG}"),
                " --context NAME`; or end what is served with `",
                format!("{PROGRAM} stop"),
                "`"
            ),
            Self::Caller { .. } => {
                remedy!("run the command again, outside of the container if it is in one")
            }
            Self::Lost => remedy!("run the command again"),
            Self::NoPlace { .. } => remedy!(
                "see that one of those directories is yours alone (mode 0700) and its disk is not \
                 full; where there is none, set XDG_RUNTIME_DIR to one"
            ),
            Self::NotStarted { .. } => remedy!(
                "the system lacks something: memory, processes, or open files (`ulimit -u`, \
                 `ulimit -n`)"
            ),
            Self::LibraryOfOwn { .. } => remedy!(
                "end what is served with `",
                format!("{PROGRAM} stop"),
                "` and run the command again; or give the library and the directories above it to root"
            ),
            Self::Unreachable { .. } => {
                remedy!("end it with `", format!("{PROGRAM} stop"), "`, and run the command again")
            }
        }
    }
}
