//! A client proves that it knows the PIN of a login that is in force, and what becomes of the login meanwhile.
//!
//! Several clients share one session, and so one login. A client that comes later may use the login only if it knows the PIN,
//! too. Its PIN is compared with the one that the token has accepted, the *former* one: if they are the same, nothing is sent
//! and no try is spent. If they differ, only the token can say which is right now. For that the login has to end, since a
//! library takes any PIN for right while it is logged in. If the token refuses the new PIN, the login is made again with the
//! former one, so that what other clients have open stays open.
//!
//! ```text
//!   prove ─┬─ nothing to prove: the key can be used without a login
//!          ├─ no former PIN:    log_out ─► authenticate       (a login like any other)
//!          └─ prove_by_pin:     obtain a PIN
//!               ├─ it is the former one ─────────────────────────────────► proven, nothing sent
//!               ├─ at the reader: log_out ─► authenticate_at_reader
//!               └─ another one: send_in_place_of
//!                    log_out_for  the line that it is sent is written, where there has to be one; then the login ends
//!                    send         the line, the PIN, the answer (`send.rs`)
//!                      ├─ accepted ──────────────────────────────────────► proven; it is the login's PIN from now on
//!                      └─ refused ─► restore: the former PIN is sent ────► ask again, or the error
//! ```

use cryptoki::session::UserType;

use super::obtain::{Obtained, Sending};
use super::send::{LoggedInBy, Sent};
use super::state::{KnownPin, SourcedPin};
use crate::Token;
use crate::key::KeyReference;
use crate::ledger::{PinAnswer, TRIED_PINS};
use crate::module::PinState;
use crate::pin_rules::{self, WhyNotSent};
use config::pin::{Pin, PinProvider};
use messages::error::Error;

/// The PIN of the login that is in force, which the token has accepted. It is taken out of the login while a client proves
/// that it knows the PIN: nothing but [`Token::restore`] can send it meanwhile.
struct FormerPin(SourcedPin);

impl FormerPin {
    fn is(&self, pin: &Pin) -> bool {
        self.0.pin.is_same(pin)
    }
}

impl Token {
    /// Admits another client to this key in a session that is logged in already, if the client knows the PIN.
    ///
    /// A PIN that is not the accepted one is sent, for which the login ends. If the token refuses it, the login is made again
    /// with the accepted one, unless somebody else has sent a wrong PIN meanwhile. After a login has ended, handles of private
    /// objects that were found before are invalid: see [`Token::logins`].
    pub fn prove(
        &mut self,
        reference: &KeyReference,
        pins: &mut dyn PinProvider,
    ) -> Result<(), Error> {
        if !self.state.login_required || self.public_private_key(reference).is_some() {
            return Ok(());
        }
        let what = reference.holder();
        let Some(former) = self.login.take_accepted().map(FormerPin) else {
            return self.prove_by_new_login(&what, pins);
        };
        let outcome = self.prove_by_pin(&former, &what, pins);
        self.login.give_back(former.0);
        outcome
    }

    /// Ends the login and has the client log in, since there is no PIN to compare with: the former one was entered at the
    /// reader, or the token has never looked at the kept one.
    fn prove_by_new_login(&mut self, what: &str, pins: &mut dyn PinProvider) -> Result<(), Error> {
        self.login.drop_kept();
        self.log_out()?;
        let by = self.log_in(UserType::User, what, pins)?;
        self.check_was_looked_at(by)
    }

    /// Fails if the token was still logged in when the client gave its PIN, at the reader or here, and so has not looked at
    /// it.
    fn check_was_looked_at(&mut self, by: LoggedInBy) -> Result<(), Error> {
        match by {
            LoggedInBy::Pin => Ok(()),
            LoggedInBy::EarlierLogin => {
                self.login.drop_kept();
                Err(self.stays_logged_in())
            }
        }
    }

    /// Asks for PINs until one is the former one, or is accepted in its place.
    fn prove_by_pin(
        &mut self,
        former: &FormerPin,
        what: &str,
        pins: &mut dyn PinProvider,
    ) -> Result<(), Error> {
        let (mut refusal, mut refusals) = (None::<String>, 0);
        loop {
            self.check_wrong_proofs()?;
            // Malformed PINs are no wrong proofs, but a program could give one after the other for ever.
            if refusals == pin_rules::ATTENDED_TRIES {
                return Err(self.not_sent(WhyNotSent::TriesSpent, &pins.origin()));
            }
            match self.obtain(what, refusal.as_deref(), pins)? {
                Obtained::AskAgain => {}
                Obtained::AtReader(ledger) => {
                    self.log_out()?;
                    let by = self.authenticate_at_reader(UserType::User, ledger, pins)?;
                    return self.check_was_looked_at(by);
                }
                // Once the login has ended, only the token can say whether its PIN is still right.
                Obtained::Pin(given) if self.login.is_made() && former.is(given.pin.pin()) => break,
                Obtained::Pin(given) => match self.send_in_place_of(former, given)? {
                    Sent::LoggedIn(by) => {
                        self.check_was_looked_at(by)?;
                        break;
                    }
                    Sent::Refused(text) => {
                        refusals += 1;
                        refusal = Some(text);
                    }
                },
            }
        }
        self.login.wrong_proofs = 0;
        Ok(())
    }

    /// Fails once clients have given three wrong PINs, all together, since one has given the right one. The token's own count
    /// is no limit, since each login with the former PIN resets it. No PIN is compared with the former one any more either:
    /// the client would learn whether it is right.
    fn check_wrong_proofs(&self) -> Result<(), Error> {
        if self.login.wrong_proofs < pin_rules::ATTENDED_TRIES {
            Ok(())
        } else {
            Err(self.proofs_spent())
        }
    }

    /// Sends a PIN that isn't the former one. The login ends for it. If the token doesn't accept it, the former login is
    /// restored, provided that the former PIN was still right just before.
    fn send_in_place_of(&mut self, former: &FormerPin, mut given: Sending) -> Result<Sent, Error> {
        // A wrong PIN that was counted or recorded before this one may be somebody else's, or the PIN may have been changed.
        let former_was_right = given.before == PinState::Good && !given.ledger.stands();
        self.log_out_for(&mut given)?;
        let answered = self.send_recorded(UserType::User, &mut given);
        let answer = answered.as_ref().ok().map(|answered| answered.answer);
        let outcome = answered.and_then(|answered| self.take_up(UserType::User, answered, &given));
        if !matches!(outcome, Ok(Sent::LoggedIn(_))) {
            self.login.wrong_proofs += usize::from(self.is_wrong_proof(answer));
            // The former PIN itself, which was given and not accepted, isn't sent once more.
            if former_was_right && !former.is(given.pin.pin()) {
                self.restore(former, given)?;
            }
        }
        outcome
    }

    /// Whether a PIN counts as a wrong one after this answer; `None` if it wasn't sent. A malformed PIN doesn't, nor one for
    /// a token that was removed: the token has refused neither.
    fn is_wrong_proof(&self, answer: Option<PinAnswer>) -> bool {
        match answer {
            None | Some(PinAnswer::Accepted | PinAnswer::Malformed) => false,
            // Some libraries say of a wrong PIN that the token is gone.
            Some(PinAnswer::Unclear) => self.same_token().is_ok(),
            Some(PinAnswer::Locked | PinAnswer::NotLookedAt | PinAnswer::Refused) => true,
        }
    }

    /// Ends the login for a PIN that is sent next. A PIN that can't be recorded where it has to be is never sent, so that is
    /// tried first: what others have open would be closed for nothing.
    fn log_out_for(&mut self, given: &mut Sending) -> Result<(), Error> {
        if given.needs_record {
            given.record(&self.state.name)?.leave_line();
        }
        self.log_out().inspect_err(|_| given.ledger.end(PinAnswer::NotLookedAt))
    }

    /// Makes the former login again, after the token has not accepted another PIN. Not if the token then grants one last try,
    /// or none. The refused PIN's lock on the record goes on: no other process sends a PIN in between.
    fn restore(&mut self, former: &FormerPin, refused: Sending) -> Result<(), Error> {
        let state = self.same_token()?.pin;
        if !matches!(state, PinState::CountLow | PinState::Good) {
            return Ok(());
        }
        let Sending { pin: wrong, ledger, needs_record, .. } = refused;
        let pin = KnownPin::Accepted(former.0.duplicate());
        let mut again = Sending { pin, ledger, needs_record, before: state };
        let _ = self.send(UserType::User, &mut again);
        // The former PIN isn't kept while the client is asked, or it would be sent in the place of the client's own; `prove`
        // gives it back at the end.
        self.login.drop_kept();
        // The login has cleared the list of refused PINs, and this one is still not to be sent twice.
        TRIED_PINS.add(&self.state.name, wrong.pin(), PinAnswer::Refused);
        Ok(())
    }
}
