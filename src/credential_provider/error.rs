//! Exit code 2: standard input holds no request that this program understands.

use crate::error::{Failure, Help};

#[derive(Debug, thiserror::Error)]
pub enum ProviderRequestError {
    #[error("unsupported apiVersion \"{0}\" of the request")]
    ApiVersion(String),
    #[error("malformed or missing field {0} of the request")]
    Field(&'static str),
    /// kubelet asks for an image without its tag and digest, with the registry before it: `docker.io/library/nginx`.
    #[error("the request's image \"{image}\" {problem}")]
    Image { image: String, problem: &'static str },
    #[error("unknown kind \"{0}\" of the request")]
    Kind(String),
    #[error("the request on standard input is longer than a request of kubelet")]
    Long,
    #[error("the request on standard input is not valid JSON (line {line}, column {column})")]
    NotJson { line: usize, column: usize },
    #[error("the request on standard input can't be read: {0}")]
    Unreadable(String),
}

impl Failure for ProviderRequestError {
    fn exit_code(&self) -> u8 {
        2
    }

    fn remedy(&self) -> Help {
        match self {
            Self::ApiVersion(_) | Self::Kind(_) => {
                "set apiVersion of the provider to credentialprovider.kubelet.k8s.io/v1 (or v1beta1, or v1alpha1) in \
                 kubelet's CredentialProviderConfig"
            }
            Self::Field(_)
            | Self::Image { .. }
            | Self::Long
            | Self::NotJson { .. }
            | Self::Unreadable(_) => {
                "kubelet writes the request; by hand, `check --sealed FILE --image NAME` asks the same"
            }
        }
        .into()
    }
}
