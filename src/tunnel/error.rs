//! Errors with exit code 9: trouble with a tunnel, or with the API server at its other end. Trouble with a server ends one
//! connection and not the run, whose exit code is the command's.

use std::error::Error as StandardError;
use std::io;
use std::iter::successors;

use rustls::{AlertDescription, CertificateError};

use super::relay::Broken;
use keyring::OpenKey;
use messages::error::{Error, Exit, Kind};
use messages::help::{Help, command};

/// The kind of error for a server that can't be reached. It may be away only for a moment.
pub(crate) const UNREACHABLE: Kind = Kind::new("unreachable");

/// An error with exit code 9: what has failed, and what to do.
pub fn tunnel_error(text: impl Into<String>, help: impl Into<Help>) -> Error {
    Error::new(Exit::Cluster, text).help(help)
}

/// The error for a server that doesn't recognise this user.
pub fn not_recognised() -> Error {
    tunnel_error(
        "the server does not take the certificate for a user",
        "the certificate's issuer must be in the client CA file of this API server, and nothing \
         between here and there may end TLS",
    )
}

pub(super) fn broken(reason: impl std::fmt::Display) -> Error {
    tunnel_error(
        format!("the connection broke off: {reason}"),
        "check that the address in the kubeconfig is an API server's and nothing on the way ends TLS",
    )
}

pub(super) fn unusable(reason: impl Into<String>) -> Error {
    tunnel_error(reason, "correct the cluster's entry in the kubeconfig")
}

pub(super) fn timed_out(doing: &str, seconds: u64) -> Error {
    tunnel_error(format!("{doing} took longer than {seconds} s"), NO_WAY)
}

/// The error to report for one of a connection with this key, or of a protocol above it.
pub(super) fn failure(error: &(dyn StandardError + 'static), key: Option<&OpenKey>) -> Error {
    match causes(error).find_map(|cause| cause.downcast_ref().and_then(tls_error)) {
        Some(tls) => of_tls(tls, key),
        None => broken(innermost(error)),
    }
}

/// The error to report for a connection that the server has ended, if its end means that something is wrong.
pub(super) fn failure_of_end(broken: &Broken, key: Option<&OpenKey>) -> Option<Error> {
    let is_told = |error: &&io::Error| match error.kind() {
        _ if tls_error(error).is_some() => true,
        // Many servers, and proxies before them, end a connection without an alert.
        io::ErrorKind::UnexpectedEof => false,
        // The peer has closed its socket without reading everything.
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => broken.unanswered.is_some(),
        _ => true,
    };
    // Reading comes first, as it tells more: an alert may be the reason why a write has failed.
    let mut failures = [&broken.reading, &broken.writing].into_iter().flatten();
    failures.find(is_told).map(|error| failure(error, key))
}

fn of_tls(error: &rustls::Error, key: Option<&OpenKey>) -> Error {
    match error {
        rustls::Error::AlertReceived(received) => of_alert(*received, key),
        // rustls has no error of its own for it.
        rustls::Error::InvalidCertificate(CertificateError::Other(reason))
            if reason.to_string() == "CaUsedAsEndEntity" =>
        {
            tunnel_error(
                "the server's certificate is not trusted: it is a CA's, not a server's",
                "have the API server show a certificate that is issued for itself, without CA:TRUE in its \
                 basic constraints; one that is self-signed can be the kubeconfig's \
                 certificate-authority itself",
            )
        }
        rustls::Error::InvalidCertificate(reason) => tunnel_error(
            format!("the server's certificate is not trusted: {reason}"),
            "compare the cluster's certificate-authority-data with the CA of the API server; \
             set tls-server-name if the address is not in its certificate",
        ),
        other => broken(other),
    }
}

fn of_alert(received: AlertDescription, key: Option<&OpenKey>) -> Error {
    use AlertDescription as Alert;

    let alert = format!("TLS alert {received:?}");
    let subject = key.map_or("", |key| &key.subject);
    match received {
        Alert::HandshakeFailure | Alert::ProtocolVersion
            if key.is_some_and(|key| !key.serves_tls_1_3()) =>
        {
            tunnel_error(
                format!(
                    "the server refused TLS 1.2 ({alert}), and the key of {subject} can't serve TLS 1.3"
                ),
                NEEDS_PSS,
            )
        }
        Alert::HandshakeFailure | Alert::ProtocolVersion
            if key.is_some_and(|key| !key.serves_tls_1_2()) =>
        {
            tunnel_error(
                format!(
                    "the server refused TLS 1.3 ({alert}), and the ML-DSA key of {subject} can't serve TLS 1.2"
                ),
                NEEDS_NEWER_SERVER,
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
        | Alert::UnsupportedCertificate => tunnel_error(
            format!("the server refused the certificate of {subject}: {alert}"),
            "have the certificate issued anew if it has expired; its issuer must be in the client CA file \
             of this API server",
        ),
        _ => broken(alert),
    }
}

/// The help for an API server that can't be reached.
pub(super) const NO_WAY: &str =
    "check that the API server runs, and the network, VPN or proxy-url that leads to it";

/// Further help for a client that uses an entry of the kubeconfig that was written for it.
pub(super) fn look_at_entry() -> Help {
    Help::from(command("check"))
        .and(" tells whether the cluster's entry in the kubeconfig has changed")
}

/// The error for a server that takes no signature that this key can make.
pub(super) fn no_scheme_in_common(key: Option<&OpenKey>) -> Error {
    let subject = key.map_or("", |key| &key.subject);
    let is_post_quantum = key.is_some_and(|key| !key.serves_tls_1_2());
    let kind = if is_post_quantum { "the ML-DSA key of " } else { "" };
    tunnel_error(
        format!("the server takes no signature that {kind}{subject} can make"),
        if is_post_quantum { NEEDS_NEWER_SERVER } else { NEEDS_PSS },
    )
}

const NEEDS_NEWER_SERVER: &str = "servers take ML-DSA over TLS 1.3 if they are built with Go 1.27 or later, as Kubernetes 1.38 is: for \
     an older one use an ECDSA key";

const NEEDS_PSS: &str =
    "TLS 1.3 needs RSA-PSS of an RSA key: use an ECDSA key, or a newer token or library";

/// The error, its cause, the cause of that, and so on.
fn causes<'a>(
    error: &'a (dyn StandardError + 'static),
) -> impl Iterator<Item = &'a (dyn StandardError + 'static)> {
    successors(Some(error), |error| (**error).source())
}

/// Whether the error is that a limit of time was over.
pub(super) fn is_late(error: &(dyn StandardError + 'static)) -> bool {
    let is_late = |cause: &io::Error| cause.kind() == io::ErrorKind::TimedOut;
    causes(error).filter_map(|cause| cause.downcast_ref()).any(is_late)
}

/// The innermost cause of the error.
pub(super) fn innermost(error: &(dyn StandardError + 'static)) -> String {
    causes(error).last().map(ToString::to_string).unwrap_or_default()
}

/// The error of rustls behind an error of a stream.
pub(super) fn tls_error(error: &io::Error) -> Option<&rustls::Error> {
    error.get_ref()?.downcast_ref()
}
