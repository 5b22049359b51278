//! What the tunnel process and its clients say to each other: a line of JSON for each message.
//!
//! The process says that it is there, and the client sends a [`Greeting`] with its request. The process may ask it
//! questions, and ends with a reply.

use std::collections::BTreeSet;
use std::io;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::SocketAddr;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use http::Uri;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::VERSION;
use super::environment::Environment;
use super::repeated::{RepeatableCall, Repetition};
use config::pin::{PinOrigin, PinRequest};
use config::{Config, Keep, TokenName};
use kubeconfig::{Cluster, LocalCluster, NamedCluster, local_address, tunnelled, write_command};
use messages::error::{Error, Exit};
use messages::help::Help;
use messages::printable::excerpt;
use system::memory::wipe_stack;
use system::process::WatchedProcess;
use tunnel::{ClientCertificate, ServerIdentity, Trouble, effective_proxy};

/// The longest message, in bytes: many times what a chain of certificates, a cluster's authorities and an environment take.
const LONGEST: u64 = 16 << 20;

/// A client's first message. `R` is the request, or its text: a request of another version may be anything.
#[derive(Deserialize, Serialize)]
pub struct Greeting<R = ControlRequest> {
    /// The version of the client's program. A process serves only clients of its own version.
    pub(super) version: String,
    /// The client's own process number, as it knows it.
    pub(super) process: i32,
    pub(super) request: R,
}

impl Greeting {
    /// The greeting of this process, with this request.
    pub(super) fn new(request: ControlRequest) -> Self {
        let process = i32::try_from(std::process::id()).unwrap_or_default();
        Self { version: VERSION.to_owned(), process, request }
    }
}

#[derive(Deserialize, Serialize)]
pub enum ControlRequest {
    Register(Box<Registration>),
    Repeat(Repetition),
    Status,
    Stop,
}

/// What a client wants to have served, and for how long.
#[derive(Clone, Default, Deserialize, Serialize)]
pub struct Registration {
    /// The configuration of the key, without a PIN.
    pub configuration: Vec<(String, String)>,
    pub keep: Keep,
    /// The process number of the program that waits for the credential.
    pub caller: Option<i32>,
    /// The kubeconfig that names the key, as in KUBECONFIG, for messages; empty if that is not known.
    pub kubeconfig: String,
    pub clusters: Vec<RegisteredCluster>,
    /// The authority, in PEM, that the client's kubeconfig trusts at the local addresses.
    pub authority: Option<String>,
    /// Whether the client will send a [`Scheme`](crypto::scheme::Scheme) and a digest to be signed.
    pub signs: bool,
    /// What is kept of the client's environment, for the library.
    pub environment: Environment,
    /// Where the client has PINs from.
    pub pin_origin: PinOrigin,
    /// The plugin's call, if nothing in files but the key's configuration decides what it asks for.
    pub call: Option<RepeatableCall>,
}

/// The configuration of a key from what a client has sent.
pub(super) fn config_of(pairs: &[(String, String)]) -> Result<Config, Error> {
    let pairs = pairs.iter().map(|(key, value)| (key.as_str(), value.as_str()));
    Config::from_map(&mut pairs.collect())
}

#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct RegisteredCluster {
    pub address: SocketAddr,
    /// The cluster's name, for messages.
    pub name: String,
    /// What the cluster's entry says. As long as the process runs, an address leads to one cluster.
    pub cluster: Cluster,
    /// The proxy of the entry, or else of the client's environment. All clients of the address use the proxy that the first
    /// one has registered.
    pub proxy_url: Option<String>,
}

impl RegisteredCluster {
    /// The cluster to which an entry for the tunnel leads. An error if the entry was made for another user or machine.
    pub fn of(local: &LocalCluster, identity: &ServerIdentity) -> Result<Self, Error> {
        let entry = &local.cluster;
        let server = excerpt(&entry.server);
        let NamedCluster { name, cluster } = tunnelled(&local.extension)?;
        let uri = Uri::try_from(entry.server.as_str()).ok();
        let uri = uri.filter(|uri| uri.scheme_str() == Some("https"));
        let address = uri.and_then(|uri| uri.authority()?.as_str().parse().ok());
        // Only the tunnel's own address counts: at another one, another user may listen.
        let address = address.filter(|address: &SocketAddr| address.ip() == local_address());
        let address = address.ok_or_else(|| {
            foreign_entry(format!(
                "the cluster's server {server} is no address of this user's tunnel"
            ))
        })?;
        let is_own = entry.authority.as_deref() == Some(identity.authority_pem().as_bytes());
        // An entry without a name is fine: its clients verify the address.
        let server_name = entry.tls_server_name.as_deref();
        if !is_own || server_name.is_some_and(|name| name != identity.server_name()) {
            return Err(foreign_entry(format!(
                "the cluster's entry for {server} was written on another machine or for another user"
            )));
        }
        Ok(Self { address, name, proxy_url: effective_proxy(&cluster), cluster })
    }
}

/// The error for entries of a kubeconfig that are of no use for this user on this machine.
pub(super) fn foreign_entry(what: impl Into<String>) -> Error {
    let help = Help::from("have the context's entries written for this user on this machine: ")
        .and(write_command())
        .and("; a client's own options for the server, such as --server, don't go with them");
    Error::new(Exit::Configuration, what).help(help)
}

/// What a client gets when its key is open and its clusters are served.
#[derive(Deserialize, Serialize)]
pub struct Registered {
    /// The certificate for the client's local connections, if there are clusters.
    pub client: Option<ClientCertificate>,
    /// The certificate of the key in the token, in DER.
    pub token_certificate: Vec<u8>,
    /// Whether this registration has opened the key.
    pub is_new: bool,
    /// What should not stay as it is, if this registration has opened the key.
    pub warnings: Vec<String>,
}

/// A message from the process. Its questions are calls of the client's [`PinProvider`](config::pin::PinProvider).
#[derive(Deserialize, Serialize)]
pub(super) enum Reply<'a> {
    /// The answer to a call that is repeated; `None` if it has to be made in full.
    Answered(Option<String>),
    /// The reader itself asks for the PIN now.
    AtReader(String),
    ConfirmAtReader(PinRequest<'a>),
    Failed(Error),
    /// The process can't serve the client, since it is another version of this program or is ending. The client may start a
    /// new one.
    Gone,
    /// The first message: the process runs and listens. The next one may take as long as a person takes.
    Here,
    Pin(PinRequest<'a>),
    Registered(Registered),
    Status(StatusDocument),
    /// Another process, with this number if it is known, has had the library for a while.
    Waiting(Option<u32>),
}

/// What `status --json` prints; `null` there if no process runs.
#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StatusDocument {
    pub api_version: String,
    pub pid: u32,
    pub version: String,
    /// The open keys. No two have the same `process` and, apart from the PIN's source, the same `configuration`.
    pub keys: Vec<KeyStatus>,
    pub clusters: Vec<ClusterStatus>,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct KeyStatus {
    /// The subject of the key's certificate.
    pub subject: String,
    pub token: TokenName,
    /// The process number of its token process.
    pub process: u32,
    /// The configuration that selects the key.
    pub configuration: Vec<(String, String)>,
    /// Whether admitted clients can have any digest signed, and not only connect to clusters.
    pub signs_digests: bool,
    pub connections: usize,
    /// The kubeconfigs that name the key, each as in KUBECONFIG.
    pub kubeconfigs: BTreeSet<String>,
    /// The programs that were given a credential for the key and still run.
    pub callers: Vec<ProcessStatus>,
    /// The shells for which the key is kept open.
    pub shells: Vec<ProcessStatus>,
    /// Until when the key stays open, in words.
    pub until: String,
}

/// A process that has not ended.
#[derive(Deserialize, Serialize)]
pub struct ProcessStatus {
    pub pid: i32,
    pub name: String,
}

impl ProcessStatus {
    /// The status of a process; `None` if it has ended.
    pub(super) fn of(process: &WatchedProcess) -> Option<Self> {
        let status = Self { pid: process.number(), name: process.name().to_owned() };
        Some(status).filter(|_| !process.has_ended())
    }
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterStatus {
    pub name: String,
    pub server: String,
    pub address: SocketAddr,
    /// Why a connection to the cluster has failed last, if one has.
    pub last_trouble: Option<Trouble>,
}

pub struct Conversation(BufReader<UnixStream>);

impl Conversation {
    pub(super) fn new(stream: UnixStream) -> Self {
        Self(BufReader::new(stream))
    }

    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.get_ref().as_fd()
    }

    /// From now on the other end may be silent for this long.
    pub(super) fn be_patient(&self, patience: Duration) -> io::Result<()> {
        let stream = self.0.get_ref();
        stream.set_read_timeout(Some(patience))?;
        stream.set_write_timeout(Some(patience))
    }

    pub(super) fn send(&mut self, message: &impl Serialize) -> io::Result<()> {
        let mut line = serde_json::to_vec(message)?;
        line.push(b'\n');
        self.0.get_mut().write_all(&line)
    }

    /// Receives the next message. Something that can't be read as one is an error.
    pub(super) fn receive<T: DeserializeOwned>(&mut self) -> io::Result<T> {
        let mut line = Vec::new();
        let mut limited = self.0.by_ref().take(LONGEST);
        limited.read_until(b'\n', &mut line)?;
        if line.pop() != Some(b'\n') {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let message = serde_json::from_slice(&line);
        // There may have been a PIN in it.
        wipe_stack();
        message.map_err(|_| io::Error::other("it is another version of this program"))
    }

    /// Waits until there is something to receive. An error if the other end of `other` is closed before that.
    pub(super) fn wait_while_open(&self, other: &Self) -> io::Result<()> {
        loop {
            let mut polled = [
                PollFd::new(self.0.get_ref(), PollFlags::IN),
                PollFd::new(other.0.get_ref(), PollFlags::empty()),
            ];
            match poll(&mut polled, None) {
                Ok(_) if !polled[0].revents().is_empty() => return Ok(()),
                Ok(_) => return Err(io::ErrorKind::BrokenPipe.into()),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Waits until the other end has closed the connection.
    pub(super) fn wait_for_end(&mut self) {
        let _ = self.0.read(&mut [0]);
    }
}
