//! Who may send a PIN to the token, and how often.
//!
//! Losing somebody's card to a PIN lock is the worst this program could do, so the rules stand
//! in one place: the token's state is read before every try; a locked PIN or one that must be
//! changed is never tried; a PIN that nobody typed is sent once, never as the final try, and not
//! after a refusal, be it another process's; a person has three tries, and the final one only
//! after an explicit word.

#![forbid(unsafe_code)]

use std::time::Duration;

use cryptoki::error::{Error as CryptokiError, RvError};
use cryptoki::session::UserType;
use cryptoki::types::AuthPin;

use super::refusals::Refusals;
use super::slot::{self, PinState, TokenState};
use super::{Token, ckr};
use crate::error::{Error, LoginError, PinOrigin};
use crate::pin::{PinProvider, PinRequest};
use crate::process::watchdog;
use crate::secret::{MAX_PIN_LENGTH, Pin};

/// How often a person is asked in one run.
const ATTENDED_TRIES: usize = 3;

/// A PIN that was sent to the token, kept for keys that want it again for each signature.
pub(super) struct Kept {
    pin: Pin,
    origin: PinOrigin,
    /// The token has accepted it. Where somebody else was logged in, it has not looked at it.
    pub(super) is_accepted: bool,
}

impl Token<'_> {
    /// Logs the user in (C_Login, CKU_USER) unless that was done or the token needs no login.
    pub(super) fn login(&mut self, key: &str, pins: &mut dyn PinProvider) -> Result<(), Error> {
        // Where no login is required, some modules' C_Login does something else altogether.
        if self.logged_in || !self.state.login_required {
            return Ok(());
        }
        self.authenticate(UserType::User, key, pins)
    }

    /// Sends a PIN until the token accepts one, within the rules above.
    pub(super) fn authenticate(
        &mut self,
        user: UserType,
        key: &str,
        pins: &mut dyn PinProvider,
    ) -> Result<(), Error> {
        let _step = watchdog::step("the login (C_Login)");
        let mut refused: Option<PinState> = None;
        for attempt in 1..=ATTENDED_TRIES {
            let state = self.live_state()?;
            let token = state.name.to_string();
            refuse_hopeless(&state, &token)?;
            let refusals = Refusals::of(&state);
            if state.own_keypad {
                self.authenticate_at_reader(user, &token, pins)?;
                refusals.forget();
                return Ok(());
            }
            // Before the final try, somebody has to say a word, whatever was right before.
            let kept = self.kept.take();
            let kept = kept.filter(|_| state.pin != PinState::FinalTry);
            let is_accepted = kept.as_ref().is_some_and(|kept| kept.is_accepted);
            let origin = match &kept {
                Some(kept) => kept.origin.clone(),
                None => pins.origin(),
            };
            if !origin.is_attended() && !is_accepted {
                refuse_final(&state, &token, &origin)?;
                if !self.disregards_refusals && refusals.may_include(&state, &origin) {
                    return Err(LoginError::RefusedBefore { token, origin }.into());
                }
            }
            let pin = match kept {
                Some(kept) => kept.pin,
                None => ask(&state, &token, key, refused, pins)?,
            };
            let auth_pin = AuthPin::new(pin.expose().into());
            let outcome = self.session.login(user, Some(&auth_pin));
            drop(auth_pin);
            log::debug!("login: C_Login as {user:?}, attempt {attempt}");
            let Err(error) = outcome else {
                log::info!("login: token {token} accepted the PIN {origin}");
                refusals.forget();
                self.logged_in = true;
                self.kept = Some(Kept {
                    pin,
                    origin,
                    is_accepted: true,
                });
                return Ok(());
            };
            match ckr::code(&error) {
                Some(RvError::UserAlreadyLoggedIn) => {
                    self.logged_in = true;
                    self.kept = Some(Kept {
                        pin,
                        origin,
                        is_accepted: false,
                    });
                    return Ok(());
                }
                Some(RvError::PinIncorrect | RvError::PinInvalid | RvError::PinLenRange) => {
                    refusals.remember(&token);
                    let left = self.live_state()?.pin;
                    if !origin.is_attended() || attempt == ATTENDED_TRIES {
                        return Err(LoginError::Incorrect {
                            token,
                            origin,
                            state: left.tries_left(),
                            failure: ckr::failure(&error),
                        }
                        .into());
                    }
                    refused = Some(left);
                }
                _ => return Err(self.login_failure(&error, token)),
            }
        }
        Err(Error::Internal(
            "the loop over PIN tries ran out".to_owned(),
        ))
    }

    /// C_Login without a PIN: the reader has a keypad of its own.
    fn authenticate_at_reader(
        &mut self,
        user: UserType,
        token: &str,
        pins: &mut dyn PinProvider,
    ) -> Result<(), Error> {
        let _pause = watchdog::pause();
        let _notice = pins.notice(
            Duration::ZERO,
            &format!("enter the PIN at the reader of token {token}"),
        );
        match self.session.login(user, None) {
            Ok(()) => {}
            Err(error) => match ckr::code(&error) {
                Some(RvError::UserAlreadyLoggedIn) => {}
                Some(RvError::FunctionCanceled | RvError::FunctionRejected) => {
                    return Err(LoginError::ReaderCancelled {
                        token: token.to_owned(),
                        failure: ckr::failure(&error),
                    }
                    .into());
                }
                Some(RvError::PinIncorrect | RvError::PinInvalid | RvError::PinLenRange) => {
                    return Err(LoginError::Incorrect {
                        token: token.to_owned(),
                        origin: PinOrigin::Person,
                        state: self.live_state()?.pin.tries_left(),
                        failure: ckr::failure(&error),
                    }
                    .into());
                }
                _ => return Err(self.login_failure(&error, token.to_owned())),
            },
        }
        self.logged_in = true;
        Ok(())
    }

    fn live_state(&self) -> Result<TokenState, Error> {
        slot::state(self.module, self.slot).map_err(|error| {
            self.failure(&error, |failure| {
                LoginError::Call {
                    token: self.state.name.to_string(),
                    failure,
                }
                .into()
            })
        })
    }

    fn login_failure(&self, error: &CryptokiError, token: String) -> Error {
        match ckr::code(error) {
            Some(RvError::PinLocked) => LoginError::Locked { token }.into(),
            Some(RvError::PinExpired) => LoginError::ToBeChanged { token }.into(),
            Some(RvError::UserPinNotInitialized) => LoginError::NotSet {
                token,
                failure: ckr::failure(error),
            }
            .into(),
            _ => self.failure(error, |failure| LoginError::Call { token, failure }.into()),
        }
    }
}

/// States in which no PIN can help.
fn refuse_hopeless(state: &TokenState, token: &str) -> Result<(), LoginError> {
    match state.pin {
        PinState::Locked => Err(LoginError::Locked {
            token: token.to_owned(),
        }),
        PinState::ToBeChanged => Err(LoginError::ToBeChanged {
            token: token.to_owned(),
        }),
        PinState::CountLow | PinState::FinalTry | PinState::Good => Ok(()),
    }
}

/// What no PIN that nobody types is sent for.
fn refuse_final(state: &TokenState, token: &str, origin: &PinOrigin) -> Result<(), LoginError> {
    if state.pin == PinState::FinalTry {
        return Err(LoginError::FinalTry {
            token: token.to_owned(),
            origin: origin.clone(),
        });
    }
    Ok(())
}

/// The next PIN to try.
fn ask(
    state: &TokenState,
    token: &str,
    key: &str,
    refused: Option<PinState>,
    pins: &mut dyn PinProvider,
) -> Result<Pin, LoginError> {
    let is_final = state.pin == PinState::FinalTry;
    let notice = match (refused, state.pin) {
        (Some(left), _) => Some(format!("the token refused the PIN{}", left.tries_left())),
        (None, PinState::CountLow) => {
            Some("the token has counted a wrong PIN since the last right one".to_owned())
        }
        (None, _) => None,
    };
    let (shortest, longest) = state.pin_lengths;
    pins.pin(&PinRequest {
        token,
        key,
        shortest,
        longest: if longest == 0 {
            MAX_PIN_LENGTH
        } else {
            longest.min(MAX_PIN_LENGTH)
        },
        notice: notice.as_deref(),
        confirm: is_final.then_some("This is the last try: another wrong PIN locks the token."),
    })
}
