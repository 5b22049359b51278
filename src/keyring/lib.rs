//! Keys that are kept open: tokens with one session each, from a key's first use until it is closed.
//!
//! A PKCS#11 session belongs to one thread at a time, so each library has a thread that alone calls it. Other threads
//! send requests there and wait for the reply, with a limit while a client waits. If a token was removed and inserted
//! again, its library is finalised and opened once more: some libraries don't see the token again otherwise.

#![forbid(unsafe_code)]

mod open;

use std::mem;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

pub use self::open::OpenKey;
use self::open::{OpenLibrary, OpenedKey};
use base::error::{Error, Exit, Kind};
use base::pin::PinProvider;
use base::process::environment::TakenVariables;
use base::process::{lock, locked, preparation, watchdog};
use config::{Config, TokenName};
use crypto::scheme::Scheme;
use crypto::verify::VerifiedSignature;
use pin_entry::Sources;
use signer::library::{LibraryLock, note_wait};
use token::{KeyReference, SessionAccess, Token};

/// How long a token may take for a reply while a client waits; a person may have to touch it.
const REPLY_LIMIT: Duration = Duration::from_secs(60);

/// How long a library's thread may take to finalise it; one that waits for a token is left behind.
const FINISH_LIMIT: Duration = Duration::from_secs(2);

/// A configured key: which library's thread serves it, and its index there.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct KeyNumber {
    pub library: usize,
    pub key: usize,
}

/// Keys for TLS clients, in this process or in others.
pub trait OpenKeys: Send + Sync {
    /// The key, which is opened if it isn't open while a client waits, 60 s at most, unless the key was closed. Where its
    /// certificate may have been renewed, that is read again.
    fn open_in_time(&self, key: KeyNumber) -> Result<Arc<OpenKey>, Error>;

    /// Signs, and opens the key first if it isn't open, unless it was closed. For Ed25519 the digest
    /// is the whole message. Blocks up to 60 s.
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
    /// Set when no question may be asked at the terminal any more.
    unattended: Arc<AtomicBool>,
    /// Whether its sessions can change their tokens.
    access: SessionAccess,
}

/// Who wants a key opened in a process that keeps keys for several clients.
pub struct KeyClient {
    /// In place of the key's own source of PINs; called in the library's thread, and may block.
    pub pins: Box<dyn PinProvider + Send>,
    /// Whether it will have digests signed.
    pub signs: bool,
    /// Called when another process, with this number if it is known, has had the library for a while.
    pub waiting: Box<dyn FnMut(Option<u32>) + Send>,
}

/// A library's thread, as the others see it.
#[derive(Clone)]
struct LibraryThread {
    path: PathBuf,
    /// How many there are.
    keys: usize,
    jobs: Sender<Job>,
    /// Held while a token is opened; released if the library hangs.
    lock: LibraryLock,
}

/// What a library's thread does, one after the other.
type Job = Box<dyn FnOnce(&mut Worker) + Send>;

/// For whom a key is opened.
enum KeyAccess {
    /// For a TLS client, unless the key was closed.
    InTime,
    /// The same, to show the certificate that it has now.
    Showing,
    /// For this client of ours, or for whoever has this keyring.
    Opening(Option<KeyClient>),
    /// Like opening, and no other process uses the library meanwhile.
    Exclusive,
}

impl Keyring {
    /// A keyring whose sessions can change their tokens.
    pub fn to_write() -> Self {
        Self { access: SessionAccess::ReadWrite, ..Self::default() }
    }

    /// Adds a key, at any time. No library is loaded before a key is opened. The variable that the
    /// configuration names for the PIN must be among `variables`.
    pub fn add(&self, mut config: Config, variables: &TakenVariables) -> Result<KeyNumber, Error> {
        let source = mem::take(&mut config.pin);
        let pins = Sources::for_run(source, variables, Arc::clone(&self.unattended));
        let mut threads = locked(&self.libraries);
        let known = threads.iter().position(|thread| thread.path == config.library.path());
        let library = known.unwrap_or(threads.len());
        if known.is_none() {
            threads.push(LibraryThread::start(&config, self.access)?);
        }
        let thread = threads.get_mut(library).ok_or_else(ended)?;
        let key = ConfiguredKey { config, pins, token: None, is_closed: false, open_for: None };
        thread.ask(|worker| worker.keys.push(key))?;
        let key = thread.keys;
        thread.keys += 1;
        Ok(KeyNumber { library, key })
    }

    fn thread(&self, key: KeyNumber) -> Result<LibraryThread, Error> {
        locked(&self.libraries).get(key.library).cloned().ok_or_else(ended)
    }

    /// Opens the key, unless it is open, with a login if its token requires one. There is no limit of time; a person may
    /// be typing. A `client` logs in to the token itself unless the key is open for clients like it; if that fails, what
    /// was open stays so.
    pub fn open(&self, key: KeyNumber, client: Option<KeyClient>) -> Result<Arc<OpenKey>, Error> {
        let is_own = client.is_none();
        if is_own {
            watchdog::start(&self.thread(key)?.path);
        }
        let access = KeyAccess::Opening(client);
        let open = self.request(key, access, |_, opened, _| Ok(Arc::clone(&opened.shown)));
        // Once it is open, the keyring limits the time.
        if is_own {
            watchdog::stop();
        }
        open
    }

    /// Has this done with the key's token, and opens the key first if it isn't open. There is no limit
    /// of time. The token can be changed only in a keyring [that writes](Keyring::to_write).
    pub fn with_token<T: Send + 'static>(
        &self,
        key: KeyNumber,
        mut work: impl FnMut(&mut Token, &KeyReference, &mut dyn PinProvider) -> Result<T, Error>
        + Send
        + 'static,
    ) -> Result<T, Error> {
        self.request(key, KeyAccess::Exclusive, move |token, opened, pins| {
            work(token, &opened.key.reference, pins)
        })
    }

    /// Has this done in the session and the login of the keyring, once more if the token was lost in it.
    fn request<T: Send + 'static>(
        &self,
        number: KeyNumber,
        access: KeyAccess,
        work: impl FnMut(&mut Token, &OpenedKey, &mut dyn PinProvider) -> Result<T, Error>
        + Send
        + 'static,
    ) -> Result<T, Error> {
        let library = self.thread(number)?;
        let is_limited = matches!(access, KeyAccess::InTime | KeyAccess::Showing);
        let answer = library.ask(move |worker| {
            // What was given for it is dropped before the reply.
            let outcome = worker.serve(number.key, access, work);
            worker.opened.lock.release();
            outcome
        })?;
        let outcome = match is_limited {
            true => answer.recv_timeout(REPLY_LIMIT),
            false => answer.recv().map_err(RecvTimeoutError::from),
        };
        outcome.unwrap_or_else(|none| match none {
            RecvTimeoutError::Disconnected => Err(ended()),
            RecvTimeoutError::Timeout => {
                library.lock.release();
                let (path, seconds) = (library.path.display(), REPLY_LIMIT.as_secs());
                let text = format!("the token behind {path} has not answered within {seconds} s");
                Err(Error::new(Exit::Signing, text).help(
                    "touch the token if it blinks; if it stays silent, end the run, take the token out \
                     and put it back, and start again",
                ))
            }
        })
    }

    /// Closes the key until it is [opened](Keyring::open) again. The last key of a token takes the
    /// session, the login and the PIN with it, and the last one of a library has it finalised
    /// (C_Finalize). Doesn't wait for that: it comes after the requests that were made before.
    pub fn close(&self, key: KeyNumber) {
        let _ = self.thread(key).and_then(|it| it.ask(move |worker| worker.close(key.key)));
    }

    /// From now on the next [client](Keyring::open) logs in; what uses the key already stays.
    pub fn dismiss_clients(&self, key: KeyNumber) {
        let dismiss = move |worker: &mut Worker| {
            worker.keys.get_mut(key.key).into_iter().for_each(|key| key.open_for = None);
        };
        let _ = self.thread(key).and_then(|it| it.ask(dismiss));
    }

    /// From now on, no PIN is asked for at the terminal: it is the command's, or there is none.
    pub fn leave_terminal(&self) {
        self.unattended.store(true, Ordering::Relaxed);
    }

    /// Finalises the libraries; the process ends with `code` even if one hangs or crashes.
    pub fn finish(&self, code: u8) {
        let libraries = locked(&self.libraries).clone();
        for library in libraries {
            let done = library.ask(move |worker| worker.finish(code));
            let _ = done.map(|done| done.recv_timeout(FINISH_LIMIT));
        }
    }
}

impl OpenKeys for Keyring {
    fn open_in_time(&self, key: KeyNumber) -> Result<Arc<OpenKey>, Error> {
        self.request(key, KeyAccess::Showing, |_, opened, _| Ok(Arc::clone(&opened.shown)))
    }

    fn sign(
        &self,
        key: KeyNumber,
        scheme: Scheme,
        digest: Vec<u8>,
    ) -> Result<VerifiedSignature, Error> {
        self.request(key, KeyAccess::InTime, move |token, opened, pins| {
            token.sign(&opened.key, scheme, &digest, pins)
        })
    }
}

fn ended() -> Error {
    Error::internal("a key or the thread of its library is gone")
}

impl LibraryThread {
    fn start(config: &Config, access: SessionAccess) -> Result<Self, Error> {
        let (jobs, received) = mpsc::channel::<Job>();
        let opened = OpenLibrary { access, ..OpenLibrary::default() };
        let lock = opened.lock.clone();
        let mut worker = Worker { keys: Vec::new(), opened, has_finished: false };
        let thread = thread::Builder::new().name("token".to_owned());
        let thread = thread.spawn(move || {
            while !worker.has_finished
                && let Ok(job) = received.recv()
            {
                job(&mut worker);
            }
        });
        thread.map_err(|error| preparation(format!("no thread for a token: {error}")))?;
        Ok(Self { path: config.library.path().to_owned(), keys: 0, jobs, lock })
    }

    /// Has this done after what was asked for before.
    fn ask<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Worker) -> T + Send + 'static,
    ) -> Result<Receiver<T>, Error> {
        let (reply, answer) = mpsc::channel();
        let job: Job = Box::new(move |worker| drop(reply.send(work(worker))));
        self.jobs.send(job).map_err(|_| ended())?;
        Ok(answer)
    }
}

struct ConfiguredKey {
    /// Its PIN source is in `pins`.
    config: Config,
    pins: Sources,
    /// The token on which it was opened, until it is closed; the token may be gone meanwhile.
    token: Option<TokenName>,
    is_closed: bool,
    /// The clients that may use it without a login of their own: none, or all, and whether to sign.
    open_for: Option<bool>,
}

struct Worker {
    keys: Vec<ConfiguredKey>,
    opened: OpenLibrary,
    has_finished: bool,
}

impl Worker {
    /// The process ends with this code, even if the library hangs or crashes.
    fn finish(&mut self, code: u8) {
        self.has_finished = true;
        // PINs are wiped even if C_Finalize hangs.
        self.keys.clear();
        self.opened.tokens.clear();
        self.opened.accepted.clear();
        if let Some(module) = self.opened.module.take() {
            module.finalize(code);
        }
    }

    /// Closes the key, and what no other key holds: the session and the login of its token, and the PIN; without
    /// any, the library.
    fn close(&mut self, number: usize) {
        if let Some(key) = self.keys.get_mut(number) {
            key.token = None;
            key.is_closed = true;
            key.open_for = None;
        }
        let is_held = |token: &TokenName| {
            let mut held = self.keys.iter().filter_map(|key| key.token.as_ref());
            held.any(|held| held.is_same_token(token))
        };
        let OpenLibrary { tokens, accepted, .. } = &mut self.opened;
        for open in tokens.extract_if(.., |open| !is_held(&open.token.state().name)) {
            open.token.close();
        }
        for open in tokens.iter_mut() {
            open.keys.remove(&number);
        }
        accepted.retain(|pin| is_held(pin.token()));
        if tokens.is_empty() {
            self.opened.close();
        }
    }

    /// Serves a request, and once more with the library opened again if the token was lost.
    fn serve<T>(
        &mut self,
        number: usize,
        mut access: KeyAccess,
        mut work: impl FnMut(&mut Token, &OpenedKey, &mut dyn PinProvider) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let key = self.keys.get(number).ok_or_else(ended)?;
        if key.is_closed && matches!(access, KeyAccess::InTime | KeyAccess::Showing) {
            return Err(Error::internal("the key was closed"));
        }
        let mut tokens = self.opened.tokens.iter().map(|open| open.token.state());
        let mut was_open = tokens.any(|state| state.fits(&key.config.token));
        loop {
            let key = self.key(number, &mut access);
            match key.and_then(|(token, opened, pins)| work(token, opened, pins)) {
                Err(error) if was_open && may_be_lost(&error) => self.opened.close(),
                outcome => return outcome,
            }
            was_open = false;
        }
    }

    /// The key, which is opened unless it is open, with its token and with who has the PIN.
    fn key<'a>(
        &'a mut self,
        number: usize,
        access: &'a mut KeyAccess,
    ) -> Result<(&'a mut Token, &'a OpenedKey, &'a mut dyn PinProvider), Error> {
        let Self { keys, opened, .. } = self;
        let key = keys.get_mut(number).ok_or_else(ended)?;
        let is_exclusive = matches!(access, KeyAccess::Exclusive);
        let is_shown = matches!(access, KeyAccess::Opening(_) | KeyAccess::Showing);
        let (client, mut note): (_, fn(_)) = match access {
            KeyAccess::Opening(client) => (client.as_mut(), note_wait),
            KeyAccess::Exclusive => (None, note_wait),
            KeyAccess::InTime | KeyAccess::Showing => (None, |_| ()),
        };
        let signs = client.as_ref().map(|client| client.signs);
        let logs_in = signs.is_some_and(|signs| key.open_for.is_none_or(|open| signs && !open));
        let (pins, waiting): (&mut dyn PinProvider, &mut dyn FnMut(_)) = match client {
            Some(client) => (&mut *client.pins, &mut *client.waiting),
            None => (&mut key.pins, &mut note),
        };
        let is_current = |key: &OpenedKey| !(is_shown && key.shown.may_be_renewed());
        let mut open_keys = opened.tokens.iter().filter_map(|open| open.keys.get(&number));
        let is_open = !logs_in && open_keys.any(is_current);
        // Work that looks and then writes is one process's at a time.
        if !is_open || is_exclusive {
            opened.lock.acquire(&key.config.library, lock::LIMIT, waiting)?;
        }
        if !is_open {
            opened.open(number, &key.config, pins, logs_in)?;
        }
        let mut tokens = opened.tokens.iter_mut();
        let found = tokens.find_map(|open| Some((&mut open.token, open.keys.get(&number)?)));
        let (token, opened) = found.ok_or_else(ended)?;
        key.token = Some(token.state().name.clone());
        key.is_closed = false;
        if logs_in {
            key.open_for = signs;
        }
        Ok((token, opened, pins))
    }
}

/// Whether opening the token again could help. A PIN that was refused stays refused.
fn may_be_lost(error: &Error) -> bool {
    // While another process has the token, nothing is known of it.
    let is_of_token = error.exit_code() == Exit::Token as u8 && !error.is(Kind::Busy);
    is_of_token || error.is(Kind::CallFailed)
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
        keyring.finish(0);
        assert_eq!(keyring.open(key, None).unwrap_err().exit_code(), 70);
    }

    #[test]
    fn a_token_is_opened_again_after_a_failed_call_and_not_after_a_refusal() {
        let new = |exit| Error::new(exit, "failed");
        for (error, is_lost) in [
            (new(Exit::Token), true),
            (new(Exit::Token).kind(Kind::Busy), false),
            (new(Exit::Login).kind(Kind::CallFailed), true),
            (new(Exit::Login), false),
        ] {
            assert_eq!(may_be_lost(&error), is_lost, "{error}");
        }
    }
}
