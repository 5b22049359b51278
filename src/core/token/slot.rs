//! The slots of a library, the one whose token a selector names, and the tokens' descriptions.

#![forbid(unsafe_code)]

use std::collections::HashSet;
use std::fmt;

use cryptoki::error::{Error as CryptokiError, RvError};
use cryptoki::slot::Slot;
use serde::{Deserialize, Serialize};

use super::ckr;
use super::raw::CallResult;
use super::{FoundToken, Module};
use crate::config::{TokenName, TokenSelector};
use crate::error::{Error, Exit, Help, PROGRAM};
use crate::printable::shell_word;

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

impl Module {
    /// Reads the token's state afresh (C_GetTokenInfo).
    pub(super) fn token_state(&self, slot: Slot) -> CallResult<TokenState> {
        let info = self.functions.token_info(slot)?;
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
            pin: match &info {
                info if info.user_pin_locked() => PinState::Locked,
                info if info.user_pin_to_be_changed() => PinState::ToBeChanged,
                info if info.user_pin_final_try() => PinState::FinalTry,
                info if info.user_pin_count_low() => PinState::CountLow,
                _ => PinState::Good,
            },
            pin_lengths: (info.min_pin_length(), info.max_pin_length()),
        })
    }

    /// The slots that hold a token, in the library's order (C_GetSlotList, C_GetTokenInfo).
    pub fn occupied_slots(&self) -> Result<Vec<OccupiedSlot>, Error> {
        let occupied = |slot| match self.token_state(slot) {
            Err(error) if is_empty(&error) => None,
            token => Some(OccupiedSlot {
                slot: slot.id(),
                token: token.map_err(|error| not_described(&error)),
            }),
        };
        Ok(self.slots_with_token()?.into_iter().filter_map(occupied).collect())
    }

    fn slots_with_token(&self) -> Result<Vec<Slot>, Error> {
        self.functions.slots(true).map_err(|error| {
            let text = format!("listing the slots failed: {}", ckr::failure(&error));
            Error::new(Exit::Token, text).help(
                "check that the reader is plugged in, that its service (pcscd) runs and serves you, and the \
                 library's configuration",
            )
        })
    }

    /// The slot with this number, if its token fits the rest of the selector.
    fn numbered(
        &self,
        selector: &TokenSelector,
        id: u64,
        occupied: &[Slot],
    ) -> Result<FoundToken, Error> {
        let empty = || {
            let help = match self.present(occupied).as_slice() {
                [] => "insert the token and try again".into(),
                _ => self.where_to_look(occupied),
            };
            Error::new(Exit::Token, format!("slotId {id} holds no token")).help(help)
        };
        let Some(slot) = occupied.iter().copied().find(|slot| slot.id() == id) else {
            let every = self.functions.slots(false).unwrap_or_default();
            if every.iter().any(|slot| slot.id() == id) {
                return Err(empty());
            }
            let text = format!("there is no slotId {id}");
            return Err(Error::new(Exit::Token, text).help(self.where_to_look(occupied)));
        };
        match self.token_state(slot) {
            Ok(state) if !state.initialized => {
                let present = self.present(occupied);
                Err(not_initialized(id, &self.path.to_string_lossy(), &present))
            }
            Ok(state) if !state.fits(selector) => {
                let text = format!("no token has {selector}: the slot holds token {}", state.name);
                Err(Error::new(Exit::Token, text).help(format!(
                    "correct {SLOT_ID}, {LABEL} or {SERIAL}, or insert the token that is meant; all that are \
                     given must agree"
                )))
            }
            Ok(state) => Ok(FoundToken { slot, state }),
            Err(error) if is_empty(&error) => Err(empty()),
            Err(error) => Err(not_described(&error)),
        }
    }

    /// The only token that fits. A slot that can't be read is no candidate, but may be why there is
    /// none.
    fn matching(&self, selector: &TokenSelector, occupied: &[Slot]) -> Result<FoundToken, Error> {
        let (mut found, mut unread) = (Vec::new(), String::new());
        for slot in occupied.iter().copied() {
            match self.token_state(slot) {
                Ok(state) if state.initialized && state.fits(selector) => {
                    found.push(FoundToken { slot, state });
                }
                Ok(_) => {}
                Err(error) if is_empty(&error) => {}
                Err(error) => {
                    let failure = ckr::failure(&error);
                    unread.push_str(&format!("; slotId {slot} can't be read: {failure}"));
                }
            }
        }
        if found.len() > 1 {
            let found: Vec<_> = found.into_iter().map(|found| found.state.name).collect();
            let help = Help::from(format!("add {} to choose one:", what_differs(&found)));
            let text = format!("{} tokens have {selector}", found.len());
            return Err(Error::new(Exit::Token, text).help(help.with_candidates(&found)));
        }
        found.pop().ok_or_else(|| {
            // A library whose tokens are elsewhere may say that it can't reach them.
            let description = self.description().filter(|_| occupied.is_empty());
            let description = description.map(|it| format!(" ({it})")).unwrap_or_default();
            let library = self.path.display();
            let text = format!("no token with {selector} in {library}{description}{unread}");
            Error::new(Exit::Token, text).help(self.where_to_look(occupied))
        })
    }

    /// The remedy where the token isn't, by what is in its place.
    fn where_to_look(&self, occupied: &[Slot]) -> Help {
        let present = self.present(occupied);
        if !present.is_empty() {
            let text = format!(
                "insert the token, or name one that is there ({SERIAL} stays the same when slot numbers move):"
            );
            return Help::from(text).with_candidates(&present);
        }
        let unusable = self.unusable();
        if unusable.is_empty() {
            return "the library sees no token at all, and no reader: plug it in, check the reader's service \
                    (pcscd), a remote token's server (for p11-kit-client.so: P11_KIT_SERVER_ADDRESS), and the \
                    library's configuration"
                .into();
        }
        let help = if unusable.iter().any(|slot| matches!(slot.token, Some(Err(_)))) {
            "check that no other program holds the token, take it out and put it back, then try again; the \
             slots are:"
                .to_owned()
        } else if unusable.iter().all(|slot| slot.token.is_some()) {
            format!(
                "initialise the token (pkcs11-tool --init-token, or its own tool; `{PROGRAM} list --module {}` shows \
                 how), or correct the library's configuration; its slots are:",
                shell_word(&self.path.to_string_lossy())
            )
        } else {
            "insert the token, initialise it, or correct the library's configuration; its slots are:"
                .to_owned()
        };
        Help::from(help).with_candidates(&unusable)
    }

    /// The initialised tokens, for a message.
    fn present(&self, occupied: &[Slot]) -> Vec<TokenName> {
        let states = occupied.iter().filter_map(|slot| self.token_state(*slot).ok());
        let initialized = states.filter(|state| state.initialized);
        initialized.map(|state| state.name).collect()
    }

    /// What the slots without a token call themselves: readers, for the most part.
    pub fn empty_slots(&self) -> Vec<String> {
        let empty = self.unusable().into_iter().filter(|slot| slot.token.is_none());
        empty.map(|slot| slot.name).collect()
    }

    /// The slots without an initialised token (C_GetSlotInfo, C_GetTokenInfo), without those that can't
    /// be asked.
    fn unusable(&self) -> Vec<UnusableSlot> {
        let slots = self.functions.slots(false).unwrap_or_default();
        let unusable = slots.into_iter().filter_map(|slot| {
            let info = self.functions.slot_info(slot).ok()?;
            let token = match info.token_present().then(|| self.token_state(slot)) {
                Some(Ok(state)) if state.initialized => return None,
                Some(Err(error)) if is_empty(&error) => None,
                token => token.map(|it| it.map(drop).map_err(|error| ckr::failure(&error))),
            };
            Some(UnusableSlot { name: unpadded(info.slot_description()), token })
        });
        unusable.collect()
    }
}

impl FoundToken {
    /// The one token that has everything that the selector gives.
    pub fn find(module: &Module, selector: &TokenSelector) -> Result<Self, Error> {
        // Some libraries know no slot before they were asked for the list.
        let occupied = module.slots_with_token()?;
        match selector.slot {
            Some(id) => module.numbered(selector, id, &occupied),
            None => module.matching(selector, &occupied),
        }
    }
}

fn not_described(error: &CryptokiError) -> Error {
    ckr::not_opened("reading the token's description", error)
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

/// The slot is listed among those that hold a token, but doesn't.
fn is_empty(error: &CryptokiError) -> bool {
    ckr::code(error) == Some(RvError::TokenNotPresent)
}

const SLOT_ID: &str = "slotId (--slot-id)";
const LABEL: &str = "tokenLabel (--token-label)";
const SERIAL: &str = "tokenSerial (--token-serial)";

/// The setting that distinguishes these tokens, a lasting one if there is any.
fn what_differs(tokens: &[TokenName]) -> String {
    let differ = |name: fn(&TokenName) -> [&str; 2]| {
        tokens.iter().map(name).collect::<HashSet<_>>().len() == tokens.len()
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

/// A slot without an initialised token.
struct UnusableSlot {
    /// What it calls itself; a reader's name, for the most part.
    name: String,
    /// A token that isn't initialised, or why it doesn't say what it is.
    token: Option<Result<(), String>>,
}

impl fmt::Display for UnusableSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.name)?;
        match &self.token {
            None => f.write_str("empty"),
            Some(Ok(())) => f.write_str("a token that is not initialised"),
            Some(Err(failure)) => write!(f, "can't be read: {failure}"),
        }
    }
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
