//! Requests to an API server, by the person's kubectl or over a connection with the token's key.
//!
//! Texts from the server are as it sent them, not yet fit for a terminal.

#![forbid(unsafe_code)]

pub mod binding;
mod connection;
pub mod kind;
mod kubectl;
pub mod preferences;
pub mod revocation;
pub mod signing_request;
mod watch;

pub use connection::{ServiceAccount, ServiceAccountToken, TokenConnection};
pub use kubectl::Kubectl;
pub use signing_request::objections;
pub use watch::Watch;

use std::fmt::Display;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use messages::error::{Error, Exit};

/// The group that the API server gives everybody whom it knows.
const AUTHENTICATED: &str = "system:authenticated";

/// The API group of certificates.
pub const CERTIFICATES: &str = "certificates.k8s.io";

/// A cluster's API server, asked as one user.
pub trait ClusterApi {
    /// The CertificateSigningRequest of this name, which is fit for a URL; `None` if there is none.
    fn signing_request(&self, name: &str) -> Result<Option<Value>, Error>;

    /// A watch of the CertificateSigningRequest of this name, which is fit for a URL; `None` where looking at it now and then
    /// costs no more.
    fn watch_signing_request(&self, _name: &str) -> Option<Watch> {
        None
    }

    /// The CertificateSigningRequests with these names that exist. The names must be fit for a URL.
    fn named_requests(&self, names: &[String]) -> Result<Vec<Value>, Error> {
        names.iter().filter_map(|name| self.signing_request(name).transpose()).collect()
    }

    /// Makes an object; the object as the server has it. `purpose` says for messages what is asked for.
    fn create(&self, path: &str, object: &Value, purpose: &str) -> Result<Value, Error>;

    /// The cluster in messages: `context "prod"`, or `cluster "prod" (https://…)`.
    fn cluster(&self) -> &str;
}

/// A user as the cluster knows them.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(default)]
pub struct ClusterUser {
    #[serde(rename = "username")]
    pub name: String,
    pub groups: Vec<String>,
}

impl ClusterUser {
    /// The groups that a certificate can name: all but the one that every user is in.
    pub fn assigned_groups(&self) -> Vec<String> {
        self.groups.iter().filter(|group| *group != AUTHENTICATED).cloned().collect()
    }

    /// A line that says it of the server that was asked.
    pub fn describe(&self, server: &str) -> String {
        let Self { name, groups, .. } = self;
        format!("{server} knows us as user \"{name}\", groups {}", groups.join(", "))
    }
}

/// The user for whom the cluster takes us.
pub fn whoami(api: &dyn ClusterApi) -> Result<ClusterUser, Error> {
    let question = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    reviewed(api, path, &question, "tell who this user is", "/status/userInfo")
}

/// What a user wants to do with a resource, as authorization.k8s.io/v1 asks for it. An empty text names nothing: the core
/// group, the resource itself, all namespaces, any object.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct ResourceAttributes<'a> {
    pub verb: &'a str,
    pub group: &'a str,
    pub resource: &'a str,
    pub subresource: &'a str,
    pub namespace: &'a str,
    pub name: &'a str,
}

impl<'a> ResourceAttributes<'a> {
    /// What a user wants who does this with CertificateSigningRequests.
    pub fn of_requests(verb: &'a str) -> Self {
        let resource = "certificatesigningrequests";
        Self { verb, group: CERTIFICATES, resource, ..Self::default() }
    }
}

/// Whether this user may do that.
pub fn may(api: &dyn ClusterApi, attributes: &ResourceAttributes<'_>) -> Result<bool, Error> {
    let question = json!({
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    });
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    reviewed(api, path, &question, "tell what this user may do", "/status/allowed")
}

/// What a review, which is made and answered at once, says at this place.
fn reviewed<T: DeserializeOwned>(
    api: &dyn ClusterApi,
    path: &str,
    question: &Value,
    purpose: &str,
    place: &str,
) -> Result<T, Error> {
    let mut review = api.create(path, question, purpose)?;
    let answer = review.pointer_mut(place).map(Value::take);
    decoded(api.cluster(), purpose, answer.unwrap_or_default())
}

fn parsed(cluster: &str, purpose: &str, answer: &[u8]) -> Result<Value, Error> {
    serde_json::from_slice(answer).map_err(|error| unusable(cluster, purpose, error))
}

fn decoded<T: DeserializeOwned>(cluster: &str, purpose: &str, object: Value) -> Result<T, Error> {
    serde_json::from_value(object).map_err(|error| unusable(cluster, purpose, error))
}

/// The error of an answer that isn't the object that was asked for: a login page's, or a wrapped kubectl's.
fn unusable(cluster: &str, purpose: &str, reason: impl Display) -> Error {
    let text = format!("{cluster}: unexpected answer to the request to {purpose}: {reason}");
    Error::new(Exit::Cluster, text).help(
        "check that the cluster's server is an API server, and that the kubectl in PATH is Kubernetes's own",
    )
}

/// Whether objects can have this name, which then leads to no other path in a URL.
fn is_name(name: &str) -> bool {
    const LONGEST: usize = 253;
    name.len() <= LONGEST && name.split('.').all(is_label)
}

/// A part of a name: lower-case letters, digits and hyphens, which begin and end nothing.
fn is_label(text: &str) -> bool {
    let is_inside = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    !text.is_empty()
        && text.bytes().all(is_inside)
        && !text.starts_with('-')
        && !text.ends_with('-')
}
