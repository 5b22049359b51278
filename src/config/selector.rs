//! Which token and which object: the keys that name them, all of which have to agree.

use std::fmt;

use super::error::Problem;
use super::{ObjectId, Reader, quoted};
use crate::printable::printable;

/// What isn't given doesn't matter; no text is empty.
#[derive(Clone, Default)]
pub struct TokenSelector {
    /// CK_SLOT_ID.
    pub slot: Option<u64>,
    /// The label of CK_TOKEN_INFO, without its padding.
    pub label: Option<String>,
    /// The serialNumber of CK_TOKEN_INFO, without its padding.
    pub serial: Option<String>,
    /// The manufacturerID of CK_TOKEN_INFO, which only a URI names.
    pub manufacturer: Option<String>,
    /// The model of CK_TOKEN_INFO, likewise.
    pub model: Option<String>,
}

/// What isn't given doesn't matter; the label is not empty.
#[derive(Clone, Default)]
pub struct ObjectSelector {
    /// CKA_ID.
    pub id: Option<ObjectId>,
    /// CKA_LABEL.
    pub label: Option<String>,
}

impl TokenSelector {
    /// One that names a token.
    pub(super) fn read(reader: &mut Reader<'_>) -> Self {
        let (selector, is_given) = Self::read_any(reader);
        if !is_given {
            reader.lacks(Problem::new(
                "no token is named: slotId, tokenLabel and tokenSerial are all missing",
                "set tokenLabel, tokenSerial or slotId; pkcs11-external-signer list shows them",
            ));
        }
        selector
    }

    /// Whether it names anything.
    pub fn is_given(&self) -> bool {
        let Self {
            slot,
            label,
            serial,
            manufacturer,
            model,
        } = self;
        let texts = [label, serial, manufacturer, model];
        slot.is_some() || texts.into_iter().any(Option::is_some)
    }

    /// And whether any of it was given, be it with a problem.
    pub(super) fn read_any(reader: &mut Reader<'_>) -> (Self, bool) {
        let slot = reader.read("slotId", slot);
        let label = reader.read("tokenLabel", text);
        let serial = reader.read("tokenSerial", text);
        let (manufacturer, model) = (reader.manufacturer.take(), reader.model.take());
        let is_given = !(slot.is_absent() && label.is_absent() && serial.is_absent())
            || manufacturer.is_some()
            || model.is_some();
        let selector = Self {
            slot: slot.value(),
            label: label.value(),
            serial: serial.value(),
            manufacturer,
            model,
        };
        (selector, is_given)
    }
}

impl ObjectSelector {
    /// One that names an object.
    pub(super) fn read(reader: &mut Reader<'_>) -> Self {
        let (selector, is_given) = Self::read_any(reader);
        if !is_given {
            reader.lacks(Problem::new(
                "no object is named: objectId and objectLabel are both missing",
                "set objectId or objectLabel; pkcs11-external-signer list shows them",
            ));
        }
        selector
    }

    /// Whether it names anything.
    pub fn is_given(&self) -> bool {
        self.id.is_some() || self.label.is_some()
    }

    /// And whether any of it was given, be it with a problem.
    pub(super) fn read_any(reader: &mut Reader<'_>) -> (Self, bool) {
        let id = reader.read("objectId", ObjectId::parse);
        let label = reader.read("objectLabel", text);
        let is_given = !(id.is_absent() && label.is_absent());
        let selector = Self {
            id: id.value(),
            label: label.value(),
        };
        (selector, is_given)
    }
}

impl fmt::Display for TokenSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        enumerate(
            f,
            [
                self.slot.map(|slot| format!("slotId {slot}")),
                self.label
                    .as_ref()
                    .map(|label| format!("tokenLabel \"{}\"", printable(label))),
                self.serial
                    .as_ref()
                    .map(|serial| format!("tokenSerial \"{}\"", printable(serial))),
                self.manufacturer
                    .as_ref()
                    .map(|maker| format!("manufacturer \"{}\"", printable(maker))),
                self.model
                    .as_ref()
                    .map(|model| format!("model \"{}\"", printable(model))),
            ],
        )
    }
}

impl fmt::Display for ObjectSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        enumerate(
            f,
            [
                self.id.as_ref().map(|id| format!("objectId \"{id}\"")),
                self.label
                    .as_ref()
                    .map(|label| format!("objectLabel \"{}\"", printable(label))),
            ],
        )
    }
}

/// Those that are there: `a`, `a and b`, `a, b and c`.
fn enumerate<const N: usize>(
    f: &mut fmt::Formatter<'_>,
    parts: [Option<String>; N],
) -> fmt::Result {
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    match parts.split_last() {
        None => Ok(()),
        Some((only, [])) => f.write_str(only),
        Some((last, others)) => write!(f, "{} and {last}", others.join(", ")),
    }
}

fn text(value: &str) -> Result<String, Problem> {
    Ok(value.to_owned())
}

pub(super) fn slot(value: &str) -> Result<u64, Problem> {
    let (digits, radix) = match value
        .strip_prefix("0x")
        .or_else(|| value.strip_prefix("0X"))
    {
        Some(digits) => (digits, 16),
        None => (value, 10),
    };
    let remedy = "write slotId as a decimal number (5) or as 0x and hexadecimal digits (0x5)";
    if digits.is_empty() || !digits.chars().all(|digit| digit.is_digit(radix)) {
        return Err(Problem::new(
            format!("slotId {} is not a number", quoted(value)),
            remedy,
        ));
    }
    u64::from_str_radix(digits, radix).map_err(|_| {
        Problem::new(
            format!("slotId {} is too large", quoted(value)),
            "write a slotId below 0x10000000000000000; the token's tool shows it",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_decimal_or_hexadecimal() {
        for (value, number) in [
            ("0", 0),
            ("5", 5),
            ("010", 10),
            ("0x5", 5),
            ("0X1F", 31),
            ("1234567890", 1_234_567_890),
            ("18446744073709551615", u64::MAX),
            ("0xffffffffffffffff", u64::MAX),
            ("0x00000000000000000001", 1),
        ] {
            assert_eq!(slot(value).unwrap(), number, "{value}");
        }
    }

    #[test]
    fn other_texts_are_no_slots() {
        for value in [
            "+5", "-1", " 5", "5 ", "0x", "0x+5", "x5", "1f", "５", "1_000", "0b1", "0x0x5",
        ] {
            let what = slot(value).unwrap_err().what;
            assert_eq!(what, format!("slotId \"{value}\" is not a number"));
        }
        for value in ["18446744073709551616", "0x10000000000000000"] {
            let what = slot(value).unwrap_err().what;
            assert_eq!(what, format!("slotId \"{value}\" is too large"));
        }
    }

    #[test]
    fn selectors_read_as_a_phrase() {
        let token = TokenSelector {
            slot: Some(5),
            label: Some("a\x1bb".into()),
            ..TokenSelector::default()
        };
        assert_eq!(token.to_string(), "slotId 5 and tokenLabel \"a\\u{1b}b\"");
        let object = ObjectSelector {
            id: Some(ObjectId::from_bytes(vec![1, 2])),
            label: Some("x".into()),
        };
        assert_eq!(
            object.to_string(),
            "objectId \"0x0102\" and objectLabel \"x\""
        );
    }
}
