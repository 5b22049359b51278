//! Whose PIN a login wants: the user's, the security officer's, or a PIV card's management key.

#![forbid(unsafe_code)]

use std::fmt;

use serde::{Deserialize, Serialize};

use super::Pin;

/// The key that a new PIV card has (Yubico's, and others').
const DEFAULT_KEY: &str = "010203040506070801020304050607080102030405060708";
/// What a person may type instead of it. It would be a PIN, too, but no card comes with it.
const DEFAULT_WORD: &str = "default";
/// The hexadecimal digits of an AES-128 key, of a 3DES or AES-192 key, and of an AES-256 key.
const DIGITS: [usize; 3] = [32, 48, 64];
/// The lengths of a PIV card's PIN (SP 800-73-4, part 2, section 2.4.3).
const PIV_PIN: std::ops::RangeInclusive<usize> = 6..=8;

/// Whose PIN a login wants, by the name that people know it by.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub enum PinKind {
    /// CKU_USER.
    User,
    /// CKU_SO.
    SecurityOfficer,
    /// CKU_SO of ykcs11: a PIV card's management key, in hexadecimal digits.
    ManagementKey {
        /// The card's PIN will do, too: it may keep the key, protected by its PIN.
        or_pin: bool,
    },
}

impl PinKind {
    /// Whether this can be one, apart from the lengths that the token tells.
    pub(super) fn allows(self, pin: &Pin) -> bool {
        match self {
            Self::User | Self::SecurityOfficer => true,
            Self::ManagementKey { or_pin } => {
                let text = pin.expose();
                let is_key = DIGITS.contains(&text.len())
                    && text.bytes().all(|byte| byte.is_ascii_hexdigit());
                is_key || text == DEFAULT_WORD || or_pin && self.is_users(pin)
            }
        }
    }

    /// Whether what was given for this is a PIN of the user's, which the token counts as one.
    pub fn is_users(self, pin: &Pin) -> bool {
        match self {
            Self::User => true,
            Self::SecurityOfficer => false,
            Self::ManagementKey { .. } => {
                PIV_PIN.contains(&pin.length()) && pin.expose() != DEFAULT_WORD
            }
        }
    }

    /// What is sent for it, and whether that is the key that every new card has.
    pub fn sent_for(self, pin: Pin) -> (Pin, bool) {
        let is_key = matches!(self, Self::ManagementKey { .. });
        let is_default = is_key && [DEFAULT_KEY, DEFAULT_WORD].contains(&pin.expose());
        match Pin::new(DEFAULT_KEY) {
            Some(key) if is_default => (key, true),
            _ => (pin, false),
        }
    }

    /// What it looks like, for a prompt, where it isn't as long as the token says.
    pub fn shape(self, longest: usize) -> Option<String> {
        let Self::ManagementKey { or_pin } = self else {
            return None;
        };
        let digits = match longest {
            64.. => "32, 48 or 64",
            _ => "48",
        };
        let pin = match or_pin {
            true => ", the card's PIN if that protects it",
            false => "",
        };
        Some(format!(
            "{digits} hexadecimal digits{pin}, or the word {DEFAULT_WORD} if it was never changed"
        ))
    }
}

impl fmt::Display for PinKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::User => "PIN",
            Self::SecurityOfficer => "SO PIN",
            Self::ManagementKey { .. } => "management key",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: PinKind = PinKind::ManagementKey { or_pin: true };

    fn pin(text: &str) -> Pin {
        Pin::new(text).unwrap()
    }

    #[test]
    fn a_management_key_has_hexadecimal_digits() {
        let digits = |count: usize| pin(&"aF".repeat(count / 2));
        for (given, is_one) in [
            (digits(32), true),
            (digits(48), true),
            (digits(64), true),
            (digits(46), false),
            (pin(&"g".repeat(48)), false),
            (pin("default"), true),
            (pin("12345"), false),
            (pin("123456789"), false),
        ] {
            for or_pin in [false, true] {
                let kind = PinKind::ManagementKey { or_pin };
                assert_eq!(kind.allows(&given), is_one, "{}", given.expose());
                assert!(!kind.is_users(&given));
            }
        }
    }

    #[test]
    fn the_cards_pin_is_the_users_whatever_it_is_given_for() {
        for text in ["123456", "12345678"] {
            assert!(KEY.allows(&pin(text)) && KEY.is_users(&pin(text)));
            let only_key = PinKind::ManagementKey { or_pin: false };
            assert!(!only_key.allows(&pin(text)));
        }
    }

    #[test]
    fn the_default_key_is_recognised_by_its_digits_and_by_its_name() {
        for (given, is_default) in [(DEFAULT_KEY, true), (DEFAULT_WORD, true), ("123456", false)] {
            let (sent, told) = KEY.sent_for(pin(given));
            assert_eq!(told, is_default, "{given}");
            assert_eq!(sent.expose() == DEFAULT_KEY, is_default, "{given}");
        }
        let (sent, told) = PinKind::User.sent_for(pin(DEFAULT_WORD));
        assert!(sent.expose() == DEFAULT_WORD && !told);
    }
}
