//! Which token and which object are meant: the keys of the configuration that name them, all of which have to fit.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{ObjectId, misconfigured, quoted};
use messages::error::{Error, listed};

/// Which token is meant. What isn't given doesn't matter. An empty text fits a token that says nothing there; a URI can
/// name it.
#[derive(Clone, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct TokenSelector {
    pub slot: Option<u64>,
    /// The label of CK_TOKEN_INFO, without its padding.
    pub label: Option<String>,
    /// The serialNumber of CK_TOKEN_INFO, without its padding.
    pub serial: Option<String>,
    /// The manufacturerID of CK_TOKEN_INFO, which only a URI names.
    pub manufacturer: Option<String>,
    /// The model of CK_TOKEN_INFO, which only a URI names.
    pub model: Option<String>,
}

/// Which object of a token is meant. What isn't given doesn't matter. A label is never empty.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct ObjectSelector {
    /// The object's CKA_ID.
    pub id: Option<ObjectId>,
    /// The object's CKA_LABEL.
    pub label: Option<String>,
}

impl TokenSelector {
    /// Whether the selector says anything of the token.
    pub fn is_given(&self) -> bool {
        *self != Self::default()
    }
}

impl ObjectSelector {
    /// The selector of the object with this CKA_ID, if that isn't empty, and this label.
    pub fn of(id: &[u8], label: Option<&str>) -> Self {
        let id = (!id.is_empty()).then(|| ObjectId::from_bytes(id.to_owned()));
        Self { id, label: label.map(str::to_owned) }
    }

    /// Whether the selector says anything of the object.
    pub fn is_given(&self) -> bool {
        self.id.is_some() || self.label.is_some()
    }

    /// What to append to the help if nothing has these names: how the id may have been meant.
    pub fn misspelling(&self) -> String {
        let misspelling = self.id.as_ref().and_then(ObjectId::misspelling);
        misspelling.map(|text| format!("; {text}")).unwrap_or_default()
    }
}

impl fmt::Display for TokenSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [
            self.slot.map(|slot| format!("slotId {slot}")),
            text("tokenLabel", &self.label),
            text("tokenSerial", &self.serial),
            text("manufacturer", &self.manufacturer),
            text("model", &self.model),
        ];
        f.write_str(&listed(&parts.into_iter().flatten().collect::<Vec<_>>(), "and"))
    }
}

impl fmt::Display for ObjectSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let id = self.id.as_ref().map(ToString::to_string);
        let parts = [text("objectId", &id), text("objectLabel", &self.label)];
        f.write_str(&listed(&parts.into_iter().flatten().collect::<Vec<_>>(), "and"))
    }
}

fn text(key: &str, value: &Option<String>) -> Option<String> {
    Some(format!("{key} {}", quoted(value.as_ref()?)))
}

pub(super) fn slot(value: &str) -> Result<u64, Error> {
    decimal(value).ok_or_else(|| {
        misconfigured(
            format!("slotId {} is not a decimal number below 2^64", quoted(value)),
            "write slotId in decimal digits, such as 5",
        )
    })
}

/// Parses a number that is written with digits only.
pub(super) fn decimal(digits: &str) -> Option<u64> {
    digits.parse().ok().filter(|_| digits.bytes().all(|digit| digit.is_ascii_digit()))
}

/// The names by which people tell a token from others.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct TokenName {
    #[serde(rename = "slotId")]
    pub slot: u64,
    /// The label without its padding.
    #[serde(rename = "tokenLabel")]
    pub label: String,
    #[serde(rename = "tokenSerial")]
    pub serial: String,
}

impl TokenName {
    /// Whether both are the same token, in whichever slots it was seen.
    pub fn is_same_token(&self, other: &Self) -> bool {
        self.label == other.label && self.serial == other.serial
    }
}

impl fmt::Display for TokenName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { slot, label, serial } = self;
        match serial.as_str() {
            "" => write!(f, "\"{label}\" (no serial, slotId {slot})"),
            serial => write!(f, "\"{label}\" (serial {serial}, slotId {slot})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_decimal() {
        for (value, number) in [
            ("0", 0),
            ("010", 10),
            ("1234567890", 1_234_567_890),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(slot(value).unwrap(), number, "{value}");
        }
        for value in
            ["", "+5", "-1", " 5", "5 ", "0x5", "1f", "５", "1_000", "18446744073709551616"]
        {
            let what = slot(value).unwrap_err().to_string();
            let expected = "is not a decimal number below 2^64";
            assert_eq!(what, format!("configuration: slotId \"{value}\" {expected}"));
        }
    }

    #[test]
    fn selectors_read_as_a_phrase() {
        let token =
            TokenSelector { slot: Some(5), label: Some("a b".into()), ..TokenSelector::default() };
        assert_eq!(token.to_string(), "slotId 5 and tokenLabel \"a b\"");
        let object =
            ObjectSelector { id: Some(ObjectId::from_bytes(vec![1, 2])), label: Some("x".into()) };
        assert_eq!(object.to_string(), "objectId \"0x0102\" and objectLabel \"x\"");
    }
}
