//! Tunnels: a port on this machine for each cluster, for as long as a command runs or a key is kept open.
//!
//! A tunnel ends the command's TLS with certificates of its own, speaks TLS to the API
//! server with the token's key, and copies bytes. It works below HTTP: the protocols that the
//! command offers (ALPN) are offered to the server, and the server's choice is the command's. So
//! watch, logs, exec, port-forward, WebSocket, SPDY and HTTP/2 pass with no code for any of them.
//!
//! A connection that can't be made is answered in the server's place, with what went wrong; `answer`
//! has the one response that there is.
//!
//! Only the command gets in, and only the command makes us dial or sign; `local` says how.

#![forbid(unsafe_code)]

mod address;
mod alpn;
mod answer;
mod clients;
mod credentials;
mod error;
mod exchange;
mod explain;
mod local;
mod no_proxy;
mod p521;
mod probe;
mod proxy;
mod relay;
mod resumption;
mod server;
mod server_identity;
mod signing_key;
mod trust;
mod tunnel_client;
mod upstream;

mod wire;

pub use clients::{ClientCertificate, KeyUsage};
pub use error::{ServedError, UpstreamError, UpstreamFailure};
pub use exchange::{ServerAnswer, ServerExchange};
pub use local::{PAUSE_AFTER_FAILURE, preferred_ports};
pub use probe::{check_port, shows_certificate};
pub use proxy::{effective_proxy, is_proxied_elsewhere};
pub use server_identity::ServerIdentity;
pub use tunnel_client::TunnelClient;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use tokio::net::TcpListener;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::oneshot;

use self::clients::Clients;
use self::credentials::Credentials;
use self::error::ListenError;
use self::local::{Admission, Listener, Ports};
use self::server::Server;
use crate::error::Error;
use crate::keyring::{KeyNumber, Keyring};
use crate::kubeconfig::Cluster;
use crate::printable::line;
use crate::process::{RunError, signals};

/// A cluster to be reached.
#[derive(Clone)]
pub struct TunnelTarget {
    /// The cluster's name in the kubeconfig.
    pub name: String,
    pub cluster: Cluster,
    /// Whether HTTPS_PROXY and NO_PROXY of this process count where the cluster has no `proxy-url`.
    pub heeds_environment: bool,
}

/// What happens in a tunnel, reported from any thread.
pub trait TunnelObserver: Send + Sync {
    /// A connection was made or refused; of interest to verbose users only.
    fn connection(&self, line: &str);

    /// A connection to a port has begun.
    fn asked(&self) {}

    /// The last connection with this key has ended.
    fn idle(&self, _key: KeyNumber) {}

    /// A connection failed, and the client could not be told.
    fn trouble(&self, error: &Error);

    /// What a client is told of a connection that can't be made, in one line.
    fn answer(&self, error: &Error) -> String {
        line(&format!("{error}; {}", error.remedy())).into_owned()
    }

    /// Something works, but should not stay as it is.
    fn concern(&self, text: &str);

    /// A server takes long; reported while it does.
    fn waiting(&self, text: &str) {
        self.connection(text);
    }
}

/// Ports that lead to clusters; they end when this is dropped.
pub struct Tunnels {
    credentials: Arc<Credentials>,
    keyring: Arc<Keyring>,
    observer: Arc<dyn TunnelObserver>,
    ports: Arc<Ports>,
    open: Mutex<Vec<Arc<Admission>>>,
    runtime: Handle,
    serving: Option<Serving>,
}

/// The thread that serves the ports.
struct Serving {
    end: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

impl Drop for Tunnels {
    /// Waits until what was under way has been reported.
    fn drop(&mut self) {
        if let Some(Serving { end, thread }) = self.serving.take() {
            drop(end);
            let _ = thread.join();
        }
    }
}

impl Tunnels {
    /// Tunnels without a port yet, for clients that know this identity.
    ///
    /// # Errors
    ///
    /// There is no thread or randomness, or the identity's certificates and its key don't belong
    /// together.
    pub fn start(
        identity: &ServerIdentity,
        keyring: &Arc<Keyring>,
        observer: &Arc<dyn TunnelObserver>,
    ) -> Result<Self, Error> {
        let clients = Clients::new(Arc::clone(observer))?;
        let credentials = Arc::new(Credentials::new(identity, clients)?);
        let runtime = Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| preparation(&error))?;
        Ok(Self {
            credentials,
            keyring: Arc::clone(keyring),
            observer: Arc::clone(observer),
            ports: Arc::default(),
            open: Mutex::default(),
            runtime: runtime.handle().clone(),
            serving: Some(serve(runtime)?),
        })
    }

    /// Listens for connections to the cluster: at this address, or else at a port of 127.0.0.1 that is
    /// the same in each run, if it is free. No server is dialled and no key opened before the first
    /// connection.
    ///
    /// # Errors
    ///
    /// Another program has the address, or there is no port.
    pub fn listen(
        &self,
        target: TunnelTarget,
        address: Option<SocketAddr>,
    ) -> Result<SocketAddr, Error> {
        self.ports.expect(1);
        Ok(self.open_port(target, address)?)
    }

    /// [`Tunnels::listen`] for each of the clusters, in their order.
    ///
    /// # Errors
    ///
    /// There is no port.
    pub fn listen_for_each(&self, targets: Vec<TunnelTarget>) -> Result<Vec<SocketAddr>, Error> {
        self.ports.expect(targets.len());
        let targets = targets.into_iter();
        let addresses = targets.map(|target| self.open_port(target, None));
        Ok(addresses.collect::<Result<_, _>>()?)
    }

    fn open_port(
        &self,
        target: TunnelTarget,
        address: Option<SocketAddr>,
    ) -> Result<SocketAddr, ListenError> {
        let cluster = target.name.clone();
        let ports = self.ports.count();
        let failed = |reason| ListenError::of(reason, &cluster, address, ports);
        let socket = match address {
            Some(address) => local::bind([address]),
            None => {
                let ports = preferred_ports(&target.cluster.server, None).chain([0]);
                local::bind(ports.map(|port| (Ipv4Addr::LOCALHOST, port).into()))
            }
        };
        let socket = socket.map_err(failed)?;
        let address = socket.local_addr().map_err(failed)?;
        let _in_runtime = self.runtime.enter();
        let socket = TcpListener::from_std(socket).map_err(failed)?;
        let server = Server::new(target, Arc::clone(&self.observer));
        let (keyring, credentials) = (&self.keyring, &self.credentials);
        let listener = Listener::new(socket, server, keyring, credentials, &self.ports);
        self.open().push(listener.admission());
        self.runtime.spawn(listener.serve());
        Ok(address)
    }

    /// What the user with this key shows: the same certificate until it is withdrawn.
    ///
    /// # Errors
    ///
    /// There is no randomness.
    pub fn certificate(&self, key: KeyNumber) -> Result<ClientCertificate, Error> {
        Ok(self.credentials.clients.certificate(key)?)
    }

    /// From now on, refuses the certificate of the user with this key, ends the connections that were
    /// made with it, and forgets the sessions at servers. To be called before the key is
    /// [closed](Keyring::close).
    pub fn withdraw(&self, key: KeyNumber) {
        self.credentials.clients.withdraw(key);
        for admission in &*self.open() {
            admission.forget(key);
        }
    }

    /// How the certificate of the user with this key is used.
    pub fn usage(&self, key: KeyNumber) -> KeyUsage {
        self.credentials.clients.usage(key)
    }

    fn open(&self) -> MutexGuard<'_, Vec<Arc<Admission>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Serves what the runtime is given in a thread of its own.
fn serve(runtime: Runtime) -> Result<Serving, RunError> {
    let (end, ended) = oneshot::channel::<()>();
    let thread = thread::Builder::new()
        .name("tunnel".to_owned())
        .spawn(move || {
            // A shell that is the command puts us into the background.
            signals::write_in_background();
            let _ = runtime.block_on(ended);
            // Not waiting for handshakes that wait for a token. Those threads use no timer of the
            // runtime's, which would panic now.
            runtime.shutdown_background();
        })
        .map_err(|error| preparation(&error))?;
    Ok(Serving { end, thread })
}

fn preparation(error: &dyn std::fmt::Display) -> RunError {
    RunError::Preparation { reason: error.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) struct Unheard;

    impl TunnelObserver for Unheard {
        fn connection(&self, _: &str) {}
        fn trouble(&self, _: &Error) {}
        fn concern(&self, _: &str) {}
    }

    fn tunnels() -> Tunnels {
        tunnels_of(&ServerIdentity::generate(&[Ipv4Addr::LOCALHOST.into()]).unwrap())
    }

    pub(super) fn tunnels_of(identity: &ServerIdentity) -> Tunnels {
        let observer: Arc<dyn TunnelObserver> = Arc::new(Unheard);
        Tunnels::start(identity, &Arc::default(), &observer).unwrap()
    }

    pub(super) fn target(name: &str) -> TunnelTarget {
        TunnelTarget {
            name: name.to_owned(),
            cluster: Cluster {
                server: format!("https://{name}.invalid"),
                authority: None,
                tls_server_name: None,
                insecure: false,
                proxy_url: None,
            },
            heeds_environment: false,
        }
    }

    #[test]
    fn ports_are_open_until_all_are_closed() {
        let tunnels = tunnels();
        let addresses = ["one", "two"].map(|name| tunnels.listen(target(name), None).unwrap());
        for address in addresses {
            std::net::TcpStream::connect(address).unwrap();
        }
        drop(tunnels);
        for address in addresses {
            assert!(std::net::TcpStream::connect(address).is_err());
        }
    }

    #[test]
    fn an_address_that_another_program_has_is_told_with_a_remedy() {
        let other = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = other.local_addr().unwrap();
        let error = tunnels().listen(target("prod"), Some(address)).unwrap_err();
        assert_eq!(error.exit_code(), 9);
        let text = error.to_string();
        assert!(text.contains("\"prod\"") && text.contains(&address.to_string()), "{text}");
        drop(other);
        tunnels().listen(target("prod"), Some(address)).unwrap();
    }
}
