//! The way to a server: straight, or through the proxy that the kubeconfig or the environment
//! names, as kubectl does it.

use std::fmt::Display;
use std::future::{Ready, ready};
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use hyper_util::client::legacy::connect::proxy::{SocksV5, Tunnel};
use hyper_util::client::proxy::matcher::{Intercept, Matcher};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpStream, lookup_host};
use tokio_rustls::TlsConnector;
use tower_service::Service;

use super::trust;
use super::wire::Stream;
use crate::error::UpstreamFailure;

/// A connection whose other end is gone without a word is noticed after some of these.
const KEEPALIVE: Duration = Duration::from_secs(30);

/// Which proxy leads to a server, if one does.
pub(super) struct Route {
    proxy: Option<Intercept>,
}

impl Route {
    /// The cluster's `proxy-url`, else HTTPS_PROXY unless NO_PROXY or a loopback address excepts
    /// the server.
    pub(super) fn to(server: &Uri, proxy_url: Option<&str>) -> Result<Self, UpstreamFailure> {
        let matcher = match proxy_url {
            Some(url) => Matcher::builder().all(url.to_owned()).build(),
            None if is_loopback(server) => return Ok(Self { proxy: None }),
            None => Matcher::builder()
                .https(variable("HTTPS_PROXY"))
                .no(variable("NO_PROXY"))
                .build(),
        };
        let proxy = matcher.intercept(server);
        match (&proxy, proxy_url) {
            (None, Some(_)) => Err(UpstreamFailure::Unusable(
                "its proxy-url is not a URL".to_owned(),
            )),
            _ => Ok(Self { proxy }),
        }
    }

    /// A connection to the server.
    pub(super) async fn dial(&self, server: &Uri) -> Result<Box<dyn Stream>, UpstreamFailure> {
        match &self.proxy {
            None => Ok(Box::new(connect(server, 443).await?)),
            Some(proxy) => through(proxy, server).await,
        }
    }
}

/// In capitals or in small letters, the small ones first, as curl and Go have it.
fn variable(name: &str) -> String {
    [name.to_lowercase(), name.to_owned()]
        .iter()
        .find_map(|name| std::env::var_os(name).filter(|value| !value.is_empty()))
        .and_then(|value| value.into_string().ok())
        .unwrap_or_default()
}

fn is_loopback(server: &Uri) -> bool {
    host(server).is_some_and(|host| {
        host == "localhost"
            || host
                .parse::<std::net::IpAddr>()
                .is_ok_and(|address| address.is_loopback())
    })
}

/// Without the brackets of an IPv6 address.
pub(super) fn host(server: &Uri) -> Option<&str> {
    server
        .host()
        .map(|host| host.trim_start_matches('[').trim_end_matches(']'))
}

async fn connect(to: &Uri, usual_port: u16) -> Result<TcpStream, UpstreamFailure> {
    let host = host(to).unwrap_or_default();
    let port = to.port_u16().unwrap_or(usual_port);
    let addresses: Vec<_> = lookup_host((host, port))
        .await
        .map_err(|error| UpstreamFailure::Resolve(error.to_string()))?
        .collect();
    let stream = TcpStream::connect(addresses.as_slice())
        .await
        .map_err(|error| UpstreamFailure::Connect(error.to_string()))?;
    let _ = stream.set_nodelay(true);
    let keepalive = TcpKeepalive::new()
        .with_time(KEEPALIVE)
        .with_interval(KEEPALIVE);
    let _ = SockRef::from(&stream).set_tcp_keepalive(&keepalive);
    Ok(stream)
}

async fn through(proxy: &Intercept, server: &Uri) -> Result<Box<dyn Stream>, UpstreamFailure> {
    let place = proxy.uri();
    // Not the whole of it: it can hold a password.
    let name = format!(
        "{}://{}",
        place.scheme_str().unwrap_or("http"),
        place.authority().map_or("", |authority| authority
            .as_str()
            .rsplit('@')
            .next()
            .unwrap_or_default())
    );
    let failed = |reason: &dyn Display| UpstreamFailure::Proxy {
        proxy: name.clone(),
        reason: reason.to_string(),
    };
    let usual_port = match place.scheme_str() {
        Some("https") => 443,
        Some("socks5" | "socks5h") => 1080,
        _ => 80,
    };
    let stream = connect(place, usual_port)
        .await
        .map_err(|failure| match failure {
            UpstreamFailure::Connect(reason) | UpstreamFailure::Resolve(reason) => failed(&reason),
            other => other,
        })?;
    // Always with a port: without one it is a matter of taste which is meant.
    let target = format!(
        "https://{}:{}",
        server.host().unwrap_or_default(),
        server.port_u16().unwrap_or(443)
    );
    let target = Uri::try_from(target).map_err(|error| failed(&error))?;
    let dialled = |stream: Box<dyn Stream>| Dialled(Some(TokioIo::new(stream)));
    let stream = match place.scheme_str() {
        Some("socks5" | "socks5h") => {
            let mut socks = SocksV5::new(place.clone(), dialled(Box::new(stream)));
            if let Some((user, password)) = proxy.raw_auth() {
                socks = socks.with_auth(user.to_owned(), password.to_owned());
            }
            socks.call(target).await.map_err(|error| failed(&error))?
        }
        scheme => {
            let stream: Box<dyn Stream> = match scheme {
                Some("https") => Box::new(
                    encrypt(place, stream)
                        .await
                        .map_err(|error| failed(&error))?,
                ),
                Some("http") => Box::new(stream),
                _ => return Err(failed(&"only http, https and socks5 proxies are known")),
            };
            let mut tunnel = Tunnel::new(place.clone(), dialled(stream));
            if let Some(auth) = proxy.basic_auth() {
                tunnel = tunnel.with_auth(auth.clone());
            }
            tunnel.call(target).await.map_err(|error| failed(&error))?
        }
    };
    Ok(stream.into_inner())
}

/// TLS to the proxy itself, with what this machine trusts.
async fn encrypt(
    proxy: &Uri,
    stream: TcpStream,
) -> io::Result<tokio_rustls::client::TlsStream<TcpStream>> {
    let roots = trust::system().map_err(io::Error::other)?;
    let config = ClientConfig::builder_with_provider(trust::provider())
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = host(proxy).unwrap_or_default().to_owned();
    let name = ServerName::try_from(name).map_err(io::Error::other)?;
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
