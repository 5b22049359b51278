//! What a YAML scalar is: the rules of YAML 1.1 as kubectl's parser (go.yaml.in/yaml/v2, resolve.go)
//! has them, so that `yes` is a boolean and `010` is eight here too.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Number, Value};

/// Where the tags of YAML's own types stand.
const TYPES: &str = "tag:yaml.org,2002:";

/// A scalar's value. `is_plain` says that it was written without quotes; `tag` is in full, and may
/// be empty.
///
/// # Errors
///
/// The tag doesn't fit the text, or JSON has no such value. The texts quote nothing.
pub(super) fn resolve(text: &str, is_plain: bool, tag: &str) -> Result<Value, &'static str> {
    match tag.strip_prefix(TYPES) {
        None if tag.is_empty() && is_plain => untagged(text),
        Some("bool") => untagged(text)
            .ok()
            .filter(Value::is_boolean)
            .ok_or("a value tagged as a boolean is none"),
        Some("int" | "float") => {
            untagged(text).ok().filter(Value::is_number).ok_or("a value tagged as a number is none")
        }
        Some("null") => {
            untagged(text).ok().filter(Value::is_null).ok_or("a value tagged as null is none")
        }
        Some("binary") => STANDARD
            .decode(text.replace(['\r', '\n'], ""))
            .ok()
            .and_then(|bytes| String::from_utf8(bytes).ok())
            .map(Value::String)
            .ok_or("a value tagged as binary is no text in base64"),
        _ => Ok(Value::String(text.to_owned())),
    }
}

/// The null, boolean, number or text that a plain scalar without a tag is.
fn untagged(text: &str) -> Result<Value, &'static str> {
    Ok(match text {
        "" | "~" | "null" | "Null" | "NULL" => Value::Null,
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
            Value::Bool(true)
        }
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            Value::Bool(false)
        }
        ".nan" | ".NaN" | ".NAN" | ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF"
        | "-.inf" | "-.Inf" | "-.INF" => return Err("JSON has no such number"),
        _ => number(text).map_or_else(|| Value::String(text.to_owned()), Value::Number),
    })
}

/// Integers can be octal (`010`, `0o10`), hexadecimal and binary, and `_` may separate digits.
fn number(text: &str) -> Option<Number> {
    let digits = match text.bytes().next()? {
        b'.' => return float(text),
        b'0'..=b'9' | b'+' | b'-' => text.replace('_', ""),
        _ => return None,
    };
    let is_decimal = |byte: u8| byte.is_ascii_digit() || b".eE+-".contains(&byte);
    let unsigned = digits.strip_prefix(['+', '-']).unwrap_or(&digits);
    integer(&digits).or_else(|| unsigned.bytes().all(is_decimal).then(|| float(&digits))?)
}

fn integer(digits: &str) -> Option<Number> {
    let (is_negative, unsigned) = match digits.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, digits.strip_prefix('+').unwrap_or(digits)),
    };
    let lower = unsigned.get(..2).map(str::to_ascii_lowercase);
    let (radix, figures) = match lower.as_deref() {
        Some("0x") => (16, &unsigned[2..]),
        Some("0o") => (8, &unsigned[2..]),
        Some("0b") => (2, &unsigned[2..]),
        Some(octal) if octal.starts_with('0') => (8, &unsigned[1..]),
        _ => (10, unsigned),
    };
    if !figures.starts_with(|first: char| first.is_digit(radix)) {
        return None;
    }
    let magnitude = u64::from_str_radix(figures, radix).ok()?;
    if is_negative {
        0_i64.checked_sub_unsigned(magnitude).map(Number::from)
    } else if digits.starts_with('+') {
        // Go's unsigned numbers take no sign.
        i64::try_from(magnitude).ok().map(Number::from)
    } else {
        Some(Number::from(magnitude))
    }
}

fn float(text: &str) -> Option<Number> {
    let value: f64 = text.parse().ok()?;
    // Go's JSON writes a whole float as an integer.
    if value.fract() == 0.0 && value.abs() < 1e15 {
        return Some(Number::from(value as i64));
    }
    Number::from_f64(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str, plain: bool, tag: &str) -> String {
        match resolve(text, plain, tag) {
            Ok(value) => value.to_string(),
            Err(reason) => reason.to_owned(),
        }
    }

    #[test]
    fn plain_scalars_follow_yaml_1_1() {
        for (text, json) in [
            ("", "null"),
            ("~", "null"),
            ("Null", "null"),
            ("nULL", r#""nULL""#),
            ("y", "true"),
            ("Off", "false"),
            ("yEs", r#""yEs""#),
            ("0", "0"),
            ("-0", "0"),
            ("02", "2"),
            ("010", "8"),
            ("08", "8"),
            ("0o17", "15"),
            ("0x1F", "31"),
            ("-0x1f", "-31"),
            ("0b101", "5"),
            ("1_000", "1000"),
            ("+5", "5"),
            ("+-5", r#""+-5""#),
            ("0x", r#""0x""#),
            ("0x+5", r#""0x+5""#),
            ("_5", r#""_5""#),
            ("18446744073709551615", "18446744073709551615"),
            ("-9223372036854775808", "-9223372036854775808"),
            ("1.5", "1.5"),
            (".5", "0.5"),
            ("1.", "1"),
            ("1e3", "1000"),
            ("1e400", r#""1e400""#),
            ("1:30", r#""1:30""#),
            ("1.2.3.4", r#""1.2.3.4""#),
            ("2026-01-02", r#""2026-01-02""#),
            ("é0", r#""é0""#),
            ("0é", r#""0é""#),
            (".", r#"".""#),
            (".inf", "JSON has no such number"),
        ] {
            assert_eq!(shown(text, true, ""), json, "{text}");
        }
    }

    #[test]
    fn quotes_and_tags_decide_before_the_text() {
        for (text, plain, tag, json) in [
            ("0", false, "", r#""0""#),
            ("", false, "", r#""""#),
            ("0", true, "!", r#""0""#),
            ("0", true, "tag:yaml.org,2002:str", r#""0""#),
            ("5", false, "tag:yaml.org,2002:int", "5"),
            ("five", true, "tag:yaml.org,2002:int", "a value tagged as a number is none"),
            ("aGk=", true, "tag:yaml.org,2002:binary", r#""hi""#),
            ("0", true, "!mine", r#""0""#),
        ] {
            assert_eq!(shown(text, plain, tag), json, "{text} {tag}");
        }
    }
}
