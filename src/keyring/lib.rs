//! Keys that are kept open: tokens with one session each, from a key's first use until it is closed.
//!
//! A PKCS#11 session may be used by one thread at a time. So each library has a thread of its own, the worker, and only the
//! worker calls the library. Whoever wants something done with a key is a requester, in another thread: it sends attempts
//! to the worker, and does all the waiting for people and other processes. Meanwhile the other keys of the library can
//! sign.
//!
//! ```text
//!  requester of a key ──┐                          ┌──────────► the library, and so the token:
//!  requester of a key ──┼─ waits for its turn ─► worker         calls with a limit of time
//!  requester of a key ──┘  (attempts queue up)     │
//!     │        │                                   └─ waits for nobody else
//!     │        └─ waits for other processes that have the library: its lock
//!     └─ waits for a person, one requester of a key at a time: its desk and the turn there
//! ```
//!
//! `requester` has the loop of attempts, and `worker` what is done in one. `attempt` has what goes between the two, and
//! says why an attempt may begin anew.
//!
//! Once somebody has entered a PIN into this process, a library is not initialised again. When it is initialised, it reads
//! its configuration and may load what that names: another program could have changed that by now, and would get at the
//! PIN. If a token was removed and inserted again, a new session is opened to it instead.

#![forbid(unsafe_code)]

mod attempt;
pub mod library;
mod library_thread;
mod open_key;
mod open_library;
mod question;
mod requester;
mod turn;
mod worker;

use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use self::attempt::KeyAccess;
use self::library_thread::LibraryThread;
pub use self::open_key::OpenKey;
use self::open_library::KeyInSession;
pub use self::requester::KeyClient;
use self::requester::{Desk, KeyRequest};
use self::worker::{Work, Worker};
use config::Config;
use config::pin::PinProvider;
use crypto::scheme::Scheme;
use crypto::verify::VerifiedSignature;
use messages::error::{Error, Exit};
use pin_entry::Sources;
use system::environment::TakenVariables;
use system::limits;
use system::locked;
use token::watchdog::Watch;
use token::{KeyReference, SessionAccess, Token};

/// A configured key: the index of its library's thread, and its index among that library's keys.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct KeyNumber {
    pub library: usize,
    pub key: usize,
}

/// Keys that TLS clients use, in this process or in another one.
pub trait OpenKeys: Send + Sync {
    /// What a client has to know of the key, which is opened if it isn't open; an error if it was closed. If its
    /// certificate may have been renewed, that is read again. The token has [`limits::REPLY`] to answer; a person who is
    /// asked for the PIN has as long as the prompt stays open.
    fn open_in_time(&self, key: KeyNumber) -> Result<Arc<OpenKey>, Error>;

    /// Signs with the key, which is opened if it isn't open; an error if it was closed. The limits of time are those of
    /// [`open_in_time`](Self::open_in_time). For Ed25519 and ML-DSA, `digest` is the whole message.
    fn sign(
        &self,
        key: KeyNumber,
        scheme: Scheme,
        digest: Vec<u8>,
    ) -> Result<VerifiedSignature, Error>;
}

/// Keys, and the threads of their libraries.
#[derive(Default)]
pub struct Keyring {
    libraries: Mutex<Vec<LibraryThread>>,
    /// Whether nobody may be asked at the terminal any more.
    unattended: Arc<AtomicBool>,
    /// Whether somebody has entered a PIN into this process.
    has_entered_pin: Arc<AtomicBool>,
    /// Whether the keyring's sessions can change their tokens.
    access: SessionAccess,
    /// Whether the libraries are being finalised, or were.
    is_finished: Arc<AtomicBool>,
}

impl Keyring {
    /// A keyring whose sessions can change their tokens.
    pub fn to_write() -> Self {
        Self { access: SessionAccess::ReadWrite, ..Self::default() }
    }

    /// Adds a key, at any time. Its library is loaded when a key is opened. If the configuration names a variable with the
    /// PIN, that has to be among `variables`.
    pub fn add(&self, mut config: Config, variables: &TakenVariables) -> Result<KeyNumber, Error> {
        let source = mem::take(&mut config.pin);
        let sources = Sources::for_run(source, variables, Arc::clone(&self.unattended));
        let mut threads = locked(&self.libraries);
        let path = config.library.path();
        let known = threads.iter().position(|thread| thread.library.path() == path);
        let library = known.unwrap_or(threads.len());
        if known.is_none() {
            let worker = Worker::new(self.access, Arc::clone(&self.has_entered_pin));
            let is_finished = Arc::clone(&self.is_finished);
            threads.push(LibraryThread::start(config.library.clone(), worker, is_finished)?);
        }
        let thread = threads.get_mut(library).ok_or_else(unknown_key)?;
        let desk = Desk::new(sources);
        thread.send(|worker| worker.add(config))?;
        thread.desks.push(Arc::new(desk));
        Ok(KeyNumber { library, key: thread.desks.len() - 1 })
    }

    fn thread(&self, key: KeyNumber) -> Result<LibraryThread, Error> {
        let thread = locked(&self.libraries).get(key.library).cloned();
        let is_finished = self.is_finished.load(Ordering::Relaxed);
        thread.ok_or_else(|| if is_finished { stopped() } else { unknown_key() })
    }

    /// Opens the key, unless it is open, with a login if its token requires one. There is no limit of time, since a person
    /// may be typing. A `client` has to log in to the token itself, unless the key is open for clients like it. If its
    /// login fails, what was open stays open.
    pub fn open(&self, key: KeyNumber, client: Option<KeyClient>) -> Result<Arc<OpenKey>, Error> {
        let Some(client) = client else {
            // The watch lasts until the key is open. After that, the keyring limits the time.
            let _watch = Watch::over(self.thread(key)?.library.path());
            return self.request(key, KeyAccess::Own, None, shown);
        };
        let access = KeyAccess::Client { signs: client.signs };
        self.request(key, access, Some(client), shown)
    }

    /// Does `work` with the key's token, after opening the key if it isn't open. There is no limit of time but that of each
    /// call of the library: one that hangs ends the process, which would keep the library's lock otherwise. `work` begins
    /// anew after each question that it has asked. Only a keyring [that writes](Keyring::to_write) can change the token.
    pub fn with_token<T: Send + 'static>(
        &self,
        key: KeyNumber,
        mut work: impl FnMut(&mut Token, &KeyReference, &mut dyn PinProvider) -> Result<T, Error>
        + Send
        + 'static,
    ) -> Result<T, Error> {
        let _watch = Watch::over(self.thread(key)?.library.path());
        self.request(key, KeyAccess::Exclusive, None, move |token, opened, pins| {
            work(token, &opened.key.reference, pins)
        })
    }

    /// Does `work` in the keyring's session and login, and again if the token was lost in it.
    fn request<T: Send + 'static>(
        &self,
        key: KeyNumber,
        access: KeyAccess,
        client: Option<KeyClient>,
        work: impl FnMut(&mut Token, &KeyInSession, &mut dyn PinProvider) -> Result<T, Error>
        + Send
        + 'static,
    ) -> Result<T, Error> {
        let thread = self.thread(key)?;
        let desk = thread.desks.get(key.key).ok_or_else(unknown_key)?;
        let work: Arc<Mutex<Work<T>>> = Arc::new(Mutex::new(work));
        KeyRequest::new(&thread, key.key, desk, access, client).complete(&work)
    }

    /// Closes the key until it is [opened](Keyring::open) again. With the last key of a token, the session, the login and
    /// the PIN go, too. This only asks for it: it is done after the requests that were made before.
    pub fn close(&self, key: KeyNumber) {
        let _ =
            self.thread(key).and_then(|thread| thread.send(move |worker| worker.close(key.key)));
    }

    /// Has the next [client](Keyring::open) log in. Those that use the key already go on.
    pub fn dismiss_clients(&self, key: KeyNumber) {
        let dismiss = move |worker: &mut Worker| worker.dismiss_clients(key.key);
        let _ = self.thread(key).and_then(|thread| thread.send(dismiss));
    }

    /// From now on nobody is asked for a PIN at the terminal: it belongs to the command of the run, or there is none.
    pub fn leave_terminal(&self) {
        self.unattended.store(true, Ordering::Relaxed);
    }

    /// Finalises the libraries. The process ends with `code`, even if a library hangs or crashes.
    pub fn finish(&self, code: u8) {
        self.is_finished.store(true, Ordering::Relaxed);
        let libraries = mem::take(&mut *locked(&self.libraries));
        for mut library in libraries {
            // PINs are wiped even if C_Finalize hangs.
            library.desks.clear();
            let done = library.send(move |worker| worker.finish(code));
            let _ = done.map(|done| done.recv_timeout(limits::LIBRARY_END));
        }
    }
}

impl OpenKeys for Keyring {
    fn open_in_time(&self, key: KeyNumber) -> Result<Arc<OpenKey>, Error> {
        self.request(key, KeyAccess::Showing, None, shown)
    }

    fn sign(
        &self,
        key: KeyNumber,
        scheme: Scheme,
        digest: Vec<u8>,
    ) -> Result<VerifiedSignature, Error> {
        self.request(key, KeyAccess::InTime, None, move |token, opened, pins| {
            token.sign(&opened.key, scheme, &digest, pins)
        })
    }
}

/// The work of a request that only wants the key opened: what TLS clients have to know of it.
fn shown(
    _token: &mut Token,
    opened: &KeyInSession,
    _pins: &mut dyn PinProvider,
) -> Result<Arc<OpenKey>, Error> {
    Ok(Arc::clone(&opened.shown))
}

/// A request came too late: this process is being stopped, or its command has ended.
pub fn stopped() -> Error {
    Error::new(Exit::Cluster, "the process that has the key was stopped before it answered")
        .help("run the command again")
}

fn unknown_key() -> Error {
    Error::internal("a key that was never added to its keyring")
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::Configuration;

    #[test]
    fn a_library_that_does_not_load_fails_each_request_and_ends() {
        let pairs = [("pathLib", "/no/a.so"), ("slotId", "0"), ("objectId", "1")];
        let mut map: Configuration = pairs.into_iter().collect();
        let keyring = Keyring::default();
        let config = Config::from_map(&mut map).unwrap();
        let key = keyring.add(config, &TakenVariables::default()).unwrap();
        for _ in 0..2 {
            let error = keyring.open(key, None).unwrap_err();
            assert_eq!(error.exit_code(), 4, "{error}");
            assert!(error.to_string().contains("does not load"), "{error}");
        }
        let error = keyring.sign(key, Scheme::Ed25519, Vec::new()).unwrap_err();
        assert_eq!(error.exit_code(), 4);
        let thread = keyring.thread(key).unwrap();
        keyring.finish(0);
        let late = keyring.open(key, None).map(drop);
        let sent_before_the_end = thread.ask_within(None, |_| (), |_, _| ());
        for error in [late, sent_before_the_end].map(Result::unwrap_err) {
            assert_eq!(error.exit_code(), 9, "{error}");
            assert!(error.to_string().contains("was stopped"), "{error}");
            assert_eq!(error.remedy().to_string(), "run the command again");
        }
    }
}
