//! The only part that speaks PKCS#11: a token with a session open to it, its certificates and
//! its keys.
//!
//! The order of calls is the order of this list, and nothing is asked of the token twice:
//! [`Module::open`], [`Token::open`], [`Token::certificate`], [`Token::private_key`] (which logs
//! in), [`Token::sign`].

mod ckr;
mod error;
mod exports;
mod inventory;
mod login;
mod mechanism;
mod module;
mod object;
mod raw;
mod refusals;
mod slot;
mod tried;

pub use error::{
    CallFailure, LoginError, ModuleError, ObjectError, ObjectSummary, SigningError, TokenError,
    TriesLeft, UnusableSlot, WhyUnusable,
};
pub use inventory::{Candidate, Candidates, OccupiedSlot, Standing, VisibleKey};
pub use module::{Module, WaitObserver};
pub use slot::{PinState, TokenState};

use std::any::Any;
use std::cell::OnceCell;
use std::thread;
use std::time::{Duration, Instant};

use cryptoki::error::{Error as CryptokiError, RvError};
use cryptoki::mechanism::MechanismType;
use cryptoki::object::{AttributeType, ObjectClass};
use cryptoki::session::UserType;
use cryptoki::slot::Slot;

use self::mechanism::{Operation, Padding};
use self::object::Query;
use self::raw::{ObjectHandle, Session};
use crate::certificate::{Certificate, PublicKey, day, issuer_of, meant};
use crate::config::{ObjectSelector, TokenName, TokenSelector};
use crate::error::Error;
use crate::pin::PinError;
use crate::pin::PinProvider;
use crate::process::{unix_time, watchdog};
use crate::scheme::Scheme;

/// A token that takes longer than this to sign is probably waiting to be touched.
const TOUCH_NOTICE_DELAY: Duration = Duration::from_millis(300);

/// How long a card that was inserted this moment may take until it is ready, and how often it is
/// looked for.
const READY_LIMIT: Duration = Duration::from_secs(3);
const READY_GLANCE: Duration = Duration::from_millis(200);

/// Certificates above the first one.
const LONGEST_CHAIN: usize = 8;

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

/// A certificate on the token, and the CKA_ID that it shares with its key (may be empty).
pub struct FoundCertificate {
    pub certificate: Certificate,
    pub id: Vec<u8>,
}

/// The private key of a certificate.
pub struct WantedKey<'a> {
    pub selector: &'a ObjectSelector,
    /// CKA_ID of the certificate on the token, which leads to its key; the label decides where that
    /// is empty or shared. Without one the selector names the key itself.
    pub id: Option<&'a [u8]>,
    /// The certificate's.
    pub public_key: &'a PublicKey,
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
        let (slot, state) = slot::find(module, selector)?;
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
                thread::sleep(READY_GLANCE);
            }
            outcome => return outcome,
        }
    }
}

/// Whether there was no source for a PIN.
fn is_without_pin(error: &Error) -> bool {
    matches!(error.downcast_ref(), Some(PinError::NoPin { .. }))
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
        let is_there = slot::state(self.module, self.slot)
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

    /// The one certificate that fits: session objects are passed over, and CA certificates as
    /// long as another one is left. Logs in only if nothing is visible without, and not without
    /// `pins`.
    pub fn certificate(
        &mut self,
        selector: &ObjectSelector,
        pins: Option<&mut dyn PinProvider>,
    ) -> Result<FoundCertificate, Error> {
        let _step = watchdog::step("looking for the certificate (C_FindObjects)");
        if let Some(found) = self.visible_certificate(selector)? {
            return Ok(found);
        }
        let mut is_unsearched = false;
        if !self.logged_in && self.state.login_required {
            let outcome = pins.map(|pins| self.login(&selector.to_string(), pins));
            match outcome {
                // It may be a private object, or it may not be there.
                None => is_unsearched = true,
                Some(Err(error)) if is_without_pin(&error) => is_unsearched = true,
                Some(outcome) => {
                    outcome?;
                    if let Some(found) = self.visible_certificate(selector)? {
                        return Ok(found);
                    }
                }
            }
        }
        Err(self.no_certificate(selector, is_unsearched).into())
    }

    /// The certificates on the token that lead from this one towards its root, in DER, found by
    /// CKA_SUBJECT; the root itself is left out.
    pub fn issuers(&self, certificate: &Certificate) -> Result<Vec<Vec<u8>>, Error> {
        let _step = watchdog::step("reading the issuers' certificates (C_FindObjects)");
        let failure = |error| self.object_failure(&error, "reading the issuer's certificate");
        let mut chain: Vec<Vec<u8>> = Vec::new();
        let mut issuer = certificate.issuer().map(<[u8]>::to_owned);
        while let Some(subject) = issuer
            && chain.len() < LONGEST_CHAIN
        {
            let found = object::find_certificate_of(&self.session, &subject).map_err(failure)?;
            let Some(object) = found.first() else { break };
            let der =
                object::bytes(&self.session, *object, AttributeType::Value).map_err(failure)?;
            // A root signs itself; every server that trusts it has it.
            issuer = issuer_of(&der);
            if issuer.is_some() {
                chain.push(der);
            }
        }
        Ok(chain)
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
    pub fn contradicts(&self, selector: &ObjectSelector, key: &PublicKey) -> Result<bool, Error> {
        let _step = watchdog::step("reading the public key (C_FindObjects)");
        let query = Query::new(ObjectClass::PUBLIC_KEY, selector);
        let shown = object::find(&self.session, query)
            .and_then(|objects| {
                objects
                    .into_iter()
                    .map(|object| object::belongs_to(&self.session, object, key))
                    .collect::<Result<Vec<_>, _>>()
            })
            .map_err(|error| self.object_failure(&error, "reading the public key"))?;
        Ok(shown.contains(&Some(false)) && !shown.contains(&Some(true)))
    }

    /// The one private key that fits, after a login where the token requires one.
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
                self.key_behind_login(wanted, &words, pins)?
            }
        };
        let traits = object::traits(&self.session, object, wanted.public_key)
            .map_err(|error| self.object_failure(&error, "reading the key"))?;
        let always_authenticate = traits.always_authenticate.unwrap_or(false);
        log::info!("{words}: found");
        log::debug!("key: PIN for every signature: {always_authenticate}");
        Ok(PrivateKey {
            object,
            is_anothers: traits.is_anothers,
            always_authenticate,
            words,
        })
    }

    /// The token's signature (C_SignInit, C_Sign): ECDSA as PKCS#11's raw `r ‖ s`. Nothing is
    /// proved about it yet.
    pub fn sign(
        &mut self,
        key: &PrivateKey,
        scheme: &Scheme,
        digest: &[u8],
        public_key: &PublicKey,
        pins: &mut dyn PinProvider,
    ) -> Result<Vec<u8>, Error> {
        let _step = watchdog::step("signing (C_SignInit, C_Sign)");
        let mut paddings = self.paddings(scheme)?.into_iter().peekable();
        let mut first = None;
        while let Some(padding) = paddings.next() {
            log::debug!("signature: {scheme}, padding: {padding:?}");
            let operation = mechanism::operation(scheme, padding, digest, public_key)?;
            match self.perform(key, &operation, pins) {
                Ok(signature) => return Ok(signature),
                Err(Refusal::Call(error))
                    if refuses_mechanism(&error) && paddings.peek().is_some() =>
                {
                    first.get_or_insert(error);
                }
                Err(Refusal::Call(error)) => {
                    // Some libraries keep the first operation active, and say that of the second.
                    let error = match first {
                        Some(first) if !ckr::is_removed(&error) => first,
                        _ => error,
                    };
                    let (key, scheme) = (key.words.clone(), scheme.to_string());
                    return Err(self.failure(&error, |failure| {
                        if ckr::code(&error) == Some(RvError::KeyFunctionNotPermitted) {
                            SigningError::NotForSigning {
                                key,
                                scheme,
                                failure,
                            }
                            .into()
                        } else if refuses_mechanism(&error) {
                            SigningError::Refused {
                                key,
                                scheme,
                                failure,
                            }
                            .into()
                        } else {
                            SigningError::Call {
                                key,
                                scheme,
                                failure,
                            }
                            .into()
                        }
                    }));
                }
                Err(Refusal::Other(error)) => return Err(error),
            }
        }
        Err(Error::internal("no way to sign was left".to_owned()))
    }

    /// Refuses a scheme that the token has no mechanism for (C_GetMechanismList).
    pub fn check_mechanism(&self, scheme: &Scheme) -> Result<(), Error> {
        self.paddings(scheme).map(drop)
    }

    /// Whether the key shows that it isn't the certificate's, asked when a signature has failed.
    pub fn disowns(&self, key: &PrivateKey, public_key: &PublicKey) -> bool {
        object::belongs_to(&self.session, key.object, public_key)
            .is_ok_and(|own| own == Some(false))
    }

    fn paddings(&self, scheme: &Scheme) -> Result<Vec<Padding>, Error> {
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

    /// The certificate that can be seen as things are; `None` where there is none.
    fn visible_certificate(
        &self,
        selector: &ObjectSelector,
    ) -> Result<Option<FoundCertificate>, Error> {
        let failure = |error| self.object_failure(&error, "reading the certificates");
        let query = Query::new(ObjectClass::CERTIFICATE, selector);
        let objects = object::find(&self.session, query)
            .and_then(|objects| object::without_session_objects(&self.session, objects))
            .map_err(failure)?;
        let mut found = match objects.as_slice() {
            [only] => vec![(*only, self.read_certificate(*only, selector)?)],
            many => self.readable_certificates(many, selector),
        };
        let certificates: Vec<_> = found.iter().map(|(_, certificate)| certificate).collect();
        let meant = meant(&certificates, unix_time());
        let [place] = meant[..] else {
            let meant: Vec<_> = meant
                .iter()
                .filter_map(|place| Some(found.get(*place)?.0))
                .collect();
            if meant.is_empty() {
                return Ok(None);
            }
            return Err(self.several("certificates", selector, &meant, ObjectClass::CERTIFICATE));
        };
        let others = found.len() - 1;
        let (object, certificate) = found.swap_remove(place);
        if others > 0 {
            log::info!(
                "{} certificates with {selector}: the one valid until {} is taken, serial number {}",
                others + 1,
                day(certificate.validity().not_after),
                certificate.serial_number(),
            );
        }
        let id = match &selector.id {
            Some(id) => id.as_bytes().to_owned(),
            None => object::bytes(&self.session, object, AttributeType::Id).map_err(failure)?,
        };
        Ok(Some(FoundCertificate { certificate, id }))
    }

    fn read_certificate(
        &self,
        object: ObjectHandle,
        selector: &ObjectSelector,
    ) -> Result<Certificate, Error> {
        let der = object::bytes(&self.session, object, AttributeType::Value)
            .map_err(|error| self.object_failure(&error, "reading the certificate"))?;
        Ok(Certificate::from_der(
            der,
            &format!("the certificate with {selector}"),
        )?)
    }

    /// Among several, one that can't be read is no candidate.
    fn readable_certificates(
        &self,
        objects: &[ObjectHandle],
        selector: &ObjectSelector,
    ) -> Vec<(ObjectHandle, Certificate)> {
        objects
            .iter()
            .filter_map(|object| Some((*object, self.read_certificate(*object, selector).ok()?)))
            .collect()
    }

    fn no_certificate(&self, selector: &ObjectSelector, is_unsearched: bool) -> ObjectError {
        let matching = object::find(
            &self.session,
            Query::new(ObjectClass::CERTIFICATE, selector),
        );
        let matching = matching.unwrap_or_default();
        let all = matching.len();
        // None was left of them, so those that stay couldn't be read.
        let staying = object::without_session_objects(&self.session, matching).ok();
        ObjectError::NoCertificate {
            selector: selector.to_string(),
            token: self.name(),
            passed_over: staying.as_ref().map_or(0, |staying| all - staying.len()),
            unreadable: staying.map_or(0, |staying| staying.len()),
            is_unsearched,
            present: object::summaries(&self.session, ObjectClass::CERTIFICATE, selector),
        }
    }

    /// The one private key that is there without a login because it wants none (CKA_PRIVATE is
    /// false), as a PIV card's key for opening doors.
    fn key_without_login(&self, wanted: &WantedKey<'_>) -> Option<ObjectHandle> {
        if self.logged_in || !self.state.login_required {
            return None;
        }
        let _step = watchdog::step("looking for the key (C_FindObjects)");
        let [only] = self.keys(wanted).ok()?[..] else {
            return None;
        };
        let is_private = object::flag(&self.session, only, AttributeType::Private);
        matches!(is_private, Ok(Some(false))).then_some(only)
    }

    /// The one private key that fits. Where none is seen without a login that the token doesn't
    /// ask for, it may hide them all the same.
    fn key_behind_login(
        &mut self,
        wanted: &WantedKey<'_>,
        words: &str,
        pins: &mut dyn PinProvider,
    ) -> Result<ObjectHandle, Error> {
        let _step = watchdog::step("looking for the key (C_FindObjects)");
        match self.only_key(wanted) {
            Err(missing)
                if !self.logged_in
                    && matches!(missing.downcast_ref(), Some(ObjectError::NoKey { .. })) =>
            {
                match self.authenticate(UserType::User, words, pins) {
                    Ok(()) => self.only_key(wanted),
                    Err(error)
                        if is_without_pin(&error)
                            || matches!(error.downcast_ref(), Some(LoginError::NotSet { .. })) =>
                    {
                        Err(missing)
                    }
                    Err(error) => Err(error),
                }
            }
            outcome => outcome,
        }
    }

    fn only_key(&self, wanted: &WantedKey<'_>) -> Result<ObjectHandle, Error> {
        let class = ObjectClass::PRIVATE_KEY;
        let selector = wanted.selector;
        let found = self.keys(wanted)?;
        match found.as_slice() {
            [only] => Ok(*only),
            [] => Err(ObjectError::NoKey {
                selector: selector.to_string(),
                token: self.name(),
                present: object::summaries(&self.session, class, selector),
            }
            .into()),
            many => Err(self.several("private keys", selector, many, class)),
        }
    }

    /// The private keys under the certificate's CKA_ID; under the label where that is empty. Of
    /// several, those that can be the certificate's.
    fn keys(&self, wanted: &WantedKey<'_>) -> Result<Vec<ObjectHandle>, Error> {
        let class = ObjectClass::PRIVATE_KEY;
        let label = wanted.selector.label.as_deref();
        let query = match wanted.id {
            None => Query::new(class, wanted.selector),
            Some([]) => Query {
                class,
                id: None,
                label,
            },
            Some(id) => Query {
                class,
                id: Some(id),
                label: None,
            },
        };
        self.keys_of(query, label, wanted.public_key)
            .map_err(|error| self.object_failure(&error, "looking for the key"))
    }

    fn keys_of(
        &self,
        query: Query<'_>,
        label: Option<&str>,
        public_key: &PublicKey,
    ) -> Result<Vec<ObjectHandle>, CryptokiError> {
        let session = &self.session;
        let mut found = object::find(session, query)?;
        if found.len() > 1 {
            found = object::without_session_objects(session, found)?;
        }
        if found.len() > 1 {
            found = object::able_to_sign(session, found)?;
        }
        if found.len() > 1 {
            // If none can be, one of them is told to be another's.
            let own = object::possible(session, &found, public_key)?;
            found = if own.is_empty() { found } else { own };
        }
        if found.len() > 1
            && let Some(label) = label.filter(|_| query.label.is_none())
        {
            let label = Some(label);
            let labelled = object::find(session, Query { label, ..query })?;
            if found.iter().any(|object| labelled.contains(object)) {
                found.retain(|object| labelled.contains(object));
            }
        }
        // Keys on one curve are told apart by their public keys, which have their labels.
        if found.len() > 1 {
            let labels = object::labels_of(session, query, public_key)?;
            let mut own = Vec::new();
            for object in &found {
                let label = object::bytes(session, *object, AttributeType::Label)?;
                own.extend(labels.contains(&label).then_some(*object));
            }
            found = if own.len() == 1 { own } else { found };
        }
        Ok(found)
    }

    fn several(
        &self,
        what: &'static str,
        selector: &ObjectSelector,
        found: &[ObjectHandle],
        class: ObjectClass,
    ) -> Error {
        ObjectError::Several {
            what,
            selector: selector.to_string(),
            token: self.name(),
            found: found
                .iter()
                .map(|object| object::summary(&self.session, *object, class))
                .collect(),
        }
        .into()
    }

    fn object_failure(&self, error: &CryptokiError, doing: &'static str) -> Error {
        self.failure(error, |failure| ObjectError::Call { doing, failure }.into())
    }

    /// A call failed: the token is gone, or else what the caller says.
    fn failure(
        &self,
        error: &CryptokiError,
        otherwise: impl FnOnce(CallFailure) -> Error,
    ) -> Error {
        let failure = ckr::failure(error);
        if ckr::is_removed(error) {
            TokenError::Removed {
                token: self.name(),
                failure,
            }
            .into()
        } else {
            otherwise(failure)
        }
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
