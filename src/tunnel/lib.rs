//! Tunnels: a port on this machine for each cluster, for as long as a command runs or a key is kept open.
//!
//! A tunnel is a TLS server to the command, with certificates of its own, and a TLS client to the API server, with the
//! token's key. Between the two it copies bytes. It works below HTTP: of the protocols that the command offers (ALPN), it
//! chooses the one that the API server prefers. So watch, logs, exec, port-forward, WebSocket, SPDY and HTTP/2 work, with
//! no code for any of them.

#![forbid(unsafe_code)]

mod answer;
mod clients;
mod error;
mod exchange;
mod issued;
mod local;
mod local_key;
mod relay;
mod resumption;
mod route;
mod server;
mod server_identity;
mod signing_key;
pub mod told;
mod trust;
mod upstream;
mod wire;

pub use clients::{ClientCertificate, KeyUsage};
pub use error::{not_recognised, tunnel_error};
pub use exchange::{ServerAnswer, ServerExchange};
pub use local::{PAUSE_AFTER_FAILURE, preferred_ports};
pub use route::effective_proxy;
pub use server_identity::ServerIdentity;

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};

use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Handle, Runtime};

use self::clients::Clients;
use self::local::{Handshakes, Port};
use self::server::Server;
use keyring::{KeyNumber, OpenKeys};
use kubeconfig::{Cluster, write_command};
use messages::error::Error;
use messages::help::Help;
use system::limits::tunnel as limits;
use system::{locked, shortage, signals};

/// A cluster that a tunnel leads to.
#[derive(Clone)]
pub struct TunnelTarget {
    /// The cluster's name in the kubeconfig.
    pub name: String,
    pub cluster: Cluster,
}

impl TunnelTarget {
    /// A target for the cluster. If it has no `proxy-url`, it is reached through the proxy of this process's environment.
    pub fn new(name: String, mut cluster: Cluster) -> Self {
        cluster.proxy_url = effective_proxy(&cluster);
        Self { name, cluster }
    }
}

/// Why there was no connection to a cluster, or why a connection broke off, and when.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Trouble {
    /// In seconds since 1970.
    pub time: i64,
    /// The error, with its remedy.
    pub message: String,
}

/// What happens in a tunnel, reported from any thread.
pub trait TunnelObserver: Send + Sync {
    /// A connection was made or refused; of interest to verbose users only.
    fn connection(&self, _line: &str) {}

    /// A connection failed, and the client could not be told.
    fn trouble(&self, _error: &Error) {}

    /// Something works, but should not stay as it is.
    fn concern(&self, _text: &str) {}
}

/// Ports that lead to clusters. They are closed when this is dropped.
pub struct Tunnels {
    pub clients: Arc<Clients>,
    keyring: Arc<dyn OpenKeys>,
    observer: Arc<dyn TunnelObserver>,
    handshakes: Arc<Handshakes>,
    ports: Mutex<BTreeMap<SocketAddr, Arc<Port>>>,
    network: Network,
}

impl Tunnels {
    /// Starts tunnels, which have no port yet, for clients that trust this identity.
    pub fn start(
        identity: &ServerIdentity,
        keyring: Arc<dyn OpenKeys>,
        observer: &Arc<dyn TunnelObserver>,
    ) -> Result<Self, Error> {
        Ok(Self {
            clients: Clients::new(identity).map_err(|error| shortage(&*error))?,
            keyring,
            observer: Arc::clone(observer),
            handshakes: Arc::default(),
            ports: Mutex::default(),
            network: Network::start()?,
        })
    }

    /// Listens for connections to the cluster: at this address, or else at a port of 127.0.0.1 that is the same in each run
    /// if it is free. No server is dialled, and no key opened, before there is a connection.
    pub fn listen(
        &self,
        target: TunnelTarget,
        address: Option<SocketAddr>,
    ) -> Result<SocketAddr, Error> {
        let cluster = target.name.clone();
        let failed = |reason| listen_error(&reason, &cluster, address);
        let ports = preferred_ports(&target.cluster.server, None).chain([0]);
        let addresses = match address {
            Some(address) => vec![address],
            None => ports.map(|port| (Ipv4Addr::LOCALHOST, port).into()).collect(),
        };
        let socket = local::bind(&addresses).map_err(failed)?;
        let address = socket.local_addr().map_err(failed)?;
        let _in_runtime = self.network.handle.enter();
        let socket = TcpListener::from_std(socket).map_err(failed)?;
        let port = Arc::new(Port {
            server: Server::new(target, Arc::clone(&self.observer)),
            keyring: Arc::clone(&self.keyring),
            clients: Arc::clone(&self.clients),
            handshakes: Arc::clone(&self.handshakes),
            upstreams: Mutex::default(),
        });
        locked(&self.ports).insert(address, Arc::clone(&port));
        self.network.handle.spawn(port.listen(socket));
        Ok(address)
    }

    /// What was wrong last with a connection at this address.
    pub fn last_trouble(&self, address: SocketAddr) -> Option<Trouble> {
        locked(&self.ports).get(&address)?.server.last_trouble()
    }

    /// Forgets the TLS sessions at servers that the key has begun: with them, a server lets a client in without a
    /// signature.
    pub fn forget_sessions(&self, key: KeyNumber) {
        for port in locked(&self.ports).values() {
            port.forget(key);
        }
    }

    /// From now on, refuses the certificate of the user with this key. Ends the connections that were made with it, and
    /// forgets the key's TLS sessions at servers. To be called before the key is [closed](keyring::Keyring::close).
    pub fn withdraw(&self, key: KeyNumber) {
        self.clients.withdraw(key);
        self.forget_sessions(key);
    }
}

/// Checks that the cluster of this name can be served at the address, by listening there for a moment.
pub fn check_port(cluster: &str, address: SocketAddr) -> Result<(), Error> {
    let outcome = local::bind(&[address]);
    outcome.map(drop).map_err(|reason| listen_error(&reason, cluster, Some(address)))
}

/// The error for a cluster that can't be served at this address or, without one, at any port of 127.0.0.1.
fn listen_error(reason: &io::Error, cluster: &str, address: Option<SocketAddr>) -> Error {
    if let Some(address) = address.filter(|_| reason.kind() == io::ErrorKind::AddrInUse) {
        let help = Help::from("end that program, or have the cluster use another port: ")
            .and(write_command());
        return tunnel_error(
            format!("cluster \"{cluster}\": another program listens on {address}, its port"),
            help,
        );
    }
    let help = if local::is_shortage(reason) {
        local::MORE_FILES
    } else {
        "check that this user may listen on 127.0.0.1"
    };
    tunnel_error(format!("no port on 127.0.0.1: {reason}"), help)
}

/// One thread that waits for the network. While it waits for a token, another thread takes over.
struct Network {
    handle: Handle,
    /// The runtime; `None` once this is being dropped.
    runtime: Option<Runtime>,
}

impl Network {
    fn start() -> Result<Self, Error> {
        // tokio panics if it can't start its first thread, so this is tried before.
        let trial = std::thread::Builder::new().spawn(|| {}).map_err(shortage)?;
        let _ = trial.join();
        let mut runtime = Builder::new_multi_thread();
        // If the command is a shell, it puts this process into the background.
        let start = signals::write_in_background;
        runtime.worker_threads(1).thread_name("tunnel").on_thread_start(start);
        let runtime = runtime.enable_all().build().map_err(shortage)?;
        Ok(Self { handle: runtime.handle().clone(), runtime: Some(runtime) })
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(limits::END);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Silent;

    impl TunnelObserver for Silent {}

    #[test]
    fn ports_are_open_until_all_are_closed() {
        let observer: Arc<dyn TunnelObserver> = Arc::new(Silent);
        let identity = ServerIdentity::generate(&[Ipv4Addr::LOCALHOST.into()]).unwrap();
        let tunnels =
            Tunnels::start(&identity, Arc::new(keyring::Keyring::default()), &observer).unwrap();
        let addresses = ["one", "two"].map(|name| {
            let cluster = Cluster {
                server: format!("https://{name}.invalid"),
                authority: None,
                tls_server_name: None,
                insecure: false,
                proxy_url: None,
            };
            tunnels.listen(TunnelTarget { name: name.to_owned(), cluster }, None).unwrap()
        });
        for address in addresses {
            std::net::TcpStream::connect(address).unwrap();
        }
        drop(tunnels);
        for address in addresses {
            assert!(std::net::TcpStream::connect(address).is_err());
        }
    }
}
