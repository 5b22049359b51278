//! The way to a server: straight, or through the proxy that the kubeconfig or the environment
//! names, as kubectl does it.

use std::fmt::Display;
use std::future::{Ready, ready};
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::{HOST, PROXY_AUTHORIZATION, USER_AGENT};
use http::{HeaderValue, Request, StatusCode, Uri};
use hyper::client::conn::http1;
use hyper_util::client::legacy::connect::proxy::SocksV5;
use hyper_util::rt::TokioIo;
use percent_encoding::percent_decode_str;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tower_service::Service;

use super::address::Address;
use super::error::UpstreamFailure;
use super::wire::Stream;
use super::{no_proxy, trust};

/// To a server, and through which proxy, if through one.
pub(super) struct Route {
    server: Address,
    proxy: Option<Proxy>,
}

struct Proxy {
    kind: Kind,
    address: Address,
    user: Option<User>,
}

#[derive(Clone, Copy)]
enum Kind {
    Http,
    Https,
    Socks5,
}

struct User {
    name: String,
    password: String,
}

impl Route {
    /// Through the cluster's `proxy-url`, else through HTTPS_PROXY unless NO_PROXY excepts the
    /// server.
    pub(super) fn to(server: Address, proxy_url: Option<&str>) -> Result<Self, UpstreamFailure> {
        let (named_by, url) = match proxy_url {
            Some(url) => ("its proxy-url", url.to_owned()),
            None => ("HTTPS_PROXY", variable(["HTTPS_PROXY", "https_proxy"])),
        };
        let is_excepted = || {
            proxy_url.is_none() && no_proxy::excepts(&variable(["NO_PROXY", "no_proxy"]), &server)
        };
        if url.is_empty() || is_excepted() {
            return Ok(Self {
                server,
                proxy: None,
            });
        }
        let proxy = Proxy::read(&url).ok_or_else(|| UpstreamFailure::Proxy {
            // Not the text itself: it can hold a password.
            proxy: format!("of {named_by}"),
            reason: "it is not the URL of an http, https or socks5 proxy".to_owned(),
        })?;
        Ok(Self {
            server,
            proxy: Some(proxy),
        })
    }

    /// A connection to the server.
    pub(super) async fn dial(&self) -> Result<Box<dyn Stream>, UpstreamFailure> {
        match &self.proxy {
            None => Ok(Box::new(self.server.connect().await?)),
            Some(proxy) => proxy.dial(&self.server).await,
        }
    }
}

/// The first of the variables that isn't empty.
fn variable(names: [&str; 2]) -> String {
    names
        .iter()
        .filter_map(std::env::var_os)
        .find(|value| !value.is_empty())
        // What isn't text is no URL either, and must not pass for a variable that isn't set.
        .map_or_else(String::new, |value| value.to_string_lossy().into_owned())
}

impl Proxy {
    /// Without a scheme it is an http proxy.
    fn read(url: &str) -> Option<Self> {
        let url = Uri::try_from(url).ok()?;
        let (kind, usual_port) = match url.scheme_str().unwrap_or("http") {
            "http" => (Kind::Http, 80),
            "https" => (Kind::Https, 443),
            "socks5" | "socks5h" => (Kind::Socks5, 1080),
            _ => return None,
        };
        let user = url.authority()?.as_str().rsplit_once('@').map(|(user, _)| {
            let (name, password) = user.split_once(':').unwrap_or((user, ""));
            let decoded = |text| percent_decode_str(text).decode_utf8_lossy().into_owned();
            User {
                name: decoded(name),
                password: decoded(password),
            }
        });
        Some(Self {
            kind,
            address: Address::of(&url, usual_port)?,
            user,
        })
    }

    fn name(&self) -> String {
        let scheme = match self.kind {
            Kind::Http => "http",
            Kind::Https => "https",
            Kind::Socks5 => "socks5",
        };
        format!("{scheme}://{}", self.address)
    }

    async fn dial(&self, server: &Address) -> Result<Box<dyn Stream>, UpstreamFailure> {
        let failed = |reason: &dyn Display| UpstreamFailure::Proxy {
            proxy: self.name(),
            reason: reason.to_string(),
        };
        let stream = self
            .address
            .connect()
            .await
            .map_err(|failure| match failure {
                UpstreamFailure::Connect(reason) | UpstreamFailure::Resolve(reason) => {
                    failed(&reason)
                }
                other => other,
            })?;
        let stream: Box<dyn Stream> = match self.kind {
            Kind::Socks5 => return self.socks(stream, server).await.map_err(|e| failed(&e)),
            Kind::Http => Box::new(stream),
            Kind::Https => {
                let encrypted = encrypt(&self.address, stream).await;
                Box::new(encrypted.map_err(|error| failed(&error))?)
            }
        };
        match self.tunnel(stream, server).await {
            Ok(stream) => Ok(stream),
            Err(ProxyRefusal::Status(status)) => Err(UpstreamFailure::ProxyAnswer {
                proxy: self.name(),
                status,
            }),
            Err(ProxyRefusal::Other(error)) => Err(failed(&error)),
        }
    }

    /// A tunnel that an HTTP proxy makes (RFC 9110, section 9.3.6).
    async fn tunnel(
        &self,
        stream: Box<dyn Stream>,
        server: &Address,
    ) -> Result<Box<dyn Stream>, ProxyRefusal> {
        const AGENT: &str = concat!(env!("CARGO_PKG_NAME"), "/", env!("CARGO_PKG_VERSION"));
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        let mut request = Request::connect(server.to_string())
            .header(HOST, server.to_string())
            .header(USER_AGENT, AGENT);
        if let Some(User { name, password }) = &self.user {
            let mut basic = format!("Basic {}", STANDARD.encode(format!("{name}:{password}")))
                .parse::<HeaderValue>()?;
            basic.set_sensitive(true);
            request = request.header(PROXY_AUTHORIZATION, basic);
        }
        let connection = tokio::spawn(connection.without_shutdown());
        let response = sender.send_request(request.body(String::new())?).await?;
        if !response.status().is_success() {
            connection.abort();
            return Err(ProxyRefusal::Status(response.status()));
        }
        // In TLS the server says nothing before the client, so nothing was read beyond the answer.
        Ok(connection.await??.io.into_inner())
    }

    async fn socks(
        &self,
        stream: TcpStream,
        server: &Address,
    ) -> Result<Box<dyn Stream>, Box<dyn std::error::Error + Send + Sync>> {
        let dialled: TokioIo<Box<dyn Stream>> = TokioIo::new(Box::new(stream));
        let target = Uri::try_from(format!("https://{server}"))?;
        let mut socks = SocksV5::new(target.clone(), Dialled(Some(dialled)));
        if let Some(User { name, password }) = &self.user {
            socks = socks.with_auth(name.clone(), password.clone());
        }
        Ok(socks.call(target).await?.into_inner())
    }
}

/// Why a proxy made no tunnel.
enum ProxyRefusal {
    Status(StatusCode),
    Other(Box<dyn std::error::Error + Send + Sync>),
}

impl<E: std::error::Error + Send + Sync + 'static> From<E> for ProxyRefusal {
    fn from(error: E) -> Self {
        Self::Other(Box::new(error))
    }
}

/// TLS to the proxy itself, with what this machine trusts.
async fn encrypt(
    proxy: &Address,
    stream: TcpStream,
) -> io::Result<tokio_rustls::client::TlsStream<TcpStream>> {
    let roots = trust::system().map_err(io::Error::other)?;
    let config = ClientConfig::builder_with_provider(trust::provider())
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from(proxy.host().to_owned()).map_err(io::Error::other)?;
    TlsConnector::from(Arc::new(config))
        .connect(name, stream)
        .await
}

/// The connection to the proxy, for the one that asks for it.
struct Dialled(Option<TokioIo<Box<dyn Stream>>>);

impl Service<Uri> for Dialled {
    type Response = TokioIo<Box<dyn Stream>>;
    type Error = io::Error;
    type Future = Ready<io::Result<Self::Response>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        ready(
            self.0
                .take()
                .ok_or_else(|| io::Error::other("the proxy was asked twice")),
        )
    }
}
