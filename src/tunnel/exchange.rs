//! Requests that this program itself makes to an API server with the token's key, over one connection as long as it stays
//! open.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex};

use hyper::body::Body as _;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::{Method, Request, Uri, header};
use hyper_util::rt::TokioIo;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::error::{timed_out, tunnel_error, unusable};
use super::limits;
use super::server::{HTTP_1_1, Server};
use super::upstream::{Authentication, Upstream};
use super::{Network, TunnelObserver, TunnelTarget, route};
use keyring::{KeyNumber, OpenKeys};
use messages::error::{Error, PROGRAM};
use system::locked;

/// The longest answer that is read, in bytes. An object with a thousand groups is far shorter.
const LONGEST_ANSWER: usize = 1 << 20;

/// An API server, to which requests are sent one after the other. The connection is made for the first one, and again if
/// the server has closed it.
pub struct ServerExchange {
    network: Network,
    upstream: Arc<Upstream>,
    /// The server's URL. Some servers, such as Rancher's, have their API below a path.
    url: Uri,
    connection: Mutex<Option<HttpConnection>>,
}

/// A connection to the server.
struct HttpConnection {
    sender: SendRequest<String>,
    /// The task that serves the connection.
    task: JoinHandle<hyper::Result<()>>,
}

/// What the server has answered.
pub struct ServerAnswer {
    /// The HTTP status.
    pub status: u16,
    pub body: Vec<u8>,
}

impl ServerExchange {
    /// An exchange with the server of this cluster. Nothing is sent yet.
    pub fn new(
        cluster: TunnelTarget,
        key: KeyNumber,
        keyring: Arc<dyn OpenKeys>,
        observer: &Arc<dyn TunnelObserver>,
    ) -> Result<Self, Error> {
        // A URL that can't be used is reported with the first connection.
        let url = route::server_url(&cluster.cluster).unwrap_or_default();
        let server = Server::new(cluster, Arc::clone(observer));
        Ok(Self {
            network: Network::start()?,
            upstream: Arc::new(Upstream::new(server, keyring, key)),
            url,
            connection: Mutex::default(),
        })
    }

    /// Sends the request, with JSON as its body, and waits for the answer. `path` is relative to the URL's path.
    pub fn send(
        &self,
        method: &Method,
        path: &str,
        body: Option<&str>,
    ) -> Result<ServerAnswer, Error> {
        let request = || {
            Request::builder()
                .method(method)
                .uri(format!("{}{path}", self.url.path().trim_end_matches('/')))
                .header(header::HOST, route::authority(&self.url))
                .header(header::USER_AGENT, PROGRAM)
                .header(header::CONTENT_TYPE, "application/json")
                .header(header::ACCEPT, "application/json")
                .body(body.unwrap_or_default().to_owned())
                .map_err(|error| self.error(unusable(error.to_string())))
        };
        let mut connection = locked(&self.connection);
        self.network.handle.block_on(async {
            // A server closes a connection that was idle for long.
            if let Some(mut kept) = connection.take()
                && kept.sender.ready().await.is_ok()
            {
                let answer = self.ask(&mut kept, request()?).await;
                // It may have done so just now. A request that only reads can be sent again.
                if answer.is_ok() || method != Method::GET {
                    *connection = answer.is_ok().then_some(kept);
                    return answer;
                }
            }
            let new = connection.insert(self.connect().await?);
            self.ask(new, request()?).await.inspect_err(|_| *connection = None)
        })
    }

    fn error(&self, error: Error) -> Error {
        self.upstream.server.error(error)
    }

    async fn connect(&self) -> Result<HttpConnection, Error> {
        let connection = self.upstream.connect(Some(HTTP_1_1.to_vec())).await;
        let connection = connection.map_err(|_| Error::internal("a connection was lost"))??;
        self.upstream.connected(&connection);
        if connection.authentication == Authentication::NotAsked {
            return Err(self.error(tunnel_error(
                "the server asked for no client certificate, so it knows no user by it",
                "something between here and the API server ends TLS, where client certificates get \
                 lost: connect to the API server itself",
            )));
        }
        let made = http1::handshake(TokioIo::new(connection.stream)).await;
        let (sender, connection) = made.map_err(|error| self.upstream.error(&error))?;
        Ok(HttpConnection { sender, task: tokio::spawn(connection) })
    }

    async fn ask(
        &self,
        connection: &mut HttpConnection,
        request: Request<String>,
    ) -> Result<ServerAnswer, Error> {
        let exchange = async {
            let response = connection.sender.send_request(request).await?;
            let status = response.status().as_u16();
            let mut incoming = response.into_body();
            let mut body = Vec::new();
            while body.len() <= LONGEST_ANSWER
                && let Some(frame) =
                    poll_fn(|context| Pin::new(&mut incoming).poll_frame(context)).await
            {
                if let Ok(data) = frame?.into_data() {
                    body.extend_from_slice(&data);
                }
            }
            hyper::Result::Ok(ServerAnswer { status, body })
        };
        match timeout(limits::OWN_ANSWER, exchange).await {
            Ok(Ok(answer)) if answer.body.len() > LONGEST_ANSWER => {
                let text = format!("the server's answer is longer than {LONGEST_ANSWER} bytes");
                Err(self.error(tunnel_error(
                    text,
                    "check that the cluster's server is an API server, and not something else at its address",
                )))
            }
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => match timeout(limits::OWN_END, &mut connection.task).await {
                // How the connection has ended says more than the failure of the request.
                Ok(Ok(Err(end))) => Err(self.upstream.error(&end)),
                _ => Err(self.upstream.error(&error)),
            },
            Err(_) => Err(self.error(timed_out("the answer", limits::OWN_ANSWER.as_secs()))),
        }
    }
}
