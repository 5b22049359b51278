//! A connection of our own to the API server, with the token's key and certificate: made here, or by a tunnel.

use std::sync::{Arc, Mutex};

use http::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{ClusterApi, ClusterUser, LONGEST_ANSWER, Recognition, signing_request, unusable};
use crate::error::{Error, Exit, Failure, Help};
use crate::keyring::{KeyNumber, Keyring};
use crate::tunnel::{
    ServerAnswer, ServerExchange, TunnelClient, TunnelObserver, TunnelTarget, UpstreamFailure,
};

/// Whom an API server takes a request without credentials for.
const ANONYMOUS: &str = "system:anonymous";

/// What clocks may differ by: the API server takes a token that begins within a minute, in seconds.
const CLOCK_SLACK: u64 = 60;

/// The cluster, asked by the bearer of a token's key.
pub struct TokenConnection {
    exchange: ServerExchange,
    pub(super) cluster: String,
    /// Of the last answer.
    clock_offset: Mutex<Option<i64>>,
}

/// The object that a request was answered with.
#[derive(Clone, Debug)]
pub struct ApiAnswer {
    pub object: Value,
    /// The texts of the answer's Warning headers.
    pub warnings: Vec<String>,
}

/// The API server has no such object.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct NotFound(String);

impl Failure for NotFound {
    fn exit_code(&self) -> u8 {
        Exit::Cluster as u8
    }

    fn remedy(&self) -> Help {
        "check the name, and that the cluster has this API: `kubectl api-resources`".into()
    }
}

/// Whether the API server has said that there is no such object.
pub fn is_not_found(error: &Error) -> bool {
    error.is::<NotFound>()
}

impl TokenConnection {
    /// Nothing is sent yet.
    pub fn new(
        cluster: TunnelTarget,
        key: KeyNumber,
        keyring: &Arc<Keyring>,
        observer: &Arc<dyn TunnelObserver>,
    ) -> Result<Self, Error> {
        let described = format!("cluster \"{}\" ({})", cluster.name, cluster.cluster.server);
        let exchange = ServerExchange::new(cluster, key, keyring, observer, LONGEST_ANSWER)?;
        Ok(Self { exchange, cluster: described, clock_offset: Mutex::default() })
    }

    /// [`TokenConnection::new`] by way of a tunnel.
    pub fn through(client: TunnelClient) -> Result<Self, Error> {
        Ok(Self {
            cluster: client.to_string(),
            exchange: ServerExchange::through(client, LONGEST_ANSWER)?,
            clock_offset: Mutex::default(),
        })
    }

    /// That the clocks of this machine and the API server differ by more than a minute, in words.
    pub fn clock_concern(&self) -> Option<String> {
        let offset = self.clock_offset.lock().ok().and_then(|last| *last)?;
        clock_concern(offset)
    }

    /// For whom the cluster takes us.
    pub fn whoami(&self) -> Result<Recognition, Error> {
        let question =
            json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
        let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
        let purpose = "tell who this user is";
        let review = match self.create(path, &question, purpose) {
            Ok(answer) => answer.object,
            Err(error) if is_not_found(&error) => return Ok(Recognition::NotTold),
            Err(error) => return Err(error),
        };
        match ClusterUser::of_review(&self.cluster, purpose, review)? {
            user if user.name == ANONYMOUS => {
                Err(self.exchange.error(UpstreamFailure::NotRecognised))
            }
            user => Ok(Recognition::User(user)),
        }
    }

    /// Makes an object; `purpose` says for messages what is asked for.
    pub(super) fn create(
        &self,
        path: &str,
        object: &Value,
        purpose: &str,
    ) -> Result<ApiAnswer, Error> {
        self.send(&Method::POST, path, Some(object), purpose)
    }

    /// Sends the request and waits for the answer, within a bound. Names in `path` must be fit for a URL.
    pub(super) fn send(
        &self,
        method: &Method,
        path: &str,
        body: Option<&Value>,
        purpose: &str,
    ) -> Result<ApiAnswer, Error> {
        let body = body.map(ToString::to_string);
        let ServerAnswer { status, body, warnings, clock_offset } =
            self.exchange.send(method, path, body.as_deref())?;
        if let Ok(mut last) = self.clock_offset.lock() {
            *last = clock_offset;
        }
        match judged(status, &body) {
            JudgedAnswer::Object => {
                let object = serde_json::from_slice(&body);
                let object = object.map_err(|error| unusable(&self.cluster, purpose, error))?;
                Ok(ApiAnswer { object, warnings })
            }
            JudgedAnswer::Refused(Status { reason, message, .. }) => {
                let text =
                    format!("{}: the API server refuses to {purpose}: {message}", self.cluster);
                Err(match (status, reason.as_str()) {
                    (404, _) => NotFound(text).into(),
                    (_, "Forbidden") => Error::new(Exit::Cluster, text).help(
                        "have an administrator of the cluster allow this user what the message names (RBAC)",
                    ),
                    _ => Error::new(Exit::Cluster, text)
                        .help("correct what the message names; the API server's log may tell more"),
                })
            }
            JudgedAnswer::Failed(failure) => Err(self.exchange.error(failure)),
        }
    }
}

impl ClusterApi for TokenConnection {
    fn signing_request(&self, name: &str) -> Result<Option<Value>, Error> {
        let path = format!("{}/{name}", signing_request::PATH);
        match self.send(&Method::GET, &path, None, "show the CertificateSigningRequest") {
            Ok(answer) => Ok(Some(answer.object)),
            Err(error) if is_not_found(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn create_signing_request(&self, object: &Value) -> Result<Value, Error> {
        let purpose = "make a CertificateSigningRequest";
        Ok(self.create(signing_request::PATH, object, purpose)?.object)
    }

    fn cluster(&self) -> &str {
        &self.cluster
    }
}

/// What an answer is.
#[derive(Debug)]
enum JudgedAnswer {
    Failed(UpstreamFailure),
    Object,
    Refused(Status),
}

/// A Kubernetes Status: why the API server did not do what it was asked.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Status {
    kind: String,
    reason: String,
    message: String,
}

fn judged(status: u16, body: &[u8]) -> JudgedAnswer {
    if (200..300).contains(&status) {
        return JudgedAnswer::Object;
    }
    let told: Status = serde_json::from_slice(body).unwrap_or_default();
    match told.kind == "Status" {
        _ if status == 401 => JudgedAnswer::Failed(UpstreamFailure::NotRecognised),
        true if status == 403 && told.message.contains(ANONYMOUS) => {
            JudgedAnswer::Failed(UpstreamFailure::NotRecognised)
        }
        true => JudgedAnswer::Refused(told),
        // What an API server says of a path that it doesn't know at all.
        false if status == 404 => JudgedAnswer::Refused(Status {
            message: "the server could not find the requested resource".to_owned(),
            ..Status::default()
        }),
        false => JudgedAnswer::Failed(UpstreamFailure::Answer(status)),
    }
}

/// How much earlier or later than the server's, in words.
fn clock_concern(offset: i64) -> Option<String> {
    let by = match offset.unsigned_abs() {
        0..=CLOCK_SLACK => return None,
        seconds @ ..120 => format!("{seconds} seconds"),
        seconds => format!("{} minutes", seconds / 60),
    };
    let place = if offset > 0 { "behind" } else { "ahead of" };
    Some(format!("the clock of this machine is {by} {place} the API server's"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(status: u16, body: &str) -> String {
        match judged(status, body.as_bytes()) {
            JudgedAnswer::Failed(failure) => format!("{failure:?}"),
            JudgedAnswer::Object => "object".to_owned(),
            JudgedAnswer::Refused(told) => format!("refused {}", told.reason),
        }
    }

    #[test]
    fn clocks_that_differ_by_more_than_a_minute_are_a_concern() {
        let told = |offset| clock_concern(offset).unwrap_or_default();
        for offset in [0, 60, -60] {
            assert_eq!(told(offset), "");
        }
        assert_eq!(told(61), "the clock of this machine is 61 seconds behind the API server's");
        assert_eq!(
            told(-7300),
            "the clock of this machine is 121 minutes ahead of the API server's"
        );
        assert!(told(i64::MIN).contains("minutes ahead of"));
    }

    #[test]
    fn an_answer_is_an_object_or_says_why_there_is_none() {
        assert_eq!(outcome(201, "{}"), "object");
        assert_eq!(outcome(401, ""), "NotRecognised");
        let status = |message: &str| {
            format!(r#"{{"kind":"Status","reason":"Forbidden","message":"{message}"}}"#)
        };
        let forbidden = status(r#"User \"system:anonymous\" cannot create"#);
        assert_eq!(outcome(403, &forbidden), "NotRecognised");
        assert_eq!(outcome(403, &status("no")), "refused Forbidden");
        assert_eq!(outcome(403, "{}"), "Answer(403)");
        assert_eq!(outcome(404, "404 page not found"), "refused ");
        assert_eq!(outcome(502, "<html>"), "Answer(502)");
    }
}
