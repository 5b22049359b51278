//! The login (C_Login): a PIN that the rules allow is got, sent and remembered.
//!
//! Locking a user's card is the worst this program could do. So the rules stand in one place,
//! `pin_rules`; the token's state is read before every try; and from that look until the token's
//! answer its record is locked, so that no other process of this user sends it a PIN.

use std::mem;
use std::time::Duration;

use cryptoki::error::{Error as CryptokiError, RvError};
use cryptoki::session::UserType;

use super::ledger::{Ledger, PinAnswer, TRIED_PINS, UNCLEAR_LOGINS};
use super::module::{PinState, TokenState, pkcs11_tool};
use super::pin_rules::{self, PinSourceKind, WhyNotSent};
use super::{KeyReference, Token, ckr};
use crate::kind;
use config::TokenName;
use config::pin::{self, MAX_PIN_LENGTH, Pin, PinOrigin, PinProvider, PinRequest};
use messages::error::{Error, Exit, PROGRAM};
use messages::help::{Help, HelpPart};
use system::signals::Deferral;

const LAST_TRY: &str = "This is the last try: another wrong PIN locks the token.";
const COUNTED: &str = "the token has counted a wrong PIN since the last right one";
const WHICH_PIN: &str = "make sure which PIN the token wants (a YubiKey: the PIV PIN)";

/// A PIN that was sent to the token, kept for keys that want it again for each signature.
struct KeptPin {
    pin: Pin,
    origin: PinOrigin,
    /// The token has accepted it. If another login was in force, it has not looked at it.
    is_accepted: bool,
}

impl KeptPin {
    fn duplicate(&self) -> Self {
        let Self { pin, origin, is_accepted } = self;
        Self { pin: pin.duplicate(), origin: origin.clone(), is_accepted: *is_accepted }
    }
}

/// What is known of a login before anybody is asked for its PIN.
struct Prospect {
    /// Where the PIN comes from.
    origin: PinOrigin,
    /// Locked if the PIN is at hand; otherwise only once it is given.
    ledger: Option<Ledger>,
    /// What the token says.
    state: TokenState,
}

/// What the rules allow for a login.
enum Obtained {
    /// Others have used up all tries but one meanwhile, which who was asked doesn't know.
    AskAgain,
    /// The reader is to ask.
    AtReader(Ledger),
    Pin(Sending),
}

/// A PIN that may be sent.
struct Sending {
    kept: KeptPin,
    ledger: Ledger,
    /// Not without a line in the record.
    needs_record: bool,
    /// What the token said before.
    before: PinState,
}

/// The login of a session, and the PIN that was sent for it.
#[derive(Default)]
pub(super) struct Login {
    /// Whether the session has logged in.
    pub(super) is_done: bool,
    /// The security officer's, not the user's (`officer`).
    pub(super) is_officer: bool,
    kept: Option<KeptPin>,
    disregards_refusals: bool,
    /// How many of them have ended.
    number: usize,
    /// Wrong PINs of those who wanted to use what is open, since the last right one.
    mistakes: usize,
}

/// A PIN, and the token that has accepted it.
pub struct AcceptedPin {
    token: TokenName,
    kept: KeptPin,
}

impl AcceptedPin {
    pub fn token(&self) -> &TokenName {
        &self.token
    }

    /// For a process of its own.
    pub fn into_pin(self) -> Pin {
        self.kept.pin
    }
}

impl Token {
    /// Logs in (C_Login, CKU_USER) unless that was done or the token requires no login, so that private objects are
    /// seen. The prompt says that the PIN is wanted for `what`.
    pub fn log_in_if_required(
        &mut self,
        what: &str,
        pins: &mut dyn PinProvider,
    ) -> Result<(), Error> {
        // If no login is required, some libraries' C_Login does something else altogether.
        if self.may_hide_objects() { self.authenticate(UserType::User, what, pins) } else { Ok(()) }
    }

    /// Whether a PIN can help, by what the token said of itself when it was opened; the error says why not.
    pub fn check_pin_state(&self) -> Result<(), Error> {
        self.check_hopeless(self.state.pin)
    }

    /// Has a stored PIN sent although the token may have refused one: the user says that it is another.
    pub fn disregard_refusals(&mut self) {
        self.login.disregards_refusals = true;
    }

    /// Another person, or the same one once more, has all tries of a process again.
    pub fn forget_tries(&self) {
        TRIED_PINS.forget(&self.state.name);
    }

    /// Takes over the PIN that this very token accepted before, unless the token has counted wrong PINs since: it may have
    /// been changed meanwhile.
    pub fn recall(&mut self, pins: &mut Vec<AcceptedPin>) {
        let is_own = |accepted: &AcceptedPin| accepted.token.is_same_token(&self.state.name);
        if let Some(index) = pins.iter().position(is_own)
            && self.state.pin == PinState::Good
        {
            self.login.kept = Some(pins.swap_remove(index).kept);
        }
    }

    /// Admits another client to this key of a session that is logged in already, if the client knows the PIN. The PIN that
    /// the token accepted before is right without being sent. Any other one is sent, for which the login ends; if the token
    /// refuses it, the login is made once more with the one that was right, so that what is open stays open, unless
    /// somebody else has sent a wrong PIN meanwhile. Handles of private objects that were found before a login ended are
    /// invalid, see [`Token::logins`].
    pub fn prove(
        &mut self,
        reference: &KeyReference,
        pins: &mut dyn PinProvider,
    ) -> Result<(), Error> {
        if !self.state.login_required || self.public_private_key(reference).is_some() {
            return Ok(());
        }
        let Some(former) = self.login.kept.take_if(|kept| kept.is_accepted) else {
            // It was entered at the reader; or there is one that the token was never asked about, which proves nothing.
            self.login.kept = None;
            self.log_out()?;
            return self.authenticate(UserType::User, &reference.holder(), pins);
        };
        let outcome = self.prove_by_pin(&former, &reference.holder(), pins);
        if self.login.is_done && self.login.kept.is_none() {
            self.login.kept = Some(former);
        }
        outcome
    }

    /// Asks for PINs until one is the `former` one, which the token has accepted, or is accepted in its place.
    fn prove_by_pin(
        &mut self,
        former: &KeptPin,
        what: &str,
        pins: &mut dyn PinProvider,
    ) -> Result<(), Error> {
        let mut refusal: Option<String> = None;
        loop {
            // Each login with the right one resets the token's count: nobody is to try one after the other in between.
            if self.login.mistakes >= pin_rules::ATTENDED_TRIES {
                return Err(self.not_sent(WhyNotSent::TriesSpent, &pins.origin()));
            }
            let mut sending = match self.obtain(what, refusal.as_deref(), pins)? {
                Obtained::AskAgain => continue,
                Obtained::AtReader(ledger) => {
                    self.log_out()?;
                    return self.authenticate_at_reader(UserType::User, ledger, pins);
                }
                Obtained::Pin(sending) => sending,
            };
            if sending.kept.pin.is_same(&former.pin) {
                self.login.mistakes = 0;
                return Ok(());
            }
            self.log_out_to_send(&mut sending)?;
            let outcome = self.send(UserType::User, &mut sending);
            if let Ok(None) = outcome {
                self.login.mistakes = 0;
                return Ok(());
            }
            self.login.mistakes += 1;
            let now = self.same_token()?.pin;
            let was_right = sending.before == PinState::Good && !sending.ledger.stands();
            if was_right && matches!(now, PinState::CountLow | PinState::Good) {
                let other = mem::replace(&mut sending.kept, former.duplicate());
                sending.before = now;
                let _ = self.send(UserType::User, &mut sending);
                self.login.kept = None;
                // Still not to be sent twice.
                TRIED_PINS.add(&self.state.name, &other.pin, true);
            }
            refusal = outcome?;
        }
    }

    /// Ends the login for a PIN that is sent next, unless that can't be recorded where it has to be: what is open would be
    /// closed for nothing.
    fn log_out_to_send(&mut self, sending: &mut Sending) -> Result<(), Error> {
        if sending.needs_record
            && let Err(reason) = sending.ledger.begin()
        {
            return Err(not_recorded(&self.state.name, &sending.kept.origin, &reason));
        }
        self.log_out().inspect_err(|_| sending.ledger.end(PinAnswer::NotLookedAt))
    }

    /// Ends the login. An error if the session stays logged in: a library then takes any PIN as the one of that login.
    fn log_out(&mut self) -> Result<(), Error> {
        if !mem::take(&mut self.login.is_done) {
            return Ok(());
        }
        let _ = self.session.logout();
        self.login.number += 1;
        // What can't be known is left to the login that follows.
        if !self.session.shows_login().unwrap_or(false) {
            return Ok(());
        }
        self.login.is_done = true;
        let text = format!(
            "token {} stays logged in after C_Logout, so that no PIN can be checked",
            self.state.name
        );
        let help = format!(
            "`{PROGRAM} stop` ends the process that has it open; then run the command again"
        );
        Err(Error::new(Exit::Login, text).help(help))
    }

    /// How often a login of this session has ended: what was found of private objects before can't be used.
    pub fn logins(&self) -> usize {
        self.login.number
    }

    /// The PIN that the token has accepted, for another session, or for the time after it was taken out and put back.
    pub fn into_accepted_pin(self) -> Option<AcceptedPin> {
        let kept = self.login.kept.filter(|kept| kept.is_accepted)?;
        Some(AcceptedPin { token: self.state.name, kept })
    }

    /// Whether a PIN is kept here that somebody entered, and that is nowhere else.
    pub fn keeps_entered_pin(&self) -> bool {
        self.login.kept.as_ref().is_some_and(|kept| kept.origin.is_attended())
    }

    /// Ends the login and the session (C_Logout, C_CloseSession): some libraries keep the security officer's login as
    /// long as a session is open, and refuse the user's.
    pub fn close(self) -> Option<AcceptedPin> {
        self.session.close(self.login.is_done);
        self.into_accepted_pin()
    }

    /// Sends a PIN until the token accepts one, within the rules (`pin_rules`).
    pub(super) fn authenticate(
        &mut self,
        user: UserType,
        what: &str,
        pins: &mut dyn PinProvider,
    ) -> Result<(), Error> {
        let mut refusal: Option<String> = None;
        loop {
            match self.obtain(what, refusal.as_deref(), pins)? {
                Obtained::AskAgain => {}
                Obtained::AtReader(ledger) => {
                    return self.authenticate_at_reader(user, ledger, pins);
                }
                Obtained::Pin(mut sending) => match self.send(user, &mut sending)? {
                    Some(refused) => refusal = Some(refused),
                    None => return Ok(()),
                },
            }
        }
    }

    /// Gets a PIN that the rules allow to be sent: the one that is kept, or another one, which may take as long as a
    /// person takes. Who is asked is told of the refusal of the one before.
    fn obtain(
        &mut self,
        what: &str,
        refusal: Option<&str>,
        pins: &mut dyn PinProvider,
    ) -> Result<Obtained, Error> {
        let Prospect { origin, ledger, state } = self.prospect(pins)?;
        let source = self.source_kind(&origin, ledger.as_ref())?;
        let step = pin_rules::next(state.pin, state.own_keypad, source)
            .map_err(|reason| self.not_sent(reason, &origin))?;
        let request = pin_request(&state, what, refusal, step.confirm);
        let mut given = None;
        if step.at_reader && step.confirm {
            pins.confirm_at_reader(&request)?;
        } else if !step.at_reader && self.login.kept.is_none() {
            given = Some(provided_pin(&state.name, origin, &request, pins)?);
        }
        let ledger = match ledger {
            Some(ledger) => Some(ledger),
            None => self.lock_after_asking(&state)?,
        };
        let Some(ledger) = ledger else { return Ok(Obtained::AskAgain) };
        if step.at_reader {
            return Ok(Obtained::AtReader(ledger));
        }
        let kept = given.or_else(|| self.login.kept.take());
        let kept = kept.ok_or_else(|| Error::internal("there is no PIN to send"))?;
        let needs_record = matches!(source, PinSourceKind::Stored { despite_refusal: false, .. });
        Ok(Obtained::Pin(Sending { kept, ledger, needs_record, before: state.pin }))
    }

    /// Looks at the token before a login. The PIN that is kept is dropped if it may not be sent any more.
    fn prospect(&mut self, pins: &mut dyn PinProvider) -> Result<Prospect, Error> {
        let kept = self.login.kept.as_ref().map(|kept| kept.origin.clone());
        let is_kept = kept.is_some();
        let mut origin = kept.unwrap_or_else(|| pins.origin());
        // Such a PIN is at hand at once, so that one look at the token is enough.
        let is_at_hand = is_kept || !origin.is_attended();
        let mut ledger = if is_at_hand { Some(Ledger::open(&self.state)?) } else { None };
        let state = self.same_token()?;
        if is_kept && !may_send_kept(&state, ledger.as_ref()) {
            // It may have been changed meanwhile: as if there were none.
            self.login.kept = None;
            origin = pins.origin();
            if origin.is_attended() {
                ledger = None;
            }
        }
        Ok(Prospect { origin, ledger, state })
    }

    /// Whose PIN would be sent, in the words of the rules. `ledger` is there if the PIN is at hand.
    fn source_kind(
        &self,
        origin: &PinOrigin,
        ledger: Option<&Ledger>,
    ) -> Result<PinSourceKind, Error> {
        let tries = TRIED_PINS.count(&self.state.name);
        Ok(match (origin, &self.login.kept) {
            // One that is recorded isn't kept: `prospect` has dropped it.
            (_, Some(kept)) if kept.is_accepted => PinSourceKind::Accepted { is_recorded: false },
            (PinOrigin::Askpass(_), None) if tries == 0 && !self.login.disregards_refusals => {
                // Not kept while it is asked.
                PinSourceKind::Program { is_recorded: Ledger::open(&self.state)?.stands() }
            }
            (origin, _) if origin.is_attended() => PinSourceKind::Person { tries },
            _ => PinSourceKind::Stored {
                is_recorded: ledger.is_none_or(Ledger::stands),
                despite_refusal: self.login.disregards_refusals,
            },
        })
    }

    /// C_Login with the PIN, which is kept if the token accepts it or is logged in already. Otherwise says
    /// that it was refused, if a person may try another one.
    fn send(&mut self, user: UserType, sending: &mut Sending) -> Result<Option<String>, Error> {
        let Sending { kept, ledger, needs_record, before } = sending;
        let token = &self.state.name;
        // From before the PIN is recorded as sent: Ctrl-C would leave that behind for one that wasn't. And SoftHSM empties
        // the token's file at each login before it writes it again, so that a process that is killed in between loses
        // the token.
        let deferral = Deferral::for_login();
        if let Err(reason) = ledger.begin()
            && *needs_record
        {
            return Err(not_recorded(token, &kept.origin, &reason));
        }
        log::debug!("login: C_Login as {user:?}");
        let outcome = self.session.login(user, Some(kept.pin.expose()));
        let is_malformed = self.is_malformed(&outcome, *before);
        let answer = match answer_of(&outcome, kept.is_accepted) {
            PinAnswer::Unclear if is_malformed => PinAnswer::NotLookedAt,
            answer => answer,
        };
        ledger.end(match answer {
            // The token has accepted this PIN before: what was pulled and is put back goes on.
            PinAnswer::Unclear if kept.is_accepted && outcome.as_ref().is_err_and(ckr::is_gone) => {
                PinAnswer::NotLookedAt
            }
            answer => answer,
        });
        drop(deferral);
        match answer {
            PinAnswer::Accepted => TRIED_PINS.forget(token),
            // Nor has the token looked at one that it was not given; but nobody is to give it for ever.
            PinAnswer::NotLookedAt if !is_malformed => {}
            _ => TRIED_PINS.add(token, &kept.pin, answer == PinAnswer::Refused),
        }
        let error = match outcome {
            Ok(()) => {
                log::info!("login: token {token} accepted the PIN {}", kept.origin);
                self.login.is_done = true;
                self.login.kept = Some(KeptPin { is_accepted: true, ..kept.duplicate() });
                return Ok(None);
            }
            Err(error) if ckr::code(&error) == Some(RvError::UserAlreadyLoggedIn) => {
                self.login.is_done = true;
                self.login.kept = Some(kept.duplicate());
                return Ok(None);
            }
            Err(error) => error,
        };
        let tries = TRIED_PINS.count(token);
        let may_try = kept.origin.is_attended() && tries < pin_rules::ATTENDED_TRIES;
        if is_malformed {
            if !may_try {
                return Err(malformed(token, &kept.origin, &error));
            }
            return Ok(Some(
                "the library did not take the PIN as it is; no try was spent".to_owned(),
            ));
        }
        // One that was right can't be typed again where nobody is asked any more. After several logins
        // without a clear answer it may have been changed.
        let is_right_still = match answer {
            PinAnswer::NotLookedAt => true,
            PinAnswer::Unclear => kept.origin.is_attended() && tries < UNCLEAR_LOGINS,
            PinAnswer::Accepted | PinAnswer::Locked | PinAnswer::Refused => false,
        };
        if kept.is_accepted && is_right_still {
            self.login.kept = Some(kept.duplicate());
        }
        if answer != PinAnswer::Refused {
            return Err(self.login_failure(&error));
        }
        let left = self.same_token()?.pin;
        if may_try {
            return Ok(Some(format!("the token refused the PIN{}", left.tries_left())));
        }
        Err(self.incorrect(&kept.origin, left, &error))
    }

    /// Whether the library itself has refused the PIN's form, before the token could count it: the token says that it has
    /// counted none. Of other codes, tokens that show no wrong PIN (TPMs) may have.
    fn is_malformed(&self, outcome: &Result<(), CryptokiError>, before: PinState) -> bool {
        let code = outcome.as_ref().err().and_then(ckr::code);
        let has_counted_none = |state: TokenState| state.pin == PinState::Good;
        code == Some(RvError::ArgumentsBad)
            && before == PinState::Good
            && self.same_token().is_ok_and(has_counted_none)
    }

    /// C_Login without a PIN: the reader has a keypad of its own.
    fn authenticate_at_reader(
        &mut self,
        user: UserType,
        mut ledger: Ledger,
        pins: &mut dyn PinProvider,
    ) -> Result<(), Error> {
        let text = format!("enter the PIN at the reader of token {}", self.state.name);
        pins.at_reader(&text);
        let notice = self.module.waiting(Duration::ZERO, &text);
        let outcome = self.session.login(user, None);
        drop(notice);
        let answer = answer_of(&outcome, false);
        if answer == PinAnswer::Refused {
            // Not before: whoever walks away from the reader has entered none.
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
            _ => {
                self.forget_tries();
                self.login.is_done = true;
                Ok(())
            }
        }
    }

    /// The token's state now, if it is the token of the session.
    fn same_token(&self) -> Result<TokenState, Error> {
        let state = self.module.token_state(self.state.name.slot);
        let state = state.map_err(|error| self.call_failure(&error))?;
        match state.name.is_same_token(&self.state.name) {
            true => Ok(state),
            false => Err(self.removed("another token is in its place")),
        }
    }

    /// The record, for a PIN that a person was asked for when the token was in this state. `None` if others have
    /// used up all tries but one meanwhile, which the person doesn't know.
    fn lock_after_asking(&self, state: &TokenState) -> Result<Option<Ledger>, Error> {
        let ledger = Ledger::open(state)?;
        let now = self.same_token()?.pin;
        self.check_hopeless(now)?;
        let is_new = now == PinState::FinalTry && state.pin != PinState::FinalTry;
        Ok((!is_new).then_some(ledger))
    }

    /// Refuses a login in a state in which no PIN can help.
    fn check_hopeless(&self, state: PinState) -> Result<(), Error> {
        let reason = pin_rules::hopeless(state);
        reason.map_or(Ok(()), |reason| Err(self.not_sent(reason, &PinOrigin::Person)))
    }

    fn not_sent(&self, reason: WhyNotSent, origin: &PinOrigin) -> Error {
        let token = &self.state.name;
        let (text, help) = match reason {
            WhyNotSent::FinalTry => return pin::final_try(&token.to_string(), origin),
            WhyNotSent::Locked => return self.locked(),
            WhyNotSent::ToBeChanged => return self.to_be_changed("CKF_USER_PIN_TO_BE_CHANGED"),
            WhyNotSent::RefusedBefore => (
                format!(
                    "token {token} seems to have refused a PIN; the PIN {origin} was not sent to it"
                ),
                Help::from(format!(
                    "correct the PIN, then, in a terminal (with ssh: -t), log in yourself: `{PROGRAM} check"
                ))
                .and(HelpPart::Key)
                .and(format!(
                    " --pin-source prompt`; where nobody can type it, `{PROGRAM} check"
                ))
                .and(HelpPart::Key)
                .and(HelpPart::PinSource)
                .and(" --despite-refusal` sends the stored PIN once"),
            ),
            WhyNotSent::TriesSpent => (
                format!(
                    "token {token} was sent three PINs and has accepted none, so no other is asked for"
                ),
                Help::from(format!(
                    "make sure which PIN the token wants (`{PROGRAM} check"
                ))
                .and(HelpPart::Key)
                .and(" --no-login` shows how it counts), then start the command again"),
            ),
        };
        Error::new(Exit::Login, text).help(help)
    }

    fn locked(&self) -> Error {
        let text = format!("the PIN of token {} is locked (CKR_PIN_LOCKED)", self.state.name);
        Error::new(Exit::Login, text).help(self.unblock())
    }

    fn unblock(&self) -> String {
        let tool = self.pkcs11_tool();
        format!(
            "unblock it with the PUK or the SO PIN: ykman piv access unblock-pin (YubiKey), pkcs15-tool --unblock-pin \
             (OpenSC), tpm2_dictionarylockout --clear-lockout (TPM), {tool} --login --login-type so --init-pin (others)"
        )
    }

    fn pkcs11_tool(&self) -> String {
        pkcs11_tool(self.state.name.slot, &self.module.path.to_string_lossy())
    }

    fn to_be_changed(&self, reported: &str) -> Error {
        let (token, tool) = (&self.state.name, self.pkcs11_tool());
        let text =
            format!("the PIN of token {token} must be changed before it can be used ({reported})");
        Error::new(Exit::Login, text)
            .help(format!("change it: {tool} --login --change-pin, or the token's own tool"))
    }

    fn incorrect(&self, origin: &PinOrigin, left: PinState, error: &CryptokiError) -> Error {
        let (token, tries, failure) = (&self.state.name, left.tries_left(), ckr::failure(error));
        let text = format!("token {token} refused the PIN {origin}{tries}: {failure}");
        Error::new(Exit::Login, text).help(match origin {
            _ if left == PinState::Locked => Help::from(self.unblock()),
            PinOrigin::Person | PinOrigin::Reader => {
                Help::from(format!("{WHICH_PIN} before you try again"))
            }
            PinOrigin::Askpass(_) | PinOrigin::Pinentry(_) => {
                Help::from(format!("{WHICH_PIN}, or correct what that program answers by itself"))
            }
            PinOrigin::Stored(_) => Help::from(format!(
                "correct the PIN at its source, then log in yourself: `{PROGRAM} check"
            ))
            .and(HelpPart::Key)
            .and(" --pin-source prompt`; until then no stored PIN is sent, since every try counts"),
        })
    }

    fn login_failure(&self, error: &CryptokiError) -> Error {
        let (token, failure) = (&self.state.name, ckr::failure(error));
        match ckr::code(error) {
            Some(RvError::PinLocked) => self.locked(),
            Some(RvError::PinExpired) => self.to_be_changed(&failure),
            Some(RvError::Cancel | RvError::FunctionCanceled | RvError::FunctionRejected) => {
                let text = format!("the login to token {token} was cancelled: {failure}");
                Error::new(Exit::Login, text).help(
                    "run the command again and enter the PIN at the reader or in the library's window",
                )
            }
            Some(RvError::UserPinNotInitialized) => {
                let text = format!("token {token} has no user PIN yet: {failure}");
                let tool = self.pkcs11_tool();
                Error::new(Exit::Login, text).kind(kind::PIN_NOT_SET).help(format!(
                    "initialise the user PIN first: {tool} --login --login-type so --init-pin, or the token's own tool"
                ))
            }
            _ => self.call_failure(error),
        }
    }

    pub(super) fn call_failure(&self, error: &CryptokiError) -> Error {
        self.failure(error, |failure| {
            let text = format!("login to token {} failed: {failure}", self.state.name);
            Error::new(Exit::Login, text).kind(kind::CALL_FAILED).help(ckr::TAKE_OUT)
        })
    }
}

/// Whether the rules let a PIN that is kept be sent once more, rather than another one. A token that takes no PIN at all is
/// refused later, whatever PIN there is.
fn may_send_kept(state: &TokenState, ledger: Option<&Ledger>) -> bool {
    let is_recorded = ledger.is_none_or(Ledger::stands);
    let kept = PinSourceKind::Accepted { is_recorded };
    let step = pin_rules::next(state.pin, state.own_keypad, kept);
    !matches!(step, Err(WhyNotSent::FinalTry | WhyNotSent::RefusedBefore))
}

/// What is asked for: a PIN for the token in this state, or before the last try a person's word.
fn pin_request<'a>(
    state: &'a TokenState,
    what: &'a str,
    refusal: Option<&'a str>,
    needs_confirmation: bool,
) -> PinRequest<'a> {
    let (shortest, longest) = lengths(state);
    let counted = (state.pin == PinState::CountLow).then_some(COUNTED);
    PinRequest {
        token: state.name.to_string().into(),
        label: state.name.label.as_str().into(),
        what: what.into(),
        shortest,
        longest,
        notice: refusal.or(counted).map(Into::into),
        confirm: needs_confirmation.then(|| LAST_TRY.into()),
    }
}

/// The PIN that is given for this request. An error if it comes from a program that gives again what the token has
/// refused, or may have.
fn provided_pin(
    token: &TokenName,
    origin: PinOrigin,
    request: &PinRequest<'_>,
    pins: &mut dyn PinProvider,
) -> Result<KeptPin, Error> {
    let pin = pins.pin(request)?;
    let is_from_program = matches!(origin, PinOrigin::Askpass(_) | PinOrigin::Pinentry(_));
    if is_from_program && TRIED_PINS.is_repeated(token, &pin) {
        return Err(repeated(token, &origin));
    }
    Ok(KeptPin { pin, origin, is_accepted: false })
}

/// The shortest and the longest PIN that token and program can have.
fn lengths(state: &TokenState) -> (usize, usize) {
    let (shortest, longest) = state.pin_lengths;
    (shortest, if longest == 0 { MAX_PIN_LENGTH } else { longest.min(MAX_PIN_LENGTH) })
}

fn repeated(token: &TokenName, origin: &PinOrigin) -> Error {
    let text = format!(
        "token {token} seems to have refused the PIN {origin}, which gave the same one again"
    );
    Error::new(Exit::Login, text).help(
        "correct what that program answers before you try again; a PIN that was refused is not sent twice",
    )
}

fn malformed(token: &TokenName, origin: &PinOrigin, error: &CryptokiError) -> Error {
    let text = format!(
        "the library of token {token} did not take the PIN {origin} as it is: {}",
        ckr::failure(error)
    );
    Error::new(Exit::Login, text).help(format!(
        "{WHICH_PIN}, and how long it is (a PIV PIN has 6 to 8 characters); no try was spent"
    ))
}

/// The record has no place for the line that must stand before a stored PIN is sent.
fn not_recorded(token: &TokenName, origin: &PinOrigin, reason: &str) -> Error {
    let text = format!(
        "a PIN that token {token} refuses could not be remembered ({reason}), so the PIN {origin} was not \
         sent to it"
    );
    Error::new(Exit::Login, text).help(
        "see that you can write to .local/state/pkcs11-external-signer in your home, or to one of those \
         directories, with mode 0700; or type the PIN: set pinSource (--pin-source) to prompt",
    )
}

/// What a login says of the PIN, which the token may have accepted before. A token that is gone or whose session has
/// ended may have counted it before, and some libraries say that of each failure.
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
    use crate::module::state_with_label;

    #[test]
    fn a_pin_is_as_long_as_the_token_and_the_program_can_have_it() {
        for (reported, longest) in [(8, 8), (0, MAX_PIN_LENGTH), (100_000, MAX_PIN_LENGTH)] {
            let mut state = state_with_label("token");
            state.pin_lengths.1 = reported;
            assert_eq!(lengths(&state), (4, longest));
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
                let error = Err(CryptokiError::Pkcs11(*code, Function::Login));
                assert_eq!(answer_of(&error, false), expected, "{code:?}");
            }
        }
        let error = Err(CryptokiError::Pkcs11(RvError::OperationNotInitialized, Function::Login));
        assert_eq!(answer_of(&error, false), PinAnswer::Unclear);
        assert_eq!(answer_of(&error, true), PinAnswer::NotLookedAt);
    }
}
