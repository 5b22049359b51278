//! Keys that are kept open: tokens with one session each, from a key's first use until it is closed,
//! or to the end of the process.
//!
//! A PKCS#11 session belongs to one thread at a time, so each library has a thread that alone
//! calls it. Other threads send requests there and wait for the reply, with a limit while a client
//! waits. If a token was removed and inserted again, its library is finalised and opened once more:
//! some libraries don't see the token again otherwise.

#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::mem;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use crate::certificate::{Certificate, of_subject, renewal_remedy};
use crate::config::{Config, InitArgs, TokenName};
use crate::error::{Error, Exit, Kind};
use crate::library::{Library, LibraryLock, LockWait};
use crate::pin::PinProvider;
use crate::pin_entry::Sources;
use crate::process::environment::TakenVariables;
use crate::process::{lock, locked, preparation, unix_time};
use crate::scheme::Scheme;
use crate::token::{AcceptedPin, FoundToken, KeyReference, PrivateKey, SessionAccess, Token};
use crate::verify::VerifiedSignature;

/// How long a token may take for a reply while a client waits; a person may have to touch it.
const REPLY_LIMIT: Duration = Duration::from_secs(60);

/// How long a library's thread may take to finalise it; one that waits for a token is left behind.
const FINISH_LIMIT: Duration = Duration::from_secs(2);

/// A configured key: which library's thread serves it, and its index there.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct KeyNumber {
    library: usize,
    key: usize,
}

/// What a TLS client has to know of a key that is open.
#[derive(Debug)]
pub struct OpenKey {
    /// The certificate and its issuers, in DER.
    pub chain: Vec<Vec<u8>>,
    pub subject: String,
    /// The schemes that the key and its token can make, those that TLS prefers first.
    pub schemes: Vec<Scheme>,
    /// Why servers refuse it or soon will, until it was reported.
    warnings: Mutex<Vec<String>>,
}

impl OpenKey {
    /// Whether it can make a signature of TLS 1.3; an RSA key needs RSA-PSS for that.
    pub fn serves_tls_1_3(&self) -> bool {
        self.schemes.iter().any(Scheme::is_of_tls_1_3)
    }

    /// Why servers refuse it or will, now or soon; once.
    pub fn take_warnings(&self) -> Vec<String> {
        mem::take(&mut *locked(&self.warnings))
    }
}

/// What should not stay as it is, of a certificate and what its key can make.
fn warnings(certificate: &Certificate, schemes: &[Scheme]) -> Vec<String> {
    let (subject, now) = (&certificate.subject, unix_time());
    let renewal = certificate.renewal(now);
    let renewal = renewal.map(|expiry| format!("{expiry}; {}", renewal_remedy().in_this_call()));
    let concerns = certificate.concerns(now).into_iter().chain(renewal);
    let mut warnings: Vec<_> = concerns.map(|it| of_subject(subject, it)).collect();
    if !schemes.iter().any(Scheme::is_of_tls_1_3) {
        warnings.push(format!(
            "the key of {subject} can serve TLS 1.2 only, which not every server speaks: an RSA key \
             needs RSA-PSS for TLS 1.3, and its token has none"
        ));
    }
    warnings
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
    /// In place of the key's own source of PINs. Its methods are called in the library's thread, and may
    /// block.
    pub pins: Box<dyn PinProvider + Send>,
    /// Whether it will have digests signed.
    pub signs: bool,
}

/// A library's thread, as the others see it.
#[derive(Clone)]
struct LibraryThread {
    path: PathBuf,
    /// How many there are.
    keys: usize,
    requests: Sender<ThreadRequest>,
    /// Held while a token is opened; released if the library hangs.
    lock: LibraryLock,
}

/// What a library's thread can be asked for.
enum ThreadRequest {
    Add(Box<ConfiguredKey>),
    Key(KeyRequest),
    Close(usize),
    Dismiss(usize),
    /// The process ends with this code, even if the library hangs or crashes.
    Finish(u8, Sender<()>),
}

/// Asks for a key to be opened, unless it is open, and for work with it.
struct KeyRequest {
    key: usize,
    access: KeyAccess,
    work: KeyWork,
    reply: Sender<Result<(), Error>>,
}

/// For whom a key is opened.
enum KeyAccess {
    /// For a TLS client, unless the key was closed.
    InTime,
    /// For this client of ours, or for whoever has this keyring.
    Opening(Option<KeyClient>, Waiting),
    /// Like opening, and no other process uses the library meanwhile.
    Exclusive(Waiting),
}

/// Called when another process, with this number if it is known, has had the library for a while.
pub type Waiting = Box<dyn FnMut(Option<u32>) + Send>;

/// In the session and the login of the keyring. It is done once more if the token was lost in it.
type KeyWork =
    Box<dyn FnMut(&mut Token<'_>, &OpenedKey, &mut dyn PinProvider) -> Result<(), Error> + Send>;

impl Keyring {
    /// A keyring whose sessions can change their tokens.
    pub fn to_write() -> Self {
        Self { access: SessionAccess::ReadWrite, ..Self::default() }
    }

    /// Adds a key, at any time. No library is loaded before a key is opened. The variable that the
    /// configuration names for the PIN must be among `variables`.
    pub fn add(&self, mut config: Config, variables: &TakenVariables) -> Result<KeyNumber, Error> {
        let pins = self.sources(&mut config, variables);
        self.add_to(config, pins, None, None)
    }

    /// [`Keyring::add`] with this provider in place of the configuration's source of PINs. Its methods are called
    /// in the library's thread, and may block.
    pub fn add_with(
        &self,
        config: Config,
        pins: Box<dyn PinProvider + Send>,
    ) -> Result<KeyNumber, Error> {
        self.add_to(config, pins, None, None)
    }

    /// [`Keyring::add`] for the first key of a library that is open already. `accepted` is the PIN
    /// that its token has accepted.
    pub fn add_open(
        &self,
        mut config: Config,
        library: Library,
        accepted: Option<AcceptedPin>,
    ) -> Result<KeyNumber, Error> {
        let pins = self.sources(&mut config, &TakenVariables::default());
        self.add_to(config, pins, Some(library), accepted)
    }

    /// The configuration's own source of PINs.
    fn sources(
        &self,
        config: &mut Config,
        variables: &TakenVariables,
    ) -> Box<dyn PinProvider + Send> {
        let source = mem::take(&mut config.pin);
        Box::new(Sources::for_run(source, variables, Arc::clone(&self.unattended)))
    }

    fn add_to(
        &self,
        config: Config,
        pins: Box<dyn PinProvider + Send>,
        opened: Option<Library>,
        accepted: Option<AcceptedPin>,
    ) -> Result<KeyNumber, Error> {
        let path = config.library.path().to_owned();
        let mut threads = locked(&self.libraries);
        let known = threads.iter().position(|thread| thread.path == path);
        let library = known.unwrap_or(threads.len());
        if known.is_none() {
            threads.push(LibraryThread::start(path, opened, accepted, self.access)?);
        }
        let thread = threads.get_mut(library).ok_or_else(ended)?;
        let key = ConfiguredKey { config, pins, token: None, is_closed: false, open_for: None };
        thread.requests.send(ThreadRequest::Add(Box::new(key))).map_err(|_| ended())?;
        let key = thread.keys;
        thread.keys += 1;
        Ok(KeyNumber { library, key })
    }

    /// The path of the key's library.
    pub fn library(&self, key: KeyNumber) -> PathBuf {
        let threads = locked(&self.libraries);
        let library = threads.get(key.library);
        library.map_or_else(PathBuf::new, |library| library.path.clone())
    }

    /// Opens the key, unless it is open, with a login if its token requires one. There is no limit
    /// of time; a person may be typing.
    pub fn open(&self, key: KeyNumber, waiting: Waiting) -> Result<Arc<OpenKey>, Error> {
        self.shown(key, KeyAccess::Opening(None, waiting))
    }

    /// [`Keyring::open`] for this client, which logs in to the token itself unless the key is open for
    /// clients like it. If it fails, what was open stays so.
    pub fn open_for(
        &self,
        key: KeyNumber,
        client: KeyClient,
        waiting: Waiting,
    ) -> Result<Arc<OpenKey>, Error> {
        self.shown(key, KeyAccess::Opening(Some(client), waiting))
    }

    /// [`Keyring::open`] while a client waits, 60 s at most, unless the key was closed.
    pub fn open_in_time(&self, key: KeyNumber) -> Result<Arc<OpenKey>, Error> {
        self.shown(key, KeyAccess::InTime)
    }

    fn shown(&self, key: KeyNumber, access: KeyAccess) -> Result<Arc<OpenKey>, Error> {
        self.request(key, access, |_, opened, _| Ok(Arc::clone(&opened.shown)))
    }

    /// Signs, and opens the key first if it isn't open, unless it was closed. For Ed25519 the digest
    /// is the whole message. Blocks up to 60 s.
    pub fn sign(
        &self,
        key: KeyNumber,
        scheme: Scheme,
        digest: Vec<u8>,
    ) -> Result<VerifiedSignature, Error> {
        self.request(key, KeyAccess::InTime, move |token, opened, pins| {
            token.sign(&opened.key, scheme, &digest, pins)
        })
    }

    /// Has this done with the key's token, and opens the key first if it isn't open. There is no limit
    /// of time. The token can be changed only in a keyring [that writes](Keyring::to_write).
    pub fn with_token<T: Send + 'static>(
        &self,
        key: KeyNumber,
        waiting: Waiting,
        mut work: impl FnMut(&mut Token<'_>, &KeyReference, &mut dyn PinProvider) -> Result<T, Error>
        + Send
        + 'static,
    ) -> Result<T, Error> {
        self.request(key, KeyAccess::Exclusive(waiting), move |token, opened, pins| {
            work(token, &opened.key.reference, pins)
        })
    }

    fn request<T: Send + 'static>(
        &self,
        KeyNumber { library, key }: KeyNumber,
        access: KeyAccess,
        mut work: impl FnMut(&mut Token<'_>, &OpenedKey, &mut dyn PinProvider) -> Result<T, Error>
        + Send
        + 'static,
    ) -> Result<T, Error> {
        let library = locked(&self.libraries).get(library).cloned().ok_or_else(ended)?;
        let is_limited = matches!(access, KeyAccess::InTime);
        let (sender, made) = mpsc::channel();
        let work: KeyWork = Box::new(move |token, opened, pins| {
            let _ = sender.send(work(token, opened, pins)?);
            Ok(())
        });
        let (reply, answer) = mpsc::channel();
        let request = ThreadRequest::Key(KeyRequest { key, access, work, reply });
        library.requests.send(request).map_err(|_| ended())?;
        match is_limited {
            false => answer.recv().map_err(|_| ended())??,
            true => match answer.recv_timeout(REPLY_LIMIT) {
                Ok(outcome) => outcome?,
                Err(RecvTimeoutError::Disconnected) => return Err(ended()),
                Err(RecvTimeoutError::Timeout) => {
                    library.lock.release();
                    let seconds = REPLY_LIMIT.as_secs();
                    let path = library.path.display();
                    let text =
                        format!("the token behind {path} has not answered within {seconds} s");
                    return Err(Error::new(Exit::Signing, text).help(
                        "touch the token if it blinks; if it stays silent, end the run, take the token out \
                         and put it back, and start again",
                    ));
                }
            },
        }
        made.try_recv().map_err(|_| Error::internal("work with a key without a result"))
    }

    /// Closes the key until it is [opened](Keyring::open) again. The last key of a token takes the
    /// session, the login and the PIN with it, and the last one of a library has it finalised
    /// (C_Finalize). Doesn't wait for that: it comes after the requests that were made before.
    pub fn close(&self, key: KeyNumber) {
        if let Some(library) = locked(&self.libraries).get(key.library) {
            let _ = library.requests.send(ThreadRequest::Close(key.key));
        }
    }

    /// From now on the next [client](Keyring::open_for) logs in to use the key, which stays open for what uses
    /// it already.
    pub fn dismiss_clients(&self, key: KeyNumber) {
        if let Some(library) = locked(&self.libraries).get(key.library) {
            let _ = library.requests.send(ThreadRequest::Dismiss(key.key));
        }
    }

    /// From now on, no PIN is asked for at the terminal: it is the command's, or there is none.
    pub fn leave_terminal(&self) {
        self.unattended.store(true, Ordering::Relaxed);
    }

    /// Finalises the libraries (C_Finalize); the process ends with `code` even if one hangs or
    /// crashes.
    pub fn finish(&self, code: u8) {
        let libraries = locked(&self.libraries).clone();
        for library in libraries {
            let (reply, done) = mpsc::channel();
            if library.requests.send(ThreadRequest::Finish(code, reply)).is_ok() {
                let _ = done.recv_timeout(FINISH_LIMIT);
            }
        }
    }
}

fn ended() -> Error {
    Error::internal("the thread of a library has ended")
}

impl KeyRequest {
    /// Ends the request: what was given for it is dropped before the reply.
    fn answer(self, outcome: Result<(), Error>) {
        drop((self.access, self.work));
        let _ = self.reply.send(outcome);
    }
}

impl LibraryThread {
    fn start(
        path: PathBuf,
        library: Option<Library>,
        accepted: Option<AcceptedPin>,
        access: SessionAccess,
    ) -> Result<Self, Error> {
        let (sender, requests) = mpsc::channel();
        let lock = library.as_ref().map(|library| library.lock.clone()).unwrap_or_default();
        let accepted = accepted.into_iter().collect();
        let worker =
            Worker { keys: Vec::new(), requests, library, lock: lock.clone(), accepted, access };
        let thread = thread::Builder::new().name("token".to_owned());
        let thread = thread.spawn(move || worker.run());
        thread.map_err(|error| preparation(format!("no thread for a token: {error}")))?;
        Ok(Self { path, keys: 0, requests: sender, lock })
    }
}

struct ConfiguredKey {
    /// Its PIN source is in `pins`.
    config: Config,
    pins: Box<dyn PinProvider + Send>,
    /// The token on which it was opened, until it is closed; the token may be gone meanwhile.
    token: Option<TokenName>,
    is_closed: bool,
    /// The clients that may use it without a login of their own: none, or all, and whether to sign.
    open_for: Option<bool>,
}

/// What a library's thread has, beside the tokens that are open.
struct Worker {
    keys: Vec<ConfiguredKey>,
    requests: Receiver<ThreadRequest>,
    /// `None` while it is closed, or in use by [`Worker::serve`].
    library: Option<Library>,
    lock: LibraryLock,
    /// For tokens that are opened again.
    accepted: Vec<AcceptedPin>,
    access: SessionAccess,
}

/// What a library's thread does next.
enum Next {
    Serve(KeyRequest),
    /// The last key was closed.
    Rest,
    Finish(u8, Sender<()>),
    /// The keyring is gone.
    End,
}

impl Worker {
    /// Opens the library when there is a request for a key, and again when a token was lost.
    fn run(mut self) {
        let mut next = self.next(&mut Vec::new());
        loop {
            next = match next {
                Next::Serve(request) => self.serve(request),
                Next::Rest => {
                    if let Some(library) = self.library.take() {
                        library.close();
                    }
                    self.next(&mut Vec::new())
                }
                Next::Finish(code, reply) => {
                    // PINs are wiped even if C_Finalize hangs.
                    drop((self.keys, self.accepted));
                    if let Some(library) = self.library {
                        library.finalize(code);
                    }
                    let _ = reply.send(());
                    return;
                }
                Next::End => return,
            };
        }
    }

    /// Waits for the next request that an open library is needed for.
    fn next(&mut self, tokens: &mut Vec<OpenToken<'_>>) -> Next {
        loop {
            match self.requests.recv() {
                Ok(ThreadRequest::Add(key)) => self.keys.push(*key),
                Ok(ThreadRequest::Key(request)) => {
                    let is_closed = self.keys.get(request.key).is_some_and(|key| key.is_closed);
                    match is_closed && matches!(request.access, KeyAccess::InTime) {
                        true => request.answer(Err(Error::internal("the key was closed"))),
                        false => return Next::Serve(request),
                    }
                }
                Ok(ThreadRequest::Close(key)) => {
                    self.close(key, tokens);
                    if tokens.is_empty() {
                        return Next::Rest;
                    }
                }
                Ok(ThreadRequest::Dismiss(key)) => {
                    if let Some(key) = self.keys.get_mut(key) {
                        key.open_for = None;
                    }
                }
                Ok(ThreadRequest::Finish(code, reply)) => return Next::Finish(code, reply),
                Err(_) => return Next::End,
            }
        }
    }

    /// Closes the key, and what no other key holds: the session and the login of its token, and the PIN.
    fn close(&mut self, number: usize, tokens: &mut Vec<OpenToken<'_>>) {
        if let Some(key) = self.keys.get_mut(number) {
            key.token = None;
            key.is_closed = true;
            key.open_for = None;
        }
        let keys = &self.keys;
        let is_held = |token: &TokenName| {
            let mut held = keys.iter().filter_map(|key| key.token.as_ref());
            held.any(|held| held.is_same_token(token))
        };
        for open in tokens.extract_if(.., |open| !is_held(&open.token.state().name)) {
            open.token.close();
        }
        for open in tokens {
            open.keys.remove(&number);
        }
        self.accepted.retain(|pin| is_held(pin.token()));
    }

    /// Serves this request and those that follow. [`Next::Serve`] is a request whose token was lost: the library
    /// has to be opened again for it.
    fn serve(&mut self, mut request: KeyRequest) -> Next {
        let library = match self.open_library(&mut request) {
            Ok(library) => library,
            Err(error) => {
                self.lock.release();
                request.answer(Err(error));
                return self.next(&mut Vec::new());
            }
        };
        let config = self.keys.get(request.key).map(|key| &key.config);
        let mut open = OpenKeys {
            library: &library,
            init_args: config.and_then(|config| config.init_args.clone()),
            tokens: Vec::new(),
            access: self.access,
        };
        let next = loop {
            let was_open = self.keys.get(request.key).is_some_and(|key| {
                let mut tokens = open.tokens.iter().map(|open| open.token.state());
                tokens.any(|state| state.fits(&key.config.token))
            });
            match self.serve_one(&mut open, &mut request) {
                Err(error) if was_open && may_be_lost(&error) => break Next::Serve(request),
                outcome => request.answer(outcome),
            }
            self.lock.release();
            match self.next(&mut open.tokens) {
                Next::Serve(next) => request = next,
                end => break end,
            }
        };
        let tokens = open.tokens.into_iter().map(|open| open.token);
        self.accepted.extend(tokens.filter_map(Token::into_accepted_pin));
        match next {
            Next::Serve(_) => library.close(),
            _ => self.library = Some(library),
        }
        next
    }

    fn open_library(&mut self, request: &mut KeyRequest) -> Result<Library, Error> {
        if let Some(library) = self.library.take() {
            return Ok(library);
        }
        let config = &self.keys.get(request.key).ok_or_else(unknown_key)?.config;
        let (init_args, lock) = (config.init_args.as_ref(), self.lock.clone());
        let waiting: LockWait<'_> = match &mut request.access {
            KeyAccess::InTime => &mut |_| (),
            KeyAccess::Opening(_, waiting) | KeyAccess::Exclusive(waiting) => &mut **waiting,
        };
        Library::open(&config.library, init_args, lock, lock::LIMIT, waiting)
    }

    fn serve_one(
        &mut self,
        open: &mut OpenKeys<'_>,
        KeyRequest { key: number, access, work, .. }: &mut KeyRequest,
    ) -> Result<(), Error> {
        let key = self.keys.get_mut(*number).ok_or_else(unknown_key)?;
        let is_exclusive = matches!(access, KeyAccess::Exclusive(_));
        let (client, waiting): (_, LockWait<'_>) = match access {
            KeyAccess::InTime => (None, &mut |_| ()),
            KeyAccess::Opening(client, waiting) => (client.as_mut(), &mut **waiting),
            KeyAccess::Exclusive(waiting) => (None, &mut **waiting),
        };
        let signs = client.as_ref().map(|client| client.signs);
        let logs_in = signs.is_some_and(|signs| key.open_for.is_none_or(|open| signs && !open));
        let ConfiguredKey { config, pins, .. } = key;
        let pins: &mut dyn PinProvider = match client {
            Some(client) => &mut *client.pins,
            None => &mut **pins,
        };
        let index = open.index(*number).filter(|_| !logs_in);
        // Work that looks and then writes is one process's at a time.
        if index.is_none() || is_exclusive {
            self.lock.acquire(&config.library, lock::LIMIT, waiting)?;
        }
        let index = match index {
            Some(index) => index,
            None => open.open(*number, config, pins, &mut self.accepted, logs_in)?,
        };
        let OpenToken { token, keys } = open.tokens.get_mut(index).ok_or_else(unknown_key)?;
        let opened = keys.get(number).ok_or_else(unknown_key)?;
        key.token = Some(token.state().name.clone());
        key.is_closed = false;
        if logs_in {
            key.open_for = signs;
        }
        work(token, opened, pins)
    }
}

/// The tokens and keys that are open in a library.
struct OpenKeys<'m> {
    library: &'m Library,
    init_args: Option<InitArgs>,
    tokens: Vec<OpenToken<'m>>,
    access: SessionAccess,
}

/// One session and one login for all keys of a token.
struct OpenToken<'m> {
    token: Token<'m>,
    /// By their indices among the library's.
    keys: HashMap<usize, OpenedKey>,
}

struct OpenedKey {
    key: PrivateKey,
    shown: Arc<OpenKey>,
}

impl OpenKeys<'_> {
    /// The index of the token with which this key is open.
    fn index(&self, number: usize) -> Option<usize> {
        let mut tokens = self.tokens.iter();
        tokens.position(|open| open.keys.contains_key(&number))
    }

    /// Opens the key; the index of its token. If the client `logs_in`, it does so in a session of its own:
    /// a login is the process's, whichever key it was made for. Other keys are then opened again when
    /// they are used.
    fn open(
        &mut self,
        number: usize,
        config: &Config,
        pins: &mut dyn PinProvider,
        accepted: &mut Vec<AcceptedPin>,
        logs_in: bool,
    ) -> Result<usize, Error> {
        let (library, tokens, access) = (self.library, &mut self.tokens, self.access);
        if config.init_args != self.init_args {
            let path = library.module.path().display();
            let text = format!(
                "PKCS#11 library {path} runs with other initArgs already, those of another context"
            );
            return Err(Error::new(Exit::Library, text).help(
                "one run can give a library one initArgs (--init-args): start another run with --context for \
                 the context that needs these",
            ));
        }
        let found = FoundToken::find(&library.module, &config.token)?;
        let name = found.name();
        let known = tokens.iter().position(|open| open.token.name() == name);
        if let Some(open) = known.filter(|_| !logs_in).and_then(|index| tokens.get(index)) {
            // Before a PIN is sent to it.
            open.token.check_session()?;
        }
        let index = match known {
            Some(index) if !logs_in => index,
            known => {
                accepted.extend(known.and_then(|index| tokens.swap_remove(index).token.close()));
                let mut token = found.open(&library.module, access)?;
                match logs_in {
                    true => token.forget_tries(),
                    false => token.recall(accepted),
                }
                tokens.push(OpenToken { token, keys: HashMap::new() });
                tokens.len() - 1
            }
        };
        let opened = tokens.get_mut(index).ok_or_else(unknown_key)?;
        match opened.open(config, pins) {
            Ok(key) => opened.keys.insert(number, key),
            Err(error) if logs_in => {
                // The next to use another key of it recalls the PIN.
                tokens.swap_remove(index).token.close();
                return Err(error);
            }
            Err(error) => return Err(error),
        };
        if logs_in {
            let name = &opened.token.state().name;
            accepted.retain(|pin| !pin.token().is_same_token(name));
        }
        Ok(index)
    }
}

impl OpenToken<'_> {
    fn open(&mut self, config: &Config, pins: &mut dyn PinProvider) -> Result<OpenedKey, Error> {
        let token = &mut self.token;
        let identity = token.identity(config, Some(pins))?;
        let certificate = &identity.certificate;
        let schemes = token.tls_schemes(certificate.public_key())?;
        let key = token.key(identity.key.clone(), pins)?;
        let shown = Arc::new(OpenKey {
            chain: identity.chain(token)?,
            subject: certificate.subject.clone(),
            warnings: Mutex::new(warnings(certificate, &schemes)),
            schemes,
        });
        Ok(OpenedKey { key, shown })
    }
}

/// Whether opening the token again could help. A PIN that was refused stays refused.
fn may_be_lost(error: &Error) -> bool {
    // While another process has the token, nothing is known of it.
    let is_of_token = error.exit_code() == Exit::Token as u8 && !error.is(Kind::Busy);
    is_of_token || error.is(Kind::CallFailed)
}

fn unknown_key() -> Error {
    Error::internal("a key without a configuration")
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::protocol::Configuration;

    /// Keys by their libraries and object ids.
    fn keyring(keys: &[(&str, &str)]) -> (Keyring, Vec<KeyNumber>) {
        let configs = keys.iter().map(|(library, id)| {
            let pairs = [("pathLib", *library), ("slotId", "0"), ("objectId", *id)];
            let mut map: Configuration = pairs.into_iter().collect();
            Config::from_map(&mut map).unwrap()
        });
        let keyring = Keyring::default();
        let add = |config| keyring.add(config, &TakenVariables::default()).unwrap();
        let numbers = configs.map(add).collect();
        (keyring, numbers)
    }

    #[test]
    fn keys_of_one_library_share_its_thread() {
        let configs = [("/no/a.so", "1"), ("/no/b.so", "1"), ("/no/a.so", "2")];
        let (keyring, numbers) = keyring(&configs);
        let numbered: Vec<_> = numbers.iter().map(|it| (it.library, it.key)).collect();
        assert_eq!(numbered, [(0, 0), (1, 0), (0, 1)]);
        assert_eq!(locked(&keyring.libraries).len(), 2);
        assert_eq!(keyring.library(numbers[1]), Path::new("/no/b.so"));
    }

    #[test]
    fn a_library_that_does_not_load_fails_each_request_and_ends() {
        let (keyring, numbers) = keyring(&[("/no/a.so", "1")]);
        for _ in 0..2 {
            let error = keyring.open(numbers[0], Box::new(|_| ())).unwrap_err();
            assert_eq!(error.exit_code(), 4, "{error}");
            assert!(error.to_string().contains("does not load"), "{error}");
        }
        let error = keyring.sign(numbers[0], Scheme::Ed25519, Vec::new()).unwrap_err();
        assert_eq!(error.exit_code(), 4);
        keyring.finish(0);
        assert_eq!(keyring.open(numbers[0], Box::new(|_| ())).unwrap_err().exit_code(), 70);
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
