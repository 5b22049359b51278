//! An open session, with the library, the slot and the token's description that belong to it.

#![forbid(unsafe_code)]

use cryptoki::error::{Error as CryptokiError, RvError};
use cryptoki::slot::Slot;

use super::ckr;
use super::error::{CallFailure, TokenError};
use super::module::Module;
use super::object::Objects;
use super::raw::{Session, SessionAccess};
use super::slot::{self, TokenState};
use crate::error::Error;
use crate::process::watchdog;

/// A session with a token. Unless it is closed, it ends with the library (C_Finalize).
pub(super) struct TokenSession<'m> {
    pub(super) module: &'m Module,
    pub(super) slot: Slot,
    pub(super) raw: Session<'m>,
    /// As it was when the session was opened.
    pub(super) state: TokenState,
}

impl<'m> TokenSession<'m> {
    /// Opens a session (C_OpenSession).
    pub(super) fn open(
        module: &'m Module,
        slot: Slot,
        state: TokenState,
        access: SessionAccess,
    ) -> Result<Self, TokenError> {
        let _step = watchdog::step("opening a session (C_OpenSession)");
        log::info!("token {}", state.name);
        log::debug!(
            "token: login required: {}, PIN state: {:?}, keypad at the reader: {}",
            state.login_required,
            state.pin,
            state.own_keypad
        );
        let raw = module.functions().open_session(slot, access);
        let raw = raw.map_err(|error| {
            let failure = ckr::failure(&error);
            match ckr::code(&error) {
                Some(RvError::TokenWriteProtected) => {
                    TokenError::ReadOnly { token: state.name.to_string(), failure }
                }
                _ => TokenError::Call { doing: "opening a session", failure },
            }
        })?;
        Ok(Self { module, slot, raw, state })
    }

    /// The token's state now (C_GetTokenInfo).
    pub(super) fn live_state(&self) -> Result<TokenState, CryptokiError> {
        slot::state(self.module.functions(), self.slot)
    }

    pub(super) fn objects(&self) -> Objects<'_> {
        Objects { session: &self.raw, token: &self.state.name }
    }

    /// The error of a call that failed: the token was taken out, or what `otherwise` says.
    pub(super) fn failure(
        &self,
        error: &CryptokiError,
        otherwise: impl FnOnce(CallFailure) -> Error,
    ) -> Error {
        ckr::removed_or(error, &self.state.name, otherwise)
    }
}
