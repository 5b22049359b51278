//! The wire of kubelet's credential provider plugins, as data: one request, one response.
//!
//! Source: KEP-2133 and kubelet's `pkg/credentialprovider/plugin`. It knows no file and no token.

mod error;
mod image;
mod request;
mod response;

pub use error::ProviderRequestError;
pub use image::{Image, best};
pub use request::{LONGEST_REQUEST, ProviderRequest};
pub use response::{ProviderAnswer, ProviderLogin};

/// The versions of credentialprovider.kubelet.k8s.io. The response has that of the request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ProviderVersion {
    V1Alpha1,
    V1Beta1,
    V1,
}

impl ProviderVersion {
    pub const ALL: [Self; 3] = [Self::V1Alpha1, Self::V1Beta1, Self::V1];

    /// The version of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.name() == name)
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::V1Alpha1 => "credentialprovider.kubelet.k8s.io/v1alpha1",
            Self::V1Beta1 => "credentialprovider.kubelet.k8s.io/v1beta1",
            Self::V1 => "credentialprovider.kubelet.k8s.io/v1",
        }
    }
}
