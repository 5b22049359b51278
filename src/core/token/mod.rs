//! The only part that speaks PKCS#11: a token with a session open to it, its certificates and
//! its keys.
//!
//! A request makes these calls in this order, and asks nothing twice: [`Module::open`],
//! [`FoundToken::open`], [`Token::certificate`], [`Token::private_key`] (which logs in), [`Token::sign`].

mod attestation;
mod certificate;
mod ckr;
mod error;
mod exports;
mod generation;
mod inventory;
mod key;
mod ledger;
mod login;
mod mechanism;
mod module;
mod object;
mod opening;
mod operation;
mod pin_rules;
mod public_key;
mod raw;
mod session;
mod signing;
mod slot;
mod tried;
mod writing;
mod yubikey;

pub use certificate::FoundCertificate;
pub use error::{
    CallFailure, LoginError, ModuleError, ObjectError, ObjectSummary, OpeningError, SigningError,
    TokenError, UnusableSlot, WhyUnusable, WritingError,
};
pub use generation::{GeneratedKey, KeyKind, KeyPurpose, NewKey};
pub use inventory::{Candidate, Standing, VisibleKey};
pub use key::WantedKey;
pub use login::AcceptedPin;
pub use module::{Module, WaitObserver};
pub use object::KeyTraits;
pub use opening::LockedSecret;
pub use operation::{PrivateKey, TOUCH_NOTICE, TOUCH_NOTICE_DELAY};
pub use public_key::FoundKey;
pub use slot::{OccupiedSlot, PinState, TokenState};
pub use yubikey::{PinPolicy, PivSlot, SlotOptions, TouchPolicy};

use std::cell::OnceCell;
use std::thread::sleep;
use std::time::{Duration, Instant};

use cryptoki::mechanism::MechanismType;
use cryptoki::object::ObjectClass;
use cryptoki::session::UserType;
use cryptoki::slot::Slot;

use self::login::Login;
use self::mechanism::Padding;
use self::object::Objects;
use self::opening::Opener;
use self::operation::KeyUse;
use self::raw::{ObjectHandle, SessionAccess};
use self::session::TokenSession;
use self::signing::Signer;
use self::slot::PinHolder;
use self::tried::TRIED;
use crate::certificate::{Certificate, PublicKey};
use crate::config::{ObjectId, ObjectSelector, TokenSelector};
use crate::error::Error;
use crate::pin::{PinError, PinProvider};
use crate::process::watchdog;
use crate::scheme::Scheme;

/// How long a card that was inserted this moment may take until it is ready, and how often it is
/// looked for.
const READY_LIMIT: Duration = Duration::from_secs(3);
const READY_INTERVAL: Duration = Duration::from_millis(200);

/// A token that is there, without a session yet.
pub struct FoundToken {
    slot: Slot,
    state: TokenState,
}

/// A token with an open session, which ends when it is closed, or with the library (C_Finalize).
pub struct Token<'m> {
    session: TokenSession<'m>,
    login: Login,
    /// What it offers; `None` if it doesn't say.
    mechanisms: OnceCell<Option<Vec<MechanismType>>>,
}

impl FoundToken {
    /// The token that the selector names.
    ///
    /// # Errors
    /// [`TokenError`] if there isn't exactly one.
    pub fn find(module: &Module, selector: &TokenSelector) -> Result<Self, Error> {
        let _step = watchdog::step("looking for the token (C_GetSlotList)");
        let (slot, state) = slot::find(module.functions(), module.path(), selector)?;
        Ok(Self { slot, state })
    }

    /// Label, serial and slot.
    pub fn name(&self) -> String {
        self.state.name.to_string()
    }

    /// Opens a read-only session (C_OpenSession).
    ///
    /// # Errors
    /// [`TokenError::Call`] if the library refuses.
    pub fn open(self, module: &Module) -> Result<Token<'_>, Error> {
        self.open_with(module, SessionAccess::ReadOnly)
    }

    /// Opens a session in which objects can be made and removed. Some libraries refuse it while a
    /// read-only one is open, so that a command that writes has to begin with it.
    ///
    /// # Errors
    /// [`TokenError::Call`] if the library refuses.
    pub fn open_to_write(self, module: &Module) -> Result<Token<'_>, Error> {
        self.open_with(module, SessionAccess::ReadWrite)
    }

    fn open_with(self, module: &Module, access: SessionAccess) -> Result<Token<'_>, Error> {
        Ok(Token {
            session: TokenSession::open(module, self.slot, self.state, access)?,
            login: Login::default(),
            mechanisms: OnceCell::new(),
        })
    }
}

/// Opens a token. If it is missing, asks a person to insert it and opens it then.
///
/// # Errors
/// Those of `open`.
pub fn open_or_ask<T>(
    pins: &mut dyn PinProvider,
    mut open: impl FnMut() -> Result<T, Error>,
) -> Result<T, Error> {
    let is_missing = |error: &Error| {
        let error = error.downcast_ref();
        error.is_some_and(TokenError::may_not_be_inserted)
    };
    let missing = match open() {
        Err(error) if is_missing(&error) => error,
        outcome => return outcome,
    };
    if !pins.insert(&missing.to_string()) {
        return Err(missing);
    }
    let inserted = Instant::now();
    loop {
        match open() {
            Err(error) if error.is::<TokenError>() && inserted.elapsed() < READY_LIMIT => {
                sleep(READY_INTERVAL);
            }
            outcome => return outcome,
        }
    }
}

impl Token<'_> {
    /// Checks that session and login are still there: both end when the token is taken out.
    ///
    /// # Errors
    /// [`TokenError::Removed`] if they have ended.
    pub fn check_session(&self) -> Result<(), TokenError> {
        if self.session.raw.lives(self.login.is_done()) {
            return Ok(());
        }
        Err(TokenError::Removed {
            token: self.name(),
            failure: ckr::answer("its session has ended"),
        })
    }

    /// Whether it isn't there any more, as far as the library says (C_GetTokenInfo).
    pub fn is_missing(&self) -> bool {
        let state = self.session.live_state();
        let is_same = state.is_ok_and(|state| state.name.is_same_token(&self.state().name));
        !is_same || self.check_session().is_err()
    }

    /// Label, serial and slot, for messages.
    pub fn name(&self) -> String {
        self.state().name.to_string()
    }

    /// What the token said of itself when it was opened.
    pub fn state(&self) -> &TokenState {
        &self.session.state
    }

    /// Whether this session has logged in.
    pub fn is_logged_in(&self) -> bool {
        self.login.is_done()
    }

    /// Whether a PIN can help, by what the token said of itself when it was opened.
    ///
    /// # Errors
    /// Why none can.
    pub fn check_pin_state(&self) -> Result<(), Error> {
        login::check_hopeless(&self.session, self.state())
    }

    /// Has a stored PIN sent although the token has refused one: the user says that it is another.
    pub fn disregard_refusals(&mut self) {
        self.login.disregard_refusals();
    }

    /// Ends the login and the session (C_Logout, C_CloseSession); its PIN is wiped. There is no limit
    /// of time.
    pub fn close(self) {
        self.session.raw.close(self.login.is_done());
    }

    /// The PIN that the token has accepted, for the time after it was taken out and put back.
    pub fn into_accepted_pin(self) -> Option<AcceptedPin> {
        self.login.into_accepted_pin(self.session.state.name)
    }

    /// Closes it, and gives the PIN that it has accepted, for another session: some libraries keep the security
    /// officer's login as long as a session is open, and refuse the user's.
    pub fn close_keeping_pin(self) -> Option<AcceptedPin> {
        self.session.raw.close(self.login.is_done());
        self.login.into_accepted_pin(self.session.state.name)
    }

    /// Another person, or the same one once more, has all tries of a process again.
    pub fn forget_tries(&self) {
        TRIED.forget(&self.state().name, PinHolder::User);
    }

    /// Takes over the PIN that this very token accepted before, unless the token has counted wrong
    /// PINs since: the PIN may have been changed meanwhile.
    pub fn recall(&mut self, pins: &mut Vec<AcceptedPin>) {
        self.login.recall(&self.session.state, pins);
    }

    /// Whether it is a YubiKey behind Yubico's own library: a [slot](PivSlot) has one key and one certificate.
    pub fn is_yubikey(&self) -> bool {
        yubikey::is_yubikey(self.state())
    }

    /// Whether it is known that the library writes no certificate to it: OpenSC to a PIV card.
    pub fn takes_no_certificates(&self) -> bool {
        yubikey::is_piv_of_opensc(self.state())
    }

    /// Logs in as the one who may make and write objects: the user, or on a YubiKey the security officer, with
    /// the user logged out. The prompt says that it is wanted for `what`.
    ///
    /// # Errors
    /// Those of a login.
    pub fn reveal_to_write(
        &mut self,
        what: &str,
        pins: &mut dyn PinProvider,
        officer: &mut dyn PinProvider,
    ) -> Result<(), Error> {
        if !self.is_yubikey() {
            return self.reveal(what, pins);
        }
        self.login.ensure_officer(&self.session, what, officer)
    }

    /// A warning, if the security officer logged in with the management key that every new card has.
    pub fn default_key_warning(&self) -> Option<String> {
        self.login.has_default_key().then(|| {
            format!(
                "token {} has the management key of every new card: with it, anyone who holds the card \
                 can overwrite its keys. Change it: ykman piv access change-management-key --generate \
                 --protect",
                self.name()
            )
        })
    }

    /// Logs in, if the token requires it, so that private objects are seen. The prompt says that
    /// the PIN is wanted for `what`.
    ///
    /// # Errors
    /// Those of a login.
    pub fn reveal(&mut self, what: &str, pins: &mut dyn PinProvider) -> Result<(), Error> {
        self.login.ensure(&self.session, what, pins)
    }

    /// The certificates and keys that could authenticate, in the order of CKA_ID; without those that
    /// exist in the session alone; of a YubiKey's, without the key that attests the others, and without
    /// certificates that the library has made up.
    ///
    /// # Errors
    /// If they can't be read.
    pub fn candidates(&self) -> Result<Vec<Candidate>, Error> {
        let mut candidates = inventory::candidates(self.session.objects())?;
        if self.is_yubikey() {
            candidates.retain(|candidate| candidate.id != yubikey::ATTESTATION_KEY);
            for candidate in &mut candidates {
                let is_kept =
                    |it: &Result<Certificate, _>| !it.as_ref().is_ok_and(yubikey::is_placeholder);
                candidate.certificate = candidate.certificate.take().filter(is_kept);
            }
        }
        Ok(candidates)
    }

    /// The attestation certificate of a key and those above it, in DER.
    ///
    /// # Errors
    /// [`ObjectError::NoAttestation`] if the token shows none; one that can't be read.
    pub fn attestation(&self, selector: &ObjectSelector) -> Result<Vec<Vec<u8>>, Error> {
        attestation::chain(self.session.objects(), selector)
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
        let objects = self.session.objects();
        if let Some(found) = certificate::find(objects, selector)? {
            return Ok(found);
        }
        let mut is_unsearched = false;
        if self.may_hide_objects() {
            let words = selector.to_string();
            match pins.map(|pins| self.login.ensure(&self.session, &words, pins)) {
                // It may be a private object, or it may not be there.
                None => is_unsearched = true,
                Some(Err(error)) if is_without_pin(&error) => is_unsearched = true,
                Some(outcome) => {
                    outcome?;
                    if let Some(found) = certificate::find(objects, selector)? {
                        return Ok(found);
                    }
                }
            }
        }
        Err(certificate::missing(objects, selector, is_unsearched).into())
    }

    /// The certificates on the token that lead from this one towards its root, in DER; without the
    /// root.
    ///
    /// # Errors
    /// If they can't be read.
    pub fn issuers(&self, certificate: &Certificate) -> Result<Vec<Vec<u8>>, Error> {
        certificate::issuers(self.session.objects(), certificate)
    }

    /// Finds the one key that fits by its public key, whether or not it has a certificate. Logs in only
    /// if none is visible without, and not without `pins`.
    ///
    /// # Errors
    /// [`ObjectError`] if there isn't exactly one, or no public key of it; the errors of a login.
    pub fn bare_key(
        &mut self,
        selector: &ObjectSelector,
        pins: Option<&mut dyn PinProvider>,
    ) -> Result<FoundKey, Error> {
        let find = |objects: Objects<'_>| public_key::find(objects, selector);
        let found = self.visible_or_hidden(&selector.to_string(), pins, find)?;
        found.ok_or_else(|| public_key::missing(self.session.objects(), selector))
    }

    /// Finds the key with this public key, which is that of `words`. Logs in only if none is visible
    /// without, and not without `pins`.
    ///
    /// # Errors
    /// [`ObjectError::NoKey`] if there is none; the errors of a login.
    pub fn key_of(
        &mut self,
        public_key: &PublicKey,
        words: &str,
        pins: Option<&mut dyn PinProvider>,
    ) -> Result<FoundKey, Error> {
        let find = |objects: Objects<'_>| public_key::find_same(objects, public_key);
        let found = self.visible_or_hidden(words, pins, find)?;
        found.ok_or_else(|| {
            let class = ObjectClass::PRIVATE_KEY;
            let objects = self.session.objects();
            ObjectError::NoKey {
                selector: format!("the public key of {words}"),
                token: self.name(),
                present: objects.summaries(class, &ObjectSelector::default()),
            }
            .into()
        })
    }

    /// What the search finds without a login, or else after one.
    fn visible_or_hidden<T>(
        &mut self,
        words: &str,
        pins: Option<&mut dyn PinProvider>,
        find: impl Fn(Objects<'_>) -> Result<Option<T>, Error>,
    ) -> Result<Option<T>, Error> {
        let found = find(self.session.objects())?;
        let Some(pins) = pins.filter(|_| found.is_none() && self.may_hide_objects()) else {
            return Ok(found);
        };
        self.login.ensure(&self.session, words, pins)?;
        find(self.session.objects())
    }

    /// Whether the token shows a public key, under this selector, that isn't the certificate's.
    ///
    /// # Errors
    /// If the public keys can't be read.
    pub fn contradicts(&self, selector: &ObjectSelector, key: &PublicKey) -> Result<bool, Error> {
        key::contradicts(self.session.objects(), selector, key)
    }

    /// Finds the one private key that fits, after a login if the token requires one for it.
    /// `words` is the key's name in messages.
    ///
    /// # Errors
    /// [`ObjectError`] if there isn't exactly one; the errors of a login.
    pub fn private_key(
        &mut self,
        wanted: &WantedKey<'_>,
        words: String,
        pins: &mut dyn PinProvider,
    ) -> Result<PrivateKey, Error> {
        // What the token shows before a login is another question than what it shows after one.
        let public = match self.may_hide_objects() {
            true => key::find_public(self.session.objects(), wanted),
            false => None,
        };
        let object = match public {
            Some(object) => object,
            None => {
                self.login.ensure(&self.session, &words, pins)?;
                self.find_key(wanted, &words, pins)?
            }
        };
        let objects = self.session.objects();
        let traits = objects.key_traits(object, wanted.public_key);
        let traits = traits.map_err(objects.failed("reading the key"))?;
        log::info!("{words}: found");
        let asks = traits.always_authenticate;
        log::debug!("key: PIN for every signature: {asks}");
        Ok(PrivateKey { object, traits, words })
    }

    /// Whether a login that the token requires has not been made.
    fn may_hide_objects(&self) -> bool {
        self.state().login_required && !self.login.is_done()
    }

    /// Looks for the key, and once more after a login that the token doesn't require: it may hide
    /// its keys all the same.
    fn find_key(
        &mut self,
        wanted: &WantedKey<'_>,
        words: &str,
        pins: &mut dyn PinProvider,
    ) -> Result<ObjectHandle, Error> {
        let objects = self.session.objects();
        let is_no_key = |error: &Error| {
            let error = error.downcast_ref();
            matches!(error, Some(ObjectError::NoKey { .. }))
        };
        let missing = match key::find(objects, wanted) {
            Err(error) if !self.login.is_done() && is_no_key(&error) => error,
            outcome => return outcome,
        };
        let (session, user) = (&self.session, UserType::User);
        match self.login.authenticate(session, user, words, pins) {
            Ok(()) => key::find(objects, wanted),
            Err(error) if is_without_pin(&error) || login::is_pin_not_set(&error) => Err(missing),
            Err(error) => Err(error),
        }
    }

    /// Checks that the token has a mechanism for the scheme (C_GetMechanismList).
    ///
    /// # Errors
    /// [`SigningError::NoMechanism`] if it hasn't.
    pub fn check_mechanism(&self, scheme: &Scheme) -> Result<(), Error> {
        self.paddings(scheme).map(drop)
    }

    fn paddings(&self, scheme: &Scheme) -> Result<(Padding, Option<Padding>), Error> {
        let offered = self.offered();
        // A library that doesn't say is tried.
        let offers = |wanted| offered.as_ref().is_none_or(|it| it.contains(&wanted));
        Ok(mechanism::paddings(scheme, &self.name(), offers)?)
    }

    fn offered(&self) -> Option<&[MechanismType]> {
        // C_GetMechanismInfo of SoftHSM knows also those that its configuration excludes.
        let offered = self.mechanisms.get_or_init(|| {
            let functions = self.session.module.functions();
            functions.mechanisms(self.session.slot).ok()
        });
        offered.as_deref()
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
        let paddings = self.paddings(scheme)?;
        let mut signer =
            Signer(KeyUse { session: &self.session, login: &mut self.login, key, pins });
        signer.sign(scheme, paddings, digest, public_key)
    }

    /// Checks that the token can make such a key and use it (C_GetMechanismList).
    ///
    /// # Errors
    /// [`WritingError::NoGeneration`] if it can't.
    pub fn check_generation(&self, kind: KeyKind, purpose: KeyPurpose) -> Result<(), Error> {
        self.check_card(kind, None)?;
        let offered = self.offered();
        generation::check(kind, purpose, &self.name(), offered)?;
        Ok(())
    }

    /// Whether the library makes keys at all, where that is known; `id` is that of the key to be made.
    ///
    /// # Errors
    /// [`WritingError::NoGenerationOnPiv`], with what else makes one.
    pub fn check_card(&self, kind: KeyKind, id: Option<&ObjectId>) -> Result<(), WritingError> {
        if !yubikey::is_piv_of_opensc(self.state()) {
            return Ok(());
        }
        let slot = id.and_then(PivSlot::of_id);
        let (algorithm, number) = kind.on_piv_cards();
        Err(WritingError::NoGenerationOnPiv {
            token: self.name(),
            slot: slot.unwrap_or(PivSlot::AUTHENTICATION).name(),
            algorithm,
            number,
        })
    }

    /// [`Token::generate`] in a YubiKey's slot: after the security officer's login
    /// ([`Token::reveal_to_write`]).
    ///
    /// # Errors
    /// Those of [`Token::generate`]; policies that the library doesn't know.
    pub fn generate_in_slot(
        &self,
        new: &NewKey<'_>,
        options: SlotOptions,
    ) -> Result<GeneratedKey, Error> {
        self.check_generation(new.kind, new.purpose)?;
        generation::generate(&self.session, new, options)
    }

    /// Makes a key pair (C_GenerateKeyPair) under a CKA_ID that no object has, and reads it back.
    /// Private objects have to be visible: [`Token::reveal`].
    ///
    /// # Errors
    /// [`WritingError`] if the CKA_ID is in use or the token makes no key.
    pub fn generate(&self, new: &NewKey<'_>) -> Result<GeneratedKey, Error> {
        self.generate_in_slot(new, SlotOptions::default())
    }

    /// A CKA_ID that no object has: one byte if there is a free one. Private objects have to be
    /// visible: [`Token::reveal`].
    ///
    /// # Errors
    /// If the objects can't be read.
    pub fn unused_id(&self) -> Result<ObjectId, Error> {
        writing::unused_id(self.session.objects())
    }

    /// The objects with this CKA_ID, whatever they are.
    ///
    /// # Errors
    /// If the objects can't be read.
    pub fn objects_with_id(&self, id: &ObjectId) -> Result<Vec<ObjectSummary>, Error> {
        writing::objects_with_id(self.session.objects(), id)
    }

    /// Writes a certificate beside its key (C_CreateObject), with the key's CKA_ID and label, and reads it
    /// back. Other certificates stay.
    ///
    /// # Errors
    /// [`WritingError::Refused`] if the token holds no certificates; [`WritingError`] if writing fails.
    pub fn write_certificate(
        &self,
        certificate: &Certificate,
        key: &FoundKey,
    ) -> Result<(), Error> {
        writing::write_certificate(&self.session, certificate, key)
    }

    /// Writes the certificate of a CA (C_CreateObject), from which the chain to a server is made, unless it is
    /// there; whether the token holds it now. Behind ykcs11, each slot has room for its key's alone.
    ///
    /// # Errors
    /// [`WritingError`] if writing fails.
    pub fn write_authority(&self, certificate: &Certificate) -> Result<bool, Error> {
        if self.is_yubikey() {
            return Ok(false);
        }
        match writing::write_authority(&self.session, certificate) {
            Err(error) => match error.downcast_ref() {
                Some(WritingError::Refused { .. }) => Ok(false),
                _ => Err(error),
            },
            Ok(()) => Ok(true),
        }
    }

    /// Removes a certificate (C_DestroyObject), if the one that `stays` is there; keys stay. Nothing happens if it
    /// isn't there.
    ///
    /// # Errors
    /// [`WritingError`] if the token refuses, or hasn't the one that stays.
    pub fn remove_certificate(
        &self,
        certificate: &Certificate,
        stays: Option<&Certificate>,
    ) -> Result<(), Error> {
        writing::remove_certificate(&self.session, certificate, stays)
    }

    /// Opens what was sealed to the key (C_Decrypt or C_DeriveKey): the message, or ECDH's shared secret.
    ///
    /// # Errors
    /// [`OpeningError`] if the key isn't for it, or the token can't or won't; the errors of a login for a key
    /// that wants the PIN each time.
    pub fn open(
        &mut self,
        key: &PrivateKey,
        locked: &LockedSecret<'_>,
        public_key: &PublicKey,
        pins: &mut dyn PinProvider,
    ) -> Result<Vec<u8>, Error> {
        let _step = watchdog::step("opening what was sealed (C_Decrypt, C_DeriveKey)");
        self.offered();
        let mut opener = Opener {
            offered: self.mechanisms.get().and_then(|it| it.as_deref()),
            usage: KeyUse { session: &self.session, login: &mut self.login, key, pins },
        };
        opener.open(locked, public_key)
    }

    /// The keys whose public key the token shows.
    ///
    /// # Errors
    /// If they can't be read.
    pub fn public_keys(&self) -> Result<Vec<FoundKey>, Error> {
        public_key::every(self.session.objects())
    }

    /// Whether the key shows that it isn't the certificate's, asked when a signature has failed.
    pub fn disowns(&self, key: &PrivateKey, public_key: &PublicKey) -> bool {
        let is_own = self.session.objects().belongs_to(key.object, public_key);
        matches!(is_own, Ok(Some(false)))
    }
}

/// Whether there was no source for a PIN.
fn is_without_pin(error: &Error) -> bool {
    matches!(error.downcast_ref(), Some(PinError::NoPin { .. }))
}
