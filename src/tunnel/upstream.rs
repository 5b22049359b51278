//! The server's side: TLS to a cluster's API server with the token's key.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::Uri;
use rustls::client::Resumption;
use rustls::client::danger::ServerCertVerifier;
use rustls::pki_types::ServerName;
use rustls::{
    AlertDescription, CertificateError, ClientConfig, HandshakeKind, ProtocolVersion, version,
};
use tokio::runtime::Handle;
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::proxy::{Route, host};
use super::relay::Broken;
use super::resumption::Sessions;
use super::signing_key::{TokenIdentity, token_trouble};
use super::wire::{Stream, Wire};
use super::{Destination, Observer, trust};
use crate::error::{Error, UpstreamError, UpstreamFailure};
use crate::keyring::{Keyring, OpenKey};
use crate::scheme::Scheme;

/// As long as kubectl waits for a connection.
const DIAL_LIMIT: Duration = Duration::from_secs(30);
/// Longer than a token may take for its signature.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(75);

/// What rustls calls a CA's certificate in the place of a server's; it has no error of its own.
const AUTHORITY: &str = "CaUsedAsEndEntity";

/// One cluster, and the key to show there.
pub(super) struct Upstream {
    destination: Destination,
    observer: Arc<dyn Observer>,
    sessions: Arc<Sessions>,
    identity: Arc<TokenIdentity>,
    /// Made with the first connection. Sessions are resumed only among the copies of one.
    config: Mutex<Option<Arc<ClientConfig>>>,
}

/// A connection on which the server has agreed to a protocol (ALPN), or to none.
pub(super) type ServerStream = TlsStream<Wire<Box<dyn Stream>>>;

impl Upstream {
    pub(super) fn new(
        destination: Destination,
        keyring: Arc<Keyring>,
        observer: Arc<dyn Observer>,
    ) -> Self {
        let sessions = Arc::new(Sessions::default());
        let identity = TokenIdentity::new(keyring, destination.key, Arc::clone(&sessions));
        Self {
            destination,
            observer,
            sessions,
            identity: Arc::new(identity),
            config: Mutex::default(),
        }
    }

    /// A connection that offers these protocols.
    pub(super) async fn connect(&self, protocols: Vec<Vec<u8>>) -> Result<ServerStream, Error> {
        let (server, name) = self.server().map_err(|failure| self.error(failure))?;
        let mut config = ClientConfig::clone(&*self.config().await?);
        config.alpn_protocols = protocols;
        let route = Route::to(&server, self.destination.cluster.proxy_url.as_deref())
            .map_err(|failure| self.error(failure))?;
        let stream = timeout(DIAL_LIMIT, route.dial(&server))
            .await
            .unwrap_or(Err(UpstreamFailure::TimedOut {
                doing: "connecting",
                seconds: DIAL_LIMIT.as_secs(),
            }))
            .map_err(|failure| self.error(failure))?;
        let turn = self.sessions.turn().await;
        let handshake = TlsConnector::from(Arc::new(config)).connect(name, Wire::new(stream));
        // In a thread that may wait for a signature while other connections go on.
        let runtime = Handle::current();
        let handshake =
            spawn_blocking(move || runtime.block_on(timeout(HANDSHAKE_LIMIT, handshake)));
        let stream = match handshake.await {
            Ok(Ok(Ok(stream))) => stream,
            Ok(Ok(Err(error))) => return Err(self.handshake_error(&error)),
            Ok(Err(_)) => {
                return Err(self.error(UpstreamFailure::TimedOut {
                    doing: "the TLS handshake",
                    seconds: HANDSHAKE_LIMIT.as_secs(),
                }));
            }
            Err(error) => return Err(Error::Internal(format!("a handshake: {error}"))),
        };
        turn.made();
        if self.identity.was_out_of_schemes() {
            return Err(self.error(UpstreamFailure::SchemesRefused {
                key: self.subject(),
            }));
        }
        Ok(stream)
    }

    /// The address to dial and the name that the server's certificate must bear.
    fn server(&self) -> Result<(Uri, ServerName<'static>), UpstreamFailure> {
        let cluster = &self.destination.cluster;
        let unusable = |reason: &str| UpstreamFailure::Unusable(reason.to_owned());
        let address = match cluster.server.split_once("://") {
            None => format!("https://{}", cluster.server),
            Some(_) => cluster.server.clone(),
        };
        let server = Uri::try_from(address).map_err(|_| unusable("its server is not a URL"))?;
        if server.scheme_str() != Some("https") {
            return Err(unusable(
                "its server is not an https URL, and a certificate needs TLS",
            ));
        }
        let name = match &cluster.tls_server_name {
            Some(name) => name.clone(),
            None => host(&server).unwrap_or_default().to_owned(),
        };
        let name = ServerName::try_from(name)
            .map_err(|_| unusable("its server or tls-server-name is not a name"))?;
        Ok((server, name))
    }

    /// The server's host and port, as HTTP names it.
    pub(super) fn host(&self) -> String {
        self.server()
            .ok()
            .and_then(|(server, _)| server.authority().map(ToString::to_string))
            .unwrap_or_default()
    }

    /// The configuration of TLS, with the key open.
    async fn config(&self) -> Result<Arc<ClientConfig>, Error> {
        let made = || {
            let config = self.config.lock().unwrap_or_else(PoisonError::into_inner);
            config.as_ref().map(Arc::clone)
        };
        if let (Some(config), Some(_)) = (made(), self.identity.key()) {
            return Ok(config);
        }
        let identity = Arc::clone(&self.identity);
        let key = spawn_blocking(move || identity.open())
            .await
            .map_err(|error| Error::Internal(format!("opening a key: {error}")))??;
        if let Some(config) = made() {
            return Ok(config);
        }
        for concern in &key.concerns {
            let text = format!("the certificate of {}: {concern}", key.subject);
            self.observer.concern(&text);
        }
        let config = self
            .new_config(&key)
            .map_err(|reason| self.error(UpstreamFailure::Unusable(reason)))?;
        let mut place = self.config.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(Arc::clone(place.get_or_insert(Arc::new(config))))
    }

    fn new_config(&self, key: &OpenKey) -> Result<ClientConfig, String> {
        let provider = trust::far_provider();
        let verifier: Arc<dyn ServerCertVerifier> =
            trust::verifier(&self.destination.cluster, &provider)?;
        let versions = if key.schemes.iter().any(Scheme::is_of_tls_1_3) {
            &[&version::TLS13, &version::TLS12][..]
        } else {
            &[&version::TLS12]
        };
        let identity = Arc::clone(&self.identity);
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(versions)
            .map_err(|error| error.to_string())?
            .dangerous()
            .with_custom_certificate_verifier(verifier)
            .with_client_cert_resolver(identity);
        let sessions = Arc::clone(&self.sessions);
        config.resumption = Resumption::store(sessions);
        Ok(config)
    }

    /// Tells of a connection that was made.
    pub(super) fn connected(&self, connection: &ServerStream) {
        let tls = connection.get_ref().1;
        let version = match tls.protocol_version() {
            Some(ProtocolVersion::TLSv1_2) => "TLS 1.2",
            _ => "TLS 1.3",
        };
        let protocol = tls
            .alpn_protocol()
            .map_or_else(|| "no ALPN".into(), String::from_utf8_lossy);
        let how = match tls.handshake_kind() {
            Some(HandshakeKind::Resumed) => "session resumed".to_owned(),
            _ => format!("signed by {}", self.subject()),
        };
        self.observer.connection(&format!(
            "cluster \"{}\": connected, {version}, {protocol}, {how}",
            self.destination.name
        ));
    }

    /// Tells of somebody who was not let in.
    pub(super) fn refused(&self, reason: &str) {
        self.observer.connection(&format!(
            "cluster \"{}\": refused a connection: {reason}",
            self.destination.name
        ));
    }

    /// Tells why a connection failed.
    pub(super) fn tell(&self, error: &Error) {
        self.observer.trouble(error);
    }

    /// What the server's end of a connection means, if it means anything.
    pub(super) fn explain(&self, broken: &Broken) -> Option<Error> {
        let Broken::Other(error) = broken else {
            // The command is free to go.
            return None;
        };
        match tls_error(error) {
            Some(rustls::Error::AlertReceived(alert)) => Some(self.alert(*alert)),
            Some(error) => Some(self.error(UpstreamFailure::Broken(error.to_string()))),
            // Servers, and what stands before them, are seldom polite.
            None if error.kind() == io::ErrorKind::UnexpectedEof => None,
            None => Some(self.error(UpstreamFailure::Broken(error.to_string()))),
        }
    }

    /// What an error of a protocol above TLS means.
    pub(super) fn broken(&self, error: &(dyn std::error::Error + 'static)) -> Error {
        let mut reason = error;
        loop {
            let tls = reason.downcast_ref::<io::Error>().and_then(tls_error);
            if let Some(rustls::Error::AlertReceived(alert)) = tls {
                return self.alert(*alert);
            }
            match reason.source() {
                Some(source) => reason = source,
                None => return self.error(UpstreamFailure::Broken(reason.to_string())),
            }
        }
    }

    fn handshake_error(&self, error: &io::Error) -> Error {
        let Some(tls) = tls_error(error) else {
            return self.error(UpstreamFailure::Broken(error.to_string()));
        };
        if let Some(error) = token_trouble(tls) {
            return error;
        }
        match tls {
            rustls::Error::AlertReceived(alert) => self.alert(*alert),
            rustls::Error::InvalidCertificate(CertificateError::Other(reason))
                if reason.to_string() == AUTHORITY =>
            {
                self.error(UpstreamFailure::Authority)
            }
            rustls::Error::InvalidCertificate(reason) => {
                self.error(UpstreamFailure::Untrusted(reason.to_string()))
            }
            other => self.error(UpstreamFailure::Broken(other.to_string())),
        }
    }

    fn alert(&self, alert: AlertDescription) -> Error {
        let is_about_us = matches!(
            alert,
            AlertDescription::AccessDenied
                | AlertDescription::BadCertificate
                | AlertDescription::CertificateExpired
                | AlertDescription::CertificateRequired
                | AlertDescription::CertificateRevoked
                | AlertDescription::CertificateUnknown
                | AlertDescription::DecryptError
                | AlertDescription::UnknownCA
                | AlertDescription::UnsupportedCertificate
        );
        self.error(if is_about_us {
            UpstreamFailure::Rejected {
                certificate: self.subject(),
                alert: format!("TLS alert {alert:?}"),
            }
        } else {
            UpstreamFailure::Broken(format!("TLS alert {alert:?}"))
        })
    }

    fn subject(&self) -> String {
        self.identity
            .key()
            .map_or_else(String::new, |key| key.subject.clone())
    }

    pub(super) fn error(&self, failure: UpstreamFailure) -> Error {
        UpstreamError {
            cluster: self.destination.name.clone(),
            server: self.destination.cluster.server.clone(),
            failure,
        }
        .into()
    }
}

fn tls_error(error: &io::Error) -> Option<&rustls::Error> {
    error.get_ref()?.downcast_ref()
}
