//! For whom the cluster takes us: the question of `kubectl auth whoami`, which every authenticated user may
//! ask.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::json;

use super::error::ApiError;
use super::{ApiMethod, ApiRequest, ClusterApi, decoded};

const PATH: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
/// The group that the API server gives everybody whom it knows.
const AUTHENTICATED: &str = "system:authenticated";

/// A user as the cluster knows them.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(default)]
pub struct ClusterUser {
    #[serde(rename = "username")]
    pub name: String,
    pub groups: Vec<String>,
    /// What else the authenticator tells, such as `authentication.kubernetes.io/credential-id`.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl ClusterUser {
    /// The groups that a certificate can name: all but the one that every user is in.
    pub fn own_groups(&self) -> Vec<String> {
        let groups = self.groups.iter();
        groups.filter(|it| *it != AUTHENTICATED).cloned().collect()
    }
}

/// What the API server said.
#[derive(Debug, Eq, PartialEq)]
pub enum Recognition {
    User(ClusterUser),
    /// Too old for the question (before Kubernetes 1.28), but it answers.
    NotTold,
}

#[derive(Deserialize)]
struct Review {
    status: ReviewStatus,
}

#[derive(Deserialize)]
struct ReviewStatus {
    #[serde(rename = "userInfo")]
    user_info: ClusterUser,
}

/// Asks.
///
/// # Errors
///
/// There is no answer, or none that is a SelfSubjectReview.
pub fn self_subject_review(api: &dyn ClusterApi) -> Result<Recognition, ApiError> {
    let question = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let request = ApiRequest {
        method: ApiMethod::Create,
        path: PATH,
        body: Some(&question),
        purpose: "tell who this user is",
    };
    match api.send(&request) {
        Ok(answer) => {
            let review: Review = decoded(api, &request, answer.object)?;
            Ok(Recognition::User(review.status.user_info))
        }
        Err(ApiError::Refused(refused)) if refused.code == Some(404) => Ok(Recognition::NotTold),
        Err(error) => Err(error),
    }
}
