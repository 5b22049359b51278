//! Token processes: this program, started once more, with one PKCS#11 library for the tunnel process or for a command.
//!
//! So no PIN is in the same memory as a library of another maker, a library that crashes or hangs ends no tunnel, and each
//! library runs in the environment of whoever has opened the key. The first message says which library it is, by the path
//! that was checked. Later messages only name keys, and no path, which could lead elsewhere by then. With each task comes a
//! socket for the answer and, if somebody may be asked for the PIN, the client's own socket.

use std::collections::BTreeMap;
use std::ffi::{CString, OsString};
use std::io;
use std::net::Shutdown;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::client::reply;
use super::environment::{self, Environment};
use super::message::{Conversation, Reply, config_of};
use super::pins::ClientPins;
use config::pin::{PinOrigin, PinProvider};
use config::{Config, KeySelection, TrustedLibrary};
use crypto::scheme::Scheme;
use crypto::verify::VerifiedSignature;
use keyring::{KeyClient, KeyNumber, Keyring, OpenKey, OpenKeys};
use messages::error::{Error, Exit};
use messages::help::{Help, command};
use messages::report;
use system::background;
use system::environment::TakenVariables;
use system::limits;
use system::{descriptors, locked, shortage, wait_for};
use token::TOUCH_NOTICE;
use token::exit_guard;
use token::watchdog::Watch;

/// The argument with which this program becomes a token process.
pub const TOKEN_ARGUMENT: &str = "token-process";

/// The name of the token process for a key: there is one for each library, each way to initialise it, and each environment.
pub(super) fn name(config: &Config, environment: &Environment) -> OsString {
    let environment = environment::of_tokens(environment);
    format!("{:?}", (config.library.path(), &config.init_args, environment)).into()
}

/// What a token process is asked to do with a key.
#[derive(Deserialize, Serialize)]
pub(super) enum Task {
    /// To open it. Unless the client `is_admitted`, it has to log in itself.
    Open {
        key: KeySelection,
        signs: bool,
        is_admitted: bool,
        /// Where the client has PINs from.
        pin_origin: PinOrigin,
    },
    OpenInTime,
    Sign(Scheme, Vec<u8>),
    /// To close it. There is no answer.
    Close,
}

/// The library of a token process: the first message to it.
#[derive(Deserialize, Serialize)]
struct ServedLibrary {
    /// The path that was checked.
    path: OsString,
    init_args: Option<CString>,
}

impl ServedLibrary {
    fn of(config: &Config) -> Self {
        let path = config.library.path().as_os_str().to_owned();
        Self { path, init_args: config.init_args.clone() }
    }

    /// Checks the library again, in the process that is to load it. An error if the path leads to another file by now.
    fn checked(&self) -> Result<TrustedLibrary, Error> {
        let checked = self.path.to_str().map(TrustedLibrary::check).transpose()?;
        checked.filter(|library| library.path() == self.path).ok_or_else(|| {
            let path = self.path.display();
            Error::new(Exit::Library, format!("PKCS#11 library {path} was moved meanwhile"))
                .help("run the command again")
        })
    }
}

/// The sign that a token process has taken a task, and so isn't stopped. Its answer may take as long as a person takes.
#[derive(Deserialize, Serialize)]
struct TaskTaken;

/// A token process, seen from the process that has started it. It ends when this is dropped, or when that process ends.
pub(super) struct TokenProcess {
    pub(super) name: OsString,
    library: PathBuf,
    /// The socket to it, which becomes readable when it has ended.
    socket: UnixStream,
    child: Mutex<Child>,
}

impl TokenProcess {
    pub(super) fn start(
        name: OsString,
        config: &Config,
        errors: Stdio,
        environment: Environment,
    ) -> io::Result<Self> {
        let (socket, input) = UnixStream::pair()?;
        let child = background::start(TOKEN_ARGUMENT, input.into(), errors, environment)?;
        let library = config.library.path().to_owned();
        let process = Self { name, library, socket, child: Mutex::new(child) };
        process.open_conversation(None)?.send(&ServedLibrary::of(config))?;
        Ok(process)
    }

    pub(super) fn has_ended(&self) -> bool {
        self.ends_within(Duration::ZERO)
    }

    pub(super) fn number(&self) -> u32 {
        locked(&self.child).id()
    }

    fn ends_within(&self, limit: Duration) -> bool {
        wait_for(&self.socket, PollFlags::IN, Instant::now() + limit).unwrap_or(true)
    }

    /// Asks for a task in which nobody is asked for a PIN, and waits for the answer.
    fn ask<T: DeserializeOwned>(&self, key: KeyNumber, task: &Task) -> Result<T, Error> {
        let answer = || {
            let mut conversation = self.send(key, task, None)?;
            conversation.be_patient(limits::TOKEN_PROCESS)?;
            conversation.receive()
        };
        answer().unwrap_or_else(|reason| Err(self.failure(&reason)))
    }

    /// Opens the key while a TLS client waits.
    pub(super) fn open_in_time(&self, key: KeyNumber) -> Result<Arc<OpenKey>, Error> {
        self.ask(key, &Task::OpenInTime).map(Arc::new)
    }

    /// Has the open key sign, and verifies the signature.
    pub(super) fn sign(
        &self,
        key: KeyNumber,
        open: &OpenKey,
        scheme: Scheme,
        digest: Vec<u8>,
    ) -> Result<VerifiedSignature, Error> {
        let signature = self.ask(key, &Task::Sign(scheme, digest.clone()))?;
        open.verified(scheme, &digest, signature)
    }

    /// Waits for the answer to [`Task::Open`]. There is no limit of time, as long as the client is there.
    pub(super) fn opened(
        &self,
        sent: io::Result<Conversation>,
        client: &Conversation,
    ) -> Result<OpenKey, Error> {
        let answer = || {
            let mut conversation = sent?;
            conversation.be_patient(limits::TOKEN_PROCESS)?;
            let TaskTaken = conversation.receive()?;
            conversation.wait_while_open(client)?;
            conversation.receive()
        };
        answer().unwrap_or_else(|reason| Err(self.failure(&reason)))
    }

    pub(super) fn send(
        &self,
        key: KeyNumber,
        task: &Task,
        client: Option<&Conversation>,
    ) -> io::Result<Conversation> {
        let mut conversation = self.open_conversation(client)?;
        conversation.send(&(key.key, task))?;
        Ok(conversation)
    }

    /// Opens a conversation for one task and its answer.
    fn open_conversation(&self, client: Option<&Conversation>) -> io::Result<Conversation> {
        let (ours, theirs) = UnixStream::pair()?;
        let sent: Vec<_> =
            [theirs.as_fd()].into_iter().chain(client.map(Conversation::as_fd)).collect();
        descriptors::send(&self.socket, &sent)?;
        Ok(Conversation::new(ours))
    }

    fn failure(&self, reason: &io::Error) -> Error {
        if matches!(reason.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) {
            let library = self.library.display();
            let seconds = limits::TOKEN_PROCESS.as_secs();
            let text = format!(
                "the process of PKCS#11 library {library} has not answered within {seconds} s"
            );
            return Error::new(Exit::Signing, text).help(
                Help::from("touch the token if it blinks; if it stays silent, ")
                    .and(stop_and_repeat()),
            );
        }
        // Its sockets are closed in no particular order, so that it may end only now.
        if !self.ends_within(limits::TOKEN_PROCESS_END) {
            let library = self.library.display();
            let text = format!("the process of PKCS#11 library {library} gave no answer: {reason}");
            return Error::new(Exit::Library, text).help(stop_and_repeat());
        }
        let status = self.end();
        let status = status.map_or_else(|error| error.to_string(), |status| status.to_string());
        let library = self.library.display();
        let text = format!(
            "PKCS#11 library {library} has crashed or hung: its process has ended ({status})"
        );
        Error::new(Exit::Library, text).help(
            "check that the token is still inserted and its service runs (pcscd, tpm2-abrmd), and run the command again; \
             if it comes again, update the library",
        )
    }

    fn end(&self) -> io::Result<ExitStatus> {
        let mut child = locked(&self.child);
        let _ = child.kill();
        child.wait()
    }

    fn finish(&self) {
        let _ = self.socket.shutdown(Shutdown::Write);
        self.ends_within(limits::TOKEN_PROCESS_END);
        let _ = self.end();
    }

    /// Closes the key. If the process has no other one, it ends; this doesn't wait for that.
    pub(super) fn close(self: Arc<Self>, key: KeyNumber) {
        let _ = self.send(key, &Task::Close, None);
        let _ = thread::Builder::new().spawn(move || drop(self));
    }
}

/// What helps against a token process that doesn't answer.
fn stop_and_repeat() -> Help {
    Help::from(command("stop")).and(", and run the command again")
}

impl Drop for TokenProcess {
    fn drop(&mut self) {
        self.finish();
    }
}

/// A key for one command, in a token process of its own. No other program can ask that process for a signature.
pub struct OwnKey {
    process: TokenProcess,
    pub open: OpenKey,
}

impl OwnKey {
    /// Opens the key that the configuration selects. There is no limit of time, since `pins` may ask a person.
    pub fn open(
        configuration: Vec<(String, String)>,
        pins: &mut dyn PinProvider,
    ) -> Result<Self, Error> {
        let config = config_of(&configuration)?;
        let mut environment = environment::kept();
        // It reports its steps if this process does.
        environment.push((report::LOG.into(), log::max_level().as_str().to_lowercase().into()));
        let errors = Stdio::inherit();
        let process =
            TokenProcess::start(OsString::new(), &config, errors, environment).map_err(shortage)?;
        let (ours, theirs) = UnixStream::pair().map_err(shortage)?;
        let task = Task::Open {
            key: config.selection(),
            signs: true,
            is_admitted: false,
            pin_origin: pins.origin(),
        };
        let sent = process.send(KeyNumber::default(), &task, Some(&Conversation::new(theirs)));
        // Answers questions until the process has no more and closes its end.
        let mut client = Conversation::new(ours);
        let _ = reply(&mut client, Some(pins));
        let answer = || {
            let mut conversation = sent?;
            let TaskTaken = conversation.receive()?;
            conversation.receive()
        };
        let open = answer().unwrap_or_else(|reason| Err(process.failure(&reason)))?;
        Ok(Self { process, open })
    }

    /// Ends the token process, which finalises the library.
    pub fn finish(&self) {
        self.process.finish();
    }
}

impl OpenKeys for OwnKey {
    fn open_in_time(&self, key: KeyNumber) -> Result<Arc<OpenKey>, Error> {
        self.process.open_in_time(key)
    }

    fn sign(
        &self,
        key: KeyNumber,
        scheme: Scheme,
        digest: Vec<u8>,
    ) -> Result<VerifiedSignature, Error> {
        // The process itself has no terminal.
        let _notice = pin_entry::show_after(limits::TOUCH_NOTICE, TOUCH_NOTICE);
        self.process.sign(key, &self.open, scheme, digest)
    }
}

/// Runs a token process, whose standard input is a socket to the process that has started it. Returns its exit code.
pub fn serve_token() -> u8 {
    let Ok(socket) = background::take_input().map(UnixStream::from) else {
        return Exit::Cluster as u8;
    };
    // The keys that are pressed at a command's terminal are meant for the command.
    background::leave_session();
    exit_guard::end_by_signal();
    let keyring = Keyring::default();
    keyring.leave_terminal();
    let Ok(served) = receive_library(&socket) else { return Exit::Cluster as u8 };
    let library = served.checked();
    let _watch = library.as_ref().ok().map(|library| Watch::over(library.path()));
    let mut keys = ProcessKeys {
        keyring: Arc::new(keyring),
        library,
        init_args: served.init_args,
        numbers: BTreeMap::new(),
    };
    while let Ok(received) = descriptors::receive(&socket) {
        let sockets = received.into_iter().map(|socket| Conversation::new(socket.into()));
        keys.begin_task(sockets);
    }
    keys.keyring.finish(0);
    0
}

/// The keys of a token process.
struct ProcessKeys {
    keyring: Arc<Keyring>,
    /// The only library that is loaded; or why it isn't, for each task that needs it.
    library: Result<TrustedLibrary, Error>,
    init_args: Option<CString>,
    /// The keyring's numbers of the keys, by the numbers that the tunnel process gives them.
    numbers: BTreeMap<usize, KeyNumber>,
}

impl ProcessKeys {
    /// Has a thread do a task. These sockets came with it: one to read the task from and answer it and, if somebody may be
    /// asked for the PIN, the client's own.
    fn begin_task(&mut self, mut sockets: impl Iterator<Item = Conversation>) {
        let Some(mut answer) = sockets.next() else { return };
        let Ok((number, task)) = answer.receive::<(usize, Task)>() else { return };
        if matches!(task, Task::Open { .. }) {
            let _ = answer.send(&TaskTaken);
        }
        let key = match self.key(number, &task) {
            Ok(key) => key,
            Err(error) => {
                let _ = answer.send(&Err::<(), _>(error));
                return;
            }
        };
        // Here and not in the thread, so that it is done in the order of the tasks.
        match task {
            Task::Close => self.keyring.close(key),
            Task::Open { is_admitted: false, .. } => self.keyring.dismiss_clients(key),
            _ => {}
        }
        let client = sockets.next();
        let keyring = Arc::clone(&self.keyring);
        let _ = thread::Builder::new().spawn(move || {
            // If the answer can't be sent, whoever has asked has ended.
            let _ = work(&keyring, key, task, client, answer);
        });
    }

    /// The key with this number. The first task to open it says which key it is.
    fn key(&mut self, number: usize, task: &Task) -> Result<KeyNumber, Error> {
        if let Some(key) = self.numbers.get(&number) {
            return Ok(*key);
        }
        let Task::Open { key: selection, .. } = task else {
            return Err(Error::internal("a token process doesn't know the key"));
        };
        let library = self.library.clone()?;
        let config = Config::of_key(library, self.init_args.clone(), selection.clone());
        let key = self.keyring.add(config, &TakenVariables::default())?;
        self.numbers.insert(number, key);
        Ok(key)
    }
}

/// Receives the library that this process is for.
fn receive_library(socket: &UnixStream) -> io::Result<ServedLibrary> {
    let first = descriptors::receive(socket)?.into_iter().next();
    let first = first.ok_or(io::ErrorKind::UnexpectedEof)?;
    Conversation::new(first.into()).receive()
}

/// Does the task and sends its answer. `client` can be asked for the PIN.
fn work(
    keyring: &Keyring,
    key: KeyNumber,
    task: Task,
    client: Option<Conversation>,
    mut answer: Conversation,
) -> io::Result<()> {
    match (task, client) {
        (Task::Open { signs, pin_origin, .. }, Some(client)) => {
            let client = Arc::new(Mutex::new(client));
            let pins = Box::new(ClientPins::new(Arc::clone(&client), pin_origin.clone())?);
            let notices = ClientPins::new(client, pin_origin)?;
            let waiting = Box::new(move |holder| drop(notices.send(&Reply::Waiting(holder))));
            let opened = keyring.open(key, Some(KeyClient { pins, signs, waiting }));
            answer.send(&opened.as_deref())?;
            // The client has been told of the warnings.
            if let Ok(open) = opened {
                let _ = open.take_warnings();
            }
            Ok(())
        }
        (Task::Sign(scheme, digest), _) => {
            let signature = keyring.sign(key, scheme, digest);
            answer.send(&signature.map(VerifiedSignature::into_bytes))
        }
        (Task::OpenInTime, _) => answer.send(&keyring.open_in_time(key).as_deref()),
        (Task::Open { .. } | Task::Close, _) => Ok(()),
    }
}
