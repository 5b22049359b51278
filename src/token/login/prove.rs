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
use super::send::Sent;
use super::state::{KnownPin, SourcedPin};
use crate::Token;
use crate::key::KeyReference;
use crate::ledger::{PinAnswer, TRIED_PINS};
use crate::module::PinState;
use crate::pin_rules;
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

    /// There is no PIN to compare with: the former one was entered at the reader, or the token was never asked about the kept
    /// one, which proves nothing then.
    fn prove_by_new_login(&mut self, what: &str, pins: &mut dyn PinProvider) -> Result<(), Error> {
        self.login.drop_kept();
        self.log_out()?;
        self.authenticate(UserType::User, what, pins)?;
        self.check_was_looked_at()
    }

    /// Fails if the token was still logged in when it was sent the PIN of a client, and so has taken it unseen.
    fn check_was_looked_at(&mut self) -> Result<(), Error> {
        if !self.login.keeps_unchecked() {
            return Ok(());
        }
        self.login.drop_kept();
        Err(self.stays_logged_in())
    }

    /// Asks for PINs until one is the former one, or is accepted in its place.
    fn prove_by_pin(
        &mut self,
        former: &FormerPin,
        what: &str,
        pins: &mut dyn PinProvider,
    ) -> Result<(), Error> {
        let mut refusal: Option<String> = None;
        loop {
            self.check_wrong_proofs()?;
            match self.obtain(what, refusal.as_deref(), pins)? {
                Obtained::AskAgain => {}
                Obtained::AtReader(ledger) => {
                    self.log_out()?;
                    return self.authenticate_at_reader(UserType::User, ledger, pins);
                }
                Obtained::Pin(given) if former.is(given.pin.pin()) => break,
                Obtained::Pin(given) => match self.send_in_place_of(former, given)? {
                    Sent::LoggedIn => {
                        self.check_was_looked_at()?;
                        break;
                    }
                    Sent::Refused(text) => refusal = Some(text),
                },
            }
        }
        self.login.wrong_proofs = 0;
        Ok(())
    }

    /// Limits how many wrong PINs clients can try one after the other, all together. The token's own count doesn't: each login
    /// with the former PIN in between resets it. Nor is a PIN compared with the former one after that, since whoever asks
    /// would learn whether it is right. A client that has given the right one before starts the count anew.
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
        let outcome = self.send(UserType::User, &mut given);
        if !matches!(outcome, Ok(Sent::LoggedIn)) {
            self.login.wrong_proofs += 1;
            if former_was_right {
                self.restore(former, given)?;
            }
        }
        outcome
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
        // `prove` gives it back once the client has finished; until then it is not what the client has to be compared with.
        self.login.drop_kept();
        // The login has cleared the list of refused PINs, and this one is still not to be sent twice.
        TRIED_PINS.add(&self.state.name, wrong.pin(), PinAnswer::Refused);
        Ok(())
    }
}
