//! Connections to a cluster's API server, with TLS and the token's key.
//!
//! Waiting for the network takes no thread. rustls waits for a signature in the midst of a step of
//! the handshake, so the steps are made in threads beside the tunnel's.

use std::fmt::Display;
use std::future::pending;
use std::io;
use std::mem;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use rustls::client::Resumption;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, HandshakeKind, ProtocolVersion, version};
use tokio::io::AsyncReadExt as _;
use tokio::sync::{Notify, Semaphore, oneshot};
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::{Connect, TlsStream};

use super::alpn::{self, HTTP_1_1, Offer};
use super::error::UpstreamFailure;
use super::explain;
use super::relay::Broken;
use super::resumption::{HandshakePermit, Sessions};
use super::server::{Gone, NotConnected, Server};
use super::signing_key::{Record, TokenIdentity, token_trouble};
use super::trust::{self, ServerVerifier};
use super::wire::{Stream, Wire};
use crate::error::Error;
use crate::keyring::{KeyNumber, Keyring, OpenKey};

/// How long a connection that is no longer wanted is kept for its tickets.
const TICKETS_LIMIT: Duration = Duration::from_secs(2);
/// Steps of handshakes with one key at once, of which each may wait for its signature.
const STEPS: usize = 8;

/// One cluster's server, and the key to show there, if there is one.
pub(super) struct Upstream {
    server: Arc<Server>,
    sessions: Arc<Sessions>,
    identity: Option<Arc<TokenIdentity>>,
    /// Made with the first connection. Sessions are resumed only among the copies of one.
    config: Mutex<Option<Arc<ClientConfig>>>,
    steps: Semaphore,
}

/// A connection on which the server has agreed to a protocol (ALPN), or to none.
pub(super) struct Connection {
    pub(super) stream: ServerStream,
    authentication: Authentication,
}

pub(super) type ServerStream = TlsStream<Wire<Box<dyn Stream>>>;

/// What let us in.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Authentication {
    /// There is no key.
    Keyless,
    /// The server asked for no client certificate.
    NotAsked,
    Resumed,
    Signed,
}

impl Upstream {
    pub(super) fn new(server: Arc<Server>, keyring: &Arc<Keyring>, key: Option<KeyNumber>) -> Self {
        let sessions = Arc::new(Sessions::default());
        let identity = key.map(|key| {
            let sessions = Arc::clone(&sessions);
            Arc::new(TokenIdentity::new(Arc::clone(keyring), key, sessions))
        });
        Self { server, sessions, identity, config: Mutex::default(), steps: Semaphore::new(STEPS) }
    }

    /// What the server chooses of these protocols; it is asked once, without a key.
    pub(super) async fn choice(
        &self,
        offer: Offer,
        gone: Gone<'_>,
    ) -> Result<Option<Vec<u8>>, NotConnected> {
        if let Some(known) = self.server.known_choice(&offer) {
            return Ok(known);
        }
        let (config, name) = self.config_offering(offer.clone()).await?;
        let ask = async |stream| {
            let choice = alpn::ask(config, name, stream).await;
            choice.map_err(|error| self.handshake_error(&error))
        };
        let choice = self.server.choice(gone, ask).await?;
        self.server.choices().insert(offer, choice.clone());
        Ok(choice)
    }

    /// A connection that offers this protocol, unless the receiver goes before the token is asked for
    /// a signature.
    pub(super) fn connect(
        self: &Arc<Self>,
        protocol: Option<Vec<u8>>,
    ) -> oneshot::Receiver<Result<Connection, Error>> {
        let (mut wanted, connection) = oneshot::channel();
        let upstream = Arc::clone(self);
        tokio::spawn(async move {
            let mut record = Record::default();
            let outcome = upstream.make(protocol, &mut record, &mut wanted).await;
            let outcome = match outcome {
                Ok(connection) => Ok(connection),
                Err(NotConnected::Unwanted) => return,
                Err(NotConnected::Failed(error)) => {
                    // Another server may stand there now.
                    upstream.server.choices().clear();
                    Err(error)
                }
            };
            if let Err(unwanted) = wanted.send(outcome) {
                upstream.came_late(unwanted, record.signature).await;
            }
        });
        connection
    }

    async fn make(
        &self,
        protocol: Option<Vec<u8>>,
        record: &mut Record,
        wanted: &mut oneshot::Sender<Result<Connection, Error>>,
    ) -> Result<Connection, NotConnected> {
        let offer = protocol.clone().into_iter().collect();
        let (config, name) = self.config_offering(offer).await?;
        let mut gone = pin!(wanted.closed());
        let permit = match self.identity {
            None => None,
            Some(_) => tokio::select! {
                biased;
                () = gone.as_mut() => return Err(NotConnected::Unwanted),
                permit = self.sessions.permit() => Some(permit),
            },
        };
        let stream = self.server.dial(gone.as_mut()).await?;
        let handshake = TlsConnector::from(config).connect(name, Wire::new(stream));
        let outcome = self.shake_hands(handshake, permit.as_ref(), record, gone).await;
        if record.is_out_of_schemes {
            let key = self.subject();
            return Err(self.error(UpstreamFailure::SchemesRefused { key }).into());
        }
        let stream = outcome?;
        if let Some(permit) = permit {
            permit.made();
        }
        let tls = stream.get_ref().1;
        let is_as_agreed = match tls.alpn_protocol() {
            Some(chosen) => protocol.as_deref() == Some(chosen),
            // It speaks HTTP/1.1 then, whether that was offered or not.
            None => protocol.is_none_or(|it| it == HTTP_1_1),
        };
        if !is_as_agreed {
            return Err(self
                .error(UpstreamFailure::Broken(
                    "the server no longer speaks the protocol that it chose before".to_owned(),
                ))
                .into());
        }
        let authentication = match tls.handshake_kind() {
            Some(HandshakeKind::Resumed) => Authentication::Resumed,
            _ if self.identity.is_none() => Authentication::Keyless,
            _ if record.signature.is_some() => Authentication::Signed,
            _ => Authentication::NotAsked,
        };
        Ok(Connection { stream, authentication })
    }

    async fn shake_hands(
        &self,
        mut handshake: Connect<Wire<Box<dyn Stream>>>,
        permit: Option<&HandshakePermit>,
        record: &mut Record,
        mut gone: Gone<'_>,
    ) -> Result<ServerStream, NotConnected> {
        let internal = |error: &dyn Display| Error::internal(format!("a handshake: {error}"));
        let ready = Arc::new(Ready(Notify::new()));
        loop {
            if let Some(permit) = permit {
                permit.progress();
            }
            let step = self.steps.acquire().await.map_err(|it| internal(&it))?;
            let waker = Waker::from(Arc::clone(&ready));
            let mut noted = mem::take(record);
            let made = spawn_blocking(move || {
                let mut context = Context::from_waker(&waker);
                let outcome = noted.of_step(|| Pin::new(&mut handshake).poll(&mut context));
                (handshake, noted, outcome)
            });
            let outcome;
            (handshake, *record, outcome) = made.await.map_err(|it| internal(&it))?;
            drop(step);
            if let Poll::Ready(outcome) = outcome {
                return Ok(outcome.map_err(|error| self.handshake_error(&error))?);
            }
            // A signature that was made is worth a session, even if it is no longer wanted.
            let is_signed = record.signature.is_some();
            let gone = pin!(async {
                match is_signed {
                    false => gone.as_mut().await,
                    true => pending().await,
                }
            });
            self.server.next_message(gone, ready.0.notified()).await?;
        }
    }

    /// Reports a connection that was given up meanwhile, and keeps its session.
    async fn came_late(&self, outcome: Result<Connection, Error>, signature: Option<Duration>) {
        if let Some(took) = signature {
            self.server.tell_late(&format!(
                "the signature came after {} s, and the command had given up",
                took.as_secs()
            ));
        }
        match outcome {
            Err(error) => self.server.observer.trouble(&error),
            // In TLS 1.3 its tickets are still to come; rustls takes them in when it is read from.
            Ok(mut connection) => {
                let _ = timeout(TICKETS_LIMIT, connection.stream.read_u8()).await;
            }
        }
    }

    /// The configuration of TLS that offers these protocols, with the key open, and the name that the
    /// server's certificate must bear.
    async fn config_offering(
        &self,
        offer: Offer,
    ) -> Result<(Arc<ClientConfig>, ServerName<'static>), Error> {
        let (_, name) = self.server.address()?;
        let key = self.open_key().await?;
        let mut config = self.config.lock().unwrap_or_else(PoisonError::into_inner);
        let made = match &*config {
            Some(made) => Arc::clone(made),
            None => {
                let made = self.new_config(key.as_deref())?;
                Arc::clone(config.insert(Arc::new(made)))
            }
        };
        let mut made = ClientConfig::clone(&made);
        made.alpn_protocols = offer;
        Ok((Arc::new(made), name))
    }

    async fn open_key(&self) -> Result<Option<Arc<OpenKey>>, Error> {
        let Some(identity) = &self.identity else {
            return Ok(None);
        };
        if let Some(key) = identity.key() {
            return Ok(Some(key));
        }
        let identity = Arc::clone(identity);
        let _step = self.steps.acquire().await;
        let opened = spawn_blocking(move || identity.open()).await;
        opened.map_err(|error| Error::internal(format!("opening a key: {error}")))?.map(Some)
    }

    fn new_config(&self, key: Option<&OpenKey>) -> Result<ClientConfig, Error> {
        let unusable = |reason: String| self.error(UpstreamFailure::Unusable(reason));
        for (key, concern) in
            key.iter().flat_map(|key| key.concerns.iter().map(move |it| (key, it)))
        {
            let text = format!("the certificate of {}: {concern}", key.subject);
            self.server.observer.concern(&text);
        }
        if let Some(text) = key.and_then(OpenKey::renewal_warning) {
            self.server.observer.concern(&text);
        }
        let provider = trust::far_provider();
        let verifier = ServerVerifier::new(self.server.cluster(), &provider).map_err(unusable)?;
        let versions = if key.is_none_or(OpenKey::serves_tls_1_3) {
            &[&version::TLS13, &version::TLS12][..]
        } else {
            &[&version::TLS12]
        };
        let config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(versions)
            .map_err(|error| unusable(error.to_string()))?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier));
        let mut config = match &self.identity {
            None => config.with_no_client_auth(),
            Some(identity) => config.with_client_cert_resolver(Arc::clone(identity) as _),
        };
        let sessions = Arc::clone(&self.sessions);
        config.resumption = Resumption::store(sessions);
        Ok(config)
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
        let how = match connection.authentication {
            Authentication::Resumed => "session resumed".to_owned(),
            Authentication::Signed => format!("signed by {}", self.subject()),
            Authentication::NotAsked => "the server asked for no client certificate".to_owned(),
            Authentication::Keyless => "without a key".to_owned(),
        };
        self.server.tell_connection(&format!("connected, {version}, {protocol}, {how}"));
    }

    /// What the server's end of a connection means, if it means anything.
    pub(super) fn end_error(&self, broken: &Broken) -> Option<Error> {
        let failure = explain::end(broken, self.key().as_deref())?;
        Some(self.error(failure))
    }

    /// What an error of a protocol above TLS means.
    pub(super) fn exchange_error(&self, error: &(dyn std::error::Error + 'static)) -> Error {
        self.error(explain::exchange(error, self.key().as_deref()))
    }

    fn handshake_error(&self, error: &io::Error) -> Error {
        let trouble = explain::tls_error(error).and_then(token_trouble);
        trouble.unwrap_or_else(|| self.error(explain::handshake(error, self.key().as_deref())))
    }

    fn key(&self) -> Option<Arc<OpenKey>> {
        self.identity.as_ref().and_then(|identity| identity.key())
    }

    fn subject(&self) -> String {
        self.key().map_or_else(String::new, |key| key.subject.clone())
    }

    pub(super) fn error(&self, failure: UpstreamFailure) -> Error {
        self.server.error(failure)
    }
}

impl Connection {
    /// Whether a signature or a session has shown who we are; if not, the server didn't ask.
    pub(super) fn is_authenticated(&self) -> bool {
        matches!(self.authentication, Authentication::Resumed | Authentication::Signed)
    }
}

/// Notified when there is something to read, or room to write.
struct Ready(Notify);

impl Wake for Ready {
    fn wake(self: Arc<Self>) {
        self.0.notify_one();
    }
}
