//! Requests to an API server, by the person's kubectl or over a connection with the token's key.
//!
//! Texts from the server are as it sent them, not yet fit for a terminal.

#![forbid(unsafe_code)]

mod connection;
mod kubectl;
mod objection;
mod review;
pub mod signing_request;
pub mod token_request;

pub use connection::TokenConnection;
pub use kubectl::Kubectl;
pub use objection::objections;
pub use review::{ClusterUser, REQUESTS, may, may_all};

use std::fmt::Display;

use serde::de::DeserializeOwned;
use serde_json::Value;

use base::error::{Error, Exit};

/// A cluster's API server, asked as one user.
pub trait ClusterApi {
    /// The CertificateSigningRequest of this name, which is fit for a URL; `None` if there is none.
    fn signing_request(&self, name: &str) -> Result<Option<Value>, Error>;

    /// Makes an object; the object as the server has it. `purpose` says for messages what is asked for.
    fn create(&self, path: &str, object: &Value, purpose: &str) -> Result<Value, Error>;

    /// The cluster in messages: `context "prod"`, or `cluster "prod" (https://…)`.
    fn cluster(&self) -> &str;
}

fn decoded<T: DeserializeOwned>(cluster: &str, purpose: &str, object: Value) -> Result<T, Error> {
    serde_json::from_value(object).map_err(|error| unusable(cluster, purpose, error))
}

/// Not the object that was asked for: a login page's answer, or a wrapped kubectl's.
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
