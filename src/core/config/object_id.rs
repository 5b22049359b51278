//! `objectId`: a CKA_ID in the spellings people and tools use.
//!
//! Decimal is one byte, as in the reference implementation; hexadecimal says so, by `0x` or by
//! colons. Digits that other tools would print as hexadecimal (`0102`) are never guessed at: a
//! guess that finds another object signs with the wrong key.

use std::fmt;

use super::{after_0x, misconfigured, quoted};
use crate::error::Error;
use crate::printable::{excerpt, hex};

/// The bytes of a CKA_ID.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ObjectId(Vec<u8>);

impl ObjectId {
    /// Parses decimal 0 to 255, or hexadecimal of any length: `0x0102`, `01:02`.
    pub fn parse(value: &str) -> Result<Self, Error> {
        let wrong = |fault: &str, help: &str| {
            Err(misconfigured(
                format!("objectId {} {fault}", quoted(value)),
                format!("write objectId {help}"),
            ))
        };
        let prefixed = after_0x(value);
        let groups: Vec<&str> = match prefixed {
            Some(digits) => vec![digits],
            None => value.split(':').collect(),
        };
        let is_hexadecimal =
            |it: &&str| !it.is_empty() && it.bytes().all(|it| it.is_ascii_hexdigit());
        if !groups.iter().all(is_hexadecimal) {
            return wrong(
                "is neither decimal nor hexadecimal",
                "as a decimal number from 0 to 255 for one byte, or in hexadecimal as 0x0102 or 01:02",
            );
        }
        let is_odd = groups.iter().any(|group| group.len() % 2 == 1);
        let padded = |group: &&str| format!("{}{group}", ["", "0"][group.len() % 2]);
        let digits: String = groups.iter().map(padded).collect();
        let spelt = format!("0x{}", excerpt(&digits));
        if prefixed.is_some() || groups.len() > 1 {
            return match is_odd {
                false => Ok(Self(bytes(&digits))),
                true => wrong(
                    "has an odd number of digits",
                    &format!("with two digits for each byte: {spelt}"),
                ),
            };
        }
        match value.parse::<u8>() {
            // 00 to 09 are the same byte either way.
            Ok(byte) if !value.starts_with('0') || value.len() <= 2 => Ok(Self(vec![byte])),
            Ok(byte) => wrong(
                "can be read as decimal and as hexadecimal",
                &format!("as {byte} if it is decimal, or {spelt} if it is hexadecimal"),
            ),
            Err(_) => wrong(
                "is no single byte, or hexadecimal without saying so",
                &format!(
                    "as {spelt} for these hexadecimal digits; decimal is for one byte, 0 to 255"
                ),
            ),
        }
    }

    /// The bytes as a token has them.
    pub fn from_bytes(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// The form that `objectId` takes: `2` for one byte, `0x0102` for more.
impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let [byte] = self.0.as_slice() {
            return write!(f, "{byte}");
        }
        write!(f, "0x{}", hex(&self.0))
    }
}

/// The bytes of pairs of hexadecimal digits.
fn bytes(digits: &str) -> Vec<u8> {
    let value = |digit: &u8| char::from(*digit).to_digit(16).unwrap_or_default();
    let pair = |pair: &[u8]| pair.iter().fold(0, |byte, digit| byte << 4 | value(digit) as u8);
    digits.as_bytes().chunks(2).map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_spelling_gives_its_bytes() {
        for (value, bytes) in [
            ("0", &[0][..]),
            ("2", &[2]),
            ("10", &[10]),
            ("255", &[255]),
            ("00", &[0]),
            ("01", &[1]),
            ("09", &[9]),
            ("0x01", &[1]),
            ("0X0102", &[1, 2]),
            ("0xAbCd", &[0xab, 0xcd]),
            ("01:02", &[1, 2]),
            ("a0:B1:c2", &[0xa0, 0xb1, 0xc2]),
            ("0102:0304", &[1, 2, 3, 4]),
        ] {
            assert_eq!(ObjectId::parse(value).unwrap().as_bytes(), bytes, "{value}");
        }
    }

    #[test]
    fn the_remedy_is_the_text_to_write() {
        for (value, fault, text) in [
            (
                "010",
                "can be read as decimal and as hexadecimal",
                "as 10 if it is decimal, or 0x0010",
            ),
            ("000", "can be read as decimal and as hexadecimal", "as 0 if"),
            (
                "0102",
                "can be read as decimal and as hexadecimal",
                "as 102 if it is decimal, or 0x0102",
            ),
            ("0300", "is no single byte, or hexadecimal without saying so", "as 0x0300 for"),
            ("256", "is no single byte, or hexadecimal without saying so", "as 0x0256 for"),
            ("ab", "is no single byte, or hexadecimal without saying so", "0xab for"),
            ("a1b2c3", "is no single byte, or hexadecimal without saying so", "0xa1b2c3 for"),
            ("0x1", "has an odd number of digits", "0x01"),
            ("0x102", "has an odd number of digits", "0x0102"),
            ("1:2", "has an odd number of digits", "0x0102"),
            ("1:02", "has an odd number of digits", "0x0102"),
        ] {
            let error = ObjectId::parse(value).unwrap_err();
            assert_eq!(error.to_string(), format!("configuration: objectId \"{value}\" {fault}"));
            assert!(error.remedy().text.contains(text), "{value}: {}", error.remedy().text);
        }
    }

    #[test]
    fn other_texts_are_no_ids() {
        for value in [
            "", "0x", "0xg1", "0x01:02", ":", "01:", ":01", "01::02", "x", "+5", "-1", " 2", "２",
            "9a ",
        ] {
            let error = ObjectId::parse(value).unwrap_err();
            assert!(
                error.remedy().text.contains("0x0102 or 01:02"),
                "{value}: {}",
                error.remedy().text
            );
        }
    }

    #[test]
    fn remedies_stay_readable() {
        let error = ObjectId::parse(&"a".repeat(10_001)).unwrap_err();
        assert!(error.to_string().len() < 200 && error.remedy().text.len() < 200);
    }
}
