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
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use crate::certificate::{of_subject, renewal_remedy};
use crate::config::{Config, InitArgs, PinSource, TokenName};
use crate::error::Error;
use crate::pin::PinProvider;
use crate::pin_entry::{self, Sources};
use crate::pipeline::{KeyReference, Library, LibraryLock, Pipeline, SigningKey, StageObserver};
use crate::process::environment::TakenVariables;
use crate::process::{RunError, lock, unix_time};
use crate::scheme::Scheme;
use crate::token::{
    AcceptedPin, LoginError, ModuleError, ObjectError, SigningError, Token, TokenError,
};
use crate::verify::VerifiedSignature;

/// How long a token may take for a reply while a client waits; a person may have to touch it.
const REPLY_LIMIT: Duration = Duration::from_secs(60);

/// How long a library's thread may take to finalise it; one that waits for a token is left behind.
const FINISH_LIMIT: Duration = Duration::from_secs(2);

/// A configured key: which library's thread serves it, and its place there.
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
    /// Why a server refuses the certificate.
    pub concerns: Vec<String>,
    /// When the certificate expires, if that is to be said now.
    renewal: Mutex<Option<String>>,
}

impl OpenKey {
    /// When the certificate expires, in words, if that is to be said; once.
    pub fn take_renewal(&self) -> Option<String> {
        let mut renewal = self.renewal.lock().unwrap_or_else(PoisonError::into_inner);
        renewal.take()
    }

    /// The same as a warning.
    pub fn renewal_warning(&self) -> Option<String> {
        let expiry = self.take_renewal()?;
        let said = format!("{expiry}; {}", renewal_remedy());
        Some(of_subject(&self.subject, said))
    }

    /// Whether it can make a signature of TLS 1.3; an RSA key needs RSA-PSS for that.
    pub fn serves_tls_1_3(&self) -> bool {
        self.schemes.iter().any(Scheme::is_of_tls_1_3)
    }

    /// Why servers refuse it or will, now or soon.
    pub fn warnings(&self) -> Vec<String> {
        let subject = &self.subject;
        let concerns = self.concerns.iter();
        let mut warnings: Vec<_> = concerns.map(|it| of_subject(subject, it)).collect();
        if !self.serves_tls_1_3() {
            warnings.push(format!(
                "the key of {subject} can serve TLS 1.2 only, which not every server speaks: an RSA key \
                 needs RSA-PSS for TLS 1.3, and its token has none"
            ));
        }
        warnings
    }
}

/// Keys, and the threads of their libraries.
#[derive(Default)]
pub struct Keyring {
    libraries: Mutex<Vec<LibraryThread>>,
    /// Set when no question may be asked at the terminal any more.
    unattended: Arc<AtomicBool>,
    /// Whether its sessions can change their tokens.
    writes: bool,
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
    /// The names of tokens that were opened and are no longer there.
    Missing(Sender<Vec<String>>),
    /// The process ends with this code, even if the library hangs or crashes.
    Finish(u8, Sender<()>),
}

/// What is done on a key's token, in the session and the login of the keyring.
type TokenWork =
    Box<dyn FnMut(&mut Token<'_>, &KeyReference, &mut dyn PinProvider) -> Result<(), Error> + Send>;

/// Asks for a key to be opened, unless it is open, and to sign.
struct KeyRequest {
    key: usize,
    task: KeyTask,
    reply: Sender<Result<KeyReply, Error>>,
}

struct KeyTask {
    /// Whether a key that was closed is opened again.
    reopens: bool,
    client: Option<KeyClient>,
    observer: Box<dyn StageObserver + Send>,
    /// A scheme and a digest, if it is to sign.
    to_sign: Option<(Scheme, Vec<u8>)>,
    work: Option<TokenWork>,
}

impl KeyTask {
    fn open(client: Option<KeyClient>, observer: Box<dyn StageObserver + Send>) -> Self {
        Self { reopens: true, client, observer, to_sign: None, work: None }
    }

    fn of_client(to_sign: Option<(Scheme, Vec<u8>)>) -> Self {
        Self { reopens: false, client: None, observer: Box::new(()), to_sign, work: None }
    }
}

/// Who wants a key opened in a process that keeps keys for several clients.
pub struct KeyClient {
    /// In place of the key's own source of PINs. Its methods are called in the library's thread, and may
    /// block.
    pub pins: Box<dyn PinProvider + Send>,
    /// Whether it will have digests signed.
    pub signs: bool,
}

type KeyReply = (Arc<OpenKey>, Option<VerifiedSignature>);

impl Keyring {
    /// A keyring whose sessions can change their tokens.
    pub fn to_write() -> Self {
        Self { writes: true, ..Self::default() }
    }

    /// Adds a key, at any time. No library is loaded before a key is opened. The variable that the
    /// configuration names for the PIN must be among `variables`.
    ///
    /// # Errors
    /// [`RunError::Preparation`] if there is no thread for the library.
    pub fn add(&self, mut config: Config, variables: &TakenVariables) -> Result<KeyNumber, Error> {
        let pins = self.sources(&mut config, variables);
        self.place(config, pins, None, None)
    }

    /// [`Keyring::add`] with this provider in place of the configuration's source of PINs. Its methods are called
    /// in the library's thread, and may block.
    ///
    /// # Errors
    /// Those of [`Keyring::add`].
    pub fn add_with(
        &self,
        config: Config,
        pins: Box<dyn PinProvider + Send>,
    ) -> Result<KeyNumber, Error> {
        self.place(config, pins, None, None)
    }

    /// [`Keyring::add`] for the first key of a library that is open already. `accepted` is the PIN
    /// that its token has accepted.
    ///
    /// # Errors
    /// Those of [`Keyring::add`].
    pub fn add_open(
        &self,
        mut config: Config,
        library: Library,
        accepted: Option<AcceptedPin>,
    ) -> Result<KeyNumber, Error> {
        let pins = self.sources(&mut config, &TakenVariables::default());
        self.place(config, pins, Some(library), accepted)
    }

    /// The configuration's own source of PINs.
    fn sources(
        &self,
        config: &mut Config,
        variables: &TakenVariables,
    ) -> Box<dyn PinProvider + Send> {
        let source = mem::replace(&mut config.pin, PinSource::Prompt);
        let unattended = Arc::clone(&self.unattended);
        Box::new(Sources::for_run(source, variables, unattended))
    }

    fn place(
        &self,
        config: Config,
        pins: Box<dyn PinProvider + Send>,
        opened: Option<Library>,
        accepted: Option<AcceptedPin>,
    ) -> Result<KeyNumber, Error> {
        let path = config.library.path().to_owned();
        let mut threads = self.threads();
        let known = threads.iter().position(|thread| thread.path == path);
        let library = known.unwrap_or(threads.len());
        if known.is_none() {
            threads.push(LibraryThread::start(path, opened, accepted, self.writes)?);
        }
        let thread = threads.get_mut(library).ok_or_else(ended)?;
        let key =
            Box::new(ConfiguredKey { config, pins, token: None, is_closed: false, open_for: None });
        let sent = thread.requests.send(ThreadRequest::Add(key));
        sent.map_err(|_| ended())?;
        let key = thread.keys;
        thread.keys += 1;
        Ok(KeyNumber { library, key })
    }

    /// The path of the key's library.
    pub fn library(&self, key: KeyNumber) -> PathBuf {
        let threads = self.threads();
        let library = threads.get(key.library);
        library.map_or_else(PathBuf::new, |library| library.path.clone())
    }

    /// Opens the key, unless it is open, with a login if its token requires one. There is no limit
    /// of time; a person may be typing.
    ///
    /// # Errors
    /// Those of the stages of the [`pipeline`](crate::pipeline) up to the key.
    pub fn open(
        &self,
        key: KeyNumber,
        observer: Box<dyn StageObserver + Send>,
    ) -> Result<Arc<OpenKey>, Error> {
        Ok(self.request(key, KeyTask::open(None, observer), None)?.0)
    }

    /// [`Keyring::open`] for this client, which logs in to the token itself unless the key is open for
    /// clients like it.
    ///
    /// # Errors
    /// Those of [`Keyring::open`]. What was open stays so.
    pub fn open_for(
        &self,
        key: KeyNumber,
        client: KeyClient,
        observer: Box<dyn StageObserver + Send>,
    ) -> Result<Arc<OpenKey>, Error> {
        let task = KeyTask::open(Some(client), observer);
        Ok(self.request(key, task, None)?.0)
    }

    /// [`Keyring::open`] while a client waits, unless the key was closed.
    ///
    /// # Errors
    /// Those of [`Keyring::open`], and [`SigningError::NoReply`] after 60 s.
    pub fn open_in_time(&self, key: KeyNumber) -> Result<Arc<OpenKey>, Error> {
        let task = KeyTask::of_client(None);
        Ok(self.request(key, task, Some(REPLY_LIMIT))?.0)
    }

    /// Signs, and opens the key first if it isn't open, unless it was closed. For Ed25519 the digest
    /// is the whole message. Blocks up to 60 s.
    ///
    /// # Errors
    /// Those of [`Keyring::open_in_time`] and of [`Pipeline::sign`].
    pub fn sign(
        &self,
        key: KeyNumber,
        scheme: Scheme,
        digest: Vec<u8>,
    ) -> Result<VerifiedSignature, Error> {
        let task = KeyTask::of_client(Some((scheme, digest)));
        let (_, signature) = self.request(key, task, Some(REPLY_LIMIT))?;
        signature.ok_or_else(|| Error::internal("a reply without the signature"))
    }

    /// Has this done with the key's token, and opens the key first if it isn't open. There is no limit
    /// of time. The token can be changed only in a keyring [that writes](Keyring::to_write).
    ///
    /// # Errors
    /// Those of [`Keyring::open`] and of `work`.
    pub fn with_token<T: Send + 'static>(
        &self,
        key: KeyNumber,
        observer: Box<dyn StageObserver + Send>,
        mut work: impl FnMut(&mut Token<'_>, &KeyReference, &mut dyn PinProvider) -> Result<T, Error>
        + Send
        + 'static,
    ) -> Result<T, Error> {
        let (sender, made) = mpsc::channel();
        let mut task = KeyTask::open(None, observer);
        task.work = Some(Box::new(move |token, key, pins| {
            let _ = sender.send(work(token, key, pins)?);
            Ok(())
        }));
        self.request(key, task, None)?;
        made.try_recv().map_err(|_| Error::internal("work on a token without a result"))
    }

    /// Closes the key until it is [opened](Keyring::open) again. The last key of a token takes the
    /// session, the login and the PIN with it, and the last one of a library has it finalised
    /// (C_Finalize). Doesn't wait for that: it comes after the requests that were made before.
    pub fn close(&self, key: KeyNumber) {
        if let Some(library) = self.threads().get(key.library) {
            let _ = library.requests.send(ThreadRequest::Close(key.key));
        }
    }

    /// From now on the next [client](Keyring::open_for) logs in to use the key, which stays open for what uses
    /// it already.
    pub fn dismiss_clients(&self, key: KeyNumber) {
        if let Some(library) = self.threads().get(key.library) {
            let _ = library.requests.send(ThreadRequest::Dismiss(key.key));
        }
    }

    /// The names of the tokens that were opened and are no longer there.
    pub fn missing(&self) -> Vec<String> {
        let libraries = self.threads().clone();
        let replies = libraries.iter().filter_map(|library| {
            let (reply, missing) = mpsc::channel();
            library.requests.send(ThreadRequest::Missing(reply)).ok()?;
            missing.recv().ok()
        });
        replies.flatten().collect()
    }

    /// From now on, no PIN is asked for at the terminal: it is the command's, or there is none.
    pub fn leave_terminal(&self) {
        self.unattended.store(true, Ordering::Relaxed);
    }

    /// Finalises the libraries (C_Finalize); the process ends with `code` even if one hangs or
    /// crashes.
    pub fn finish(&self, code: u8) {
        let libraries = self.threads().clone();
        for library in libraries {
            let (reply, done) = mpsc::channel();
            let request = ThreadRequest::Finish(code, reply);
            if library.requests.send(request).is_ok() {
                let _ = done.recv_timeout(FINISH_LIMIT);
            }
        }
    }

    fn request(
        &self,
        KeyNumber { library, key }: KeyNumber,
        task: KeyTask,
        limit: Option<Duration>,
    ) -> Result<KeyReply, Error> {
        let library = self.threads().get(library).cloned().ok_or_else(ended)?;
        let (reply, answer) = mpsc::channel();
        let request = ThreadRequest::Key(KeyRequest { key, task, reply });
        library.requests.send(request).map_err(|_| ended())?;
        let Some(limit) = limit else {
            return answer.recv().map_err(|_| ended())?;
        };
        match answer.recv_timeout(limit) {
            Ok(outcome) => outcome,
            Err(RecvTimeoutError::Disconnected) => Err(ended()),
            Err(RecvTimeoutError::Timeout) => {
                library.lock.release();
                Err(SigningError::NoReply { library: library.path, seconds: limit.as_secs() }
                    .into())
            }
        }
    }

    fn threads(&self) -> MutexGuard<'_, Vec<LibraryThread>> {
        self.libraries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn ended() -> Error {
    Error::internal("the thread of a library has ended")
}

impl KeyRequest {
    /// Ends the request: what was given for it is dropped before the reply.
    fn answer(self, outcome: Result<KeyReply, Error>) {
        drop(self.task);
        let _ = self.reply.send(outcome);
    }
}

impl LibraryThread {
    fn start(
        path: PathBuf,
        library: Option<Library>,
        accepted: Option<AcceptedPin>,
        writes: bool,
    ) -> Result<Self, RunError> {
        let (sender, requests) = mpsc::channel();
        let lock = library.as_ref().map(|library| library.lock.clone());
        let lock = lock.unwrap_or_default();
        let worker = Worker {
            keys: Vec::new(),
            requests,
            library,
            lock: lock.clone(),
            accepted: accepted.into_iter().collect(),
            lost: Vec::new(),
            writes,
        };
        let thread = thread::Builder::new().name("token".to_owned());
        let thread = thread.spawn(move || worker.run());
        thread.map_err(|error| RunError::Preparation {
            reason: format!("no thread for a token: {error}"),
        })?;
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

impl ConfiguredKey {
    fn is_open_for(&self, client: &KeyClient) -> bool {
        self.open_for.is_some_and(|signs| signs || !client.signs)
    }
}

/// What a library's thread has, beside the tokens that are open.
struct Worker {
    keys: Vec<ConfiguredKey>,
    requests: Receiver<ThreadRequest>,
    /// `None` while it is closed, or in use by [`Worker::run`].
    library: Option<Library>,
    lock: LibraryLock,
    /// For tokens that are opened again.
    accepted: Vec<AcceptedPin>,
    /// The tokens that were open when the library was last closed.
    lost: Vec<TokenName>,
    writes: bool,
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
                Next::Serve(mut request) => match self.open_library(&mut request) {
                    Ok(library) => {
                        let next = self.serve(&library, request);
                        match next {
                            Next::Serve(_) => library.close(),
                            _ => self.library = Some(library),
                        }
                        next
                    }
                    Err(error) => {
                        self.lock.release();
                        request.answer(Err(error));
                        self.next(&mut Vec::new())
                    }
                },
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
                    let key = self.keys.get(request.key);
                    match key.is_some_and(|key| key.is_closed) && !request.task.reopens {
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
                Ok(ThreadRequest::Missing(reply)) => drop(reply.send(self.missing(tokens))),
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
        self.lost.retain(is_held);
    }

    /// The names of the open tokens that are missing; if none is open, of those that were.
    fn missing(&self, tokens: &[OpenToken<'_>]) -> Vec<String> {
        if tokens.is_empty() {
            return self.lost.iter().map(TokenName::to_string).collect();
        }
        let tokens = tokens.iter().map(|open| &open.token);
        let missing = tokens.filter(|token| token.is_missing());
        missing.map(Token::name).collect()
    }

    fn open_library(&mut self, request: &mut KeyRequest) -> Result<Library, Error> {
        if let Some(library) = self.library.take() {
            return Ok(library);
        }
        let config = &self.keys.get(request.key).ok_or_else(unknown_key)?.config;
        let (init_args, lock) = (config.init_args.as_ref(), self.lock.clone());
        let library = &config.library;
        let observer = &mut *request.task.observer;
        let on_wait = pin_entry::show_after;
        Library::open(library, init_args, on_wait, lock, lock::LIMIT, observer)
    }

    /// Serves this request and those that follow. [`Next::Serve`] is a request whose token was lost:
    /// the library has to be opened again for it.
    fn serve(&mut self, library: &Library, first: KeyRequest) -> Next {
        let config = self.keys.get(first.key).map(|key| &key.config);
        let mut open = OpenKeys {
            library,
            init_args: config.and_then(|config| config.init_args.clone()),
            tokens: Vec::new(),
            writes: self.writes,
        };
        let mut request = first;
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
        let tokens: Vec<_> = tokens.collect();
        if !tokens.is_empty() {
            let names = tokens.iter().map(|token| token.state().name.clone());
            self.lost = names.collect();
        }
        let accepted = tokens.into_iter().filter_map(Token::into_accepted_pin);
        self.accepted.extend(accepted);
        next
    }

    fn serve_one(
        &mut self,
        open: &mut OpenKeys<'_>,
        request: &mut KeyRequest,
    ) -> Result<KeyReply, Error> {
        let KeyRequest { key: number, task, .. } = request;
        let key = self.keys.get_mut(*number).ok_or_else(unknown_key)?;
        let client = task.client.as_ref();
        let logs_in = client.is_some_and(|client| !key.is_open_for(client));
        let signs = client.is_some_and(|client| client.signs);
        let ConfiguredKey { config, pins, .. } = key;
        let pins: &mut dyn PinProvider = match &mut task.client {
            Some(client) => &mut *client.pins,
            None => &mut **pins,
        };
        let mut pipeline = Pipeline { config, observer: &mut *task.observer };
        let place = open.place(*number).filter(|_| !logs_in);
        // Work that looks and then writes is one process's at a time.
        if place.is_none() || task.work.is_some() {
            let (lock, library) = (&self.lock, &config.library);
            lock.acquire(library, lock::LIMIT, pipeline.observer)?;
        }
        let place = match place {
            Some(place) => place,
            None => open.open(*number, &mut pipeline, pins, &mut self.accepted, logs_in)?,
        };
        let OpenToken { token, keys } = open.tokens.get_mut(place).ok_or_else(unknown_key)?;
        let opened = keys.get(number).ok_or_else(unknown_key)?;
        key.token = Some(token.state().name.clone());
        key.is_closed = false;
        if logs_in {
            key.open_for = Some(signs);
        }
        if let Some(work) = &mut task.work {
            work(token, &opened.key.reference, pins)?;
        }
        let to_sign = task.to_sign.as_ref();
        let signature = to_sign
            .map(|(scheme, digest)| pipeline.sign(token, &opened.key, *scheme, digest, pins));
        Ok((Arc::clone(&opened.shown), signature.transpose()?))
    }
}

/// The tokens and keys that are open in a library.
struct OpenKeys<'m> {
    library: &'m Library,
    init_args: Option<InitArgs>,
    tokens: Vec<OpenToken<'m>>,
    writes: bool,
}

/// One session and one login for all keys of a token.
struct OpenToken<'m> {
    token: Token<'m>,
    /// By their places among the library's.
    keys: HashMap<usize, OpenedKey>,
}

struct OpenedKey {
    key: SigningKey,
    shown: Arc<OpenKey>,
}

impl OpenKeys<'_> {
    /// The place of the token with which this key is open.
    fn place(&self, number: usize) -> Option<usize> {
        let mut tokens = self.tokens.iter();
        tokens.position(|open| open.keys.contains_key(&number))
    }

    /// Opens the key; the place of its token. If the client `logs_in`, it does so in a session of its own:
    /// a login is the process's, whichever key it was made for. Other keys are then opened again when
    /// they are used.
    fn open(
        &mut self,
        number: usize,
        pipeline: &mut Pipeline<'_>,
        pins: &mut dyn PinProvider,
        accepted: &mut Vec<AcceptedPin>,
        logs_in: bool,
    ) -> Result<usize, Error> {
        let (library, tokens, writes) = (self.library, &mut self.tokens, self.writes);
        let config = pipeline.config;
        if config.init_args != self.init_args {
            return Err(
                ModuleError::OtherInitArgs { path: library.module.path().to_owned() }.into()
            );
        }
        let place = library.token_with(&config.token, Some(pins), |found| {
            let name = found.name();
            let known = tokens.iter().position(|open| open.token.name() == name);
            if let Some(place) = known {
                if !logs_in {
                    // Before a PIN is sent to it.
                    tokens.get(place).ok_or_else(unknown_key)?.token.check_session()?;
                    return Ok(place);
                }
                accepted.extend(tokens.swap_remove(place).token.close_keeping_pin());
            }
            let mut token = match writes {
                true => found.open_to_write(&library.module)?,
                false => found.open(&library.module)?,
            };
            if logs_in {
                token.forget_tries();
            } else {
                token.recall(accepted);
            }
            let keys = HashMap::new();
            tokens.push(OpenToken { token, keys });
            Ok(tokens.len() - 1)
        })?;
        let opened = tokens.get_mut(place).ok_or_else(unknown_key)?;
        match opened.open(pipeline, pins) {
            Ok(key) => opened.keys.insert(number, key),
            Err(error) if logs_in => {
                // The next to use another key of it recalls the PIN.
                tokens.swap_remove(place).token.close();
                return Err(error);
            }
            Err(error) => return Err(error),
        };
        if logs_in {
            let name = &opened.token.state().name;
            accepted.retain(|pin| !pin.token().is_same_token(name));
        }
        Ok(place)
    }
}

impl OpenToken<'_> {
    fn open(
        &mut self,
        pipeline: &mut Pipeline<'_>,
        pins: &mut dyn PinProvider,
    ) -> Result<OpenedKey, Error> {
        let token = &mut self.token;
        let identity = pipeline.identity(token, Some(pins))?;
        let certificate = &identity.certificate;
        let schemes = pipeline.tls_schemes(token, certificate.public_key())?;
        let key = pipeline.key(token, identity.key().clone(), pins)?;
        let shown = Arc::new(OpenKey {
            chain: identity.chain(token)?,
            subject: certificate.subject.clone(),
            schemes,
            concerns: certificate.concerns(unix_time()),
            renewal: Mutex::new(identity.renewal_of_today()),
        });
        Ok(OpenedKey { key, shown })
    }
}

/// Whether opening the token again could help. A PIN that was refused stays refused.
fn may_be_lost(error: &Error) -> bool {
    if let Some(error) = error.downcast_ref() {
        // While another process has the token, nothing is known of it.
        !matches!(error, TokenError::Busy { .. })
    } else if let Some(error) = error.downcast_ref() {
        // What is not on the token isn't there after the next login either.
        matches!(error, ObjectError::Call { .. })
    } else if let Some(error) = error.downcast_ref() {
        matches!(error, SigningError::Call { .. } | SigningError::Refused { .. })
    } else {
        let error = error.downcast_ref::<LoginError>();
        error.is_some_and(LoginError::is_a_failed_call)
    }
}

fn unknown_key() -> Error {
    Error::internal("a key without a configuration")
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::pin::PinKind;
    use crate::protocol::Configuration;
    use crate::token::CallFailure;

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
        let places: Vec<_> = numbers.iter().map(|it| (it.library, it.key)).collect();
        assert_eq!(places, [(0, 0), (1, 0), (0, 1)]);
        assert_eq!(keyring.threads().len(), 2);
        assert_eq!(keyring.library(numbers[1]), Path::new("/no/b.so"));
    }

    #[test]
    fn a_library_that_does_not_load_fails_each_request_and_ends() {
        let (keyring, numbers) = keyring(&[("/no/a.so", "1")]);
        for _ in 0..2 {
            let error = keyring.open(numbers[0], Box::new(())).unwrap_err();
            assert!(matches!(error.downcast_ref(), Some(ModuleError::Load { .. })), "{error}");
        }
        let error = keyring.sign(numbers[0], Scheme::Ed25519, Vec::new()).unwrap_err();
        assert_eq!(error.exit_code(), 4);
        assert_eq!(keyring.missing(), [""; 0]);
        keyring.finish(0);
        assert_eq!(keyring.open(numbers[0], Box::new(())).unwrap_err().exit_code(), 70);
    }

    #[test]
    fn a_token_is_opened_again_after_a_failed_call_and_not_after_a_refusal() {
        let failure =
            CallFailure { function: "C_Sign".to_owned(), reason: "CKR_DEVICE_REMOVED".to_owned() };
        let token = "\"prod\"".to_owned();
        for (error, is_lost) in [
            (TokenError::Removed { token: token.clone(), failure: failure.clone() }.into(), true),
            (TokenError::Busy { waited: Duration::ZERO, holder: None }.into(), false),
            (LoginError::Call { token: token.clone(), failure }.into(), true),
            (LoginError::Locked { kind: PinKind::User, token }.into(), false),
        ] {
            assert_eq!(may_be_lost(&error), is_lost, "{error}");
        }
    }
}
