//! One signature: C_SignInit, the login that the key wants for it, C_Sign.

#![forbid(unsafe_code)]

use std::any::Any;
use std::time::Duration;

use cryptoki::error::{Error as CryptokiError, RvError};
use cryptoki::session::UserType;

use super::ckr;
use super::error::SigningError;
use super::login::Login;
use super::mechanism::{self, Padding, SigningOperation};
use super::object::KeyTraits;
use super::raw::ObjectHandle;
use super::session::TokenSession;
use crate::certificate::PublicKey;
use crate::error::Error;
use crate::pin::PinProvider;
use crate::scheme::Scheme;

/// A token that takes longer than this to sign is probably waiting to be touched.
pub const TOUCH_NOTICE_DELAY: Duration = Duration::from_millis(300);

/// What is said of a token that may be waiting for a touch.
pub const TOUCH_NOTICE: &str = "touch the token if it blinks";

/// A private key that can sign while its token is open.
pub struct PrivateKey {
    pub(super) object: ObjectHandle,
    /// What it shows of itself.
    pub traits: KeyTraits,
    /// For messages: `the key with objectId "2" (CN=jane)`.
    pub(super) words: String,
}

/// A key with what it takes to sign with it.
pub(super) struct Signer<'t, 'm> {
    pub(super) session: &'t TokenSession<'m>,
    pub(super) login: &'t mut Login,
    pub(super) key: &'t PrivateKey,
    pub(super) pins: &'t mut dyn PinProvider,
}

/// What C_SignInit and C_Sign came to.
type Outcome = Result<Vec<u8>, CryptokiError>;

impl Signer<'_, '_> {
    /// Signs with the first padding, or with the other one if the token refuses that.
    pub(super) fn sign(
        &mut self,
        scheme: &Scheme,
        (padding, other): (Padding, Option<Padding>),
        digest: &[u8],
        public_key: &PublicKey,
    ) -> Result<Vec<u8>, Error> {
        let mut sign_padded = |padding| {
            log::debug!("signature: {scheme}, padding: {padding:?}");
            let operation = mechanism::operation(scheme, padding, digest, public_key);
            self.perform(&operation.map_err(Error::from)?)
        };
        let mut outcome = sign_padded(padding)?;
        if let (Err(refused), Some(other)) = (&outcome, other)
            && refuses_mechanism(refused)
        {
            let second = sign_padded(other)?;
            // Some libraries keep the first operation active, and fail for that.
            if second.as_ref().map_or_else(ckr::is_removed, |_| true) {
                outcome = second;
            }
        }
        outcome.map_err(|error| self.failure(scheme, &error))
    }

    fn perform(&mut self, operation: &SigningOperation) -> Result<Outcome, Error> {
        if self.key.traits.always_authenticate {
            return self.perform_with_pin(operation);
        }
        let outcome = self.perform_plainly(operation);
        let code = outcome.as_ref().err().and_then(ckr::code);
        if code != Some(RvError::UserNotLoggedIn) {
            return Ok(outcome);
        }
        // The key wants its PIN each time, but doesn't say so.
        if self.login.is_done() {
            return self.perform_with_pin(operation);
        }
        // The token wants a login, but doesn't say so.
        self.authenticate(UserType::User)?;
        Ok(self.perform_plainly(operation))
    }

    fn perform_plainly(&self, operation: &SigningOperation) -> Outcome {
        let _notice = self.touch_notice();
        let session = &self.session.raw;
        session.sign_init(&operation.mechanism, self.key.object)?;
        session.sign(&operation.input)
    }

    /// C_SignInit, C_Login(CKU_CONTEXT_SPECIFIC), C_Sign (PKCS#11, section 5.13.1). Nothing may
    /// come between the login and C_Sign: some cards take it for the end of the authentication.
    fn perform_with_pin(&mut self, operation: &SigningOperation) -> Result<Outcome, Error> {
        let session = &self.session.raw;
        if let Err(error) = session.sign_init(&operation.mechanism, self.key.object) {
            return Ok(Err(error));
        }
        self.authenticate(UserType::ContextSpecific)?;
        let _notice = self.touch_notice();
        Ok(session.sign(&operation.input))
    }

    fn authenticate(&mut self, user: UserType) -> Result<(), Error> {
        let words = &self.key.words;
        self.login
            .authenticate(self.session, user, words, self.pins)
    }

    fn touch_notice(&self) -> Box<dyn Any> {
        let name = &self.session.state.name;
        let text = format!("{TOUCH_NOTICE}: {name}");
        self.session.module.waiting(TOUCH_NOTICE_DELAY, &text)
    }

    fn failure(&self, scheme: &Scheme, error: &CryptokiError) -> Error {
        let (key, scheme) = (self.key.words.clone(), scheme.to_string());
        self.session.failure(error, |failure| {
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
}

/// The library has the mechanism, but not for this key or with these parameters.
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
