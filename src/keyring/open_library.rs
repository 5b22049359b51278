//! What is open in a library: tokens, with one session and one login each, and their keys.

use std::collections::HashMap;
use std::ffi::CString;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::open_key::OpenKey;
use config::pin::PinProvider;
use config::{Config, TokenName, TokenSelector};
use messages::error::{Error, Exit};
use pin_entry::show_after;
use system::clock::unix_time;
use token::{AcceptedPin, Callers, Module, PrivateKey, SessionAccess, Token, TokenState};

/// A client that has to log in itself.
#[derive(Clone, Copy)]
pub(super) struct NewClient {
    /// Whether it may have digests signed.
    pub(super) signs: bool,
    /// Whether this is the first attempt of its request that reaches the token.
    pub(super) is_first: bool,
}

/// A library, and what is open in it.
pub(super) struct OpenLibrary {
    /// The loaded library; `None` before the first key is opened, and after a token was lost.
    module: Option<Arc<Module>>,
    /// The arguments with which the library was initialised.
    init_args: Option<CString>,
    tokens: Vec<OpenToken>,
    /// PINs that tokens have accepted, for when those are opened again.
    accepted: Vec<AcceptedPin>,
    /// Whether somebody has entered a PIN into this process, for whichever library. All libraries of the process share it.
    has_entered_pin: Arc<AtomicBool>,
    access: SessionAccess,
}

/// A token with the one session, and the one login, for all its keys.
struct OpenToken {
    token: Token,
    /// The open keys, by their indices among the library's.
    keys: HashMap<usize, KeyInSession>,
}

/// A key that was opened in its token's session.
pub(super) struct KeyInSession {
    pub(super) key: PrivateKey,
    /// What TLS clients have to know of it.
    pub(super) shown: Arc<OpenKey>,
}

impl OpenLibrary {
    /// A library that isn't loaded yet.
    pub(super) fn new(access: SessionAccess, has_entered_pin: Arc<AtomicBool>) -> Self {
        Self {
            module: None,
            init_args: None,
            tokens: Vec::new(),
            accepted: Vec::new(),
            has_entered_pin,
            access,
        }
    }

    pub(super) fn is_open(&self, number: usize) -> bool {
        self.tokens.iter().any(|open| open.keys.contains_key(&number))
    }

    /// Whether the key is open, and there may be a newer certificate than the one it was opened with.
    pub(super) fn may_be_renewed(&self, number: usize) -> bool {
        let mut opened = self.tokens.iter().filter_map(|open| open.keys.get(&number));
        opened.any(|key| key.shown.may_be_renewed())
    }

    /// The open key, with its token.
    pub(super) fn key(&mut self, number: usize) -> Option<(&mut Token, &KeyInSession)> {
        self.tokens.iter_mut().find_map(|open| Some((&mut open.token, open.keys.get(&number)?)))
    }

    /// Whether the token's session has served a key, and isn't merely left from an attempt that has ended with a question.
    pub(super) fn has_served(&self, selector: &TokenSelector) -> bool {
        self.tokens.iter().any(|open| open.token.state().fits(selector) && open.has_served())
    }

    /// Drops the session to a token that was lost, and keeps the PIN that the token has accepted. The library is finalised
    /// as well, unless somebody has entered a PIN into this process: some libraries find a token that was put back only
    /// after they are initialised again, and OpenSC's next call would wait for ever otherwise.
    pub(super) fn lose(&mut self, selector: &TokenSelector) {
        if !self.has_entered_pin.load(Ordering::Relaxed)
            && let Some(module) = self.module.take()
        {
            let lost = self.tokens.drain(..).map(|open| open.token);
            self.accepted.extend(lost.filter_map(Token::into_accepted_pin));
            return module.close();
        }
        let lost = self.tokens.extract_if(.., |open| open.token.state().fits(selector));
        self.accepted.extend(lost.filter_map(|open| open.token.close()));
    }

    /// Forgets the key. Its token stays open.
    pub(super) fn forget_key(&mut self, number: usize) {
        for open in &mut self.tokens {
            open.keys.remove(&number);
        }
    }

    /// Closes the sessions and the logins of the tokens that are not held, and forgets their PINs.
    pub(super) fn close_unless(&mut self, is_held: impl Fn(&TokenName) -> bool) {
        for open in self.tokens.extract_if(.., |open| !is_held(&open.token.state().name)) {
            open.token.close();
        }
        self.accepted.retain(|pin| is_held(pin.token()));
    }

    /// Finalises the library. The process ends with `code`, even if the library hangs or crashes.
    pub(super) fn finish(&mut self, code: u8) {
        // PINs are wiped even if C_Finalize hangs.
        self.tokens.clear();
        self.accepted.clear();
        if let Some(module) = self.module.take() {
            module.finalize(code);
        }
    }

    /// Opens the key in its token's session, or in a new one. A `new_client` has to log in itself, also if the token is
    /// logged in for another key: a login is the whole process's.
    pub(super) fn open(
        &mut self,
        number: usize,
        config: &Config,
        pins: &mut dyn PinProvider,
        new_client: Option<NewClient>,
    ) -> Result<(), Error> {
        let module = self.module(config)?;
        let state = module.find_token(&config.token)?;
        self.close_gone();
        let mut open = self.take_or_open_token(&module, state, new_client.is_some())?;
        let outcome = open.open_key(number, config, pins, new_client);
        if open.token.keeps_entered_pin() {
            self.has_entered_pin.store(true, Ordering::Relaxed);
        }
        if outcome.is_ok() && new_client.is_some() {
            let name = &open.token.state().name;
            self.accepted.retain(|pin| !pin.token().is_same_token(name));
        }
        self.tokens.push(open);
        outcome
    }

    /// Takes the token, with its session, out of those that are open, or opens a session to it. A new session begins with
    /// the PIN that the token has accepted before, unless `needs_pin`: then the PIN has to be given anew.
    fn take_or_open_token(
        &mut self,
        module: &Arc<Module>,
        state: TokenState,
        needs_pin: bool,
    ) -> Result<OpenToken, Error> {
        let name = state.name.to_string();
        if let Some(index) = self.tokens.iter().position(|open| open.token.name() == name) {
            return Ok(self.tokens.remove(index));
        }
        let mut token = Token::with_session(module, state, self.access)?;
        if !needs_pin {
            token.recall(&mut self.accepted);
        }
        Ok(OpenToken { token, keys: HashMap::new() })
    }

    /// Closes the sessions that have served no key and whose tokens are gone.
    fn close_gone(&mut self) {
        let is_gone =
            |open: &mut OpenToken| !open.has_served() && open.token.check_session().is_err();
        for gone in self.tokens.extract_if(.., is_gone) {
            gone.token.close();
        }
    }

    /// The library, which is initialised if it isn't yet. The caller holds its lock.
    fn module(&mut self, config: &Config) -> Result<Arc<Module>, Error> {
        let Some(module) = &self.module else {
            let init_args = config.init_args.as_deref();
            let callers = Callers::SeveralThreads;
            let module = Module::open(&config.library, init_args, callers, show_after)?;
            self.init_args = config.init_args.clone();
            return Ok(Arc::clone(self.module.insert(Arc::new(module))));
        };
        if config.init_args == self.init_args {
            return Ok(Arc::clone(module));
        }
        let path = module.path.display();
        let text = format!(
            "PKCS#11 library {path} runs with other initArgs already, those of another context"
        );
        Err(Error::new(Exit::Library, text).help(
            "one run can give a library one initArgs (--init-args): start another run with --context for the \
             context that needs these",
        ))
    }
}

impl OpenToken {
    fn has_served(&self) -> bool {
        self.token.is_logged_in() || !self.keys.is_empty()
    }

    /// Opens the key in this session.
    fn open_key(
        &mut self,
        number: usize,
        config: &Config,
        pins: &mut dyn PinProvider,
        new_client: Option<NewClient>,
    ) -> Result<(), Error> {
        if self.has_served() {
            // Checked before a PIN is sent.
            self.token.check_session()?;
        }
        if new_client.is_some_and(|client| client.is_first) {
            self.token.forget_tries();
        }
        let logins = self.token.logins();
        let key = self.find_key(config, pins, new_client.is_some());
        if self.token.logins() != logins {
            // The other keys have to be found again; that is done when they are used.
            self.keys.clear();
        }
        self.keys.insert(number, key?);
        Ok(())
    }

    /// Finds the key and its certificate, after a login if the token wants one. With `proves`, whoever wants the key has to
    /// show that they know the PIN even if the token is logged in already.
    fn find_key(
        &mut self,
        config: &Config,
        pins: &mut dyn PinProvider,
        proves: bool,
    ) -> Result<KeyInSession, Error> {
        let token = &mut self.token;
        let was_logged_in = token.is_logged_in();
        let identity = token.identity(config, Some(pins))?;
        let certificate = &identity.certificate;
        certificate.check_end(unix_time())?;
        let schemes = token.tls_schemes(certificate.public_key())?;
        if proves && was_logged_in {
            token.prove(&identity.key, pins)?;
        }
        let key = token.key(identity.key.clone(), pins)?;
        let schemes = token.allowed_schemes(&key, &schemes)?;
        let name = token.state().name.clone();
        let shown = OpenKey::new(certificate, identity.chain(token)?, name, schemes);
        Ok(KeyInSession { key, shown: Arc::new(shown) })
    }
}
