//! The PINs that were tried in this process since the last one that the token accepted, as keyed hashes.
//!
//! In a run each connection that needs the token asks for a PIN of its own. The three tries are for all of them,
//! whichever of a token's keys and whichever library they use. A program that asks for PINs may be a script, whose
//! answer is always the same: it would spend all three. So the process has one list.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::{LazyLock, Mutex, MutexGuard};

use base::pin::Pin;
use base::process::locked;
use config::TokenName;

/// After so many logins without a clear answer the same PIN is not taken from a program again.
pub(super) const UNCLEAR_LOGINS: usize = 2;

pub(super) static TRIED_PINS: LazyLock<TriedPins> = LazyLock::new(TriedPins::default);

#[derive(Default)]
pub(super) struct TriedPins {
    tries: Mutex<Vec<Try>>,
    /// Its key is this process's, and random.
    hash: RandomState,
}

struct Try {
    token: TokenName,
    pin: u64,
    /// Otherwise the token may not have looked at it.
    is_refused: bool,
}

impl TriedPins {
    /// The token hasn't accepted this PIN.
    pub(super) fn add(&self, token: &TokenName, pin: &Pin, is_refused: bool) {
        let pin = self.hash.hash_one(pin.expose());
        self.all().push(Try { token: token.clone(), pin, is_refused });
    }

    /// The token has accepted a PIN.
    pub(super) fn forget(&self, token: &TokenName) {
        self.all().retain(|tried| !tried.token.is_same_token(token));
    }

    /// How many PINs the token was sent since it accepted one.
    pub(super) fn count(&self, token: &TokenName) -> usize {
        self.all().iter().filter(|tried| tried.token.is_same_token(token)).count()
    }

    /// Whether a program gives again what the token has refused, or may have.
    pub(super) fn is_repeated(&self, token: &TokenName, pin: &Pin) -> bool {
        let pin = self.hash.hash_one(pin.expose());
        let all = self.all();
        let same = all.iter().filter(|tried| tried.token.is_same_token(token) && tried.pin == pin);
        let (refused, unclear): (Vec<_>, Vec<_>) = same.partition(|tried| tried.is_refused);
        !refused.is_empty() || unclear.len() >= UNCLEAR_LOGINS
    }

    fn all(&self) -> MutexGuard<'_, Vec<Try>> {
        locked(&self.tries)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(serial: &str, slot: u64) -> TokenName {
        TokenName { slot, label: "token".to_owned(), serial: serial.to_owned() }
    }

    fn pin(text: &str) -> Pin {
        Pin::new(text).unwrap()
    }

    #[test]
    fn all_that_a_token_refused_stays_refused_until_that_token_accepts_one() {
        let tried = TriedPins::default();
        let (one, other) = (token("1", 1), token("2", 2));
        tried.add(&one, &pin("1111"), true);
        tried.add(&one, &pin("2222"), true);
        tried.add(&other, &pin("3333"), true);
        tried.forget(&other);
        // It was put into another reader.
        let moved = token("1", 7);
        for refused in ["1111", "2222"] {
            assert!(tried.is_repeated(&moved, &pin(refused)));
            assert!(!tried.is_repeated(&other, &pin(refused)));
        }
        assert!(!tried.is_repeated(&one, &pin("3333")));
        assert_eq!([&moved, &other].map(|token| tried.count(token)), [2, 0]);
        tried.forget(&moved);
        assert!(!tried.is_repeated(&one, &pin("1111")));
    }

    #[test]
    fn one_doubt_is_no_refusal_and_two_are() {
        let tried = TriedPins::default();
        let token = token("1", 1);
        tried.add(&token, &pin("1111"), false);
        tried.add(&token, &pin("2222"), false);
        assert!(!tried.is_repeated(&token, &pin("1111")));
        tried.add(&token, &pin("1111"), false);
        assert!(tried.is_repeated(&token, &pin("1111")));
        assert_eq!(tried.count(&token), 3);
    }
}
