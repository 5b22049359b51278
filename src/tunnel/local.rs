//! The command's side: a port on 127.0.0.1 for each cluster, which only the command can use.
//!
//! Every process of the machine can connect to a port. What the command has and others don't is a client
//! certificate for each user who has a key. It says whose key is meant, as with kubectl and keys in files.
//! A key is opened, and a connection made, only after the certificate was shown.
//!
//! In TLS the server chooses a protocol before it sees the client's certificate, and the choice is the
//! API server's to make. So the first connection speaks HTTP/1.1, which all clients offer, and has the API server
//! asked, without a key, for its choice for those after it.
//!
//! In a run, users without a certificate (with a token, say) are passed through the same port. There the
//! server name can't be guessed: a connection that asks for it has the API server asked at once, and without
//! a certificate is connected without a key. A certificate that bears the name is shown only to clients that ask
//! for it. One that doesn't ask for it (a client that sends no names for an address) always speaks HTTP/1.1.
//!
//! Why there is no connection is told only to a client that has shown its certificate.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, Cursor};
use std::net::{SocketAddr, TcpListener as StdListener};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustls::ServerConfig;
use rustls::server::{Acceptor, ClientHello};
use tokio::io::{AsyncReadExt as _, join, split};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};
use tokio_rustls::LazyConfigAcceptor;
use tokio_rustls::server::TlsStream;

use super::alpn::{HTTP_1_1, Offer};
use super::answer;
use super::clients::ClientConnection;
use super::credentials::Credentials;
use super::error::{ListenError, UpstreamFailure};
use super::relay::relay;
use super::server::{NotConnected, Server};
use super::upstream::{Connection, Upstream};
use super::wire::Wire;
use crate::error::Error;
use crate::keyring::{KeyNumber, Keyring};
use crate::process::fnv_1a;

/// A connection that is silent for longer is not the command's.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(10);

/// How long a command that sends no more may still be waiting for an answer.
const HALF_CLOSED: Duration = Duration::from_secs(1);

/// Connections that haven't proven yet that they are the command's, at all ports together. Each can
/// hold as much memory as a long greeting takes.
const UNPROVEN: usize = 256;

/// How long to wait for a descriptor to become free, if there is none.
pub const PAUSE_AFTER_FAILURE: Duration = Duration::from_millis(50);

/// Below the ports that systems give to outgoing connections, where few services are.
const FIRST_PORT: u16 = 20_000;
const PORTS: u64 = 12_000;
const ATTEMPTS: u64 = 8;

/// The ports that are preferred for a cluster, one after the other. They are the same in every run, since
/// kubectl keeps what it learns of a cluster in a directory named after the address. `owner` sets apart those who
/// share an address.
pub fn preferred_ports(cluster: &str, owner: Option<&str>) -> impl Iterator<Item = u16> + use<> {
    let hash = fnv_1a(cluster) % PORTS + owner.map_or(0, |it| fnv_1a(it) % PORTS);
    (0..ATTEMPTS).map(move |attempt| {
        let place = (hash + attempt) % PORTS;
        FIRST_PORT + u16::try_from(place).unwrap_or_default()
    })
}

/// The first of these addresses that is free.
pub(super) fn bind(addresses: impl IntoIterator<Item = SocketAddr>) -> io::Result<StdListener> {
    let mut outcome = Err(io::Error::other("no port was tried"));
    for address in addresses {
        outcome = StdListener::bind(address);
        if outcome.is_ok() {
            break;
        }
    }
    let listener = outcome?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

type CommandStream = TlsStream<Wire<TcpStream>>;

/// What all ports of a run share.
#[derive(Default)]
pub(super) struct Ports {
    count: AtomicUsize,
    is_shortage_told: AtomicBool,
    last_connection: AtomicU64,
    /// The tasks of connections that haven't proven yet that they are the command's, by age.
    unproven: Mutex<BTreeMap<u64, AbortHandle>>,
}

impl Ports {
    /// Counts ports before they are opened.
    pub(super) fn expect(&self, more: usize) {
        self.count.fetch_add(more, Ordering::Relaxed);
    }

    pub(super) fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    fn unproven(&self) -> MutexGuard<'_, BTreeMap<u64, AbortHandle>> {
        self.unproven.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a task. Returns whether the oldest one was ended for it.
    fn add(&self, number: u64, task: AbortHandle) -> bool {
        let mut tasks = self.unproven();
        tasks.insert(number, task);
        if tasks.len() <= UNPROVEN {
            return false;
        }
        let oldest = tasks.pop_first();
        drop(tasks);
        if let Some((_, task)) = &oldest {
            task.abort();
        }
        oldest.is_some()
    }
}

/// A connection that is listed among the unproven, until this is dropped.
struct Unproven {
    ports: Arc<Ports>,
    number: u64,
}

impl Unproven {
    /// Takes it off the list; `None` if its task was ended meanwhile.
    fn prove(self) -> Option<Proven> {
        let task = self.ports.unproven().remove(&self.number)?;
        let number = self.number;
        Some(Proven { number, task })
    }
}

/// A connection that is the command's.
struct Proven {
    number: u64,
    task: AbortHandle,
}

impl Drop for Unproven {
    fn drop(&mut self) {
        self.ports.unproven().remove(&self.number);
    }
}

/// A port, and the server it leads to.
pub(super) struct Listener {
    socket: TcpListener,
    admission: Arc<Admission>,
    ports: Arc<Ports>,
}

/// Decides about the connections to a port.
pub(super) struct Admission {
    server: Arc<Server>,
    keyring: Arc<Keyring>,
    credentials: Arc<Credentials>,
    /// By the key to show; without one for clients that show no certificate.
    upstreams: Mutex<HashMap<Option<KeyNumber>, Arc<Upstream>>>,
}

impl Listener {
    pub(super) fn new(
        socket: TcpListener,
        server: Arc<Server>,
        keyring: &Arc<Keyring>,
        credentials: &Arc<Credentials>,
        ports: &Arc<Ports>,
    ) -> Self {
        Self {
            socket,
            admission: Arc::new(Admission {
                server,
                keyring: Arc::clone(keyring),
                credentials: Arc::clone(credentials),
                upstreams: Mutex::default(),
            }),
            ports: Arc::clone(ports),
        }
    }

    pub(super) fn admission(&self) -> Arc<Admission> {
        Arc::clone(&self.admission)
    }

    /// Accepts connections for ever, each in a task of its own.
    pub(super) async fn serve(self) {
        loop {
            match self.socket.accept().await {
                Ok((connection, _)) => self.spawn(connection),
                Err(reason) => {
                    self.report(reason);
                    sleep(PAUSE_AFTER_FAILURE).await;
                }
            }
        }
    }

    fn spawn(&self, connection: TcpStream) {
        let number = self.ports.last_connection.fetch_add(1, Ordering::Relaxed);
        let ports = Arc::clone(&self.ports);
        let unproven = Unproven { ports, number };
        let admission = Arc::clone(&self.admission);
        let task = tokio::spawn(async move { admission.serve(connection, unproven).await });
        if self.ports.add(number, task.abort_handle()) {
            let reason = "too many that are not let in yet: the oldest makes room";
            self.admission.refused(reason);
        }
    }

    fn report(&self, reason: io::Error) {
        let ports = self.ports.count();
        let error = ListenError::Accept { reason, ports };
        if error.is_shortage() && !self.ports.is_shortage_told.swap(true, Ordering::Relaxed) {
            self.admission.server.observer.trouble(&error.into());
        }
    }
}

impl Admission {
    async fn serve(&self, connection: TcpStream, unproven: Unproven) {
        self.server.observer.asked();
        // Boxed: what making a connection needs is freed before the connection is used.
        let admitted = Box::pin(self.admit(connection, unproven)).await;
        let Some((mut command, server, upstream, counted)) = admitted else {
            return;
        };
        let broken = relay(&mut command, server.stream).await;
        if let Some(error) = upstream.end_error(&broken) {
            match broken.unanswered.filter(|_| counted.is_some()) {
                // In TLS 1.3 a server refuses a certificate when the handshake is over for us.
                Some(sent) => Box::pin(self.answer(command, sent, &error)).await,
                None => self.server.observer.trouble(&error),
            }
        }
    }

    /// The two ends of a connection that may be joined. Why there are none has been told to the command,
    /// or reported.
    async fn admit(
        &self,
        connection: TcpStream,
        unproven: Unproven,
    ) -> Option<(CommandStream, Connection, Arc<Upstream>, Option<ClientConnection>)> {
        let trouble = |error: &Error| {
            self.server.observer.trouble(error);
            None
        };
        let _ = connection.set_nodelay(true);
        let hello = LazyConfigAcceptor::new(Acceptor::default(), Wire::new(connection));
        let mut hello = match in_time(hello).await {
            Ok(hello) => hello,
            Err(error) => {
                self.refused(&error.to_string());
                return None;
            }
        };
        let mut offer = offered(&hello.client_hello());
        let server_name = self.credentials.server_name.as_str();
        let is_named = hello.client_hello().server_name() == Some(server_name);
        let trusted = self.credentials.trusted.as_ref().filter(|_| is_named);
        let (mut unproven, mut proven) = (Some(unproven), None);
        let (mut config, mut failure) = (&self.credentials.named, None);
        let mut protocol = offer.iter().find(|it| *it == HTTP_1_1).cloned();
        if !is_named {
            config = &self.credentials.plain;
            offer = protocol.clone().into_iter().collect();
        } else if let Some(trusted) = trusted {
            proven = Some(unproven.take()?.prove()?);
            match self.upstream(None).choice(offer.clone(), pin!(hello.io.end())).await {
                Ok(choice) => (config, protocol) = (trusted, choice),
                Err(NotConnected::Unwanted) => return None,
                Err(NotConnected::Failed(error)) => failure = Some(error),
            }
        } else if let Some(known) = self.server.known_choice(&offer) {
            protocol = known;
        }
        let config = speaking(config, protocol.as_deref());
        let mut command = match (in_time(hello.into_stream(config)).await, &failure) {
            (Ok(command), _) => command,
            (Err(_), Some(error)) => return trouble(error),
            (Err(refused), None) if trusted.is_some() && is_of_another(&refused) => {
                return trouble(&self.server.error(UpstreamFailure::OwnCertificate));
            }
            (Err(refused), None) => {
                self.refused(&refused.to_string());
                return None;
            }
        };
        if let Some(unproven) = unproven {
            proven = Some(unproven.prove()?);
        }
        let tls = command.get_ref().1;
        let counted = match self.credentials.key(tls) {
            Some(key) => {
                let Proven { number, task } = proven?;
                Some(self.credentials.clients.connected(key, number, task)?)
            }
            None if tls.peer_certificates().is_some() => {
                self.refused("its certificate was withdrawn");
                return None;
            }
            None => None,
        };
        if failure.is_none() {
            let gone = pin!(gone(command.get_mut().0));
            match self.upstream(None).choice(offer, gone).await {
                Ok(_) => {}
                Err(NotConnected::Unwanted) => return None,
                Err(NotConnected::Failed(error)) => failure = Some(error),
            }
        }
        let upstream = self.upstream(counted.as_ref().map(ClientConnection::key));
        let connection = match failure {
            Some(error) => Err(error),
            None => tokio::select! {
                biased;
                connection = upstream.connect(protocol) => connection.ok()?,
                () = gone(command.get_mut().0) => return None,
            },
        };
        match connection {
            Ok(server) => {
                upstream.connected(&server);
                Some((command, server, upstream, counted))
            }
            Err(error) if counted.is_some() => {
                Box::pin(self.answer(command, Vec::new(), &error)).await;
                None
            }
            Err(error) => trouble(&error),
        }
    }

    /// Tells a command that has shown its certificate, and has sent this already, why there is no connection, or
    /// reports it if the command doesn't ask.
    async fn answer(&self, command: CommandStream, sent: Vec<u8>, error: &Error) {
        let text = self.server.observer.answer(error);
        let is_possible = answer::is_possible(command.get_ref().1.alpn_protocol());
        let (rest, answer) = split(command);
        let stream = join(Cursor::new(sent).chain(rest), answer);
        if is_possible && answer::answer(stream, &text).await {
            self.server.tell_connection(&format!("answered with 502: {text}"));
        } else {
            self.server.observer.trouble(error);
        }
    }

    /// Forgets the key's sessions, which let in without a signature.
    pub(super) fn forget(&self, key: KeyNumber) {
        self.upstreams().remove(&Some(key));
    }

    fn upstreams(&self) -> MutexGuard<'_, HashMap<Option<KeyNumber>, Arc<Upstream>>> {
        self.upstreams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn upstream(&self, key: Option<KeyNumber>) -> Arc<Upstream> {
        let mut upstreams = self.upstreams();
        let upstream = upstreams.entry(key).or_insert_with(|| {
            let server = Arc::clone(&self.server);
            Arc::new(Upstream::new(server, &self.keyring, key))
        });
        Arc::clone(upstream)
    }

    /// Reports a connection that was not let in.
    fn refused(&self, reason: &str) {
        self.server.tell_connection(&format!("refused a connection: {reason}"));
    }
}

/// Waits until the command has gone.
async fn gone(connection: &mut Wire<TcpStream>) {
    connection.end().await;
    sleep(HALF_CLOSED).await;
}

/// Whether a handshake failed because the client's certificate isn't of this run.
fn is_of_another(error: &io::Error) -> bool {
    let tls = error.get_ref().and_then(|error| error.downcast_ref());
    matches!(tls, Some(rustls::Error::InvalidCertificate(_)))
}

async fn in_time<T>(handshake: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    timeout(HANDSHAKE_LIMIT, handshake)
        .await
        .unwrap_or_else(|_| Err(io::Error::other("it was silent for too long")))
}

fn offered(hello: &ClientHello<'_>) -> Offer {
    hello.alpn().map(|protocols| protocols.map(<[u8]>::to_owned).collect()).unwrap_or_default()
}

/// The configuration with this protocol as the only choice, or with none.
fn speaking(config: &ServerConfig, protocol: Option<&[u8]>) -> Arc<ServerConfig> {
    let mut config = config.clone();
    config.alpn_protocols = protocol.map(<[u8]>::to_owned).into_iter().collect();
    Arc::new(config)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn a_server_has_the_same_port_in_each_run_and_another_when_it_is_taken() {
        let port = |server: &str| {
            let ports = preferred_ports(server, None).chain([0]);
            bind(ports.map(|port| (Ipv4Addr::LOCALHOST, port).into())).unwrap()
        };
        let first = port("https://one.example:6443");
        let address = first.local_addr().unwrap();
        // The same in each release and each build.
        let preferred = 24_239..24_239 + u16::try_from(ATTEMPTS).unwrap();
        assert!(preferred.contains(&address.port()), "{address}");
        assert!(address.ip().is_loopback());
        let second = port("https://one.example:6443").local_addr().unwrap();
        assert_ne!(second, address);
        drop(first);
        let again = port("https://one.example:6443").local_addr().unwrap();
        assert_eq!(again, address);
    }
}
