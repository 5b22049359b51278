//! Exit code 3: what keeps a client from the cluster before the key is used.

use crate::error::{Failure, Help, PROGRAM, THIS_KUBECONFIG, remedy};
use crate::printable::shell_word;

#[derive(Debug, thiserror::Error)]
pub(super) enum ClientError {
    /// It was moved or removed, or is no file that this user may run. A name without a slash is looked for
    /// in `PATH`.
    #[error("the plugin's command {command} is no program that can be run")]
    Command { command: String, context: String },
    #[error("the user has {field}, which clients use without running the plugin")]
    OtherCredential { field: &'static str },
    /// `apiVersion` and `interactiveMode` of the user's `exec`.
    #[error("clients refuse the plugin of user \"{user}\": {problem}")]
    Refused { user: String, problem: String, context: String },
}

impl Failure for ClientError {
    fn exit_code(&self) -> u8 {
        3
    }

    fn remedy(&self) -> Help {
        match self {
            Self::Command { context, .. } | Self::Refused { context, .. } => write_again(context),
            Self::OtherCredential { .. } => "take it out of the user's entry".into(),
        }
    }
}

/// Have the entries of the context written anew.
pub(super) fn write_again(context: &str) -> Help {
    remedy!(
        "have the context's entries written again: `",
        format!("{PROGRAM} kubeconfig --write{THIS_KUBECONFIG}"),
        format!(" --context {}`", shell_word(context))
    )
}
