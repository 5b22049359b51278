//! The process of the token: this program, started once more, with the PKCS#11 library.
//!
//! So a library that crashes or hangs doesn't end the signer, and the memory of the signer, which speaks to others, never
//! holds what a library of another maker does. The process opens the keys once, with one login and several sessions, each
//! with a thread: an HSM signs for several at the same time. It ends when the signer closes the socket.

use std::io::{self, BufReader};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};
use std::thread;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD as BASE64;

use crate::pipe::{
    Opening, OpeningReply, SignatureReply, SignatureRequest, SigningFailure, receive, send,
};
use config::pin::{self, Pin, PinOrigin, PinProvider, PinRequest};
use config::{Config, KeySelection, TrustedLibrary};
use keyring::library;
use messages::error::{Error, Exit};
use system::limits;
use system::{background, locked, shortage};
use token::{Callers, KeyReference, Module, PrivateKey, Token, exit_guard, kind};

/// The argument with which this program becomes the process of the token.
pub const TOKEN_ARGUMENT: &str = "service-account-token-process";

/// A session with the keys that were found in it.
struct KeySession {
    token: Token,
    keys: Vec<PrivateKey>,
}

/// The keys that were opened, in sessions of one token.
struct Opened {
    module: Arc<Module>,
    sessions: Vec<KeySession>,
}

/// Runs the process, whose standard input is a socket to the signer. Returns its exit code.
pub fn serve_token() -> u8 {
    let Ok(socket) = background::take_input().map(UnixStream::from) else {
        return Exit::Cluster as u8;
    };
    // Ctrl-C is the signer's: it ends this process when its last request is answered.
    background::leave_session();
    exit_guard::end_by_signal();
    let Ok(copy) = socket.try_clone() else { return Exit::Cluster as u8 };
    let mut messages = BufReader::new(copy);
    let Ok(opening) = receive::<Opening>(&mut messages) else { return Exit::Cluster as u8 };
    let mut signer = SignersPins { socket, messages, origin: opening.pin_origin.clone() };
    let opened = open(&opening, &mut signer);
    let reply = match &opened {
        Ok(opened) => opened.public_keys().map_or_else(OpeningReply::Failed, OpeningReply::Opened),
        Err(error) => OpeningReply::Failed(error.clone()),
    };
    let SignersPins { mut socket, messages, .. } = signer;
    if send(&mut socket, &reply).is_err() {
        return Exit::Cluster as u8;
    }
    let Ok(Opened { module, sessions }) = opened else { return 0 };
    sign_all(sessions, messages, socket);
    module.finalize(0);
    0
}

impl Opened {
    /// The public keys in DER.
    fn public_keys(&self) -> Result<Vec<Vec<u8>>, Error> {
        let keys = self.sessions.first().map(|session| session.keys.as_slice());
        keys.unwrap_or_default().iter().map(|key| key.reference.public_key.to_der()).collect()
    }
}

/// Opens the keys. While others use the library, this waits.
fn open(opening: &Opening, pins: &mut dyn PinProvider) -> Result<Opened, Error> {
    let path = opening.library.to_str().unwrap_or_default();
    let library = TrustedLibrary::check(path)?;
    let configs: Vec<_> = opening.keys.iter().map(|key| config(&library, opening, key)).collect();
    let Some(first) = configs.first() else { return Err(Error::internal("no key to be opened")) };
    // A library that hangs in here ends the process. Later, with several threads, the signer does that.
    let init_args = first.init_args.as_deref();
    let opened = library::open(&library, init_args, Callers::SeveralThreads, limits::LOCK)?;
    let mut token = opened.token(&first.token)?;
    let references: Vec<_> = configs
        .iter()
        .map(|config| reference(&mut token, config, pins))
        .collect::<Result<_, _>>()?;
    let keys: Vec<_> = references
        .iter()
        .map(|reference| private_key(&mut token, reference, pins))
        .collect::<Result<_, _>>()?;
    let mut sessions = vec![KeySession { token, keys }];
    let wanted = if opened.module.bears_threads() { opening.sessions } else { 1 };
    while sessions.len() < wanted {
        match another(&sessions, &references, pins) {
            Some(session) => sessions.push(session?),
            // A token may have fewer sessions than are wanted.
            None => break,
        }
    }
    // A login that is lost is made in another process.
    sessions.iter_mut().for_each(|session| session.token.forget_pin());
    log::info!("{} sessions", sessions.len());
    Ok(Opened { module: Arc::clone(&opened.module), sessions })
}

fn config(library: &TrustedLibrary, opening: &Opening, key: &KeySelection) -> Config {
    Config::of_key(library.clone(), opening.init_args.clone(), key.clone())
}

/// The key by the public key that the token shows, or by its certificate.
fn reference(
    token: &mut Token,
    config: &Config,
    pins: &mut dyn PinProvider,
) -> Result<KeyReference, Error> {
    let missing = match token.bare_key(&config.object, Some(pins)) {
        Err(error) if error.exits_with(Exit::Object) => error,
        found => return found,
    };
    token.identity(config, Some(pins)).map(|identity| identity.key).map_err(|_| missing)
}

fn private_key(
    token: &mut Token,
    reference: &KeyReference,
    pins: &mut dyn PinProvider,
) -> Result<PrivateKey, Error> {
    let key = token.key(reference.clone(), pins)?;
    if !key.always_authenticate {
        return Ok(key);
    }
    let text = format!("{} wants the PIN for each signature", reference.describe());
    Err(Error::new(Exit::Object, text)
        .help("use a key that wants the PIN once (CKA_ALWAYS_AUTHENTICATE false): nobody can type it for each token"))
}

/// One more session with the same keys; `None` if the token gives no more.
fn another(
    sessions: &[KeySession],
    references: &[KeyReference],
    pins: &mut dyn PinProvider,
) -> Option<Result<KeySession, Error>> {
    let mut token = match sessions.first()?.token.another_session() {
        Ok(token) => token,
        Err(error) => {
            log::info!("{} sessions and no more: {error}", sessions.len());
            return None;
        }
    };
    let keys = references.iter().map(|reference| private_key(&mut token, reference, pins));
    Some(keys.collect::<Result<_, _>>().map(|keys| KeySession { token, keys }))
}

/// Has the sessions sign what is asked for, until the signer has closed the socket and all is answered.
fn sign_all(sessions: Vec<KeySession>, messages: BufReader<UnixStream>, socket: UnixStream) {
    let messages = Mutex::new(messages);
    let socket = Mutex::new(socket);
    thread::scope(|scope| {
        for session in sessions {
            let thread = thread::Builder::new().name("session".to_owned());
            // If no thread can be started, there is a session less.
            let _ = thread.spawn_scoped(scope, || sign_in(session, &messages, &socket));
        }
    });
}

/// Signs one request after the other in this session. Of the sessions that are free, one waits for the next request, and
/// the others for their turn to wait: a request wakes the thread that signs, and no other one before it.
fn sign_in(
    mut session: KeySession,
    messages: &Mutex<BufReader<UnixStream>>,
    socket: &Mutex<UnixStream>,
) {
    loop {
        let request = receive::<SignatureRequest>(&mut *locked(messages));
        let Ok(request) = request else { return };
        let reply = SignatureReply { number: request.number, signature: session.sign(&request) };
        if send(&mut *locked(socket), &reply).is_err() {
            return;
        }
    }
}

impl KeySession {
    fn sign(&mut self, request: &SignatureRequest) -> Result<String, SigningFailure> {
        let signature = self.signature(request).map_err(|error| SigningFailure {
            is_token_lost: error.exits_with(Exit::Token) || error.is(&kind::CALL_FAILED),
            error,
        })?;
        Ok(BASE64.encode(signature))
    }

    fn signature(&mut self, request: &SignatureRequest) -> Result<Vec<u8>, Error> {
        let key = self.keys.get(request.key).ok_or_else(|| Error::internal("an unknown key"))?;
        let digest = BASE64.decode(&request.digest);
        let digest = digest.map_err(|error| Error::internal(format!("a digest: {error}")))?;
        self.token.sign_unverified(key, &request.scheme, &digest, &mut NoPins)
    }
}

/// Has PINs from the signer.
struct SignersPins {
    socket: UnixStream,
    messages: BufReader<UnixStream>,
    origin: PinOrigin,
}

impl SignersPins {
    fn ask(&mut self, request: &PinRequest<'_>) -> io::Result<Result<String, Error>> {
        send(&mut self.socket, &OpeningReply::Pin(request.clone()))?;
        receive(&mut self.messages)
    }
}

impl PinProvider for SignersPins {
    fn origin(&mut self) -> PinOrigin {
        self.origin.clone()
    }

    fn pin(&mut self, request: &PinRequest<'_>) -> Result<Pin, Error> {
        let given = self.ask(request).map_err(shortage)??;
        let pin = Pin::new(&given).filter(|pin| request.allows(pin));
        pin.ok_or_else(|| pin::cancelled(&request.token))
    }

    fn confirm_at_reader(&mut self, request: &PinRequest<'_>) -> Result<(), Error> {
        Err(pin::no_pin(&request.token))
    }
}

/// Gives none: a session that has lost its login is opened anew, in another process.
struct NoPins;

impl PinProvider for NoPins {
    fn origin(&mut self) -> PinOrigin {
        PinOrigin::Stored("nowhere".to_owned())
    }

    fn pin(&mut self, request: &PinRequest<'_>) -> Result<Pin, Error> {
        // As a token that was taken out and put back again.
        let text = format!("token {} wants a login again", request.token);
        Err(Error::new(Exit::Token, text).help("wait: the signer opens it anew"))
    }

    fn confirm_at_reader(&mut self, request: &PinRequest<'_>) -> Result<(), Error> {
        self.pin(request).map(drop)
    }
}
