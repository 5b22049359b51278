//! Who may send a PIN to the token, and how often: the rules of docs/security.md as one function.
//!
//! A locked PIN and one that must be changed are never tried. A stored PIN is sent once, never as
//! the final try, and not after a refusal, whichever process saw that. A person has three tries, and
//! the final one only after an explicit yes. A PIN that the token has accepted in this process may be
//! sent again, as the final try only where the flag for it is an old one. The same holds for the security
//! officer's, which only a person gives.

#![forbid(unsafe_code)]

use super::slot::{PinHolder, PinState};

/// How often a person may try in one process, until the token accepts a PIN.
pub(super) const ATTENDED_TRIES: usize = 3;

/// Logins without a clear end that count as a refusal. One is none: an impatient client kills the
/// process, and a right PIN must not be held back for that.
pub(super) const UNCLEAR_LOGINS: usize = 2;

/// What the ledger says against a stored PIN.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Verdict {
    Clear,
    Refused,
    /// A PIN with this mark was refused; another one may be sent.
    Unless(u8),
}

/// A PIN that this process has sent before.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum HeldPin {
    None,
    /// The token has not looked at it.
    Unknown,
    Accepted {
        /// The token has said FINAL_TRY since before that login, which still lasts.
        outlasts_final_try: bool,
    },
}

/// Where the PIN comes from.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Giver {
    /// A person, who sees whether a PIN was accepted; after so many tries in this process.
    Person { tries: usize },
    /// A configuration, a file, a variable, standard input.
    Stored {
        verdict: Verdict,
        /// To look at the PIN is to take it from what may be the client's input.
        is_consumed: bool,
        /// `check --despite-refusal`: the user says that it is another PIN.
        despite_refusal: bool,
    },
}

/// What to do.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum PinStep {
    /// The reader asks, after the person's yes if `confirm`.
    AskReader {
        confirm: bool,
    },
    /// The held PIN may not be sent any more: as if there were none.
    Forget,
    Refuse(WhyNotSent),
    /// Send the held PIN or get one, after the person's yes if `confirm`; not one with this mark.
    Send {
        confirm: bool,
        unless: Option<u8>,
    },
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum WhyNotSent {
    FinalTry,
    Locked,
    NotFromAPerson,
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

/// What to do for a login, by whose it is, the token's flags for that, the PIN that is held and who else
/// has one.
pub(super) fn next(
    holder: PinHolder,
    state: PinState,
    has_keypad: bool,
    held: HeldPin,
    giver: Giver,
) -> PinStep {
    if let Some(reason) = hopeless(state) {
        return PinStep::Refuse(reason);
    }
    let is_final = state == PinState::FinalTry;
    if has_keypad {
        return PinStep::AskReader { confirm: is_final };
    }
    let send = |unless| PinStep::Send { confirm: is_final, unless };
    if holder == PinHolder::SecurityOfficer && !matches!(giver, Giver::Person { .. }) {
        return PinStep::Refuse(WhyNotSent::NotFromAPerson);
    }
    match (held, giver) {
        (HeldPin::Accepted { outlasts_final_try }, _) if !is_final || outlasts_final_try => {
            PinStep::Send { confirm: false, unless: None }
        }
        (HeldPin::Accepted { .. } | HeldPin::Unknown, _) if is_final => PinStep::Forget,
        (HeldPin::None, Giver::Person { tries }) if tries >= ATTENDED_TRIES => {
            PinStep::Refuse(WhyNotSent::TriesSpent)
        }
        (_, Giver::Person { .. }) => send(None),
        (_, Giver::Stored { .. }) if is_final => PinStep::Refuse(WhyNotSent::FinalTry),
        (_, Giver::Stored { verdict, is_consumed, despite_refusal }) => match verdict {
            _ if despite_refusal => send(None),
            Verdict::Clear => send(None),
            Verdict::Unless(mark) if !is_consumed => send(Some(mark)),
            Verdict::Unless(_) | Verdict::Refused => PinStep::Refuse(WhyNotSent::RefusedBefore),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use PinHolder::{SecurityOfficer, User};
    use PinState::{CountLow, FinalTry, Good, Locked, ToBeChanged};

    const ACCEPTED: HeldPin = HeldPin::Accepted { outlasts_final_try: false };
    const SEND: PinStep = PinStep::Send { confirm: false, unless: None };
    const SEND_AFTER_YES: PinStep = PinStep::Send { confirm: true, unless: None };

    fn stored(verdict: Verdict) -> Giver {
        Giver::Stored { verdict, is_consumed: false, despite_refusal: false }
    }

    fn person(tries: usize) -> Giver {
        Giver::Person { tries }
    }

    fn refuse(reason: WhyNotSent) -> PinStep {
        PinStep::Refuse(reason)
    }

    #[test]
    fn the_rules_are_these() {
        let refused_before = refuse(WhyNotSent::RefusedBefore);
        for (state, held, giver, expected) in [
            // A person has three tries, and the final one after a yes.
            (Good, HeldPin::None, person(0), SEND),
            (CountLow, HeldPin::None, person(2), SEND),
            (Good, HeldPin::None, person(3), refuse(WhyNotSent::TriesSpent)),
            (FinalTry, HeldPin::None, person(0), SEND_AFTER_YES),
            (FinalTry, HeldPin::None, person(3), refuse(WhyNotSent::TriesSpent)),
            // A stored PIN is sent unless one was refused, and never as the final try.
            (Good, HeldPin::None, stored(Verdict::Clear), SEND),
            (CountLow, HeldPin::None, stored(Verdict::Clear), SEND),
            (Good, HeldPin::None, stored(Verdict::Refused), refused_before),
            (
                Good,
                HeldPin::None,
                stored(Verdict::Unless(7)),
                PinStep::Send { confirm: false, unless: Some(7) },
            ),
            (FinalTry, HeldPin::None, stored(Verdict::Clear), refuse(WhyNotSent::FinalTry)),
            // One that the token has not looked at is as good as none.
            (Good, HeldPin::Unknown, stored(Verdict::Clear), SEND),
            (Good, HeldPin::Unknown, stored(Verdict::Refused), refused_before),
            (FinalTry, HeldPin::Unknown, stored(Verdict::Clear), PinStep::Forget),
            (Good, HeldPin::Unknown, person(3), SEND),
            (FinalTry, HeldPin::Unknown, person(0), PinStep::Forget),
            // One that it has accepted is sent again, but not as a new final try.
            (Good, ACCEPTED, stored(Verdict::Refused), SEND),
            (CountLow, ACCEPTED, person(3), SEND),
            (FinalTry, ACCEPTED, stored(Verdict::Clear), PinStep::Forget),
            (FinalTry, ACCEPTED, person(0), PinStep::Forget),
        ] {
            let step = next(User, state, false, held, giver);
            assert_eq!(step, expected, "{state:?}, {held:?}, {giver:?}");
        }
    }

    #[test]
    fn an_old_final_try_needs_no_second_yes() {
        let held = HeldPin::Accepted { outlasts_final_try: true };
        for giver in [person(0), stored(Verdict::Refused)] {
            assert_eq!(next(User, FinalTry, false, held, giver), SEND);
        }
    }

    #[test]
    fn in_some_states_no_pin_is_sent_and_no_reader_asks() {
        for (state, reason) in
            [(Locked, WhyNotSent::Locked), (ToBeChanged, WhyNotSent::ToBeChanged)]
        {
            for has_keypad in [false, true] {
                for held in [HeldPin::None, HeldPin::Unknown, ACCEPTED] {
                    for giver in [person(0), stored(Verdict::Clear)] {
                        assert_eq!(next(User, state, has_keypad, held, giver), refuse(reason));
                    }
                }
            }
        }
    }

    #[test]
    fn a_reader_with_a_keypad_asks_itself() {
        for (state, confirm) in [(Good, false), (CountLow, false), (FinalTry, true)] {
            for giver in [person(3), stored(Verdict::Refused)] {
                let step = next(User, state, true, HeldPin::None, giver);
                assert_eq!(step, PinStep::AskReader { confirm });
            }
        }
    }

    #[test]
    fn despite_refusal_is_about_refusals_alone() {
        for verdict in [Verdict::Clear, Verdict::Refused, Verdict::Unless(7)] {
            let giver = |is_consumed| Giver::Stored { verdict, is_consumed, despite_refusal: true };
            for is_consumed in [false, true] {
                assert_eq!(next(User, Good, false, HeldPin::None, giver(is_consumed)), SEND);
                assert_eq!(
                    next(User, FinalTry, false, HeldPin::None, giver(is_consumed)),
                    refuse(WhyNotSent::FinalTry)
                );
            }
        }
    }

    #[test]
    fn input_that_may_be_the_clients_is_not_read_for_its_mark() {
        let giver = Giver::Stored {
            verdict: Verdict::Unless(7),
            is_consumed: true,
            despite_refusal: false,
        };
        assert_eq!(
            next(User, Good, false, HeldPin::None, giver),
            refuse(WhyNotSent::RefusedBefore)
        );
    }

    #[test]
    fn the_security_officers_pin_is_a_persons_with_the_same_tries() {
        let none = HeldPin::None;
        for (state, giver, expected) in [
            (Good, person(0), SEND),
            (CountLow, person(2), SEND),
            (Good, person(3), refuse(WhyNotSent::TriesSpent)),
            (FinalTry, person(0), SEND_AFTER_YES),
            (Locked, person(0), refuse(WhyNotSent::Locked)),
            (ToBeChanged, person(0), refuse(WhyNotSent::ToBeChanged)),
            (Good, stored(Verdict::Clear), refuse(WhyNotSent::NotFromAPerson)),
        ] {
            let step = next(SecurityOfficer, state, false, none, giver);
            assert_eq!(step, expected, "{state:?}, {giver:?}");
        }
        let giver =
            Giver::Stored { verdict: Verdict::Clear, is_consumed: false, despite_refusal: true };
        let step = next(SecurityOfficer, Good, false, none, giver);
        assert_eq!(step, refuse(WhyNotSent::NotFromAPerson));
    }
}
