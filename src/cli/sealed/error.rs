//! Exit code 3: files that can't be read, and passwords that aren't given.

use std::path::PathBuf;

use crate::error::{Failure, Remedy};
use crate::sealed::RegistryError;

#[derive(Debug, thiserror::Error)]
pub(in crate::cli) enum SealedCommandError {
    #[error("{}: {reason}", .path.display())]
    Config {
        path: PathBuf,
        reason: RegistryError,
    },
    #[error("no password was given for {registry}")]
    NoPassword { registry: String },
    /// `config.json` as `docker login` writes it, or a name and a password.
    #[error("there is nothing to seal: neither a config.json nor --registry is named")]
    NothingToSeal,
    #[error("the password on standard input is not one line of text")]
    Password,
    #[error("{}: {reason}", .path.display())]
    Unreadable { path: PathBuf, reason: String },
}

impl Failure for SealedCommandError {
    fn exit_code(&self) -> u8 {
        3
    }

    fn remedy(&self) -> Remedy {
        match self {
            Self::Config { reason, .. } => return reason.remedy(),
            Self::NoPassword { .. } => {
                "enter it at the prompt, or write it to standard input, in one line"
            }
            Self::NothingToSeal => {
                "name docker's config.json, or --registry HOST and --username USER"
            }
            Self::Password => "write the password to standard input, in one line and nothing else",
            Self::Unreadable { .. } => "name a file that is there and that you may read",
        }
        .into()
    }
}
