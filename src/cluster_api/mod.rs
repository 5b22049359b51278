//! Requests to a cluster's API server, sent by the person's kubectl or over a connection of our own with the
//! token's key; and what this program asks, each question once for both.
//!
//! Texts from the server are as it sent them, not yet fit for a terminal.

#![forbid(unsafe_code)]

pub mod access_review;
mod connection;
mod error;
mod kubectl;
mod objection;
mod self_subject_review;
pub mod signing_request;
mod status;
pub mod token_request;

pub use access_review::may_with_signing_requests;
pub use connection::{TokenConnection, whoami};
pub use error::{ApiError, KubectlError, RefusedRequest, UnusableAnswer, UnusableName};
pub use kubectl::Kubectl;
pub use objection::{Objection, objections};
pub use self_subject_review::{ClusterUser, Recognition, self_subject_review};
pub use status::Status;

use serde::de::DeserializeOwned;
use serde_json::Value;

/// The longest answer that is read, in bytes. That of an object with a thousand groups is far shorter.
const LONGEST_ANSWER: usize = 1 << 20;

/// A cluster's API server, asked as one user.
pub trait ClusterApi {
    /// Sends the request and waits for the answer, within a bound.
    ///
    /// # Errors
    ///
    /// [`ApiError::Refused`] where the server answered with an error; else [`ApiError::Failed`].
    fn send(&self, request: &ApiRequest<'_>) -> Result<ApiAnswer, ApiError>;

    /// The cluster in messages: `context "prod"`, or `cluster "prod" (https://…)`.
    fn cluster(&self) -> &str;
}

/// A request, without what authenticates it.
#[derive(Clone, Debug)]
pub struct ApiRequest<'a> {
    pub method: ApiMethod,
    /// From `/api` or `/apis` on. Names in it must be fit for a URL.
    pub path: &'a str,
    pub body: Option<&'a Value>,
    /// What it is for, in messages: `read the CertificateSigningRequest`.
    pub purpose: &'a str,
}

/// What is done with the object at a path.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ApiMethod {
    /// POST
    Create,
    /// DELETE
    Delete,
    /// GET
    Get,
    /// PUT
    Replace,
}

/// The object that a request was answered with.
#[derive(Clone, Debug)]
pub struct ApiAnswer {
    pub object: Value,
    /// The texts of the answer's Warning headers.
    pub warnings: Vec<String>,
}

/// The answer to this request as the type that was asked for.
fn decoded<T: DeserializeOwned>(
    api: &dyn ClusterApi,
    request: &ApiRequest<'_>,
    object: Value,
) -> Result<T, UnusableAnswer> {
    serde_json::from_value(object).map_err(|error| unusable(api.cluster(), request, &error))
}

fn unusable(
    cluster: &str,
    request: &ApiRequest<'_>,
    reason: &dyn std::fmt::Display,
) -> UnusableAnswer {
    UnusableAnswer {
        cluster: cluster.to_owned(),
        purpose: request.purpose.to_owned(),
        reason: reason.to_string(),
    }
}
