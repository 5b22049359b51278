//! Exit code 9: a tunnel, and the API server at its other end. Trouble with a server ends one
//! connection, not the run; the command gives its own exit code for it.

use std::io;
use std::net::SocketAddr;

use http::StatusCode;

use crate::error::{Failure, Help, PROGRAM, THIS_KUBECONFIG, remedy};

#[derive(Debug, thiserror::Error)]
#[error("cluster \"{cluster}\" ({server}): {failure}")]
pub struct UpstreamError {
    /// As the kubeconfig names it.
    pub cluster: String,
    pub server: String,
    pub failure: UpstreamFailure,
}

#[derive(Debug, thiserror::Error)]
pub enum UpstreamFailure {
    /// Not an API server (a login page, a 404), or a sick one (500, 503): `curl -k
    /// https://HOST:6443/readyz`. A server may need its path (Rancher).
    #[error("the server answered with HTTP status {0}")]
    Answer(u16),
    #[error("the server's certificate is not trusted: it is a CA's, not a server's")]
    Authority,
    /// It speaks plain HTTP or nothing newer than TLS 1.1, or hung up: `openssl s_client -connect
    /// HOST:6443 </dev/null`, the server's log.
    #[error("the connection broke off: {0}")]
    Broken(String),
    /// The API server or the VPN is down, or a firewall refuses: `nc -vz HOST 6443`.
    #[error("no connection: {0}")]
    Connect(String),
    #[error("the server asked for no client certificate, so it knows no user by it")]
    NotAsked,
    /// You are connected, but anonymous. `openssl s_client -connect HOST:6443 </dev/null` lists
    /// *Acceptable client certificate CA names*; your issuer must be among them.
    #[error("the server does not take the certificate for a user")]
    NotRecognised,
    #[error(
        "the command showed a client certificate that is not one of the run's, and the tunnel \
         can't use it"
    )]
    OwnCertificate,
    /// The proxy is down, or its URL isn't `http`, `https` or `socks5`: `curl -v -x PROXY
    /// https://HOST:6443`. To go without: `NO_PROXY=HOST`.
    #[error("no connection through the proxy {proxy}: {reason}")]
    Proxy { proxy: String, reason: String },
    /// *407* (some say *401*): it wants a password, with reserved characters percent-encoded.
    #[error("the proxy {proxy} answered {status}")]
    ProxyAnswer { proxy: String, status: StatusCode },
    /// *UnknownCA*, *BadCertificate*: not issued by a CA of this server's `--client-ca-file`.
    /// *DecryptError*: the signature was not accepted. Intermediate certificates are sent from the token,
    /// or from behind the certificate in `certificateFile`.
    #[error("the server refused the certificate of {certificate}: {alert}")]
    Rejected { certificate: String, alert: String },
    #[error("the name has no address: {0}")]
    Resolve(String),
    #[error("the server takes no signature that {key} can make")]
    SchemesRefused { key: String },
    /// Packets are dropped (firewall, MTU: `ping -s 1400 HOST`), the server is overloaded, or a touch
    /// didn't come. `run -v` shows how far it gets.
    #[error("{doing} took longer than {seconds} s")]
    TimedOut { doing: &'static str, seconds: u64 },
    /// Another CA (a rebuilt cluster), an address that isn't in the certificate, an expired certificate,
    /// or a proxy that opens TLS: `openssl s_client -connect HOST:6443 -showcerts </dev/null`. Don't
    /// switch verification off.
    #[error("the server's certificate is not trusted: {0}")]
    Untrusted(String),
    #[error("{0}")]
    Unusable(String),
    #[error("the server refused TLS 1.2 ({alert}), and the key of {key} can't serve TLS 1.3")]
    VersionRefused { key: String, alert: String },
}

impl Failure for UpstreamError {
    fn exit_code(&self) -> u8 {
        9
    }

    fn remedy(&self) -> Help {
        let text = match &self.failure {
            UpstreamFailure::Connect(_) | UpstreamFailure::TimedOut { .. } => {
                "check that the API server runs, and the network, VPN or proxy-url that leads to it"
            }
            UpstreamFailure::Broken(_) => {
                "check that the address in the kubeconfig is an API server's and nothing on the \
                 way ends TLS"
            }
            UpstreamFailure::Answer(_) => {
                "check that the address in the kubeconfig is an API server's, and its health"
            }
            UpstreamFailure::NotRecognised => {
                "the certificate's issuer must be in the client CA file of this API server, and \
                 nothing between here and there may end TLS"
            }
            UpstreamFailure::NotAsked => {
                "something between here and the API server ends TLS, where client certificates get \
                 lost: connect to the API server itself"
            }
            UpstreamFailure::OwnCertificate => {
                "the tunnel to this cluster carries users with a key for this program and users who \
                 show no certificate: use a context that brings this user and the cluster \
                 together, which `run` leaves as it is, or run the command outside of `run`"
            }
            UpstreamFailure::Resolve(_) => {
                "check the cluster's server in the kubeconfig, and DNS or the VPN that provides it"
            }
            UpstreamFailure::Proxy { .. } => {
                "check proxy-url in the kubeconfig, or HTTPS_PROXY and NO_PROXY in the environment"
            }
            UpstreamFailure::ProxyAnswer {
                status: StatusCode::PROXY_AUTHENTICATION_REQUIRED | StatusCode::UNAUTHORIZED,
                ..
            } => {
                "give the user and the password that the proxy knows in proxy-url or HTTPS_PROXY: \
                 http://user:password@proxy:3128"
            }
            UpstreamFailure::ProxyAnswer { .. } => {
                "have the proxy allow CONNECT to the API server's host and port, or except the \
                 server from it with NO_PROXY"
            }
            UpstreamFailure::Rejected { .. } => {
                "have the certificate issued anew if it has expired; its issuer must be in the \
                 client CA file of this API server"
            }
            UpstreamFailure::SchemesRefused { .. } | UpstreamFailure::VersionRefused { .. } => {
                "TLS 1.3 needs RSA-PSS of an RSA key: use an ECDSA key, or a newer token or library"
            }
            UpstreamFailure::Untrusted(_) => {
                "compare the cluster's certificate-authority-data with the CA of the API server; \
                 set tls-server-name if the address is not in its certificate"
            }
            UpstreamFailure::Authority => {
                "have the API server show a certificate that is issued for itself, without CA:TRUE \
                 in its basic constraints; one that is self-signed can be the kubeconfig's \
                 certificate-authority itself"
            }
            UpstreamFailure::Unusable(_) => "correct the cluster's entry in the kubeconfig",
        };
        match self.failure {
            UpstreamFailure::Proxy { .. } | UpstreamFailure::ProxyAnswer { .. } => remedy!(
                text,
                "; a tunnel process keeps the proxy that it has until `",
                format!("{PROGRAM} stop"),
                "`"
            ),
            _ => text.into(),
        }
    }
}

/// What a client of a tunnel meets in place of the API server.
#[derive(Debug, thiserror::Error)]
pub enum ServedError {
    #[error("the tunnel process does not answer at {address}: {reason}")]
    Silent { address: SocketAddr, reason: String },
    // What a tunnel answers with status 502, which other clients show as it is.
    #[error("{text}")]
    Told { text: String, remedy: String },
}

impl ServedError {
    /// What a tunnel answered, which ends with the remedy.
    pub(super) fn told(body: &[u8]) -> Self {
        let body = String::from_utf8_lossy(body);
        let body = body.trim_end();
        let (text, remedy) = body.split_once("; ").unwrap_or((body, "run the command again"));
        Self::Told { text: text.to_owned(), remedy: remedy.to_owned() }
    }
}

impl Failure for ServedError {
    fn exit_code(&self) -> u8 {
        9
    }

    fn remedy(&self) -> Help {
        match self {
            Self::Silent { .. } => {
                remedy!(
                    "end it with `",
                    format!("{PROGRAM} stop"),
                    "`; the next command starts a new one"
                )
            }
            Self::Told { remedy, .. } => remedy.clone().into(),
        }
    }
}

/// A cluster can't be served on this machine; `ports` is for how many of them there is a port.
#[derive(Debug, thiserror::Error)]
pub(super) enum ListenError {
    #[error("a connection of the command has to wait: {reason}")]
    Accept { reason: io::Error, ports: usize },
    /// A sandbox or seccomp profile forbids listening, or loopback is down (`ip link set lo up`).
    #[error("no port on 127.0.0.1: {reason}")]
    Listener { reason: io::Error, ports: usize },
    /// The port was free when the kubeconfig was written. `ss -tlnp`, or on macOS `lsof -nP -iTCP
    /// -sTCP:LISTEN`, shows which program has it.
    #[error("cluster \"{cluster}\": another program listens on {address}, its port")]
    Taken { cluster: String, address: SocketAddr },
}

impl ListenError {
    /// Why the cluster can't be served at this address, or else at any of 127.0.0.1.
    pub(super) fn of(
        reason: io::Error,
        cluster: &str,
        address: Option<SocketAddr>,
        ports: usize,
    ) -> Self {
        match address {
            Some(address) if reason.kind() == io::ErrorKind::AddrInUse => {
                Self::Taken { cluster: cluster.to_owned(), address }
            }
            _ => Self::Listener { reason, ports },
        }
    }

    /// Whether open files ran out, in this process or on the whole machine.
    pub(super) fn is_shortage(&self) -> bool {
        /// On Linux and on macOS; the standard library has no kind for them.
        const ENFILE: i32 = 23;
        const EMFILE: i32 = 24;
        match self {
            Self::Accept { reason, .. } | Self::Listener { reason, .. } => {
                matches!(reason.raw_os_error(), Some(ENFILE | EMFILE))
            }
            Self::Taken { .. } => false,
        }
    }
}

impl Failure for ListenError {
    fn exit_code(&self) -> u8 {
        9
    }

    fn remedy(&self) -> Help {
        match self {
            Self::Accept { ports, .. } | Self::Listener { ports, .. } if self.is_shortage() => {
                format!(
                    "the run needs a port for each cluster, {ports} of them, and an open file for \
                     each: raise the limit (`ulimit -n`), or name one context with --only-context"
                )
                .into()
            }
            Self::Accept { .. } | Self::Listener { .. } => {
                "check that this user may listen on 127.0.0.1".into()
            }
            Self::Taken { .. } => remedy!(
                "end that program, or have the cluster use another port: `",
                format!("{PROGRAM} kubeconfig --write{THIS_KUBECONFIG}"),
                " --context NAME`"
            ),
        }
    }
}
