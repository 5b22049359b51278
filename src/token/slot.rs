//! From a selector to the one slot whose token it names, and what the token says of its PIN.

#![forbid(unsafe_code)]

use cryptoki::error::{Error as CryptokiError, RvError};
use cryptoki::slot::{Slot, TokenInfo};
use serde::{Deserialize, Serialize};

use super::ckr;
use super::error::{TokenError, TriesLeft, UnusableSlot, WhyUnusable};
use super::module::Module;
use crate::config::TokenName;
use crate::config::TokenSelector;
use crate::process::watchdog;

/// What a token says of itself, read at one moment.
pub struct TokenState {
    pub name: TokenName,
    pub manufacturer: String,
    pub model: String,
    pub initialized: bool,
    pub login_required: bool,
    /// CKF_PROTECTED_AUTHENTICATION_PATH: the PIN is entered at the reader.
    pub own_keypad: bool,
    pub pin: PinState,
    /// Shortest and longest PIN in bytes; a longest of 0 says nothing.
    pub pin_lengths: (usize, usize),
}

impl TokenState {
    /// Whether the selector means this token; one that names nothing means all.
    pub fn fits(&self, selector: &TokenSelector) -> bool {
        let same = |wanted: &Option<String>, actual: &str| {
            wanted
                .as_deref()
                .is_none_or(|wanted| unpadded(wanted) == actual)
        };
        selector.slot.is_none_or(|slot| slot == self.name.slot)
            && same(&selector.label, &self.name.label)
            && same(&selector.serial, &self.name.serial)
            && same(&selector.manufacturer, &self.manufacturer)
            && same(&selector.model, &self.model)
    }
}

/// CK_TOKEN_INFO's flags on the user PIN (PKCS#11, section 3.2).
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
    pub(super) fn tries_left(self) -> TriesLeft {
        match self {
            Self::CountLow => TriesLeft::Fewer,
            Self::FinalTry => TriesLeft::One,
            Self::Locked => TriesLeft::None,
            Self::Good | Self::ToBeChanged => TriesLeft::Untold,
        }
    }
}

/// Reads the token's state afresh (C_GetTokenInfo).
pub(super) fn state(module: &Module, slot: Slot) -> Result<TokenState, CryptokiError> {
    watchdog::renew();
    let info = module.functions().token_info(slot)?;
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
        pin: pin_state(&info),
        pin_lengths: (info.min_pin_length(), info.max_pin_length()),
    })
}

fn pin_state(info: &TokenInfo) -> PinState {
    if info.user_pin_locked() {
        PinState::Locked
    } else if info.user_pin_to_be_changed() {
        PinState::ToBeChanged
    } else if info.user_pin_final_try() {
        PinState::FinalTry
    } else if info.user_pin_count_low() {
        PinState::CountLow
    } else {
        PinState::Good
    }
}

/// The slots that hold a token (C_GetSlotList).
pub(super) fn occupied(module: &Module) -> Result<Vec<Slot>, TokenError> {
    let slots = module.functions().slots(true);
    slots.map_err(|error| TokenError::Slots(ckr::failure(&error)))
}

/// The slot and token that fit everything the selector gives.
pub(super) fn find(
    module: &Module,
    selector: &TokenSelector,
) -> Result<(Slot, TokenState), TokenError> {
    // Some modules know no slot before they were asked for the list.
    let occupied = occupied(module)?;
    match selector.slot {
        Some(id) => named(module, selector, id, &occupied),
        None => matching(module, selector, &occupied),
    }
}

/// The slot with this number, if its token fits the rest of the selector.
fn named(
    module: &Module,
    selector: &TokenSelector,
    id: u64,
    occupied: &[Slot],
) -> Result<(Slot, TokenState), TokenError> {
    let Some(slot) = occupied.iter().copied().find(|slot| slot.id() == id) else {
        let present = present(module, occupied);
        let every = module.functions().slots(false).unwrap_or_default();
        return Err(if every.iter().any(|slot| slot.id() == id) {
            TokenError::EmptySlot { slot: id, present }
        } else {
            TokenError::NoSlot {
                slot: id,
                present,
                unusable: unusable(module),
            }
        });
    };
    let state = state(module, slot).map_err(|error| match is_empty(&error) {
        true => TokenError::EmptySlot {
            slot: id,
            present: present(module, occupied),
        },
        false => TokenError::Call {
            doing: "reading the token's description",
            failure: ckr::failure(&error),
        },
    })?;
    if !state.initialized {
        return Err(TokenError::NotInitialized {
            slot: id,
            present: present(module, occupied),
        });
    }
    if !state.fits(selector) {
        return Err(TokenError::Contradiction {
            selector: selector.to_string(),
            found: state.name,
        });
    }
    Ok((slot, state))
}

/// The only token whose label and serial fit; a slot that can't be read is no candidate, but may
/// be why there is none.
fn matching(
    module: &Module,
    selector: &TokenSelector,
    occupied: &[Slot],
) -> Result<(Slot, TokenState), TokenError> {
    let (mut found, mut unread) = (Vec::new(), Vec::new());
    for slot in occupied {
        match state(module, *slot) {
            Ok(state) if state.initialized && state.fits(selector) => found.push((*slot, state)),
            Ok(_) => {}
            Err(error) if is_empty(&error) => {}
            Err(error) => unread.push(format!(
                "; slotId {slot} can't be read: {}",
                ckr::failure(&error)
            )),
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
        (None, _) => Err(TokenError::NoToken {
            selector: selector.to_string(),
            library: library(module, occupied) + &unread.concat(),
            present: present(module, occupied),
            unusable: unusable(module),
        }),
    }
}

/// The library, for a message. One whose tokens are elsewhere may say that it can't reach them.
fn library(module: &Module, occupied: &[Slot]) -> String {
    let path = module.path().display();
    match module.description() {
        Some(description) if occupied.is_empty() => format!("{path} ({description})"),
        _ => path.to_string(),
    }
}

/// What the slots without a token call themselves: readers, for the most part (C_GetSlotInfo). One
/// that can't be asked is left out.
pub(super) fn empty(module: &Module) -> Vec<String> {
    let described = described(module);
    let empty = described.filter(|(slot, _, is_occupied)| {
        !is_occupied || state(module, *slot).is_err_and(|error| is_empty(&error))
    });
    empty.map(|(_, name, _)| name).collect()
}

/// The slot was said to hold a token, and doesn't.
pub(super) fn is_empty(error: &CryptokiError) -> bool {
    ckr::code(error) == Some(RvError::TokenNotPresent)
}

/// The slots without an initialised token, as far as is known.
fn unusable(module: &Module) -> Vec<UnusableSlot> {
    described(module)
        .filter_map(|(slot, name, is_occupied)| {
            let why = if is_occupied {
                match state(module, slot) {
                    Ok(state) if state.initialized => return None,
                    Ok(_) => WhyUnusable::NotInitialized,
                    Err(error) if is_empty(&error) => WhyUnusable::Empty,
                    Err(error) => WhyUnusable::Unreadable(ckr::failure(&error)),
                }
            } else {
                WhyUnusable::Empty
            };
            Some(UnusableSlot { name, why })
        })
        .collect()
}

/// Each slot, its name, and whether a token is in it.
fn described(module: &Module) -> impl Iterator<Item = (Slot, String, bool)> {
    let slots = module.functions().slots(false).unwrap_or_default();
    slots.into_iter().filter_map(|slot| {
        let info = module.functions().slot_info(slot).ok()?;
        Some((
            slot,
            unpadded(info.slot_description()),
            info.token_present(),
        ))
    })
}

/// The initialised tokens, for a message.
fn present(module: &Module, occupied: &[Slot]) -> Vec<TokenName> {
    occupied
        .iter()
        .filter_map(|slot| state(module, *slot).ok())
        .filter(|state| state.initialized)
        .map(|state| state.name)
        .collect()
}

/// Without the blanks the standard pads with, and the NULs that some modules pad with instead.
fn unpadded(text: &str) -> String {
    text.trim_end_matches([' ', '\0']).to_owned()
}
