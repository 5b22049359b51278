//! One question to an API server: which user does it take the bearer of this key for?
//!
//! It is the question of `kubectl auth whoami`, which every authenticated user may ask.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Body as _;
use hyper::client::conn::http1;
use hyper::{Method, Request, StatusCode, header};
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use tokio::runtime::Builder;
use tokio::time::timeout;

use super::alpn::HTTP_1_1;
use super::error::UpstreamFailure;
use super::server::Server;
use super::upstream::Upstream;
use super::{TunnelObserver, TunnelTarget, preparation};
use crate::error::Error;
use crate::keyring::{KeyNumber, Keyring};

const PATH: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
const QUESTION: &str = r#"{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}"#;

/// How long the answer may take, once there is a connection.
const LIMIT: Duration = Duration::from_secs(30);
/// In bytes. That of a user with a thousand groups is far shorter.
const LONGEST_ANSWER: usize = 1 << 20;

/// What the API server said.
#[derive(Debug)]
pub enum Recognition {
    User {
        name: String,
        groups: Vec<String>,
    },
    /// Too old for the question (before Kubernetes 1.28), but the connection was made.
    NotTold,
}

/// Connects to the cluster with the key and asks.
///
/// # Errors
///
/// There is no connection, the server did not ask for a certificate, or it does not know its user.
pub fn whoami(
    cluster: TunnelTarget,
    key: KeyNumber,
    keyring: &Arc<Keyring>,
    observer: &Arc<dyn TunnelObserver>,
) -> Result<Recognition, Error> {
    let runtime = Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| preparation(&error))?;
    let path = path_below(&cluster.cluster.server);
    let server = Server::new(cluster, Arc::clone(observer));
    let upstream = Arc::new(Upstream::new(Arc::clone(&server), keyring, Some(key)));
    let outcome = runtime.block_on(async {
        let connection = upstream.connect(Some(HTTP_1_1.to_vec())).await;
        let connection =
            connection.map_err(|_| Error::internal("a connection was lost".to_owned()))??;
        upstream.connected(&connection);
        if !connection.is_authenticated() {
            return Err(upstream.error(UpstreamFailure::NotAsked));
        }
        let error = |failure| upstream.error(failure);
        let question = question(&server.host(), &path).map_err(error)?;
        match timeout(LIMIT, ask(TokioIo::new(connection.stream), question)).await {
            Ok(Ok((status, body))) => recognition(status, &body).map_err(error),
            Ok(Err(error)) => Err(upstream.exchange_error(&error)),
            Err(_) => Err(error(UpstreamFailure::TimedOut {
                doing: "the answer",
                seconds: LIMIT.as_secs(),
            })),
        }
    });
    // Not waiting for a handshake that waits for a token.
    runtime.shutdown_background();
    outcome
}

/// Servers such as Rancher's have their API below a path.
fn path_below(server: &str) -> String {
    let after_scheme = server.split_once("://").map_or(server, |(_, rest)| rest);
    let below = after_scheme.find('/').map_or("", |at| &after_scheme[at..]);
    format!("{}{PATH}", below.trim_end_matches('/'))
}

fn question(host: &str, path: &str) -> Result<Request<String>, UpstreamFailure> {
    Request::builder()
        .method(Method::POST)
        .uri(path)
        .header(header::HOST, host)
        .header(header::CONTENT_TYPE, "application/json")
        .header(header::ACCEPT, "application/json")
        .body(QUESTION.to_owned())
        .map_err(|error| UpstreamFailure::Unusable(error.to_string()))
}

/// The answer's status and body, which is cut after [`LONGEST_ANSWER`].
async fn ask<S>(stream: S, question: Request<String>) -> hyper::Result<(StatusCode, Vec<u8>)>
where
    S: hyper::rt::Read + hyper::rt::Write + Send + Unpin + 'static,
{
    let (mut sender, connection) = http1::handshake(stream).await?;
    let connection = tokio::spawn(connection);
    let response = sender.send_request(question).await?;
    let status = response.status();
    let mut body = response.into_body();
    let mut bytes = Vec::new();
    while bytes.len() <= LONGEST_ANSWER
        && let Some(frame) = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await
    {
        if let Ok(data) = frame?.into_data() {
            bytes.extend_from_slice(&data);
        }
    }
    connection.abort();
    Ok((status, bytes))
}

#[derive(Deserialize)]
struct Review {
    status: ReviewStatus,
}

#[derive(Deserialize)]
struct ReviewStatus {
    #[serde(rename = "userInfo")]
    user_info: UserInfo,
}

#[derive(Deserialize)]
struct UserInfo {
    #[serde(default)]
    username: String,
    #[serde(default)]
    groups: Vec<String>,
}

fn recognition(status: StatusCode, body: &[u8]) -> Result<Recognition, UpstreamFailure> {
    const ANONYMOUS: &str = "system:anonymous";
    match status {
        StatusCode::NOT_FOUND => Ok(Recognition::NotTold),
        StatusCode::CREATED | StatusCode::OK => {
            let review: Review = serde_json::from_slice(body).map_err(|_| {
                UpstreamFailure::Unusable("its answer is not a SelfSubjectReview".to_owned())
            })?;
            let UserInfo { username, groups } = review.status.user_info;
            if username == ANONYMOUS {
                return Err(UpstreamFailure::NotRecognised);
            }
            Ok(Recognition::User {
                name: username,
                groups,
            })
        }
        StatusCode::UNAUTHORIZED => Err(UpstreamFailure::NotRecognised),
        StatusCode::FORBIDDEN if String::from_utf8_lossy(body).contains(ANONYMOUS) => {
            Err(UpstreamFailure::NotRecognised)
        }
        other => Err(UpstreamFailure::Answer(other.as_u16())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(status: u16, body: &str) -> String {
        let status = StatusCode::from_u16(status).unwrap();
        format!("{:?}", recognition(status, body.as_bytes()))
    }

    #[test]
    fn an_answer_names_the_user_or_says_why_there_is_none() {
        let review = |name: &str| {
            format!(r#"{{"status":{{"userInfo":{{"username":"{name}","groups":["a"]}}}}}}"#)
        };
        assert_eq!(
            outcome(201, &review("jane")),
            r#"Ok(User { name: "jane", groups: ["a"] })"#
        );
        assert_eq!(
            outcome(201, &review("system:anonymous")),
            "Err(NotRecognised)"
        );
        assert_eq!(outcome(401, ""), "Err(NotRecognised)");
        let forbidden = r#"{"message":"User \"system:anonymous\" cannot create"}"#;
        assert_eq!(outcome(403, forbidden), "Err(NotRecognised)");
        assert_eq!(outcome(403, "{}"), "Err(Answer(403))");
        assert_eq!(outcome(404, ""), "Ok(NotTold)");
        assert_eq!(outcome(502, "<html>"), "Err(Answer(502))");
        assert!(outcome(200, "<html>").contains("Unusable"));
    }

    #[test]
    fn the_question_goes_below_the_servers_path() {
        for (server, below) in [
            ("https://host:6443", ""),
            ("https://host/", ""),
            ("https://host/k8s/clusters/c-x/", "/k8s/clusters/c-x"),
            ("host", ""),
        ] {
            assert_eq!(path_below(server), format!("{below}{PATH}"));
        }
    }
}
