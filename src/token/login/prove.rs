//! Whether another client knows the PIN of a login that is in force, and what becomes of the login meanwhile.
//!
//! A right answer costs no try: it is compared with the PIN that the token has accepted. Only a different one is sent,
//! and only the token can say whether it is right. For that the login ends; if the PIN is wrong, the login is restored,
//! so that what other clients have open stays so.

use cryptoki::session::UserType;

use super::obtain::{Obtained, Sending};
use super::send::Sent;
use super::state::{KnownPin, SourcedPin};
use crate::Token;
use crate::key::KeyReference;
use crate::ledger::{PinAnswer, TRIED_PINS};
use crate::module::PinState;
use crate::pin_rules::{self, WhyNotSent};
use config::pin::PinProvider;
use messages::error::Error;

impl Token {
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
        let Some(former) = self.login.take_accepted() else {
            // It was entered at the reader; or there is one that the token was never asked about, which proves nothing.
            self.login.drop_kept();
            self.log_out()?;
            return self.authenticate(UserType::User, &reference.holder(), pins);
        };
        let outcome = self.prove_by_pin(&former, &reference.holder(), pins);
        self.login.give_back(former);
        outcome
    }

    /// Asks for PINs until one is the `former` one, which the token has accepted, or is accepted in its place.
    fn prove_by_pin(
        &mut self,
        former: &SourcedPin,
        what: &str,
        pins: &mut dyn PinProvider,
    ) -> Result<(), Error> {
        let mut refusal: Option<String> = None;
        loop {
            // Each login with the right one resets the token's count: nobody is to try one after the other in between.
            if self.login.wrong_proofs >= pin_rules::ATTENDED_TRIES {
                return Err(self.not_sent(WhyNotSent::TriesSpent, &pins.origin()));
            }
            match self.obtain(what, refusal.as_deref(), pins)? {
                Obtained::AskAgain => {}
                Obtained::AtReader(ledger) => {
                    self.log_out()?;
                    return self.authenticate_at_reader(UserType::User, ledger, pins);
                }
                Obtained::Pin(sending) if sending.pin.pin().is_same(&former.pin) => break,
                Obtained::Pin(sending) => match self.send_in_place_of(former, sending)? {
                    Sent::LoggedIn => break,
                    Sent::Refused(text) => refusal = Some(text),
                },
            }
        }
        self.login.wrong_proofs = 0;
        Ok(())
    }

    /// Sends a PIN that differs from the `former` one, whose login ends for it, and is restored if this one is refused.
    fn send_in_place_of(
        &mut self,
        former: &SourcedPin,
        mut sending: Sending,
    ) -> Result<Sent, Error> {
        // If a wrong PIN was counted or recorded before this one, somebody else may have sent it, or the PIN may have been
        // changed.
        let was_right = sending.before == PinState::Good && !sending.ledger.stands();
        self.log_out_to_send(&mut sending)?;
        let outcome = self.send(UserType::User, &mut sending);
        if !matches!(outcome, Ok(Sent::LoggedIn)) {
            self.login.wrong_proofs += 1;
            if was_right {
                self.restore(former, sending)?;
            }
        }
        outcome
    }

    /// Ends the login for a PIN that is sent next, unless that can't be recorded where it has to be: what is open would be
    /// closed for nothing.
    fn log_out_to_send(&mut self, sending: &mut Sending) -> Result<(), Error> {
        if sending.needs_record {
            sending.record(&self.state.name)?;
        }
        self.log_out().inspect_err(|_| sending.ledger.end(PinAnswer::NotLookedAt))
    }

    /// Makes the login once more with the `former` PIN, which was right until another one was refused, unless the token
    /// grants one try alone, or none.
    fn restore(&mut self, former: &SourcedPin, refused: Sending) -> Result<(), Error> {
        let now = self.same_token()?.pin;
        if !matches!(now, PinState::CountLow | PinState::Good) {
            return Ok(());
        }
        let Sending { pin: wrong, ledger, needs_record, .. } = refused;
        let pin = KnownPin::Accepted(former.duplicate());
        let mut again = Sending { pin, ledger, needs_record, before: now };
        let _ = self.send(UserType::User, &mut again);
        // It is kept again when the client has done, see `prove`: the next one that the client gives is not it.
        self.login.drop_kept();
        // Still not to be sent twice.
        TRIED_PINS.add(&self.state.name, wrong.pin(), PinAnswer::Refused);
        Ok(())
    }
}
