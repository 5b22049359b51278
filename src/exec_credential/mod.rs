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

/// What a client shows to a server, and until when.
pub struct ExecCredential<'a> {
    pub proof: ExecProof<'a>,
    /// When the client has to ask again, as RFC 3339 text in UTC.
    pub expires: &'a str,
}

pub enum ExecProof<'a> {
    /// A certificate and its key, both in PEM.
    Certificate { certificate: &'a str, key: &'a str },
    /// A bearer token.
    Token(&'a str),
}

impl ExecCredential<'_> {
    /// The document, with a newline.
    pub fn encode(&self, version: ApiVersion) -> String {
        let mut status = match self.proof {
            ExecProof::Certificate { certificate, key } => json!({
                "clientCertificateData": certificate,
                "clientKeyData": key,
            }),
            ExecProof::Token(token) => json!({ "token": token }),
        };
        status["expirationTimestamp"] = json!(self.expires);
        let document = json!({
            "apiVersion": version.name(),
            "kind": "ExecCredential",
            "status": status,
        });
        format!("{document}\n")
    }
}
