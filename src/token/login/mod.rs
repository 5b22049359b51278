//! The login (C_Login): how a PIN that the rules allow is got, sent and remembered.
//!
//! Locking a user's card is the worst that this program could do. So the rules are in one place, `pin_rules`; the token's
//! state is read before every try; and from then until the token has answered, its record is locked, so that no other
//! process of this user sends it a PIN.
//!
//! Each try goes through `obtain` (which PIN, and whether the rules allow it) and `send` (record it, call C_Login, record
//! the answer). `prove` does the same for a client that wants to use a login of others. `state` knows who is logged in, and
//! keeps the PIN. `errors` has the messages, and decides nothing.

mod errors;
mod obtain;
mod prove;
mod send;
mod state;

use cryptoki::session::UserType;

use self::obtain::Obtained;
use self::send::{LoggedInBy, Sent};
use self::state::{KnownPin, SourcedPin};
use super::Token;
use super::ledger::TRIED_PINS;
use super::module::PinState;
use config::TokenName;
use config::pin::{Pin, PinProvider};
use messages::error::{Error, Exit};
use messages::help::{Help, command};

pub(super) use self::state::Login;

/// A PIN, and the token that has accepted it.
pub struct AcceptedPin {
    token: TokenName,
    accepted: SourcedPin,
}

impl AcceptedPin {
    pub fn token(&self) -> &TokenName {
        &self.token
    }

    /// The PIN alone, for a process of its own.
    pub fn into_pin(self) -> Pin {
        self.accepted.pin
    }
}

impl Token {
    /// Logs in as the user (C_Login, CKU_USER), so that private objects are visible, unless that was done before or the
    /// token requires no login. The prompt says that the PIN is wanted for `what`.
    pub fn log_in_if_required(
        &mut self,
        what: &str,
        pins: &mut dyn PinProvider,
    ) -> Result<(), Error> {
        // If no login is required, some libraries' C_Login does something else altogether.
        if self.may_hide_objects() { self.authenticate(UserType::User, what, pins) } else { Ok(()) }
    }

    /// Checks whether a PIN can help, by what the token said when its session was opened. The error says why not.
    pub fn check_pin_state(&self) -> Result<(), Error> {
        self.check_hopeless(self.state.pin)
    }

    /// From now on a stored PIN is sent even if the token may have refused one: the user says that it is another PIN.
    pub fn disregard_refusals(&mut self) {
        self.login.disregards_refusals = true;
    }

    /// Gives all of a process's tries back: another person is asked, or the same one once more.
    pub fn forget_tries(&self) {
        TRIED_PINS.forget(&self.state.name);
    }

    /// Takes the PIN out of `pins` that this very token has accepted before, and keeps it for the login. If the token has
    /// counted wrong PINs since, the PIN is left there: it may have been changed.
    pub fn recall(&mut self, pins: &mut Vec<AcceptedPin>) {
        let is_own = |accepted: &AcceptedPin| accepted.token.is_same_token(&self.state.name);
        if let Some(index) = pins.iter().position(is_own)
            && self.state.pin == PinState::Good
        {
            self.login.keep(KnownPin::Accepted(pins.swap_remove(index).accepted));
        }
    }

    /// How many logins of this session have ended. Private objects that were found before the last end can't be used any
    /// more.
    pub fn logins(&self) -> usize {
        self.login.ended()
    }

    /// Ends the session's use here, and returns the PIN that the token has accepted: for another session, or for when the
    /// token is put back.
    pub fn into_accepted_pin(self) -> Option<AcceptedPin> {
        let accepted = self.login.into_accepted()?;
        Some(AcceptedPin { token: self.state.name, accepted })
    }

    /// Drops the PIN that is kept for another login. From now on each login asks for one.
    pub fn forget_pin(&mut self) {
        self.login.drop_kept();
    }

    /// Whether a PIN is kept that a person has entered, so that it exists nowhere else.
    pub fn keeps_entered_pin(&self) -> bool {
        self.login.kept().is_some_and(|kept| kept.origin().is_attended())
    }

    /// Ends the login and the session (C_Logout, C_CloseSession): some libraries keep the security officer's login as
    /// long as a session is open, and refuse the user's.
    pub fn close(self) -> Option<AcceptedPin> {
        self.session.close(self.login.is_made());
        self.into_accepted_pin()
    }

    /// Logs in as this user, unless the user is logged in already.
    pub(super) fn authenticate(
        &mut self,
        user: UserType,
        what: &str,
        pins: &mut dyn PinProvider,
    ) -> Result<(), Error> {
        self.log_in(user, what, pins).map(drop)
    }

    /// Sends a PIN until the token accepts one, within the rules (`pin_rules`), or has the reader ask for it.
    fn log_in(
        &mut self,
        user: UserType,
        what: &str,
        pins: &mut dyn PinProvider,
    ) -> Result<LoggedInBy, Error> {
        let mut refusal: Option<String> = None;
        loop {
            match self.obtain(what, refusal.as_deref(), pins)? {
                Obtained::AskAgain => {}
                Obtained::AtReader(ledger) => {
                    return self.authenticate_at_reader(user, ledger, pins);
                }
                Obtained::Pin(mut sending) => match self.send(user, &mut sending)? {
                    Sent::LoggedIn(by) => return Ok(by),
                    Sent::Refused(text) => refusal = Some(text),
                },
            }
        }
    }

    /// Ends the login (C_Logout), if there is one; the PIN is kept. An error if the session stays logged in: the library would
    /// take any PIN as the right one then.
    pub(super) fn log_out(&mut self) -> Result<(), Error> {
        if !self.login.is_made() {
            return Ok(());
        }
        let _ = self.session.logout();
        // A session whose state can't be read counts as logged out; the next C_Login will tell.
        let shows_login = self.session.shows_login().unwrap_or(false);
        self.login.logout_called(shows_login);
        if shows_login { Err(self.stays_logged_in()) } else { Ok(()) }
    }

    /// The error of a token that is logged in although it should not be: it takes any PIN as the right one.
    pub(super) fn stays_logged_in(&self) -> Error {
        let text = format!(
            "token {} stays logged in after C_Logout, so that no PIN can be checked",
            self.state.name
        );
        let help = Help::from(command("stop"))
            .and(" ends the process that has it open; then run the command again");
        Error::new(Exit::Login, text).help(help)
    }
}
