//! The wire of client-go's exec credential plugins, as data: one request, one answer.
//!
//! Source: KEP-541, "External credential providers", and client-go's
//! `pkg/apis/clientauthentication`. It knows no environment and no file. No error quotes a value of
//! the request: a proxy's URL can hold a password.

#![forbid(unsafe_code)]

mod error;
mod request;

pub use error::ExecRequestError;
pub use request::{ExecRequest, LocalCluster};

use serde_json::json;

/// The versions of client.authentication.k8s.io. The answer has that of the request.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum ApiVersion {
    V1Alpha1,
    V1Beta1,
    #[default]
    V1,
}

impl ApiVersion {
    const ALL: [Self; 3] = [Self::V1Alpha1, Self::V1Beta1, Self::V1];

    /// The version of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.name() == name)
    }

    fn name(self) -> &'static str {
        match self {
            Self::V1Alpha1 => "client.authentication.k8s.io/v1alpha1",
            Self::V1Beta1 => "client.authentication.k8s.io/v1beta1",
            Self::V1 => "client.authentication.k8s.io/v1",
        }
    }
}

/// What a client shows to a server: a certificate and its key, which is in the answer.
pub struct ExecCredential<'a> {
    /// PEM.
    pub certificate: &'a str,
    /// PEM.
    pub key: &'a str,
    /// When the client has to ask again, as RFC 3339 text in UTC.
    pub expires: &'a str,
}

impl ExecCredential<'_> {
    /// The document, with a newline.
    pub fn encode(&self, version: ApiVersion) -> String {
        let document = json!({
            "apiVersion": version.name(),
            "kind": "ExecCredential",
            "status": {
                "expirationTimestamp": self.expires,
                "clientCertificateData": self.certificate,
                "clientKeyData": self.key,
            },
        });
        format!("{document}\n")
    }
}
