//! A token by the properties that a configuration can name it by.

use std::fmt;

/// A token as people tell it from others.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TokenName {
    pub slot: u64,
    /// Without the padding.
    pub label: String,
    pub serial: String,
}

impl TokenName {
    /// Whether both are one token, in whichever slots it was seen.
    pub fn is_same_token(&self, other: &Self) -> bool {
        self.label == other.label && self.serial == other.serial
    }
}

impl fmt::Display for TokenName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.serial.as_str() {
            "" => write!(f, "\"{}\" (no serial, slotId {})", self.label, self.slot),
            serial => write!(f, "\"{}\" (serial {serial}, slotId {})", self.label, self.slot),
        }
    }
}
