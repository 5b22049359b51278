//! Exit code 5: the slot and the token in it.

use std::collections::HashSet;
use std::fmt;
use std::time::Duration;

use super::CallFailure;
use crate::config::TokenName;
use crate::error::{Failure, Help, Setting, remedy};
use crate::printable::shell_word;
use crate::process::lock::LockBusy;

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

#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    #[error("{} tokens have {selector}", .found.len())]
    Ambiguous { selector: String, found: Vec<TokenName> },
    #[error(
        "the token is in use by another request{} and did not become free within {} s",
        process(*.holder),
        .waited.as_secs()
    )]
    Busy { waited: Duration, holder: Option<u32> },
    #[error("{doing} failed: {failure}")]
    Call { doing: &'static str, failure: CallFailure },
    #[error("no token has {selector}: the slot holds token {found}")]
    Contradiction { selector: String, found: TokenName },
    #[error("slotId {slot} holds no token")]
    EmptySlot { slot: u64, present: Vec<TokenName> },
    #[error("there is no slotId {slot}")]
    NoSlot { slot: u64, present: Vec<TokenName>, unusable: Vec<UnusableSlot> },
    #[error("the token in slotId {slot} of {library} is not initialised")]
    NotInitialized {
        slot: u64,
        /// The library's path.
        library: String,
        present: Vec<TokenName>,
    },
    #[error("no token with {selector} was found")]
    NoneFits { selector: String },
    #[error("no token with {selector} in {library}")]
    NoToken {
        selector: String,
        /// The library's path and, where it shows no token at all, what it says of itself.
        library: String,
        present: Vec<TokenName>,
        unusable: Vec<UnusableSlot>,
    },
    #[error("token {token} can't be written to: {failure}")]
    ReadOnly { token: String, failure: CallFailure },
    #[error("token {token} is gone: {failure}")]
    Removed { token: String, failure: CallFailure },
    #[error(
        "the PIN would go to {} tokens, and cost those a try whose PIN it isn't",
        .found.len()
    )]
    SeveralForPin { found: Vec<TokenName> },
    #[error("listing the slots failed: {0}")]
    Slots(CallFailure),
}

/// To append to a mention of another request.
fn process(holder: Option<u32>) -> String {
    holder.map_or_else(String::new, |holder| format!(" (process {holder})"))
}

impl From<LockBusy> for TokenError {
    fn from(LockBusy { waited, holder }: LockBusy) -> Self {
        Self::Busy { waited, holder }
    }
}
impl Failure for TokenError {
    fn exit_code(&self) -> u8 {
        5
    }

    fn remedy(&self) -> Help {
        match self {
            Self::Ambiguous { found, .. } => {
                remedy!("add ", what_differs(found), " to choose one:").with_candidates(found)
            }
            Self::Busy { .. } => remedy!(
                "finish or end the other request (it may be waiting for a PIN or a touch) and try again"
            ),
            Self::Call { .. } => remedy!(
                "check that the token is inserted and no other program holds it, take it out \
                 and put it back, then try again"
            ),
            Self::Contradiction { .. } => remedy!(
                "correct ",
                SLOT_ID,
                ", ",
                LABEL,
                " or ",
                SERIAL,
                ", or insert the token that is meant; all that are given must agree"
            ),
            Self::NoneFits { .. } => remedy!(
                "insert the token, or correct what names it; `list` without it shows what is there"
            ),
            Self::SeveralForPin { found } => {
                remedy!("name its token with --token-serial, --token-label or --slot-id:")
                    .with_candidates(found)
            }
            Self::ReadOnly { .. } => remedy!(
                "name another token, or have the library open this one for writing (NSS: without \
                 flags=readOnly)"
            ),
            Self::Removed { .. } => remedy!("put the token back and try again"),
            Self::EmptySlot { present, .. } if present.is_empty() => {
                remedy!("insert the token and try again")
            }
            Self::Slots(_) => remedy!(
                "check that the reader is plugged in, that its service (pcscd) runs and serves you, \
                 and the library's configuration"
            ),
            Self::NotInitialized { slot, library, present } => {
                let tool = format!("pkcs11-tool --module {} --slot {slot}", shell_word(library));
                let commands = format!(
                    "initialise it, which erases what is on it: {tool} --init-token --label NAME, then \
                     {tool} --login --login-type so --init-pin, or the token's own tool"
                );
                match present.as_slice() {
                    [] => remedy!(commands),
                    _ => remedy!(commands, "; or name one that is there:").with_candidates(present),
                }
            }
            Self::EmptySlot { present, .. } => where_to_look(present, &[]),
            Self::NoSlot { present, unusable, .. } | Self::NoToken { present, unusable, .. } => {
                where_to_look(present, unusable)
            }
        }
    }
}

const SLOT_ID: Setting = Setting("slotId");
const LABEL: Setting = Setting("tokenLabel");
const SERIAL: Setting = Setting("tokenSerial");

/// The setting that distinguishes these tokens, a lasting one if there is any.
fn what_differs(tokens: &[TokenName]) -> Help {
    let differ = |name: fn(&TokenName) -> [&str; 2]| {
        let names: HashSet<_> = tokens.iter().map(name).collect();
        names.len() == tokens.len()
    };
    if differ(|token| [&token.serial, ""]) {
        remedy!(SERIAL)
    } else if differ(|token| [&token.label, ""]) {
        remedy!(LABEL)
    } else if differ(|token| [&token.serial, &token.label]) {
        remedy!(SERIAL, " and ", LABEL)
    } else {
        remedy!(SLOT_ID, " (their labels and serials are the same; slot numbers may move)")
    }
}

/// The remedy where the token isn't, by what is in its place.
fn where_to_look(present: &[TokenName], unusable: &[UnusableSlot]) -> Help {
    let is_blank = |slot: &UnusableSlot| matches!(slot.why, WhyUnusable::NotInitialized);
    if !present.is_empty() {
        remedy!(
            "insert the token, or name one that is there (",
            SERIAL,
            " stays the same when slot numbers move):"
        )
        .with_candidates(present)
    } else if unusable.is_empty() {
        remedy!(
            "the library sees no token at all, and no reader: plug it in, check the reader's service \
             (pcscd), a remote token's server (for p11-kit-client.so: P11_KIT_SERVER_ADDRESS), and \
             the library's configuration"
        )
    } else if unusable.iter().any(UnusableSlot::is_unreadable) {
        remedy!(
            "check that no other program holds the token, take it out and put it back, then try \
             again; the slots are:"
        )
        .with_candidates(unusable)
    } else if unusable.iter().all(is_blank) {
        remedy!(
            "initialise the token (pkcs11-tool --init-token, or its own tool; `list` shows how), or \
             correct the library's configuration; its slots are:"
        )
        .with_candidates(unusable)
    } else {
        remedy!(
            "insert the token, initialise it, or correct the library's configuration; its slots are:"
        )
        .with_candidates(unusable)
    }
}
