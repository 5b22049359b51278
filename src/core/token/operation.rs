//! One operation with a private key: its beginning, the login that the key wants for it, its end.

#![forbid(unsafe_code)]

use std::any::Any;
use std::time::Duration;

use cryptoki::error::{Error as CryptokiError, RvError};
use cryptoki::session::UserType;

use super::ckr;
use super::login::Login;
use super::object::KeyTraits;
use super::raw::{CallResult, ObjectHandle, Session};
use super::session::TokenSession;
use crate::error::Error;
use crate::pin::PinProvider;

/// A token that takes longer than this is probably waiting to be touched.
pub const TOUCH_NOTICE_DELAY: Duration = Duration::from_millis(300);

/// What is said of a token that may be waiting for a touch.
pub const TOUCH_NOTICE: &str = "touch the token if it blinks";

/// A private key that can be used while its token is open.
pub struct PrivateKey {
    pub(super) object: ObjectHandle,
    /// What it shows of itself.
    pub traits: KeyTraits,
    /// For messages: `the key with objectId "2" (CN=jane)`.
    pub(super) words: String,
}

/// A key with what it takes to use it.
pub(super) struct KeyUse<'t, 'm> {
    pub(super) session: &'t TokenSession<'m>,
    pub(super) login: &'t mut Login,
    pub(super) key: &'t PrivateKey,
    pub(super) pins: &'t mut dyn PinProvider,
}

/// What the calls of an operation came to.
pub(super) type Outcome = Result<Vec<u8>, CryptokiError>;

/// The calls of an operation: C_SignInit and C_Sign, or C_DecryptInit and C_Decrypt.
pub(super) struct Calls<'c> {
    pub(super) begin: &'c dyn Fn(&Session<'_>) -> CallResult<()>,
    pub(super) end: &'c dyn Fn(&Session<'_>) -> CallResult<Vec<u8>>,
}

impl KeyUse<'_, '_> {
    pub(super) fn perform(&mut self, calls: &Calls<'_>) -> Result<Outcome, Error> {
        if self.key.traits.always_authenticate {
            return self.perform_with_pin(calls);
        }
        let outcome = self.perform_plainly(calls);
        if !wants_login(&outcome) {
            return Ok(outcome);
        }
        // The key wants its PIN each time, but doesn't say so.
        if self.login.is_done() {
            return self.perform_with_pin(calls);
        }
        // The token wants a login, but doesn't say so.
        self.authenticate(UserType::User)?;
        Ok(self.perform_plainly(calls))
    }

    /// The same for an operation of one call, in which a key's own PIN has no place.
    pub(super) fn perform_at_once(
        &mut self,
        call: &dyn Fn(&Session<'_>) -> CallResult<Vec<u8>>,
    ) -> Result<Outcome, Error> {
        let calls = Calls { begin: &|_| Ok(()), end: call };
        let outcome = self.perform_plainly(&calls);
        if !wants_login(&outcome) || self.login.is_done() {
            return Ok(outcome);
        }
        self.authenticate(UserType::User)?;
        Ok(self.perform_plainly(&calls))
    }

    fn perform_plainly(&self, calls: &Calls<'_>) -> Outcome {
        let _notice = self.touch_notice();
        let session = &self.session.raw;
        (calls.begin)(session)?;
        (calls.end)(session)
    }

    /// C_SignInit, C_Login(CKU_CONTEXT_SPECIFIC), C_Sign (PKCS#11, section 5.13.1). Nothing may
    /// come between the login and C_Sign: some cards take it for the end of the authentication.
    fn perform_with_pin(&mut self, calls: &Calls<'_>) -> Result<Outcome, Error> {
        let session = &self.session.raw;
        if let Err(error) = (calls.begin)(session) {
            return Ok(Err(error));
        }
        if let Err(error) = self.authenticate(UserType::ContextSpecific) {
            // An operation that stays active keeps the session from beginning another one.
            let _ = (calls.end)(session);
            return Err(error);
        }
        let _notice = self.touch_notice();
        Ok((calls.end)(session))
    }

    fn authenticate(&mut self, user: UserType) -> Result<(), Error> {
        let words = &self.key.words;
        self.login.authenticate(self.session, user, words, self.pins)
    }

    fn touch_notice(&self) -> Box<dyn Any> {
        let name = &self.session.state.name;
        let text = format!("{TOUCH_NOTICE}: {name}");
        self.session.module.waiting(TOUCH_NOTICE_DELAY, &text)
    }
}

fn wants_login(outcome: &Outcome) -> bool {
    let code = outcome.as_ref().err().and_then(ckr::code);
    code == Some(RvError::UserNotLoggedIn)
}

/// The library has the mechanism, but not for this key or with these parameters.
pub(super) fn refuses_mechanism(error: &CryptokiError) -> bool {
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
