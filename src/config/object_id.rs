//! `objectId`: a CKA_ID in the spellings people and tools use.
//!
//! Decimal is one byte, as in the reference implementation; hexadecimal says so, by `0x` or by
//! colons. Digits that other tools would print as hexadecimal (`0102`) are never guessed at: a
//! guess that finds another object signs with the wrong key.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{misconfigured, quoted};
use messages::error::Error;
use messages::printable::hex;

/// A CKA_ID, which can have any bytes.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct ObjectId(Vec<u8>);

impl ObjectId {
    /// Parses decimal 0 to 255, or hexadecimal of any length: `0x0102`, `01:02`.
    pub fn parse(value: &str) -> Result<Self, Error> {
        let prefixed = value.strip_prefix("0x").or_else(|| value.strip_prefix("0X"));
        let groups: Vec<&str> = match prefixed {
            Some(digits) => vec![digits],
            None => value.split(':').collect(),
        };
        let is_hexadecimal = |group: &&str| {
            !group.is_empty()
                && group.len().is_multiple_of(2)
                && group.bytes().all(|digit| digit.is_ascii_hexdigit())
        };
        if (prefixed.is_some() || groups.len() > 1) && groups.iter().all(is_hexadecimal) {
            return Ok(Self(bytes(&groups.concat())));
        }
        // The numbers 00 to 09 mean the same byte in both notations.
        let is_decimal = value.len() <= 2 || !value.starts_with('0');
        let digits = value.bytes().all(|digit| digit.is_ascii_digit());
        let byte = value.parse().ok().filter(|_| is_decimal && digits);
        byte.map(|byte| Self(vec![byte])).ok_or_else(|| {
            misconfigured(
                format!("objectId {} is neither a byte in decimal nor hexadecimal with its mark", quoted(value)),
                "write objectId as a decimal number from 0 to 255, or in hexadecimal, as 0x0102 or 01:02",
            )
        })
    }

    /// What to say if nothing has this id, and it looks as if a URI had it without a `%` before each byte: `id=2` is
    /// the character 2, and `id=%0102` the bytes 01 30 32.
    pub fn misspelling(&self) -> Option<String> {
        let digits = self.0.iter().rev().take_while(|byte| byte.is_ascii_hexdigit()).count();
        let (escaped, text) = self.0.split_at(self.0.len() - digits);
        let text = str::from_utf8(text).ok().filter(|text| !text.is_empty())?;
        let digits = match text.len() % 2 {
            0 => text.to_owned(),
            // Only the first byte can lack a half.
            _ if escaped.is_empty() => format!("0{text}"),
            _ => return None,
        };
        let in_uri =
            |bytes: &[u8]| bytes.iter().map(|byte| format!("%{byte:02x}")).collect::<String>();
        let escaped = in_uri(escaped);
        let meant = in_uri(&bytes(&digits));
        Some(format!("if a URI has id={escaped}{text}, write id={escaped}{meant}"))
    }

    /// The id of an object on a token.
    pub fn from_bytes(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    /// The value of CKA_ID.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Shows the id in the form that `objectId` takes: `2` for one byte, `0x0102` for more.
impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let [byte] = self.0.as_slice() {
            return write!(f, "{byte}");
        }
        write!(f, "0x{}", hex(&self.0))
    }
}

/// The bytes that an even number of hexadecimal digits stand for.
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
    fn other_texts_are_no_ids_and_nothing_is_guessed() {
        for value in [
            "010",
            "000",
            "0102",
            "0300",
            "256",
            "ab",
            "a1b2c3",
            "0x1",
            "0x102",
            "1:2",
            "1:02",
            "",
            "0x",
            "0xg1",
            "0x01:02",
            ":",
            "01:",
            ":01",
            "01::02",
            "x",
            "+5",
            "-1",
            " 2",
            "２",
            "9a ",
            &"a".repeat(10_001),
        ] {
            let error = ObjectId::parse(value).unwrap_err();
            assert!(error.to_string().len() < 200, "{error}");
            assert!(error.remedy().text.contains("0x0102 or 01:02"), "{value}");
        }
    }

    #[test]
    fn an_id_that_a_uri_has_without_percent_signs_is_told_as_it_was_meant() {
        for (bytes, written, meant) in [
            (&b"2"[..], "2", "%02"),
            (b"01", "01", "%01"),
            (b"\x0102", "%0102", "%01%02"),
            (b"102", "102", "%01%02"),
            (b"\xffa0B1", "%ffa0B1", "%ff%a0%b1"),
        ] {
            let told = ObjectId::from_bytes(bytes.to_vec()).misspelling();
            assert_eq!(told.unwrap(), format!("if a URI has id={written}, write id={meant}"));
        }
        for bytes in [&b""[..], b"\x01", b"\x012", b"jane", b"0x"] {
            assert_eq!(ObjectId::from_bytes(bytes.to_vec()).misspelling(), None, "{bytes:?}");
        }
    }
}
