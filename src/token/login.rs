//! Who may send a PIN to the token, and how often.
//!
//! Losing somebody's card to a PIN lock is the worst this program could do, so the rules stand
//! in one place: the token's state is read before every try; a locked PIN or one that must be
//! changed is never tried; a PIN that nobody typed is sent once, never as the final try, and not
//! after a refusal, be it another process's; a person has three tries, and the final one only
//! after an explicit word. From that look at the token until its answer nobody else of this user
//! sends it a PIN.

#![forbid(unsafe_code)]

use std::time::Duration;

use cryptoki::error::{Error as CryptokiError, RvError};
use cryptoki::session::UserType;

use super::error::LoginError;
use super::refusals::{Refusals, Sent, Verdict, alone_with};
use super::slot::{self, PinState, TokenState};
use super::tried::TRIED;
use super::{Token, ckr};
use crate::error::Error;
use crate::pin::{MAX_PIN_LENGTH, Pin, PinError, PinOrigin, PinProvider, PinRequest};
use crate::process::lock::Lock;
use crate::process::signals::Deferral;
use crate::process::watchdog;

/// How often a person may try in one process, until the token accepts a PIN.
const ATTENDED_TRIES: usize = 3;

/// A PIN that was sent to the token, kept for keys that want it again for each signature.
pub(super) struct Kept {
    pin: Pin,
    origin: PinOrigin,
    /// The token has accepted it. Where somebody else was logged in, it has not looked at it.
    pub(super) is_accepted: bool,
    /// The token has said FINAL_TRY since before the login with it. OpenSC says so of a PIV card as
    /// long as the login lasts.
    outlasts_final_try: bool,
}

/// What to do next for a login.
enum Entry {
    Keypad(TokenState),
    Pin(Box<PinEntry>),
    /// The token isn't any more what a person was told of it.
    Stale,
}

/// A PIN to be sent.
struct PinEntry {
    kept: Kept,
    state: TokenState,
    /// `None` where there is no place for a memory.
    memory: Option<(Refusals, Sent)>,
    _alone: Option<Lock>,
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
        let mut tries = 0;
        loop {
            let entry = match self.entry(key, refused, pins)? {
                Entry::Pin(entry) => entry,
                Entry::Stale => continue,
                Entry::Keypad(state) => {
                    self.authenticate_at_reader(user, &state.name.to_string(), pins)?;
                    if let Ok(refusals) = Refusals::of(&state) {
                        refusals.forget(None);
                    }
                    return Ok(());
                }
            };
            tries += 1;
            let outcome = self.send(user, &entry);
            log::debug!("login: C_Login as {user:?}, try {tries}");
            let token = entry.state.name.to_string();
            let after = outcome.as_ref().ok().copied().flatten();
            let Err(error) = outcome else {
                log::info!(
                    "login: token {token} accepted the PIN {}",
                    entry.kept.origin
                );
                TRIED.forget(&entry.state.name);
                self.logged_in = true;
                self.kept = Some(Kept {
                    is_accepted: true,
                    outlasts_final_try: match user {
                        UserType::User => after == Some(PinState::FinalTry),
                        _ => entry.kept.outlasts_final_try,
                    },
                    ..entry.kept
                });
                return Ok(());
            };
            if entry.kept.origin.is_attended() && may_have_counted(&error) {
                TRIED.add(&entry.state.name, &entry.kept.pin, is_refusal(&error));
            }
            match ckr::code(&error) {
                Some(RvError::UserAlreadyLoggedIn) => {
                    self.logged_in = true;
                    self.kept = Some(Kept {
                        is_accepted: false,
                        ..entry.kept
                    });
                    return Ok(());
                }
                _ if is_refusal(&error) => {
                    let left = self.live_state()?.pin;
                    let origin = entry.kept.origin;
                    if !origin.is_attended() || TRIED.count(&entry.state.name) >= ATTENDED_TRIES {
                        return Err(LoginError::Incorrect {
                            token,
                            origin,
                            left: left.tries_left(),
                            failure: ckr::failure(&error),
                        }
                        .into());
                    }
                    refused = Some(left);
                }
                _ => return Err(self.login_failure(&error, token)),
            }
        }
    }

    /// The next PIN to try, and the token alone for it.
    fn entry(
        &mut self,
        key: &str,
        refused: Option<PinState>,
        pins: &mut dyn PinProvider,
    ) -> Result<Entry, Error> {
        let was_kept = self.kept.is_some();
        let origin = match &self.kept {
            Some(kept) => kept.origin.clone(),
            None => pins.origin(),
        };
        // What nobody types is at hand at once, so that one look at the token is enough.
        let mut alone = None;
        if !origin.is_attended() {
            alone = Some(alone_with(&self.state)?);
        }
        let state = self.live_state()?;
        let token = state.name.to_string();
        self.refuse_hopeless(&state)?;
        if state.own_keypad {
            if state.pin == PinState::FinalTry {
                ask(&state, key, refused, |request| {
                    pins.confirm_at_reader(request)
                })?;
            }
            return Ok(Entry::Keypad(state));
        }
        let mut kept = self.kept.take();
        if state.pin == PinState::FinalTry {
            // Before it, somebody has to say a word, whatever was right earlier.
            kept = kept.filter(|kept| {
                kept.outlasts_final_try && self.logged_in && self.session.lives(true)
            });
        } else if let Some(kept) = &mut kept {
            kept.outlasts_final_try = false;
        }
        let origin = if was_kept && kept.is_none() {
            pins.origin()
        } else {
            origin
        };
        let is_accepted = kept.as_ref().is_some_and(|kept| kept.is_accepted);
        let refusals = Refusals::of(&state);
        let is_stored = !origin.is_attended() && !is_accepted;
        let verdict = match refusals.as_ref() {
            Ok(refusals) if is_stored => refusals.verdict(&state),
            _ => Verdict::Clear,
        };
        let refused_before = || PinError::RefusedBefore {
            token: token.clone(),
            origin: origin.clone(),
        };
        if is_stored {
            if state.pin == PinState::FinalTry {
                return Err(PinError::FinalTry { token, origin }.into());
            }
            let is_refused = match verdict {
                Verdict::Clear => false,
                Verdict::Refused => true,
                // What is there may be the user's, if it isn't sent.
                Verdict::Unless(_) => origin == PinOrigin::StandardInput,
            };
            if is_refused && !self.disregards_refusals {
                return Err(refused_before().into());
            }
        }
        let kept = match kept {
            Some(kept) => kept,
            None if origin.is_attended() && TRIED.count(&state.name) >= ATTENDED_TRIES => {
                return Err(LoginError::TriesSpent { token }.into());
            }
            None => {
                let pin = ask(&state, key, refused, |request| pins.pin(request))?;
                if let PinOrigin::Askpass(_) = origin {
                    TRIED.check(&state.name, &pin, origin.clone())?;
                }
                Kept {
                    pin,
                    origin: origin.clone(),
                    is_accepted: false,
                    outlasts_final_try: false,
                }
            }
        };
        if alone.is_none() {
            alone = Some(alone_with(&state)?);
            let now = self.live_state()?;
            self.refuse_hopeless(&now)?;
            // While somebody typed, others have used up all tries but one.
            if now.pin == PinState::FinalTry && state.pin != PinState::FinalTry {
                return Ok(Entry::Stale);
            }
        }
        if let (Verdict::Unless(mark), Ok(refusals)) = (verdict, refusals.as_ref())
            && refusals.mark(&kept.pin) == mark
            && !self.disregards_refusals
        {
            return Err(refused_before().into());
        }
        let memory = refusals.and_then(|refusals| {
            let sent = refusals.send()?;
            Ok((refusals, sent))
        });
        let memory = match memory {
            Ok(memory) => Some(memory),
            Err(reason) if is_stored && !self.disregards_refusals => {
                return Err(LoginError::NoMemory {
                    token,
                    origin: kept.origin,
                    reason,
                }
                .into());
            }
            Err(_) => None,
        };
        Ok(Entry::Pin(Box::new(PinEntry {
            kept,
            state,
            memory,
            _alone: alone.flatten(),
        })))
    }

    /// C_Login with the PIN, and what came of it remembered. Signals are deferred meanwhile: SoftHSM
    /// empties the token's file at each login and then writes it anew, so a process killed in between
    /// loses the token; and a refusal has to be remembered. Returns what the token says of its PIN
    /// after a successful login, where it had something to say before.
    fn send(&self, user: UserType, entry: &PinEntry) -> Result<Option<PinState>, CryptokiError> {
        let step = watchdog::step("the login (C_Login)");
        let _deferral = Deferral::for_login();
        let outcome = self.session.login(user, Some(entry.kept.pin.expose()));
        drop(step);
        let after = match (&outcome, user, entry.state.pin) {
            // Nothing may come between a context-specific login and C_Sign.
            (Ok(()), UserType::User, PinState::CountLow | PinState::FinalTry) => {
                self.live_state().ok().map(|state| state.pin)
            }
            _ => None,
        };
        let Some((refusals, sent)) = &entry.memory else {
            return outcome.map(|()| after);
        };
        match &outcome {
            Ok(()) => refusals.forget(after),
            Err(error) if is_refusal(error) => {
                let is_stored = !entry.kept.origin.is_attended();
                sent.refused(is_stored.then(|| refusals.mark(&entry.kept.pin)));
            }
            Err(error) if may_have_counted(error) => {}
            Err(_) => sent.not_looked_at(),
        }
        outcome.map(|()| after)
    }

    /// C_Login without a PIN: the reader has a keypad of its own.
    fn authenticate_at_reader(
        &mut self,
        user: UserType,
        token: &str,
        pins: &mut dyn PinProvider,
    ) -> Result<(), Error> {
        let _pause = watchdog::pause();
        // At the beginning: the end of a long line isn't shown.
        let unused = match pins.origin().is_attended() {
            true => "",
            false => " (pinSource is not used)",
        };
        let _notice = self.module.waiting(
            Duration::ZERO,
            &format!("enter the PIN at the reader{unused} of token {token}"),
        );
        match self.session.login(user, None) {
            Ok(()) => {}
            Err(error) => match ckr::code(&error) {
                Some(RvError::UserAlreadyLoggedIn) => {}
                _ if is_refusal(&error) => {
                    let left = self.live_state()?.pin;
                    return Err(LoginError::Incorrect {
                        token: token.to_owned(),
                        origin: PinOrigin::Reader,
                        left: left.tries_left(),
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
        slot::state(self.module.functions(), self.slot).map_err(|error| {
            self.failure(&error, |failure| {
                LoginError::Call {
                    token: self.state.name.to_string(),
                    failure,
                }
                .into()
            })
        })
    }

    /// Refuses a login in a state in which no PIN can help.
    pub fn check_pin_state(&self) -> Result<(), LoginError> {
        self.refuse_hopeless(&self.state)
    }

    fn refuse_hopeless(&self, state: &TokenState) -> Result<(), LoginError> {
        let token = state.name.to_string();
        match state.pin {
            PinState::Locked => Err(LoginError::Locked { token }),
            PinState::ToBeChanged => Err(LoginError::ToBeChanged {
                token,
                module: self.module.path().to_owned(),
                told: "CKF_USER_PIN_TO_BE_CHANGED".to_owned(),
            }),
            PinState::CountLow | PinState::FinalTry | PinState::Good => Ok(()),
        }
    }

    fn login_failure(&self, error: &CryptokiError, token: String) -> Error {
        match ckr::code(error) {
            Some(RvError::PinLocked) => LoginError::Locked { token }.into(),
            Some(RvError::PinExpired) => LoginError::ToBeChanged {
                token,
                module: self.module.path().to_owned(),
                told: ckr::failure(error).to_string(),
            }
            .into(),
            Some(RvError::Cancel | RvError::FunctionCanceled | RvError::FunctionRejected) => {
                LoginError::ReaderCancelled {
                    token,
                    failure: ckr::failure(error),
                }
                .into()
            }
            Some(RvError::UserPinNotInitialized) => LoginError::NotSet {
                token,
                failure: ckr::failure(error),
            }
            .into(),
            _ => self.failure(error, |failure| LoginError::Call { token, failure }.into()),
        }
    }
}

/// The token has looked at the PIN and not liked it.
fn is_refusal(error: &CryptokiError) -> bool {
    matches!(
        ckr::code(error),
        Some(RvError::PinIncorrect | RvError::PinInvalid | RvError::PinLenRange)
    )
}

/// Whether it may have done so where the library doesn't say: a token that is gone or whose session
/// has ended may have counted before, and some libraries say that of each failure.
fn may_have_counted(error: &CryptokiError) -> bool {
    !matches!(
        ckr::code(error),
        Some(
            RvError::CryptokiNotInitialized
                | RvError::FunctionNotSupported
                | RvError::PinExpired
                | RvError::PinLocked
                | RvError::UserAlreadyLoggedIn
                | RvError::UserAnotherAlreadyLoggedIn
                | RvError::UserPinNotInitialized
                | RvError::UserTooManyTypes
        )
    )
}

/// Asks for a PIN, or a person for their word before one.
fn ask<T>(
    state: &TokenState,
    key: &str,
    refused: Option<PinState>,
    ask: impl FnOnce(&PinRequest<'_>) -> Result<T, PinError>,
) -> Result<T, PinError> {
    let is_final = state.pin == PinState::FinalTry;
    let notice = match (refused, state.pin) {
        (Some(left), _) => Some(format!("the token refused the PIN{}", left.tries_left())),
        (None, PinState::CountLow) => {
            Some("the token has counted a wrong PIN since the last right one".to_owned())
        }
        (None, _) => None,
    };
    let (shortest, longest) = state.pin_lengths;
    ask(&PinRequest {
        token: &state.name.to_string(),
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
