//! Whether the cluster lets this user do something: the question of `kubectl auth can-i`, which every
//! authenticated user may ask.

use serde::Deserialize;
use serde_json::json;

use super::error::ApiError;
use super::{ApiMethod, ApiRequest, ClusterApi, decoded};

const PATH: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";

/// Something that is done with an object of a kind.
#[derive(Clone, Copy, Debug)]
pub struct ResourceAccess<'a> {
    pub verb: &'a str,
    /// Empty for the core group.
    pub group: &'a str,
    pub resource: &'a str,
    pub subresource: &'a str,
    /// Empty for objects without one.
    pub namespace: &'a str,
    /// Empty for every name.
    pub name: &'a str,
}

#[derive(Deserialize)]
struct AccessReview {
    status: AccessStatus,
}

#[derive(Deserialize)]
struct AccessStatus {
    allowed: bool,
}

/// Asks.
///
/// # Errors
///
/// There is no answer, or none that is a SelfSubjectAccessReview.
pub fn may(api: &dyn ClusterApi, access: &ResourceAccess<'_>) -> Result<bool, ApiError> {
    let ResourceAccess { verb, group, resource, subresource, namespace, name } = access;
    let question = json!({
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {
            "verb": verb, "group": group, "resource": resource, "subresource": subresource,
            "namespace": namespace, "name": name,
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

/// Whether the user may do this (`create`, `get`) with CertificateSigningRequests.
///
/// # Errors
/// Those of [`may`].
pub fn may_with_signing_requests(api: &dyn ClusterApi, verb: &str) -> Result<bool, ApiError> {
    let access = ResourceAccess {
        verb,
        group: "certificates.k8s.io",
        resource: "certificatesigningrequests",
        subresource: "",
        namespace: "",
        name: "",
    };
    may(api, &access)
}
