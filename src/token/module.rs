//! A PKCS#11 library that is loaded and initialised, and finalised without trusting it to return. Also its slots, the
//! tokens in them with their descriptions, and how a selector finds the one token it means.

use std::any::Any;
use std::ffi::{CStr, CString};
use std::path::{Path, PathBuf};
use std::time::Duration;

use cryptoki::error::{Error as CryptokiError, RvError};
use serde::{Deserialize, Serialize};

use super::ckr;
use super::raw::{self, CallResult, Callers, Functions, Locking};
use crate::exit_guard;
use config::{TokenName, TokenSelector, TrustedLibrary};
use messages::error::{Error, Exit};
use messages::help::{Help, command};
use messages::printable::shell_word;
use system::limits;

/// A loaded and initialised library. It is never unloaded, because some libraries crash then.
#[derive(Debug)]
pub struct Module {
    pub(super) functions: &'static Functions,
    pub path: PathBuf,
    init_args: Option<CString>,
    /// The library had been initialised in this process before, so that this module doesn't finalise it.
    borrowed: bool,
    locking: Locking,
    on_wait: WaitObserver,
}

/// Called when a token begins to wait for a person, who is to touch it or to use the reader's keypad: with how long to wait
/// before the text is shown, and the text. The wait is over when the result is dropped.
pub(super) type WaitObserver = fn(Duration, &str) -> Box<dyn Any>;

/// A token's description (CK_TOKEN_INFO), read at one moment.
#[derive(Clone)]
pub struct TokenState {
    pub name: TokenName,
    pub manufacturer: String,
    pub model: String,
    pub initialized: bool,
    /// CKF_WRITE_PROTECTED: it takes no key and no certificate.
    pub write_protected: bool,
    pub login_required: bool,
    /// CKF_PROTECTED_AUTHENTICATION_PATH: the PIN is entered at the reader.
    pub own_keypad: bool,
    pub pin: PinState,
    /// The length of the shortest and of the longest PIN in bytes. The longest is 0 if the token doesn't say.
    pub pin_lengths: (usize, usize),
}

impl TokenState {
    /// Whether the selector can mean this token.
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

/// What a token says of its user PIN, by the flags of CK_TOKEN_INFO (PKCS#11, section 3.2).
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
    /// The end of a sentence that says that a PIN was refused.
    pub(super) fn tries_left(self) -> &'static str {
        match self {
            Self::CountLow => "; it has counted a wrong PIN since the last right one",
            Self::FinalTry => "; one try is left before it locks",
            Self::Locked => "; the PIN is locked now",
            Self::Good | Self::ToBeChanged => "",
        }
    }
}

/// A slot that holds a token.
pub struct OccupiedSlot {
    /// CK_SLOT_ID.
    pub slot: u64,
    /// The token's description, or why it can't be read.
    pub token: Result<TokenState, Error>,
}

impl Module {
    /// Loads and initialises the library (C_GetFunctionList, C_Initialize). If the library was initialised in this process
    /// before, `init_args` has no effect.
    pub fn open(
        library: &TrustedLibrary,
        init_args: Option<&CStr>,
        callers: Callers,
        on_wait: WaitObserver,
    ) -> Result<Self, Error> {
        let Some(path) = library.file().map(Path::to_owned) else {
            let reason = std::io::Error::from(rustix::io::Errno::NOENT);
            return Err(raw::not_loaded(library.path(), &reason));
        };
        exit_guard::report_crashes(&path);
        let functions = Functions::load(&path)?;
        let (borrowed, locking) = match functions.initialize(init_args, callers) {
            Ok(locking) => (false, locking),
            Err(CryptokiError::Pkcs11(RvError::CryptokiAlreadyInitialized, _)) => {
                (true, Locking::Ours)
            }
            Err(error) => return Err(not_initialised(&path, &error)),
        };
        let init_args = init_args.map(CStr::to_owned);
        let module = Self { functions, path, init_args, borrowed, locking, on_wait };
        if log::log_enabled!(log::Level::Info) {
            let description = module.description().unwrap_or_default();
            log::info!("library {}: {description}", module.path.display());
        }
        Ok(module)
    }

    /// Whether this is a module of this library, initialised with these arguments.
    pub fn is_of(&self, library: &TrustedLibrary, init_args: Option<&CStr>) -> bool {
        library.file() == Some(&self.path) && self.init_args.as_deref() == init_args
    }

    /// Whether several threads may call the library at once, each in a session of its own (PKCS#11, section 5.4).
    pub fn bears_threads(&self) -> bool {
        self.locking == Locking::Librarys
    }

    /// The library's maker, name and version (C_GetInfo); `None` if it doesn't say.
    pub fn description(&self) -> Option<String> {
        self.functions.description()
    }

    pub(super) fn waiting(&self, delay: Duration, text: &str) -> Box<dyn Any> {
        (self.on_wait)(delay, text)
    }

    /// Finalises the library (C_Finalize). Some libraries notice only after that that a token was put back.
    pub fn close(&self) {
        if !self.borrowed {
            let _ = self.functions.finalize();
        }
    }

    /// Finalises the library (C_Finalize, which closes its sessions) once the answer is out. The process ends with `code`
    /// even if the library hangs or crashes in that.
    pub fn finalize(&self, code: u8) {
        exit_guard::arm(limits::FINALIZE, code);
        self.close();
    }

    /// Reads the token's state afresh (C_GetTokenInfo).
    pub(super) fn token_state(&self, slot: u64) -> CallResult<TokenState> {
        let info = self.functions.token_info(slot)?;
        Ok(TokenState {
            name: TokenName {
                slot,
                label: unpadded(info.label()),
                serial: unpadded(info.serial_number()),
            },
            manufacturer: unpadded(info.manufacturer_id()),
            model: unpadded(info.model()),
            initialized: info.token_initialized(),
            write_protected: info.write_protected(),
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
            // Some libraries list an empty slot among those that hold a token.
            Err(error) if ckr::code(&error) == Some(RvError::TokenNotPresent) => None,
            token => {
                Some(OccupiedSlot { slot, token: token.map_err(|error| not_described(&error)) })
            }
        };
        Ok(self.slots_with_token()?.into_iter().filter_map(occupied).collect())
    }

    fn slots_with_token(&self) -> Result<Vec<u64>, Error> {
        self.functions.slots(true).map_err(|error| {
            let text = format!("listing the slots failed: {}", ckr::failure(&error));
            Error::new(Exit::Token, text)
                .help("check the reader, its service (pcscd), and the library's configuration")
        })
    }

    /// The descriptions of the slots, if none of them holds a token (C_GetSlotInfo). Most slots are readers.
    pub fn empty_slots(&self) -> Vec<String> {
        let slots = self.functions.slots(false).unwrap_or_default();
        let described = slots.into_iter().filter_map(|slot| self.functions.slot_info(slot).ok());
        described.map(|info| unpadded(info.slot_description())).collect()
    }

    /// The error for a selector that fits no token. `unread` says which slots could not be looked at.
    fn no_token(&self, selector: &TokenSelector, occupied: &[u64], unread: &str) -> Error {
        let states = occupied.iter().filter_map(|slot| self.token_state(*slot).ok());
        let (present, new): (Vec<_>, Vec<_>) = states.partition(|state| state.initialized);
        let present: Vec<_> = present.into_iter().map(|state| state.name).collect();
        let library = self.path.to_string_lossy();
        if let Some(directory) = self.init_args.as_deref().and_then(nss_directory)
            && let Some(meant) = new.iter().find(|state| state.fits(selector))
        {
            return without_password(&meant.name, &directory);
        }
        let mut new = new.into_iter().map(|state| state.name.slot);
        // A selector with a label or serial number can't mean a token that has none yet.
        if let Some(slot) = new.find(|slot| selector.slot == Some(*slot)) {
            return blank_token(slot, &library, &present);
        }
        // The description of a library whose tokens are on another machine may say that it can't reach them.
        let description = self.description().filter(|_| occupied.is_empty());
        let description = description.map(|text| format!(" ({text})")).unwrap_or_default();
        let text = format!("no token with {selector} in {library}{description}{unread}");
        Error::new(Exit::Token, text).help(match present.as_slice() {
            [] => Help::from(
                "insert the token, check its reader, the reader's service (pcscd) or server (P11_KIT_SERVER_ADDRESS), \
                 and the library's configuration (SOFTHSM2_CONF, TPM2_PKCS11_STORE and the like); ",
            )
            .and(command("list --module ").and(shell_word(&library)))
            .and(" shows its readers"),
            _ => Help::from("insert the token, or name one that is there:").with_candidates(&present),
        })
    }

    /// The one token that fits the selector. If there is none, the error names slots that couldn't be read.
    pub fn find_token(&self, selector: &TokenSelector) -> Result<TokenState, Error> {
        // Some libraries know of no slot until they were asked for the list.
        let occupied = self.slots_with_token()?;
        let mut found = Vec::new();
        let mut unread = String::new();
        let numbered = |slot: &&u64| selector.slot.is_none_or(|id| id == **slot);
        for slot in occupied.iter().filter(numbered).copied() {
            match self.token_state(slot) {
                Ok(state) if state.initialized && state.fits(selector) => found.push(state),
                Err(error) if ckr::code(&error) == Some(RvError::TokenNotPresent) => {}
                Err(error) if selector.slot.is_some() => return Err(not_described(&error)),
                Err(error) => {
                    unread += &format!("; slotId {slot} can't be read: {}", ckr::failure(&error));
                }
                Ok(_) => {}
            }
        }
        if found.len() > 1 {
            let found: Vec<_> = found.iter().map(|found| &found.name).collect();
            let text = format!("{} tokens have {selector}", found.len());
            let help = Help::from(
                "name one with tokenSerial (--token-serial), tokenLabel (--token-label) or slotId (--slot-id):",
            );
            return Err(Error::new(Exit::Token, text).help(help.with_candidates(&found)));
        }
        found.pop().ok_or_else(|| self.no_token(selector, &occupied, &unread))
    }
}

fn not_initialised(path: &Path, error: &CryptokiError) -> Error {
    let failure = ckr::failure(error);
    let text = format!("PKCS#11 library {} does not initialise: {failure}", path.display());
    Error::new(Exit::Library, text).help(match ckr::code(error) {
        Some(RvError::ArgumentsBad) => {
            "set initArgs (--init-args) to what this library needs (NSS: configDir='sql:/path' certPrefix='' \
             keyPrefix='' secmod='' flags=readOnly), or leave it out for one that needs nothing, as most do"
        }
        _ => {
            "check the library's own set-up: its configuration file (SOFTHSM2_CONF), its service (pcscd, tpm2-abrmd, \
             pkcsslotd), and whether you are in the group that may use it"
        }
    })
}

fn not_described(error: &CryptokiError) -> Error {
    ckr::not_opened("reading the token's description", error)
}

/// The error for a token that was never initialised: it has no label, no PIN and no objects. `library` is the library's
/// path.
pub fn blank_token(slot: u64, library: &str, present: &[TokenName]) -> Error {
    let tool = pkcs11_tool(slot, library);
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

/// The error for NSS's token while the directory of its databases has no password. NSS says that the token isn't
/// initialised, but it has a name, and initialising it as other tokens are would erase its content.
pub fn without_password(name: &TokenName, directory: &str) -> Error {
    let text = format!("token {name} has no user PIN yet");
    let directory = shell_word(directory);
    Error::new(Exit::Token, text).help(format!("set one: `certutil -N -d {directory}`"))
}

/// The parameter in NSS's initialisation arguments that names the directory of its databases, as in
/// `configDir='sql:/home/jane/nssdb'`; `None` for arguments of another library.
pub fn nss_directory(init_args: &CStr) -> Option<String> {
    let init_args = init_args.to_string_lossy();
    let (_, value) = init_args.split_once("configDir=")?;
    let quote = value.chars().next().filter(|first| matches!(first, '\'' | '"'))?;
    Some(value.split(quote).nth(1)?.to_owned())
}

/// The beginning of a pkcs11-tool command for the token in this slot.
pub(super) fn pkcs11_tool(slot: u64, library: &str) -> String {
    format!("pkcs11-tool --module {} --slot {slot}", shell_word(library))
}

/// The text without the blanks that the standard pads it with, and without the NULs that some libraries pad it with
/// instead.
fn unpadded(text: &str) -> String {
    text.trim_end_matches([' ', '\0']).to_owned()
}

/// A token's state, for tests of what is done by it.
#[cfg(test)]
pub(super) fn state_with_label(label: &str) -> TokenState {
    TokenState {
        name: TokenName { slot: 1, label: label.to_owned(), serial: "0815".to_owned() },
        manufacturer: "maker".to_owned(),
        model: "model".to_owned(),
        initialized: true,
        write_protected: false,
        login_required: true,
        own_keypad: false,
        pin: PinState::Good,
        pin_lengths: (4, 8),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_directory_of_nss_is_what_it_is_told() {
        for (told, directory) in [
            (
                c"configDir='sql:/home/jane/my db' certPrefix='' flags=readOnly",
                Some("sql:/home/jane/my db"),
            ),
            (c"certPrefix='' configDir=\"/db\"", Some("/db")),
            (c"configDir=/db", None),
            (c"connector=http://127.0.0.1:12345", None),
        ] {
            assert_eq!(nss_directory(told).as_deref(), directory, "{told:?}");
        }
    }
}
