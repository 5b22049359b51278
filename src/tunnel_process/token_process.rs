//! Token processes: this program once more, each with one PKCS#11 library for the tunnel process, or for a command.
//!
//! So no PIN is in one memory with another maker's code, a library that crashes or hangs ends no tunnel, and it has the
//! environment of who has opened the key. Which library it is comes first, once, as the path that was checked; what is
//! asked afterwards names keys of it, and no path that could lead elsewhere by then. With each request comes a socket for
//! the answer and, where somebody may be asked for the PIN, the client's own.

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
use crate::background;
use config::pin::{PinOrigin, PinProvider};
use config::{Config, KeySelection, TrustedLibrary};
use crypto::scheme::Scheme;
use crypto::verify::VerifiedSignature;
use keyring::{KeyClient, KeyNumber, Keyring, OpenKey, OpenKeys};
use messages::error::{Error, Exit};
use messages::help::{Help, command};
use messages::report;
use system::environment::TakenVariables;
use system::limits;
use system::{descriptors, locked, shortage, wait_for};
use token::TOUCH_NOTICE;
use token::exit_guard;
use token::watchdog::Watch;

/// What this program is started with to be such a process.
pub const TOKEN_ARGUMENT: &str = "token-process";

/// Names the process for a key: there is one for each library, initialised in one way, in one environment.
pub(super) fn name(config: &Config, environment: &Environment) -> OsString {
    let environment = environment::of_tokens(environment);
    format!("{:?}", (config.library.path(), &config.init_args, environment)).into()
}

/// What is asked about a key.
#[derive(Deserialize, Serialize)]
pub(super) enum Task {
    /// Unless the client `is_admitted`, it logs in itself.
    Open {
        key: KeySelection,
        signs: bool,
        is_admitted: bool,
        /// Where the client has PINs from.
        pin_origin: PinOrigin,
    },
    OpenInTime,
    Sign(Scheme, Vec<u8>),
    /// Without an answer.
    Close,
}

/// The library that a token process is started for: the first that it is told.
#[derive(Deserialize, Serialize)]
struct ServedLibrary {
    /// As it was checked.
    path: OsString,
    init_args: Option<CString>,
}

impl ServedLibrary {
    fn of(config: &Config) -> Self {
        let path = config.library.path().as_os_str().to_owned();
        Self { path, init_args: config.init_args.clone() }
    }

    /// The library, checked by the process that is to load it. It must be the one that was meant.
    fn checked(&self) -> Result<TrustedLibrary, Error> {
        let checked = self.path.to_str().map(TrustedLibrary::check).transpose()?;
        checked.filter(|library| library.path() == self.path).ok_or_else(|| {
            let path = self.path.display();
            Error::new(Exit::Library, format!("PKCS#11 library {path} was moved meanwhile"))
                .help("run the command again")
        })
    }
}

/// A token process has taken a task, for whose answer there is no limit: it doesn't stand still.
#[derive(Deserialize, Serialize)]
struct TaskTaken;

/// A token process that was started. It ends when this is dropped, or with the tunnel process.
pub(super) struct TokenProcess {
    pub(super) name: OsString,
    library: PathBuf,
    /// Readable once it has ended.
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

    /// The answer, for which nobody is asked for a PIN.
    fn ask<T: DeserializeOwned>(&self, key: KeyNumber, task: &Task) -> Result<T, Error> {
        let answer = || {
            let mut conversation = self.send(key, task, None)?;
            conversation.be_patient(limits::TOKEN_PROCESS)?;
            conversation.receive()
        };
        answer().unwrap_or_else(|reason| Err(self.failure(&reason)))
    }

    /// The key, opened in time.
    pub(super) fn open_in_time(&self, key: KeyNumber) -> Result<Arc<OpenKey>, Error> {
        self.ask(key, &Task::OpenInTime).map(Arc::new)
    }

    /// A signature of the open key.
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

    /// The answer to [`Task::Open`], for which there is no limit of time as long as the client is there.
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

    /// One for a message to it, with its answer.
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
        // Its sockets end in any order.
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

    /// Closes the key; without another one, the process ends. Doesn't wait for that.
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

/// A key for one command, in a token process of its own: no other program can ask that for a signature.
pub struct OwnKey {
    process: TokenProcess,
    pub open: OpenKey,
}

impl OwnKey {
    /// Opens the key that the configuration selects, without a limit of time: `pins` may ask a person.
    pub fn open(
        configuration: Vec<(String, String)>,
        pins: &mut dyn PinProvider,
    ) -> Result<Self, Error> {
        let config = config_of(&configuration)?;
        let mut environment = environment::kept();
        // It reports its steps as this one does.
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
        // Until it has no more questions, and closes its end.
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

    /// Ends the process, in which the library is finalised.
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

/// Runs a token process, whose standard input is the tunnel process's socket; its exit code.
pub fn serve_token() -> u8 {
    let Ok(socket) = background::take_input().map(UnixStream::from) else {
        return Exit::Cluster as u8;
    };
    // The keys of a command's terminal are for the command.
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
    /// The only one that is loaded; why it isn't, for each task that would need it.
    library: Result<TrustedLibrary, Error>,
    init_args: Option<CString>,
    /// By the tunnel process's numbers, those of the keyring.
    numbers: BTreeMap<usize, KeyNumber>,
}

impl ProcessKeys {
    /// Has a thread do a task, which came with these sockets: the one for its answer, by which it is told, and where somebody
    /// may be asked for the PIN the client's own.
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
        // In the order in which they come.
        match task {
            Task::Close => self.keyring.close(key),
            Task::Open { is_admitted: false, .. } => self.keyring.dismiss_clients(key),
            _ => {}
        }
        let client = sockets.next();
        let keyring = Arc::clone(&self.keyring);
        let _ = thread::Builder::new().spawn(move || {
            // Who asked has ended, if the answer can't be sent.
            let _ = work(&keyring, key, task, client, answer);
        });
    }

    /// The key of this number, which the first task to open it brings.
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

/// The library that this process is for.
fn receive_library(socket: &UnixStream) -> io::Result<ServedLibrary> {
    let first = descriptors::receive(socket)?.into_iter().next();
    let first = first.ok_or(io::ErrorKind::UnexpectedEof)?;
    Conversation::new(first.into()).receive()
}

/// Does the task, and sends its answer. `client` may be asked for the PIN.
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
            // They are told.
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
