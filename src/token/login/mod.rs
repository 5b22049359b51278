//! The login (C_Login): a PIN that the rules allow is got, sent and remembered.
//!
//! Locking a user's card is the worst this program could do. So the rules stand in one place,
//! `pin_rules`; the token's state is read before every try; and from that look until the token's
//! answer its record is locked, so that no other process of this user sends it a PIN.
//!
//! Each try goes through `obtain` (which PIN, and whether the rules allow it) and `send` (record it, call C_Login, take
//! the answer). `prove` does the same for a client who wants to use what is open. `state` has who is logged in, and the
//! PIN that is kept. `errors` decides nothing.

mod errors;
mod obtain;
mod prove;
mod send;
mod state;

use cryptoki::session::UserType;

use self::obtain::Obtained;
use self::send::Sent;
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

    /// For a process of its own.
    pub fn into_pin(self) -> Pin {
        self.accepted.pin
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
            self.login.keep(KnownPin::Accepted(pins.swap_remove(index).accepted));
        }
    }

    /// How often a login of this session has ended: what was found of private objects before can't be used.
    pub fn logins(&self) -> usize {
        self.login.ended()
    }

    /// The PIN that the token has accepted, for another session, or for the time after it was taken out and put back.
    pub fn into_accepted_pin(self) -> Option<AcceptedPin> {
        let accepted = self.login.into_accepted()?;
        Some(AcceptedPin { token: self.state.name, accepted })
    }

    /// Whether a PIN is kept here that somebody entered, and that is nowhere else.
    pub fn keeps_entered_pin(&self) -> bool {
        self.login.kept().is_some_and(|kept| kept.origin().is_attended())
    }

    /// Ends the login and the session (C_Logout, C_CloseSession): some libraries keep the security officer's login as
    /// long as a session is open, and refuse the user's.
    pub fn close(self) -> Option<AcceptedPin> {
        self.session.close(self.login.is_made());
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
                    Sent::LoggedIn => return Ok(()),
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
        // What can't be known is left to the login that follows.
        let shows_login = self.session.shows_login().unwrap_or(false);
        self.login.logout_called(shows_login);
        if !shows_login {
            return Ok(());
        }
        let text = format!(
            "token {} stays logged in after C_Logout, so that no PIN can be checked",
            self.state.name
        );
        let help = Help::from(command("stop"))
            .and(" ends the process that has it open; then run the command again");
        Err(Error::new(Exit::Login, text).help(help))
    }
}
