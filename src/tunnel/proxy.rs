//! How a server is reached: directly, or through the proxy that the kubeconfig or the environment
//! names, as kubectl does it.

use std::future::{Ready, ready};
use std::io;
use std::net::SocketAddr;
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
use super::server::address_of;
use super::wire::Stream;
use super::{TunnelTarget, no_proxy, trust};
use crate::kubeconfig::Cluster;

/// A server, and the proxy through which it is reached, if there is one.
pub(super) struct Route {
    server: Address,
    proxy: Option<Proxy>,
}

struct Proxy {
    scheme: &'static str,
    address: Address,
    user: Option<ProxyUser>,
}

struct ProxyUser {
    name: String,
    password: String,
}

type AnyError = Box<dyn std::error::Error + Send + Sync>;

impl Route {
    /// The proxy is the cluster's `proxy-url`, else that of the environment, if it counts.
    ///
    /// # Errors
    ///
    /// The proxy's URL can't be used.
    pub(super) fn to(server: Address, target: &TunnelTarget) -> Result<Self, UpstreamFailure> {
        let (named_by, url) = match &target.cluster.proxy_url {
            Some(url) => ("its proxy-url", url.clone()),
            None if target.heeds_environment => ("HTTPS_PROXY", of_environment(&server, variable)),
            None => ("nothing", String::new()),
        };
        let proxy = match url.as_str() {
            "" => None,
            url => Some(Proxy::read(url).ok_or_else(|| UpstreamFailure::Proxy {
                // Not the text itself: it can hold a password.
                proxy: format!("of {named_by}"),
                reason: "it is not the URL of an http, https or socks5 proxy".to_owned(),
            })?),
        };
        Ok(Self { server, proxy })
    }

    /// A connection to the server.
    pub(super) async fn dial(&self) -> Result<Box<dyn Stream>, UpstreamFailure> {
        match &self.proxy {
            None => Ok(Box::new(self.server.connect().await?)),
            Some(proxy) => proxy.dial(&self.server).await,
        }
    }
}

/// The URL of the proxy through which the cluster is reached: its `proxy-url`, or that of this process's
/// environment. To be asked in the process whose environment counts, for a target that doesn't heed its
/// own.
pub fn effective_proxy(cluster: &Cluster) -> Option<String> {
    effective(cluster, variable)
}

/// Whether clients that don't except local addresses by themselves, such as Python's and JavaScript's,
/// go to this one through the proxy of this process's environment.
pub fn is_proxied_elsewhere(address: SocketAddr) -> bool {
    let uri = Uri::try_from(format!("https://{address}"));
    let server = uri.ok().and_then(|uri| Address::of(&uri, 443));
    let is_listed = |server: &Address| no_proxy::lists(&variable(["NO_PROXY", "no_proxy"]), server);
    !variable(["HTTPS_PROXY", "https_proxy"]).is_empty() && !server.as_ref().is_some_and(is_listed)
}

fn effective(cluster: &Cluster, variable: impl Fn([&str; 2]) -> String) -> Option<String> {
    let url = match &cluster.proxy_url {
        Some(url) => url.clone(),
        None => of_environment(&address_of(cluster).ok()?, variable),
    };
    (!url.is_empty()).then_some(url)
}

/// HTTPS_PROXY, unless NO_PROXY excepts the server.
fn of_environment(server: &Address, variable: impl Fn([&str; 2]) -> String) -> String {
    match no_proxy::excepts(&variable(["NO_PROXY", "no_proxy"]), server) {
        true => String::new(),
        false => variable(["HTTPS_PROXY", "https_proxy"]),
    }
}

/// The first of the variables that isn't empty.
fn variable(names: [&str; 2]) -> String {
    names
        .iter()
        .filter_map(std::env::var_os)
        .find(|value| !value.is_empty())
        // What isn't UTF-8 is no URL either, but must not count as a variable that isn't set.
        .map_or_else(String::new, |value| value.to_string_lossy().into_owned())
}

impl Proxy {
    /// Without a scheme it is an http proxy.
    fn read(url: &str) -> Option<Self> {
        let url = Uri::try_from(url).ok()?;
        let (scheme, usual_port) = match url.scheme_str().unwrap_or("http") {
            "http" => ("http", 80),
            "https" => ("https", 443),
            "socks5" | "socks5h" => ("socks5", 1080),
            _ => return None,
        };
        let user = url.authority()?.as_str().rsplit_once('@').map(|(user, _)| {
            let (name, password) = user.split_once(':').unwrap_or((user, ""));
            let decoded = |text| percent_decode_str(text).decode_utf8_lossy().into_owned();
            ProxyUser { name: decoded(name), password: decoded(password) }
        });
        Some(Self { scheme, address: Address::of(&url, usual_port)?, user })
    }

    fn name(&self) -> String {
        format!("{}://{}", self.scheme, self.address)
    }

    async fn dial(&self, server: &Address) -> Result<Box<dyn Stream>, UpstreamFailure> {
        let failed = |reason: String| UpstreamFailure::Proxy { proxy: self.name(), reason };
        let stream = match self.address.connect().await {
            Ok(stream) => stream,
            Err(UpstreamFailure::Connect(reason) | UpstreamFailure::Resolve(reason)) => {
                return Err(failed(reason));
            }
            Err(other) => return Err(other),
        };
        let connected = match self.scheme {
            "socks5" => self.socks(stream, server).await.map(Ok),
            "https" => match encrypt(&self.address, stream).await {
                Ok(stream) => self.tunnel(Box::new(stream), server).await,
                Err(error) => Err(error.into()),
            },
            _ => self.tunnel(Box::new(stream), server).await,
        };
        let connected = connected.map_err(|error| failed(error.to_string()))?;
        connected.map_err(|status| UpstreamFailure::ProxyAnswer { proxy: self.name(), status })
    }

    /// A tunnel that an HTTP proxy makes (RFC 9110, section 9.3.6), or the status it refuses with.
    async fn tunnel(
        &self,
        stream: Box<dyn Stream>,
        server: &Address,
    ) -> Result<Result<Box<dyn Stream>, StatusCode>, AnyError> {
        const AGENT: &str = concat!(env!("CARGO_PKG_NAME"), "/", env!("CARGO_PKG_VERSION"));
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        let mut request = Request::connect(server.to_string())
            .header(HOST, server.to_string())
            .header(USER_AGENT, AGENT);
        if let Some(ProxyUser { name, password }) = &self.user {
            let mut basic = format!("Basic {}", STANDARD.encode(format!("{name}:{password}")))
                .parse::<HeaderValue>()?;
            basic.set_sensitive(true);
            request = request.header(PROXY_AUTHORIZATION, basic);
        }
        let connection = tokio::spawn(connection.without_shutdown());
        let response = sender.send_request(request.body(String::new())?).await?;
        if !response.status().is_success() {
            connection.abort();
            return Ok(Err(response.status()));
        }
        // In TLS the server says nothing before the client, so nothing was read beyond the answer.
        Ok(Ok(connection.await??.io.into_inner()))
    }

    async fn socks(
        &self,
        stream: TcpStream,
        server: &Address,
    ) -> Result<Box<dyn Stream>, AnyError> {
        let dialled: TokioIo<Box<dyn Stream>> = TokioIo::new(Box::new(stream));
        let target = Uri::try_from(format!("https://{server}"))?;
        let mut socks = SocksV5::new(target.clone(), Dialled(Some(dialled)));
        if let Some(ProxyUser { name, password }) = &self.user {
            socks = socks.with_auth(name.clone(), password.clone());
        }
        Ok(socks.call(target).await?.into_inner())
    }
}

/// TLS to the proxy itself, with the certificates that this machine trusts.
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
    TlsConnector::from(Arc::new(config)).connect(name, stream).await
}

/// Hands out the one connection to the proxy.
struct Dialled(Option<TokioIo<Box<dyn Stream>>>);

impl Service<Uri> for Dialled {
    type Response = TokioIo<Box<dyn Stream>>;
    type Error = io::Error;
    type Future = Ready<io::Result<Self::Response>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        ready(self.0.take().ok_or_else(|| io::Error::other("the proxy was asked twice")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cluster(server: &str, proxy_url: Option<&str>) -> Cluster {
        Cluster {
            server: server.to_owned(),
            authority: None,
            tls_server_name: None,
            insecure: false,
            proxy_url: proxy_url.map(str::to_owned),
        }
    }

    #[test]
    fn the_proxy_is_the_clusters_or_that_of_the_environment() {
        let variable = |names: [&str; 2]| match names[0] {
            "NO_PROXY" => "near.example".to_owned(),
            _ => "http://proxy:1".to_owned(),
        };
        for (server, proxy_url, expected) in [
            ("https://far.example", None, Some("http://proxy:1")),
            ("https://far.example", Some("socks5://own"), Some("socks5://own")),
            ("https://far.example", Some(""), None),
            ("https://near.example", None, None),
            ("https://near.example", Some("http://own"), Some("http://own")),
            ("ftp://far.example", None, None),
        ] {
            let proxy = effective(&cluster(server, proxy_url), variable);
            assert_eq!(proxy.as_deref(), expected, "{server}");
        }
        assert_eq!(effective(&cluster("https://far.example", None), |_| String::new()), None);
    }

    #[test]
    fn a_target_can_leave_the_environment_out() {
        let target = |proxy_url| TunnelTarget {
            name: "c".to_owned(),
            cluster: cluster("https://far.example", proxy_url),
            heeds_environment: false,
        };
        for (proxy_url, has_proxy) in [(None, false), (Some("http://own"), true)] {
            let target = target(proxy_url);
            let address = address_of(&target.cluster).unwrap();
            let route = Route::to(address, &target).ok().unwrap();
            assert_eq!(route.proxy.is_some(), has_proxy);
        }
    }
}
