//! The only part that speaks PKCS#11: a token with a session open to it, its certificates and
//! its keys.
//!
//! A request makes these calls in this order, and asks nothing twice: [`Module::open`],
//! [`Token::open`], [`Token::certificate`], [`Token::private_key`] (which logs in), [`Token::sign`].

mod certificate;
mod ckr;
mod error;
mod exports;
mod inventory;
mod key;
mod ledger;
mod login;
mod mechanism;
mod module;
mod object;
mod pin_rules;
mod raw;
mod slot;
mod tried;

pub use certificate::FoundCertificate;
pub use error::{
    CallFailure, LoginError, ModuleError, ObjectError, ObjectSummary, SigningError, TokenError,
    TriesLeft, UnusableSlot, WhyUnusable,
};
pub use inventory::{Candidate, Candidates, Standing, VisibleKey};
pub use key::WantedKey;
pub use module::{Module, WaitObserver};
pub use slot::{OccupiedSlot, PinState, TokenState};

use std::any::Any;
use std::cell::OnceCell;
use std::thread::sleep;
use std::time::{Duration, Instant};

use cryptoki::error::{Error as CryptokiError, RvError};
use cryptoki::mechanism::MechanismType;
use cryptoki::session::UserType;
use cryptoki::slot::Slot;

use self::mechanism::{Operation, Padding};
use self::object::Objects;
use self::raw::{ObjectHandle, Session};
use crate::certificate::{Certificate, PublicKey};
use crate::config::{ObjectSelector, TokenName, TokenSelector};
use crate::error::Error;
use crate::pin::{PinError, PinProvider};
use crate::process::watchdog;
use crate::scheme::Scheme;

/// A token that takes longer than this to sign is probably waiting to be touched.
const TOUCH_NOTICE_DELAY: Duration = Duration::from_millis(300);

/// How long a card that was inserted this moment may take until it is ready, and how often it is
/// looked for.
const READY_LIMIT: Duration = Duration::from_secs(3);
const READY_GLANCE: Duration = Duration::from_millis(200);

/// A token that is there, without a session yet.
pub struct FoundToken {
    slot: Slot,
    state: TokenState,
}

/// A token with an open session. The session ends with the library (C_Finalize).
pub struct Token<'m> {
    module: &'m Module,
    slot: Slot,
    session: Session<'m>,
    /// As it was when the session was opened.
    state: TokenState,
    /// What it offers; `None` where it doesn't say.
    mechanisms: OnceCell<Option<Vec<MechanismType>>>,
    logged_in: bool,
    kept: Option<login::Kept>,
    disregards_refusals: bool,
}

/// A PIN, and the token that has accepted it.
pub struct AcceptedPin {
    token: TokenName,
    kept: login::Kept,
}

/// A private key that can be signed with while its token is open.
pub struct PrivateKey {
    object: ObjectHandle,
    is_anothers: bool,
    /// CKA_ALWAYS_AUTHENTICATE: the PIN is wanted for every signature.
    always_authenticate: bool,
    /// For messages: `the key objectId "2" (CN=jane)`.
    words: String,
}

impl PrivateKey {
    /// CKA_ALWAYS_AUTHENTICATE, as far as the token says it.
    pub fn wants_pin_each_time(&self) -> bool {
        self.always_authenticate
    }

    /// Whether it can't be the certificate's, by its type, modulus or curve. Libraries crash where
    /// they are asked for another type's signature.
    pub fn is_anothers(&self) -> bool {
        self.is_anothers
    }
}

impl FoundToken {
    /// The token that the selector names.
    pub fn find(module: &Module, selector: &TokenSelector) -> Result<Self, Error> {
        let _step = watchdog::step("looking for the token (C_GetSlotList)");
        let (slot, state) = slot::find(module.functions(), module.path(), selector)?;
        Ok(Self { slot, state })
    }

    /// Label, serial and slot.
    pub fn name(&self) -> String {
        self.state.name.to_string()
    }

    /// With a read-only session (C_OpenSession).
    pub fn open(self, module: &Module) -> Result<Token<'_>, Error> {
        let Self { slot, state } = self;
        let _step = watchdog::step("opening a session (C_OpenSession)");
        log::info!("token {}", state.name);
        log::debug!(
            "token: login required: {}, PIN state: {:?}, keypad at the reader: {}",
            state.login_required,
            state.pin,
            state.own_keypad
        );
        let session = module.functions().open_session(slot);
        let session = session.map_err(|error| TokenError::Call {
            doing: "opening a session",
            failure: ckr::failure(&error),
        })?;
        Ok(Token {
            module,
            slot,
            session,
            mechanisms: OnceCell::new(),
            state,
            logged_in: false,
            kept: None,
            disregards_refusals: false,
        })
    }
}

/// Opens a token, and once more after somebody was asked to insert it if that is what is missing.
pub fn open_or_ask<T>(
    pins: &mut dyn PinProvider,
    mut open: impl FnMut() -> Result<T, Error>,
) -> Result<T, Error> {
    let missing = match open() {
        Err(error)
            if error
                .downcast_ref()
                .is_some_and(TokenError::is_want_of_a_token) =>
        {
            error
        }
        outcome => return outcome,
    };
    if !pins.insert(&missing.to_string()) {
        return Err(missing);
    }
    let inserted = Instant::now();
    loop {
        match open() {
            Err(error) if error.is::<TokenError>() && inserted.elapsed() < READY_LIMIT => {
                sleep(READY_GLANCE);
            }
            outcome => return outcome,
        }
    }
}

impl<'m> Token<'m> {
    /// The token that the selector names, with a session.
    pub fn open(module: &'m Module, selector: &TokenSelector) -> Result<Self, Error> {
        FoundToken::find(module, selector)?.open(module)
    }

    /// An error if its session or login has ended since, as they do when it is taken out and put
    /// back.
    pub fn check_session(&self) -> Result<(), TokenError> {
        if self.session.lives(self.logged_in) {
            return Ok(());
        }
        Err(TokenError::Removed {
            token: self.name(),
            failure: ckr::answer("its session has ended"),
        })
    }

    /// Whether it isn't there any more, as far as the library tells (C_GetTokenInfo).
    pub fn is_missing(&self) -> bool {
        let is_there = slot::state(self.module.functions(), self.slot)
            .is_ok_and(|state| state.name.is_same_token(&self.state.name));
        !is_there || !self.session.lives(self.logged_in)
    }

    /// Label, serial and slot, for messages.
    pub fn name(&self) -> String {
        self.state.name.to_string()
    }

    /// Whether this session has logged in.
    pub fn is_logged_in(&self) -> bool {
        self.logged_in
    }

    /// What the token said of itself when it was opened.
    pub fn state(&self) -> &TokenState {
        &self.state
    }

    /// Finds the one certificate that fits: session objects are passed over, and CA certificates as
    /// long as another one is left. Logs in only if none is visible without, and not without `pins`.
    ///
    /// # Errors
    /// [`ObjectError`] if there isn't exactly one; the errors of a login.
    pub fn certificate(
        &mut self,
        selector: &ObjectSelector,
        pins: Option<&mut dyn PinProvider>,
    ) -> Result<FoundCertificate, Error> {
        let _step = watchdog::step("looking for the certificate (C_FindObjects)");
        if let Some(found) = certificate::find(self.objects(), selector)? {
            return Ok(found);
        }
        let mut is_unsearched = false;
        if !self.logged_in && self.state.login_required {
            match pins.map(|pins| self.login(&selector.to_string(), pins)) {
                // It may be a private object, or it may not be there.
                None => is_unsearched = true,
                Some(Err(error)) if is_without_pin(&error) => is_unsearched = true,
                Some(outcome) => {
                    outcome?;
                    if let Some(found) = certificate::find(self.objects(), selector)? {
                        return Ok(found);
                    }
                }
            }
        }
        Err(certificate::missing(self.objects(), selector, is_unsearched).into())
    }

    /// The certificates on the token that lead from this one towards its root, in DER; without the
    /// root.
    ///
    /// # Errors
    /// If they can't be read.
    pub fn issuers(&self, certificate: &Certificate) -> Result<Vec<Vec<u8>>, Error> {
        certificate::issuers(self.objects(), certificate)
    }

    /// The certificates and keys that could authenticate, without those that exist in the session
    /// alone.
    ///
    /// # Errors
    /// If they can't be read.
    pub fn candidates(&self) -> Result<Candidates, Error> {
        inventory::candidates(self.objects())
    }

    /// Logs in, if the token requires it, so that private objects are seen. The prompt says that
    /// the PIN is wanted for `what`.
    ///
    /// # Errors
    /// Those of a login.
    pub fn reveal(&mut self, what: &str, pins: &mut dyn PinProvider) -> Result<(), Error> {
        self.login(what, pins)
    }

    /// A stored PIN is sent although the token has refused one: somebody says that it is another.
    pub fn disregard_refusals(&mut self) {
        self.disregards_refusals = true;
    }

    /// The token's name with the PIN that it has accepted, for the time after it was taken out and
    /// put back.
    pub fn into_accepted_pin(self) -> Option<AcceptedPin> {
        Some(AcceptedPin {
            token: self.state.name,
            kept: self.kept.filter(|kept| kept.is_accepted)?,
        })
    }

    /// Takes over the PIN that this very token accepted before. With a token that counts wrong
    /// PINs it is left alone: it may have been changed meanwhile.
    pub fn recall(&mut self, pins: &mut Vec<AcceptedPin>) {
        let name = &self.state.name;
        let place = pins.iter().position(|pin| pin.token.is_same_token(name));
        if let Some(place) = place
            && self.state.pin == PinState::Good
        {
            self.kept = Some(pins.swap_remove(place).kept);
        }
    }

    /// Whether the token shows a public key, under this selector, that isn't the certificate's.
    ///
    /// # Errors
    /// If the public keys can't be read.
    pub fn contradicts(&self, selector: &ObjectSelector, key: &PublicKey) -> Result<bool, Error> {
        key::contradicts(self.objects(), selector, key)
    }

    /// Finds the one private key that fits, after a login if the token requires one for it.
    /// `words` names the key in messages.
    ///
    /// # Errors
    /// [`ObjectError`] if there isn't exactly one; the errors of a login.
    pub fn private_key(
        &mut self,
        wanted: &WantedKey<'_>,
        words: String,
        pins: &mut dyn PinProvider,
    ) -> Result<PrivateKey, Error> {
        let object = match self.key_without_login(wanted) {
            Some(object) => object,
            None => {
                self.login(&words, pins)?;
                self.key_after_login(wanted, &words, pins)?
            }
        };
        let objects = self.objects();
        let traits = objects.key_traits(object, wanted.public_key);
        let traits = traits.map_err(objects.failed("reading the key"))?;
        log::info!("{words}: found");
        let always_authenticate = traits.always_authenticate;
        log::debug!("key: PIN for every signature: {always_authenticate}");
        Ok(PrivateKey {
            object,
            is_anothers: traits.is_anothers,
            always_authenticate,
            words,
        })
    }

    /// What a token shows before a login is another question than what it shows after one.
    fn key_without_login(&self, wanted: &WantedKey<'_>) -> Option<ObjectHandle> {
        if self.logged_in || !self.state.login_required {
            return None;
        }
        key::find_public(self.objects(), wanted)
    }

    /// Looks for the key, and once more after a login that the token doesn't ask for: it may hide
    /// its keys all the same.
    fn key_after_login(
        &mut self,
        wanted: &WantedKey<'_>,
        words: &str,
        pins: &mut dyn PinProvider,
    ) -> Result<ObjectHandle, Error> {
        let missing = match key::find(self.objects(), wanted) {
            Err(error) if !self.logged_in && is_no_key(&error) => error,
            outcome => return outcome,
        };
        match self.authenticate(UserType::User, words, pins) {
            Ok(()) => key::find(self.objects(), wanted),
            Err(error) if is_without_pin(&error) || is_pin_not_set(&error) => Err(missing),
            Err(error) => Err(error),
        }
    }

    /// Signs (C_SignInit, C_Sign): ECDSA as PKCS#11's raw `r ‖ s`. Nothing is proved about the
    /// signature yet.
    ///
    /// # Errors
    /// [`SigningError`] if the token can't or won't; the errors of a login for a key that wants the
    /// PIN each time.
    pub fn sign(
        &mut self,
        key: &PrivateKey,
        scheme: &Scheme,
        digest: &[u8],
        public_key: &PublicKey,
        pins: &mut dyn PinProvider,
    ) -> Result<Vec<u8>, Error> {
        let _step = watchdog::step("signing (C_SignInit, C_Sign)");
        let (padding, other) = self.paddings(scheme)?;
        let mut perform = |padding| {
            log::debug!("signature: {scheme}, padding: {padding:?}");
            let operation = mechanism::operation(scheme, padding, digest, public_key);
            self.perform(key, &operation.map_err(Error::from)?, pins)
        };
        let outcome = match (perform(padding), other) {
            (Err(Refusal::Call(refused)), Some(other)) if refuses_mechanism(&refused) => {
                perform(other).map_err(|refusal| match refusal {
                    // Some libraries keep the first operation active, and say so here.
                    Refusal::Call(error) if !ckr::is_removed(&error) => Refusal::Call(refused),
                    refusal => refusal,
                })
            }
            (outcome, _) => outcome,
        };
        outcome.map_err(|refusal| match refusal {
            Refusal::Call(error) => self.signing_failure(key, scheme, &error),
            Refusal::Other(error) => error,
        })
    }

    /// Refuses a scheme that the token has no mechanism for (C_GetMechanismList).
    pub fn check_mechanism(&self, scheme: &Scheme) -> Result<(), Error> {
        self.paddings(scheme).map(drop)
    }

    /// Whether the key shows that it isn't the certificate's, asked when a signature has failed.
    pub fn disowns(&self, key: &PrivateKey, public_key: &PublicKey) -> bool {
        let is_own = self.objects().belongs_to(key.object, public_key);
        matches!(is_own, Ok(Some(false)))
    }

    fn paddings(&self, scheme: &Scheme) -> Result<(Padding, Option<Padding>), Error> {
        // Asked about one mechanism, SoftHSM also says yes to those it was told to withhold.
        let offered = self
            .mechanisms
            .get_or_init(|| self.module.functions().mechanisms(self.slot).ok());
        // A library that doesn't say is tried.
        let offers = |wanted| offered.as_ref().is_none_or(|it| it.contains(&wanted));
        Ok(mechanism::paddings(scheme, &self.name(), offers)?)
    }

    fn perform(
        &mut self,
        key: &PrivateKey,
        operation: &Operation,
        pins: &mut dyn PinProvider,
    ) -> Result<Vec<u8>, Refusal> {
        if key.always_authenticate {
            return self.perform_with_pin(key, operation, pins);
        }
        match self.perform_plainly(key, operation) {
            Err(error) if ckr::code(&error) != Some(RvError::UserNotLoggedIn) => Err(error.into()),
            // The key wants its PIN each time, but doesn't say so.
            Err(_) if self.logged_in => self.perform_with_pin(key, operation, pins),
            // The token wants a login, but doesn't say so.
            Err(_) => {
                self.authenticate(UserType::User, &key.words, pins)?;
                Ok(self.perform_plainly(key, operation)?)
            }
            Ok(signature) => Ok(signature),
        }
    }

    fn perform_plainly(
        &self,
        key: &PrivateKey,
        operation: &Operation,
    ) -> Result<Vec<u8>, CryptokiError> {
        let _notice = self.touch_notice();
        self.session.sign_init(&operation.mechanism, key.object)?;
        self.session.sign(&operation.input)
    }

    /// C_SignInit, C_Login(CKU_CONTEXT_SPECIFIC), C_Sign (PKCS#11, section 5.13.1). Nothing may
    /// come between the login and C_Sign: some cards take it for the end of the authentication.
    fn perform_with_pin(
        &mut self,
        key: &PrivateKey,
        operation: &Operation,
        pins: &mut dyn PinProvider,
    ) -> Result<Vec<u8>, Refusal> {
        self.session.sign_init(&operation.mechanism, key.object)?;
        self.authenticate(UserType::ContextSpecific, &key.words, pins)?;
        let _notice = self.touch_notice();
        Ok(self.session.sign(&operation.input)?)
    }

    fn touch_notice(&self) -> Box<dyn Any> {
        self.module.waiting(
            TOUCH_NOTICE_DELAY,
            &format!("touch the token if it blinks: {}", self.name()),
        )
    }

    fn signing_failure(&self, key: &PrivateKey, scheme: &Scheme, error: &CryptokiError) -> Error {
        let (key, scheme) = (key.words.clone(), scheme.to_string());
        ckr::removed_or(error, &self.state.name, |failure| {
            if ckr::code(error) == Some(RvError::KeyFunctionNotPermitted) {
                SigningError::NotForSigning {
                    key,
                    scheme,
                    failure,
                }
            } else if refuses_mechanism(error) {
                SigningError::Refused {
                    key,
                    scheme,
                    failure,
                }
            } else {
                SigningError::Call {
                    key,
                    scheme,
                    failure,
                }
            }
            .into()
        })
    }

    fn objects(&self) -> Objects<'_> {
        Objects {
            session: &self.session,
            token: &self.state.name,
        }
    }

    /// The error of a call that failed: the token is gone, or else what the caller says.
    fn failure(
        &self,
        error: &CryptokiError,
        otherwise: impl FnOnce(CallFailure) -> Error,
    ) -> Error {
        ckr::removed_or(error, &self.state.name, otherwise)
    }
}

/// Why there is no signature: the call's own refusal, which another mechanism may get around,
/// or what ends the request.
enum Refusal {
    Call(CryptokiError),
    Other(Error),
}

impl From<CryptokiError> for Refusal {
    fn from(error: CryptokiError) -> Self {
        Self::Call(error)
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self::Other(error)
    }
}

/// The module has the mechanism, but not for this key or with these parameters.
fn refuses_mechanism(error: &CryptokiError) -> bool {
    matches!(
        ckr::code(error),
        Some(
            RvError::ArgumentsBad
                | RvError::FunctionNotSupported
                | RvError::KeyFunctionNotPermitted
                | RvError::MechanismInvalid
                | RvError::MechanismParamInvalid
        )
    )
}

/// Whether there was no source for a PIN.
fn is_without_pin(error: &Error) -> bool {
    matches!(error.downcast_ref(), Some(PinError::NoPin { .. }))
}

fn is_pin_not_set(error: &Error) -> bool {
    matches!(error.downcast_ref(), Some(LoginError::NotSet { .. }))
}

fn is_no_key(error: &Error) -> bool {
    matches!(error.downcast_ref(), Some(ObjectError::NoKey { .. }))
}
