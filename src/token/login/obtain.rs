//! Which PIN a login is made with, if any: the one that is kept, or one that is given now.
//!
//! There are two orders:
//!
//! - A PIN that is at hand (kept, or stored somewhere) is got while the record is locked: lock the record, read the token's
//!   state, ask the rules, get the PIN.
//! - A person may take their time, and others should not have to wait meanwhile: read the token's state, ask the rules, ask
//!   the person, then lock the record and read the state again, to see whether what the person was told still holds.

use super::errors::{not_recorded, repeated};
use super::state::{KnownPin, SourcedPin};
use crate::Token;
use crate::ledger::{Ledger, PinAnswer, TRIED_PINS};
use crate::module::{PinState, TokenState};
use crate::pin_rules::{self, PinSourceKind};
use config::TokenName;
use config::pin::{MAX_PIN_LENGTH, PinOrigin, PinProvider, PinRequest};
use messages::error::Error;

const LAST_TRY: &str = "This is the last try: another wrong PIN locks the token.";
/// The longest PIN that a PIV card can have, in bytes (NIST SP 800-73-5, part 2, section 2.4.3).
const LONGEST_PIV_PIN: usize = 8;
const COUNTED: &str = "the token has counted a wrong PIN since the last right one";

/// How a login goes on, by the rules.
pub(super) enum Obtained {
    /// A person has to be asked again: since they were asked, others have used up all tries but one.
    AskAgain,
    /// The reader itself asks for the PIN; the record is locked.
    AtReader(Ledger),
    /// This PIN is sent.
    Pin(Sending),
}

/// A PIN that the rules allow to be sent once. It is sent in three steps: [record](Self::record) it, send it, and record the
/// [answer](Recorded::answered).
pub(super) struct Sending {
    pub(super) pin: KnownPin,
    /// The record of the token, locked since before the token's state was read last.
    pub(super) ledger: Ledger,
    /// Whether the PIN is only sent if a line in the record says so.
    pub(super) needs_record: bool,
    /// What the token said of its PIN before this one.
    pub(super) before: PinState,
}

impl Sending {
    /// Records that the PIN is sent. An error if that can't be recorded, but has to be.
    pub(super) fn record(&mut self, token: &TokenName) -> Result<Recorded<'_>, Error> {
        match self.ledger.begin() {
            Err(reason) if self.needs_record => {
                Err(not_recorded(token, self.pin.origin(), &reason))
            }
            _ => Ok(Recorded(self)),
        }
    }
}

/// A PIN of which the record says that it was sent. Only [`Sending::record`] makes it, and C_Login is called with no other.
#[must_use = "the PIN is sent next, and then its answer recorded"]
pub(super) struct Recorded<'a>(&'a mut Sending);

impl Recorded<'_> {
    /// What is sent.
    pub(super) fn sending(&self) -> &Sending {
        self.0
    }

    /// Records what the token has answered.
    pub(super) fn answered(self, answer: PinAnswer) {
        self.0.ledger.end(answer);
    }

    /// Leaves the line in the record. The PIN is recorded once more when it is sent.
    pub(super) fn leave_line(self) {}
}

/// What is known before a PIN is got.
struct Look {
    /// What the token says.
    state: TokenState,
    /// Where the PIN would come from.
    origin: PinOrigin,
    /// The source of the PIN in the words of the rules.
    source: PinSourceKind,
    record: RecordLock,
}

/// When the record is locked for a login.
enum RecordLock {
    /// The record is locked, since before the token's state was read: the PIN is at hand.
    Held(Ledger),
    /// The record will be locked once somebody, who is asked next, has given the PIN.
    AfterAsking,
}

impl Token {
    /// Gets a PIN that the rules allow to be sent: the one that is kept, or another one, which may take as long as a
    /// person takes. Whoever is asked is told of `refusal`, that of the PIN before.
    pub(super) fn obtain(
        &mut self,
        what: &str,
        refusal: Option<&str>,
        pins: &mut dyn PinProvider,
    ) -> Result<Obtained, Error> {
        let Look { state, origin, source, record } = self.look(pins)?;
        let step = pin_rules::next(state.pin, state.own_keypad, source)
            .map_err(|reason| self.not_sent(reason, &origin))?;
        let request = pin_request(&state, what, refusal, step.confirm);
        let pin = if step.at_reader {
            if step.confirm {
                pins.confirm_at_reader(&request)?;
            }
            None
        } else if let Some(kept) = self.login.take() {
            Some(kept)
        } else {
            Some(KnownPin::Unchecked(given_pin(&state.name, origin.clone(), &request, pins)?))
        };
        let ledger = match record {
            RecordLock::Held(ledger) => ledger,
            RecordLock::AfterAsking => match self.lock_after_asking(&state, source, &origin)? {
                Some(ledger) => ledger,
                None => return Ok(Obtained::AskAgain),
            },
        };
        Ok(match pin {
            None => Obtained::AtReader(ledger),
            Some(pin) => Obtained::Pin(Sending {
                pin,
                ledger,
                needs_record: source.needs_record(),
                before: state.pin,
            }),
        })
    }

    /// Reads the token's state before a login, for the kept PIN, or for the provider's if the kept one is dropped.
    fn look(&mut self, pins: &mut dyn PinProvider) -> Result<Look, Error> {
        let Some(kept) = self.login.kept() else {
            let origin = pins.origin();
            let record = if origin.is_attended() {
                RecordLock::AfterAsking
            } else {
                RecordLock::Held(Ledger::open(&self.state)?)
            };
            let state = self.same_token()?;
            return self.look_for_given(state, origin, record);
        };
        let ledger = Ledger::open(&self.state)?;
        let state = self.same_token()?;
        if !pin_rules::drops_kept(state.pin, ledger.stands()) {
            let origin = kept.origin().clone();
            let source = self.source_of_kept(kept, &ledger);
            return Ok(Look { state, origin, source, record: RecordLock::Held(ledger) });
        }
        self.login.drop_kept();
        let origin = pins.origin();
        let record = if origin.is_attended() {
            // The lock ends here, since `source_of_given` may have to take it again.
            drop(ledger);
            RecordLock::AfterAsking
        } else {
            RecordLock::Held(ledger)
        };
        self.look_for_given(state, origin, record)
    }

    /// The look before a PIN that the provider gives.
    fn look_for_given(
        &self,
        state: TokenState,
        origin: PinOrigin,
        record: RecordLock,
    ) -> Result<Look, Error> {
        let source = self.source_of_given(&origin, &record)?;
        Ok(Look { state, origin, source, record })
    }

    fn source_of_kept(&self, kept: &KnownPin, ledger: &Ledger) -> PinSourceKind {
        match kept {
            KnownPin::Accepted(_) => PinSourceKind::Accepted,
            KnownPin::Unchecked(pin) if pin.origin.is_attended() => self.person(),
            KnownPin::Unchecked(_) => self.stored(ledger),
        }
    }

    fn source_of_given(
        &self,
        origin: &PinOrigin,
        record: &RecordLock,
    ) -> Result<PinSourceKind, Error> {
        Ok(match record {
            RecordLock::Held(ledger) => self.stored(ledger),
            RecordLock::AfterAsking if self.is_first_of_program(origin) => {
                // The lock ends here: it is not held while the program is asked.
                PinSourceKind::Program { is_recorded: Ledger::open(&self.state)?.stands() }
            }
            RecordLock::AfterAsking => self.person(),
        })
    }

    /// Whether the next PIN is the first in this process, comes from a program (perhaps a script), and the user has not said
    /// that it is another one than the token has refused.
    fn is_first_of_program(&self, origin: &PinOrigin) -> bool {
        matches!(origin, PinOrigin::Askpass(_))
            && TRIED_PINS.count(&self.state.name) == 0
            && !self.login.disregards_refusals
    }

    fn person(&self) -> PinSourceKind {
        PinSourceKind::Person { tries: TRIED_PINS.count(&self.state.name) }
    }

    fn stored(&self, ledger: &Ledger) -> PinSourceKind {
        PinSourceKind::Stored {
            is_recorded: ledger.stands(),
            despite_refusal: self.login.disregards_refusals,
        }
    }

    /// Locks the record for a PIN that a person or a program has given, when the token was in this state. `None` if others
    /// have used up all tries but one since, of which the person was not told. An error if another process was refused a
    /// PIN since, and a program has given this one: it may be the same.
    fn lock_after_asking(
        &self,
        state: &TokenState,
        source: PinSourceKind,
        origin: &PinOrigin,
    ) -> Result<Option<Ledger>, Error> {
        let ledger = Ledger::open(state)?;
        let now = self.same_token()?.pin;
        self.check_hopeless(now)?;
        if matches!(source, PinSourceKind::Program { .. }) {
            let source = PinSourceKind::Program { is_recorded: ledger.stands() };
            pin_rules::next(now, state.own_keypad, source)
                .map_err(|reason| self.not_sent(reason, origin))?;
        }
        let is_new = now == PinState::FinalTry && state.pin != PinState::FinalTry;
        Ok((!is_new).then_some(ledger))
    }

    /// Refuses a login in a state in which no PIN can help.
    pub(super) fn check_hopeless(&self, state: PinState) -> Result<(), Error> {
        let reason = pin_rules::hopeless(state);
        reason.map_or(Ok(()), |reason| Err(self.not_sent(reason, &PinOrigin::Person)))
    }

    /// The token's state now, if it is the token of the session.
    pub(super) fn same_token(&self) -> Result<TokenState, Error> {
        let state = self.module.token_state(self.state.name.slot);
        let state = state.map_err(|error| self.call_failure(&error))?;
        if state.name.is_same_token(&self.state.name) {
            Ok(state)
        } else {
            Err(self.removed("another token is in its place"))
        }
    }
}

/// What a person is asked for: the PIN of the token in this state, and a yes first if this is the last try.
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

/// The PIN that the provider gives for this request. An error if it comes from a program that gives a PIN again that the token
/// has refused, or may have.
fn given_pin(
    token: &TokenName,
    origin: PinOrigin,
    request: &PinRequest<'_>,
    pins: &mut dyn PinProvider,
) -> Result<SourcedPin, Error> {
    let pin = pins.pin(request)?;
    let is_from_program = matches!(origin, PinOrigin::Askpass(_) | PinOrigin::Pinentry(_));
    if is_from_program && TRIED_PINS.is_repeated(token, &pin) {
        return Err(repeated(token, &origin));
    }
    Ok(SourcedPin { pin, origin })
}

/// How many bytes a PIN has at least and at most, by what the token says and this program can hold. A YubiKey's library
/// says 48, since management keys are as long. Longer than PINs are the words by which ykcs11 2.7 and later logs in without a
/// PIN, or by a fingerprint (`VERIFY_NONE`, `VERIFY_BIO`): nobody is to take one of them for an accepted PIN.
fn lengths(state: &TokenState) -> (usize, usize) {
    let (shortest, longest) = state.pin_lengths;
    let possible = if state.is_yubikey() { LONGEST_PIV_PIN } else { MAX_PIN_LENGTH };
    (shortest, if longest == 0 { possible } else { longest.min(possible) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::module::state_with_label;

    #[test]
    fn a_word_that_replaces_the_pin_is_too_long_for_a_yubikey() {
        let mut state = state_with_label("YubiKey PIV #1");
        state.manufacturer = "Yubico (www.yubico.com)".into();
        state.model = "YubiKey YK5".into();
        state.pin_lengths = (6, 48);
        assert_eq!(lengths(&state), (6, 8));
        assert!(["VERIFY_NONE", "VERIFY_BIO"].iter().all(|word| word.len() > 8));
    }

    #[test]
    fn a_pin_is_as_long_as_the_token_and_the_program_can_have_it() {
        for (reported, longest) in [(8, 8), (0, MAX_PIN_LENGTH), (100_000, MAX_PIN_LENGTH)] {
            let mut state = state_with_label("token");
            state.pin_lengths.1 = reported;
            assert_eq!(lengths(&state), (4, longest));
        }
    }
}
