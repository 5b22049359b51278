//! One signature: C_SignInit, the login that the key wants for it, C_Sign.

#![forbid(unsafe_code)]

use cryptoki::error::{Error as CryptokiError, RvError};

use super::ckr;
use super::error::SigningError;
use super::mechanism::{self, Padding, SigningOperation};
use super::operation::{Calls, KeyUse, Outcome, refuses_mechanism};
use crate::certificate::PublicKey;
use crate::error::Error;
use crate::scheme::Scheme;

/// A key with what it takes to sign with it.
pub(super) struct Signer<'t, 'm>(pub(super) KeyUse<'t, 'm>);

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
        let key = self.0.key.object;
        self.0.perform(&Calls {
            begin: &|session| session.sign_init(&operation.mechanism, key),
            end: &|session| session.sign(&operation.input),
        })
    }

    fn failure(&self, scheme: &Scheme, error: &CryptokiError) -> Error {
        let (key, scheme) = (self.0.key.words.clone(), scheme.to_string());
        self.0.session.failure(error, |failure| {
            if ckr::code(error) == Some(RvError::KeyFunctionNotPermitted) {
                SigningError::NotForSigning { key, scheme, failure }
            } else if refuses_mechanism(error) {
                SigningError::Refused { key, scheme, failure }
            } else {
                SigningError::Call { key, scheme, failure }
            }
            .into()
        })
    }
}
