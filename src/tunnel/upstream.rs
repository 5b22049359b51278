//! Connections to a cluster's API server, with TLS and the token's key.

use std::fmt;
use std::future::pending;
use std::io;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::{Either, select};
use rustls::client::Resumption;
use rustls::{ClientConfig, HandshakeKind, ProtocolVersion, version};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::oneshot;
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::{sleep, timeout};
use tokio_rustls::{TlsConnector, TlsStream};

use super::error::{self, failure, no_scheme_in_common, timed_out, tls_error};
use super::limits;
use super::relay::Broken;
use super::resumption::HandshakePermit;
use super::server::{HTTP_1_1, HTTP_2, Preference, Server};
use super::signing_key::{SIGNATURE, SignatureState, TokenIdentity, token_trouble};
use super::trust::{self, ServerVerifier};
use super::wire::{Stream, Wire, wire};
use keyring::{KeyNumber, OpenKey, OpenKeys};
use messages::error::Error;
use system::locked;

/// One cluster's server, with the key that is used there.
pub(super) struct Upstream {
    pub(super) server: Arc<Server>,
    keyring: Arc<dyn OpenKeys>,
    number: KeyNumber,
    /// The key as it was opened last. It is opened for the first connection, and again if something has changed.
    shown: Mutex<Option<Shown>>,
}

/// The identity to show, and the TLS configuration for it. rustls resumes sessions only with the same configuration.
#[derive(Clone)]
struct Shown {
    identity: Arc<TokenIdentity>,
    config: Arc<ClientConfig>,
    /// The key as it was opened last. It has the identity's certificate.
    key: Arc<OpenKey>,
}

/// A connection on which the server has agreed to a protocol (ALPN), or to none.
pub(super) struct Connection {
    pub(super) stream: ServerStream,
    pub(super) authentication: Authentication,
    /// The identity that was shown on it.
    pub(super) identity: Arc<TokenIdentity>,
}

/// How this side was authenticated in a handshake.
#[derive(Debug, Eq, PartialEq)]
pub(super) enum Authentication {
    /// By a signature of the key of this subject.
    Signed(String),
    /// By resuming a session that a signature has begun.
    Resumed,
    /// Not at all: the server has asked for no certificate.
    NotAsked,
}

impl fmt::Display for Authentication {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Signed(subject) => write!(f, "signed by {subject}"),
            Self::Resumed => f.write_str("session resumed"),
            Self::NotAsked => f.write_str("the server asked for no client certificate"),
        }
    }
}

/// A key, and the permission to make a handshake with it.
struct Turn {
    shown: Shown,
    permit: HandshakePermit,
}

/// The one who waits for a connection.
type Wanted = oneshot::Sender<Result<Connection, Error>>;

/// Waits until nobody wants the connection any more, provided that no signature is being made: a signature brings a
/// session, which is worth having even if the connection isn't wanted any more.
async fn unwanted(wanted: &mut Wanted, signature: &Mutex<SignatureState>) {
    wanted.closed().await;
    let state = *locked(signature);
    if matches!(state, SignatureState::UnderWay | SignatureState::Made(_)) {
        pending::<()>().await;
    }
}

type ServerStream = Box<TlsStream<Wire<Box<dyn Stream>>>>;

impl Upstream {
    pub(super) fn new(server: Arc<Server>, keyring: Arc<dyn OpenKeys>, key: KeyNumber) -> Self {
        Self { server, keyring, number: key, shown: Mutex::default() }
    }

    /// Learns which protocol the server prefers, by a handshake without a key.
    pub(super) async fn ask_for_choice(&self) {
        let preference = self.preference().await.unwrap_or_default();
        self.server.prefers(preference);
    }

    /// The protocol that the server prefers; `None` if it can't be reached just now.
    async fn preference(&self) -> Option<Preference> {
        let name = self.server.address().ok()?.name;
        let mut config = self.client_config(None).ok()?.with_no_client_auth();
        config.alpn_protocols = vec![HTTP_2.to_vec(), HTTP_1_1.to_vec()];
        let stream = self.server.dial().await.ok()?;
        let handshake = TlsConnector::from(Arc::new(config)).connect(name, stream);
        match timeout(limits::SERVER_SILENCE, handshake).await.ok()? {
            Ok(mut stream) => {
                let _ = stream.shutdown().await;
                let prefers_http_2 = stream.get_ref().1.alpn_protocol() == Some(HTTP_2);
                Some(if prefers_http_2 { Preference::Http2 } else { Preference::Http1 })
            }
            // The server makes no handshake without a certificate. HTTP/1.1 will do.
            Err(error) if tls_error(&error).is_some() => Some(Preference::Http1),
            Err(_) => None,
        }
    }

    /// Makes a connection with this protocol. It is given up if the receiver is dropped before a signature is asked for.
    pub(super) fn connect(
        self: &Arc<Self>,
        protocol: Option<Vec<u8>>,
    ) -> oneshot::Receiver<Result<Connection, Error>> {
        let (wanted, connection) = oneshot::channel();
        tokio::spawn(Arc::clone(self).connect_for(wanted, protocol));
        connection
    }

    /// Makes a connection for this receiver.
    async fn connect_for(self: Arc<Self>, mut wanted: Wanted, protocol: Option<Vec<u8>>) {
        let signature = Arc::new(Mutex::new(SignatureState::NotAsked));
        let outcome = {
            let made = pin!(self.make(protocol, &signature));
            let unwanted = pin!(unwanted(&mut wanted, &signature));
            match select(made, unwanted).await {
                Either::Left((outcome, _)) => outcome,
                Either::Right(_) => return,
            }
        };
        if let Err(outcome) = wanted.send(outcome) {
            let signature = *locked(&signature);
            self.end_unwanted(outcome, signature).await;
        }
    }

    /// Reports the outcome of a connection that nobody waits for any more, and keeps its sessions.
    async fn end_unwanted(&self, outcome: Result<Connection, Error>, signature: SignatureState) {
        if let SignatureState::Made(took) = signature
            && let took @ 1.. = took.as_secs()
        {
            self.server.concern(&format!(
                "the signature came after {took} s, and the command had given up"
            ));
        }
        match outcome {
            Err(error) => self.server.observer.trouble(&error),
            // In TLS 1.3 the tickets are still to come. rustls takes them in when the connection is read from.
            Ok(mut connection) => {
                let _ = timeout(limits::UNWANTED, connection.stream.read_u8()).await;
            }
        }
    }

    /// Makes a connection with this protocol: waits for the turn, makes the handshake, and notes what became of the
    /// signature.
    async fn make(
        &self,
        protocol: Option<Vec<u8>>,
        signature: &Arc<Mutex<SignatureState>>,
    ) -> Result<Connection, Error> {
        let name = self.server.address()?.name;
        let Turn { shown, permit } = self.turn().await?;
        let connector = TlsConnector::from(shown.config);
        let connector = connector.with_alpn(protocol.clone().into_iter().collect());
        // Only now: a server that is dialled before the turn would have to wait for the handshake, and may give up.
        let stream = wire(permit.without_holding_up(self.server.dial()).await?);
        let handshake = connector.connect(name, stream);
        let handshake = async { handshake.await.map(|stream| Box::new(stream.into())) };
        let mut task = JoinSet::new();
        // In a task of its own: it may still be waiting for a token when the runtime ends, and its timers would panic then.
        task.spawn(SIGNATURE.scope(Arc::clone(signature), handshake));
        let stream = self.finish(&mut task, &permit, signature).await?;
        permit.made();
        let tls = stream.get_ref().1;
        let is_as_agreed = match tls.alpn_protocol() {
            Some(chosen) => protocol.as_deref() == Some(chosen),
            // A server that chooses no protocol speaks HTTP/1.1, whether that was offered or not.
            None => protocol.is_none_or(|chosen| chosen == HTTP_1_1),
        };
        if !is_as_agreed {
            self.server.prefers(Preference::Unknown);
            let reason = "the server no longer speaks the protocol that it chose before";
            return Err(self.server.error(error::broken(reason)));
        }
        let kind = tls.handshake_kind();
        let authentication = self.authentication(kind, *locked(signature), &shown.identity)?;
        Ok(Connection { stream, authentication, identity: shown.identity })
    }

    /// How this side was authenticated in a handshake of this kind, once that has ended.
    fn authentication(
        &self,
        kind: Option<HandshakeKind>,
        signature: SignatureState,
        identity: &TokenIdentity,
    ) -> Result<Authentication, Error> {
        match (kind, signature) {
            (Some(HandshakeKind::Resumed), _) => Ok(Authentication::Resumed),
            (_, SignatureState::Made(_)) => {
                Ok(Authentication::Signed(identity.key.subject.clone()))
            }
            (_, SignatureState::NotAsked) => {
                identity.sessions.not_asked();
                Ok(Authentication::NotAsked)
            }
            (_, state) => {
                let text = format!("a handshake has ended without its signature: {state:?}");
                Err(self.server.error(Error::internal(text)))
            }
        }
    }

    /// Waits for the end of the handshake, unless the server is silent for long.
    async fn finish(
        &self,
        task: &mut JoinSet<io::Result<ServerStream>>,
        permit: &HandshakePermit,
        signature: &Mutex<SignatureState>,
    ) -> Result<ServerStream, Error> {
        let mut silent = Duration::ZERO;
        let outcome = loop {
            match timeout(limits::HOLDING_UP, task.join_next()).await {
                Ok(Some(Ok(outcome))) => break outcome,
                Ok(_) => return Err(Error::internal("a handshake was lost")),
                // The server may be silent while the token is signing, which has a limit of time of its own.
                Err(_) if *locked(signature) == SignatureState::UnderWay => silent = Duration::ZERO,
                Err(_) if silent + limits::HOLDING_UP >= limits::SERVER_SILENCE => {
                    let limit = limits::SERVER_SILENCE.as_secs();
                    let late = timed_out("the TLS handshake", limit);
                    return Err(self.server.error(late));
                }
                Err(_) => {
                    silent += limits::HOLDING_UP;
                    permit.stuck();
                }
            }
        };
        if *locked(signature) == SignatureState::NoScheme {
            return Err(self.server.error(no_scheme_in_common(self.key().as_deref())));
        }
        outcome.map_err(|error| {
            let trouble = tls_error(&error).and_then(token_trouble);
            trouble.unwrap_or_else(|| {
                // Another server may be there now.
                self.server.prefers(Preference::Unknown);
                self.error(&error)
            })
        })
    }

    /// Waits for the turn, and opens the key after that: one that was opened before the wait may be closed by then.
    async fn turn(&self) -> Result<Turn, Error> {
        loop {
            let waiting = self.open().await?;
            let permit = waiting.identity.sessions.permit().await;
            let shown = self.open().await?;
            if Arc::ptr_eq(&shown.identity, &waiting.identity) {
                return Ok(Turn { shown, permit });
            }
        }
    }

    /// The key, with the certificate that it has now. It is opened, unless it is open and nothing has gone wrong with it
    /// since.
    async fn open(&self) -> Result<Shown, Error> {
        let known = locked(&self.shown).clone();
        let usable = known.filter(|shown| !shown.identity.has_failed() && !shown.key.has_expired());
        if let Some(shown) = usable.as_ref().filter(|shown| !shown.key.may_be_renewed()) {
            return Ok(shown.clone());
        }
        let keyring = Arc::clone(&self.keyring);
        let number = self.number;
        let opened = spawn_blocking(move || keyring.open_in_time(number)).await;
        let opened = opened.map_err(|error| Error::internal(format!("opening a key: {error}")))?;
        let key = match (opened, usable) {
            // A session can be resumed without the token.
            (Err(_), Some(shown)) => return Ok(shown),
            (opened, _) => opened?,
        };
        let mut known = locked(&self.shown);
        if let Some(shown) = known.as_mut().filter(|shown| shown.key.chain == key.chain) {
            shown.identity.is_open_again();
            shown.key = key;
            return Ok(shown.clone());
        }
        for warning in key.take_warnings() {
            self.server.observer.concern(&warning);
        }
        let config = self.client_config(Some(&key))?;
        let identity = TokenIdentity::new(Arc::clone(&self.keyring), self.number, Arc::clone(&key));
        let mut config = config.with_client_cert_resolver(identity.resolver());
        config.resumption = Resumption::store(Arc::clone(&identity.sessions) as _);
        Ok(known.insert(Shown { identity, config: Arc::new(config), key }).clone())
    }

    /// Waits until the certificate with which a connection was made is about to expire, and the key has another one. A
    /// request on that connection would be refused then, and on a new connection it isn't.
    pub(super) async fn is_superseded(&self, identity: &Arc<TokenIdentity>) {
        loop {
            let left = identity.key.time_left();
            if left > Duration::ZERO {
                sleep(left.min(limits::LONGEST_TIMER)).await;
                continue;
            }
            if let Ok(shown) = self.open().await
                && !Arc::ptr_eq(&shown.identity, identity)
            {
                return;
            }
            let has_expired = identity.key.has_expired();
            sleep(if has_expired { limits::LATE_RENEWAL } else { limits::LAST_RENEWAL }).await;
        }
    }

    /// The key as it was opened last.
    fn key(&self) -> Option<Arc<OpenKey>> {
        locked(&self.shown).as_ref().map(|shown| Arc::clone(&shown.key))
    }

    fn client_config(
        &self,
        key: Option<&OpenKey>,
    ) -> Result<rustls::ConfigBuilder<ClientConfig, rustls::client::WantsClientCert>, Error> {
        let unusable = |reason: String| self.server.error(error::unusable(reason));
        let provider = trust::server_provider();
        let verifier =
            ServerVerifier::new(&self.server.target.cluster, &provider).map_err(unusable)?;
        let mut versions = Vec::new();
        if key.is_none_or(OpenKey::serves_tls_1_3) {
            versions.push(&version::TLS13);
        }
        if key.is_none_or(OpenKey::serves_tls_1_2) {
            versions.push(&version::TLS12);
        }
        let config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&versions)
            .map_err(|error| unusable(error.to_string()))?;
        Ok(config.dangerous().with_custom_certificate_verifier(Arc::new(verifier)))
    }

    /// Reports a connection that was made.
    pub(super) fn connected(&self, connection: &Connection) {
        let tls = connection.stream.get_ref().1;
        let version = match tls.protocol_version() {
            Some(ProtocolVersion::TLSv1_2) => "TLS 1.2",
            _ => "TLS 1.3",
        };
        let protocol =
            tls.alpn_protocol().map_or_else(|| "no ALPN".into(), String::from_utf8_lossy);
        let how = &connection.authentication;
        self.server.report_connection(&format!("connected, {version}, {protocol}, {how}"));
    }

    /// The error to report for a connection that the server has ended, if its end means that something is wrong.
    pub(super) fn end_error(&self, broken: &Broken) -> Option<Error> {
        let error = error::failure_of_end(broken, self.key().as_deref())?;
        Some(self.server.error(error))
    }

    /// The error to report for one of a connection.
    pub(super) fn error(&self, error: &(dyn std::error::Error + 'static)) -> Error {
        self.server.error(failure(error, self.key().as_deref()))
    }
}
