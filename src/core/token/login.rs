//! The login (C_Login): a PIN that the rules allow is got, sent and remembered.
//!
//! Locking a user's card is the worst this program could do. So the rules stand in one place,
//! `pin_rules`; the token's state is read before every try; and from that look until the token's
//! answer its ledger is locked, so that no other process of this user sends it a PIN.

#![forbid(unsafe_code)]

use std::time::Duration;

use cryptoki::error::{Error as CryptokiError, RvError};
use cryptoki::session::UserType;

use super::TokenSession;
use super::ckr;
use super::error::{LoginError, TokenError};
use super::ledger::{Ledger, PinAnswer};
use super::pin_rules::{self, Giver, HeldPin, PinStep, Verdict, WhyNotSent};
use super::slot::{PinHolder, PinState, TokenState};
use super::tried::TRIED;
use super::yubikey::is_yubikey;
use crate::config::TokenName;
use crate::error::Error;
use crate::pin::{MAX_PIN_LENGTH, Pin, PinError, PinKind, PinOrigin, PinProvider, PinRequest};
use crate::process::signals::Deferral;
use crate::process::watchdog;

/// A PIN that was sent to the token, kept for keys that want it again for each signature.
struct Kept {
    pin: Pin,
    origin: PinOrigin,
    /// The token has accepted it. If another login was in force, it has not looked at it.
    is_accepted: bool,
    /// The token has said FINAL_TRY since before the login with it. OpenSC says so of a PIV card as
    /// long as the login lasts.
    outlasts_final_try: bool,
}

/// What to do next for a login.
enum LoginStep {
    AtReader(Box<(TokenState, Ledger)>),
    Send(Box<Attempt>),
    /// The token's state has changed since it was shown to a person.
    Stale,
}

/// A PIN that may be sent, as long as its ledger is locked.
struct Attempt {
    kept: Kept,
    kind: PinKind,
    /// Whose try it is, by the token's count.
    holder: PinHolder,
    is_default_key: bool,
    state: TokenState,
    ledger: Ledger,
}

/// The login of a session, and the PIN that was sent for it.
#[derive(Default)]
pub(super) struct Login {
    is_done: bool,
    is_officer: bool,
    /// The security officer logged in with the management key that every new card has.
    has_default_key: bool,
    kept: Option<Kept>,
    disregards_refusals: bool,
}

/// A PIN, and the token that has accepted it.
pub struct AcceptedPin {
    token: TokenName,
    kept: Kept,
}

impl AcceptedPin {
    pub fn token(&self) -> &TokenName {
        &self.token
    }
}

impl Login {
    /// Whether the session has logged in.
    pub(super) fn is_done(&self) -> bool {
        self.is_done
    }

    /// Whether the security officer logged in with the management key that every new card has.
    pub(super) fn has_default_key(&self) -> bool {
        self.has_default_key
    }

    /// Has a stored PIN sent although the token has refused one: the user says that it is another.
    pub(super) fn disregard_refusals(&mut self) {
        self.disregards_refusals = true;
    }

    /// The PIN that this token has accepted.
    pub(super) fn into_accepted_pin(self, token: TokenName) -> Option<AcceptedPin> {
        let kept = self.kept.filter(|kept| kept.is_accepted)?;
        Some(AcceptedPin { token, kept })
    }

    /// Takes over the PIN that this token accepted before. If the token has counted wrong PINs, that
    /// one is not sent: it may have been changed meanwhile.
    pub(super) fn recall(&mut self, token: &TokenState, pins: &mut Vec<AcceptedPin>) {
        let is_own = |pin: &AcceptedPin| pin.token.is_same_token(&token.name);
        if let Some(place) = pins.iter().position(is_own)
            && token.pin == PinState::Good
        {
            self.kept = Some(pins.swap_remove(place).kept);
        }
    }

    /// Logs the user in (C_Login, CKU_USER) unless that was done or the token requires no login.
    pub(super) fn ensure(
        &mut self,
        session: &TokenSession<'_>,
        key: &str,
        pins: &mut dyn PinProvider,
    ) -> Result<(), Error> {
        // If no login is required, some libraries' C_Login does something else altogether.
        if self.is_done || !session.state.login_required {
            return Ok(());
        }
        self.authenticate(session, UserType::User, key, pins)
    }

    /// Logs the security officer in (C_Login, CKU_SO) unless that was done, and the user out before. The
    /// user's PIN is kept for signatures that want it.
    pub(super) fn ensure_officer(
        &mut self,
        session: &TokenSession<'_>,
        what: &str,
        pins: &mut dyn PinProvider,
    ) -> Result<(), Error> {
        if self.is_officer {
            return Ok(());
        }
        if self.is_done {
            session.raw.logout().map_err(|error| {
                let token = session.state.name.to_string();
                session.failure(&error, |failure| LoginError::Call { token, failure }.into())
            })?;
            self.is_done = false;
        }
        self.authenticate(session, UserType::So, what, pins)
    }

    /// Sends a PIN until the token accepts one, within the rules (`pin_rules`).
    pub(super) fn authenticate(
        &mut self,
        session: &TokenSession<'_>,
        user: UserType,
        key: &str,
        pins: &mut dyn PinProvider,
    ) -> Result<(), Error> {
        let _step = watchdog::step("the login (C_Login)");
        let mut refused: Option<String> = None;
        loop {
            match self.next_step(session, user, key, refused.as_deref(), pins)? {
                LoginStep::AtReader(at) => {
                    return self.authenticate_at_reader(session, user, *at, pins);
                }
                LoginStep::Send(attempt) => match self.send(session, user, *attempt)? {
                    Some(refusal) => refused = Some(refusal),
                    None => return Ok(()),
                },
                LoginStep::Stale => {}
            }
        }
    }

    /// Looks at the token and gets the PIN that may be sent to it now. Until the attempt is dropped no
    /// other process of this user sends it one.
    fn next_step(
        &mut self,
        session: &TokenSession<'_>,
        user: UserType,
        key: &str,
        refused: Option<&str>,
        pins: &mut dyn PinProvider,
    ) -> Result<LoginStep, Error> {
        let holder = holder_of(user);
        let origin = match &self.kept {
            Some(kept) if holder == PinHolder::User => kept.origin.clone(),
            _ => pins.origin(),
        };
        // A stored PIN is at hand at once, so that one look at the token is enough.
        let early = match origin.is_attended() {
            true => None,
            false => Some(Ledger::open(&session.state, holder)?),
        };
        let state = live_state(session)?;
        if !state.name.is_same_token(&session.state.name) {
            return Err(TokenError::Removed {
                token: session.state.name.to_string(),
                failure: ckr::answer("another token is in its place"),
            }
            .into());
        }
        let verdict =
            early.as_ref().map_or(Verdict::Clear, |ledger| ledger.verdict(state.pin_of(holder)));
        let kind = kind_of(user, &state);
        let (step, origin) = self.apply_rules(session, holder, &state, origin, verdict, pins);
        let (confirm, unless) = match step {
            PinStep::Send { confirm, unless } => (confirm, unless),
            PinStep::AskReader { confirm } => {
                if confirm {
                    ask(&state, kind, key, refused, confirm, |request| {
                        pins.confirm_at_reader(request)
                    })?;
                }
                let ledger = lock_after_asking(early, session, &state, (holder, kind))?;
                return Ok(ledger.map_or(LoginStep::Stale, |ledger| {
                    LoginStep::AtReader(Box::new((state, ledger)))
                }));
            }
            PinStep::Refuse(reason) => {
                return Err(not_sent(session, reason, (holder, kind), &state, origin));
            }
            PinStep::Forget => return Err(Error::internal("a PIN was forgotten twice")),
        };
        let kept = self.kept.as_ref().filter(|_| holder == PinHolder::User);
        let (kept, kind, holder, is_default_key) = match kept {
            Some(kept) => (kept.duplicate(), kind, holder, false),
            None => {
                let pin = ask(&state, kind, key, refused, confirm, |request| pins.pin(request))?;
                let (holder, kind) = match kind.is_users(&pin) {
                    true => (PinHolder::User, PinKind::User),
                    false => (holder, kind),
                };
                let (pin, is_default_key) = kind.sent_for(pin);
                let kept = Kept::new(pin, origin, &state, (holder, kind))?;
                (kept, kind, holder, is_default_key)
            }
        };
        let ledger = lock_after_asking(early, session, &state, (holder, kind))?;
        let Some(mut ledger) = ledger else {
            return Ok(LoginStep::Stale);
        };
        if unless.is_some_and(|mark| ledger.mark(&kept.pin) == mark) {
            let reason = WhyNotSent::RefusedBefore;
            return Err(not_sent(session, reason, (holder, kind), &state, kept.origin));
        }
        let is_stored = !kept.origin.is_attended() && !kept.is_accepted;
        if let Err(reason) = ledger.begin()
            && is_stored
            && !self.disregards_refusals
        {
            return Err(LoginError::NoMemory {
                token: state.name.to_string(),
                origin: kept.origin,
                reason,
            }
            .into());
        }
        Ok(LoginStep::Send(Box::new(Attempt { kept, kind, holder, is_default_key, state, ledger })))
    }

    /// What the rules say for the token as it is now, and where the PIN comes from. The kept one is
    /// forgotten if it may not be sent again.
    fn apply_rules(
        &mut self,
        session: &TokenSession<'_>,
        holder: PinHolder,
        state: &TokenState,
        origin: PinOrigin,
        verdict: Verdict,
        pins: &mut dyn PinProvider,
    ) -> (PinStep, PinOrigin) {
        let despite_refusal = self.disregards_refusals;
        let next = |held, origin: &PinOrigin| {
            let has_keypad = state.own_keypad && origin.leaves_it_to_a_reader();
            let giver = giver(despite_refusal, holder, state, origin, verdict);
            pin_rules::next(holder, state.pin_of(holder), has_keypad, held, giver)
        };
        if holder == PinHolder::SecurityOfficer {
            return (next(HeldPin::None, &origin), origin);
        }
        if let Some(kept) = &mut self.kept {
            kept.outlasts_final_try = kept.outlasts_final_try
                && state.pin == PinState::FinalTry
                && self.is_done
                && session.raw.lives(true);
        }
        let held = self.kept.as_ref().map_or(HeldPin::None, Kept::held);
        match next(held, &origin) {
            PinStep::Forget => {
                self.kept = None;
                let origin = pins.origin();
                (next(HeldPin::None, &origin), origin)
            }
            step => (step, origin),
        }
    }

    /// C_Login with the PIN, which is kept if it is the user's and the token accepts it or is logged in
    /// already. Otherwise says that it was refused, if a person may try another one.
    ///
    /// # Errors
    /// The login failed, and there is no other try.
    fn send(
        &mut self,
        session: &TokenSession<'_>,
        user: UserType,
        mut attempt: Attempt,
    ) -> Result<Option<String>, Error> {
        let (outcome, after) = call_login(session, user, &mut attempt);
        let Attempt { kept, kind, holder, is_default_key, state, ledger: _ledger } = attempt;
        let token = state.name.to_string();
        log::debug!("login: C_Login as {user:?}");
        let Err(error) = outcome else {
            log::info!("login: token {token} accepted the {kind} {}", kept.origin);
            self.is_done = true;
            self.is_officer |= matches!(user, UserType::So);
            self.has_default_key |= is_default_key;
            if holder == PinHolder::User {
                self.kept = Some(Kept {
                    is_accepted: true,
                    outlasts_final_try: match user {
                        UserType::User => after == Some(PinState::FinalTry),
                        _ => kept.outlasts_final_try,
                    },
                    ..kept
                });
            }
            return Ok(None);
        };
        if ckr::code(&error) == Some(RvError::UserAlreadyLoggedIn) {
            self.is_done = true;
            self.is_officer |= matches!(user, UserType::So);
            if holder == PinHolder::User {
                self.kept = Some(kept);
            }
            return Ok(None);
        }
        let answer = answer_of(&error);
        // One that was right can't be typed again where nobody is asked any more. After several logins
        // without a clear end it may have been changed.
        let outlives = kept.is_accepted
            && kept.origin.is_attended()
            && !matches!(answer, PinAnswer::Refused | PinAnswer::Locked)
            && TRIED.count(&state.name, holder) < pin_rules::UNCLEAR_LOGINS;
        if !outlives && !matches!(user, UserType::So) {
            self.kept = None;
        }
        if answer != PinAnswer::Refused {
            return Err(login_failure(session, &error, user, kind, token));
        }
        let left = live_state(session)?.pin_of(holder);
        let is_attended = kept.origin.is_attended();
        if is_attended && TRIED.count(&state.name, holder) < pin_rules::ATTENDED_TRIES {
            return Ok(Some(format!("the token refused the {kind}{}", left.tries_left(kind))));
        }
        Err(LoginError::Incorrect {
            kind,
            token,
            origin: kept.origin,
            left,
            failure: ckr::failure(&error),
        }
        .into())
    }

    /// C_Login without a PIN: the reader has a keypad of its own.
    fn authenticate_at_reader(
        &mut self,
        session: &TokenSession<'_>,
        user: UserType,
        (state, mut ledger): (TokenState, Ledger),
        pins: &mut dyn PinProvider,
    ) -> Result<(), Error> {
        let _step = watchdog::step("the entry of the PIN at the reader (C_Login)");
        let token = state.name.to_string();
        let (holder, kind) = (holder_of(user), kind_of(user, &state));
        let text = format!("enter the {kind} at the reader of token {token}");
        pins.at_reader(&text);
        let notice = session.module.waiting(Duration::ZERO, &text);
        match session.raw.login(user, None) {
            Err(error) if ckr::code(&error) != Some(RvError::UserAlreadyLoggedIn) => {
                if answer_of(&error) != PinAnswer::Refused {
                    return Err(login_failure(session, &error, user, kind, token));
                }
                let left = live_state(session)?.pin_of(holder);
                return Err(LoginError::Incorrect {
                    kind,
                    token,
                    origin: PinOrigin::Reader,
                    left,
                    failure: ckr::failure(&error),
                }
                .into());
            }
            Ok(()) | Err(_) => {}
        }
        drop(notice);
        self.is_done = true;
        ledger.accepted(None);
        Ok(())
    }
}

/// C_Login, and what came of it remembered. Meanwhile Ctrl-C and its like wait: SoftHSM empties
/// the token's file at each login before it writes it again, so that a process that is killed in
/// between loses the token; and what was refused must be remembered. Gives also what the token
/// says of its PIN after it was right, if it had something to say before.
fn call_login(
    session: &TokenSession<'_>,
    user: UserType,
    attempt: &mut Attempt,
) -> (Result<(), CryptokiError>, Option<PinState>) {
    let Attempt { kept, holder, state, ledger, .. } = attempt;
    let pin = &kept.pin;
    let step = watchdog::step("the login (C_Login)");
    let _deferral = Deferral::for_login();
    let outcome = session.raw.login(user, Some(pin.expose()));
    drop(step);
    let after = match (&outcome, user, state.pin_of(*holder)) {
        // Nothing may come between a context-specific login and C_Sign.
        (_, UserType::ContextSpecific, _) => None,
        (Ok(()), _, PinState::CountLow | PinState::FinalTry) => {
            let state = live_state(session).ok();
            state.map(|state| state.pin_of(*holder))
        }
        _ => None,
    };
    let answer = match &outcome {
        Ok(()) => PinAnswer::Accepted(after),
        Err(error) => answer_of(error),
    };
    ledger.end(pin, kept.origin.is_attended(), answer);
    (outcome, after)
}

fn live_state(session: &TokenSession<'_>) -> Result<TokenState, Error> {
    session.live_state().map_err(|error| {
        session.failure(&error, |failure| {
            LoginError::Call { token: session.state.name.to_string(), failure }.into()
        })
    })
}

fn holder_of(user: UserType) -> PinHolder {
    match user {
        UserType::So => PinHolder::SecurityOfficer,
        _ => PinHolder::User,
    }
}

/// What the login wants, as people call it.
fn kind_of(user: UserType, state: &TokenState) -> PinKind {
    match holder_of(user) {
        PinHolder::User => PinKind::User,
        PinHolder::SecurityOfficer if !is_yubikey(state) => PinKind::SecurityOfficer,
        // As long as its PIN has tries enough for a mistake.
        PinHolder::SecurityOfficer => PinKind::ManagementKey {
            or_pin: matches!(state.pin, PinState::Good | PinState::CountLow)
                && TRIED.count(&state.name, PinHolder::User) < pin_rules::ATTENDED_TRIES,
        },
    }
}

fn giver(
    despite_refusal: bool,
    holder: PinHolder,
    state: &TokenState,
    origin: &PinOrigin,
    verdict: Verdict,
) -> Giver {
    match origin.is_attended() {
        true => Giver::Person { tries: TRIED.count(&state.name, holder) },
        false => Giver::Stored {
            verdict,
            is_consumed: *origin == PinOrigin::StandardInput,
            despite_refusal,
        },
    }
}

/// Refuses a login of the user in a state in which no PIN can help.
pub(super) fn check_hopeless(session: &TokenSession<'_>, state: &TokenState) -> Result<(), Error> {
    check_state(session, state, (PinHolder::User, PinKind::User))
}

fn check_state(
    session: &TokenSession<'_>,
    state: &TokenState,
    whose: (PinHolder, PinKind),
) -> Result<(), Error> {
    match pin_rules::hopeless(state.pin_of(whose.0)) {
        Some(reason) => Err(not_sent(session, reason, whose, state, PinOrigin::Person)),
        None => Ok(()),
    }
}

fn not_sent(
    session: &TokenSession<'_>,
    reason: WhyNotSent,
    (holder, kind): (PinHolder, PinKind),
    state: &TokenState,
    origin: PinOrigin,
) -> Error {
    let token = state.name.to_string();
    match reason {
        WhyNotSent::FinalTry => PinError::FinalTry { kind, token, origin }.into(),
        WhyNotSent::Locked => LoginError::Locked { kind, token }.into(),
        WhyNotSent::NotFromAPerson => PinError::NotFromAPerson { kind, token }.into(),
        WhyNotSent::RefusedBefore => PinError::RefusedBefore { token, origin }.into(),
        WhyNotSent::ToBeChanged => LoginError::ToBeChanged {
            kind,
            token,
            module: session.module.path().to_owned(),
            told: match holder {
                PinHolder::User => "CKF_USER_PIN_TO_BE_CHANGED",
                PinHolder::SecurityOfficer => "CKF_SO_PIN_TO_BE_CHANGED",
            }
            .to_owned(),
        }
        .into(),
        WhyNotSent::TriesSpent => LoginError::TriesSpent { kind, token }.into(),
    }
}

fn login_failure(
    session: &TokenSession<'_>,
    error: &CryptokiError,
    user: UserType,
    kind: PinKind,
    token: String,
) -> Error {
    match ckr::code(error) {
        Some(RvError::PinLocked) => LoginError::Locked { kind, token }.into(),
        Some(RvError::PinExpired) => LoginError::ToBeChanged {
            kind,
            token,
            module: session.module.path().to_owned(),
            told: ckr::failure(error).to_string(),
        }
        .into(),
        Some(RvError::Cancel | RvError::FunctionCanceled | RvError::FunctionRejected) => {
            LoginError::ReaderCancelled { token, failure: ckr::failure(error) }.into()
        }
        Some(RvError::ArgumentsBad) if matches!(kind, PinKind::ManagementKey { .. }) => {
            LoginError::KeyOfOtherLength { token, failure: ckr::failure(error) }.into()
        }
        Some(RvError::UserPinNotInitialized) if matches!(user, UserType::So) => {
            LoginError::NoKeyUnderPin { token, failure: ckr::failure(error) }.into()
        }
        Some(RvError::UserPinNotInitialized) => {
            LoginError::NotSet { token, failure: ckr::failure(error) }.into()
        }
        _ => session.failure(error, |failure| LoginError::Call { token, failure }.into()),
    }
}

/// Whether the user has no PIN yet.
pub(super) fn is_pin_not_set(error: &Error) -> bool {
    matches!(error.downcast_ref(), Some(LoginError::NotSet { .. }))
}

/// The ledger, if it isn't locked already, for a PIN that a person was asked for when the token was in this
/// state. `None` if others have used up all tries but one meanwhile, which the person doesn't know.
fn lock_after_asking(
    early: Option<Ledger>,
    session: &TokenSession<'_>,
    state: &TokenState,
    whose: (PinHolder, PinKind),
) -> Result<Option<Ledger>, Error> {
    if early.is_some() {
        return Ok(early);
    }
    let holder = whose.0;
    let ledger = Ledger::open(state, holder)?;
    let now = live_state(session)?;
    check_state(session, &now, whose)?;
    let is_new =
        now.pin_of(holder) == PinState::FinalTry && state.pin_of(holder) != PinState::FinalTry;
    Ok((!is_new).then_some(ledger))
}

impl Kept {
    /// A PIN that was got for the token, unless it is a program's answer that the token has refused.
    fn new(
        pin: Pin,
        origin: PinOrigin,
        state: &TokenState,
        whose: (PinHolder, PinKind),
    ) -> Result<Self, PinError> {
        if let PinOrigin::Askpass(_) = origin {
            TRIED.check(&state.name, whose, &pin, origin.clone())?;
        }
        Ok(Self { pin, origin, is_accepted: false, outlasts_final_try: false })
    }

    fn duplicate(&self) -> Self {
        Self { pin: self.pin.duplicate(), origin: self.origin.clone(), ..*self }
    }

    fn held(&self) -> HeldPin {
        match self.is_accepted {
            true => HeldPin::Accepted { outlasts_final_try: self.outlasts_final_try },
            false => HeldPin::Unknown,
        }
    }
}

/// What a failed login says of the PIN. A token that is gone or whose session has ended may have
/// counted it before, and some libraries say that of each failure.
fn answer_of(error: &CryptokiError) -> PinAnswer {
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
        Some(RvError::PinLocked) => PinAnswer::Locked,
        _ => PinAnswer::Unclear,
    }
}

/// Asks for a PIN, or for a person's yes before one, which is wanted in any case if `confirm`.
fn ask<T>(
    state: &TokenState,
    kind: PinKind,
    key: &str,
    refused: Option<&str>,
    confirm: bool,
    ask: impl FnOnce(&PinRequest<'_>) -> Result<T, PinError>,
) -> Result<T, PinError> {
    let pin = match kind {
        PinKind::User => state.pin,
        PinKind::SecurityOfficer | PinKind::ManagementKey { .. } => state.so_pin,
    };
    let notice = match (refused, pin) {
        (Some(refusal), _) => Some(refusal.to_owned()),
        (None, PinState::CountLow) => {
            Some(format!("the token has counted a wrong {kind} since the last right one"))
        }
        (None, _) => None,
    };
    let last = format!("This is the last try: another wrong {kind} locks the token.");
    let (shortest, longest) = state.pin_lengths;
    ask(&PinRequest {
        kind,
        token: &state.name.to_string(),
        key,
        shortest,
        longest: if longest == 0 { MAX_PIN_LENGTH } else { longest.min(MAX_PIN_LENGTH) },
        notice: notice.as_deref(),
        confirm: confirm.then_some(&last),
    })
}

#[cfg(test)]
mod tests {
    use cryptoki::context::Function;

    use super::*;
    use crate::token::slot::state_with_label;

    #[test]
    fn a_pin_is_as_long_as_the_token_and_the_program_can_have_it() {
        for (told, longest) in [(8, 8), (0, MAX_PIN_LENGTH), (100_000, MAX_PIN_LENGTH)] {
            let mut state = state_with_label("token");
            state.pin_lengths.1 = told;
            let lengths = |request: &PinRequest<'_>| Ok((request.shortest, request.longest));
            let asked = ask(&state, PinKind::User, "key", None, false, lengths);
            assert!(matches!(asked, Ok(lengths) if lengths == (4, longest)));
        }
    }

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
                let error = CryptokiError::Pkcs11(*code, Function::Login);
                assert_eq!(answer_of(&error), expected, "{code:?}");
            }
        }
    }
}
