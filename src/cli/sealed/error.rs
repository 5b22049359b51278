//! Exit codes 3, 5, 6 and 7: files that can't be read or aren't for this token, and what isn't given.

use std::path::PathBuf;

use crate::error::{Failure, Help};
use crate::sealed::RegistryError;

#[derive(Debug, thiserror::Error)]
pub(in crate::cli) enum SealedCommandError {
    #[error("{}: {reason}", .path.display())]
    Config { path: PathBuf, reason: RegistryError },
    /// Another process uses the token all the time, or a library takes so long. kubelet would end the provider after 60
    /// seconds, without a reason in its log.
    #[error("the login was not there after {seconds} s, and kubelet doesn't wait longer")]
    Late { seconds: u64 },
    /// The node's key or certificate is another one than when the file was sealed, or the file is another node's. A token
    /// that shows no certificate and no public key needs `--certificate-file`.
    #[error("none of the recipients of {file} is a key of token {token}")]
    NoRecipient { file: String, token: String, recipients: Vec<String> },
    #[error("unsealing wants a person at a terminal, and there is none")]
    NoTerminal,
    #[error("no password was given for {registry}")]
    NoPassword { registry: String },
    /// `config.json` as `docker login` writes it, or a name and a password.
    #[error("there is nothing to seal: neither a config.json nor --registry is named")]
    NothingToSeal,
    #[error("the password on standard input is not one line of text")]
    Password,
    /// kubelet has no terminal, and standard input is its request.
    #[error("kubelet's provider can't have the PIN from {source_name}")]
    PinSource { source_name: &'static str },
    #[error("both {} and {} have an entry for {registry}", .files[0], .files[1])]
    Twice { registry: String, files: [String; 2] },
    #[error("{}: {reason}", .path.display())]
    Unreadable { path: PathBuf, reason: String },
}

impl Failure for SealedCommandError {
    fn exit_code(&self) -> u8 {
        match self {
            Self::Late { .. } => 5,
            Self::NoRecipient { .. } => 6,
            Self::NoTerminal => 7,
            Self::Config { .. }
            | Self::NoPassword { .. }
            | Self::NothingToSeal
            | Self::Password
            | Self::PinSource { .. }
            | Self::Twice { .. }
            | Self::Unreadable { .. } => 3,
        }
    }

    fn remedy(&self) -> Help {
        match self {
            Self::Config { reason, .. } => return reason.remedy(),
            Self::NoRecipient { recipients, .. } => {
                return Help::from(
                    "seal the passwords to the certificate of a key of this token, or name that certificate with \
                     --certificate-file; the file is for:",
                )
                .with_candidates(recipients);
            }
            Self::Late { .. } => {
                "see which process uses the token; kubelet asks again with the next image pull"
            }
            Self::NoTerminal => {
                "run it at a terminal; `check --sealed FILE` says without one whether the file can be opened"
            }
            Self::PinSource { .. } => {
                "write --pin-source file:/path or env:NAME; `kubelet-config` shows how systemd keeps it encrypted"
            }
            Self::Twice { .. } => "name only one file with that registry, or seal them together",
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
