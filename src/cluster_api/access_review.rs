//! Whether the user may do something: the question of `kubectl auth can-i`, which every authenticated user may
//! ask.

use serde::Deserialize;
use serde_json::json;

use super::error::ApiError;
use super::{ApiMethod, ApiRequest, ClusterApi, decoded};

const PATH: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";

#[derive(Deserialize)]
struct AccessReview {
    status: AccessStatus,
}

#[derive(Deserialize)]
struct AccessStatus {
    allowed: bool,
}

/// Whether the user may do this (`create`, `get`) with CertificateSigningRequests.
///
/// # Errors
/// There is no answer, or none that is a SelfSubjectAccessReview.
pub fn may_with_signing_requests(api: &dyn ClusterApi, verb: &str) -> Result<bool, ApiError> {
    let question = json!({
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {
            "group": "certificates.k8s.io",
            "resource": "certificatesigningrequests",
            "verb": verb,
        }},
    });
    let request = ApiRequest {
        method: ApiMethod::Create,
        path: PATH,
        body: Some(&question),
        purpose: "tell what this user may do",
    };
    let answer = api.send(&request)?;
    let review: AccessReview = decoded(api, &request, answer.object)?;
    Ok(review.status.allowed)
}
