//! The clients' side of a tunnel: a port for each cluster, which only clients with a certificate of this tunnel can use.
//!
//! Every process on the machine can connect to a port. So each user with a key has a client certificate, which other
//! processes don't have. It also says which key is meant. Only after a client has shown it in a complete handshake is a key
//! opened and a connection to the server made; and only then is the client told why there is none.
//!
//! In TLS a server chooses the protocol (ALPN) before it sees the client's certificate. Here the choice should be the API
//! server's, which isn't known at the first connection. That one speaks HTTP/1.1, which all clients offer; meanwhile the
//! API server is asked, without a key, which protocol it would choose for the next ones.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, Cursor};
use std::net::{SocketAddr, TcpListener as StdListener};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::{Either, select};
use rustix::io::Errno;
use rustls::server::Acceptor;
use tokio::io::{AsyncReadExt as _, join, split};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, spawn_blocking};
use tokio::time::{sleep, timeout};
use tokio_rustls::{LazyConfigAcceptor, TlsStream};

use super::answer;
use super::clients::{ClientConnection, Clients};
use super::error::{look_at_entry, tunnel_error};
use super::limits;
use super::relay::{SEGMENT, relay};
use super::server::Server;
use super::upstream::{Connection, Upstream};
use super::wire::{Wire, wire};
use crate::error::UNREACHABLE;
use crate::told::{self, Accepted};
use files::directories::fnv_1a;
use keyring::{KeyNumber, OpenKeys};
use messages::error::Error;
use messages::help::{Help, command};
use messages::printable::printable;
use system::locked;

/// How many handshakes with clients there may be at once, at all ports together. Each can take as much memory as a long
/// greeting does.
const HANDSHAKES: usize = 256;

/// How long to wait when there is no free descriptor for the next connection.
pub const PAUSE_AFTER_FAILURE: Duration = Duration::from_millis(50);

/// The first of the ports that are used: below those that systems give to outgoing connections, and where few services are.
const FIRST_PORT: u16 = 20_000;
const PORTS: u64 = 12_000;
const ATTEMPTS: u64 = 8;

/// The ports that are preferred for a cluster, one after the other. They are the same in every run, since kubectl keeps
/// what it learns of a cluster in a directory named after the address. `owner` sets apart those who share an address.
pub fn preferred_ports(cluster: &str, owner: Option<&str>) -> impl Iterator<Item = u16> + use<> {
    let first = fnv_1a(cluster).wrapping_add(owner.map_or(0, fnv_1a));
    (0..ATTEMPTS).map(move |attempt| {
        let offset = first.wrapping_add(attempt) % PORTS;
        FIRST_PORT + u16::try_from(offset).unwrap_or_default()
    })
}

/// Listens at the first of these addresses that is free.
pub(super) fn bind(addresses: &[SocketAddr]) -> io::Result<StdListener> {
    let listener = StdListener::bind(addresses)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// The connection to a client. It is on the heap, like one to a server, so that the tasks that hand it on stay small.
type ClientStream = Box<TlsStream<Wire<TcpStream>>>;

/// What becomes of a client that has shown a certificate of this tunnel.
enum ClientAdmission {
    Client {
        stream: ClientStream,
        counted: ClientConnection,
        /// Whether the client has offered several protocols.
        has_choice: bool,
    },
    /// The client's certificate was withdrawn when the key was closed, or is of an earlier process. The client is told so,
    /// and gets no connection.
    Outdated(ClientStream),
}

/// The error for a client with an outdated certificate. Many clients ask the plugin for a certificate only once, whenever
/// that expires.
fn outdated() -> Error {
    tunnel_error(
        "the key of this client's certificate has been closed since, or the tunnel process was started anew",
        Help::from(
            "restart the client, or have it run the credential plugin again; if it runs for long and never does, start it \
             with ",
        )
        .and(command("run")),
    )
}

/// The tasks that are making a handshake with a client, at all ports, the oldest first.
#[derive(Default)]
pub(super) struct Handshakes {
    tasks: Mutex<BTreeMap<u64, AbortHandle>>,
    last: AtomicU64,
    is_shortage_reported: AtomicBool,
}

/// A port that leads to a cluster.
pub(super) struct Port {
    pub(super) server: Arc<Server>,
    pub(super) keyring: Arc<dyn OpenKeys>,
    pub(super) clients: Arc<Clients>,
    pub(super) handshakes: Arc<Handshakes>,
    /// The connections to the server, by the key that they are made with.
    pub(super) upstreams: Mutex<HashMap<KeyNumber, Arc<Upstream>>>,
}

impl Port {
    /// Accepts connections for ever, each in a task of its own.
    pub(super) async fn listen(self: Arc<Self>, socket: TcpListener) {
        loop {
            match socket.accept().await {
                Ok((connection, _)) => self.spawn(connection),
                Err(reason) => {
                    let is_reported = &self.handshakes.is_shortage_reported;
                    if is_shortage(&reason) && !is_reported.swap(true, Ordering::Relaxed) {
                        self.server.observer.trouble(&tunnel_error(
                            format!("a connection of the command has to wait: {reason}"),
                            MORE_FILES,
                        ));
                    }
                    sleep(PAUSE_AFTER_FAILURE).await;
                }
            }
        }
    }

    fn spawn(self: &Arc<Self>, connection: TcpStream) {
        let number = self.handshakes.last.fetch_add(1, Ordering::Relaxed);
        let port = Arc::clone(self);
        // This lock is held until the task is listed, so that the task can't be removed from the list before.
        let mut tasks = locked(&self.handshakes.tasks);
        let task = tokio::spawn(async move {
            port.serve(connection, number).await;
            locked(&port.handshakes.tasks).remove(&number);
        });
        tasks.insert(number, task.abort_handle());
        if tasks.len() > HANDSHAKES
            && let Some((_, oldest)) = tasks.pop_first()
        {
            oldest.abort();
            drop(tasks);
            self.refused::<()>("too many that are not let in yet: the oldest makes room");
        }
    }

    async fn serve(&self, connection: TcpStream, number: u64) {
        let accepted = accepted(&connection);
        // Boxed, so that the memory that the handshake needs is freed before the connection is used.
        let (mut client, counted, has_choice) = match Box::pin(self.admit(connection, number)).await
        {
            Some(ClientAdmission::Client { stream, counted, has_choice }) => {
                (stream, counted, has_choice)
            }
            Some(ClientAdmission::Outdated(client)) => {
                return Box::pin(self.answer(client, accepted, Vec::new(), &outdated())).await;
            }
            None => return,
        };
        let upstream = self.upstream(counted.key);
        let protocol = client.get_ref().1.alpn_protocol().map(<[u8]>::to_owned);
        let made = Box::pin(self.connect(&upstream, &mut client, has_choice, protocol)).await;
        let (sent, error) = match made {
            None => return,
            Some(Err(error)) => (Vec::new(), error),
            Some(Ok(mut server)) => {
                upstream.connected(&server);
                let superseded = Box::pin(upstream.is_superseded(&server.identity));
                let broken = relay(&mut *client, &mut *server.stream, superseded).await;
                match (upstream.end_error(&broken), broken.unanswered) {
                    (None, _) => return,
                    // In TLS 1.3 a server refuses a certificate only after the handshake is over on this side.
                    (Some(error), Some(sent)) => (sent, error),
                    (Some(error), None) => {
                        self.server.note_trouble(&error);
                        return self.server.observer.trouble(&error);
                    }
                }
            }
        };
        self.server.note_trouble(&error);
        Box::pin(self.answer(client, accepted, sent, &error)).await;
    }

    /// Makes the handshake with a client, which has to show its certificate.
    async fn admit(&self, connection: TcpStream, number: u64) -> Option<ClientAdmission> {
        let _ = connection.set_nodelay(true);
        #[cfg(target_os = "linux")]
        // BBR would slow the stream down as if there were a network: by 3 %.
        let _ = rustix::net::sockopt::set_tcp_congestion(&connection, "reno");
        let shaken = async {
            let hello = LazyConfigAcceptor::new(Acceptor::default(), wire(connection)).await?;
            let offer = hello.client_hello().alpn().into_iter().flatten();
            let offer: Vec<_> = offer.map(<[u8]>::to_owned).collect();
            let mut config = self.clients.config.clone();
            config.alpn_protocols = self.server.choice(&offer).into_iter().collect();
            let mut client = hello.into_stream(Arc::new(config)).await?;
            client.get_mut().1.set_buffer_limit(Some(SEGMENT));
            io::Result::Ok((Box::new(TlsStream::from(client)), offer.len() > 1))
        };
        let (client, has_choice) = match timeout(limits::CLIENT_HANDSHAKE, shaken).await {
            Ok(Ok(shaken)) => shaken,
            Ok(Err(error)) => return self.refused(&error.to_string()),
            Err(_) => return self.refused("it was silent for too long"),
        };
        // If it is missing, this handshake was ended to make room for others.
        let task = locked(&self.handshakes.tasks).get(&number).cloned()?;
        let shown = client.get_ref().1.peer_certificates()?.first()?;
        let Some(counted) = self.clients.connected(shown, number, task) else {
            return Some(ClientAdmission::Outdated(client));
        };
        // From now on it can't be ended to make room for others.
        locked(&self.handshakes.tasks).remove(&number);
        Some(ClientAdmission::Client { stream: client, counted, has_choice })
    }

    /// Makes a connection to the server for the client; `None` if the client has gone.
    async fn connect(
        &self,
        upstream: &Arc<Upstream>,
        client: &mut ClientStream,
        has_choice: bool,
        protocol: Option<Vec<u8>>,
    ) -> Option<Result<Connection, Error>> {
        if has_choice && self.server.is_first_to_ask() {
            let upstream = Arc::clone(upstream);
            tokio::spawn(async move {
                sleep(limits::BEFORE_CHOICE).await;
                upstream.ask_for_choice().await;
            });
        }
        let gone = pin!(async {
            client.get_mut().0.reader_mut().end().await;
            sleep(limits::CLIENT_GONE).await;
        });
        match select(upstream.connect(protocol), gone).await {
            Either::Left((connection, _)) => connection.ok(),
            Either::Right(_) => None,
        }
    }

    /// Tells a client, which has sent `sent`, why there is no connection. If the client makes no request, the error is
    /// reported instead.
    async fn answer(
        &self,
        client: ClientStream,
        accepted: Option<Accepted>,
        sent: Vec<u8>,
        error: &Error,
    ) {
        let text = text_for(accepted, error).await;
        let is_possible = answer::is_possible(client.get_ref().1.alpn_protocol());
        let (rest, answer) = split(client);
        let stream = join(Cursor::new(sent).chain(rest), answer);
        let is_away = error.is(&UNREACHABLE);
        if is_possible && answer::answer(stream, &text, is_away).await {
            self.server.report_connection(&format!("answered with 502: {text}"));
        } else {
            self.server.observer.trouble(error);
        }
    }

    /// Forgets the key's TLS sessions, with which a server lets a client in without a signature.
    pub(super) fn forget(&self, key: KeyNumber) {
        locked(&self.upstreams).remove(&key);
    }

    fn upstream(&self, key: KeyNumber) -> Arc<Upstream> {
        let mut upstreams = locked(&self.upstreams);
        let keyring = || Arc::clone(&self.keyring);
        let new = || Arc::new(Upstream::new(Arc::clone(&self.server), keyring(), key));
        Arc::clone(upstreams.entry(key).or_insert_with(new))
    }

    fn refused<T>(&self, reason: &str) -> Option<T> {
        self.server.report_connection(&format!("refused a connection: {reason}"));
        None
    }
}

fn accepted(connection: &TcpStream) -> Option<Accepted> {
    Some(Accepted { client: connection.peer_addr().ok()?, here: connection.local_addr().ok()? })
}

/// The text for the process at the other end. It says what to do only the first two times; not only the first time, since
/// kubectl doesn't show each answer that it gets.
async fn text_for(accepted: Option<Accepted>, error: &Error) -> String {
    let mut sentence = error.sentence();
    if error.is(&UNREACHABLE) {
        sentence += &format!("; {}", look_at_entry().in_this_call());
    }
    let text = sentence.clone();
    let was_told = spawn_blocking(move || {
        let process = accepted.and_then(told::client_process);
        process.is_some_and(|process| told::times_told(process, &text) > 1)
    });
    if was_told.await.unwrap_or(false) {
        return printable(&error.to_string()).into_owned();
    }
    sentence
}

pub(super) const MORE_FILES: &str = "the run needs a port for each cluster, and an open file for each: raise the \
    limit (`ulimit -n`), or name one context with --only-context";

/// Whether the reason is that there are too many open files, in this process or on the machine.
pub(super) fn is_shortage(reason: &io::Error) -> bool {
    matches!(Errno::from_io_error(reason), Some(Errno::NFILE | Errno::MFILE))
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn a_server_has_the_same_port_in_each_run_and_another_when_it_is_taken() {
        let port = |server: &str| {
            let ports = preferred_ports(server, None).chain([0]);
            let addresses = ports.map(|port| (Ipv4Addr::LOCALHOST, port).into());
            bind(&addresses.collect::<Vec<_>>()).unwrap()
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
        // Users of one address have ports of their own.
        let owned = |owner| preferred_ports("https://one.example:6443", owner).next();
        assert_ne!(owned(Some("jane")), owned(Some("john")));
    }
}
