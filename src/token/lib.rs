//! The only crate that speaks PKCS#11: libraries, the tokens behind them, and what is on a token, which are its
//! certificates, its keys and its PIN.
//!
//! Whatever can be refused without a PIN is refused before the login. Nothing here knows environment variables, kubeconfigs
//! or terminals: a PIN comes from a [`config::pin::PinProvider`]. All calls go through `raw`; `login` alone sends the
//! user's PIN, by the rules in `pin_rules`; `officer` sends a YubiKey's management key.

mod certificate;
mod ckr;
pub mod exit_guard;
mod generation;
mod inventory;
mod key;
pub mod kind;
mod ledger;
mod login;
mod module;
mod object;
mod officer;
mod opening;
mod pin_rules;
mod raw;
mod sign;
pub mod watchdog;
mod writing;
mod yubikey;

pub use certificate::{Identity, WantedKey, read_certificates};
pub use generation::{GeneratedKey, KeyKind, KeyPurpose, NewKey, id_in_use};
pub use inventory::{Candidate, Standing, VisibleKey};
pub use key::{KeyReference, PrivateKey};
pub use login::AcceptedPin;
pub use module::{
    Module, OccupiedSlot, PinState, TokenState, blank_token, nss_directory, without_password,
};
pub use officer::Ask;
pub use raw::{Callers, SessionAccess};
pub use sign::{TOUCH_NOTICE, invalid_signature};
pub use yubikey::{PivSlot, SlotOptions, SlotPolicy};

use std::cell::OnceCell;
use std::sync::Arc;

use cryptoki::error::{Error as CryptokiError, RvError};
use cryptoki::mechanism::MechanismType;

use self::login::Login;
use self::raw::Session;
use messages::error::{Error, Exit};

const WRITABLE: &str = "name another token, or have it opened for writing (NSS: initArgs, --init-args, without flags=readOnly)";

/// A token with an open session. The session ends with [`Token::close`], or when the library is finalised (C_Finalize); its
/// calls fail after that.
pub struct Token {
    module: Arc<Module>,
    session: Session,
    /// The token's description when the session was opened.
    state: TokenState,
    login: Login,
    /// The mechanisms that the token offers; `None` if it doesn't say.
    mechanisms: OnceCell<Option<Vec<MechanismType>>>,
}

impl Token {
    /// Opens a session (C_OpenSession). A command that writes has to open a session that can write from the start: some
    /// libraries refuse it while a read-only one is open.
    pub fn with_session(
        module: &Arc<Module>,
        state: TokenState,
        access: SessionAccess,
    ) -> Result<Self, Error> {
        let TokenState { name, login_required, pin, own_keypad, .. } = &state;
        log::info!("token {name}");
        log::debug!("token: login required: {login_required}, PIN: {pin:?}, keypad: {own_keypad}");
        let session = module.functions.open_session(name.slot, access).map_err(|error| {
            if ckr::code(&error) != Some(RvError::TokenWriteProtected) {
                return ckr::not_opened("opening a session", &error);
            }
            let text = format!("token {name} can't be written to: {}", ckr::failure(&error));
            Error::new(Exit::Token, text).help(WRITABLE)
        })?;
        Ok(Self {
            module: Arc::clone(module),
            session,
            state,
            login: Login::default(),
            mechanisms: OnceCell::new(),
        })
    }

    /// Checks that the session and its login are still there: both end when the token is taken out.
    pub fn check_session(&self) -> Result<(), Error> {
        if self.session.is_valid(self.is_logged_in()) {
            Ok(())
        } else {
            Err(self.removed("its session has ended"))
        }
    }

    /// Label, serial and slot, for messages.
    pub fn name(&self) -> String {
        self.state.name.to_string()
    }

    /// The token's description, as it was when the session was opened.
    pub fn state(&self) -> &TokenState {
        &self.state
    }

    /// Whether the token has the mechanism (C_GetMechanismList). A token that doesn't list its mechanisms counts as having
    /// each.
    fn offers(&self, mechanism: MechanismType) -> bool {
        // Not C_GetMechanismInfo: SoftHSM's answers also for mechanisms that its configuration excludes.
        let read = || self.module.functions.mechanisms(self.state.name.slot).ok();
        let offered = self.mechanisms.get_or_init(read);
        offered.as_ref().is_none_or(|offered| offered.contains(&mechanism))
    }

    /// Whether a login has been made in this session.
    pub fn is_logged_in(&self) -> bool {
        self.login.is_made()
    }

    /// Whether the token may hide its private objects: it requires a login, and none was made.
    fn may_hide_objects(&self) -> bool {
        self.state.login_required && !self.is_logged_in()
    }

    /// The error for a call that has failed: that the token was taken out, or else what `otherwise` makes of the failure.
    fn failure(&self, error: &CryptokiError, otherwise: impl FnOnce(String) -> Error) -> Error {
        let failure = ckr::failure(error);
        if ckr::is_removed(error) { self.removed(&failure) } else { otherwise(failure) }
    }

    fn removed(&self, failure: &str) -> Error {
        Error::new(Exit::Token, format!("token {} is gone: {failure}", self.state.name))
            .help("put the token back and try again")
    }
}
