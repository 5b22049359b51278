//! The keys of a run: tokens that stay open, with one session each, from their first use to the
//! end.
//!
//! A PKCS#11 session belongs to one thread at a time, so each library has a thread of its own that
//! alone speaks to it; whoever needs a key sends an order there and waits for the reply, with a
//! bound. A token that was taken out and put back is opened once more, after C_Finalize, without
//! which some libraries never see it again.

#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use crate::config::{Config, InitArgs, ObjectSelector, TokenSelector, TrustedLibrary};
use crate::error::Error;
use crate::pin_entry::{self, Sources};
use crate::process::RunError;
use crate::process::environment::TakenVariables;
use crate::process::lock::{self, Lock, LockError};
use crate::process::unix_time;
use crate::scheme::Scheme;
use crate::signer::Identity;
use crate::token::{self, AcceptedPin, FoundToken, Module, PrivateKey, Token};
use crate::token::{LoginError, ModuleError, ObjectError, SigningError, TokenError};

/// How long a token may take for a reply while a command runs; somebody may have to touch it.
const REPLY_LIMIT: Duration = Duration::from_secs(60);

/// A configured key: which library's thread knows it, and under which number.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct KeyNumber {
    room: usize,
    key: usize,
}

/// What a TLS client has to know of a key that is open.
#[derive(Debug)]
pub struct OpenKey {
    /// The certificate and those above it, in DER.
    pub chain: Vec<Vec<u8>>,
    pub subject: String,
    /// The schemes that the key and its token can make, those that TLS prefers first.
    pub schemes: Vec<Scheme>,
    /// Why a server will refuse the certificate, now or soon.
    pub concerns: Vec<String>,
}

/// All keys of a run.
pub struct Keyring {
    rooms: Vec<Room>,
    /// Set when the terminal belongs to the command.
    unattended: Arc<AtomicBool>,
}

/// A library that is open, as [`Config::library`] of a key names it.
pub struct Opened {
    pub module: Module,
    /// The turn at it.
    pub lock: Option<Lock>,
    /// What its token has accepted.
    pub accepted: Option<AcceptedPin>,
}

struct Room {
    library: PathBuf,
    orders: Sender<Order>,
    turn: Turn,
}

/// The lock on a library, while a token is opened in it; shared with whoever waits for that, and
/// gives it back when the library hangs.
#[derive(Clone)]
struct Turn {
    lock: Arc<Mutex<Option<Lock>>>,
    teller: Teller,
    unattended: Arc<AtomicBool>,
}

/// What is called when another process, of this number, has had a library for a while, unless the
/// terminal is a command's.
pub type Teller = fn(Option<u32>);

enum Order {
    Open {
        key: usize,
        reply: Reply<Arc<OpenKey>>,
    },
    Sign {
        key: usize,
        scheme: Scheme,
        digest: Vec<u8>,
        reply: Reply<Vec<u8>>,
    },
    /// The names of tokens that were opened and are no longer there.
    Look { reply: Sender<Vec<String>> },
    /// The process ends with this code, whatever the library thinks of it.
    Finish { code: u8, reply: Sender<()> },
}

type Reply<T> = Sender<Result<T, Error>>;

/// What a configuration says of one key.
struct Key {
    init_args: Option<InitArgs>,
    token: TokenSelector,
    object: ObjectSelector,
    certificate_file: Option<PathBuf>,
    pins: Sources,
}

impl OpenKey {
    /// Whether it can make a signature of TLS 1.3; an RSA key needs RSA-PSS for that.
    pub fn serves_tls_1_3(&self) -> bool {
        self.schemes.iter().any(Scheme::is_of_tls_1_3)
    }
}

impl Keyring {
    /// The keys in the order of their configurations. No library is loaded before a key is opened.
    /// The variables that the configurations name for PINs have to be among `variables`.
    pub fn new(
        configs: Vec<Config>,
        variables: &TakenVariables,
        teller: Teller,
    ) -> Result<(Self, Vec<KeyNumber>), Error> {
        Self::start(configs, variables, None, teller)
    }

    /// [`Keyring::new`] with one key, whose library is open.
    pub fn of_open(
        config: Config,
        opened: Opened,
        teller: Teller,
    ) -> Result<(Self, Vec<KeyNumber>), Error> {
        Self::start(
            vec![config],
            &TakenVariables::default(),
            Some(opened),
            teller,
        )
    }

    fn start(
        configs: Vec<Config>,
        variables: &TakenVariables,
        mut opened: Option<Opened>,
        teller: Teller,
    ) -> Result<(Self, Vec<KeyNumber>), Error> {
        let unattended = Arc::new(AtomicBool::new(false));
        let mut libraries: Vec<(TrustedLibrary, Vec<Key>)> = Vec::new();
        let mut numbers = Vec::with_capacity(configs.len());
        for config in configs {
            let key = Key {
                init_args: config.init_args,
                token: config.token,
                object: config.object,
                certificate_file: config.certificate_file,
                pins: Sources::for_run(config.pin, variables, Arc::clone(&unattended)),
            };
            let known = libraries
                .iter()
                .position(|(library, _)| library.path() == config.library.path());
            let room = known.unwrap_or_else(|| {
                libraries.push((config.library, Vec::new()));
                libraries.len() - 1
            });
            if let Some((_, keys)) = libraries.get_mut(room) {
                numbers.push(KeyNumber {
                    room,
                    key: keys.len(),
                });
                keys.push(key);
            }
        }
        let rooms = libraries
            .into_iter()
            .map(|(library, keys)| {
                let turn = Turn {
                    lock: Arc::default(),
                    teller,
                    unattended: Arc::clone(&unattended),
                };
                Room::start(library, keys, opened.take(), turn)
            })
            .collect::<Result<_, _>>()?;
        Ok((Self { rooms, unattended }, numbers))
    }

    /// The path of the library that the key is reached through.
    pub fn library(&self, key: KeyNumber) -> &Path {
        self.rooms
            .get(key.room)
            .map_or_else(|| Path::new(""), |room| &room.library)
    }

    /// Opens the key, unless it is open: with a login where its token requires one, so that what
    /// follows needs no PIN. There is no bound; a person may be typing.
    pub fn open(&self, key: KeyNumber) -> Result<Arc<OpenKey>, Error> {
        self.request(key, None, |reply| Order::Open {
            key: key.key,
            reply,
        })
    }

    /// [`Keyring::open`] while a command runs and waits for the answer.
    pub fn open_in_time(&self, key: KeyNumber) -> Result<Arc<OpenKey>, Error> {
        self.request(key, Some(REPLY_LIMIT), |reply| Order::Open {
            key: key.key,
            reply,
        })
    }

    /// A signature that the certificate's public key has accepted; ECDSA in DER. For Ed25519 the
    /// digest is the whole message.
    pub fn sign(&self, key: KeyNumber, scheme: Scheme, digest: Vec<u8>) -> Result<Vec<u8>, Error> {
        self.request(key, Some(REPLY_LIMIT), |reply| Order::Sign {
            key: key.key,
            scheme,
            digest,
            reply,
        })
    }

    /// The names of the tokens that were opened and are no longer there.
    pub fn missing(&self) -> Vec<String> {
        let looks = self.rooms.iter().filter_map(|room| {
            let (reply, answer) = mpsc::channel();
            room.orders.send(Order::Look { reply }).ok()?;
            answer.recv().ok()
        });
        looks.flatten().collect()
    }

    /// From now on nobody is asked for a PIN: the terminal is the command's.
    pub fn leave_terminal(&self) {
        self.unattended.store(true, Ordering::Relaxed);
    }

    /// Ends the sessions (C_Finalize); after that, and if a library hangs or crashes on the way,
    /// the process ends with `code`.
    pub fn finish(&self, code: u8) {
        for room in &self.rooms {
            let (reply, done) = mpsc::channel();
            if room.orders.send(Order::Finish { code, reply }).is_ok() {
                // A room that is busy with a token that doesn't answer is left behind.
                let _ = done.recv_timeout(Duration::from_secs(2));
            }
        }
    }

    fn request<T>(
        &self,
        key: KeyNumber,
        limit: Option<Duration>,
        order: impl FnOnce(Reply<T>) -> Order,
    ) -> Result<T, Error> {
        let gone = || Error::internal("the thread of a library has ended".to_owned());
        let room = self.rooms.get(key.room).ok_or_else(gone)?;
        let (reply, answer) = mpsc::channel();
        room.orders.send(order(reply)).map_err(|_| gone())?;
        let Some(limit) = limit else {
            return answer.recv().map_err(|_| gone())?;
        };
        match answer.recv_timeout(limit) {
            Ok(outcome) => outcome,
            Err(RecvTimeoutError::Disconnected) => Err(gone()),
            Err(RecvTimeoutError::Timeout) => {
                room.turn.give_back();
                Err(SigningError::NoReply {
                    library: room.library.clone(),
                    seconds: limit.as_secs(),
                }
                .into())
            }
        }
    }
}

impl Room {
    fn start(
        library: TrustedLibrary,
        keys: Vec<Key>,
        opened: Option<Opened>,
        turn: Turn,
    ) -> Result<Self, Error> {
        let path = library.path().to_owned();
        let (orders, received) = mpsc::channel();
        let own_turn = turn.clone();
        thread::Builder::new()
            .name("token".to_owned())
            .spawn(move || serve(&library, keys, opened, &received, &own_turn))
            .map_err(|error| RunError::Preparation {
                reason: format!("no thread for a token: {error}"),
            })?;
        Ok(Self {
            library: path,
            orders,
            turn,
        })
    }
}

/// The life of a library's thread: a library is opened when there is an order for it, and once
/// more when its token was lost.
fn serve(
    library: &TrustedLibrary,
    mut keys: Vec<Key>,
    opened: Option<Opened>,
    orders: &Receiver<Order>,
    turn: &Turn,
) {
    let (mut open, mut accepted) = match opened {
        None => (None, Vec::new()),
        Some(opened) => {
            *turn.held() = opened.lock;
            (Some(opened.module), opened.accepted.into_iter().collect())
        }
    };
    let mut unserved = None;
    // The tokens that were lost when the library was finalised.
    let mut lost = Vec::new();
    while let Some(order) = unserved.take().or_else(|| orders.recv().ok()) {
        if let Order::Finish { code, reply } = order {
            if let Some(module) = open {
                module.finalize(code);
            }
            let _ = reply.send(());
            return;
        }
        if let Order::Look { reply } = order {
            let _ = reply.send(lost.clone());
            continue;
        }
        let first = order.key().and_then(|number| keys.get(number));
        let init_args = first.and_then(|key| key.init_args.clone());
        let opened = turn.take(library).and_then(|()| match open.take() {
            Some(module) => Ok(module),
            None => Ok(Module::open(library, init_args.as_ref())?
                .with_wait_observer(pin_entry::show_after)),
        });
        let module = match opened {
            Ok(opened) => opened,
            Err(error) => {
                turn.give_back();
                order.refuse(error);
                continue;
            }
        };
        let mut open = OpenLibrary {
            module: &module,
            library,
            init_args,
            turn,
            tokens: Vec::new(),
            keys: HashMap::new(),
        };
        let end = open.serve(&mut keys, &mut accepted, &lost, order, orders);
        if !open.tokens.is_empty() {
            lost = open.tokens.iter().map(Token::name).collect();
        }
        accepted.extend(open.tokens.into_iter().filter_map(Token::into_accepted_pin));
        match end {
            End::Reopen(order) => {
                module.close();
                unserved = Some(order);
            }
            End::Finish(code, reply) => {
                // No PIN outlives the command, however long the library takes for its end.
                drop((keys, accepted));
                module.finalize(code);
                let _ = reply.send(());
                return;
            }
            End::Abandoned => return,
        }
    }
}

/// A library that is loaded, with the tokens and keys that have been opened in it.
struct OpenLibrary<'m> {
    module: &'m Module,
    library: &'m TrustedLibrary,
    init_args: Option<InitArgs>,
    turn: &'m Turn,
    tokens: Vec<Token<'m>>,
    keys: HashMap<usize, KeyInUse>,
}

struct KeyInUse {
    token: usize,
    identity: Identity,
    private_key: PrivateKey,
    shown: Arc<OpenKey>,
}

enum End {
    /// The token was lost under this order; it has not been replied to.
    Reopen(Order),
    Finish(u8, Sender<()>),
    /// Nobody is left to send an order.
    Abandoned,
}

impl<'m> OpenLibrary<'m> {
    /// Serves the order that the library was opened for, and those that follow.
    fn serve(
        &mut self,
        keys: &mut [Key],
        accepted: &mut Vec<AcceptedPin>,
        lost: &[String],
        first: Order,
        orders: &Receiver<Order>,
    ) -> End {
        let mut order = first;
        loop {
            match order {
                Order::Finish { code, reply } => return End::Finish(code, reply),
                Order::Look { reply } => drop(reply.send(self.missing(lost))),
                Order::Open { key, reply } => {
                    let was_open = self.knows_token_of(key, keys);
                    match self.key(key, keys, accepted) {
                        Err(error) if was_open && may_be_lost(&error) => {
                            return End::Reopen(Order::Open { key, reply });
                        }
                        outcome => {
                            let shown = outcome.map(|key| Arc::clone(&key.shown));
                            let _ = reply.send(shown);
                        }
                    }
                }
                Order::Sign {
                    key,
                    scheme,
                    digest,
                    reply,
                } => {
                    let was_open = self.knows_token_of(key, keys);
                    match self.sign(key, scheme, &digest, keys, accepted) {
                        Err(error) if was_open && may_be_lost(&error) => {
                            return End::Reopen(Order::Sign {
                                key,
                                scheme,
                                digest,
                                reply,
                            });
                        }
                        outcome => drop(reply.send(outcome)),
                    }
                }
            }
            self.turn.give_back();
            order = match orders.recv() {
                Ok(order) => order,
                Err(_) => return End::Abandoned,
            };
        }
    }

    /// What was lost before the library was opened counts as long as no token is open in it.
    fn missing(&self, lost: &[String]) -> Vec<String> {
        if self.tokens.is_empty() {
            return lost.to_owned();
        }
        let missing = self.tokens.iter().filter(|token| token.is_missing());
        missing.map(Token::name).collect()
    }

    /// Whether the key's token has a session, which may have ended meanwhile.
    fn knows_token_of(&self, number: usize, keys: &[Key]) -> bool {
        keys.get(number).is_some_and(|key| {
            let mut tokens = self.tokens.iter();
            tokens.any(|token| token.state().fits(&key.token))
        })
    }

    fn sign(
        &mut self,
        number: usize,
        scheme: Scheme,
        digest: &[u8],
        keys: &mut [Key],
        accepted: &mut Vec<AcceptedPin>,
    ) -> Result<Vec<u8>, Error> {
        self.key(number, keys, accepted)?;
        let (Some(key), Some(configured)) = (self.keys.get(&number), keys.get_mut(number)) else {
            return Err(unknown());
        };
        let token = self.tokens.get_mut(key.token).ok_or_else(unknown)?;
        let signature = key.identity.sign_with(
            token,
            &key.private_key,
            scheme,
            digest,
            &mut configured.pins,
        )?;
        Ok(signature.as_bytes().to_owned())
    }

    /// The key, opened if it isn't yet.
    fn key(
        &mut self,
        number: usize,
        keys: &mut [Key],
        accepted: &mut Vec<AcceptedPin>,
    ) -> Result<&KeyInUse, Error> {
        if !self.keys.contains_key(&number) {
            self.turn.take(self.library)?;
            let configured = keys.get_mut(number).ok_or_else(unknown)?;
            let opened = self.open(configured, accepted)?;
            self.keys.insert(number, opened);
        }
        self.keys.get(&number).ok_or_else(unknown)
    }

    fn open(&mut self, key: &mut Key, accepted: &mut Vec<AcceptedPin>) -> Result<KeyInUse, Error> {
        if key.init_args != self.init_args {
            return Err(ModuleError::OtherInitArgs {
                path: self.module.path().to_owned(),
            }
            .into());
        }
        // One token, one session and one login, however many keys are on it.
        let (module, tokens) = (self.module, &mut self.tokens);
        let place = token::open_or_ask(&mut key.pins, || {
            let found = FoundToken::find(module, &key.token)?;
            let name = found.name();
            let mut open = tokens.iter().enumerate();
            if let Some((place, known)) = open.find(|(_, token)| token.name() == name) {
                // Before a PIN goes to it.
                known.check_session()?;
                return Ok(place);
            }
            let mut opened = found.open(module)?;
            opened.recall(accepted);
            tokens.push(opened);
            Ok(tokens.len() - 1)
        })?;
        let token = self.tokens.get_mut(place).ok_or_else(unknown)?;
        let file = key.certificate_file.as_deref();
        let identity = Identity::find(token, key.object.clone(), file, Some(&mut key.pins))?;
        let mut schemes = Scheme::of_tls(identity.certificate.public_key());
        schemes.retain(|scheme| token.check_mechanism(scheme).is_ok());
        let private_key = identity.key(token, &mut key.pins)?;
        let shown = Arc::new(OpenKey {
            chain: identity.chain(token)?,
            subject: identity.certificate.subject().to_owned(),
            schemes,
            concerns: identity.certificate.concerns(unix_time()),
        });
        Ok(KeyInUse {
            token: place,
            identity,
            private_key,
            shown,
        })
    }
}

impl Turn {
    /// Keeps other processes off the library meanwhile. Without a place for the lock it goes on.
    fn take(&self, library: &TrustedLibrary) -> Result<(), Error> {
        if self.held().is_some() {
            return Ok(());
        }
        let name = library.path().to_string_lossy();
        let mut tell = |holder| {
            if !self.unattended.load(Ordering::Relaxed) {
                (self.teller)(holder);
            }
        };
        let lock = match Lock::acquire(&name, &mut tell) {
            Ok(lock) => Some(lock),
            Err(LockError::Unavailable(_)) => None,
            Err(LockError::Busy { holder }) => {
                return Err(TokenError::Busy {
                    waited: lock::LIMIT,
                    holder,
                }
                .into());
            }
        };
        *self.held() = lock;
        Ok(())
    }

    fn give_back(&self) {
        *self.held() = None;
    }

    fn held(&self) -> MutexGuard<'_, Option<Lock>> {
        self.lock.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Order {
    fn key(&self) -> Option<usize> {
        match self {
            Self::Open { key, .. } | Self::Sign { key, .. } => Some(*key),
            Self::Finish { .. } | Self::Look { .. } => None,
        }
    }

    fn refuse(self, error: Error) {
        match self {
            Self::Open { reply, .. } => drop(reply.send(Err(error))),
            Self::Sign { reply, .. } => drop(reply.send(Err(error))),
            Self::Finish { reply, .. } => drop(reply.send(())),
            Self::Look { .. } => {}
        }
    }
}

/// Whether opening the token anew could help. A PIN that was refused stays refused.
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

fn unknown() -> Error {
    Error::internal("a key without a configuration".to_owned())
}
