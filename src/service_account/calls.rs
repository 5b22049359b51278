//! The calls that come over the socket: gRPC's from the API server, and two pages for people and monitors.

use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use prost::Message;
use serde::de::IgnoredAny;
use std::collections::BTreeMap;
use tokio::time::{Instant, timeout_at};
use tonic::body::Body;
use tonic::server::{Grpc, UnaryService};
use tonic::{Code, Status};
use tonic_prost::ProstCodec;

use crate::externaljwt::{
    FetchKeysRequest, MetadataRequest, SERVICE, SignJwtRequest, SignJwtResponse,
};
use crate::signer::{NoToken, Signer};
use messages::error::{Error, Exit};
use system::limits::service_account as limits;

/// The longest message that is read, in bytes. The claims of a token are about one kilobyte.
const LONGEST_MESSAGE: usize = 256 * 1024;

/// The page with the status, in JSON.
pub(crate) const STATUS: &str = "/status";
/// The page for monitors, in Prometheus's text format.
const METRICS: &str = "/metrics";

/// Answers a request.
pub(crate) async fn answer(
    signer: Arc<Signer>,
    request: Request<Incoming>,
) -> Result<Response<Body>, Infallible> {
    let path = request.uri().path().to_owned();
    Ok(match (request.method(), path.as_str()) {
        (&Method::GET, STATUS) => {
            let status = serde_json::to_string_pretty(&signer.status()).unwrap_or_default();
            page("application/json", status + "\n")
        }
        (&Method::GET, METRICS) => page("text/plain; version=0.0.4", signer.status().metrics()),
        (&Method::POST, path) => match path.strip_prefix(SERVICE) {
            Some("Sign") => sign(signer, request).await,
            Some("FetchKeys") => fetch_keys(signer, request).await,
            Some("Metadata") => metadata(signer, request).await,
            _ => Status::unimplemented("a signer knows Sign, FetchKeys and Metadata").into_http(),
        },
        _ => {
            let mut response = page("text/plain", "there are /status and /metrics\n".to_owned());
            *response.status_mut() = StatusCode::NOT_FOUND;
            response
        }
    })
}

fn page(kind: &'static str, text: String) -> Response<Body> {
    let mut response = Response::new(Body::new(Full::new(Bytes::from(text))));
    response.headers_mut().insert(CONTENT_TYPE, http::HeaderValue::from_static(kind));
    response
}

async fn sign(signer: Arc<Signer>, request: Request<Incoming>) -> Response<Body> {
    let deadline = Instant::now() + time_left(request.headers());
    unary(request, move |SignJwtRequest { claims }| {
        let signer = Arc::clone(&signer);
        async move {
            let signed = sign_claims(&signer, &claims, deadline).await;
            signed.inspect_err(|status| signer.counters.failed(name(status.code())))
        }
    })
    .await
}

async fn sign_claims(
    signer: &Signer,
    claims: &str,
    deadline: Instant,
) -> Result<SignJwtResponse, Status> {
    let _open = signer.counters.open_request();
    check_claims(claims).map_err(Status::invalid_argument)?;
    signer.token(claims, deadline).await.map_err(|error| match error {
        NoToken::Late(error) => Status::deadline_exceeded(error.sentence()),
        NoToken::Failed(error) => status(&error),
    })
}

async fn fetch_keys(signer: Arc<Signer>, request: Request<Incoming>) -> Response<Body> {
    unary(request, move |FetchKeysRequest {}| {
        let signer = Arc::clone(&signer);
        async move {
            signer.counters.fetched();
            if !signer.has_keys() {
                signer.opened().await;
            }
            let keys = signer.keys().map_err(|error| status(&error));
            keys.inspect_err(|status| signer.counters.failed(name(status.code())))
        }
    })
    .await
}

async fn metadata(signer: Arc<Signer>, request: Request<Incoming>) -> Response<Body> {
    unary(request, move |MetadataRequest {}| std::future::ready(Ok(signer.metadata()))).await
}

/// What the API server is told of an error: only what to do, since it shows that to whoever has asked for a token. The
/// whole text is in the signer's status and log.
fn status(error: &Error) -> Status {
    if error.exits_with(Exit::Login) {
        Status::failed_precondition("the signer waits for a person; its status says for what")
    } else if error.exits_with(Exit::Internal) {
        Status::internal("the signer has a fault; its status says which")
    } else {
        Status::unavailable("the signer can't use its token; its status says why")
    }
}

/// Reads one message, has it answered by `answer`, and writes the answer or the error.
async fn unary<M1, M2, F, Fut>(request: Request<Incoming>, answer: F) -> Response<Body>
where
    M1: Message + Default + Send + 'static,
    M2: Message + Default + Send + 'static,
    F: FnMut(M1) -> Fut,
    Fut: Future<Output = Result<M2, Status>>,
{
    let mut grpc =
        Grpc::new(ProstCodec::<M2, M1>::default()).max_decoding_message_size(LONGEST_MESSAGE);
    let deadline = Instant::now() + limits::REQUEST;
    let answered = timeout_at(deadline, grpc.unary(Call(answer), request)).await;
    answered.unwrap_or_else(|_| {
        let seconds = limits::REQUEST.as_secs();
        Status::deadline_exceeded(format!("the request took longer than {seconds} s")).into_http()
    })
}

/// A function as a service of tonic's.
struct Call<F>(F);

impl<M1, M2, F, Fut> UnaryService<M1> for Call<F>
where
    F: FnMut(M1) -> Fut,
    Fut: Future<Output = Result<M2, Status>>,
{
    type Response = M2;
    type Future = futures_util::future::MapOk<Fut, fn(M2) -> tonic::Response<M2>>;

    fn call(&mut self, request: tonic::Request<M1>) -> Self::Future {
        use futures_util::TryFutureExt as _;
        (self.0)(request.into_inner()).map_ok(tonic::Response::new)
    }
}

/// Checks that a token can be made of the claims: an object of JSON in base64url, as it stands in a token.
fn check_claims(claims: &str) -> Result<(), &'static str> {
    let decoded = URL_SAFE_NO_PAD.decode(claims).map_err(|_| "the claims are not in base64url")?;
    let object: Result<BTreeMap<String, IgnoredAny>, _> = serde_json::from_slice(&decoded);
    object.map(drop).map_err(|_| "the claims are no JSON object")
}

/// How long a request may take: as long as the client waits, less the time that the answer takes to arrive.
fn time_left(headers: &HeaderMap) -> Duration {
    let asked = headers.get("grpc-timeout").and_then(|value| timeout(value.to_str().ok()?));
    let asked = asked.map(|asked| {
        let before = limits::BEFORE_DEADLINE.min(asked / 4);
        asked.saturating_sub(before)
    });
    asked.unwrap_or(limits::TOKEN).min(limits::TOKEN)
}

/// The value of gRPC's header grpc-timeout: at most eight digits and a unit.
fn timeout(text: &str) -> Option<Duration> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let is_number =
        (1..=8).contains(&digits.len()) && digits.bytes().all(|digit| digit.is_ascii_digit());
    let number: u64 = digits.parse().ok().filter(|_| is_number)?;
    Some(match unit {
        "H" => Duration::from_secs(number * 3600),
        "M" => Duration::from_secs(number * 60),
        "S" => Duration::from_secs(number),
        "m" => Duration::from_millis(number),
        "u" => Duration::from_micros(number),
        "n" => Duration::from_nanos(number),
        _ => return None,
    })
}

/// What monitors call a status code.
fn name(code: Code) -> &'static str {
    match code {
        Code::DeadlineExceeded => "DeadlineExceeded",
        Code::FailedPrecondition => "FailedPrecondition",
        Code::InvalidArgument => "InvalidArgument",
        Code::Unavailable => "Unavailable",
        Code::Internal => "Internal",
        _ => "Unknown",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_are_an_object_in_base64url() {
        for (decoded, is_fine) in [
            (&b"{}"[..], true),
            (b"{\"sub\":\"system:serviceaccount:default:web\",\"aud\":[\"a\"]}", true),
            (b"[]", false),
            (b"\"a\"", false),
            (b"{} {}", false),
            (b"", false),
        ] {
            assert_eq!(check_claims(&URL_SAFE_NO_PAD.encode(decoded)).is_ok(), is_fine);
        }
        // Padded, and of another alphabet.
        for claims in ["e30=", "eyJhIjoi/+8ifQ", "e30.e30"] {
            assert!(check_claims(claims).is_err(), "{claims}");
        }
    }

    #[test]
    fn a_client_that_waits_shorter_is_answered_in_time() {
        let left = |value: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert("grpc-timeout", http::HeaderValue::from_static(value));
            time_left(&headers)
        };
        assert_eq!(time_left(&HeaderMap::new()), limits::TOKEN);
        for (value, expected) in [
            ("60S", limits::TOKEN),
            ("1H", limits::TOKEN),
            ("10S", Duration::from_millis(9500)),
            ("1000m", Duration::from_millis(750)),
            ("4n", Duration::from_nanos(3)),
            // What can't be read is no limit.
            ("123456789m", limits::TOKEN),
            ("5", limits::TOKEN),
            ("", limits::TOKEN),
            ("+5S", limits::TOKEN),
        ] {
            assert_eq!(left(value), expected, "{value}");
        }
    }
}
