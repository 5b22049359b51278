//! Exit code 5: the slot and the token in it.

use std::collections::HashSet;
use std::fmt;
use std::time::Duration;

use super::CallFailure;
use crate::config::TokenName;
use crate::error::{Failure, Remedy};

/// A slot without an initialised token.
#[derive(Debug)]
pub struct UnusableSlot {
    /// What it calls itself; a reader's name, for the most part.
    pub name: String,
    pub why: WhyUnusable,
}

#[derive(Debug)]
pub enum WhyUnusable {
    Empty,
    NotInitialized,
    /// Its token is there, but doesn't say what it is.
    Unreadable(CallFailure),
}

impl UnusableSlot {
    fn is_unreadable(&self) -> bool {
        matches!(self.why, WhyUnusable::Unreadable(_))
    }
}

impl fmt::Display for UnusableSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.name)?;
        match &self.why {
            WhyUnusable::Empty => f.write_str("empty"),
            WhyUnusable::NotInitialized => f.write_str("a token that is not initialised"),
            WhyUnusable::Unreadable(failure) => write!(f, "can't be read: {failure}"),
        }
    }
}

#[derive(Debug)]
pub enum TokenError {
    /// Several tokens fit.
    Ambiguous {
        selector: String,
        found: Vec<TokenName>,
    },
    /// Another process has held the token all the while.
    Busy {
        waited: Duration,
        holder: Option<u32>,
    },
    Call {
        doing: &'static str,
        failure: CallFailure,
    },
    /// The slot holds a token, but not the one that was named.
    Contradiction {
        selector: String,
        found: TokenName,
    },
    EmptySlot {
        slot: u64,
        present: Vec<TokenName>,
    },
    NoSlot {
        slot: u64,
        present: Vec<TokenName>,
        unusable: Vec<UnusableSlot>,
    },
    NotInitialized {
        slot: u64,
        present: Vec<TokenName>,
    },
    /// In none of the libraries that were looked at.
    NoneFits {
        selector: String,
    },
    /// A PIN that nobody types would go to all of these.
    SeveralForPin {
        found: Vec<TokenName>,
    },
    /// The token was taken out while it was in use.
    Removed {
        token: String,
        failure: CallFailure,
    },
    NoToken {
        selector: String,
        /// Its path and, where it shows no token at all, what it says of itself.
        library: String,
        present: Vec<TokenName>,
        unusable: Vec<UnusableSlot>,
    },
    /// The library can't say which slots there are.
    Slots(CallFailure),
}

impl fmt::Display for TokenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ambiguous { selector, found } => {
                write!(f, "{} tokens have {selector}", found.len())
            }
            Self::Busy { waited, holder } => {
                write!(f, "the token is in use by another request")?;
                if let Some(holder) = holder {
                    write!(f, " (process {holder})")?;
                }
                write!(f, " and did not become free within {} s", waited.as_secs())
            }
            Self::Call { doing, failure } => write!(f, "{doing} failed: {failure}"),
            Self::Contradiction { selector, found } => {
                write!(f, "no token has {selector}: the slot holds token {found}")
            }
            Self::EmptySlot { slot, .. } => write!(f, "slotId {slot} holds no token"),
            Self::NoSlot { slot, .. } => write!(f, "there is no slotId {slot}"),
            Self::NotInitialized { slot, .. } => {
                write!(f, "the token in slotId {slot} is not initialised")
            }
            Self::NoneFits { selector } => write!(f, "no token with {selector} was found"),
            Self::SeveralForPin { found } => write!(
                f,
                "the PIN would go to {} tokens, and cost those a try whose PIN it isn't",
                found.len()
            ),
            Self::Removed { token, failure } => write!(f, "token {token} is gone: {failure}"),
            Self::NoToken {
                selector, library, ..
            } => write!(f, "no token with {selector} in {library}"),
            Self::Slots(failure) => write!(f, "listing the slots failed: {failure}"),
        }
    }
}

impl TokenError {
    /// Whether the token that is missing is probably not inserted: there is no other, and room for it.
    pub fn is_want_of_a_token(&self) -> bool {
        match self {
            Self::EmptySlot { present, .. } => present.is_empty(),
            Self::NoSlot {
                present, unusable, ..
            }
            | Self::NoToken {
                present, unusable, ..
            } => {
                let is_empty = |slot: &UnusableSlot| matches!(slot.why, WhyUnusable::Empty);
                present.is_empty()
                    && (unusable.is_empty() || unusable.iter().any(is_empty))
                    && !unusable.iter().any(UnusableSlot::is_unreadable)
            }
            _ => false,
        }
    }
}

/// What tells each of these tokens from the others, and stays the same if anything does.
fn what_differs(tokens: &[TokenName]) -> &'static str {
    let differ = |name: fn(&TokenName) -> [&str; 2]| {
        let names: HashSet<_> = tokens.iter().map(name).collect();
        names.len() == tokens.len()
    };
    if differ(|token| [&token.serial, ""]) {
        "tokenSerial"
    } else if differ(|token| [&token.label, ""]) {
        "tokenLabel"
    } else if differ(|token| [&token.serial, &token.label]) {
        "tokenSerial and tokenLabel"
    } else {
        "slotId (their labels and serials are the same; slot numbers may move)"
    }
}

/// The remedy where the token isn't: by what is in its place.
fn where_to_look(present: &[TokenName], unusable: &[UnusableSlot]) -> Remedy {
    if !present.is_empty() {
        Remedy::with_candidates(
            "insert the token, or name one that is there (tokenSerial stays the same when slot \
             numbers move):",
            present,
        )
    } else if unusable.is_empty() {
        Remedy::new(
            "the library sees no token at all, and no reader: plug it in, check the reader's service \
             (pcscd), a remote token's server (for p11-kit-client.so: P11_KIT_SERVER_ADDRESS), and \
             the library's configuration",
        )
    } else if unusable.iter().any(UnusableSlot::is_unreadable) {
        Remedy::with_candidates(
            "check that no other program holds the token, take it out and put it back, then try \
             again; the slots are:",
            unusable,
        )
    } else if unusable
        .iter()
        .all(|slot| matches!(slot.why, WhyUnusable::NotInitialized))
    {
        Remedy::with_candidates(
            "initialise the token (pkcs11-tool --init-token, or its own tool; `list` tells how), or \
             correct the library's configuration; its slots are:",
            unusable,
        )
    } else {
        Remedy::with_candidates(
            "insert the token, initialise it, or correct the library's configuration; its slots are:",
            unusable,
        )
    }
}

impl std::error::Error for TokenError {}

impl Failure for TokenError {
    fn exit_code(&self) -> u8 {
        5
    }

    fn remedy(&self) -> Remedy {
        match self {
            Self::Ambiguous { found, .. } => Remedy::with_candidates(
                format!("add {} to choose one:", what_differs(found)),
                found,
            ),
            Self::Busy { .. } => Remedy::new(
                "finish or end the other request (it may be waiting for a PIN or a touch) and try again",
            ),
            Self::Call { .. } => Remedy::new(
                "check that the token is inserted and no other program holds it, take it out \
                 and put it back, then try again",
            ),
            Self::Contradiction { .. } => Remedy::new(
                "correct slotId, tokenLabel or tokenSerial, or insert the token that is meant; \
                 all that are given must agree",
            ),
            Self::NoneFits { .. } => Remedy::new(
                "insert the token, or correct what names it; `list` without it shows what is there",
            ),
            Self::SeveralForPin { found } => Remedy::with_candidates(
                "name its token with --token-serial, --token-label or --slot-id:",
                found,
            ),
            Self::Removed { .. } => Remedy::new("put the token back and try again"),
            Self::EmptySlot { present, .. } if present.is_empty() => {
                Remedy::new("insert the token and try again")
            }
            Self::Slots(_) => Remedy::new(
                "check that the reader is plugged in, that its service (pcscd) runs and serves you, \
                 and the library's configuration",
            ),
            Self::NotInitialized { slot, present } => {
                let way = format!(
                    "initialise it, which erases what is on it: pkcs11-tool --module FILE --slot {slot} \
                     --init-token --label NAME, then pkcs11-tool --module FILE --slot {slot} --login \
                     --login-type so --init-pin, or the token's own tool"
                );
                match present.as_slice() {
                    [] => Remedy::new(way),
                    _ => Remedy::with_candidates(way + "; or name one that is there:", present),
                }
            }
            Self::EmptySlot { present, .. } => where_to_look(present, &[]),
            Self::NoSlot {
                present, unusable, ..
            }
            | Self::NoToken {
                present, unusable, ..
            } => where_to_look(present, unusable),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_wanted_where_there_is_room_for_it_and_no_other() {
        let missing = |present: usize, slots: Vec<WhyUnusable>| {
            let token = TokenName {
                slot: 0,
                label: String::new(),
                serial: String::new(),
            };
            let unusable = slots.into_iter().map(|why| UnusableSlot {
                name: String::new(),
                why,
            });
            TokenError::NoSlot {
                slot: 7,
                present: vec![token; present],
                unusable: unusable.collect(),
            }
            .is_want_of_a_token()
        };
        let unreadable = || {
            WhyUnusable::Unreadable(CallFailure {
                function: String::new(),
                reason: String::new(),
            })
        };
        use WhyUnusable::{Empty, NotInitialized};
        assert!(missing(0, vec![]));
        assert!(missing(0, vec![NotInitialized, Empty]));
        assert!(!missing(0, vec![NotInitialized]));
        assert!(!missing(0, vec![Empty, unreadable()]));
        assert!(!missing(1, vec![Empty]));
    }
}
