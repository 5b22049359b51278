//! Arguments that don't go together, entries that a credential can't be made for, and requests that can't be
//! approved.

use crate::error::{Failure, Help, PROGRAM, Setting, THIS_KUBECONFIG, remedy};

#[derive(Debug, thiserror::Error)]
#[error("missing argument: {argument} needs {other}")]
pub(crate) struct ArgumentNeeds {
    pub(crate) argument: &'static str,
    pub(crate) other: &'static str,
}

impl Failure for ArgumentNeeds {
    fn exit_code(&self) -> u8 {
        2
    }

    fn remedy(&self) -> Help {
        remedy!("--help", " shows what goes with what")
    }
}

/// Exit code 3, 2 for options that don't go together, or 9 for what a cluster has answered.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CredentialError {
    #[error("both --context and other options name the key")]
    KeyNamedTwice,
    #[error(
        "the client doesn't say which cluster it wants, and the kubeconfig has none for this program"
    )]
    NoClusters,
    /// `kubeconfig --write` makes it; the kubeconfig of another user or machine is of no use here.
    #[error("this user has no tunnel.pem, by which clients know the tunnel")]
    NoIdentity,
    /// The cluster is used with a user that another context is for.
    #[error("the cluster's server {server} is no address of this machine")]
    NotLocal { server: String },
    /// A kubeconfig was copied, or `tunnel.pem` was removed.
    #[error("the cluster's entry for {server} was written on another machine or for another user")]
    OfAnother { server: String },
    /// `kubectl apply -f -` needs it for the manifest.
    #[error("pinSource is stdin, and standard input is the client's")]
    StandardInput,
}

impl Failure for CredentialError {
    fn exit_code(&self) -> u8 {
        match self {
            Self::KeyNamedTwice => 2,
            Self::NoClusters
            | Self::NoIdentity
            | Self::NotLocal { .. }
            | Self::OfAnother { .. }
            | Self::StandardInput => 3,
        }
    }

    fn remedy(&self) -> Help {
        match self {
            Self::KeyNamedTwice => remedy!("leave one of them out"),
            Self::NoClusters => remedy!(
                "set provideClusterInfo of the user's exec to true, or have the entry name the client's \
                 kubeconfig: `",
                format!("{PROGRAM} kubeconfig --write{THIS_KUBECONFIG}"),
                " --context NAME --kubeconfig FILE`"
            ),
            Self::NoIdentity | Self::NotLocal { .. } | Self::OfAnother { .. } => remedy!(
                "have the context's entries written for this user on this machine: `",
                format!("{PROGRAM} kubeconfig --write{THIS_KUBECONFIG}"),
                " --context NAME`"
            ),
            Self::StandardInput => remedy!(
                "choose another ",
                Setting("pinSource"),
                ": prompt, askpass, file:/path or env:NAME"
            ),
        }
    }
}
