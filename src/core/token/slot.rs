//! The slots of a library, the one whose token a selector names, and the tokens' descriptions.

#![forbid(unsafe_code)]

use std::path::Path;

use cryptoki::error::{Error as CryptokiError, RvError};
use cryptoki::slot::Slot;
use serde::{Deserialize, Serialize};

use super::ckr;
use super::error::{CallFailure, TokenError, UnusableSlot, WhyUnusable};
use super::raw::Functions;
use crate::config::TokenName;
use crate::config::TokenSelector;
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
    /// The token's description, or the call that failed.
    pub token: Result<TokenState, CallFailure>,
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
pub(super) fn occupied_slots(functions: &Functions) -> Result<Vec<OccupiedSlot>, TokenError> {
    let _step = watchdog::step("listing the slots (C_GetSlotList, C_GetTokenInfo)");
    Ok(occupied(functions)?
        .into_iter()
        .filter_map(|slot| match state(functions, slot) {
            Err(error) if is_empty(&error) => None,
            token => Some(OccupiedSlot {
                slot: slot.id(),
                token: token.map_err(|error| ckr::failure(&error)),
            }),
        })
        .collect())
}

fn occupied(functions: &Functions) -> Result<Vec<Slot>, TokenError> {
    let slots = functions.slots(true);
    slots.map_err(|error| TokenError::Slots(ckr::failure(&error)))
}

/// The slot whose token has everything that the selector gives. `library` is its path, for messages.
pub(super) fn find(
    functions: &Functions,
    library: &Path,
    selector: &TokenSelector,
) -> Result<(Slot, TokenState), TokenError> {
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
) -> Result<(Slot, TokenState), TokenError> {
    let present = || present(functions, occupied);
    let Some(slot) = occupied.iter().copied().find(|slot| slot.id() == id) else {
        let every = functions.slots(false).unwrap_or_default();
        return Err(if every.iter().any(|slot| slot.id() == id) {
            TokenError::EmptySlot { slot: id, present: present() }
        } else {
            TokenError::NoSlot { slot: id, present: present(), unusable: unusable(functions) }
        });
    };
    match state(functions, slot) {
        Ok(state) if !state.initialized => Err(TokenError::NotInitialized {
            slot: id,
            library: library.display().to_string(),
            present: present(),
        }),
        Ok(state) if !state.fits(selector) => {
            Err(TokenError::Contradiction { selector: selector.to_string(), found: state.name })
        }
        Ok(state) => Ok((slot, state)),
        Err(error) if is_empty(&error) => {
            Err(TokenError::EmptySlot { slot: id, present: present() })
        }
        Err(error) => Err(TokenError::Call {
            doing: "reading the token's description",
            failure: ckr::failure(&error),
        }),
    }
}

/// The only token that fits. A slot that can't be read is no candidate, but may be why there is
/// none.
fn matching(
    functions: &Functions,
    library: &Path,
    selector: &TokenSelector,
    occupied: &[Slot],
) -> Result<(Slot, TokenState), TokenError> {
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
            Err(TokenError::Ambiguous {
                selector: selector.to_string(),
                found: found.into_iter().map(|(_, state)| state.name).collect(),
            })
        }
        (None, _) => {
            // A library whose tokens are elsewhere may say that it can't reach them.
            let description = functions.description().filter(|_| occupied.is_empty());
            let description = description.map(|it| format!(" ({it})")).unwrap_or_default();
            Err(TokenError::NoToken {
                selector: selector.to_string(),
                library: format!("{}{description}{unread}", library.display()),
                present: present(functions, occupied),
                unusable: unusable(functions),
            })
        }
    }
}

/// The slot is listed among those that hold a token, but doesn't.
fn is_empty(error: &CryptokiError) -> bool {
    ckr::code(error) == Some(RvError::TokenNotPresent)
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
