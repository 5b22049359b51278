//! Tunnels: a port on 127.0.0.1 for each pair of a cluster and a key, for as long as a command
//! runs.
//!
//! A tunnel ends the command's TLS with certificates made for this run, speaks TLS to the API
//! server with the token's key, and copies bytes. It works below HTTP: the protocols that the
//! command offers (ALPN) are offered to the server, and the server's choice is the command's. So
//! watch, logs, exec, port-forward, WebSocket, SPDY and HTTP/2 pass with no code for any of them.
//!
//! Nobody but the command gets in, and nobody else makes us dial or sign. `local` has the reasons.

#![forbid(unsafe_code)]

mod local;
mod proxy;
mod relay;
mod resumption;
mod signing_key;
mod trust;
mod upstream;
mod whoami;
mod wire;

pub use whoami::{Recognition, whoami};

use std::sync::Arc;
use std::thread;

use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;

use self::local::{Credentials, Listener};
use self::upstream::Upstream;
use crate::error::{Error, RunError};
use crate::keyring::{KeyNumber, Keyring};
use crate::kubeconfig::{Cluster, Detour};
use crate::process::signals;

/// Handshakes at once; each waits in a thread for its signature.
const HANDSHAKES: usize = 8;

/// A cluster, and the key to show there.
pub struct Destination {
    /// The cluster's name in the kubeconfig.
    pub name: String,
    pub cluster: Cluster,
    pub key: KeyNumber,
}

/// Told what happens, from any thread.
pub trait Observer: Send + Sync {
    /// A connection was made, or one was refused: a line for whoever wants to know.
    fn connection(&self, line: &str);

    /// A connection failed: the explanation.
    fn trouble(&self, error: &Error);

    /// Works, but should not stay as it is.
    fn concern(&self, text: &str);
}

/// The tunnels of a run; they end when this is dropped.
pub struct Tunnels {
    credentials: Credentials,
    addresses: Vec<String>,
    /// Dropped, it ends the thread.
    _end: oneshot::Sender<()>,
}

impl Tunnels {
    /// Listens for each destination; nothing is dialled and no key opened before a connection
    /// comes.
    pub fn open(
        destinations: Vec<Destination>,
        keyring: &Arc<Keyring>,
        observer: &Arc<dyn Observer>,
    ) -> Result<Self, RunError> {
        let credentials = Credentials::new()?;
        let runtime = Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(HANDSHAKES)
            .build()
            .map_err(|error| preparation(&error))?;
        let mut addresses = Vec::with_capacity(destinations.len());
        let mut listeners = Vec::with_capacity(destinations.len());
        for destination in destinations {
            let socket = local::bind(&destination.cluster.server)?;
            let listening = |error: std::io::Error| RunError::Listener {
                reason: error.to_string(),
            };
            addresses.push(socket.local_addr().map_err(listening)?.to_string());
            let _in_runtime = runtime.enter();
            let socket = TcpListener::from_std(socket).map_err(listening)?;
            let upstream = Upstream::new(destination, Arc::clone(keyring), Arc::clone(observer));
            listeners.push(Listener::new(socket, upstream, &credentials));
        }
        let end = start(runtime, listeners)?;
        Ok(Self {
            credentials,
            addresses,
            _end: end,
        })
    }

    /// What a kubeconfig has to say for each destination, in their order.
    pub fn detours(&self) -> impl Iterator<Item = Detour<'_>> {
        self.addresses
            .iter()
            .map(|address| self.credentials.detour(address))
    }
}

/// Serves the listeners in a thread of their own.
fn start(runtime: Runtime, listeners: Vec<Listener>) -> Result<oneshot::Sender<()>, RunError> {
    let (end, ended) = oneshot::channel();
    thread::Builder::new()
        .name("tunnel".to_owned())
        .spawn(move || {
            // A shell that is the command puts us into the background.
            signals::write_in_background();
            for listener in listeners {
                runtime.spawn(listener.serve());
            }
            let _ = runtime.block_on(ended);
            // Not waiting for handshakes that wait for a token.
            runtime.shutdown_background();
        })
        .map_err(|error| preparation(&error))?;
    Ok(end)
}

fn preparation(error: &dyn std::fmt::Display) -> RunError {
    RunError::Preparation {
        reason: error.to_string(),
    }
}
