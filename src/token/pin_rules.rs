//! The rules by which a PIN is sent to a token or not: those of docs/security.md, as pure functions. [`next`] is the one
//! that decides.

use super::module::PinState;

/// How many PINs a person may try in one process before the token accepts one.
pub(super) const ATTENDED_TRIES: usize = 3;

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum PinSourceKind {
    /// A PIN that the token has accepted in this process, and that is kept.
    Accepted,
    /// A person, who sees whether a PIN is accepted. `tries` is how many PINs this process has sent without success.
    Person { tries: usize },
    /// A program that answers in a person's place, perhaps a script, and is asked for the first time in this process.
    Program {
        /// A PIN was sent to the token, and it has accepted none since.
        is_recorded: bool,
    },
    /// A place where a PIN is stored: the configuration, a file, a variable, or standard input.
    Stored {
        /// A PIN was sent to the token, and it has accepted none since.
        is_recorded: bool,
        /// Whether the user says that it is another PIN than the token has refused (`check --despite-refusal`).
        despite_refusal: bool,
    },
}

impl PinSourceKind {
    /// Whether the PIN is sent only if a line in the record says so. That is so for a PIN of which nobody sees whether it
    /// is refused, and nobody says that it is a new one: without the line it could be sent again and again.
    pub(super) fn needs_record(self) -> bool {
        matches!(self, Self::Stored { despite_refusal: false, .. })
    }
}

/// What is done for a login: the reader asks for the PIN (`at_reader`), or else the PIN is sent. With `confirm`, a person
/// has to say yes first.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct PinStep {
    pub(super) at_reader: bool,
    pub(super) confirm: bool,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum WhyNotSent {
    FinalTry,
    Locked,
    RefusedBefore,
    ToBeChanged,
    TriesSpent,
}

/// Why no PIN can help in this state; `None` if one may.
pub(super) fn hopeless(state: PinState) -> Option<WhyNotSent> {
    match state {
        PinState::Locked => Some(WhyNotSent::Locked),
        PinState::ToBeChanged => Some(WhyNotSent::ToBeChanged),
        PinState::CountLow | PinState::FinalTry | PinState::Good => None,
    }
}

/// Whether a PIN that is kept from an earlier login is dropped before another one is got. The PIN may have been changed if
/// one was sent since and none was accepted (`is_recorded`), and a kept PIN is never sent as the last try. If the token
/// takes no PIN at all, the kept one stays, since [`next`] refuses the login.
pub(super) fn drops_kept(state: PinState, is_recorded: bool) -> bool {
    match state {
        PinState::CountLow | PinState::Good => is_recorded,
        PinState::FinalTry => true,
        PinState::Locked | PinState::ToBeChanged => false,
    }
}

/// What is done for a login, given what the token says of its PIN, whether its reader has a keypad, and who has a PIN.
pub(super) fn next(
    state: PinState,
    has_keypad: bool,
    source: PinSourceKind,
) -> Result<PinStep, WhyNotSent> {
    if let Some(reason) = hopeless(state) {
        return Err(reason);
    }
    let is_final = state == PinState::FinalTry;
    match source {
        PinSourceKind::Person { tries } if tries >= ATTENDED_TRIES && !has_keypad => {
            Err(WhyNotSent::TriesSpent)
        }
        PinSourceKind::Program { is_recorded: true } if !has_keypad => {
            Err(WhyNotSent::RefusedBefore)
        }
        PinSourceKind::Person { .. } | PinSourceKind::Program { .. } => {
            Ok(PinStep { at_reader: has_keypad, confirm: is_final })
        }
        PinSourceKind::Accepted | PinSourceKind::Stored { .. } if is_final => {
            Err(WhyNotSent::FinalTry)
        }
        PinSourceKind::Stored { is_recorded, despite_refusal: false }
            if is_recorded || state == PinState::CountLow =>
        {
            Err(WhyNotSent::RefusedBefore)
        }
        PinSourceKind::Accepted | PinSourceKind::Stored { .. } => {
            Ok(PinStep { at_reader: false, confirm: false })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use PinSourceKind::Accepted;
    use PinState::{CountLow, FinalTry, Good, Locked, ToBeChanged};
    use WhyNotSent::{RefusedBefore, TriesSpent};

    const SEND: Result<PinStep, WhyNotSent> = Ok(PinStep { at_reader: false, confirm: false });
    const SEND_AFTER_YES: Result<PinStep, WhyNotSent> =
        Ok(PinStep { at_reader: false, confirm: true });

    fn stored(is_recorded: bool) -> PinSourceKind {
        PinSourceKind::Stored { is_recorded, despite_refusal: false }
    }

    fn despite_refusal(is_recorded: bool) -> PinSourceKind {
        PinSourceKind::Stored { is_recorded, despite_refusal: true }
    }

    fn program(is_recorded: bool) -> PinSourceKind {
        PinSourceKind::Program { is_recorded }
    }

    fn person(tries: usize) -> PinSourceKind {
        PinSourceKind::Person { tries }
    }

    #[test]
    fn the_rules_are_these() {
        for (state, source, expected) in [
            // A person has three tries, and the final one after a yes.
            (Good, person(0), SEND),
            (CountLow, person(2), SEND),
            (Good, person(3), Err(TriesSpent)),
            (FinalTry, person(0), SEND_AFTER_YES),
            (FinalTry, person(3), Err(TriesSpent)),
            // A stored PIN is sent unless one may have been refused, and never as the final try.
            (Good, stored(false), SEND),
            (Good, stored(true), Err(RefusedBefore)),
            (CountLow, stored(false), Err(RefusedBefore)),
            (CountLow, stored(true), Err(RefusedBefore)),
            (FinalTry, stored(false), Err(WhyNotSent::FinalTry)),
            // The user's word is about refusals alone.
            (Good, despite_refusal(true), SEND),
            (CountLow, despite_refusal(true), SEND),
            (FinalTry, despite_refusal(false), Err(WhyNotSent::FinalTry)),
            // One that the token has accepted is sent again, but not as a final try.
            (Good, Accepted, SEND),
            (CountLow, Accepted, SEND),
            (FinalTry, Accepted, Err(WhyNotSent::FinalTry)),
            // A program may be a script, which would give the refused one in each process.
            (Good, program(false), SEND),
            (Good, program(true), Err(RefusedBefore)),
            (CountLow, program(false), SEND),
            (FinalTry, program(false), SEND_AFTER_YES),
        ] {
            assert_eq!(next(state, false, source), expected, "{state:?}, {source:?}");
        }
    }

    #[test]
    fn a_kept_pin_is_dropped_after_one_of_ours_that_was_not_accepted_and_before_the_last_try() {
        for (state, is_recorded, expected) in [
            (Good, false, false),
            (Good, true, true),
            (CountLow, false, false),
            (CountLow, true, true),
            (FinalTry, false, true),
            (FinalTry, true, true),
            // No other one would help.
            (Locked, true, false),
            (ToBeChanged, true, false),
        ] {
            assert_eq!(drops_kept(state, is_recorded), expected, "{state:?}, {is_recorded}");
        }
    }

    #[test]
    fn only_a_stored_pin_that_nobody_vouches_for_has_to_be_recorded() {
        for (source, expected) in [
            (stored(false), true),
            (stored(true), true),
            (despite_refusal(false), false),
            (person(0), false),
            (program(false), false),
            (Accepted, false),
        ] {
            assert_eq!(source.needs_record(), expected, "{source:?}");
        }
    }

    #[test]
    fn in_some_states_no_pin_is_sent_and_no_reader_asks() {
        for (state, reason) in
            [(Locked, WhyNotSent::Locked), (ToBeChanged, WhyNotSent::ToBeChanged)]
        {
            for has_keypad in [false, true] {
                for source in
                    [person(0), stored(false), despite_refusal(false), Accepted, program(false)]
                {
                    assert_eq!(next(state, has_keypad, source), Err(reason));
                }
            }
        }
    }

    #[test]
    fn a_reader_with_a_keypad_asks_a_person_itself() {
        for (state, confirm) in [(Good, false), (CountLow, false), (FinalTry, true)] {
            // Whatever a program would give is not what is sent.
            for source in [person(3), program(true)] {
                assert_eq!(next(state, true, source), Ok(PinStep { at_reader: true, confirm }));
            }
        }
        assert_eq!(next(Good, true, stored(false)), SEND);
        assert_eq!(next(Good, true, stored(true)), Err(RefusedBefore));
    }
}
