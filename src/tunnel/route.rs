//! How a server is reached: directly, or through a proxy that the kubeconfig or the environment names.

use std::error::Error as StandardError;
use std::future::{Ready, ready};
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::header::{HeaderMap, HeaderValue, USER_AGENT};
use http::{Uri, uri};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::proxy::{SocksV5, Tunnel};
use hyper_util::client::proxy::matcher::{Intercept, Matcher};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tower_service::Service;

use super::error::{NO_WAY, innermost, is_late, timed_out, tunnel_error};
use super::wire::Stream;
use super::{limits, trust};
use crate::error::UNREACHABLE;
use kubeconfig::Cluster;
use messages::error::Error;
use messages::help::{Help, command};

const AGENT: HeaderValue =
    HeaderValue::from_static(concat!("pkcs11-external-signer/", env!("CARGO_PKG_VERSION")));

type AnyError = Box<dyn StandardError + Send + Sync>;

/// The URL of a cluster's server, with a host, a port and a path; or why it can't be used.
pub(super) fn server_url(cluster: &Cluster) -> Result<Uri, &'static str> {
    const NO_URL: &str = "its server is not a URL";
    let server = &cluster.server;
    let url = match server.split_once("://") {
        None => format!("https://{server}"),
        Some(_) => server.clone(),
    };
    let url = Uri::try_from(url).map_err(|_| NO_URL)?;
    match url.scheme_str() {
        Some("https") => with_port(&url, "https", 443).ok_or(NO_URL),
        _ => Err("its server is not an https URL, and a certificate needs TLS"),
    }
}

/// The host of a URL, without the brackets of an IPv6 address.
pub(super) fn host(url: &Uri) -> &str {
    let host = url.host().unwrap_or_default();
    host.trim_start_matches('[').trim_end_matches(']')
}

/// The URL with a port and without a user and a password; `None` if its port is no number from 1 to 65535.
fn with_port(url: &Uri, scheme: &str, usual_port: u16) -> Option<Uri> {
    let authority = url.authority().filter(|authority| !authority.host().is_empty())?;
    let host_and_port = match authority.as_str().rsplit_once('@') {
        Some((_, host_and_port)) => host_and_port,
        None => authority.as_str(),
    };
    let port = match host_and_port.strip_prefix(authority.host())? {
        "" | ":" => usual_port,
        port => port.strip_prefix(':')?.parse().ok().filter(|port| *port > 0)?,
    };
    let authority = format!("{}:{port}", authority.host());
    uri::Builder::new().scheme(scheme).authority(authority).path_and_query(url.path()).build().ok()
}

/// The URL of the proxy through which the cluster is reached: its `proxy-url`, or that of this process's environment.
pub fn effective_proxy(cluster: &Cluster) -> Option<String> {
    effective(cluster, variable)
}

fn effective(cluster: &Cluster, variable: impl Fn([&str; 2]) -> String) -> Option<String> {
    let url = match &cluster.proxy_url {
        Some(url) => url.clone(),
        None if is_excepted(&server_url(cluster).ok()?, &variable(["NO_PROXY", "no_proxy"])) => {
            return None;
        }
        None => variable(["HTTPS_PROXY", "https_proxy"]),
    };
    (!url.is_empty()).then_some(url)
}

/// Whether the server is on this machine, or in the list of servers that need no proxy.
fn is_excepted(server: &Uri, list: &str) -> bool {
    let host = host(server);
    let ip = host.parse().map(|ip: std::net::IpAddr| ip.to_canonical());
    // kubectl takes `*.example` for `.example`.
    let matcher = Matcher::builder().all("http://proxy").no(list.replace("*.", ".")).build();
    host == "localhost"
        || list.split(',').any(|entry| entry.trim() == "*")
        || ip.is_ok_and(|ip| ip.is_loopback())
        || matcher.intercept(server).is_none()
}

/// The value of the first of these variables that isn't empty.
fn variable(names: [&str; 2]) -> String {
    let values = names.iter().filter_map(std::env::var_os);
    // A value that isn't UTF-8 is no URL, but the variable must not count as unset.
    values
        .map(|value| value.to_string_lossy().into_owned())
        .find(|value| !value.is_empty())
        .unwrap_or_default()
}

/// A connection to the cluster's server, which has this URL, through its `proxy-url` if it has one.
pub(super) async fn dial(cluster: &Cluster, server: &Uri) -> Result<Box<dyn Stream>, Error> {
    match cluster.proxy_url.as_deref().unwrap_or_default() {
        "" => Ok(Box::new(connect(server).await.map_err(|error| not_connected(&*error))?)),
        url => {
            let Proxy { intercept, address } = Proxy::of(url, server).ok_or_else(|| {
                // Without the text itself, which may contain a password.
                proxy_failure(
                    "its proxy-url or HTTPS_PROXY is not the URL of an http, https or socks5 proxy",
                )
            })?;
            let stream = through(&intercept, &address, server).await;
            stream.map_err(|error| {
                let name = format!(
                    "{}://{}",
                    address.scheme_str().unwrap_or_default(),
                    authority(&address)
                );
                let reason = innermost(&*error);
                proxy_failure(&format!("no connection through the proxy {name}: {reason}"))
            })
        }
    }
}

fn proxy_failure(text: &str) -> Error {
    tunnel_error(
        text,
        Help::from(
            "check proxy-url in the kubeconfig, or HTTPS_PROXY and NO_PROXY in the environment: the proxy must allow \
             CONNECT to the server, and may want a user and a password (http://user:password@proxy:3128); ",
        )
        .and(command("stop"))
        .and(" ends a tunnel process with another proxy"),
    )
}

fn not_connected(error: &(dyn StandardError + 'static)) -> Error {
    let reason = innermost(error);
    if error.to_string().contains("dns") {
        return tunnel_error(
            format!("the name has no address: {reason}"),
            "check the cluster's server in the kubeconfig, and DNS or the VPN that provides it",
        );
    }
    let error = if is_late(error) {
        timed_out("connecting", limits::CONNECT.as_secs())
    } else {
        tunnel_error(format!("no connection: {reason}"), NO_WAY)
    };
    error.kind(UNREACHABLE)
}

/// Host and port of a URL.
pub(super) fn authority(url: &Uri) -> &str {
    url.authority().map_or("", uri::Authority::as_str)
}

/// A proxy.
struct Proxy {
    /// The proxy with its credentials, if it has any.
    intercept: Intercept,
    /// The proxy's URL, with a scheme and a port.
    address: Uri,
}

impl Proxy {
    /// The proxy with this URL, for a connection to the server. Without a scheme it is an http proxy. `None` if it is no
    /// URL of a proxy.
    fn of(url: &str, server: &Uri) -> Option<Self> {
        let intercept = Matcher::builder().all(url).build().intercept(server)?;
        let (scheme, usual_port) = match intercept.uri().scheme_str()? {
            "http" => ("http", 80),
            "https" => ("https", 443),
            "socks5" | "socks5h" => ("socks5", 1080),
            _ => return None,
        };
        let address = with_port(intercept.uri(), scheme, usual_port)?;
        Some(Self { intercept, address })
    }
}

/// Makes a connection to the server through the proxy at this address.
async fn through(
    proxy: &Intercept,
    address: &Uri,
    server: &Uri,
) -> Result<Box<dyn Stream>, AnyError> {
    let stream = connect(address).await?;
    let stream: Box<dyn Stream> = match address.scheme_str() {
        Some("https") => Box::new(encrypt(host(address), stream).await?),
        _ => Box::new(stream),
    };
    let dialled = Dialled(Some(TokioIo::new(stream)));
    let connected = if address.scheme_str() == Some("socks5") {
        let mut socks = SocksV5::new(address.clone(), dialled);
        if let Some((name, password)) = proxy.raw_auth() {
            socks = socks.with_auth(name.to_owned(), password.to_owned());
        }
        socks.call(server.clone()).await?
    } else {
        // Some proxies refuse a request without a User-Agent.
        let headers = HeaderMap::from_iter([(USER_AGENT, AGENT)]);
        let mut tunnel = Tunnel::new(address.clone(), dialled).with_headers(headers);
        if let Some(credentials) = proxy.basic_auth() {
            tunnel = tunnel.with_auth(credentials.clone());
        }
        tunnel.call(server.clone()).await?
    };
    Ok(connected.into_inner())
}

/// Makes a TCP connection to the first of the host's addresses that answers. One that doesn't leaves time for the others.
async fn connect(url: &Uri) -> Result<TcpStream, AnyError> {
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    connector.set_nodelay(true);
    connector.set_connect_timeout(Some(limits::CONNECT));
    connector.set_keepalive(Some(limits::KEEPALIVE));
    connector.set_keepalive_interval(Some(limits::KEEPALIVE));
    Ok(connector.call(url.clone()).await?.into_inner())
}

/// TLS to the proxy itself, with the certificates that this machine trusts.
async fn encrypt(
    host: &str,
    stream: TcpStream,
) -> Result<tokio_rustls::client::TlsStream<TcpStream>, AnyError> {
    let config = ClientConfig::builder_with_provider(trust::provider())
        .with_safe_default_protocol_versions()?
        .with_root_certificates(trust::system()?)
        .with_no_client_auth();
    let name = ServerName::try_from(host.to_owned())?;
    Ok(TlsConnector::from(Arc::new(config)).connect(name, stream).await?)
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
    fn a_port_is_a_number_or_the_usual_one() {
        for (url, expected) in [
            ("https://host", Some("host:443")),
            ("host:", Some("host:443")),
            ("https://host:6443/path", Some("host:6443")),
            ("https://user:123@host:6443", Some("host:6443")),
            ("https://[fd00::2]", Some("[fd00::2]:443")),
            ("https://[fd00::2]:6443", Some("[fd00::2]:6443")),
            ("https://host:99999", None),
            ("https://host:0", None),
            ("https://host:port", None),
            ("https://:6443", None),
            ("http://host", None),
            ("/path", None),
        ] {
            let found = server_url(&cluster(url, None)).ok();
            assert_eq!(found.as_ref().map(authority), expected, "{url}");
        }
    }

    #[test]
    fn the_servers_path_stays() {
        for (server, path) in [
            ("https://host:6443", "/"),
            ("https://host/k8s/clusters/c-x/?a=/b#c", "/k8s/clusters/c-x/"),
            ("host", "/"),
            ("host/path", "/path"),
        ] {
            assert_eq!(server_url(&cluster(server, None)).unwrap().path(), path);
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

    /// The table that tests of the whole put to kubectl, too.
    #[test]
    fn the_list_means_what_it_means_to_kubectl() {
        // Tests start in their crate's folder.
        let table = std::fs::read_to_string("../../softhsm-tests/no-proxy.txt").unwrap();
        let is_other = |row: &&str| {
            let [way, server, list] = row.splitn(3, ' ').collect::<Vec<_>>()[..] else {
                panic!("{row}");
            };
            let server = server_url(&cluster(server, None)).unwrap();
            is_excepted(&server, list) != (way == "direct")
        };
        let rows = table.lines().filter(|line| !line.starts_with('#'));
        assert_eq!(rows.filter(is_other).collect::<Vec<_>>(), [""; 0]);
    }
}
