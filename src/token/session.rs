//! A session whose C_Login isn't cut short.

#![forbid(unsafe_code)]

use std::ops::Deref;

use cryptoki::error::Error as CryptokiError;
use cryptoki::session::{Session as CryptokiSession, UserType};
use cryptoki::types::AuthPin;

use crate::process::signals::Grace;

/// An open session (C_OpenSession).
pub(super) struct Session(CryptokiSession);

impl Session {
    /// C_Login. SoftHSM empties the token's file at each login and then writes it anew: whoever is
    /// killed in between has lost the token. Ctrl-C and its like wait for that, but not for a
    /// person at the reader's keypad.
    pub(super) fn login(&self, user: UserType, pin: Option<&AuthPin>) -> Result<(), CryptokiError> {
        let _grace = pin.map(|_| Grace::begin());
        self.0.login(user, pin)
    }
}

impl From<CryptokiSession> for Session {
    fn from(session: CryptokiSession) -> Self {
        Self(session)
    }
}

impl Deref for Session {
    type Target = CryptokiSession;

    fn deref(&self) -> &CryptokiSession {
        &self.0
    }
}
