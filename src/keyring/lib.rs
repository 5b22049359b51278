//! Keys that are kept open: tokens with one session each, from a key's first use until it is closed.
//!
//! A PKCS#11 session belongs to one thread at a time, so each library has a thread that alone calls it. Other threads
//! send requests there and wait for the reply, with a limit while a client waits. What takes as long as a person or
//! another process takes, the PIN and the library's lock, is waited for by the thread that wants a key, which then comes
//! again: the other keys of the library sign meanwhile.
//!
//! A library is initialised once where somebody has entered a PIN. It reads its user's configuration then, and may load
//! what that names: by now that can be another program's, and the PIN is here. If a token was removed and inserted again,
//! there is a new session to it.

#![forbid(unsafe_code)]

pub mod library;
mod open;
mod question;
mod turn;

use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Instant;

use self::library::{LibraryLock, note_wait};
pub use self::open::OpenKey;
use self::open::{NewClient, OpenLibrary, OpenedKey};
use self::question::{Answer, Answers, Outcome, Question};
use self::turn::{Taken, Turn};
use config::pin::{PinOrigin, PinProvider};
use config::{Config, TokenName, TrustedLibrary};
use crypto::scheme::Scheme;
use crypto::verify::VerifiedSignature;
use files::lock::BUSY;
use messages::error::{Error, Exit};
use pin_entry::Sources;
use system::environment::TakenVariables;
use system::limits;
use system::{locked, shortage};
use token::kind;
use token::watchdog;
use token::{KeyReference, SessionAccess, Token};

/// A configured key: which library's thread serves it, and its index there.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct KeyNumber {
    pub library: usize,
    pub key: usize,
}

/// Keys for TLS clients, in this process or in others.
pub trait OpenKeys: Send + Sync {
    /// The key, which is opened if it isn't open while a client waits, unless the key was closed. Where its certificate
    /// may have been renewed, that is read again. The token has 60 s, and who is asked for its PIN as long as a prompt gives.
    fn open_in_time(&self, key: KeyNumber) -> Result<Arc<OpenKey>, Error>;

    /// Signs, and opens the key first if it isn't open, unless it was closed, with the same limits. For Ed25519 the digest
    /// is the whole message.
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
    /// Set when somebody has entered a PIN into this process.
    has_entered_pin: Arc<AtomicBool>,
    /// Whether its sessions can change their tokens.
    access: SessionAccess,
}

/// Who wants a key opened in a process that keeps keys for several clients. It is asked in the thread that opens the key.
pub struct KeyClient {
    /// In place of the key's own source of PINs; may block.
    pub pins: Box<dyn PinProvider + Send>,
    /// Whether it will have digests signed.
    pub signs: bool,
    /// Called when another process, with this number if it is known, has had the library for a while.
    pub waiting: Box<dyn FnMut(Option<u32>) + Send>,
}

/// A library's thread, as the others see it.
#[derive(Clone)]
struct LibraryThread {
    library: TrustedLibrary,
    keys: Vec<Arc<Desk>>,
    jobs: Sender<Job>,
}

/// Where the PIN of a key is asked for, by one thread at a time.
struct Desk {
    origin: PinOrigin,
    sources: Mutex<Sources>,
    turn: Turn,
}

/// What a library's thread does, one after the other.
type Job = Box<dyn FnOnce(&mut Worker) + Send>;

/// What is done with an open key and its token.
type Work<'a, T> = dyn FnMut(&mut Token, &OpenedKey, &mut dyn PinProvider) -> Result<T, Error> + 'a;

/// For whom a key is opened.
#[derive(Clone, Copy)]
enum KeyAccess {
    /// For a TLS client, unless the key was closed.
    InTime,
    /// The same, to show the certificate that it has now.
    Showing,
    /// For whoever has this keyring.
    Own,
    /// For a client of ours, who may have digests signed.
    Client { signs: bool },
    /// Like its own, and no other process uses the library meanwhile.
    Exclusive,
}

impl KeyAccess {
    /// Whether somebody at the other end of a TLS connection waits.
    fn is_in_time(self) -> bool {
        matches!(self, Self::InTime | Self::Showing)
    }

    /// When the library has to have answered a request that begins now.
    fn deadline(self) -> Option<Instant> {
        self.is_in_time().then(|| Instant::now() + limits::REPLY)
    }

    /// Whether the certificate that the key has now is wanted.
    fn shows_certificate(self) -> bool {
        matches!(self, Self::Showing | Self::Own | Self::Client { .. })
    }
}

/// One coming to the library's thread with a request.
struct Attempt {
    access: KeyAccess,
    /// Whether the library's lock is held.
    is_locked: bool,
    /// Whether none before it has got to the token.
    is_first: bool,
    /// Whether the token was lost in one before it.
    was_lost: bool,
    answers: Answers,
}

/// A request for a key, as the thread has it that waits: what it holds and knows between its attempts.
struct PendingRequest<'a> {
    thread: &'a LibraryThread,
    desk: &'a Desk,
    access: KeyAccess,
    /// What the next attempt has to say.
    answer: Option<Answer>,
    /// Held while somebody is asked for the key's PIN, and from then on.
    turn: Option<Taken<'a>>,
    /// The library's, held from the first attempt that wants it, but for the time in which somebody is asked.
    lock: Option<LibraryLock>,
    /// When the library has to have answered, if somebody waits at the other end of a TLS connection.
    deadline: Option<Instant>,
    /// Whether no attempt has got to the token.
    is_first: bool,
    /// Whether the token was lost in an attempt.
    was_lost: bool,
    /// Where the PIN comes from.
    origin: PinOrigin,
    client: Option<KeyClient>,
}

/// What comes of an [`Attempt`].
enum Step<T> {
    Done(Result<T, Error>),
    /// Nothing was done yet: to be tried again under the library's lock, with the answer that isn't used yet.
    WantsLock(Option<Answer>),
    /// The token was lost: to be tried once more.
    Lost,
    /// To be tried again with an answer to this.
    Wants(Question),
}

/// What has to be done before a key can be used.
#[derive(Clone, Copy)]
enum Opening {
    /// Nothing: the key is open.
    IsOpen,
    /// The key is opened, with a login of the keyring's own if its token requires one.
    Own,
    /// The key is opened for a client, who logs in itself.
    Client { signs: bool, is_first: bool },
}

/// What a library's thread says to the one that waits.
enum Reply<T> {
    /// The reader asks for the PIN.
    AtReader(String),
    Done(T),
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
        let mut pins = Sources::for_run(source, variables, Arc::clone(&self.unattended));
        let mut threads = locked(&self.libraries);
        let path = config.library.path();
        let known = threads.iter().position(|thread| thread.library.path() == path);
        let library = known.unwrap_or(threads.len());
        if known.is_none() {
            threads.push(LibraryThread::start(
                &config,
                self.access,
                Arc::clone(&self.has_entered_pin),
            )?);
        }
        let thread = threads.get_mut(library).ok_or_else(ended)?;
        let desk = Desk { origin: pins.origin(), sources: Mutex::new(pins), turn: Turn::default() };
        let key =
            ConfiguredKey { config, token: None, is_closed: false, admission: Admission::Nobody };
        thread.ask(|worker| worker.keys.push(key))?;
        thread.keys.push(Arc::new(desk));
        Ok(KeyNumber { library, key: thread.keys.len() - 1 })
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
            watchdog::start(self.thread(key)?.library.path());
        }
        let access = match &client {
            Some(client) => KeyAccess::Client { signs: client.signs },
            None => KeyAccess::Own,
        };
        let open = self.request(key, access, client, |_, opened, _| Ok(Arc::clone(&opened.shown)));
        // Once it is open, the keyring limits the time.
        if is_own {
            watchdog::stop();
        }
        open
    }

    /// Has this done with the key's token, and opens the key first if it isn't open. There is no limit
    /// of time. The token can be changed only in a keyring [that writes](Keyring::to_write). It is begun anew after each
    /// question that `work` has asked.
    pub fn with_token<T: Send + 'static>(
        &self,
        key: KeyNumber,
        mut work: impl FnMut(&mut Token, &KeyReference, &mut dyn PinProvider) -> Result<T, Error>
        + Send
        + 'static,
    ) -> Result<T, Error> {
        self.request(key, KeyAccess::Exclusive, None, move |token, opened, pins| {
            work(token, &opened.key.reference, pins)
        })
    }

    /// Has this done in the session and the login of the keyring, once more if the token was lost in it.
    fn request<T: Send + 'static>(
        &self,
        number: KeyNumber,
        access: KeyAccess,
        client: Option<KeyClient>,
        work: impl FnMut(&mut Token, &OpenedKey, &mut dyn PinProvider) -> Result<T, Error>
        + Send
        + 'static,
    ) -> Result<T, Error> {
        let thread = self.thread(number)?;
        let desk = thread.keys.get(number.key).cloned().ok_or_else(ended)?;
        let mut request = PendingRequest::new(&thread, &desk, access, client);
        let work = Arc::new(Mutex::new(work));
        loop {
            let work = Arc::clone(&work);
            let step = request.attempt(move |worker, attempt, at_reader| {
                worker.attempt(number.key, attempt, at_reader, &mut *locked(&work))
            })?;
            match step {
                Step::Done(outcome) => return outcome,
                Step::Lost => request.was_lost = true,
                Step::WantsLock(unused) => request.lock(unused)?,
                Step::Wants(question) => request.ask(question)?,
            }
        }
    }

    /// Closes the key until it is [opened](Keyring::open) again. The last key of a token takes the
    /// session, the login and the PIN with it. Doesn't wait for that: it comes after the requests that were made before.
    pub fn close(&self, key: KeyNumber) {
        let _ = self.thread(key).and_then(|thread| thread.ask(move |worker| worker.close(key.key)));
    }

    /// From now on the next [client](Keyring::open) logs in; what uses the key already stays.
    pub fn dismiss_clients(&self, key: KeyNumber) {
        let dismiss = move |worker: &mut Worker| {
            if let Some(key) = worker.keys.get_mut(key.key) {
                key.admission = Admission::Nobody;
            }
        };
        let _ = self.thread(key).and_then(|thread| thread.ask(dismiss));
    }

    /// From now on, no PIN is asked for at the terminal: it is the command's, or there is none.
    pub fn leave_terminal(&self) {
        self.unattended.store(true, Ordering::Relaxed);
    }

    /// Finalises the libraries; the process ends with `code` even if one hangs or crashes.
    pub fn finish(&self, code: u8) {
        let libraries = mem::take(&mut *locked(&self.libraries));
        for mut library in libraries {
            // PINs are wiped even if C_Finalize hangs.
            library.keys.clear();
            let done = library.ask(move |worker| worker.finish(code));
            let _ = done.map(|done| done.recv_timeout(limits::LIBRARY_END));
        }
    }
}

impl OpenKeys for Keyring {
    fn open_in_time(&self, key: KeyNumber) -> Result<Arc<OpenKey>, Error> {
        self.request(key, KeyAccess::Showing, None, |_, opened, _| Ok(Arc::clone(&opened.shown)))
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

impl<'a> PendingRequest<'a> {
    fn new(
        thread: &'a LibraryThread,
        desk: &'a Desk,
        access: KeyAccess,
        mut client: Option<KeyClient>,
    ) -> Self {
        let origin = match &mut client {
            Some(client) => client.pins.origin(),
            None => desk.origin.clone(),
        };
        Self {
            thread,
            desk,
            access,
            answer: None,
            turn: None,
            lock: None,
            deadline: access.deadline(),
            is_first: true,
            was_lost: false,
            origin,
            client,
        }
    }

    /// Has the library's thread do this with an attempt, which takes the answer with it.
    fn attempt<T: Send + 'static>(
        &mut self,
        work: impl FnOnce(&mut Worker, Attempt, Box<dyn Fn(String) + Send>) -> Step<T> + Send + 'static,
    ) -> Result<Step<T>, Error> {
        let attempt = Attempt {
            access: self.access,
            is_locked: self.lock.is_some(),
            is_first: self.is_first,
            was_lost: self.was_lost,
            answers: Answers::new(self.origin.clone(), self.answer.take()),
        };
        let client = &mut self.client;
        let at_reader = |notice: &str| {
            if let Some(client) = client {
                client.pins.at_reader(notice);
            }
        };
        let step = self.thread.ask_within(self.deadline, at_reader, move |worker, reader| {
            work(worker, attempt, reader)
        })?;
        self.is_first &= matches!(step, Step::WantsLock(_));
        Ok(step)
    }

    /// Acquires the library's lock for the next attempt, which has this answer.
    fn lock(&mut self, answer: Option<Answer>) -> Result<(), Error> {
        self.answer = answer;
        self.lock = Some(self.thread.lock(self.access, self.deadline, self.client.as_mut())?);
        Ok(())
    }

    /// Asks this for the next attempt. If somebody else is asked for the same key, that is waited for and nothing is asked:
    /// the key may be open afterwards.
    fn ask(&mut self, question: Question) -> Result<(), Error> {
        // Nobody else waits for the one who is asked.
        self.lock = None;
        if self.turn.is_none() {
            self.turn = self.desk.turn.take_if_free();
        }
        if self.turn.is_none() {
            let turn = self.desk.turn.take(self.deadline).ok_or_else(|| self.thread.silent())?;
            self.turn = Some(turn);
            return Ok(());
        }
        let answer = match &mut self.client {
            Some(client) => question.ask(&mut *client.pins)?,
            None => question.ask(&mut *locked(&self.desk.sources))?,
        };
        self.answer = Some(answer);
        self.deadline = self.access.deadline();
        Ok(())
    }
}

fn ended() -> Error {
    Error::internal("a key or the thread of its library is gone")
}

impl LibraryThread {
    fn start(
        config: &Config,
        access: SessionAccess,
        has_entered_pin: Arc<AtomicBool>,
    ) -> Result<Self, Error> {
        let (jobs, received) = mpsc::channel::<Job>();
        let opened = OpenLibrary { access, has_entered_pin, ..OpenLibrary::default() };
        let mut worker = Worker { keys: Vec::new(), opened, has_finished: false };
        let thread = thread::Builder::new().name("token".to_owned());
        let thread = thread.spawn(move || {
            while !worker.has_finished
                && let Ok(job) = received.recv()
            {
                job(&mut worker);
            }
        });
        thread.map_err(|error| shortage(format!("no thread for a token: {error}")))?;
        Ok(Self { library: config.library.clone(), keys: Vec::new(), jobs })
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

    /// The same, and waits for it. What has not begun by the deadline is not done any more.
    fn ask_within<T: Send + 'static>(
        &self,
        deadline: Option<Instant>,
        mut at_reader: impl FnMut(&str),
        work: impl FnOnce(&mut Worker, Box<dyn Fn(String) + Send>) -> T + Send + 'static,
    ) -> Result<T, Error> {
        let (reply, answer) = mpsc::channel();
        let is_over = Arc::new(AtomicBool::new(false));
        let has_left = Arc::clone(&is_over);
        let job: Job = Box::new(move |worker| {
            if has_left.load(Ordering::Relaxed) {
                return;
            }
            let notices = reply.clone();
            let reader = Box::new(move |notice| drop(notices.send(Reply::AtReader(notice))));
            let _ = reply.send(Reply::Done(work(worker, reader)));
        });
        self.jobs.send(job).map_err(|_| ended())?;
        loop {
            let next = match deadline {
                None => answer.recv().map_err(RecvTimeoutError::from),
                Some(deadline) => {
                    answer.recv_timeout(deadline.saturating_duration_since(Instant::now()))
                }
            };
            match next {
                Ok(Reply::AtReader(notice)) => at_reader(&notice),
                Ok(Reply::Done(done)) => return Ok(done),
                Err(RecvTimeoutError::Disconnected) => return Err(ended()),
                Err(RecvTimeoutError::Timeout) => {
                    is_over.store(true, Ordering::Relaxed);
                    return Err(self.silent());
                }
            }
        }
    }

    /// The library's lock, held until this is dropped: by the one who waits, so that a library that hangs keeps no other
    /// process waiting for ever.
    fn lock(
        &self,
        access: KeyAccess,
        deadline: Option<Instant>,
        client: Option<&mut KeyClient>,
    ) -> Result<LibraryLock, Error> {
        let patience = match deadline {
            Some(deadline) => deadline.saturating_duration_since(Instant::now()).min(limits::LOCK),
            None => limits::LOCK,
        };
        let mut note = note_wait;
        let mut nothing = |_| ();
        let waiting: &mut dyn FnMut(Option<u32>) = match (client, access) {
            (Some(client), _) => &mut *client.waiting,
            (None, access) if access.is_in_time() => &mut nothing,
            (None, _) => &mut note,
        };
        let lock = LibraryLock::default();
        lock.acquire(&self.library, patience, waiting)?;
        Ok(lock)
    }

    fn silent(&self) -> Error {
        let (path, seconds) = (self.library.path().display(), limits::REPLY.as_secs());
        let text = format!("the token behind {path} has not answered within {seconds} s");
        Error::new(Exit::Signing, text).help(
            "touch the token if it blinks; if it stays silent, end the run, take the token out \
             and put it back, and start again",
        )
    }
}

struct ConfiguredKey {
    /// Its PIN source is at its desk.
    config: Config,
    /// The token on which it was opened, until it is closed; the token may be gone meanwhile.
    token: Option<TokenName>,
    is_closed: bool,
    admission: Admission,
}

/// The clients that may use a key without a login of their own.
#[derive(Clone, Copy)]
enum Admission {
    Nobody,
    /// Those that have no digests signed.
    TlsClients,
    All,
}

impl Admission {
    fn of(signs: bool) -> Self {
        if signs { Self::All } else { Self::TlsClients }
    }

    fn admits(self, signs: bool) -> bool {
        match self {
            Self::Nobody => false,
            Self::TlsClients => !signs,
            Self::All => true,
        }
    }
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

    /// Closes the key, and what no other key holds.
    fn close(&mut self, number: usize) {
        if let Some(key) = self.keys.get_mut(number) {
            key.token = None;
            key.is_closed = true;
            key.admission = Admission::Nobody;
        }
        for open in &mut self.opened.tokens {
            open.keys.remove(&number);
        }
        self.close_unused();
    }

    /// Closes what no key holds: the sessions and the logins of tokens, and their PINs.
    fn close_unused(&mut self) {
        let is_held = |token: &TokenName| {
            let mut held = self.keys.iter().filter_map(|key| key.token.as_ref());
            held.any(|held| held.is_same_token(token))
        };
        let OpenLibrary { tokens, accepted, .. } = &mut self.opened;
        for open in tokens.extract_if(.., |open| !is_held(&open.token.state().name)) {
            open.token.close();
        }
        accepted.retain(|pin| is_held(pin.token()));
    }

    /// Does the work with the key, which is opened unless it is open. Comes back for the library's lock, or an answer, that
    /// is wanted first.
    fn attempt<T>(
        &mut self,
        number: usize,
        attempt: Attempt,
        at_reader: Box<dyn Fn(String) + Send>,
        work: &mut Work<'_, T>,
    ) -> Step<T> {
        let Attempt { access, is_locked, is_first, was_lost, mut answers } = attempt;
        answers.at_reader = Some(at_reader);
        let Some(key) = self.keys.get(number) else { return Step::Done(Err(ended())) };
        if key.is_closed && access.is_in_time() {
            return Step::Done(Err(Error::internal("the key was closed")));
        }
        let selector = key.config.token.clone();
        let opening = self.opening(number, key.admission, access, is_first);
        let needs_lock = match opening {
            // Work that looks and then writes is one process's at a time.
            Opening::IsOpen => matches!(access, KeyAccess::Exclusive),
            Opening::Own | Opening::Client { .. } => true,
        };
        if needs_lock && !is_locked {
            return Step::WantsLock(answers.unused());
        }
        let has_served = self.opened.has_served(&selector);
        let result = self.with_key(number, opening, &mut answers, work);
        match answers.outcome(result) {
            Outcome::Unanswered(question) => Step::Wants(question),
            Outcome::Done(Err(error)) if has_served && !was_lost && may_be_lost(&error) => {
                self.opened.lose(&selector);
                Step::Lost
            }
            Outcome::Done(result) => {
                if result.is_err() {
                    self.close_unused();
                }
                Step::Done(result)
            }
        }
    }

    /// What has to be done before the key, with this admission, can be used so.
    fn opening(
        &self,
        number: usize,
        admission: Admission,
        access: KeyAccess,
        is_first: bool,
    ) -> Opening {
        if let KeyAccess::Client { signs } = access
            && !admission.admits(signs)
        {
            return Opening::Client { signs, is_first };
        }
        let is_outdated = access.shows_certificate() && self.opened.may_be_renewed(number);
        if self.opened.is_open(number) && !is_outdated { Opening::IsOpen } else { Opening::Own }
    }

    /// Opens the key, if that has to be done, and does the work with it.
    fn with_key<T>(
        &mut self,
        number: usize,
        opening: Opening,
        answers: &mut Answers,
        work: &mut Work<'_, T>,
    ) -> Result<T, Error> {
        let key = self.keys.get_mut(number).ok_or_else(ended)?;
        let mut open = |new_client| self.opened.open(number, &key.config, answers, new_client);
        match opening {
            Opening::IsOpen => {}
            Opening::Own => open(None)?,
            Opening::Client { is_first, .. } => open(Some(NewClient { is_first }))?,
        }
        let (token, opened) = self.opened.key(number).ok_or_else(ended)?;
        key.token = Some(token.state().name.clone());
        key.is_closed = false;
        if let Opening::Client { signs, .. } = opening {
            key.admission = Admission::of(signs);
        }
        work(token, opened, answers)
    }
}

/// Whether opening the token again could help. A PIN that was refused stays refused.
fn may_be_lost(error: &Error) -> bool {
    // While another process has the token, nothing is known of it.
    let is_of_token = error.exits_with(Exit::Token) && !error.is(&BUSY);
    is_of_token || error.is(&kind::CALL_FAILED)
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
            (new(Exit::Token).kind(BUSY), false),
            (new(Exit::Login).kind(kind::CALL_FAILED), true),
            (new(Exit::Login), false),
        ] {
            assert_eq!(may_be_lost(&error), is_lost, "{error}");
        }
    }
}
