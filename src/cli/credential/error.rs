//! Exit code 9: why there is no certificate.

use std::time::Duration;

use crate::error::{Failure, Help};
use crate::printable::printable;

/// What became of a CertificateSigningRequest of `credential --as certificate`.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotIssued {
    /// The approver compares the request with who made it, or somebody has denied it by hand.
    #[error("the CertificateSigningRequest {name} was denied: {}", told(.reason, .message))]
    Denied { name: String, reason: String, message: String },
    /// The signer makes certificates for clients alone, and none for longer than it likes.
    #[error("the signer has failed to sign the CertificateSigningRequest {name}: {}", told(.reason, .message))]
    Failed { name: String, reason: String, message: String },
    /// Kubernetes' signer issues no certificate for `system:masters`; the other groups of that prefix are what the
    /// API server adds by itself.
    #[error(
        "the API server knows this user in group {group}, for which no certificate is requested"
    )]
    OwnGroup { group: String },
    /// Another client has written it, or a proxy.
    #[error("the certificate of the CertificateSigningRequest {name} can't be used: {reason}")]
    Unusable { name: String, reason: String },
    #[error("the CertificateSigningRequest {name} was removed before it was signed")]
    Removed { name: String },
    /// SelfSubjectReview came with Kubernetes 1.28.
    #[error("the API server is too old to tell as whom it knows this user")]
    TooOld,
    /// Nothing approves requests for client certificates by itself.
    #[error("the CertificateSigningRequest {name} was not {what} within {} s", .waited.as_secs())]
    TooSlow { name: String, what: &'static str, waited: Duration },
}

fn told(reason: &str, message: &str) -> String {
    let texts = [reason, message].into_iter().filter(|it| !it.is_empty());
    let told = texts.map(printable).collect::<Vec<_>>().join(": ");
    match told.is_empty() {
        true => "no reason was given".to_owned(),
        false => told,
    }
}

impl Failure for NotIssued {
    fn exit_code(&self) -> u8 {
        9
    }

    fn remedy(&self) -> Help {
        match self {
            Self::Denied { .. } => {
                "ask who approves requests; one that compares them as docs/short-lived.md shows takes this one \
                 from the hardware certificate it knows"
            }
            Self::Failed { .. } => "give --duration as the cluster's signer allows, or leave it out",
            Self::OwnGroup { .. } => {
                "use --as token for a service account with these rights, or the tunnel (`run`, `credential`)"
            }
            Self::Unusable { .. } => "try again; the cluster's signer has signed something else",
            Self::Removed { .. } => "try again, and leave the request until it is signed",
            Self::TooOld => "use --as token, or a cluster of Kubernetes 1.28 or later",
            Self::TooSlow { .. } => {
                "have an approver run for such requests (docs/short-lived.md shows one), or give it more time: \
                 --wait 5m"
            }
        }
        .into()
    }
}
