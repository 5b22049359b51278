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

/// The group to which the API server adds everybody whom it knows.
const AUTHENTICATED: &str = "system:authenticated";

/// The API group of certificates.
pub const CERTIFICATES: &str = "certificates.k8s.io";

/// The API server of a cluster, which is asked as one user.
pub trait ClusterApi {
    /// Reads the CertificateSigningRequest of this name, which is fit for a URL; `None` if there is none.
    fn signing_request(&self, name: &str) -> Result<Option<Value>, Error>;

    /// Starts a watch of the CertificateSigningRequest of this name, which is fit for a URL. `None` where it costs no
    /// more to look at the request now and then.
    fn watch_signing_request(&self, _name: &str) -> Option<Watch> {
        None
    }

    /// Reads those of the CertificateSigningRequests with these names that exist. The names must be fit for a URL.
    fn named_requests(&self, names: &[String]) -> Result<Vec<Value>, Error> {
        names.iter().filter_map(|name| self.signing_request(name).transpose()).collect()
    }

    /// Makes an object, and returns it as the server has it. Messages say that the server was asked to `purpose`.
    fn create(&self, path: &str, object: &Value, purpose: &str) -> Result<Value, Error>;

    /// What the cluster is called in messages: `context "prod"`, or `cluster "prod" (https://…)`.
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
    /// The groups that a certificate can name: all but the one to which every user belongs.
    pub fn assigned_groups(&self) -> Vec<String> {
        self.groups.iter().filter(|group| *group != AUTHENTICATED).cloned().collect()
    }

    /// A line that says for whom this server takes the bearer.
    pub fn describe(&self, server: &str) -> String {
        let Self { name, groups, .. } = self;
        format!("{server} knows us as user \"{name}\", groups {}", groups.join(", "))
    }
}

/// Asks the cluster for which user it takes us.
pub fn whoami(api: &dyn ClusterApi) -> Result<ClusterUser, Error> {
    let question = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    reviewed(api, path, &question, "tell who this user is", "/status/userInfo")
}

/// What a user wants to do with a resource, in the terms of authorization.k8s.io/v1. An empty text stands for the core
/// group, the resource itself, all namespaces, or any object.
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
    /// The attributes of doing this (`verb`) with CertificateSigningRequests.
    pub fn of_requests(verb: &'a str) -> Self {
        let resource = "certificatesigningrequests";
        Self { verb, group: CERTIFICATES, resource, ..Self::default() }
    }
}

/// Asks the cluster whether this user may do that.
pub fn may(api: &dyn ClusterApi, attributes: &ResourceAttributes<'_>) -> Result<bool, Error> {
    let question = json!({
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    });
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    reviewed(api, path, &question, "tell what this user may do", "/status/allowed")
}

/// Asks for a review, which the server answers as soon as it is made, and returns what it says at this place.
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

/// The error for an answer that isn't the object that was asked for, such as the page of a login or what a wrapper of
/// kubectl prints.
fn unusable(cluster: &str, purpose: &str, reason: impl Display) -> Error {
    let text = format!("{cluster}: unexpected answer to the request to {purpose}: {reason}");
    Error::new(Exit::Cluster, text).help(
        "check that the cluster's server is an API server, and that the kubectl in PATH is Kubernetes's own",
    )
}

/// Whether objects can have this name. Such a name leads to no other path in a URL.
fn is_name(name: &str) -> bool {
    const LONGEST: usize = 253;
    name.len() <= LONGEST && name.split('.').all(is_label)
}

/// Whether the text can be a part of a name: lower-case letters, digits and hyphens, with no hyphen at either end.
fn is_label(text: &str) -> bool {
    let is_inside = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    !text.is_empty()
        && text.bytes().all(is_inside)
        && !text.starts_with('-')
        && !text.ends_with('-')
}
