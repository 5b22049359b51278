//! `objectId`: a CKA_ID in the spellings people and tools use.
//!
//! Decimal is one byte, as in the reference implementation; hexadecimal says so, by `0x` or by
//! colons. Digits that other tools would print as hexadecimal (`0102`) are never guessed at: a
//! guess that finds another object signs with the wrong key.

use std::fmt;

use super::error::Problem;
use super::quoted;

/// The bytes of a CKA_ID.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ObjectId(Vec<u8>);

impl ObjectId {
    /// From decimal 0 to 255, or hexadecimal of any length: `0x0102`, `01:02`.
    pub fn parse(value: &str) -> Result<Self, Problem> {
        if let Some(digits) = value
            .strip_prefix("0x")
            .or_else(|| value.strip_prefix("0X"))
        {
            return prefixed(value, digits);
        }
        if value.contains(':') {
            return separated(value);
        }
        unmarked(value)
    }

    /// As a token has it.
    pub fn from_bytes(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// In the form `objectId` takes: `2` for one byte, `0x0102` for more.
impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let [byte] = self.0.as_slice() {
            return write!(f, "{byte}");
        }
        f.write_str("0x")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

const FORMS: &str = "write objectId as a decimal number from 0 to 255 for one byte, or in \
                     hexadecimal as 0x0102 or 01:02";

fn prefixed(value: &str, digits: &str) -> Result<ObjectId, Problem> {
    if digits.is_empty() || !is_hexadecimal(digits) {
        return Err(problem(value, "is not hexadecimal after its 0x", FORMS));
    }
    if digits.len() % 2 == 1 {
        let remedy = format!(
            "write objectId with two digits for each byte: 0x{}",
            even(digits)
        );
        return Err(problem(
            value,
            "has an odd number of digits",
            readable(remedy),
        ));
    }
    Ok(ObjectId(bytes(digits)))
}

fn separated(value: &str) -> Result<ObjectId, Problem> {
    let mut groups = value.split(':');
    if groups
        .clone()
        .any(|group| group.is_empty() || !is_hexadecimal(group))
    {
        return Err(problem(
            value,
            "is not hexadecimal between its colons",
            FORMS,
        ));
    }
    if groups.any(|group| group.len() % 2 == 1) {
        let corrected: Vec<String> = value.split(':').map(even).collect();
        let remedy = format!(
            "write objectId with two digits for each byte: {}",
            corrected.join(":")
        );
        return Err(problem(
            value,
            "has an odd number of digits",
            readable(remedy),
        ));
    }
    Ok(ObjectId(value.split(':').flat_map(bytes).collect()))
}

/// Neither `0x` nor colons.
fn unmarked(value: &str) -> Result<ObjectId, Problem> {
    let decimal = value.bytes().all(|digit| digit.is_ascii_digit());
    let number = if decimal {
        value.parse::<u8>().ok()
    } else {
        None
    };
    match number {
        Some(byte) if !value.starts_with('0') || value.len() == 1 => Ok(ObjectId(vec![byte])),
        // 00 to 09 are the same byte either way.
        Some(byte) if value.len() == 2 => Ok(ObjectId(vec![byte])),
        Some(byte) => Err(problem(
            value,
            "can be read as decimal and as hexadecimal",
            readable(format!(
                "write objectId as {byte} if it is decimal, or {} if it is hexadecimal",
                marked(value)
            )),
        )),
        None if value.is_empty() || !is_hexadecimal(value) => {
            Err(problem(value, "is neither decimal nor hexadecimal", FORMS))
        }
        None => Err(problem(
            value,
            if decimal {
                "is no single byte"
            } else {
                "is hexadecimal without saying so"
            },
            readable(format!(
                "write {} for these hexadecimal digits as objectId; decimal is for one byte, 0 to 255",
                marked(value)
            )),
        )),
    }
}

/// The digits as hexadecimal that can't be mistaken: `0x0102 or 01:02`.
fn marked(digits: &str) -> String {
    let digits = even(digits);
    if digits.len() == 2 {
        return format!("0x{digits}");
    }
    let mut separated = String::with_capacity(digits.len() * 3 / 2);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && index % 2 == 0 {
            separated.push(':');
        }
        separated.push(digit);
    }
    format!("0x{digits} or {separated}")
}

/// With a zero in front where a digit is missing.
fn even(digits: &str) -> String {
    if digits.len() % 2 == 1 {
        format!("0{digits}")
    } else {
        digits.to_owned()
    }
}

/// A corrected text is of use only while it can be read.
fn readable(remedy: String) -> String {
    const READABLE: usize = 200;
    if remedy.len() > READABLE {
        FORMS.to_owned()
    } else {
        remedy
    }
}

fn is_hexadecimal(text: &str) -> bool {
    text.bytes().all(|digit| digit.is_ascii_hexdigit())
}

/// Of hexadecimal digits, in pairs.
fn bytes(digits: &str) -> Vec<u8> {
    let value = |digit: &u8| char::from(*digit).to_digit(16).unwrap_or_default();
    let pair = |pair: &[u8]| {
        pair.iter()
            .fold(0, |byte, digit| byte << 4 | value(digit) as u8)
    };
    digits.as_bytes().chunks(2).map(pair).collect()
}

fn problem(value: &str, fault: &str, remedy: impl Into<String>) -> Problem {
    Problem::new(format!("objectId {} {fault}", quoted(value)), remedy)
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
                "as 10 if it is decimal, or 0x0010 or 00:10",
            ),
            (
                "000",
                "can be read as decimal and as hexadecimal",
                "as 0 if",
            ),
            (
                "0102",
                "can be read as decimal and as hexadecimal",
                "as 102 if it is decimal, or 0x0102 or 01:02",
            ),
            ("0300", "is no single byte", "0x0300 or 03:00"),
            ("256", "is no single byte", "0x0256 or 02:56"),
            ("ab", "is hexadecimal without saying so", "write 0xab for"),
            (
                "a1b2c3",
                "is hexadecimal without saying so",
                "0xa1b2c3 or a1:b2:c3",
            ),
            ("0x1", "has an odd number of digits", "0x01"),
            ("0x102", "has an odd number of digits", "0x0102"),
            ("1:2", "has an odd number of digits", "01:02"),
            ("1:02", "has an odd number of digits", "01:02"),
        ] {
            let problem = ObjectId::parse(value).unwrap_err();
            assert_eq!(problem.what, format!("objectId \"{value}\" {fault}"));
            assert!(problem.remedy.contains(text), "{value}: {}", problem.remedy);
        }
    }

    #[test]
    fn other_texts_are_no_ids() {
        for value in [
            "", "0x", "0xg1", "0x01:02", ":", "01:", ":01", "01::02", "x", "+5", "-1", " 2", "２",
            "9a ",
        ] {
            let problem = ObjectId::parse(value).unwrap_err();
            assert!(
                problem.remedy.contains("0x0102 or 01:02"),
                "{value}: {}",
                problem.remedy
            );
        }
    }

    #[test]
    fn remedies_stay_readable() {
        let problem = ObjectId::parse(&"a".repeat(10_001)).unwrap_err();
        assert!(problem.what.len() < 200 && problem.remedy.len() < 200);
    }
}
