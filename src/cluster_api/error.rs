//! Exit codes 9 and 2: an API server that refuses, a kubectl that can't ask it, and a name that no request has.

use std::io;
use std::process::ExitStatus;

use crate::error::{Error, Failure, Help};

/// Why there is no object.
#[derive(Debug)]
pub enum ApiError {
    /// The server answered with an error.
    Refused(Box<RefusedRequest>),
    /// There is no answer.
    Failed(Error),
}

/// The API server answered with an error (a Status).
#[derive(Debug, thiserror::Error)]
#[error("{cluster}: the API server refuses to {purpose}: {message}")]
pub struct RefusedRequest {
    /// The cluster in messages.
    pub cluster: String,
    /// What the request was for.
    pub purpose: String,
    /// The HTTP status. Where kubectl doesn't tell it, the one that the reason stands for.
    pub code: Option<u16>,
    /// A word such as `NotFound`, `Conflict` or `Forbidden`; may be empty.
    pub reason: String,
    pub message: String,
    /// The texts of the answer's Warning headers.
    pub warnings: Vec<String>,
}

impl RefusedRequest {
    /// Whether the server named this reason.
    pub fn is(&self, reason: &str) -> bool {
        self.reason == reason
    }
}

impl Failure for RefusedRequest {
    fn exit_code(&self) -> u8 {
        9
    }

    fn remedy(&self) -> Help {
        match self.reason.as_str() {
            "Forbidden" => {
                "have an administrator of the cluster allow this user what the message names (RBAC)"
            }
            "Unauthorized" => {
                "renew what this user authenticates with: `kubectl auth whoami` must succeed first"
            }
            "NotFound" => {
                "check the name, and that the cluster has this API: `kubectl api-resources`"
            }
            "Conflict" | "AlreadyExists" => "look at the object as it is now, and try again",
            _ => "correct what the message names; the API server's log may tell more",
        }
        .into()
    }
}

impl From<ApiError> for Error {
    fn from(error: ApiError) -> Self {
        match error {
            ApiError::Refused(refused) => (*refused).into(),
            ApiError::Failed(error) => error,
        }
    }
}

impl From<Error> for ApiError {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl From<KubectlError> for ApiError {
    fn from(error: KubectlError) -> Self {
        Self::Failed(error.into())
    }
}

impl From<UnusableName> for ApiError {
    fn from(error: UnusableName) -> Self {
        Self::Failed(error.into())
    }
}

#[derive(Debug, thiserror::Error)]
#[error("\"{name}\" can't be the name of a CertificateSigningRequest")]
pub struct UnusableName {
    pub(super) name: String,
}

impl Failure for UnusableName {
    fn exit_code(&self) -> u8 {
        2
    }

    fn remedy(&self) -> Help {
        "give the name that `kubectl get certificatesigningrequests` shows".into()
    }
}

impl From<UnusableAnswer> for ApiError {
    fn from(error: UnusableAnswer) -> Self {
        Self::Failed(error.into())
    }
}

/// The answer is not the object that was asked for: a proxy or a login page, or a kubectl that is a wrapper
/// and prints more.
#[derive(Debug, thiserror::Error)]
#[error("{cluster}: the answer to the request to {purpose} is none of an API server's: {reason}")]
pub struct UnusableAnswer {
    pub cluster: String,
    pub purpose: String,
    pub reason: String,
}

impl Failure for UnusableAnswer {
    fn exit_code(&self) -> u8 {
        9
    }

    fn remedy(&self) -> Help {
        "check that the cluster's server is an API server, and that the kubectl in PATH is Kubernetes's own"
            .into()
    }
}

/// kubectl, which asks the cluster with the person's credentials, didn't.
#[derive(Debug, thiserror::Error)]
pub enum KubectlError {
    /// The server can't be reached, or a credential plugin failed. What kubectl and its plugins wrote
    /// stands before.
    #[error("{cluster}: kubectl could not {purpose}: {message}")]
    Failed { cluster: String, purpose: String, message: String },
    #[error("there is no kubectl in PATH to ask the cluster with")]
    Missing,
    #[error("kubectl can't be run: {0}")]
    NotStarted(io::Error),
    /// A login that nobody completes, or a server that doesn't answer.
    #[error("{cluster}: kubectl took longer than {seconds} s to {purpose}")]
    TimedOut { cluster: String, purpose: String, seconds: u64 },
}

impl KubectlError {
    /// What a kubectl that said nothing of an error has told by its end.
    pub(super) fn silent(status: ExitStatus) -> String {
        format!("it ended with {status} and said nothing")
    }
}

impl Failure for KubectlError {
    fn exit_code(&self) -> u8 {
        9
    }

    fn remedy(&self) -> Help {
        match self {
            Self::Failed { .. } | Self::TimedOut { .. } => {
                "`kubectl auth whoami` with this context must succeed first"
            }
            Self::Missing => {
                "install kubectl (https://kubernetes.io/docs/tasks/tools/), or add its folder to PATH"
            }
            Self::NotStarted(_) => "check which kubectl is found in PATH: `type kubectl`",
        }
        .into()
    }
}
