//! Exit code 9: a tunnel, and the API server at its other end. Trouble with a server ends one
//! connection, not the run; the command gives its own exit code for it.

use std::error::Error as StandardError;
use std::io;

use rustls::{AlertDescription, CertificateError};

use super::relay::Broken;
use crate::error::{Error, Exit, Help};
use crate::keyring::OpenKey;

/// An error with exit code 9.
pub(crate) fn tunnel_error(text: impl Into<String>, help: impl Into<Help>) -> Error {
    Error::new(Exit::Cluster, text).help(help)
}

/// Why there is no connection to a cluster's server, or why it broke.
#[derive(Debug)]
pub struct UpstreamFailure {
    pub(super) text: String,
    pub(super) help: &'static str,
}

impl UpstreamFailure {
    pub fn new(text: impl Into<String>, help: &'static str) -> Self {
        Self { text: text.into(), help }
    }

    /// The server takes us for nobody.
    pub fn not_recognised() -> Self {
        Self::new(
            "the server does not take the certificate for a user",
            "the certificate's issuer must be in the client CA file of this API server, and nothing \
             between here and there may end TLS",
        )
    }

    pub(super) fn broken(reason: impl std::fmt::Display) -> Self {
        Self::new(
            format!("the connection broke off: {reason}"),
            "check that the address in the kubeconfig is an API server's and nothing on the way ends TLS",
        )
    }

    pub(super) fn unusable(reason: impl Into<String>) -> Self {
        Self::new(reason, "correct the cluster's entry in the kubeconfig")
    }

    pub(super) fn timed_out(doing: &str, seconds: u64) -> Self {
        Self::new(
            format!("{doing} took longer than {seconds} s"),
            "check that the API server runs, and the network, VPN or proxy-url that leads to it",
        )
    }

    /// What the failure of a handshake with this key means.
    pub(super) fn of_handshake(error: &io::Error, key: Option<&OpenKey>) -> Self {
        match tls_error(error) {
            Some(rustls::Error::AlertReceived(received)) => Self::of_alert(*received, key),
            // rustls has no error of its own for it.
            Some(rustls::Error::InvalidCertificate(CertificateError::Other(reason)))
                if reason.to_string() == "CaUsedAsEndEntity" =>
            {
                Self::new(
                    "the server's certificate is not trusted: it is a CA's, not a server's",
                    "have the API server show a certificate that is issued for itself, without CA:TRUE in its \
                     basic constraints; one that is self-signed can be the kubeconfig's \
                     certificate-authority itself",
                )
            }
            Some(rustls::Error::InvalidCertificate(reason)) => Self::new(
                format!("the server's certificate is not trusted: {reason}"),
                "compare the cluster's certificate-authority-data with the CA of the API server; \
                 set tls-server-name if the address is not in its certificate",
            ),
            Some(other) => Self::broken(other),
            None => Self::broken(error),
        }
    }

    /// What the server's end of a connection means, if it means anything.
    pub(super) fn of_end(broken: &Broken, key: Option<&OpenKey>) -> Option<Self> {
        let explain = |error: &io::Error| match tls_error(error) {
            Some(rustls::Error::AlertReceived(received)) => Some(Self::of_alert(*received, key)),
            Some(error) => Some(Self::broken(error)),
            // Many servers, and proxies before them, end a connection without an alert.
            None if error.kind() == io::ErrorKind::UnexpectedEof => None,
            None if broken.unanswered.is_none() && is_hard_end(error) => None,
            None => Some(Self::broken(error)),
        };
        // What was read tells more: an alert may stand behind a write that failed.
        let mut failures = [&broken.reading, &broken.writing].into_iter().flatten();
        failures.find_map(explain)
    }

    /// What an error of a protocol above TLS means.
    pub(super) fn of_exchange(
        error: &(dyn StandardError + 'static),
        key: Option<&OpenKey>,
    ) -> Self {
        let mut reason = error;
        loop {
            let tls = reason.downcast_ref::<io::Error>().and_then(tls_error);
            if let Some(rustls::Error::AlertReceived(received)) = tls {
                return Self::of_alert(*received, key);
            }
            match reason.source() {
                Some(source) => reason = source,
                None => return Self::broken(reason),
            }
        }
    }

    fn of_alert(received: AlertDescription, key: Option<&OpenKey>) -> Self {
        use AlertDescription as Alert;

        let alert = format!("TLS alert {received:?}");
        let subject = key.map_or("", |key| &key.subject);
        match received {
            Alert::HandshakeFailure | Alert::ProtocolVersion
                if key.is_some_and(|key| !key.serves_tls_1_3()) =>
            {
                Self::new(
                    format!(
                        "the server refused TLS 1.2 ({alert}), and the key of {subject} can't serve TLS 1.3"
                    ),
                    NEEDS_PSS,
                )
            }
            Alert::AccessDenied
            | Alert::BadCertificate
            | Alert::CertificateExpired
            | Alert::CertificateRequired
            | Alert::CertificateRevoked
            | Alert::CertificateUnknown
            | Alert::DecryptError
            | Alert::UnknownCA
            | Alert::UnsupportedCertificate => Self::new(
                format!("the server refused the certificate of {subject}: {alert}"),
                "have the certificate issued anew if it has expired; its issuer must be in the client CA file \
                 of this API server",
            ),
            _ => Self::broken(alert),
        }
    }
}

pub(super) const NEEDS_PSS: &str =
    "TLS 1.3 needs RSA-PSS of an RSA key: use an ECDSA key, or a newer token or library";

/// rustls's error behind one of a stream.
pub(super) fn tls_error(error: &io::Error) -> Option<&rustls::Error> {
    error.get_ref()?.downcast_ref()
}

/// Whether it is the end of a socket whose peer has closed it with something unread.
fn is_hard_end(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset)
}
