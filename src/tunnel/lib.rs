//! Tunnels: a port on this machine for each cluster, for as long as a command runs or a key is kept open.
//!
//! A tunnel ends the command's TLS with certificates of its own, speaks TLS to the API server with the token's key, and
//! copies bytes. It works below HTTP: of the protocols that the command offers (ALPN), the one that the server prefers
//! is the command's. So watch, logs, exec, port-forward, WebSocket, SPDY and HTTP/2 pass with no code for any of them.

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
    /// The cluster, through the proxy of this process's environment where it has no `proxy-url`.
    pub fn new(name: String, mut cluster: Cluster) -> Self {
        cluster.proxy_url = effective_proxy(&cluster);
        Self { name, cluster }
    }
}

/// Why there was no connection to a cluster, or why one broke off.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Trouble {
    /// In seconds since 1970.
    pub time: i64,
    /// With its remedy.
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

/// Ports that lead to clusters; they end when this is dropped.
pub struct Tunnels {
    pub clients: Arc<Clients>,
    keyring: Arc<dyn OpenKeys>,
    observer: Arc<dyn TunnelObserver>,
    handshakes: Arc<Handshakes>,
    ports: Mutex<Vec<Arc<Port>>>,
    network: Network,
}

impl Tunnels {
    /// Tunnels without a port yet, for clients that know this identity.
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

    /// Listens for connections to the cluster: at this address, or else at a port of 127.0.0.1 that is
    /// the same in each run, if it is free. Nothing is dialled or opened before a connection.
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
            address,
            server: Server::new(target, Arc::clone(&self.observer)),
            keyring: Arc::clone(&self.keyring),
            clients: Arc::clone(&self.clients),
            handshakes: Arc::clone(&self.handshakes),
            upstreams: Mutex::default(),
        });
        locked(&self.ports).push(Arc::clone(&port));
        self.network.handle.spawn(port.listen(socket));
        Ok(address)
    }

    /// What was last wrong with a connection that came in by this address.
    pub fn last_trouble(&self, address: SocketAddr) -> Option<Trouble> {
        let ports = locked(&self.ports);
        ports.iter().find(|port| port.address == address)?.server.last_trouble()
    }

    /// Forgets the sessions at servers that were made with the key: they let in without a signature.
    pub fn forget_sessions(&self, key: KeyNumber) {
        for port in &*locked(&self.ports) {
            port.forget(key);
        }
    }

    /// From now on, refuses the certificate of the user with this key, ends the connections that were made with it,
    /// and forgets the sessions at servers. To be called before the key is [closed](keyring::Keyring::close).
    pub fn withdraw(&self, key: KeyNumber) {
        self.clients.withdraw(key);
        self.forget_sessions(key);
    }
}

/// Listens at the address for a moment, where the cluster of this name is to be served.
pub fn check_port(cluster: &str, address: SocketAddr) -> Result<(), Error> {
    let outcome = local::bind(&[address]);
    outcome.map(drop).map_err(|reason| listen_error(&reason, cluster, Some(address)))
}

/// The error of a cluster that can't be served at this address, or else at any of 127.0.0.1.
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

/// One thread that waits for the network, whose work another one takes over while it waits for a token.
struct Network {
    handle: Handle,
    /// `None` once it is dropped.
    runtime: Option<Runtime>,
}

impl Network {
    fn start() -> Result<Self, Error> {
        // tokio panics where its first thread can't be started.
        let trial = std::thread::Builder::new().spawn(|| {}).map_err(shortage)?;
        let _ = trial.join();
        let mut runtime = Builder::new_multi_thread();
        // A shell that is the command puts us into the background.
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
