//! Tunnels: a port on 127.0.0.1 for each cluster, for as long as a command runs.
//!
//! A tunnel ends the command's TLS with certificates made for this run, speaks TLS to the API
//! server with the token's key, and copies bytes. It works below HTTP: the protocols that the
//! command offers (ALPN) are offered to the server, and the server's choice is the command's. So
//! watch, logs, exec, port-forward, WebSocket, SPDY and HTTP/2 pass with no code for any of them.
//!
//! Only the command gets in, and only the command makes us dial or sign; `local` says how.

#![forbid(unsafe_code)]

mod address;
mod alpn;
mod credentials;
mod error;
mod explain;
mod local;
mod no_proxy;
mod p521;
mod proxy;
mod relay;
mod resumption;
mod server;
mod signing_key;
mod trust;
mod upstream;
mod whoami;
mod wire;

pub use error::{UpstreamError, UpstreamFailure};
pub use whoami::{Recognition, whoami};

use std::sync::Arc;
use std::thread::{self, JoinHandle};

use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;

use self::credentials::Credentials;
use self::error::ListenError;
use self::local::{Listener, Ports};
use self::server::Server;
use crate::error::Error;
use crate::keyring::{KeyNumber, Keyring};
use crate::kubeconfig::{ClientIdentity, Cluster, TunnelEndpoint};
use crate::process::{RunError, signals};

/// A cluster to be reached.
pub struct TunnelTarget {
    /// The cluster's name in the kubeconfig.
    pub name: String,
    pub cluster: Cluster,
}

/// What happens in a tunnel, reported from any thread.
pub trait TunnelObserver: Send + Sync {
    /// A connection was made or refused; of interest to verbose users only.
    fn connection(&self, line: &str);

    /// A connection to a port has begun.
    fn asked(&self) {}

    /// A connection failed.
    fn trouble(&self, error: &Error);

    /// Something works, but should not stay as it is.
    fn concern(&self, text: &str);

    /// A server or a token takes long; reported while it does.
    fn waiting(&self, text: &str) {
        self.concern(text);
    }
}

/// The tunnels of a run; they end when this is dropped.
pub struct Tunnels {
    credentials: Arc<Credentials>,
    addresses: Vec<String>,
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
    /// Listens for each cluster, for users with these keys. No server is dialled and no key opened
    /// before the first connection.
    ///
    /// # Errors
    ///
    /// There is no port, thread or randomness.
    pub fn open(
        clusters: Vec<TunnelTarget>,
        keys: &[KeyNumber],
        keyring: &Arc<Keyring>,
        observer: &Arc<dyn TunnelObserver>,
    ) -> Result<Self, Error> {
        let credentials = Arc::new(Credentials::new(keys)?);
        let runtime = Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| preparation(&error))?;
        let count = clusters.len();
        let ports = Ports::new(count);
        let mut addresses = Vec::with_capacity(count);
        let mut listeners = Vec::with_capacity(count);
        for cluster in clusters {
            let listening = |reason| ListenError::Listener {
                reason,
                ports: count,
            };
            let socket = local::bind(&cluster.cluster.server).map_err(listening)?;
            addresses.push(socket.local_addr().map_err(listening)?.to_string());
            let _in_runtime = runtime.enter();
            let socket = TcpListener::from_std(socket).map_err(listening)?;
            let server = Server::new(cluster, Arc::clone(observer));
            listeners.push(Listener::new(socket, server, keyring, &credentials, &ports));
        }
        let serving = Some(start(runtime, listeners)?);
        Ok(Self {
            credentials,
            addresses,
            serving,
        })
    }

    /// What a kubeconfig has to say of each cluster, in their order.
    pub fn endpoints(&self) -> impl Iterator<Item = TunnelEndpoint<'_>> {
        self.addresses
            .iter()
            .map(|address| self.credentials.endpoint(address))
    }

    /// What it has to say of the user with each key, in their order.
    pub fn identities(&self) -> impl Iterator<Item = ClientIdentity<'_>> {
        self.credentials.identities()
    }
}

/// Serves the listeners in a thread of their own.
fn start(runtime: Runtime, listeners: Vec<Listener>) -> Result<Serving, RunError> {
    let (end, ended) = oneshot::channel::<()>();
    let thread = thread::Builder::new()
        .name("tunnel".to_owned())
        .spawn(move || {
            // A shell that is the command puts us into the background.
            signals::write_in_background();
            for listener in listeners {
                runtime.spawn(listener.serve());
            }
            let _ = runtime.block_on(ended);
            // Not waiting for handshakes that wait for a token. Those threads use no timer of the
            // runtime's, which would panic now.
            runtime.shutdown_background();
        })
        .map_err(|error| preparation(&error))?;
    Ok(Serving { end, thread })
}

fn preparation(error: &dyn std::fmt::Display) -> RunError {
    RunError::Preparation {
        reason: error.to_string(),
    }
}
