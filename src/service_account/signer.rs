//! The signer: its keys, the process of the token that signs with them, and what happens when that is lost.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, watch};
use tokio::time::timeout_at;

use crate::counters::Counters;
use crate::externaljwt::{FetchKeysResponse, Key, MetadataResponse, SignJwtResponse, Timestamp};
use crate::history_file;
use crate::key_list::{KeyList, KeyListSource, KeyPlace, ListedKey};
use crate::published_key::{PublishedKey, SigningKey};
use crate::rotation::{KeyHistory, KeyState, Timing, seconds};
use crate::signing_process::{FAILED_WITHOUT_PIN, NoSignature, OpenedProcess, SigningProcess};
use crate::status::{PublishedKeyStatus, SignerStatus, TokenStatus};
use crypto::jose::signature_part;
use crypto::scheme::{Scheme, ecdsa};
use messages::error::{DOCUMENT_VERSION, Error, Exit};
use messages::report;
use protocol::Configuration;
use system::activation::ServiceManager;
use system::clock::unix_time;
use system::environment::TakenVariables;
use system::limits::service_account as limits;
use system::locked;

/// How many processes are asked for one signature, one after the other.
const TRIES: usize = 3;

/// What a signer is told when it starts.
pub struct SignerOptions {
    pub keys: KeyListSource,
    /// What the list doesn't say of the library, the token and the PIN.
    pub base: Configuration,
    pub timing: Timing,
    /// How many signatures the token makes at the same time, at most.
    pub sessions: usize,
    /// The file with the history of the keys.
    pub history: PathBuf,
}

pub(crate) struct Signer {
    options: SignerOptions,
    variables: TakenVariables,
    manager: ServiceManager,
    /// The list that was opened last, or is to be.
    list: Mutex<ReadList>,
    published: Mutex<Arc<PublishedKeys>>,
    history: Mutex<KeyHistory>,
    /// Whether the file lacks something of it.
    has_news: AtomicBool,
    signing: watch::Sender<Signing>,
    reload: Notify,
    /// Set when no new requests are taken.
    is_ending: watch::Sender<bool>,
    pub(crate) counters: Counters,
    started: i64,
}

/// The list as it was read, with the keys of its files. A file that changes later counts from the next reading on.
#[derive(Clone)]
struct ReadList {
    lines: Vec<String>,
    /// For each line that names a file, in their order.
    in_files: Vec<Vec<PublishedKey>>,
}

impl ReadList {
    fn read(options: &SignerOptions) -> Result<Self, Error> {
        let lines = options.keys.lines()?;
        let list = KeyList::parse(&lines, &options.base);
        let list = list.map_err(|error| error.about(&options.keys))?;
        let in_file = |listed: &ListedKey| match &listed.place {
            KeyPlace::File(path) => Some(PublishedKey::in_file(listed, path)),
            KeyPlace::Token(_) => None,
        };
        let in_files = list.keys.iter().filter_map(in_file).collect::<Result<_, _>>()?;
        Ok(Self { lines, in_files })
    }
}

/// The keys as they were read.
#[derive(Default)]
struct PublishedKeys {
    keys: Vec<PublishedKey>,
    /// In seconds since 1970.
    read: i64,
}

/// Whether there is a process that signs.
#[derive(Clone)]
enum Signing {
    /// There will be one, or an error.
    Opening,
    Open(Arc<SigningKeys>),
    /// There is none, and another one is tried soon.
    Failed(Error),
    /// There is none until a person has done something.
    WaitsForPerson(Error),
}

/// Keys, and the process that signs with them.
struct SigningKeys {
    published: Arc<PublishedKeys>,
    process: Arc<SigningProcess>,
    /// Whether the process has made a signature that was verified.
    has_signed: AtomicBool,
}

/// Why there is no token.
pub(crate) enum NoToken {
    /// The token has not answered in time.
    Late(Error),
    Failed(Error),
}

impl Signer {
    /// A signer whose keys are still to be opened. An error for a list or a history that can't be read.
    pub(crate) fn new(
        options: SignerOptions,
        variables: TakenVariables,
        manager: ServiceManager,
    ) -> Result<Self, Error> {
        Ok(Self {
            list: Mutex::new(ReadList::read(&options)?),
            history: Mutex::new(history_file::read(&options.history)?),
            has_news: AtomicBool::new(false),
            published: Mutex::default(),
            signing: watch::Sender::new(Signing::Opening),
            reload: Notify::new(),
            is_ending: watch::Sender::new(false),
            counters: Counters::default(),
            started: unix_time(),
            options,
            variables,
            manager,
        })
    }

    /// The list is to be read again.
    pub(crate) fn reload(&self) {
        self.reload.notify_one();
    }

    /// Opens the keys for the first time. An error if the signer should not even start: what is wrong won't mend itself.
    pub(crate) async fn start(self: &Arc<Self>) -> Result<(), Error> {
        let list = locked(&self.list).clone();
        match self.open(list).await {
            Ok(opened) => self.use_keys(opened),
            Err(error) if may_mend_itself(&error) || error.exits_with(Exit::Login) => {
                self.cannot_open(error);
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// The signer takes no new requests. From now on a process is started only for requests that have lost theirs.
    pub(crate) fn end(&self) {
        self.is_ending.send_replace(true);
    }

    /// Opens the keys again whenever that is needed, until the signer ends and no request needs them.
    pub(crate) async fn supervise(self: Arc<Self>) {
        let mut is_ending = self.is_ending.subscribe();
        let no_more = async {
            let _ = is_ending.wait_for(|is_ending| *is_ending).await;
            while self.counters.open_requests() > 0 {
                tokio::time::sleep(limits::LOOK).await;
            }
        };
        tokio::select! {
            () = no_more => {}
            () = self.keep_open() => {}
        }
    }

    async fn keep_open(self: &Arc<Self>) {
        let mut pause = limits::FIRST_PAUSE;
        loop {
            let signing = self.signing.borrow().clone();
            match signing {
                Signing::Opening => self.open_keys().await,
                Signing::Open(keys) => {
                    tokio::select! {
                        () = keys.process.lost() => {
                            self.signing.send_replace(Signing::Opening);
                            // One that opens its keys, and then can't sign, is not started again and again at once.
                            if keys.has_signed.load(Ordering::Relaxed) {
                                pause = limits::FIRST_PAUSE;
                            } else {
                                self.wait(&mut pause).await;
                            }
                        }
                        () = self.reload.notified() => self.read_again().await,
                    }
                }
                Signing::Failed(_) => {
                    self.wait(&mut pause).await;
                    // Meanwhile requests are refused as before.
                    self.open_keys().await;
                }
                Signing::WaitsForPerson(_) => {
                    self.reload.notified().await;
                    self.take_new_list();
                    self.signing.send_replace(Signing::Opening);
                }
            }
        }
    }

    /// Waits before the keys are opened again, unless they are to be read again; the next time for longer.
    async fn wait(&self, pause: &mut Duration) {
        tokio::select! {
            () = tokio::time::sleep(*pause) => {}
            () = self.reload.notified() => self.take_new_list(),
        }
        *pause = (*pause * 2).min(limits::LONGEST_PAUSE);
    }

    /// Opens the keys of the list. What keeps that from succeeding is told.
    async fn open_keys(self: &Arc<Self>) {
        let list = locked(&self.list).clone();
        match self.open(list).await {
            Ok(opened) => self.use_keys(opened),
            Err(error) => self.cannot_open(error),
        }
    }

    /// Reads the list again, and opens its keys. What is wrong with it is told, and the former keys are kept.
    async fn read_again(self: &Arc<Self>) {
        let read = async {
            let list = ReadList::read(&self.options)?;
            let opened = self.open(list.clone()).await?;
            *locked(&self.list) = list;
            Ok(opened)
        };
        match read.await {
            Ok(opened) => self.use_keys(opened),
            Err(error) => {
                self.counters.trouble(&error);
                report::error(&error);
                report::note("the former keys are kept");
            }
        }
    }

    /// Takes the list as it is now, if it can be read.
    fn take_new_list(&self) {
        match ReadList::read(&self.options) {
            Ok(list) => *locked(&self.list) = list,
            Err(error) => drop(report::error(&error)),
        }
    }

    /// Opens the keys of this list, in a new process.
    async fn open(self: &Arc<Self>, list: ReadList) -> Result<SigningKeys, Error> {
        self.counters.started();
        let signer = Arc::clone(self);
        let opened = tokio::task::spawn_blocking(move || signer.open_waiting(&list));
        opened.await.map_err(|error| Error::internal(format!("a thread: {error}")))?
    }

    /// Opens the keys in a thread of the runtime's that may wait.
    fn open_waiting(&self, read: &ReadList) -> Result<SigningKeys, Error> {
        let options = &self.options;
        let list = KeyList::parse(&read.lines, &options.base)
            .map_err(|error| error.about(&options.keys))?;
        let listed = list.keys.clone();
        let process = OpenedProcess::open(list, options.sessions, &self.variables)?;
        let keys = published_keys(&listed, &read.in_files, &process)?;
        Ok(SigningKeys {
            published: Arc::new(PublishedKeys { keys, read: unix_time() }),
            process: Arc::new(process.run()?),
            has_signed: AtomicBool::new(false),
        })
    }

    /// Signs with these keys from now on, and publishes them.
    fn use_keys(&self, keys: SigningKeys) {
        let published = Arc::clone(&keys.published);
        locked(&self.history).publish(&published.keys, unix_time());
        *locked(&self.published) = Arc::clone(&published);
        self.has_news.store(true, Ordering::Relaxed);
        self.write_history();
        self.signing.send_replace(Signing::Open(Arc::new(keys)));
        self.tell_signer(&published);
    }

    /// Keeps the error as the last trouble, and logs it if the one before was another.
    fn tell_trouble(&self, error: &Error) {
        if self.counters.trouble(error) {
            report::error(error);
        }
    }

    pub(crate) fn cannot_open(&self, error: Error) {
        self.tell_trouble(&error);
        self.manager.tell(&format!("STATUS={}", error.sentence()));
        let signing = if error.exits_with(Exit::Login) && !error.is(&FAILED_WITHOUT_PIN) {
            Signing::WaitsForPerson(error)
        } else {
            Signing::Failed(error)
        };
        self.signing.send_replace(signing);
    }

    /// The key whose turn it is to sign; `None` if no key signs.
    fn turn<'a>(&self, published: &'a PublishedKeys) -> Option<&'a PublishedKey> {
        let keys = &published.keys;
        keys.get(locked(&self.history).signer(keys, self.options.timing, unix_time())?)
    }

    /// Says which key signs.
    fn tell_signer(&self, published: &PublishedKeys) {
        if let Some(key) = self.turn(published) {
            let text = format!("signs with {} ({}, kid {})", key.name, key.public_key, key.id);
            report::note(&text);
            self.manager.tell(&format!("STATUS={text}"));
        }
    }

    /// Writes down what has changed, and tells of a key that signs from now on; for ever.
    pub(crate) async fn look_after_history(self: Arc<Self>) {
        let mut signer = None;
        loop {
            tokio::time::sleep(limits::LOOK).await;
            self.write_history();
            let published = Arc::clone(&locked(&self.published));
            let now = self.turn(&published).map(|key| key.id.clone());
            if signer.is_some() && now.is_some() && signer != now {
                self.tell_signer(&published);
            }
            signer = now;
        }
    }

    /// Writes the history, if it has changed.
    pub(crate) fn write_history(&self) {
        if !self.has_news.swap(false, Ordering::Relaxed) {
            return;
        }
        let history = locked(&self.history).clone();
        if let Err(error) = history_file::write(&self.options.history, &history) {
            self.has_news.store(true, Ordering::Relaxed);
            self.tell_trouble(&error);
        }
    }

    /// Header and signature for these claims; the caller joins the three parts with dots. By the deadline there is an answer.
    pub(crate) async fn token(
        &self,
        claims: &str,
        deadline: tokio::time::Instant,
    ) -> Result<SignJwtResponse, NoToken> {
        let started = Instant::now();
        match timeout_at(deadline, self.token_some_time(claims)).await {
            Ok(Ok(signed)) => {
                self.counters.signed(&signed.key, started.elapsed());
                Ok(signed.response)
            }
            Ok(Err(error)) => {
                self.tell_trouble(&error);
                Err(NoToken::Failed(error))
            }
            Err(_) => Err(NoToken::Late(self.late(started.elapsed()))),
        }
    }

    async fn token_some_time(&self, claims: &str) -> Result<SignedToken, Error> {
        let mut signing = self.signing.subscribe();
        let mut error = None;
        for _ in 0..TRIES {
            let found = signing.wait_for(|signing| !matches!(signing, Signing::Opening)).await;
            let found = found.map(|found| found.clone());
            let keys = match found.map_err(|_| Error::internal("the signer has ended"))? {
                Signing::Open(keys) => keys,
                Signing::Failed(error) | Signing::WaitsForPerson(error) => return Err(error),
                Signing::Opening => continue,
            };
            match self.signed(&keys, claims).await {
                Err(NoSignature::ProcessLost(lost)) => {
                    self.counters.trouble(&lost);
                    error = Some(lost);
                    let is_other = |now: &Signing| !matches!(now, Signing::Open(now) if Arc::ptr_eq(now, &keys));
                    let _ = signing.wait_for(is_other).await;
                }
                Err(NoSignature::Refused(error)) => return Err(error),
                Ok(signed) => return Ok(signed),
            }
        }
        Err(error.unwrap_or_else(|| Error::internal("no try was made")))
    }

    /// Signs with the key whose turn it is.
    async fn signed(&self, keys: &SigningKeys, claims: &str) -> Result<SignedToken, NoSignature> {
        let turn = self.turn(&keys.published);
        let Some((key, signing)) = turn.and_then(|key| Some((key, key.signing.as_ref()?))) else {
            return Err(NoSignature::Refused(Error::internal("no key signs")));
        };
        let SigningKey { number, algorithm, header, .. } = signing;
        let now = unix_time();
        let digest = algorithm.hash.digest(&[header.as_bytes(), b".", claims.as_bytes()]);
        let digest = digest.unwrap_or_default();
        let signature = keys.process.sign(*number, algorithm.scheme, &digest).await?;
        let signature = verified(key, signing, &digest, signature);
        let signature = signature.map_err(NoSignature::Refused)?;
        keys.has_signed.store(true, Ordering::Relaxed);
        if locked(&self.history).signed(&key.id, now) {
            self.has_news.store(true, Ordering::Relaxed);
        }
        let response = SignJwtResponse { header: header.clone(), signature };
        Ok(SignedToken { key: key.id.clone(), response })
    }

    fn late(&self, waited: Duration) -> Error {
        let seconds = waited.as_secs_f32();
        let open = self.counters.open_requests();
        let error = Error::new(
            Exit::Signing,
            format!(
                "the token has not signed within {seconds:.1} s, which is all that the API server waits ({open} requests are open)"
            ),
        );
        let error = error.help(
            "check the HSM's load and its connection; `pkcs11-external-signer service-account-signer status` shows how long signatures take",
        );
        self.counters.trouble(&error);
        error
    }

    /// The keys by which tokens are verified. An error if none were read yet.
    pub(crate) fn keys(&self) -> Result<FetchKeysResponse, Error> {
        let published = Arc::clone(&locked(&self.published));
        if published.keys.is_empty() {
            return Err(self.why_not_open());
        }
        let keys = published.keys.iter().map(|key| Key {
            key_id: key.id.clone(),
            key: key.der.clone(),
            exclude_from_oidc_discovery: key.is_hidden,
        });
        Ok(FetchKeysResponse {
            keys: keys.collect(),
            data_timestamp: Some(Timestamp { seconds: published.read, nanos: 0 }),
            refresh_hint_seconds: seconds(self.options.timing.refresh),
        })
    }

    /// Whether keys were read, by which tokens are verified.
    pub(crate) fn has_keys(&self) -> bool {
        !locked(&self.published).keys.is_empty()
    }

    /// Returns once the keys are open, or it is known why not.
    pub(crate) async fn opened(&self) {
        let mut signing = self.signing.subscribe();
        let _ = signing.wait_for(|signing| !matches!(signing, Signing::Opening)).await;
    }

    fn why_not_open(&self) -> Error {
        match &*self.signing.borrow() {
            Signing::Failed(error) | Signing::WaitsForPerson(error) => error.clone(),
            Signing::Opening | Signing::Open(_) => {
                Error::new(Exit::Token, "the token's keys are being opened").help("wait a moment")
            }
        }
    }

    pub(crate) fn metadata(&self) -> MetadataResponse {
        let longest = self.options.timing.longest_life;
        MetadataResponse { max_token_expiration_seconds: seconds(longest) }
    }

    pub(crate) fn status(&self) -> SignerStatus {
        let published = Arc::clone(&locked(&self.published));
        let history = locked(&self.history);
        let states = history.states(&published.keys, self.options.timing, unix_time());
        let keys = published.keys.iter().zip(states);
        SignerStatus {
            api_version: DOCUMENT_VERSION.to_owned(),
            pid: std::process::id(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            started: self.started,
            token: self.token_status(),
            list: self.options.keys.to_string(),
            keys: keys.map(|(key, state)| key_status(key, state, &history)).collect(),
            refresh_seconds: seconds(self.options.timing.refresh),
            longest_life_seconds: seconds(self.options.timing.longest_life),
            counts: self.counters.counts(),
            last_trouble: self.counters.last_trouble(),
        }
    }

    fn token_status(&self) -> TokenStatus {
        match &*self.signing.borrow() {
            Signing::Open(_) => TokenStatus::Open,
            Signing::Opening => TokenStatus::Opening,
            Signing::Failed(error) => TokenStatus::Failed(error.sentence()),
            Signing::WaitsForPerson(error) => TokenStatus::WaitsForPerson(error.sentence()),
        }
    }
}

/// A token's missing parts, and the id of the key that has signed.
struct SignedToken {
    key: String,
    response: SignJwtResponse,
}

fn key_status(key: &PublishedKey, work: KeyState, history: &KeyHistory) -> PublishedKeyStatus {
    PublishedKeyStatus {
        name: key.name.clone(),
        id: key.id.clone(),
        kind: key.public_key.to_string(),
        algorithm: key.signing.as_ref().map(|signing| signing.algorithm.name.to_owned()),
        is_hidden: key.is_hidden,
        published_since: history.of(&key.id).map_or(0, |used| used.published_since),
        work,
    }
}

/// The keys of the list, each once: those on the token as the process has them, and the others as their files had them.
fn published_keys(
    listed: &[ListedKey],
    in_files: &[Vec<PublishedKey>],
    process: &OpenedProcess,
) -> Result<Vec<PublishedKey>, Error> {
    let mut on_token = process.keys.iter().enumerate();
    let mut in_files = in_files.iter();
    let mut keys = Vec::new();
    for listed in listed {
        match &listed.place {
            KeyPlace::File(_) => keys.extend(in_files.next().into_iter().flatten().cloned()),
            KeyPlace::Token(_) => {
                let (number, key) =
                    on_token.next().ok_or_else(|| Error::internal("a key that was not opened"))?;
                keys.push(PublishedKey::on_token(listed, number, key.clone())?);
            }
        }
    }
    // A key that signs may be listed as a file, too.
    keys.sort_by_key(|key: &PublishedKey| key.signing.is_none());
    let mut seen = BTreeSet::new();
    keys.retain(|key| seen.insert(key.id.clone()));
    Ok(keys)
}

/// The third part of a token, if the key accepts the signature.
fn verified(
    key: &PublishedKey,
    SigningKey { algorithm, verifier, .. }: &SigningKey,
    digest: &[u8],
    signature: Vec<u8>,
) -> Result<String, Error> {
    let scheme = algorithm.scheme;
    let invalid = || {
        let text = format!(
            "the signature made by key {} ({scheme}) does not verify with its public key and was withheld",
            key.name
        );
        Error::new(Exit::Signing, text)
            .help("if it comes again, the HSM or its library is faulty: update the library")
    };
    let signature = match scheme {
        Scheme::Ecdsa { curve } => ecdsa::to_der(signature, curve).ok_or_else(invalid)?,
        _ => signature,
    };
    let signature = verifier.verify(digest, signature).ok_or_else(invalid)?;
    signature_part(scheme, signature)
}

/// Whether it can help to try again later, without anybody doing anything here.
fn may_mend_itself(error: &Error) -> bool {
    error.exits_with(Exit::Token)
        || error.exits_with(Exit::Signing)
        || error.exits_with(Exit::Cluster)
}
