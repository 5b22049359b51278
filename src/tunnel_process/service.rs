//! The tunnel process itself: serves keys and clusters for as long as they are used.
//!
//! Each client has a thread; the main thread waits for clients, and closes what is used no longer. PKCS#11
//! libraries are in other processes.

use std::collections::BTreeMap;
use std::io;
use std::mem;
use std::net::SocketAddr;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::thread;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::chdir;
use serde_json::value::RawValue;

use super::VERSION;
use super::environment::Environment;
use super::identity::identity;
use super::lifetime::{ServedKey, WaitingClient};
use super::message::{
    ClusterStatus, ControlRequest, Conversation, Greeting, Registered, RegisteredCluster,
    Registration, Reply, StatusDocument, config_of,
};
use super::token_process::{self, Task, TokenProcess};
use crate::background;
use crate::control_socket::ControlSocket;
use config::{Config, Keep};
use crypto::scheme::Scheme;
use crypto::verify::VerifiedSignature;
use files::lock::BUSY;
use keyring::{KeyNumber, OpenKey, OpenKeys};
use kubeconfig::{Cluster, write_command};
use messages::error::{DOCUMENT_VERSION, Error, Exit, PROGRAM};
use messages::help::Help;
use system::clock::time_since_boot;
use system::limits;
use system::peer::{Peer, peer};
use system::process::{WatchedProcess, is_caller};
use system::{locked, shortage};
use token::kind;
use tunnel::{
    ClientCertificate, KeyUsage, PAUSE_AFTER_FAILURE, TunnelObserver, TunnelTarget, Tunnels,
    tunnel_error,
};

/// How often it looks at what has ended: programs, connections, token processes, times.
const PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };
/// Clients that are served at once. A connection beyond them is closed.
const CLIENTS: usize = 512;

/// Runs the tunnel process, whose standard input is the control socket; its exit code.
pub fn serve() -> u8 {
    background::leave_session();
    let _ = chdir("/");
    // Standard error leads nowhere; the client sees that it is not answered.
    let Ok(listener) = background::take_listener() else { return 2 };
    let socket = ControlSocket::find().ok();
    let service = Arc::new(Service { socket, state: Mutex::default() });
    service.run(&listener);
    service.end();
    drop(listener);
    0
}

/// A client that is counted until this is dropped, also by a thread that panics.
struct ServedClient(Arc<Service>);

impl Drop for ServedClient {
    fn drop(&mut self) {
        let mut state = locked(&self.0.state);
        state.clients -= 1;
        // Not only with the next client: one that asks for the status every moment would keep the process.
        state.tidy();
    }
}

/// Who registers, with what it wants.
#[derive(Clone, Copy)]
struct Client<'a> {
    conversation: &'a Conversation,
    peer: Peer,
    registration: &'a Registration,
    /// Of the key.
    config: &'a Config,
}

impl Client<'_> {
    /// What a token process is asked for. Unless the client `is_admitted`, it logs in itself.
    fn open_task(&self, is_admitted: bool) -> Task {
        Task::Open {
            key: self.config.selection(),
            signs: self.registration.signs,
            is_admitted,
            pin_origin: self.registration.pin_origin.clone(),
        }
    }
}

/// A key, and the token process that has its library.
struct KeyInProcess {
    number: KeyNumber,
    process: Arc<TokenProcess>,
    /// The process was started for this key now.
    is_new_process: bool,
}

/// A key that is being opened for a client.
struct Opening {
    token: KeyInProcess,
    asked: Asked,
    waiting: WaitingClient,
    /// For the client's local connections, if clusters are served.
    certificate: Option<Result<ClientCertificate, Error>>,
}

/// Whether a token process was asked for a key.
enum Asked {
    /// It was: the conversation in which it answers, if it could be reached.
    Sent(io::Result<Conversation>),
    /// It was not, since one of the client's clusters can't be served.
    NotServed(Error),
}

/// A key that is open for a client, and the answer to it.
struct RegisteredKey {
    number: KeyNumber,
    answer: Registered,
}

struct Service {
    socket: Option<ControlSocket>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Made for the first cluster.
    tunnels: Option<Tunnels>,
    authority: Option<String>,
    clusters: BTreeMap<SocketAddr, RegisteredCluster>,
    keys: BTreeMap<KeyNumber, ServedKey>,
    clients: usize,
    is_stopping: bool,
}

impl Service {
    /// Serves clients until there is nothing left to be kept. The first one has connected already.
    fn run(self: &Arc<Self>, listener: &UnixListener) {
        let Ok(termination) = background::on_termination() else { return };
        loop {
            let mut polled =
                [PollFd::new(listener, PollFlags::IN), PollFd::new(&termination, PollFlags::IN)];
            let _ = poll(&mut polled, Some(&PAUSE));
            let [has_client, is_ended] = polled.map(|polled| !polled.revents().is_empty());
            if is_ended {
                return;
            }
            if has_client {
                match listener.accept() {
                    Ok((stream, _)) => self.take_client(stream),
                    // There are no descriptors left: it will be ready again at once.
                    Err(_) => thread::sleep(PAUSE_AFTER_FAILURE),
                }
            }
            let mut state = locked(&self.state);
            state.tidy();
            if state.is_stopping {
                return;
            }
        }
    }

    fn take_client(self: &Arc<Self>, stream: UnixStream) {
        {
            let mut state = locked(&self.state);
            if state.clients >= CLIENTS {
                return;
            }
            state.clients += 1;
        }
        let client = ServedClient(Arc::clone(self));
        let thread = thread::Builder::new().name("client".to_owned());
        // Without a thread it is dropped, too.
        let _ = thread.spawn(move || drop(client.0.converse(stream)));
    }

    fn converse(self: &Arc<Self>, stream: UnixStream) -> io::Result<()> {
        let peer = peer(&stream)?;
        if !peer.is_this_user() {
            return Ok(());
        }
        let mut conversation = Conversation::new(stream);
        conversation.be_patient(limits::CLIENT_REQUEST)?;
        conversation.send(&Reply::Here)?;
        let Greeting { version, process, request } =
            conversation.receive::<Greeting<Box<RawValue>>>()?;
        let request = match serde_json::from_str(request.get()) {
            Ok(request) => request,
            // What another version wants is for a process of its own.
            Err(_) if version != VERSION => ControlRequest::Stop,
            Err(error) => return Err(error.into()),
        };
        match request {
            ControlRequest::Status => conversation.send(&Reply::Status(self.status())),
            ControlRequest::Register(registration)
                if version == VERSION && locked(&self.state).can_serve(&registration) =>
            {
                self.register(conversation, peer, process, registration)
            }
            ControlRequest::Register(_) | ControlRequest::Stop => self.stop(conversation),
        }
    }

    /// Ends this process; the client may start one that can serve it.
    fn stop(&self, mut conversation: Conversation) -> io::Result<()> {
        locked(&self.state).is_stopping = true;
        conversation.send(&Reply::Gone)?;
        // The client waits for the end of this process.
        conversation.wait_for_end();
        Ok(())
    }

    fn register(
        self: &Arc<Self>,
        mut conversation: Conversation,
        peer: Peer,
        process: i32,
        registration: Registration,
    ) -> io::Result<()> {
        let registered = self.registered(&conversation, peer, process, &registration);
        let RegisteredKey { number, answer } = match registered {
            Ok(registered) => registered,
            Err(error) => return conversation.send(&Reply::Failed(error)),
        };
        conversation.send(&Reply::Registered(answer))?;
        if registration.signs {
            let (scheme, digest): (Scheme, Vec<u8>) = conversation.receive()?;
            let signature = self.sign(number, scheme, digest);
            conversation.send(&signature.map(VerifiedSignature::into_bytes))?;
        }
        Ok(())
    }

    fn registered(
        self: &Arc<Self>,
        conversation: &Conversation,
        peer: Peer,
        process: i32,
        registration: &Registration,
    ) -> Result<RegisteredKey, Error> {
        let config = &config_of(&registration.configuration)?;
        if peer.process != process {
            return Err(caller_error("it is in another container"));
        }
        let caller = registration.caller.map(|number| caller_of(peer, number)).transpose()?;
        let client = Client { conversation, peer, registration, config };
        let Opening { token, asked, waiting, certificate } = self.begin_open(&client)?;
        let number = token.number;
        let opened = match asked {
            Asked::Sent(sent) => self.opened(&token, sent, &client),
            Asked::NotServed(error) => Err(error),
        };
        let answer = self.finish_open(number, opened, waiting, certificate, caller, &client)?;
        Ok(RegisteredKey { number, answer })
    }

    /// Has a token process open the key for the client, and serves its clusters. The client counts as one that waits for the
    /// key until [`Service::finish_open`], also if one of the clusters can't be served.
    fn begin_open(self: &Arc<Self>, client: &Client<'_>) -> Result<Opening, Error> {
        let Client { registration, config, conversation, .. } = *client;
        let mut state = locked(&self.state);
        // Its process starts while the tunnels and the client's certificate are made.
        let token = state.key(&registration.configuration, config, &registration.environment)?;
        let number = token.number;
        let mut clusters = registration.clusters.iter();
        let served = clusters.try_for_each(|cluster| self.listen(&mut state, cluster));
        let (key, usage) = state.used_key(number)?;
        let is_admitted = key.admits_clients(usage);
        key.signs_digests &= is_admitted;
        let waiting = key.waiting.add();
        let tunnels = state.tunnels.as_ref();
        if let Some(tunnels) = tunnels
            && !is_admitted
        {
            tunnels.forget_sessions(number);
        }
        let certificate = tunnels.map(|tunnels| tunnels.clients.certificate(number));
        // Before another one registers: who isn't admitted dismisses those before, and not those after.
        let task = client.open_task(is_admitted);
        let asked = match served {
            Ok(()) => Asked::Sent(token.process.send(number, &task, Some(conversation))),
            Err(error) => Asked::NotServed(error),
        };
        Ok(Opening { token, asked, waiting, certificate })
    }

    /// The key that the token process has been asked to open; where it finds none, as a new process of the library does.
    fn opened(
        &self,
        token: &KeyInProcess,
        asked: io::Result<Conversation>,
        client: &Client<'_>,
    ) -> Result<OpenKey, Error> {
        let Client { registration, config, conversation, .. } = *client;
        let number = token.number;
        let opened = token.process.opened(asked, conversation);
        if token.is_new_process || !opened.as_ref().is_err_and(may_be_there_by_now) {
            return opened;
        }
        // Libraries that have run for a while don't know what was put in or written since.
        let process = new_process(config, registration.environment.clone())?;
        let asked = process.send(number, &client.open_task(false), Some(conversation));
        let opened = process.opened(asked, conversation);
        let mut state = locked(&self.state);
        let (key, _) = state.used_key(number)?;
        // The one before goes on where the new one is no better: it has the PIN for when the token is back.
        if opened.is_ok() || key.open.is_none() {
            key.signs_digests = false;
            key.process = Some(process);
        }
        opened
    }

    /// Keeps the key that was opened for as long as the client wants it, or closes it if it couldn't be opened and nobody
    /// else has it or waits for it; the answer to the client.
    fn finish_open(
        &self,
        number: KeyNumber,
        opened: Result<OpenKey, Error>,
        waiting: WaitingClient,
        certificate: Option<Result<ClientCertificate, Error>>,
        caller: Option<WatchedProcess>,
        client: &Client<'_>,
    ) -> Result<Registered, Error> {
        let Client { registration: Registration { keep, kubeconfig, signs, .. }, peer, .. } =
            *client;
        let mut state = locked(&self.state);
        let (key, usage) = state.used_key(number)?;
        drop(waiting);
        if opened.is_err() && key.waiting.is_empty() && key.open.is_none() {
            key.close(number);
        }
        let opened = opened?;
        let is_new = key.open.is_none();
        let warnings = opened.take_warnings();
        let token_certificate = opened.chain.first().cloned().unwrap_or_default();
        key.open = Some(Arc::new(opened));
        key.signs_digests |= signs;
        key.last_use = time_since_boot();
        if let (Some(caller), Keep::Command | Keep::Terminal) = (caller, keep) {
            let awaits_client = caller.number() != peer.process;
            key.add_caller(caller, kubeconfig, usage, awaits_client);
        }
        key.keep(*keep, peer.process, kubeconfig);
        let certificate = certificate.transpose()?;
        Ok(Registered { client: certificate, token_certificate, is_new, warnings })
    }

    /// Serves the cluster at its address, unless it is served there already.
    fn listen(
        self: &Arc<Self>,
        state: &mut State,
        cluster: &RegisteredCluster,
    ) -> Result<(), Error> {
        if let Some(served) = state.clusters.get(&cluster.address) {
            if served.cluster == cluster.cluster {
                return Ok(());
            }
            // Never exchanged: a client that runs would get to the other one.
            return Err(tunnel_error(
                format!(
                    "{} leads to cluster \"{}\" ({}) already, whose server, CA, tls-server-name or proxy-url is another \
                     than that of \"{}\"",
                    cluster.address, served.name, served.cluster.server, cluster.name
                ),
                Help::from("give one of them another address: ")
                    .and(write_command())
                    .and(format!("; or end what is served with `{PROGRAM} stop`")),
            ));
        }
        let tunnels = match &mut state.tunnels {
            Some(tunnels) => tunnels,
            None => {
                let identity = identity()?;
                state.authority = Some(identity.authority_pem().to_owned());
                let observer: Arc<dyn TunnelObserver> = Arc::clone(self) as _;
                state.tunnels.insert(Tunnels::start(&identity, Arc::clone(self) as _, &observer)?)
            }
        };
        let target = TunnelTarget {
            name: cluster.name.clone(),
            cluster: Cluster { proxy_url: cluster.proxy_url.clone(), ..cluster.cluster.clone() },
        };
        tunnels.listen(target, Some(cluster.address))?;
        state.clusters.insert(cluster.address, cluster.clone());
        Ok(())
    }

    fn status(&self) -> StatusDocument {
        let state = locked(&self.state);
        let tunnels = state.tunnels.as_ref();
        let keys = state.keys.iter().filter(|(_, key)| !key.is_lost());
        let open = keys.filter_map(|(number, key)| key.status(usage(tunnels, *number)));
        let clusters = state.clusters.values().map(|served| ClusterStatus {
            name: served.name.clone(),
            server: served.cluster.server.clone(),
            address: served.address,
            last_trouble: tunnels.and_then(|tunnels| tunnels.last_trouble(served.address)),
        });
        StatusDocument {
            api_version: DOCUMENT_VERSION.to_owned(),
            pid: std::process::id(),
            version: VERSION.to_owned(),
            keys: open.collect(),
            clusters: clusters.collect(),
        }
    }

    /// Frees the addresses, then the socket's name: the next process finds both free.
    fn end(&self) {
        let mut state = locked(&self.state);
        let tunnels = state.tunnels.take();
        let keys = mem::take(&mut state.keys);
        drop(state);
        drop(tunnels);
        drop(keys);
        if let Some(socket) = &self.socket {
            socket.remove();
        }
    }
}

/// Its clients are told what becomes of a connection.
impl TunnelObserver for Service {}

impl OpenKeys for Service {
    fn open_in_time(&self, number: KeyNumber) -> Result<Arc<OpenKey>, Error> {
        let (process, _) = locked(&self.state).open_key(number)?;
        let opened = process.open_in_time(number)?;
        // Its certificate may have been renewed.
        if let Some(key) = locked(&self.state).keys.get_mut(&number)
            && key.open.is_some()
        {
            key.open = Some(Arc::clone(&opened));
        }
        Ok(opened)
    }

    fn sign(
        &self,
        number: KeyNumber,
        scheme: Scheme,
        digest: Vec<u8>,
    ) -> Result<VerifiedSignature, Error> {
        let (process, open) = locked(&self.state).open_key(number)?;
        process.sign(number, &open, scheme, digest)
    }
}

impl State {
    fn open_key(&self, number: KeyNumber) -> Result<(Arc<TokenProcess>, Arc<OpenKey>), Error> {
        let key = self.keys.get(&number);
        let open = key.and_then(|key| key.process.clone().zip(key.open.clone()));
        open.ok_or_else(|| Error::internal("the key was closed"))
    }

    /// Whether this process can serve the client, or has to make way for another one.
    fn can_serve(&self, registration: &Registration) -> bool {
        let authorities = self.authority.as_ref().zip(registration.authority.as_ref());
        !self.is_stopping && authorities.is_none_or(|(served, wanted)| served == wanted)
    }

    /// Closes the keys that are kept no longer. Without a key and a client, the process is to end.
    fn tidy(&mut self) {
        let Self { keys, tunnels, .. } = self;
        for (number, key) in keys.iter_mut().filter(|(_, key)| key.open.is_some()) {
            if !key.is_kept(usage(tunnels.as_ref(), *number)) {
                if let Some(tunnels) = tunnels {
                    tunnels.withdraw(*number);
                }
                key.close(*number);
            }
        }
        let holds_keys = keys.values().any(|key| key.open.is_some() || !key.waiting.is_empty());
        self.is_stopping |= self.clients == 0 && !holds_keys;
    }

    /// The key with this configuration, in a token process that runs or is started for it.
    fn key(
        &mut self,
        configuration: &[(String, String)],
        config: &Config,
        environment: &Environment,
    ) -> Result<KeyInProcess, Error> {
        let name = token_process::name(config, environment);
        // Wherever its PIN comes from.
        let selects = |(key, _): &&(String, String)| key != "pinSource";
        let is_same = |key: &ServedKey| {
            let known = key.configuration.iter().filter(selects);
            key.name == name && known.eq(configuration.iter().filter(selects))
        };
        let known = self.keys.iter().find(|(_, key)| is_same(key)).map(|(number, _)| *number);
        let number = known.unwrap_or(KeyNumber { library: 0, key: self.keys.len() });
        // Its own process first.
        let own = self.keys.get(&number).into_iter();
        let running = own
            .chain(self.keys.values())
            .filter_map(|key| key.process.as_ref())
            .find(|process| process.name == name && !process.has_ended())
            .cloned();
        let key = self.keys.entry(number).or_insert_with(|| ServedKey {
            configuration: configuration.to_vec(),
            name,
            last_use: time_since_boot(),
            ..ServedKey::default()
        });
        if key.is_lost() {
            key.open = None;
        }
        if let Some(process) = running {
            key.process = Some(Arc::clone(&process));
            return Ok(KeyInProcess { number, process, is_new_process: false });
        }
        let process = self.start(number, config, environment.clone())?;
        Ok(KeyInProcess { number, process, is_new_process: true })
    }

    /// A new token process for the key; others of its library stay for their keys.
    fn start(
        &mut self,
        number: KeyNumber,
        config: &Config,
        environment: Environment,
    ) -> Result<Arc<TokenProcess>, Error> {
        let process = new_process(config, environment)?;
        let (key, _) = self.used_key(number)?;
        key.process = Some(Arc::clone(&process));
        Ok(process)
    }

    /// The key, and how its certificate is used.
    fn used_key(&mut self, number: KeyNumber) -> Result<(&mut ServedKey, KeyUsage), Error> {
        let usage = usage(self.tunnels.as_ref(), number);
        let key = self.keys.get_mut(&number);
        let key = key.ok_or_else(|| Error::internal("a key is served no longer"))?;
        Ok((key, usage))
    }
}

/// A new token process of the library, which serves no key yet.
fn new_process(config: &Config, environment: Environment) -> Result<Arc<TokenProcess>, Error> {
    let name = token_process::name(config, &environment);
    let started = TokenProcess::start(name, config, Stdio::null(), environment);
    Ok(Arc::new(started.map_err(shortage)?))
}

/// Whether a library that is initialised now may find what was missing or lost. One that has a PIN beside it isn't
/// initialised again.
fn may_be_there_by_now(error: &Error) -> bool {
    let is_missing = error.exits_with(Exit::Token) || error.exits_with(Exit::Object);
    is_missing && !error.is(&BUSY) || error.is(&kind::CALL_FAILED)
}

/// The process that the plugin names as its client.
fn caller_of(plugin: Peer, number: i32) -> Result<WatchedProcess, Error> {
    let process =
        WatchedProcess::new(number).map_err(|reason| caller_error(&reason.to_string()))?;
    if number == plugin.process || is_caller(number, plugin.process) {
        Ok(process)
    } else {
        Err(caller_error("it doesn't run the plugin"))
    }
}

/// The program that ran the plugin has ended meanwhile, belongs to another user, or runs in another container.
pub fn caller_error(reason: &str) -> Error {
    tunnel_error(
        format!("the program that asked for the credential can't be watched: {reason}"),
        "run the command again, outside of the container if it is in one",
    )
}

fn usage(tunnels: Option<&Tunnels>, key: KeyNumber) -> KeyUsage {
    tunnels.map_or_else(KeyUsage::default, |tunnels| tunnels.clients.usage(key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_whose_thread_panics_is_no_longer_counted() {
        let service = Arc::new(Service { socket: None, state: Mutex::default() });
        locked(&service.state).clients = 1;
        let client = ServedClient(Arc::clone(&service));
        let thread = thread::spawn(move || {
            let _client = client;
            std::panic::resume_unwind(Box::new(()));
        });
        assert!(thread.join().is_err());
        assert_eq!(locked(&service.state).clients, 0);
    }
}
