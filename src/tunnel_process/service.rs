//! The tunnel process itself: serves keys and clusters for as long as they are used.
//!
//! Each client has a thread; the main thread waits for clients, for the ends of the programs that use a
//! key, and for times. Only the threads of the keyring call a PKCS#11 library.

use std::collections::BTreeMap;
use std::io;
use std::io::Write as _;
use std::net::SocketAddr;
use std::os::fd::AsFd as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::VERSION;
use super::identity::identity;
use super::lifetime::ServedKey;
use super::message::{
    CallerStatus, ClusterStatus, ControlRequest, Conversation, Greeting, KeyStatus, Registered,
    RegisteredCluster, Registration, Reply, StatusDocument,
};
use super::pins::ClientPins;
use base::error::Error;
use base::process::control_socket::{ControlSocket, FileIdentity, Peer, peer};
use base::process::environment::TakenVariables;
use base::process::watched::{WatchedProcess, is_caller};
use base::process::{background, locked, time_since_boot};
use config::{Config, Keep, TrustedLibrary};
use crypto::scheme::Scheme;
use crypto::verify::VerifiedSignature;
use keyring::{KeyClient, KeyNumber, Keyring};
use kubeconfig::{Cluster, write_command};
use tunnel::{KeyUsage, PAUSE_AFTER_FAILURE, TunnelObserver, TunnelTarget, Tunnels, tunnel_error};

/// How long a process that serves nothing waits for a client.
const FIRST_CLIENT: Duration = Duration::from_secs(10);
/// How long a client may take to say what it wants, and a person to answer one of its questions.
const PATIENCE: Duration = Duration::from_secs(90);
/// Then it looks at the time again: poll's own stands still while the machine sleeps.
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// Clients that are served at once. A connection beyond them is closed.
const CLIENTS: usize = 512;

/// Runs the tunnel process, whose standard input is the control socket; its exit code.
pub fn serve() -> u8 {
    background::leave_session();
    // Standard error leads nowhere; the client sees that it is not answered.
    let Ok(listener) = background::take_listener() else {
        return 2;
    };
    let Ok((service, woken)) = Service::new() else {
        return 9;
    };
    let service = Arc::new(service);
    service.run(&listener, &woken);
    service.end();
    drop(listener);
    service.keyring.finish(0);
    0
}

struct Service {
    keyring: Arc<Keyring>,
    socket: Option<(ControlSocket, FileIdentity)>,
    state: Mutex<State>,
    waker: Arc<Waker>,
}

#[derive(Default)]
struct State {
    /// Made for the first cluster.
    tunnels: Option<Tunnels>,
    authority: Option<String>,
    clusters: BTreeMap<SocketAddr, RegisteredCluster>,
    keys: BTreeMap<KeyNumber, ServedKey>,
    clients: usize,
    has_served: bool,
    is_stopping: bool,
}

/// Whether both are the same key, wherever its PIN comes from.
fn is_same_key(one: &[(String, String)], other: &[(String, String)]) -> bool {
    let counts = |(key, _): &&(String, String)| key != "pinSource";
    one.iter().filter(counts).eq(other.iter().filter(counts))
}

/// Has the main thread look when a key is used no longer. Its client is told what becomes of a connection.
struct Waker(UnixStream);

impl Waker {
    fn wake(&self) {
        let _ = (&self.0).write(&[0]);
    }
}

impl TunnelObserver for Waker {
    fn idle(&self) {
        self.wake();
    }
}

impl Service {
    fn new() -> io::Result<(Self, UnixStream)> {
        let (woken, wake) = UnixStream::pair()?;
        wake.set_nonblocking(true)?;
        let waker = Arc::new(Waker(wake));
        let keyring = Keyring::default();
        keyring.leave_terminal();
        let socket = ControlSocket::find().ok();
        let socket = socket.and_then(|socket| {
            let identity = socket.identity().ok()?;
            Some((socket, identity))
        });
        Ok((Self { keyring: Arc::new(keyring), socket, state: Mutex::default(), waker }, woken))
    }

    /// Serves clients until there is nothing left to be kept.
    fn run(self: &Arc<Self>, listener: &UnixListener, woken: &UnixStream) {
        let Ok(termination) = background::on_termination() else {
            return;
        };
        let _ = woken.set_nonblocking(true);
        let start = time_since_boot();
        loop {
            let (watched, limit) = {
                let mut state = locked(&self.state);
                // Taken before the look at what has ended: an end in between is polled for.
                let watched = state.watched();
                let limit = state.tidy(&self.keyring);
                let is_idle = state.clients == 0 && !state.holds_keys();
                let waits = FIRST_CLIENT.saturating_sub(time_since_boot().saturating_sub(start));
                if state.is_stopping || is_idle && (state.has_served || waits.is_zero()) {
                    state.is_stopping = true;
                    return;
                }
                (watched, if state.has_served { limit } else { Some(waits) })
            };
            let fixed = [listener.as_fd(), termination.as_fd(), woken.as_fd()];
            let processes = watched.iter().map(|process| process.as_fd());
            let mut polled: Vec<_> = fixed
                .into_iter()
                .chain(processes)
                .map(|descriptor| PollFd::from_borrowed_fd(descriptor, PollFlags::IN))
                .collect();
            let limit = limit.and_then(|limit| Timespec::try_from(limit.min(LONGEST_WAIT)).ok());
            let _ = poll(&mut polled, limit.as_ref());
            let is_ready =
                |index: usize| polled.get(index).is_some_and(|it| !it.revents().is_empty());
            let (has_client, is_ended) = (is_ready(0), is_ready(1));
            drop(polled);
            let _ = io::Read::read(&mut &*woken, &mut [0; 64]);
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
        }
    }

    fn take_client(self: &Arc<Self>, stream: UnixStream) {
        {
            let mut state = locked(&self.state);
            if state.clients >= CLIENTS {
                return;
            }
            state.clients += 1;
            state.has_served = true;
        }
        let service = Arc::clone(self);
        let thread = thread::Builder::new().name("client".to_owned());
        let started = thread.spawn(move || {
            let _ = service.converse(stream);
            locked(&service.state).clients -= 1;
            service.waker.wake();
        });
        if started.is_err() {
            locked(&self.state).clients -= 1;
        }
    }

    fn converse(&self, stream: UnixStream) -> io::Result<()> {
        let peer = peer(&stream)?;
        if !peer.is_this_user() {
            return Ok(());
        }
        let mut conversation = Conversation::new(stream, PATIENCE)?;
        conversation.send(&Reply::Here)?;
        let Greeting { version, process, request } = conversation.receive()?;
        match request {
            ControlRequest::Status => conversation.send(&Reply::Status(self.status())),
            ControlRequest::Register(registration) if version == VERSION => {
                let pairs = registration.configuration.iter();
                let mut map = pairs.map(|(key, value)| (key.as_str(), value.as_str())).collect();
                let config = Config::from_map(&mut map);
                if !locked(&self.state).can_serve(&registration, config.as_ref().ok()) {
                    return self.stop(conversation);
                }
                let config = config.and_then(|config| match peer.process == process {
                    true => Ok(config),
                    false => Err(caller_error("it is in another container")),
                });
                self.register(conversation, peer, registration, config)
            }
            ControlRequest::Register(_) | ControlRequest::Stop => self.stop(conversation),
        }
    }

    /// Ends this process; the client may start one that can serve it.
    fn stop(&self, mut conversation: Conversation) -> io::Result<()> {
        locked(&self.state).is_stopping = true;
        self.waker.wake();
        conversation.send(&Reply::Gone)?;
        // The client waits for the end of this process.
        conversation.wait_for_end();
        Ok(())
    }

    fn register(
        &self,
        conversation: Conversation,
        peer: Peer,
        registration: Registration,
        config: Result<Config, Error>,
    ) -> io::Result<()> {
        let signs = registration.signs;
        let conversation = Arc::new(Mutex::new(conversation));
        let registered =
            config.and_then(|config| self.registered(&conversation, peer, registration, config));
        let mut conversation = locked(&conversation);
        let (number, registered) = match registered {
            Ok(registered) => registered,
            Err(error) => return conversation.send(&Reply::Failed(error)),
        };
        conversation.send(&Reply::Registered(registered))?;
        if signs {
            let (scheme, digest): (Scheme, Vec<u8>) = conversation.receive()?;
            let signature = self.keyring.sign(number, scheme, digest);
            conversation.send(&signature.map(VerifiedSignature::into_bytes))?;
        }
        Ok(())
    }

    fn registered(
        &self,
        conversation: &Arc<Mutex<Conversation>>,
        peer: Peer,
        registration: Registration,
        config: Config,
    ) -> Result<(KeyNumber, Registered), Error> {
        let Registration { configuration, keep, caller, clusters, signs, .. } = registration;
        let caller = caller.map(|number| caller_of(peer, number)).transpose()?;
        let number = {
            let mut state = locked(&self.state);
            if let Some(loaded) = state.library_beside(&config.library) {
                let (loaded, wanted) = (loaded.display(), config.library.path().display());
                return Err(tunnel_error(
                    format!(
                        "the tunnel process has {loaded} loaded, and loads {wanted} beside it only if nobody but root can \
                         change either"
                    ),
                    "end what is served with `pkcs11-external-signer stop` and run the command again; or give the \
                     library and the directories above it to root",
                ));
            }
            for cluster in clusters {
                self.listen(&mut state, cluster)?;
            }
            let number = state.key(configuration, config, &self.keyring)?;
            let (key, usage) = state.used_key(number)?;
            let is_admitted = key.admits_clients(usage);
            key.waiting += 1;
            if !is_admitted {
                self.keyring.dismiss_clients(number);
                if let Some(tunnels) = &state.tunnels {
                    tunnels.forget_sessions(number);
                }
            }
            number
        };
        let pins = Box::new(ClientPins(Arc::clone(conversation)));
        let client = ClientPins(Arc::clone(conversation));
        let notices = Box::new(move |holder| drop(client.send(&Reply::Waiting(holder))));
        let opened = self.keyring.open(number, Some(KeyClient { pins, signs }), notices);
        let mut state = locked(&self.state);
        let client = state.tunnels.as_ref().map(|tunnels| tunnels.certificate(number));
        let (key, usage) = state.used_key(number)?;
        key.waiting -= 1;
        if opened.is_err() && key.waiting == 0 && key.open.is_none() {
            // The library is finalised.
            self.keyring.close(number);
        }
        let opened = opened?;
        let is_new = key.open.is_none();
        let warnings = opened.take_warnings();
        let token_certificate = opened.chain.first().cloned().unwrap_or_default();
        key.open = Some(opened);
        key.last_use = time_since_boot();
        if let (Some(caller), Keep::Command | Keep::Terminal) = (caller, keep) {
            let awaits_client = caller.number() != peer.process;
            key.add_caller(caller, usage, awaits_client);
        }
        key.keep(keep, peer.process);
        let client = client.transpose()?;
        Ok((number, Registered { client, token_certificate, is_new, warnings }))
    }

    /// Serves the cluster at its address, unless it is served there already.
    fn listen(&self, state: &mut State, cluster: RegisteredCluster) -> Result<(), Error> {
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
                format!(
                    "give one of them another address: {}; or end what is served with `pkcs11-external-signer stop`",
                    write_command("NAME")
                ),
            ));
        }
        let tunnels = match &mut state.tunnels {
            Some(tunnels) => tunnels,
            None => {
                let identity = identity()?;
                state.authority = Some(identity.authority_pem().to_owned());
                let observer: Arc<dyn TunnelObserver> = Arc::clone(&self.waker) as _;
                state.tunnels.insert(Tunnels::start(&identity, &self.keyring, &observer)?)
            }
        };
        let proxy_url = cluster.proxy_url.clone();
        let target = Cluster { proxy_url, ..cluster.cluster.clone() };
        let target = TunnelTarget { name: cluster.name.clone(), cluster: target };
        tunnels.listen(target, Some(cluster.address))?;
        state.clusters.insert(cluster.address, cluster);
        Ok(())
    }

    fn status(&self) -> StatusDocument {
        let state = locked(&self.state);
        let open = state.keys.iter().filter_map(|(number, key)| {
            let callers = key.callers.iter().map(|caller| &caller.process);
            let callers = callers.filter(|process| !process.has_ended()).map(|process| {
                CallerStatus { pid: process.number(), name: process.name().to_owned() }
            });
            Some(KeyStatus {
                subject: key.open.as_ref()?.subject.clone(),
                configuration: key.configuration.clone(),
                connections: usage(state.tunnels.as_ref(), *number).open,
                callers: callers.collect(),
                until: key.until(),
            })
        });
        let clusters = state.clusters.values().map(|served| ClusterStatus {
            name: served.name.clone(),
            server: served.cluster.server.clone(),
            address: served.address,
        });
        StatusDocument {
            pid: std::process::id(),
            version: VERSION.to_owned(),
            keys: open.collect(),
            clusters: clusters.collect(),
        }
    }

    /// Frees the addresses, then the socket's name: the next process finds both free.
    fn end(&self) {
        let tunnels = locked(&self.state).tunnels.take();
        drop(tunnels);
        if let Some((socket, identity)) = &self.socket {
            socket.remove(*identity);
        }
    }
}

impl State {
    /// Whether this process can serve the client, or has to make way for another one.
    fn can_serve(&self, registration: &Registration, config: Option<&Config>) -> bool {
        let authorities = self.authority.as_ref().zip(registration.authority.as_ref());
        let is_alone = config.is_none_or(|config| self.library_beside(&config.library).is_none());
        !self.is_stopping
            && authorities.is_none_or(|(served, wanted)| served == wanted)
            && (is_alone || self.holds_keys())
    }

    /// Whether a key is open, or a client waits for one.
    fn holds_keys(&self) -> bool {
        self.keys.values().any(|it| it.open.is_some() || it.waiting > 0)
    }

    /// Closes the keys that are kept no longer; returns when to look again, if at a certain time.
    fn tidy(&mut self, keyring: &Keyring) -> Option<Duration> {
        let Self { keys, tunnels, .. } = self;
        let rests = keys.iter_mut().filter(|(_, key)| key.open.is_some()).map(|(number, key)| {
            let rest = key.rest(usage(tunnels.as_ref(), *number));
            if rest.is_zero() {
                key.open = None;
                key.keep_requests.clear();
                key.callers.clear();
                if let Some(tunnels) = tunnels {
                    tunnels.withdraw(*number);
                }
                keyring.close(*number);
            }
            rest
        });
        rests.filter(|rest| !rest.is_zero() && *rest != Duration::MAX).min()
    }

    fn watched(&self) -> Vec<Arc<WatchedProcess>> {
        let callers = self.keys.values().flat_map(|key| &key.callers);
        let callers = callers.map(|caller| &caller.process);
        let leaders = self.keys.values().flat_map(|key| &key.keep_requests);
        let leaders = leaders.filter_map(|wish| wish.bound_to.as_ref());
        // An end that was seen and didn't close the key would be seen again and again.
        let watched = callers.chain(leaders).filter(|it| !it.has_ended());
        watched.cloned().collect()
    }

    /// What keeps this library from being loaded here. One that the user's own programs can change is the only one of
    /// its process: it could read the PINs of the others there.
    fn library_beside(&self, wanted: &TrustedLibrary) -> Option<&PathBuf> {
        let loaded = self.keys.values().filter(|key| key.library != wanted.path());
        loaded.filter(|key| !(key.is_roots && wanted.is_roots())).map(|key| &key.library).next()
    }

    /// The number of the key with this configuration, which may be closed.
    fn key(
        &mut self,
        configuration: Vec<(String, String)>,
        config: Config,
        keyring: &Keyring,
    ) -> Result<KeyNumber, Error> {
        let mut keys = self.keys.iter();
        let is_same = |key: &ServedKey| is_same_key(&key.configuration, &configuration);
        if let Some((number, _)) = keys.find(|(_, key)| is_same(key)) {
            return Ok(*number);
        }
        let (library, is_roots) = (config.library.path().to_owned(), config.library.is_roots());
        let number = keyring.add(config, &TakenVariables::default())?;
        let last_use = time_since_boot();
        let key = ServedKey { configuration, library, is_roots, last_use, ..ServedKey::default() };
        self.keys.insert(number, key);
        Ok(number)
    }

    /// The key, and how its certificate is used.
    fn used_key(&mut self, number: KeyNumber) -> Result<(&mut ServedKey, KeyUsage), Error> {
        let usage = usage(self.tunnels.as_ref(), number);
        let key = self.keys.get_mut(&number);
        let key = key.ok_or_else(|| Error::internal("a key is served no longer"))?;
        Ok((key, usage))
    }
}

/// The process that the plugin names as its client.
fn caller_of(plugin: Peer, number: i32) -> Result<WatchedProcess, Error> {
    let process =
        WatchedProcess::new(number).map_err(|reason| caller_error(&reason.to_string()))?;
    match number == plugin.process || is_caller(number, plugin.process) {
        true => Ok(process),
        false => Err(caller_error("it doesn't run the plugin")),
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
    tunnels.map_or_else(KeyUsage::default, |tunnels| tunnels.usage(key))
}
