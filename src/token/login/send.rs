//! C_Login, with a PIN or at the reader: the record around it, what the token's answer says of the PIN, and whether another
//! PIN may follow.

use std::time::Duration;

use cryptoki::error::{Error as CryptokiError, RvError};
use cryptoki::session::UserType;

use super::errors::malformed;
use super::obtain::Sending;
use super::state::KnownPin;
use crate::ledger::{Ledger, PinAnswer, TRIED_PINS, UNCLEAR_LOGINS};
use crate::module::{PinState, TokenState};
use crate::raw::CallResult;
use crate::{Token, ckr, pin_rules};
use config::pin::{PinOrigin, PinProvider};
use messages::error::Error;
use system::signals::Deferral;

/// What came of a PIN that was sent.
pub(super) enum Sent {
    /// The user is logged in.
    LoggedIn(LoggedInBy),
    /// The PIN was refused, and a person may try another one. The text tells the person why.
    Refused(String),
}

/// Why a user is logged in.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum LoggedInBy {
    /// The token has accepted the PIN.
    Pin,
    /// The user was logged in already (CKR_USER_ALREADY_LOGGED_IN): the token has looked at no PIN.
    EarlierLogin,
}

/// What C_Login has returned, and what that says of the PIN.
pub(super) struct Answered {
    outcome: CallResult<()>,
    pub(super) answer: PinAnswer,
}

impl Token {
    /// Sends the PIN (C_Login). It is kept if the token accepts it, or is logged in already. An error if it was not accepted,
    /// and nobody may try another one.
    pub(super) fn send(&mut self, user: UserType, sending: &mut Sending) -> Result<Sent, Error> {
        let answered = self.send_recorded(user, sending)?;
        self.take_up(user, answered, sending)
    }

    /// Takes up what the token has answered to the PIN: counts the try, and keeps a PIN that may be right.
    pub(super) fn take_up(
        &mut self,
        user: UserType,
        answered: Answered,
        sending: &Sending,
    ) -> Result<Sent, Error> {
        let Answered { outcome, answer } = answered;
        self.count_try(answer, &sending.pin);
        match outcome {
            Ok(()) => {
                log::info!(
                    "login: token {} accepted the PIN {}",
                    self.state.name,
                    sending.pin.origin()
                );
                self.login.logged_in(user);
                self.login.keep(sending.pin.duplicate_as_accepted());
                Ok(Sent::LoggedIn(LoggedInBy::Pin))
            }
            Err(error) if ckr::code(&error) == Some(RvError::UserAlreadyLoggedIn) => {
                self.login.logged_in(user);
                self.login.keep(sending.pin.duplicate());
                Ok(Sent::LoggedIn(LoggedInBy::EarlierLogin))
            }
            Err(error) => self.not_accepted(answer, &error, &sending.pin),
        }
    }

    /// The three steps in which every PIN is sent. A process that is killed after the first one leaves a line that keeps a
    /// stored PIN from being sent again; one that is killed before the third has not lost count.
    ///
    /// A signal ends the process only after the third: Ctrl-C would otherwise leave a line for a PIN that was never sent. And
    /// SoftHSM empties the token's file at each login before it writes it again: a process that is killed in between loses
    /// the token.
    pub(super) fn send_recorded(
        &self,
        user: UserType,
        sending: &mut Sending,
    ) -> Result<Answered, Error> {
        let deferral = Deferral::for_login();
        // 1. The record says that the PIN is sent.
        let recorded = sending.record(&self.state.name)?;
        log::debug!("login: C_Login as {user:?}");
        // 2. The PIN is sent.
        let outcome = self.session.login(user, Some(recorded.sending().pin.pin().expose()));
        let answer = self.answer(&outcome, recorded.sending());
        // 3. The record says what the token has answered.
        let to_record = answer_to_record(answer, &outcome, &recorded.sending().pin);
        recorded.answered(to_record);
        drop(deferral);
        Ok(Answered { outcome, answer })
    }

    /// What the outcome of C_Login says of the PIN.
    fn answer(&self, outcome: &Result<(), CryptokiError>, sending: &Sending) -> PinAnswer {
        match answer_of(outcome, sending.pin.is_accepted()) {
            PinAnswer::Unclear if self.is_malformed(outcome, sending.before) => {
                PinAnswer::Malformed
            }
            answer => answer,
        }
    }

    /// Whether the library itself has refused the PIN's form, before the token could count it: the token says that it has
    /// counted none. Only CKR_ARGUMENTS_BAD means that, since some tokens (TPMs) count wrong PINs and don't show it.
    fn is_malformed(&self, outcome: &Result<(), CryptokiError>, before: PinState) -> bool {
        let code = outcome.as_ref().err().and_then(ckr::code);
        let has_counted_none = |state: TokenState| state.pin == PinState::Good;
        code == Some(RvError::ArgumentsBad)
            && before == PinState::Good
            && self.same_token().is_ok_and(has_counted_none)
    }

    /// Counts the PIN among those that this process has tried.
    fn count_try(&self, answer: PinAnswer, sent: &KnownPin) {
        let token = &self.state.name;
        match answer {
            PinAnswer::Accepted => TRIED_PINS.forget(token),
            PinAnswer::NotLookedAt => {}
            // The token has not seen a malformed PIN either. It counts as a try, so that a program which gives such PINs is
            // not asked for ever.
            PinAnswer::Locked | PinAnswer::Malformed | PinAnswer::Refused | PinAnswer::Unclear => {
                TRIED_PINS.add(token, sent.pin(), answer);
            }
        }
    }

    /// What follows a login that has failed: another try for a person, or the error.
    fn not_accepted(
        &mut self,
        answer: PinAnswer,
        error: &CryptokiError,
        sent: &KnownPin,
    ) -> Result<Sent, Error> {
        let origin = sent.origin();
        let tries = TRIED_PINS.count(&self.state.name);
        let may_try = origin.is_attended() && tries < pin_rules::ATTENDED_TRIES;
        match answer {
            PinAnswer::Malformed if may_try => {
                let text = "the library did not accept the PIN in this form; no try was used up";
                Ok(Sent::Refused(text.to_owned()))
            }
            PinAnswer::Malformed => Err(malformed(&self.state.name, origin, error)),
            PinAnswer::Refused => {
                let left = self.same_token()?.pin;
                if may_try {
                    let text = format!("the token refused the PIN{}", left.tries_left());
                    return Ok(Sent::Refused(text));
                }
                Err(self.incorrect(origin, left, error))
            }
            PinAnswer::Accepted
            | PinAnswer::Locked
            | PinAnswer::NotLookedAt
            | PinAnswer::Unclear => {
                if sent.is_accepted() && may_be_right_still(answer, origin, tries) {
                    self.login.keep(sent.duplicate());
                }
                Err(self.login_failure(error))
            }
        }
    }

    /// C_Login without a PIN: the reader has a keypad of its own.
    pub(super) fn authenticate_at_reader(
        &mut self,
        user: UserType,
        mut ledger: Ledger,
        pins: &mut dyn PinProvider,
    ) -> Result<LoggedInBy, Error> {
        let text = format!("enter the PIN at the reader of token {}", self.state.name);
        pins.at_reader(&text);
        let notice = self.module.waiting(Duration::ZERO, &text);
        let outcome = self.session.login(user, None);
        drop(notice);
        let answer = answer_of(&outcome, false);
        if answer == PinAnswer::Refused {
            // The line isn't written before: whoever walks away from the reader has entered no PIN.
            let _ = ledger.begin();
        }
        ledger.end(answer);
        match outcome {
            Err(error) if answer == PinAnswer::Refused => {
                Err(self.incorrect(&PinOrigin::Reader, self.same_token()?.pin, &error))
            }
            Err(error) if ckr::code(&error) != Some(RvError::UserAlreadyLoggedIn) => {
                Err(self.login_failure(&error))
            }
            Err(_) => {
                self.login.logged_in(user);
                Ok(LoggedInBy::EarlierLogin)
            }
            Ok(()) => {
                self.forget_tries();
                self.login.logged_in(user);
                Ok(LoggedInBy::Pin)
            }
        }
    }
}

/// What the record is told of the answer.
fn answer_to_record(
    answer: PinAnswer,
    outcome: &Result<(), CryptokiError>,
    sent: &KnownPin,
) -> PinAnswer {
    match answer {
        // The token has accepted this PIN before, and was only pulled out: when it is put back, work goes on.
        PinAnswer::Unclear if sent.is_accepted() && outcome.as_ref().is_err_and(ckr::is_gone) => {
            PinAnswer::NotLookedAt
        }
        answer => answer,
    }
}

/// Whether a PIN that the token has accepted before is kept after this answer. A right PIN that is dropped can't be typed again
/// once nobody can be asked. But after several logins without a clear answer it may have been changed.
fn may_be_right_still(answer: PinAnswer, origin: &PinOrigin, tries: usize) -> bool {
    match answer {
        PinAnswer::NotLookedAt => true,
        PinAnswer::Unclear => origin.is_attended() && tries < UNCLEAR_LOGINS,
        PinAnswer::Accepted | PinAnswer::Locked | PinAnswer::Malformed | PinAnswer::Refused => {
            false
        }
    }
}

/// What the outcome of C_Login says of the PIN; `is_accepted` if the token has accepted it before. A token that is gone, or whose
/// session has ended, may have counted the PIN before that, and some libraries report that for every failure: it is unclear.
fn answer_of(outcome: &Result<(), CryptokiError>, is_accepted: bool) -> PinAnswer {
    let Err(error) = outcome else { return PinAnswer::Accepted };
    match ckr::code(error) {
        Some(RvError::PinIncorrect | RvError::PinInvalid | RvError::PinLenRange) => {
            PinAnswer::Refused
        }
        Some(
            RvError::CryptokiNotInitialized
            | RvError::FunctionNotSupported
            | RvError::PinExpired
            | RvError::UserAlreadyLoggedIn
            | RvError::UserAnotherAlreadyLoggedIn
            | RvError::UserPinNotInitialized
            | RvError::UserTooManyTypes,
        ) => PinAnswer::NotLookedAt,
        // No operation waits for the login.
        Some(RvError::OperationNotInitialized) if is_accepted => PinAnswer::NotLookedAt,
        Some(RvError::PinLocked) => PinAnswer::Locked,
        _ => PinAnswer::Unclear,
    }
}

#[cfg(test)]
mod tests {
    use cryptoki::context::Function;

    use super::*;

    #[test]
    fn a_failed_login_is_a_refusal_or_a_doubt_unless_the_token_has_not_looked_at_the_pin() {
        for (codes, expected) in [
            (
                &[RvError::PinIncorrect, RvError::PinInvalid, RvError::PinLenRange][..],
                PinAnswer::Refused,
            ),
            (
                &[
                    RvError::CryptokiNotInitialized,
                    RvError::FunctionNotSupported,
                    RvError::PinExpired,
                    RvError::UserAlreadyLoggedIn,
                    RvError::UserAnotherAlreadyLoggedIn,
                    RvError::UserPinNotInitialized,
                    RvError::UserTooManyTypes,
                ],
                PinAnswer::NotLookedAt,
            ),
            (&[RvError::PinLocked], PinAnswer::Locked),
            (
                &[
                    RvError::DeviceError,
                    RvError::DeviceRemoved,
                    RvError::FunctionCanceled,
                    RvError::FunctionFailed,
                    RvError::GeneralError,
                    RvError::SessionHandleInvalid,
                    RvError::TokenNotPresent,
                ],
                PinAnswer::Unclear,
            ),
        ] {
            for code in codes {
                let error = Err(CryptokiError::Pkcs11(*code, Function::Login));
                assert_eq!(answer_of(&error, false), expected, "{code:?}");
            }
        }
        let error = Err(CryptokiError::Pkcs11(RvError::OperationNotInitialized, Function::Login));
        assert_eq!(answer_of(&error, false), PinAnswer::Unclear);
        assert_eq!(answer_of(&error, true), PinAnswer::NotLookedAt);
    }
}
