//! The answer to a command that gets no connection to the server: status 502 for each request, with the reason in a line of
//! text.
//!
//! kubectl and other clients show the text of such a response. A JSON Status, another code or a TLS alert they replace with
//! words of their own.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};

use hyper::body::{Body as _, Incoming};
use hyper::header::{CONTENT_TYPE, RETRY_AFTER};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;

use super::limits;
use super::server::{HTTP_1_1, HTTP_2};

const KIND: &str = "text/plain; charset=utf-8";

/// Whether a command that speaks this protocol (ALPN) can be answered.
pub(super) fn is_possible(protocol: Option<&[u8]>) -> bool {
    protocol.is_none_or(|protocol| [HTTP_1_1, HTTP_2].contains(&protocol))
}

/// Answers each request with this text, and ends the connection, so that the client makes a new one for its next request.
/// Returns whether there was a request. If the server `is_away`, a watch is told when to try again: client-go then does so
/// by itself, and need not list everything anew.
pub(super) async fn answer<S>(stream: S, text: &str, is_away: bool) -> bool
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let has_request = AtomicBool::new(false);
    let service = service_fn(|request: Request<Incoming>| {
        has_request.store(true, Ordering::Relaxed);
        let mut response = Response::builder().status(StatusCode::BAD_GATEWAY);
        let query = request.uri().query();
        let is_watch = query.is_some_and(|query| query.contains("watch=true"));
        if is_away && is_watch {
            response = response.header(RETRY_AFTER, 1);
        }
        let response = response.header(CONTENT_TYPE, KIND).body(format!("{text}\n"));
        async {
            let _ = timeout(limits::REASON_BODY, discard(request.into_body())).await;
            response
        }
    });
    let mut builder = Builder::new(TokioExecutor::new());
    builder.http1().keep_alive(false);
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
    let answered = poll_fn(|context| {
        let outcome = connection.as_mut().poll(context);
        // Only after a request: a client that has not sent one yet would send it on its next connection, where the same
        // would happen.
        if outcome.is_pending() && has_request.load(Ordering::Relaxed) {
            connection.as_mut().graceful_shutdown();
            return connection.as_mut().poll(context);
        }
        outcome
    });
    let _ = timeout(limits::REASON, answered).await;
    has_request.load(Ordering::Relaxed)
}

/// Reads a request to its end: most clients read no answer before they have sent all of it.
async fn discard(mut body: Incoming) {
    while let Some(Ok(_)) = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {}
}

#[cfg(test)]
mod tests {
    use std::time::Duration;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};
    use tokio::runtime::Builder;

    use tokio::time::{Instant, sleep};

    use super::*;

    /// What a client hears that sends this, then each second what follows, and whether it was told.
    fn heard(request: &'static [u8], then: &'static [u8]) -> (String, bool) {
        let runtime =
            Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let begin = Instant::now();
            let (client, stream) = duplex(1000);
            let answered = tokio::spawn(answer(stream, "no connection; check it", true));
            let (mut reading, mut writing) = tokio::io::split(client);
            let sending = tokio::spawn(async move {
                writing.write_all(request).await.unwrap();
                while !then.is_empty() && writing.write_all(then).await.is_ok() {
                    sleep(Duration::from_secs(1)).await;
                }
                writing
            });
            let mut heard = String::new();
            reading.read_to_string(&mut heard).await.unwrap();
            let has_request = answered.await.unwrap();
            sending.abort();
            assert!(begin.elapsed() <= limits::REASON + Duration::from_secs(1));
            (heard, has_request)
        })
    }

    /// As Python's clients do.
    #[test]
    fn who_sends_a_whole_body_before_reading_is_answered() {
        const LENGTH: usize = 10 << 20;
        let runtime = Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let (mut client, stream) = duplex(1000);
            let answered = tokio::spawn(answer(stream, "no connection; check it", true));
            let head = format!("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: {LENGTH}\r\n\r\n");
            client.write_all(head.as_bytes()).await.unwrap();
            client.write_all(&vec![0; LENGTH]).await.unwrap();
            let mut heard = String::new();
            client.read_to_string(&mut heard).await.unwrap();
            assert!(heard.ends_with("no connection; check it\n"), "{heard}");
            assert!(answered.await.unwrap());
        });
    }

    #[test]
    fn a_body_without_an_end_is_answered_too() {
        let head = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
        let (heard, has_request) = heard(head, b"5\r\nabcde\r\n");
        assert!(has_request && heard.ends_with("no connection; check it\n"));
    }

    #[test]
    fn who_asks_nothing_is_left_in_time() {
        assert_eq!(heard(b"", b""), (String::new(), false));
        assert_eq!(heard(b"GET / HT", b""), (String::new(), false));
    }
}
