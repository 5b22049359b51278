//! Whether a PIN is sent to the token: the rules of docs/security.md as one function.

use super::module::PinState;

/// How often a person may try in one process, until the token accepts a PIN.
pub(super) const ATTENDED_TRIES: usize = 3;

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum PinSourceKind {
    /// The token has accepted this one in this process.
    Accepted {
        /// A PIN was sent to the token since, and it has accepted none.
        is_recorded: bool,
    },
    /// A person, who sees whether a PIN was accepted; after so many tries in this process.
    Person { tries: usize },
    /// A program that answers in a person's place, for the first time in this process: perhaps a script.
    Program {
        /// A PIN was sent to the token, and it has accepted none since.
        is_recorded: bool,
    },
    /// A configuration, a file, a variable, standard input.
    Stored {
        /// A PIN was sent to the token, and it has accepted none since.
        is_recorded: bool,
        /// `check --despite-refusal`: the user says that it is another PIN.
        despite_refusal: bool,
    },
}

/// What to do: have the reader ask, or send the PIN; after the person's yes if `confirm`.
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

/// Whether no PIN can help in this state.
pub(super) fn hopeless(state: PinState) -> Option<WhyNotSent> {
    match state {
        PinState::Locked => Some(WhyNotSent::Locked),
        PinState::ToBeChanged => Some(WhyNotSent::ToBeChanged),
        PinState::CountLow | PinState::FinalTry | PinState::Good => None,
    }
}

/// What to do for a login, by the token's flags for its PIN and who has one.
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
        PinSourceKind::Accepted { .. } | PinSourceKind::Stored { .. } if is_final => {
            Err(WhyNotSent::FinalTry)
        }
        PinSourceKind::Accepted { is_recorded: true } => Err(WhyNotSent::RefusedBefore),
        PinSourceKind::Stored { is_recorded, despite_refusal: false }
            if is_recorded || state == PinState::CountLow =>
        {
            Err(WhyNotSent::RefusedBefore)
        }
        PinSourceKind::Accepted { .. } | PinSourceKind::Stored { .. } => {
            Ok(PinStep { at_reader: false, confirm: false })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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

    fn accepted(is_recorded: bool) -> PinSourceKind {
        PinSourceKind::Accepted { is_recorded }
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
            // One that the token has accepted is sent again, but not after one of ours that it hasn't, nor as a final try.
            (Good, accepted(false), SEND),
            (Good, accepted(true), Err(RefusedBefore)),
            (CountLow, accepted(false), SEND),
            (CountLow, accepted(true), Err(RefusedBefore)),
            (FinalTry, accepted(false), Err(WhyNotSent::FinalTry)),
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
    fn in_some_states_no_pin_is_sent_and_no_reader_asks() {
        for (state, reason) in
            [(Locked, WhyNotSent::Locked), (ToBeChanged, WhyNotSent::ToBeChanged)]
        {
            for has_keypad in [false, true] {
                for source in [
                    person(0),
                    stored(false),
                    despite_refusal(false),
                    accepted(false),
                    program(false),
                ] {
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
