//! Trouble between the tunnel and a cluster's API server. It ends one connection, not the run; the
//! command gives its own exit code for it.

use std::fmt;

use http::StatusCode;

use crate::error::{Failure, Remedy};

/// What went wrong on the way to which cluster.
#[derive(Debug)]
pub struct UpstreamError {
    /// As the kubeconfig names it.
    pub cluster: String,
    pub server: String,
    pub failure: UpstreamFailure,
}

#[derive(Debug)]
pub enum UpstreamFailure {
    /// The server's certificate is that of a certificate authority.
    Authority,
    /// An HTTP status that the question has no use for.
    Answer(u16),
    /// No TCP connection.
    Connect(String),
    /// The handshake or the stream broke off.
    Broken(String),
    /// The server, or what stands before it, asked for no client certificate.
    NotAsked,
    /// The command showed a client certificate that is not one of the run's.
    OwnCertificate,
    /// Connected, but nobody to the server.
    NotRecognised,
    /// The server's name has no address.
    Resolve(String),
    Proxy {
        proxy: String,
        reason: String,
    },
    /// The proxy refused to connect us to the server.
    ProxyAnswer {
        proxy: String,
        status: StatusCode,
    },
    /// The server has looked at our certificate and refused it (a TLS alert).
    Rejected {
        certificate: String,
        alert: String,
    },
    /// The server wants signatures that this key can't make.
    SchemesRefused {
        key: String,
    },
    /// No answer in time.
    TimedOut {
        doing: &'static str,
        seconds: u64,
    },
    /// The server wants a version of TLS that this key can't serve.
    VersionRefused {
        key: String,
        alert: String,
    },
    /// The server's certificate is not one that the kubeconfig trusts.
    Untrusted(String),
    /// The server of the kubeconfig, or what belongs to it, makes no sense.
    Unusable(String),
}

impl fmt::Display for UpstreamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            cluster, server, ..
        } = self;
        write!(f, "cluster \"{cluster}\" ({server}): ")?;
        match &self.failure {
            UpstreamFailure::Authority => {
                f.write_str("the server's certificate is not trusted: it is a CA's, not a server's")
            }
            UpstreamFailure::Answer(status) => {
                write!(f, "the server answered with HTTP status {status}")
            }
            UpstreamFailure::NotRecognised => {
                f.write_str("the server does not take the certificate for a user")
            }
            UpstreamFailure::Broken(reason) => write!(f, "the connection broke off: {reason}"),
            UpstreamFailure::Connect(reason) => write!(f, "no connection: {reason}"),
            UpstreamFailure::Proxy { proxy, reason } => {
                write!(f, "no connection through the proxy {proxy}: {reason}")
            }
            UpstreamFailure::ProxyAnswer { proxy, status } => {
                write!(f, "the proxy {proxy} answered {status}")
            }
            UpstreamFailure::Rejected { certificate, alert } => write!(
                f,
                "the server refused the certificate of {certificate}: {alert}"
            ),
            UpstreamFailure::Resolve(reason) => write!(f, "the name has no address: {reason}"),
            UpstreamFailure::SchemesRefused { key } => {
                write!(f, "the server takes no signature that {key} can make")
            }
            UpstreamFailure::TimedOut { doing, seconds } => {
                write!(f, "{doing} took longer than {seconds} s")
            }
            UpstreamFailure::NotAsked => {
                f.write_str("the server asked for no client certificate, so it knows nobody by it")
            }
            UpstreamFailure::OwnCertificate => f.write_str(
                "the command showed a client certificate that is not one of the run's, and the \
                 tunnel can't use it",
            ),
            UpstreamFailure::VersionRefused { key, alert } => write!(
                f,
                "the server refused TLS 1.2 ({alert}), and the key of {key} can't serve TLS 1.3"
            ),
            UpstreamFailure::Untrusted(reason) => {
                write!(f, "the server's certificate is not trusted: {reason}")
            }
            UpstreamFailure::Unusable(reason) => f.write_str(reason),
        }
    }
}

impl std::error::Error for UpstreamError {}

impl Failure for UpstreamError {
    fn exit_code(&self) -> u8 {
        9
    }

    fn remedy(&self) -> Remedy {
        Remedy::new(match &self.failure {
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
                "the tunnel to this cluster carries users with `auth-provider: externalSigner` and \
                 users who show no certificate: use a context that brings this user and the cluster \
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
        })
    }
}
