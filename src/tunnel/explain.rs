//! What a failed connection to a server means for the user.

use std::io;

use rustls::{AlertDescription, CertificateError};

use super::error::UpstreamFailure;
use super::relay::Broken;
use crate::keyring::OpenKey;

/// What rustls calls a CA's certificate in the place of a server's; it has no error of its own.
const AUTHORITY: &str = "CaUsedAsEndEntity";

/// rustls's error behind one of a stream.
pub(super) fn tls_error(error: &io::Error) -> Option<&rustls::Error> {
    error.get_ref()?.downcast_ref()
}

/// What the failure of a handshake with this key means.
pub(super) fn handshake(error: &io::Error, key: Option<&OpenKey>) -> UpstreamFailure {
    match tls_error(error) {
        Some(rustls::Error::AlertReceived(received)) => alert(*received, key),
        Some(rustls::Error::InvalidCertificate(CertificateError::Other(reason)))
            if reason.to_string() == AUTHORITY =>
        {
            UpstreamFailure::Authority
        }
        Some(rustls::Error::InvalidCertificate(reason)) => {
            UpstreamFailure::Untrusted(reason.to_string())
        }
        Some(other) => UpstreamFailure::Broken(other.to_string()),
        None => UpstreamFailure::Broken(error.to_string()),
    }
}

/// What the server's end of a connection means, if it means anything.
pub(super) fn end(broken: &Broken, key: Option<&OpenKey>) -> Option<UpstreamFailure> {
    let explain = |error: &io::Error| match tls_error(error) {
        Some(rustls::Error::AlertReceived(received)) => Some(alert(*received, key)),
        Some(error) => Some(UpstreamFailure::Broken(error.to_string())),
        // Many servers, and proxies before them, end a connection without an alert.
        None if error.kind() == io::ErrorKind::UnexpectedEof => None,
        None if !broken.is_early && is_hard_end(error) => None,
        None => Some(UpstreamFailure::Broken(error.to_string())),
    };
    // What was read tells more: an alert may stand behind a write that failed.
    let mut failures = [&broken.reading, &broken.writing].into_iter().flatten();
    failures.find_map(explain)
}

/// What an error of a protocol above TLS means.
pub(super) fn exchange(
    error: &(dyn std::error::Error + 'static),
    key: Option<&OpenKey>,
) -> UpstreamFailure {
    let mut reason = error;
    loop {
        let tls = reason.downcast_ref::<io::Error>().and_then(tls_error);
        if let Some(rustls::Error::AlertReceived(received)) = tls {
            return alert(*received, key);
        }
        match reason.source() {
            Some(source) => reason = source,
            None => return UpstreamFailure::Broken(reason.to_string()),
        }
    }
}

fn alert(received: AlertDescription, key: Option<&OpenKey>) -> UpstreamFailure {
    use AlertDescription as Alert;

    let alert = format!("TLS alert {received:?}");
    match received {
        Alert::HandshakeFailure | Alert::ProtocolVersion => {
            match key.filter(|key| !key.serves_tls_1_3()) {
                Some(key) => UpstreamFailure::VersionRefused { key: key.subject.clone(), alert },
                None => UpstreamFailure::Broken(alert),
            }
        }
        Alert::AccessDenied
        | Alert::BadCertificate
        | Alert::CertificateExpired
        | Alert::CertificateRequired
        | Alert::CertificateRevoked
        | Alert::CertificateUnknown
        | Alert::DecryptError
        | Alert::UnknownCA
        | Alert::UnsupportedCertificate => UpstreamFailure::Rejected {
            certificate: key.map_or_else(String::new, |key| key.subject.clone()),
            alert,
        },
        _ => UpstreamFailure::Broken(alert),
    }
}

/// Whether it is the end of a socket whose peer has closed it with something unread.
fn is_hard_end(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset)
}
