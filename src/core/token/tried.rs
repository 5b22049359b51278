//! What people and their programs had sent to the tokens in this process, until one was accepted.
//!
//! In a run each connection that needs the token asks for a PIN of its own. What is counted, and what
//! is not sent again, must hold for all of them, whichever of a token's keys and whichever library they use. So
//! the process has one list. It holds no PIN, only keyed hashes that tell one from another.

#![forbid(unsafe_code)]

use std::hash::{BuildHasher as _, RandomState};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use super::pin_rules::UNCLEAR_LOGINS;
use super::slot::PinHolder;
use crate::config::TokenName;
use crate::pin::{Pin, PinError, PinKind, PinOrigin};

/// Those of this process.
pub(super) static TRIED: LazyLock<Tried> = LazyLock::new(Tried::new);

pub(super) struct Tried {
    tries: Mutex<Vec<Try>>,
    /// Its key is this process's, and random.
    hash: RandomState,
}

struct Try {
    token: TokenName,
    holder: PinHolder,
    pin: u64,
    /// Otherwise the token may not have looked at it.
    is_refused: bool,
}

impl Try {
    fn is_of(&self, token: &TokenName, holder: PinHolder) -> bool {
        self.token.is_same_token(token) && self.holder == holder
    }
}

impl Tried {
    fn new() -> Self {
        Self { tries: Mutex::default(), hash: RandomState::new() }
    }

    /// The token hasn't accepted this PIN. Unless it was refused, that is because the login came to
    /// no clear end.
    pub(super) fn add(&self, token: &TokenName, holder: PinHolder, pin: &Pin, is_refused: bool) {
        let pin = self.hash.hash_one(pin.expose());
        self.all().push(Try { token: token.clone(), holder, pin, is_refused });
    }

    /// The token has accepted a PIN.
    pub(super) fn forget(&self, token: &TokenName, holder: PinHolder) {
        self.all().retain(|tried| !tried.is_of(token, holder));
    }

    /// To be called when no PIN is sent any more, before libraries end. The allocator wipes what is
    /// freed.
    pub(super) fn clear(&self) {
        *self.all() = Vec::new();
    }

    /// How many PINs the token was sent since it accepted one.
    pub(super) fn count(&self, token: &TokenName, holder: PinHolder) -> usize {
        let all = self.all();
        all.iter().filter(|tried| tried.is_of(token, holder)).count()
    }

    /// Whether a program's answer may be sent: one that repeats itself is no person.
    pub(super) fn check(
        &self,
        token: &TokenName,
        (holder, kind): (PinHolder, PinKind),
        pin: &Pin,
        origin: PinOrigin,
    ) -> Result<(), PinError> {
        let pin = self.hash.hash_one(pin.expose());
        let all = self.all();
        let same = |tried: &&Try| tried.is_of(token, holder) && tried.pin == pin;
        let same: Vec<_> = all.iter().filter(same).collect();
        let token = token.to_string();
        if same.iter().any(|tried| tried.is_refused) {
            Err(PinError::Repeated { kind, token, origin })
        } else if same.len() >= UNCLEAR_LOGINS {
            Err(PinError::RefusedBefore { token, origin })
        } else {
            Ok(())
        }
    }

    fn all(&self) -> MutexGuard<'_, Vec<Try>> {
        self.tries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use PinHolder::{SecurityOfficer, User};

    fn token(serial: &str, slot: u64) -> TokenName {
        TokenName { slot, label: "token".to_owned(), serial: serial.to_owned() }
    }

    fn pin(text: &str) -> Pin {
        Pin::new(text).unwrap()
    }

    fn check(tried: &Tried, token: &TokenName, text: &str) -> Result<(), PinError> {
        let origin = PinOrigin::Askpass(PathBuf::from("ask"));
        tried.check(token, (User, PinKind::User), &pin(text), origin)
    }

    #[test]
    fn all_that_a_token_refused_stays_refused_until_that_token_accepts_one() {
        let tried = Tried::new();
        let (one, other) = (token("1", 1), token("2", 2));
        tried.add(&one, User, &pin("1111"), true);
        tried.add(&one, User, &pin("2222"), true);
        tried.add(&other, User, &pin("3333"), true);
        tried.forget(&other, User);
        // It was put into another reader.
        let moved = token("1", 7);
        for refused in ["1111", "2222"] {
            let error = check(&tried, &moved, refused).unwrap_err();
            assert!(matches!(error, PinError::Repeated { .. }), "{error}");
            assert!(check(&tried, &other, refused).is_ok());
        }
        assert!(check(&tried, &one, "3333").is_ok());
        assert_eq!([&moved, &other].map(|token| tried.count(token, User)), [2, 0]);
        tried.forget(&moved, User);
        assert!(check(&tried, &one, "1111").is_ok());
    }

    #[test]
    fn one_doubt_is_no_refusal_and_two_are() {
        let tried = Tried::new();
        let token = token("1", 1);
        tried.add(&token, User, &pin("1111"), false);
        tried.add(&token, User, &pin("2222"), false);
        assert!(check(&tried, &token, "1111").is_ok());
        tried.add(&token, User, &pin("1111"), false);
        let error = check(&tried, &token, "1111").unwrap_err();
        assert!(matches!(error, PinError::RefusedBefore { .. }), "{error}");
        assert_eq!(tried.count(&token, User), 3);
    }

    #[test]
    fn the_security_officer_has_tries_of_their_own() {
        let tried = Tried::new();
        let token = token("1", 1);
        tried.add(&token, User, &pin("1111"), true);
        tried.add(&token, SecurityOfficer, &pin("2222"), true);
        tried.add(&token, SecurityOfficer, &pin("3333"), true);
        assert_eq!(tried.count(&token, SecurityOfficer), 2);
        assert!(check(&tried, &token, "2222").is_ok());
        tried.forget(&token, SecurityOfficer);
        assert_eq!(tried.count(&token, User), 1);
    }
}
