//! For whom the cluster takes us, and what it lets us do, which every user may ask.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Value, json};

use super::{ClusterApi, decoded};
use base::error::Error;

/// The group that the API server gives everybody whom it knows.
const AUTHENTICATED: &str = "system:authenticated";

/// CertificateSigningRequests.
pub const REQUESTS: &str = "certificatesigningrequests";

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
    /// The user of a SelfSubjectReview.
    pub(super) fn of_review(
        cluster: &str,
        purpose: &str,
        mut review: Value,
    ) -> Result<Self, Error> {
        let user = review.pointer_mut("/status/userInfo").map(Value::take);
        decoded(cluster, purpose, user.unwrap_or_default())
    }

    /// The groups that a certificate can name: all but the one that every user is in.
    pub fn assigned_groups(&self) -> Vec<String> {
        self.groups.iter().filter(|it| *it != AUTHENTICATED).cloned().collect()
    }

    /// In one line, of the server that was asked.
    pub fn describe(&self, server: &str) -> String {
        let Self { name, groups, .. } = self;
        format!("{server} knows us as user \"{name}\", groups {}", groups.join(", "))
    }
}

/// Whether this user may do all of that in the group of certificates: verb, resource, subresource and name.
pub fn may_all<const N: usize>(
    api: &dyn ClusterApi,
    wanted: [[&str; 4]; N],
) -> Result<bool, Error> {
    let group = "certificates.k8s.io";
    for [verb, resource, subresource, name] in wanted {
        let access = json!({
            "verb": verb, "group": group, "resource": resource, "subresource": subresource, "name": name,
        });
        if !may(api, &access)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether this user may do what these resourceAttributes of a SelfSubjectAccessReview say.
pub fn may(api: &dyn ClusterApi, access: &Value) -> Result<bool, Error> {
    let question = json!({
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": access},
    });
    let purpose = "tell what this user may do";
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let mut review = api.create(path, &question, purpose)?;
    let allowed = review.pointer_mut("/status/allowed").map(Value::take);
    decoded(api.cluster(), purpose, allowed.unwrap_or_default())
}
