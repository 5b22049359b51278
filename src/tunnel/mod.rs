//! Tunnels: a port on 127.0.0.1 for each cluster, for as long as a command runs.
//!
//! A tunnel ends the command's TLS with certificates made for this run, speaks TLS to the API
//! server with the token's key, and copies bytes. It works below HTTP: the protocols that the
//! command offers (ALPN) are offered to the server, and the server's choice is the command's. So
//! watch, logs, exec, port-forward, WebSocket, SPDY and HTTP/2 pass with no code for any of them.
//!
//! Nobody but the command gets in, and nobody else makes us dial or sign. `local` has the reasons.

#![forbid(unsafe_code)]

mod address;
mod error;
mod local;
mod no_proxy;
mod p521;
mod proxy;
mod relay;
mod resumption;
mod signing_key;
mod trust;
mod upstream;
mod whoami;
mod wire;

pub use error::{UpstreamError, UpstreamFailure};
pub use whoami::{Recognition, whoami};

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread::{self, JoinHandle};

use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;

use self::local::{Credentials, Listener, Shortage, Unproven};
use self::upstream::Server;
use crate::error::Error;
use crate::keyring::{KeyNumber, Keyring};
use crate::kubeconfig::{ClientIdentity, Cluster, TunnelEndpoint};
use crate::process::RunError;
use crate::process::signals;

/// A cluster to be reached.
pub struct Destination {
    /// The cluster's name in the kubeconfig.
    pub name: String,
    pub cluster: Cluster,
}

/// Told what happens, from any thread.
pub trait Observer: Send + Sync {
    /// A connection was made, or one was refused: a line for whoever wants to know.
    fn connection(&self, line: &str);

    /// Somebody asks for a connection.
    fn asked(&self) {}

    /// A connection failed: the explanation.
    fn trouble(&self, error: &Error);

    /// Works, but should not stay as it is.
    fn concern(&self, text: &str);

    /// Somebody takes long: who, while it is so.
    fn waiting(&self, text: &str) {
        self.concern(text);
    }
}

/// The tunnels of a run; they end when this is dropped.
pub struct Tunnels {
    credentials: Credentials,
    addresses: Vec<String>,
    serving: Option<Serving>,
}

/// The thread that serves the ports.
struct Serving {
    end: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

impl Drop for Tunnels {
    /// Waits until what was under way has been told of.
    fn drop(&mut self) {
        if let Some(Serving { end, thread }) = self.serving.take() {
            drop(end);
            let _ = thread.join();
        }
    }
}

impl Tunnels {
    /// Listens for each destination, for users with these keys; nothing is dialled and no key opened
    /// before a connection comes.
    pub fn open(
        destinations: Vec<Destination>,
        keys: &[KeyNumber],
        keyring: &Arc<Keyring>,
        observer: &Arc<dyn Observer>,
    ) -> Result<Self, RunError> {
        let credentials = Credentials::new(keys)?;
        let runtime = Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| preparation(&error))?;
        let unproven = Arc::new(Unproven::default());
        let ports = destinations.len();
        let shortage = Arc::new(Shortage {
            ports,
            is_told: AtomicBool::new(false),
        });
        let mut addresses = Vec::with_capacity(ports);
        let mut listeners = Vec::with_capacity(ports);
        for destination in destinations {
            let listening = |reason| RunError::Listener { reason, ports };
            let socket = local::bind(&destination.cluster.server).map_err(listening)?;
            addresses.push(socket.local_addr().map_err(listening)?.to_string());
            let _in_runtime = runtime.enter();
            let socket = TcpListener::from_std(socket).map_err(listening)?;
            let server = Server::new(destination, Arc::clone(observer));
            let credentials = &credentials;
            let listener =
                Listener::new(socket, server, keyring, credentials, &unproven, &shortage);
            listeners.push(listener);
        }
        let serving = Some(start(runtime, listeners)?);
        Ok(Self {
            credentials,
            addresses,
            serving,
        })
    }

    /// What a kubeconfig has to say of each destination, in their order.
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
