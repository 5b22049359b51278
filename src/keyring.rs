//! The keys of a run: tokens that stay open, with one session each, from their first use to the
//! end.
//!
//! A PKCS#11 session belongs to one thread at a time, so each library has a thread that alone
//! calls it. Other threads send requests there and wait for the reply, with a limit while a command
//! runs. If a token was removed and inserted again, its library is finalised and opened once more:
//! some libraries don't see the token again otherwise.

#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::mem;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

use crate::config::{Config, InitArgs, PinSource};
use crate::error::Error;
use crate::pin_entry::{self, Sources};
use crate::pipeline::{Library, LibraryLock, Pipeline, SigningKey, StageObserver};
use crate::process::environment::TakenVariables;
use crate::process::{RunError, lock, unix_time};
use crate::scheme::Scheme;
use crate::token::{
    AcceptedPin, LoginError, ModuleError, ObjectError, SigningError, Token, TokenError,
};
use crate::verify::VerifiedSignature;

/// How long a token may take for a reply while a command runs; a person may have to touch it.
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
    /// Why a server will refuse the certificate, now or soon.
    pub concerns: Vec<String>,
}

impl OpenKey {
    /// Whether it can make a signature of TLS 1.3; an RSA key needs RSA-PSS for that.
    pub fn serves_tls_1_3(&self) -> bool {
        self.schemes.iter().any(Scheme::is_of_tls_1_3)
    }
}

/// Is called when another process, with this number if it is known, has had a library for a while;
/// not once the terminal belongs to the command.
pub type WaitNotice = fn(Option<u32>);

/// All keys of a run.
pub struct Keyring {
    libraries: Vec<LibraryThread>,
    /// Set when the terminal belongs to the command.
    unattended: Arc<AtomicBool>,
}

/// A library's thread, as the others see it.
struct LibraryThread {
    path: PathBuf,
    requests: Sender<ThreadRequest>,
    /// Held while a token is opened; released if the library hangs.
    lock: LibraryLock,
}

/// What a library's thread can be asked for.
enum ThreadRequest {
    Key(KeyRequest),
    /// The names of tokens that were opened and are no longer there.
    Missing(Sender<Vec<String>>),
    /// The process ends with this code, even if the library hangs or crashes.
    Finish(u8, Sender<()>),
}

/// Asks for a key to be opened, unless it is open, and to sign.
struct KeyRequest {
    key: usize,
    /// A scheme and a digest, if it is to sign.
    to_sign: Option<(Scheme, Vec<u8>)>,
    reply: Sender<Result<KeyReply, Error>>,
}

type KeyReply = (Arc<OpenKey>, Option<VerifiedSignature>);

impl Keyring {
    /// Numbers the keys in the order of their configurations. No library is loaded before a key is
    /// opened. The variables that the configurations name for PINs must be among `variables`.
    /// `opened` is the library of the first key if it is open, and the PIN that its token has
    /// accepted.
    ///
    /// # Errors
    /// [`RunError::Preparation`] if there is no thread for a library.
    pub fn new(
        configs: Vec<Config>,
        variables: &TakenVariables,
        mut opened: Option<(Library, Option<AcceptedPin>)>,
        notice: WaitNotice,
    ) -> Result<(Self, Vec<KeyNumber>), Error> {
        let unattended = Arc::new(AtomicBool::new(false));
        let mut workers: Vec<(PathBuf, Worker, Sender<ThreadRequest>)> = Vec::new();
        let mut numbers = Vec::with_capacity(configs.len());
        for mut config in configs {
            let source = mem::replace(&mut config.pin, PinSource::Prompt);
            let pins = Sources::for_run(source, variables, Arc::clone(&unattended));
            let path = config.library.path().to_owned();
            let key = ConfiguredKey { config, pins };
            let known = workers.iter().position(|(known, ..)| *known == path);
            let library = known.unwrap_or(workers.len());
            numbers.push(KeyNumber {
                library,
                key: workers.get(library).map_or(0, |(_, it, _)| it.keys.len()),
            });
            match workers.get_mut(library) {
                Some((_, worker, _)) => worker.keys.push(key),
                None => {
                    let (sender, requests) = mpsc::channel();
                    let unattended = Arc::clone(&unattended);
                    let (library, accepted) = opened.take().unzip();
                    let lock = library.as_ref().map(|it| it.lock.clone());
                    let worker = Worker {
                        keys: vec![key],
                        requests,
                        lock: lock.unwrap_or_default(),
                        library,
                        waiting: Waiting { notice, unattended },
                        accepted: accepted.flatten().into_iter().collect(),
                        lost: Vec::new(),
                    };
                    workers.push((path, worker, sender));
                }
            }
        }
        let threads = workers.into_iter().map(|(path, worker, requests)| {
            let lock = worker.lock.clone();
            let thread = thread::Builder::new().name("token".to_owned());
            let thread = thread.spawn(move || worker.run());
            thread.map_err(|error| RunError::Preparation {
                reason: format!("no thread for a token: {error}"),
            })?;
            Ok::<_, RunError>(LibraryThread {
                path,
                requests,
                lock,
            })
        });
        let libraries = threads.collect::<Result<_, _>>()?;
        let keyring = Self {
            libraries,
            unattended,
        };
        Ok((keyring, numbers))
    }

    /// The path of the key's library.
    pub fn library(&self, key: KeyNumber) -> &Path {
        let library = self.libraries.get(key.library);
        library.map_or_else(|| Path::new(""), |library| &library.path)
    }

    /// Opens the key, unless it is open, with a login if its token requires one. There is no limit
    /// of time; a person may be typing.
    ///
    /// # Errors
    /// Those of the stages of the [`pipeline`](crate::pipeline) up to the key.
    pub fn open(&self, key: KeyNumber) -> Result<Arc<OpenKey>, Error> {
        Ok(self.request(key, None, None)?.0)
    }

    /// [`Keyring::open`] while a command runs and waits.
    ///
    /// # Errors
    /// Those of [`Keyring::open`], and [`SigningError::NoReply`] after 60 s.
    pub fn open_in_time(&self, key: KeyNumber) -> Result<Arc<OpenKey>, Error> {
        Ok(self.request(key, None, Some(REPLY_LIMIT))?.0)
    }

    /// Signs, and opens the key first if it isn't open. For Ed25519 the digest is the whole
    /// message. Blocks up to 60 s.
    ///
    /// # Errors
    /// Those of [`Keyring::open_in_time`] and of [`Pipeline::sign`].
    pub fn sign(
        &self,
        key: KeyNumber,
        scheme: Scheme,
        digest: Vec<u8>,
    ) -> Result<VerifiedSignature, Error> {
        let (_, signature) = self.request(key, Some((scheme, digest)), Some(REPLY_LIMIT))?;
        signature.ok_or_else(|| Error::internal("a reply without the signature"))
    }

    /// The names of the tokens that were opened and are no longer there.
    pub fn missing(&self) -> Vec<String> {
        let replies = self.libraries.iter().filter_map(|library| {
            let (reply, missing) = mpsc::channel();
            library.requests.send(ThreadRequest::Missing(reply)).ok()?;
            missing.recv().ok()
        });
        replies.flatten().collect()
    }

    /// From now on, no PIN is asked for: the terminal is the command's.
    pub fn leave_terminal(&self) {
        self.unattended.store(true, Ordering::Relaxed);
    }

    /// Finalises the libraries (C_Finalize); the process ends with `code` even if one hangs or
    /// crashes.
    pub fn finish(&self, code: u8) {
        for library in &self.libraries {
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
        to_sign: Option<(Scheme, Vec<u8>)>,
        limit: Option<Duration>,
    ) -> Result<KeyReply, Error> {
        let ended = || Error::internal("the thread of a library has ended");
        let library = self.libraries.get(library).ok_or_else(ended)?;
        let (reply, answer) = mpsc::channel();
        let request = ThreadRequest::Key(KeyRequest {
            key,
            to_sign,
            reply,
        });
        library.requests.send(request).map_err(|_| ended())?;
        let Some(limit) = limit else {
            return answer.recv().map_err(|_| ended())?;
        };
        match answer.recv_timeout(limit) {
            Ok(outcome) => outcome,
            Err(RecvTimeoutError::Disconnected) => Err(ended()),
            Err(RecvTimeoutError::Timeout) => {
                library.lock.release();
                Err(SigningError::NoReply {
                    library: library.path.clone(),
                    seconds: limit.as_secs(),
                }
                .into())
            }
        }
    }
}

struct ConfiguredKey {
    /// Its PIN source is in `pins`.
    config: Config,
    pins: Sources,
}

struct Waiting {
    notice: WaitNotice,
    unattended: Arc<AtomicBool>,
}

impl StageObserver for Waiting {
    fn waiting(&mut self, holder: Option<u32>) {
        if !self.unattended.load(Ordering::Relaxed) {
            (self.notice)(holder);
        }
    }
}

/// What a library's thread has, beside the tokens that are open.
struct Worker {
    keys: Vec<ConfiguredKey>,
    requests: Receiver<ThreadRequest>,
    /// `None` while it is closed, or in use by [`Worker::run`].
    library: Option<Library>,
    lock: LibraryLock,
    waiting: Waiting,
    /// For tokens that are opened again.
    accepted: Vec<AcceptedPin>,
    /// The tokens that were open when the library was last closed.
    lost: Vec<String>,
}

/// What a library's thread does next.
enum Next {
    Serve(KeyRequest),
    Finish(u8, Sender<()>),
    /// The keyring is gone.
    End,
}

impl Worker {
    /// Opens the library when there is a request for a key, and again when a token was lost.
    fn run(mut self) {
        let mut next = self.next(&[]);
        loop {
            next = match next {
                Next::Serve(request) => match self.open_library(request.key) {
                    Ok(library) => {
                        let next = self.serve(&library, request);
                        match next {
                            Next::Serve(_) => library.close(),
                            Next::Finish(..) | Next::End => self.library = Some(library),
                        }
                        next
                    }
                    Err(error) => {
                        self.lock.release();
                        let _ = request.reply.send(Err(error));
                        self.next(&[])
                    }
                },
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
    fn next(&self, tokens: &[Token<'_>]) -> Next {
        loop {
            match self.requests.recv() {
                Ok(ThreadRequest::Key(request)) => return Next::Serve(request),
                Ok(ThreadRequest::Finish(code, reply)) => return Next::Finish(code, reply),
                Ok(ThreadRequest::Missing(reply)) => drop(reply.send(self.missing(tokens))),
                Err(_) => return Next::End,
            }
        }
    }

    /// The names of the open tokens that are missing; if none is open, of those that were.
    fn missing(&self, tokens: &[Token<'_>]) -> Vec<String> {
        if tokens.is_empty() {
            return self.lost.clone();
        }
        let missing = tokens.iter().filter(|token| token.is_missing());
        missing.map(Token::name).collect()
    }

    fn open_library(&mut self, key: usize) -> Result<Library, Error> {
        if let Some(library) = self.library.take() {
            return Ok(library);
        }
        let config = &self.keys.get(key).ok_or_else(unknown_key)?.config;
        let (init_args, lock) = (config.init_args.as_ref(), self.lock.clone());
        let library = &config.library;
        let library = Library::open(library, init_args, lock, lock::LIMIT, &mut self.waiting)?;
        Ok(library.with_wait_observer(pin_entry::show_after))
    }

    /// Serves this request and those that follow. [`Next::Serve`] is a request whose token was lost:
    /// the library has to be opened again for it.
    fn serve(&mut self, library: &Library, first: KeyRequest) -> Next {
        let config = self.keys.get(first.key).map(|key| &key.config);
        let mut open = OpenKeys {
            library,
            init_args: config.and_then(|config| config.init_args.clone()),
            tokens: Vec::new(),
            keys: HashMap::new(),
        };
        let mut request = first;
        let next = loop {
            let was_open = self.keys.get(request.key).is_some_and(|key| {
                let mut tokens = open.tokens.iter();
                tokens.any(|token| token.state().fits(&key.config.token))
            });
            match self.answer(&mut open, &request) {
                Err(error) if was_open && may_be_lost(&error) => break Next::Serve(request),
                outcome => drop(request.reply.send(outcome)),
            }
            self.lock.release();
            match self.next(&open.tokens) {
                Next::Serve(next) => request = next,
                end => break end,
            }
        };
        if !open.tokens.is_empty() {
            self.lost = open.tokens.iter().map(Token::name).collect();
        }
        let tokens = open.tokens.into_iter();
        let accepted = tokens.filter_map(Token::into_accepted_pin);
        self.accepted.extend(accepted);
        next
    }

    fn answer(&mut self, open: &mut OpenKeys<'_>, request: &KeyRequest) -> Result<KeyReply, Error> {
        let key = self.keys.get_mut(request.key).ok_or_else(unknown_key)?;
        if !open.keys.contains_key(&request.key) {
            let (lock, library) = (&self.lock, &key.config.library);
            lock.acquire(library, lock::LIMIT, &mut self.waiting)?;
            let opened = open.open(key, &mut self.accepted)?;
            open.keys.insert(request.key, opened);
        }
        let opened = open.keys.get(&request.key).ok_or_else(unknown_key)?;
        let token = open.tokens.get_mut(opened.token).ok_or_else(unknown_key)?;
        let ConfiguredKey { config, pins } = key;
        let observer = &mut ();
        let mut pipeline = Pipeline { config, observer };
        let to_sign = request.to_sign.as_ref();
        let signature = to_sign
            .map(|(scheme, digest)| pipeline.sign(token, &opened.key, *scheme, digest, pins));
        Ok((Arc::clone(&opened.shown), signature.transpose()?))
    }
}

/// The tokens and keys that are open in a library.
struct OpenKeys<'m> {
    library: &'m Library,
    init_args: Option<InitArgs>,
    /// One session and one login each, for all its keys.
    tokens: Vec<Token<'m>>,
    keys: HashMap<usize, OpenedKey>,
}

struct OpenedKey {
    /// Its place in [`OpenKeys::tokens`].
    token: usize,
    key: SigningKey,
    shown: Arc<OpenKey>,
}

impl OpenKeys<'_> {
    fn open(
        &mut self,
        key: &mut ConfiguredKey,
        accepted: &mut Vec<AcceptedPin>,
    ) -> Result<OpenedKey, Error> {
        let ConfiguredKey { config, pins } = key;
        let (library, tokens) = (self.library, &mut self.tokens);
        if config.init_args != self.init_args {
            return Err(ModuleError::OtherInitArgs {
                path: library.module.path().to_owned(),
            }
            .into());
        }
        let place = library.token_with(&config.token, Some(pins), |found| {
            let name = found.name();
            let mut open = tokens.iter().enumerate();
            if let Some((place, known)) = open.find(|(_, token)| token.name() == name) {
                // Before a PIN is sent to it.
                known.check_session()?;
                return Ok(place);
            }
            let mut opened = found.open(&library.module)?;
            opened.recall(accepted);
            tokens.push(opened);
            Ok(tokens.len() - 1)
        })?;
        let token = tokens.get_mut(place).ok_or_else(unknown_key)?;
        let observer = &mut ();
        let mut pipeline = Pipeline { config, observer };
        let identity = pipeline.identity(token, Some(pins))?;
        let schemes = pipeline.tls_schemes(token, &identity)?;
        let key = pipeline.key(token, identity, pins)?;
        let certificate = &key.identity.certificate;
        let shown = OpenKey {
            chain: key.identity.chain(token)?,
            subject: certificate.subject().to_owned(),
            schemes,
            concerns: certificate.concerns(unix_time()),
        };
        Ok(OpenedKey {
            token: place,
            key,
            shown: Arc::new(shown),
        })
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
        matches!(
            error,
            SigningError::Call { .. } | SigningError::Refused { .. }
        )
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
    use super::*;
    use crate::protocol::Configuration;
    use crate::token::CallFailure;

    /// Keys by their libraries and object ids.
    fn keyring(keys: &[(&str, &str)]) -> (Keyring, Vec<KeyNumber>) {
        let configs = keys.iter().map(|(library, id)| {
            let pairs = [("pathLib", *library), ("slotId", "0"), ("objectId", *id)];
            let mut map: Configuration = pairs.into_iter().collect();
            Config::from_map(&mut map).unwrap()
        });
        Keyring::new(configs.collect(), &TakenVariables::default(), None, |_| {}).unwrap()
    }

    #[test]
    fn keys_of_one_library_share_its_thread() {
        let configs = [("/no/a.so", "1"), ("/no/b.so", "1"), ("/no/a.so", "2")];
        let (keyring, numbers) = keyring(&configs);
        let places: Vec<_> = numbers.iter().map(|it| (it.library, it.key)).collect();
        assert_eq!(places, [(0, 0), (1, 0), (0, 1)]);
        assert_eq!(keyring.libraries.len(), 2);
        assert_eq!(keyring.library(numbers[1]), Path::new("/no/b.so"));
    }

    #[test]
    fn a_library_that_does_not_load_fails_each_request_and_ends() {
        let (keyring, numbers) = keyring(&[("/no/a.so", "1")]);
        for _ in 0..2 {
            let error = keyring.open(numbers[0]).unwrap_err();
            assert!(
                matches!(error.downcast_ref(), Some(ModuleError::Load { .. })),
                "{error}"
            );
        }
        let error = keyring
            .sign(numbers[0], Scheme::Ed25519, Vec::new())
            .unwrap_err();
        assert_eq!(error.exit_code(), 4);
        assert_eq!(keyring.missing(), [""; 0]);
        keyring.finish(0);
        assert_eq!(keyring.open(numbers[0]).unwrap_err().exit_code(), 70);
    }

    #[test]
    fn a_token_is_opened_again_after_a_failed_call_and_not_after_a_refusal() {
        let failure = CallFailure {
            function: "C_Sign".to_owned(),
            reason: "CKR_DEVICE_REMOVED".to_owned(),
        };
        let token = "\"prod\"".to_owned();
        for (error, is_lost) in [
            (
                TokenError::Removed {
                    token: token.clone(),
                    failure: failure.clone(),
                }
                .into(),
                true,
            ),
            (
                TokenError::Busy {
                    waited: Duration::ZERO,
                    holder: None,
                }
                .into(),
                false,
            ),
            (
                LoginError::Call {
                    token: token.clone(),
                    failure,
                }
                .into(),
                true,
            ),
            (LoginError::Locked { token }.into(), false),
        ] {
            assert_eq!(may_be_lost(&error), is_lost, "{error}");
        }
    }
}
