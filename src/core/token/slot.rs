//! The slots of a library, the one whose token a selector names, and the tokens' descriptions.

#![forbid(unsafe_code)]

use std::collections::HashSet;
use std::fmt;
use std::path::Path;

use cryptoki::error::{Error as CryptokiError, RvError};
use cryptoki::slot::Slot;
use serde::{Deserialize, Serialize};

use super::ckr::{self, CallFailure};
use super::raw::Functions;
use crate::config::{TokenName, TokenSelector};
use crate::error::{Error, Exit, Help, PROGRAM};
use crate::printable::shell_word;
use crate::process::watchdog;

/// A token's description (CK_TOKEN_INFO), read at one moment.
pub struct TokenState {
    pub name: TokenName,
    pub manufacturer: String,
    pub model: String,
    pub initialized: bool,
    pub login_required: bool,
    /// CKF_PROTECTED_AUTHENTICATION_PATH: the PIN is entered at the reader.
    pub own_keypad: bool,
    pub pin: PinState,
    /// Shortest and longest PIN in bytes; a longest of 0 means that it is unknown.
    pub pin_lengths: (usize, usize),
}

impl TokenState {
    /// Whether the token has everything that the selector gives.
    pub fn fits(&self, selector: &TokenSelector) -> bool {
        let same = |wanted: &Option<String>, actual: &str| {
            wanted.as_deref().is_none_or(|wanted| unpadded(wanted) == actual)
        };
        selector.slot.is_none_or(|slot| slot == self.name.slot)
            && same(&selector.label, &self.name.label)
            && same(&selector.serial, &self.name.serial)
            && same(&selector.manufacturer, &self.manufacturer)
            && same(&selector.model, &self.model)
    }
}

/// CK_TOKEN_INFO's flags on a PIN (PKCS#11, section 3.2).
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PinState {
    /// A wrong PIN was tried since the last right one.
    CountLow,
    FinalTry,
    Good,
    Locked,
    ToBeChanged,
}

impl PinState {
    fn new(locked: bool, to_be_changed: bool, final_try: bool, count_low: bool) -> Self {
        if locked {
            Self::Locked
        } else if to_be_changed {
            Self::ToBeChanged
        } else if final_try {
            Self::FinalTry
        } else if count_low {
            Self::CountLow
        } else {
            Self::Good
        }
    }

    /// To append to a sentence on a PIN that was refused.
    pub(super) fn tries_left(self) -> &'static str {
        match self {
            Self::CountLow => "; the token has counted a wrong PIN since the last right one",
            Self::FinalTry => "; the token says that one try is left before it locks",
            Self::Locked => "; the PIN is locked now",
            Self::Good | Self::ToBeChanged => "",
        }
    }
}

/// A slot with a token in it.
pub struct OccupiedSlot {
    /// CK_SLOT_ID.
    pub slot: u64,
    /// The token's description, or why it can't be read.
    pub token: Result<TokenState, Error>,
}

impl OccupiedSlot {
    pub fn is_uninitialized(&self) -> bool {
        matches!(&self.token, Ok(state) if !state.initialized)
    }
}

/// Reads the token's state afresh (C_GetTokenInfo).
pub(super) fn state(functions: &Functions, slot: Slot) -> Result<TokenState, CryptokiError> {
    watchdog::renew();
    let info = functions.token_info(slot)?;
    Ok(TokenState {
        name: TokenName {
            slot: slot.id(),
            label: unpadded(info.label()),
            serial: unpadded(info.serial_number()),
        },
        manufacturer: unpadded(info.manufacturer_id()),
        model: unpadded(info.model()),
        initialized: info.token_initialized(),
        login_required: info.login_required(),
        own_keypad: info.protected_authentication_path(),
        pin: PinState::new(
            info.user_pin_locked(),
            info.user_pin_to_be_changed(),
            info.user_pin_final_try(),
            info.user_pin_count_low(),
        ),
        pin_lengths: (info.min_pin_length(), info.max_pin_length()),
    })
}

/// The slots that hold a token, in the library's order (C_GetSlotList, C_GetTokenInfo).
pub(super) fn occupied_slots(functions: &Functions) -> Result<Vec<OccupiedSlot>, Error> {
    let _step = watchdog::step("listing the slots (C_GetSlotList, C_GetTokenInfo)");
    Ok(occupied(functions)?
        .into_iter()
        .filter_map(|slot| match state(functions, slot) {
            Err(error) if is_empty(&error) => None,
            token => Some(OccupiedSlot {
                slot: slot.id(),
                token: token.map_err(|error| not_described(&error)),
            }),
        })
        .collect())
}

fn occupied(functions: &Functions) -> Result<Vec<Slot>, Error> {
    functions.slots(true).map_err(|error| {
        let text = format!("listing the slots failed: {}", ckr::failure(&error));
        Error::new(Exit::Token, text).help(
            "check that the reader is plugged in, that its service (pcscd) runs and serves you, and the \
             library's configuration",
        )
    })
}

fn not_described(error: &CryptokiError) -> Error {
    ckr::not_opened("reading the token's description", error)
}

/// The slot whose token has everything that the selector gives. `library` is its path, for messages.
pub(super) fn find(
    functions: &Functions,
    library: &Path,
    selector: &TokenSelector,
) -> Result<(Slot, TokenState), Error> {
    // Some libraries know no slot before they were asked for the list.
    let occupied = occupied(functions)?;
    match selector.slot {
        Some(id) => numbered(functions, library, selector, id, &occupied),
        None => matching(functions, library, selector, &occupied),
    }
}

/// The slot with this number, if its token fits the rest of the selector.
fn numbered(
    functions: &Functions,
    library: &Path,
    selector: &TokenSelector,
    id: u64,
    occupied: &[Slot],
) -> Result<(Slot, TokenState), Error> {
    let present = || present(functions, occupied);
    let Some(slot) = occupied.iter().copied().find(|slot| slot.id() == id) else {
        let every = functions.slots(false).unwrap_or_default();
        return Err(if every.iter().any(|slot| slot.id() == id) {
            empty_slot(id, library, &present())
        } else {
            Error::new(Exit::Token, format!("there is no slotId {id}")).help(where_to_look(
                library,
                &present(),
                &unusable(functions),
            ))
        });
    };
    match state(functions, slot) {
        Ok(state) if !state.initialized => {
            Err(not_initialized(id, &library.to_string_lossy(), &present()))
        }
        Ok(state) if !state.fits(selector) => {
            let text = format!("no token has {selector}: the slot holds token {}", state.name);
            Err(Error::new(Exit::Token, text).help(format!(
                "correct {SLOT_ID}, {LABEL} or {SERIAL}, or insert the token that is meant; all that are \
                 given must agree"
            )))
        }
        Ok(state) => Ok((slot, state)),
        Err(error) if is_empty(&error) => Err(empty_slot(id, library, &present())),
        Err(error) => Err(not_described(&error)),
    }
}

fn empty_slot(slot: u64, library: &Path, present: &[TokenName]) -> Error {
    Error::new(Exit::Token, format!("slotId {slot} holds no token")).help(match present {
        [] => "insert the token and try again".into(),
        present => where_to_look(library, present, &[]),
    })
}

/// The error of a token that has no label, PIN and objects yet. `library` is its path.
pub fn not_initialized(slot: u64, library: &str, present: &[TokenName]) -> Error {
    let tool = format!("pkcs11-tool --module {} --slot {slot}", shell_word(library));
    let commands = format!(
        "initialise it, which erases what is on it: {tool} --init-token --label NAME, then {tool} --login \
         --login-type so --init-pin, or the token's own tool"
    );
    let text = format!("the token in slotId {slot} of {library} is not initialised");
    Error::new(Exit::Token, text).help(match present {
        [] => commands.into(),
        _ => Help::from(format!("{commands}; or name one that is there:")).with_candidates(present),
    })
}

/// The only token that fits. A slot that can't be read is no candidate, but may be why there is
/// none.
fn matching(
    functions: &Functions,
    library: &Path,
    selector: &TokenSelector,
    occupied: &[Slot],
) -> Result<(Slot, TokenState), Error> {
    let (mut found, mut unread) = (Vec::new(), String::new());
    for slot in occupied {
        match state(functions, *slot) {
            Ok(state) if state.initialized && state.fits(selector) => found.push((*slot, state)),
            Ok(_) => {}
            Err(error) if is_empty(&error) => {}
            Err(error) => {
                let failure = ckr::failure(&error);
                unread.push_str(&format!("; slotId {slot} can't be read: {failure}"));
            }
        }
    }
    match (found.pop(), found.is_empty()) {
        (Some(only), true) => Ok(only),
        (Some(last), false) => {
            found.push(last);
            let found: Vec<_> = found.into_iter().map(|(_, state)| state.name).collect();
            Err(ambiguous(selector, &found))
        }
        (None, _) => {
            // A library whose tokens are elsewhere may say that it can't reach them.
            let description = functions.description().filter(|_| occupied.is_empty());
            let description = description.map(|it| format!(" ({it})")).unwrap_or_default();
            let shown = library.display();
            let text = format!("no token with {selector} in {shown}{description}{unread}");
            Err(Error::new(Exit::Token, text).help(where_to_look(
                library,
                &present(functions, occupied),
                &unusable(functions),
            )))
        }
    }
}

/// The slot is listed among those that hold a token, but doesn't.
fn is_empty(error: &CryptokiError) -> bool {
    ckr::code(error) == Some(RvError::TokenNotPresent)
}

const SLOT_ID: &str = "slotId (--slot-id)";
const LABEL: &str = "tokenLabel (--token-label)";
const SERIAL: &str = "tokenSerial (--token-serial)";

fn ambiguous(selector: &TokenSelector, found: &[TokenName]) -> Error {
    let help = Help::from(format!("add {} to choose one:", what_differs(found)));
    Error::new(Exit::Token, format!("{} tokens have {selector}", found.len()))
        .help(help.with_candidates(found))
}

/// The setting that distinguishes these tokens, a lasting one if there is any.
fn what_differs(tokens: &[TokenName]) -> String {
    let differ = |name: fn(&TokenName) -> [&str; 2]| {
        let names: HashSet<_> = tokens.iter().map(name).collect();
        names.len() == tokens.len()
    };
    if differ(|token| [&token.serial, ""]) {
        SERIAL.to_owned()
    } else if differ(|token| [&token.label, ""]) {
        LABEL.to_owned()
    } else if differ(|token| [&token.serial, &token.label]) {
        format!("{SERIAL} and {LABEL}")
    } else {
        format!("{SLOT_ID} (their labels and serials are the same; slot numbers may move)")
    }
}

/// The remedy where the token isn't, by what is in its place.
fn where_to_look(library: &Path, present: &[TokenName], unusable: &[UnusableSlot]) -> Help {
    let is_blank = |slot: &UnusableSlot| matches!(slot.why, WhyUnusable::NotInitialized);
    let is_unreadable = |slot: &UnusableSlot| matches!(slot.why, WhyUnusable::Unreadable(_));
    if !present.is_empty() {
        let text = format!(
            "insert the token, or name one that is there ({SERIAL} stays the same when slot numbers move):"
        );
        return Help::from(text).with_candidates(present);
    }
    if unusable.is_empty() {
        return "the library sees no token at all, and no reader: plug it in, check the reader's service \
                (pcscd), a remote token's server (for p11-kit-client.so: P11_KIT_SERVER_ADDRESS), and the \
                library's configuration"
            .into();
    }
    let help = if unusable.iter().any(is_unreadable) {
        "check that no other program holds the token, take it out and put it back, then try again; the \
         slots are:"
            .to_owned()
    } else if unusable.iter().all(is_blank) {
        format!(
            "initialise the token (pkcs11-tool --init-token, or its own tool; `{PROGRAM} list --module {}` shows \
             how), or correct the library's configuration; its slots are:",
            shell_word(&library.to_string_lossy())
        )
    } else {
        "insert the token, initialise it, or correct the library's configuration; its slots are:"
            .to_owned()
    };
    Help::from(help).with_candidates(unusable)
}

/// A slot without an initialised token.
#[derive(Debug)]
struct UnusableSlot {
    /// What it calls itself; a reader's name, for the most part.
    name: String,
    why: WhyUnusable,
}

#[derive(Debug)]
enum WhyUnusable {
    Empty,
    NotInitialized,
    /// Its token is there, but doesn't say what it is.
    Unreadable(CallFailure),
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

/// The initialised tokens, for a message.
fn present(functions: &Functions, occupied: &[Slot]) -> Vec<TokenName> {
    let states = occupied.iter().filter_map(|slot| state(functions, *slot).ok());
    let initialized = states.filter(|state| state.initialized);
    initialized.map(|state| state.name).collect()
}

/// What the slots without a token call themselves: readers, for the most part.
pub(super) fn empty(functions: &Functions) -> Vec<String> {
    let unusable = unusable(functions).into_iter();
    let empty = unusable.filter(|slot| matches!(slot.why, WhyUnusable::Empty));
    empty.map(|slot| slot.name).collect()
}

/// The slots without an initialised token (C_GetSlotInfo, C_GetTokenInfo), without those that can't
/// be asked.
fn unusable(functions: &Functions) -> Vec<UnusableSlot> {
    let slots = functions.slots(false).unwrap_or_default();
    let unusable = slots.into_iter().filter_map(|slot| {
        let info = functions.slot_info(slot).ok()?;
        let token = info.token_present().then(|| state(functions, slot));
        let why = match token {
            Some(Ok(state)) if state.initialized => return None,
            Some(Ok(_)) => WhyUnusable::NotInitialized,
            Some(Err(error)) if !is_empty(&error) => WhyUnusable::Unreadable(ckr::failure(&error)),
            Some(Err(_)) | None => WhyUnusable::Empty,
        };
        let name = unpadded(info.slot_description());
        Some(UnusableSlot { name, why })
    });
    unusable.collect()
}

/// Without the blanks the standard pads with, and the NULs that some libraries pad with instead.
fn unpadded(text: &str) -> String {
    text.trim_end_matches([' ', '\0']).to_owned()
}

/// For tests of what is done by a token's state.
#[cfg(test)]
pub(super) fn state_with_label(label: &str) -> TokenState {
    TokenState {
        name: TokenName { slot: 1, label: label.to_owned(), serial: "0815".to_owned() },
        manufacturer: "maker".to_owned(),
        model: "model".to_owned(),
        initialized: true,
        login_required: true,
        own_keypad: false,
        pin: PinState::Good,
        pin_lengths: (4, 8),
    }
}
