//! The server's side: TLS to a cluster's API server with the token's key.
//!
//! Waiting for the network takes no thread. rustls waits for a signature in the midst of a step of
//! the handshake, so the steps are made in threads beside the tunnel's.

use std::collections::HashMap;
use std::future::pending;
use std::io;
use std::mem;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use http::Uri;
use rustls::client::Resumption;
use rustls::pki_types::ServerName;
use rustls::{
    AlertDescription, CertificateError, ClientConfig, ClientConnection, HandshakeKind,
    ProtocolVersion, version,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::{Notify, Semaphore, oneshot};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::{Connect, TlsStream};

use super::address::Address;
use super::error::{UpstreamError, UpstreamFailure};
use super::proxy::Route;
use super::relay::Broken;
use super::resumption::{Sessions, Turn};
use super::signing_key::{Record, TokenIdentity, token_trouble};
use super::trust::{self, ServerVerifier};
use super::wire::{Stream, Wire};
use super::{Destination, Observer};
use crate::error::Error;
use crate::keyring::{KeyNumber, Keyring, OpenKey};

/// As long as kubectl waits for a connection.
const DIAL_LIMIT: Duration = Duration::from_secs(30);
/// How long a server may be silent in a handshake: as long as kubectl gives it for the whole.
const SILENCE_LIMIT: Duration = Duration::from_secs(10);
/// After this time it is told that we wait.
const NOTICE: Duration = Duration::from_secs(5);
/// A command that gives up before this time knows why.
const SHORT: Duration = Duration::from_secs(2);
/// How long a connection that nobody wants any more is kept for its tickets.
const TICKETS_LIMIT: Duration = Duration::from_secs(2);
/// Steps of handshakes with one key at once, of which each may wait for its signature.
const STEPS: usize = 8;

pub(super) const HTTP_1_1: &[u8] = b"http/1.1";

/// What rustls calls a CA's certificate in the place of a server's; it has no error of its own.
const AUTHORITY: &str = "CaUsedAsEndEntity";

/// The protocols that a client offers (ALPN), those that it likes best first.
pub(super) type Offer = Vec<Vec<u8>>;

/// A cluster's server, for all who come to it.
pub(super) struct Server {
    destination: Destination,
    observer: Arc<dyn Observer>,
    /// What the server chooses of an offer.
    chosen: Mutex<HashMap<Offer, Option<Vec<u8>>>>,
    /// It was told that the server is silent, and it hasn't answered since.
    is_silent: AtomicBool,
}

/// One cluster, and the key to show there, if there is one.
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
    how: How,
}

pub(super) type ServerStream = TlsStream<Wire<Box<dyn Stream>>>;

/// What let us in.
#[derive(Clone, Copy, Eq, PartialEq)]
enum How {
    Resumed,
    Signed,
    /// The server asked for no client certificate.
    NotAsked,
    /// We had none to show.
    Keyless,
}

/// Why there is no connection.
pub(super) enum Stop {
    /// Nobody wants it any more.
    Gone,
    Failed(Error),
}

impl Server {
    pub(super) fn new(destination: Destination, observer: Arc<dyn Observer>) -> Arc<Self> {
        Arc::new(Self {
            destination,
            observer,
            chosen: Mutex::default(),
            is_silent: AtomicBool::new(false),
        })
    }

    fn chosen(&self, offer: &Offer) -> Option<Option<Vec<u8>>> {
        let chosen = self.chosen.lock().unwrap_or_else(PoisonError::into_inner);
        chosen.get(offer).cloned()
    }

    fn choose(&self, offer: Offer, protocol: Option<Vec<u8>>) {
        let mut chosen = self.chosen.lock().unwrap_or_else(PoisonError::into_inner);
        chosen.insert(offer, protocol);
    }

    /// The server, or what stands there now, is to be asked again.
    fn forget_choices(&self) {
        let mut chosen = self.chosen.lock().unwrap_or_else(PoisonError::into_inner);
        chosen.clear();
    }

    /// Waits for the server: `limit` at most, and not once the command has `gone`. Long waits are
    /// told, once until the server answers.
    async fn answer<T>(
        &self,
        doing: &'static str,
        limit: Duration,
        gone: Pin<&mut (impl Future<Output = ()> + Send)>,
        answer: impl Future<Output = T> + Send,
    ) -> Result<T, Stop> {
        let mut wait = Wait {
            server: self,
            begin: Some(Instant::now()),
        };
        let silence = async {
            sleep(NOTICE).await;
            self.tell_silence(&format!("no answer for {} s", NOTICE.as_secs()));
            sleep(limit.saturating_sub(NOTICE)).await;
        };
        tokio::select! {
            biased;
            answer = answer => {
                wait.begin = None;
                self.is_silent.store(false, Ordering::Relaxed);
                Ok(answer)
            }
            () = gone => Err(Stop::Gone),
            () = silence => {
                wait.begin = None;
                Err(Stop::Failed(self.error(UpstreamFailure::TimedOut {
                    doing,
                    seconds: limit.as_secs(),
                })))
            }
        }
    }

    fn tell_silence(&self, text: &str) {
        if !self.is_silent.swap(true, Ordering::Relaxed) {
            let Destination { name, cluster } = &self.destination;
            let text = format!("cluster \"{name}\" ({}): {text}", cluster.server);
            self.observer.waiting(&text);
        }
    }

    fn tell_late(&self, text: &str) {
        let name = &self.destination.name;
        self.observer
            .waiting(&format!("cluster \"{name}\": {text}"));
    }

    async fn dial(
        &self,
        gone: Pin<&mut (impl Future<Output = ()> + Send)>,
    ) -> Result<Box<dyn Stream>, Stop> {
        let failed = |failure| Stop::Failed(self.error(failure));
        let (server, _) = self.address().map_err(failed)?;
        let proxy_url = self.destination.cluster.proxy_url.as_deref();
        let route = Route::to(server, proxy_url).map_err(failed)?;
        self.answer("connecting", DIAL_LIMIT, gone, route.dial())
            .await?
            .map_err(failed)
    }

    /// The address to dial and the name that the server's certificate must bear.
    fn address(&self) -> Result<(Address, ServerName<'static>), UpstreamFailure> {
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
        let server =
            Address::of(&server, 443).ok_or_else(|| unusable("its server is not a URL"))?;
        let name = match &cluster.tls_server_name {
            Some(name) => name.clone(),
            None => server.host().to_owned(),
        };
        let name = ServerName::try_from(name)
            .map_err(|_| unusable("its server or tls-server-name is not a name"))?;
        Ok((server, name))
    }

    /// The server's host and port, as HTTP names it.
    pub(super) fn host(&self) -> String {
        self.address()
            .ok()
            .map_or_else(String::new, |(server, _)| server.to_string())
    }

    /// Tells of somebody who was not let in.
    pub(super) fn refused(&self, reason: &str) {
        self.observer.connection(&format!(
            "cluster \"{}\": refused a connection: {reason}",
            self.destination.name
        ));
    }

    /// Tells that somebody asks for a connection.
    pub(super) fn asked(&self) {
        self.observer.asked();
    }

    /// Tells why a connection failed.
    pub(super) fn tell(&self, error: &Error) {
        self.observer.trouble(error);
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

impl Upstream {
    pub(super) fn new(server: Arc<Server>, keyring: &Arc<Keyring>, key: Option<KeyNumber>) -> Self {
        let sessions = Arc::new(Sessions::default());
        let identity = key.map(|key| {
            let sessions = Arc::clone(&sessions);
            Arc::new(TokenIdentity::new(Arc::clone(keyring), key, sessions))
        });
        Self {
            server,
            sessions,
            identity,
            config: Mutex::default(),
            steps: Semaphore::new(STEPS),
        }
    }

    /// What the server chooses of these protocols; it is asked once, without a key.
    pub(super) async fn choice(
        &self,
        offer: Offer,
        mut gone: Pin<&mut (impl Future<Output = ()> + Send)>,
    ) -> Result<Option<Vec<u8>>, Stop> {
        if let ([] | [_], known) | (_, known @ Some(_)) = (&*offer, self.server.chosen(&offer)) {
            return Ok(known.unwrap_or_else(|| offer.into_iter().next()));
        }
        let failed = |failure| Stop::Failed(self.error(failure));
        let (_, name) = self.server.address().map_err(failed)?;
        let mut config = ClientConfig::clone(&*self.config().await.map_err(Stop::Failed)?);
        config.alpn_protocols = offer.clone();
        let stream = self.server.dial(gone.as_mut()).await?;
        let question = ask_choice(Arc::new(config), name, stream);
        let doing = "the TLS handshake";
        let answer = self.server.answer(doing, SILENCE_LIMIT, gone, question);
        let protocol = answer.await?;
        let protocol = protocol.map_err(|error| Stop::Failed(self.handshake_error(&error)))?;
        self.server.choose(offer, protocol.clone());
        Ok(protocol)
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
                Err(Stop::Gone) => return,
                Err(Stop::Failed(error)) => {
                    upstream.server.forget_choices();
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
    ) -> Result<Connection, Stop> {
        let failed = |failure| Stop::Failed(self.error(failure));
        let (_, name) = self.server.address().map_err(failed)?;
        let mut config = ClientConfig::clone(&*self.config().await.map_err(Stop::Failed)?);
        config.alpn_protocols = protocol.clone().into_iter().collect();
        let mut gone = pin!(wanted.closed());
        let turn = match self.identity {
            None => None,
            Some(_) => tokio::select! {
                biased;
                () = gone.as_mut() => return Err(Stop::Gone),
                turn = self.sessions.turn() => Some(turn),
            },
        };
        let stream = self.server.dial(gone.as_mut()).await?;
        let handshake = TlsConnector::from(Arc::new(config)).connect(name, Wire::new(stream));
        let outcome = self
            .shake_hands(handshake, turn.as_ref(), record, gone)
            .await;
        if record.is_out_of_schemes {
            return Err(failed(UpstreamFailure::SchemesRefused {
                key: self.subject(),
            }));
        }
        let stream = outcome?;
        if let Some(turn) = turn {
            turn.made();
        }
        let tls = stream.get_ref().1;
        // Where one was offered, none is taken for HTTP/1.1, which is what it means.
        if tls
            .alpn_protocol()
            .is_some_and(|chosen| protocol.as_deref() != Some(chosen))
            || tls.alpn_protocol().is_none() && protocol.is_some_and(|wanted| wanted != HTTP_1_1)
        {
            return Err(failed(UpstreamFailure::Broken(
                "the server no longer speaks the protocol that it chose before".to_owned(),
            )));
        }
        let how = match tls.handshake_kind() {
            Some(HandshakeKind::Resumed) => How::Resumed,
            _ if self.identity.is_none() => How::Keyless,
            _ if record.signature.is_some() => How::Signed,
            _ => How::NotAsked,
        };
        Ok(Connection { stream, how })
    }

    async fn shake_hands(
        &self,
        mut handshake: Connect<Wire<Box<dyn Stream>>>,
        turn: Option<&Turn>,
        record: &mut Record,
        mut gone: Pin<&mut (impl Future<Output = ()> + Send)>,
    ) -> Result<ServerStream, Stop> {
        let bell = Arc::new(Ready(Notify::new()));
        loop {
            if let Some(turn) = turn {
                turn.progress();
            }
            let internal = |error: &dyn std::fmt::Display| {
                Stop::Failed(Error::internal(format!("a handshake: {error}")))
            };
            let permit = self
                .steps
                .acquire()
                .await
                .map_err(|error| internal(&error))?;
            let waker = Waker::from(Arc::clone(&bell));
            let mut noted = mem::take(record);
            let step = spawn_blocking(move || {
                let mut context = Context::from_waker(&waker);
                let outcome = noted.of_step(|| Pin::new(&mut handshake).poll(&mut context));
                (handshake, noted, outcome)
            });
            let outcome;
            (handshake, *record, outcome) = step.await.map_err(|error| internal(&error))?;
            drop(permit);
            if let Poll::Ready(outcome) = outcome {
                return outcome.map_err(|error| Stop::Failed(self.handshake_error(&error)));
            }
            let (doing, more) = ("the TLS handshake", bell.0.notified());
            // A signature that was made is worth a session, whoever is left to want it.
            let is_signed = record.signature.is_some();
            let gone = pin!(async {
                match is_signed {
                    false => gone.as_mut().await,
                    true => pending().await,
                }
            });
            let answer = self.server.answer(doing, SILENCE_LIMIT, gone, more);
            answer.await?;
        }
    }

    /// What comes of a connection that was given up meanwhile.
    async fn came_late(&self, outcome: Result<Connection, Error>, signature: Option<Duration>) {
        if let Some(took) = signature {
            self.server.tell_late(&format!(
                "the signature came after {} s, and the command had given up",
                took.as_secs()
            ));
        }
        match outcome {
            Err(error) => self.server.tell(&error),
            // In TLS 1.3 its tickets are still to come; rustls takes them in when it is read from.
            Ok(mut connection) => {
                let _ = timeout(TICKETS_LIMIT, connection.stream.read_u8()).await;
            }
        }
    }

    /// The configuration of TLS, with the key open.
    async fn config(&self) -> Result<Arc<ClientConfig>, Error> {
        let made = || {
            let config = self.config.lock().unwrap_or_else(PoisonError::into_inner);
            config.as_ref().map(Arc::clone)
        };
        let key = match &self.identity {
            None => None,
            Some(identity) => Some(match identity.key() {
                Some(key) => key,
                None => {
                    let identity = Arc::clone(identity);
                    let _permit = self.steps.acquire().await;
                    spawn_blocking(move || identity.open())
                        .await
                        .map_err(|error| Error::internal(format!("opening a key: {error}")))??
                }
            }),
        };
        if let Some(config) = made() {
            return Ok(config);
        }
        for (key, concern) in key
            .iter()
            .flat_map(|key| key.concerns.iter().map(move |it| (key, it)))
        {
            let text = format!("the certificate of {}: {concern}", key.subject);
            self.server.observer.concern(&text);
        }
        let config = self
            .new_config(key.as_deref())
            .map_err(|reason| self.error(UpstreamFailure::Unusable(reason)))?;
        let mut place = self.config.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(Arc::clone(place.get_or_insert(Arc::new(config))))
    }

    fn new_config(&self, key: Option<&OpenKey>) -> Result<ClientConfig, String> {
        let provider = trust::far_provider();
        let cluster = &self.server.destination.cluster;
        let verifier = Arc::new(ServerVerifier::new(cluster, &provider)?);
        let versions = if key.is_none_or(OpenKey::serves_tls_1_3) {
            &[&version::TLS13, &version::TLS12][..]
        } else {
            &[&version::TLS12]
        };
        let config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(versions)
            .map_err(|error| error.to_string())?
            .dangerous()
            .with_custom_certificate_verifier(verifier);
        let mut config = match &self.identity {
            None => config.with_no_client_auth(),
            Some(identity) => config.with_client_cert_resolver(Arc::clone(identity) as _),
        };
        let sessions = Arc::clone(&self.sessions);
        config.resumption = Resumption::store(sessions);
        Ok(config)
    }

    /// Tells of a connection that was made.
    pub(super) fn connected(&self, connection: &Connection) {
        let tls = connection.stream.get_ref().1;
        let version = match tls.protocol_version() {
            Some(ProtocolVersion::TLSv1_2) => "TLS 1.2",
            _ => "TLS 1.3",
        };
        let protocol = tls
            .alpn_protocol()
            .map_or_else(|| "no ALPN".into(), String::from_utf8_lossy);
        let how = match connection.how {
            How::Resumed => "session resumed".to_owned(),
            How::Signed => format!("signed by {}", self.subject()),
            How::NotAsked => "the server asked for no client certificate".to_owned(),
            How::Keyless => "without a key".to_owned(),
        };
        self.server.observer.connection(&format!(
            "cluster \"{}\": connected, {version}, {protocol}, {how}",
            self.server.destination.name
        ));
    }

    /// What the server's end of a connection means, if it means anything.
    pub(super) fn explain(&self, broken: &Broken) -> Option<Error> {
        let explain = |error: &io::Error| match tls_error(error) {
            Some(rustls::Error::AlertReceived(alert)) => Some(self.alert(*alert)),
            Some(error) => Some(self.error(UpstreamFailure::Broken(error.to_string()))),
            // Servers, and what stands before them, are seldom polite.
            None if error.kind() == io::ErrorKind::UnexpectedEof => None,
            None if !broken.is_early && is_hard_end(error) => None,
            None => Some(self.error(UpstreamFailure::Broken(error.to_string()))),
        };
        // What was read tells more: an alert may stand behind a write that failed.
        let mut failures = [&broken.reading, &broken.writing].into_iter().flatten();
        failures.find_map(explain)
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
        let is_about_version = matches!(
            alert,
            AlertDescription::HandshakeFailure | AlertDescription::ProtocolVersion
        );
        let key = self.key().filter(|key| !key.serves_tls_1_3());
        self.error(if let Some(key) = key.filter(|_| is_about_version) {
            UpstreamFailure::VersionRefused {
                key: key.subject.clone(),
                alert: format!("TLS alert {alert:?}"),
            }
        } else if is_about_us {
            UpstreamFailure::Rejected {
                certificate: self.subject(),
                alert: format!("TLS alert {alert:?}"),
            }
        } else {
            UpstreamFailure::Broken(format!("TLS alert {alert:?}"))
        })
    }

    fn key(&self) -> Option<Arc<OpenKey>> {
        self.identity.as_ref().and_then(|identity| identity.key())
    }

    fn subject(&self) -> String {
        self.key()
            .map_or_else(String::new, |key| key.subject.clone())
    }

    pub(super) fn error(&self, failure: UpstreamFailure) -> Error {
        self.server.error(failure)
    }
}

/// A wait for a server, which is told of if it is given up after a while.
struct Wait<'a> {
    server: &'a Server,
    begin: Option<Instant>,
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        let waited = self.begin.map_or(Duration::ZERO, |begin| begin.elapsed());
        if waited >= SHORT {
            let seconds = waited.as_secs();
            self.server.tell_silence(&format!(
                "no answer for {seconds} s, and the command has given up"
            ));
        }
    }
}

impl Connection {
    /// Whether a signature or a session has shown who we are; if not, the server didn't ask.
    pub(super) fn is_authenticated(&self) -> bool {
        matches!(self.how, How::Resumed | How::Signed)
    }
}

/// Rung when there is something to read, or room to write.
struct Ready(Notify);

impl Wake for Ready {
    fn wake(self: Arc<Self>) {
        self.0.notify_one();
    }
}

/// What a server chooses of the protocols offered. A server that goes on only with a client
/// certificate has told it before.
async fn ask_choice(
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
    mut stream: Box<dyn Stream>,
) -> io::Result<Option<Vec<u8>>> {
    let mut tls = ClientConnection::new(config, name).map_err(io::Error::other)?;
    let outcome = greet(&mut tls, &mut stream).await;
    // Only a server whose certificate was accepted has chosen anything.
    if tls.peer_certificates().is_none() {
        outcome?;
    }
    Ok(tls.alpn_protocol().map(<[u8]>::to_owned))
}

async fn greet(tls: &mut ClientConnection, stream: &mut Box<dyn Stream>) -> io::Result<()> {
    let mut bytes = [0; 4096];
    loop {
        if !tls.is_handshaking() {
            tls.send_close_notify();
        }
        let mut out = Vec::new();
        while tls.wants_write() {
            tls.write_tls(&mut out)?;
        }
        stream.write_all(&out).await?;
        if !tls.is_handshaking() {
            return stream.shutdown().await;
        }
        let count = stream.read(&mut bytes).await?;
        if count == 0 {
            return Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "tls handshake eof",
            ));
        }
        let mut rest = bytes.get(..count).unwrap_or_default();
        while !rest.is_empty() {
            tls.read_tls(&mut rest)?;
            if let Err(error) = tls.process_new_packets() {
                let mut alert = Vec::new();
                let _ = tls.write_tls(&mut alert);
                let _ = stream.write_all(&alert).await;
                return Err(io::Error::new(io::ErrorKind::InvalidData, error));
            }
        }
    }
}

/// How a socket answers whose peer has closed it with something unread.
fn is_hard_end(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset
    )
}

fn tls_error(error: &io::Error) -> Option<&rustls::Error> {
    error.get_ref()?.downcast_ref()
}
