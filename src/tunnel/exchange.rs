//! Requests of our own to an API server, over one connection as long as it stays open: with the token's key, or
//! through a tunnel as its clients send them.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, UNIX_EPOCH};

use http::header::HeaderMap;
use httpdate::parse_http_date;
use hyper::body::Body as _;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::{Method, Request, Response, header};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

use super::alpn::HTTP_1_1;
use super::answer;
use super::error::{ServedError, UpstreamFailure};
use super::server::Server;
use super::tunnel_client::TunnelClient;
use super::upstream::Upstream;
use super::{TunnelObserver, TunnelTarget, preparation};
use crate::error::Error;
use crate::keyring::{KeyNumber, Keyring};
use crate::process::unix_time;

/// How long an answer may take, once there is a connection.
const LIMIT: Duration = Duration::from_secs(30);

/// An API server that is sent requests, one after the other. The connection is made with the first one, and
/// anew where the server has closed it.
pub struct ServerExchange {
    /// `None` once it is dropped.
    runtime: Option<Runtime>,
    peer: ExchangePeer,
    host: String,
    /// What the server's URL has behind its host, without a slash at its end.
    path: String,
    longest_answer: usize,
    connection: Mutex<Option<SendRequest<String>>>,
}

/// What the requests are sent to.
enum ExchangePeer {
    Server(Arc<Upstream>),
    Tunnel(TunnelClient),
}

/// What an API server answered.
pub struct ServerAnswer {
    pub status: u16,
    pub body: Vec<u8>,
    /// The texts of its Warning headers.
    pub warnings: Vec<String>,
    /// By how many seconds its clock is ahead of this machine's, as far as it tells.
    pub clock_offset: Option<i64>,
}

impl ServerExchange {
    /// Nothing is sent yet. An answer of more bytes than `longest_answer` is none.
    ///
    /// # Errors
    ///
    /// The process has no descriptors left.
    pub fn new(
        cluster: TunnelTarget,
        key: KeyNumber,
        keyring: &Arc<Keyring>,
        observer: &Arc<dyn TunnelObserver>,
        longest_answer: usize,
    ) -> Result<Self, Error> {
        let path = path_of(&cluster.cluster.server);
        let server = Server::new(cluster, Arc::clone(observer));
        let host = server.host();
        let peer = ExchangePeer::Server(Arc::new(Upstream::new(server, keyring, Some(key))));
        Self::with(peer, host, path, longest_answer)
    }

    /// [`ServerExchange::new`] through a tunnel, whose client needs neither the key nor the server's address.
    ///
    /// # Errors
    ///
    /// Those of [`ServerExchange::new`].
    pub fn through(client: TunnelClient, longest_answer: usize) -> Result<Self, Error> {
        let host = client.address().to_string();
        let path = path_of(client.url());
        Self::with(ExchangePeer::Tunnel(client), host, path, longest_answer)
    }

    fn with(
        peer: ExchangePeer,
        host: String,
        path: String,
        longest_answer: usize,
    ) -> Result<Self, Error> {
        let runtime = Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| preparation(&error))?;
        Ok(Self {
            runtime: Some(runtime),
            peer,
            host,
            path,
            longest_answer,
            connection: Mutex::default(),
        })
    }

    /// Sends the request and waits for the answer. `path` is below that of the server's URL; the body is
    /// JSON.
    ///
    /// # Errors
    ///
    /// There is no connection, the server did not ask for a certificate, or there is no answer.
    pub fn send(
        &self,
        method: &Method,
        path: &str,
        body: Option<&str>,
    ) -> Result<ServerAnswer, Error> {
        let Some(runtime) = &self.runtime else {
            return Err(Error::internal("an exchange that has ended"));
        };
        let request = || {
            Request::builder()
                .method(method)
                .uri(format!("{}{path}", self.path))
                .header(header::HOST, &self.host)
                .header(header::USER_AGENT, env!("CARGO_PKG_NAME"))
                .header(header::CONTENT_TYPE, "application/json")
                .header(header::ACCEPT, "application/json")
                .body(body.unwrap_or_default().to_owned())
                .map_err(|error| self.error(UpstreamFailure::Unusable(error.to_string())))
        };
        let mut connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        runtime.block_on(async {
            let kept = match connection.take() {
                // A server closes a connection that was idle for long.
                Some(mut kept) => kept.ready().await.is_ok().then_some(kept),
                None => None,
            };
            let is_kept = kept.is_some();
            let mut sender = match kept {
                Some(kept) => kept,
                None => self.connect().await?,
            };
            let mut answer = self.ask(&mut sender, request()?).await;
            // It may have done so just now, and what is only read can be asked for once more.
            if is_kept && answer.is_err() && method == Method::GET {
                sender = self.connect().await?;
                answer = self.ask(&mut sender, request()?).await;
            }
            let answer = answer?;
            *connection = Some(sender);
            Ok(answer)
        })
    }

    /// The failure with this server.
    pub fn error(&self, failure: UpstreamFailure) -> Error {
        match &self.peer {
            ExchangePeer::Server(upstream) => upstream.error(failure),
            ExchangePeer::Tunnel(client) => client.upstream_error(failure),
        }
    }

    fn exchange_error(&self, error: &hyper::Error) -> Error {
        match &self.peer {
            ExchangePeer::Server(upstream) => upstream.exchange_error(error),
            ExchangePeer::Tunnel(client) => {
                client.upstream_error(UpstreamFailure::Broken(error.to_string()))
            }
        }
    }

    async fn connect(&self) -> Result<SendRequest<String>, Error> {
        let upstream = match &self.peer {
            ExchangePeer::Server(upstream) => upstream,
            ExchangePeer::Tunnel(client) => return self.begin(client.connect().await?).await,
        };
        let connection = upstream.connect(Some(HTTP_1_1.to_vec())).await;
        let connection =
            connection.map_err(|_| Error::internal("a connection was lost".to_owned()))??;
        upstream.connected(&connection);
        if !connection.is_authenticated() {
            return Err(self.error(UpstreamFailure::NotAsked));
        }
        self.begin(connection.stream).await
    }

    async fn begin<S>(&self, stream: S) -> Result<SendRequest<String>, Error>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let made = http1::handshake(TokioIo::new(stream)).await;
        let (sender, connection) = made.map_err(|error| self.exchange_error(&error))?;
        tokio::spawn(connection);
        Ok(sender)
    }

    async fn ask(
        &self,
        sender: &mut SendRequest<String>,
        request: Request<String>,
    ) -> Result<ServerAnswer, Error> {
        let exchange = async {
            let response = sender.send_request(request).await?;
            let is_tunnels = self.is_tunnels(&response);
            let answer = read(response, self.longest_answer).await?;
            Ok::<_, hyper::Error>((answer, is_tunnels))
        };
        match timeout(LIMIT, exchange).await {
            Ok(Ok((answer, true))) => Err(ServedError::told(&answer.body).into()),
            Ok(Ok((answer, _))) if answer.body.len() > self.longest_answer => {
                Err(self.error(UpstreamFailure::Unusable("its answer is too long".to_owned())))
            }
            Ok(Ok((answer, _))) => Ok(answer),
            Ok(Err(error)) => Err(self.exchange_error(&error)),
            Err(_) => Err(self.error(UpstreamFailure::TimedOut {
                doing: "the answer",
                seconds: LIMIT.as_secs(),
            })),
        }
    }

    /// Whether it is the tunnel that answers, and why there is no connection to the server.
    fn is_tunnels(&self, response: &Response<hyper::body::Incoming>) -> bool {
        matches!(self.peer, ExchangePeer::Tunnel(_)) && answer::is_bad_gateway(response)
    }
}

impl Drop for ServerExchange {
    /// Without waiting for a handshake that waits for a token.
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Servers such as Rancher's have their API below a path.
fn path_of(server: &str) -> String {
    let after_scheme = server.split_once("://").map_or(server, |(_, rest)| rest);
    let below = after_scheme.find('/').map_or("", |at| &after_scheme[at..]);
    below.trim_end_matches('/').to_owned()
}

/// The answer, whose body is read up to a little more than `longest` bytes.
async fn read(
    response: Response<hyper::body::Incoming>,
    longest: usize,
) -> hyper::Result<ServerAnswer> {
    let status = response.status().as_u16();
    let warnings = warnings(response.headers());
    let clock_offset = clock_offset(response.headers(), unix_time());
    let mut incoming = response.into_body();
    let mut body = Vec::new();
    while body.len() <= longest
        && let Some(frame) = poll_fn(|context| Pin::new(&mut incoming).poll_frame(context)).await
    {
        if let Ok(data) = frame?.into_data() {
            body.extend_from_slice(&data);
        }
    }
    Ok(ServerAnswer { status, body, warnings, clock_offset })
}

/// From the Date header (RFC 9110, section 6.6.1) and the time here, in seconds since 1970.
fn clock_offset(headers: &HeaderMap, now: i64) -> Option<i64> {
    let told = headers.get(header::DATE)?.to_str().ok()?;
    let told = parse_http_date(told).ok()?.duration_since(UNIX_EPOCH).ok()?;
    Some(i64::try_from(told.as_secs()).ok()?.saturating_sub(now))
}

/// The texts of Warning headers (RFC 7234, section 5.5), of which an API server sends one for each text.
fn warnings(headers: &HeaderMap) -> Vec<String> {
    let values = headers.get_all(header::WARNING).iter();
    values
        .filter_map(|value| {
            let value = String::from_utf8_lossy(value.as_bytes());
            let (_, quoted) = value.split_once('"')?;
            let mut text = String::new();
            let mut characters = quoted.chars();
            loop {
                match characters.next()? {
                    '"' => return Some(text),
                    '\\' => text.push(characters.next()?),
                    other => text.push(other),
                }
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_go_below_the_servers_path() {
        for (server, below) in [
            ("https://host:6443", ""),
            ("https://host/", ""),
            ("https://host/k8s/clusters/c-x/", "/k8s/clusters/c-x"),
            ("host", ""),
        ] {
            assert_eq!(path_of(server), below);
        }
    }

    #[test]
    fn a_clock_is_ahead_or_behind_by_what_the_server_tells() {
        let mut headers = HeaderMap::new();
        assert_eq!(clock_offset(&headers, 0), None);
        for (date, offset) in [
            ("Sun, 22 Nov 2026 04:00:00 GMT", Some(0)),
            ("Sun, 22 Nov 2026 04:05:00 GMT", Some(300)),
            ("Sun, 22 Nov 2026 03:58:00 GMT", Some(-120)),
            ("soon", None),
        ] {
            headers.insert(header::DATE, date.parse().unwrap());
            assert_eq!(clock_offset(&headers, 1_795_320_000), offset, "{date}");
        }
    }

    #[test]
    fn a_warning_is_what_stands_in_quotes() {
        let mut headers = HeaderMap::new();
        for value in [
            r#"299 - "one \"quoted\" \\ text" "Sun, 22 Nov 2026 00:00:00 GMT""#,
            r#"299 - "never ends"#,
            "299 - none",
            r#"299 - "two""#,
        ] {
            headers.append(header::WARNING, value.parse().unwrap());
        }
        assert_eq!(warnings(&headers), [r#"one "quoted" \ text"#, "two"]);
    }
}
