//! Exit code 2: KUBERNETES_EXEC_INFO holds no request that this program understands.

use crate::error::{Failure, Help};

#[derive(Debug, thiserror::Error)]
pub enum ExecRequestError {
    #[error("KUBERNETES_EXEC_INFO: unsupported apiVersion \"{0}\"")]
    ApiVersion(String),
    #[error("KUBERNETES_EXEC_INFO: malformed field {field}")]
    Field { field: String },
    /// `ExecInfo` is that of the design from 2018, which no client speaks.
    #[error("KUBERNETES_EXEC_INFO: unknown kind \"{0}\"")]
    Kind(String),
    #[error("KUBERNETES_EXEC_INFO is not valid JSON (line {line}, column {column})")]
    NotJson { line: usize, column: usize },
    #[error("KUBERNETES_EXEC_INFO is not a JSON object")]
    NotObject,
    #[error("KUBERNETES_EXEC_INFO is not valid UTF-8")]
    NotUtf8,
}

impl Failure for ExecRequestError {
    fn exit_code(&self) -> u8 {
        2
    }

    fn remedy(&self) -> Help {
        match self {
            Self::ApiVersion(_) => {
                "set apiVersion of the user's exec to client.authentication.k8s.io/v1 (or v1beta1, \
                 or v1alpha1)"
            }
            Self::Kind(_) => "update the client: this program understands the kind ExecCredential",
            Self::Field { .. } | Self::NotJson { .. } | Self::NotObject | Self::NotUtf8 => {
                "the client sets this variable for its credential plugins; by hand, run the command \
                 without it"
            }
        }
        .into()
    }
}
