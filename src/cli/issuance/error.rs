//! Exit code 9: a cluster that has issued no certificate, or none that is of use.

use std::time::Duration;

use crate::error::{Failure, Help, PROGRAM, THIS_KEY, remedy};

#[derive(Debug, thiserror::Error)]
pub(crate) enum IssuanceError {
    /// A person, or a program of the cluster's, has refused it. `kubectl describe csr NAME` shows what is kept of it.
    #[error("the request {name} was denied{}", told(.reason, .message))]
    Denied { name: String, reason: String, message: String },
    /// It would replace a certificate that is valid for longer.
    #[error(
        "the certificate that the request {name} was answered with expires {issued}, and the present one \
         {present}"
    )]
    EndsEarlier { name: String, issued: String, present: String },
    /// Only a certificate that is valid can ask for its successor.
    #[error("the certificate of {subject} can't ask for another one: {reason}")]
    Expired { subject: String, reason: String },
    /// The signer doesn't sign it: other usages, or a subject that the cluster keeps for itself.
    #[error("the cluster's signer has not signed the request {name}{}", told(.reason, .message))]
    Failed { name: String, reason: String, message: String },
    #[error("user \"{user}\" may not {verb} CertificateSigningRequests in the cluster")]
    NotAllowed { user: String, verb: &'static str },
    #[error("the cluster knows us as {known}, and not as {expected}")]
    KnownAsAnother { known: String, expected: String },
    /// A person or a program other than Kubernetes' signer has written it into the request.
    #[error("the certificate that the request {name} was answered with is for another key")]
    OtherKey { name: String },
    /// Another person has made it, or it was changed.
    #[error("the request {name} in the cluster is for another key")]
    OtherRequest { name: String },
    /// The cluster clears requests away: decided ones after an hour, others after a day.
    #[error("the request {name} was removed from the cluster")]
    Removed { name: String },
    /// A signer other than Kubernetes' own, or a proxy that changes answers.
    #[error("what the request {name} was answered with is no certificate: {reason}")]
    Unreadable { name: String, reason: String },
    /// Clusters approve no client certificates by themselves: a person has to.
    #[error("the request {name} was not approved within {}", words(.waited))]
    Undecided { name: String, waited: Duration },
}

/// What was said with a decision, to append.
fn told(reason: &str, message: &str) -> String {
    match (reason, message) {
        ("", "") => String::new(),
        (one, "") | ("", one) => format!(": {one}"),
        (reason, message) => format!(": {message} ({reason})"),
    }
}

/// In the largest unit.
pub(super) fn words(duration: &Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        120.. => format!("{} minutes", seconds / 60),
        _ => format!("{seconds} seconds"),
    }
}

impl Failure for IssuanceError {
    fn exit_code(&self) -> u8 {
        9
    }

    fn remedy(&self) -> Help {
        match self {
            Self::Denied { .. } | Self::Failed { .. } => remedy!(
                "settle it with the administrators of the cluster; the same command with --again makes \
                 another request"
            ),
            Self::EndsEarlier { .. } => remedy!(
                "the present one stays; ask for a longer time with --duration, or have the administrators \
                 raise the signer's limit (--cluster-signing-duration)"
            ),
            Self::Expired { .. } => {
                remedy!("ask with other credentials: `", format!("{PROGRAM} enroll{THIS_KEY}"), "`")
            }
            Self::KnownAsAnother { .. } => remedy!(
                "nothing was removed; have the administrators look at how the API server authenticates \
                 client certificates"
            ),
            Self::NotAllowed { .. } => remedy!(
                "have an administrator of the cluster allow create and get on \
                 certificatesigningrequests.certificates.k8s.io; with --csr the request goes to another CA"
            ),
            Self::OtherKey { .. } | Self::Unreadable { .. } => remedy!(
                "it was not installed; tell the administrators of the cluster, and make another request \
                 with --again"
            ),
            Self::OtherRequest { .. } => remedy!(
                "have an administrator of the cluster remove it, or make another request with --again"
            ),
            Self::Removed { .. } => remedy!("run the same command again: it makes another request"),
            Self::Undecided { .. } => remedy!(
                "when it is approved, run the same command again: it goes on with this request; --wait \
                 waits longer"
            ),
        }
    }
}
