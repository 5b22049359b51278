//! A connection of our own to the API server, with the token's key and certificate: made here, or by a tunnel.

use std::sync::{Arc, Mutex};

use http::Method;

use super::error::ApiError;
use super::self_subject_review::{Recognition, self_subject_review};
use super::status::Status;
use super::{ApiAnswer, ApiMethod, ApiRequest, ClusterApi, LONGEST_ANSWER, unusable};
use crate::error::Error;
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
    cluster: String,
    /// Of the last answer.
    clock_offset: Mutex<Option<i64>>,
}

impl TokenConnection {
    /// Nothing is sent yet.
    ///
    /// # Errors
    ///
    /// The process has no descriptors left.
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
    ///
    /// # Errors
    ///
    /// Those of [`TokenConnection::new`].
    pub fn through(client: TunnelClient) -> Result<Self, Error> {
        Ok(Self {
            cluster: client.to_string(),
            exchange: ServerExchange::through(client, LONGEST_ANSWER)?,
            clock_offset: Mutex::default(),
        })
    }

    /// Asks for whom the cluster takes us.
    ///
    /// # Errors
    ///
    /// There is no connection, the server did not ask for a certificate, or it does not know its user.
    pub fn whoami(&self) -> Result<Recognition, Error> {
        match self_subject_review(self)? {
            Recognition::User(user) if user.name == ANONYMOUS => {
                Err(self.exchange.error(UpstreamFailure::NotRecognised))
            }
            recognition => Ok(recognition),
        }
    }

    /// That the clocks of this machine and the API server differ by more than a minute, in words.
    pub fn clock_concern(&self) -> Option<String> {
        let offset = self.clock_offset.lock().ok().and_then(|last| *last)?;
        clock_concern(offset)
    }

    fn answer(
        &self,
        request: &ApiRequest<'_>,
        answer: ServerAnswer,
    ) -> Result<ApiAnswer, ApiError> {
        let ServerAnswer { status, body, warnings, clock_offset } = answer;
        if let Ok(mut last) = self.clock_offset.lock() {
            *last = clock_offset;
        }
        match judged(status, &body) {
            JudgedAnswer::Object => {
                let object = serde_json::from_slice(&body);
                let object = object.map_err(|error| unusable(&self.cluster, request, &error))?;
                Ok(ApiAnswer { object, warnings })
            }
            JudgedAnswer::Refused(status) => Err(status.refused(&self.cluster, request, warnings)),
            JudgedAnswer::Failed(failure) => Err(self.exchange.error(failure).into()),
        }
    }
}

impl ClusterApi for TokenConnection {
    fn send(&self, request: &ApiRequest<'_>) -> Result<ApiAnswer, ApiError> {
        let method = match request.method {
            ApiMethod::Create => Method::POST,
            ApiMethod::Delete => Method::DELETE,
            ApiMethod::Get => Method::GET,
            ApiMethod::Replace => Method::PUT,
        };
        let body = request.body.map(ToString::to_string);
        let answer = self.exchange.send(&method, request.path, body.as_deref())?;
        self.answer(request, answer)
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

fn judged(status: u16, body: &[u8]) -> JudgedAnswer {
    if (200..300).contains(&status) {
        return JudgedAnswer::Object;
    }
    if status == 401 {
        return JudgedAnswer::Failed(UpstreamFailure::NotRecognised);
    }
    match Status::from_json(body) {
        Some(told) if status == 403 && told.message.contains(ANONYMOUS) => {
            JudgedAnswer::Failed(UpstreamFailure::NotRecognised)
        }
        Some(told) => JudgedAnswer::Refused(Status { code: Some(status), ..told }),
        // What an API server says of a path that it doesn't know at all.
        None if status == 404 => JudgedAnswer::Refused(Status::not_found()),
        None => JudgedAnswer::Failed(UpstreamFailure::Answer(status)),
    }
}

/// Connects to the cluster with the key and asks for whom it takes us.
///
/// # Errors
///
/// Those of [`TokenConnection::whoami`].
pub fn whoami(
    cluster: TunnelTarget,
    key: KeyNumber,
    keyring: &Arc<Keyring>,
    observer: &Arc<dyn TunnelObserver>,
) -> Result<Recognition, Error> {
    TokenConnection::new(cluster, key, keyring, observer)?.whoami()
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
            JudgedAnswer::Refused(status) => format!("{:?} {}", status.code, status.reason),
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
        assert_eq!(outcome(403, &status("no")), "Some(403) Forbidden");
        assert_eq!(outcome(403, "{}"), "Answer(403)");
        assert_eq!(outcome(404, "404 page not found"), "Some(404) NotFound");
        assert_eq!(outcome(502, "<html>"), "Answer(502)");
    }
}
