//! What a YAML scalar is: the rules of YAML 1.1 as kubectl's parser (go.yaml.in/yaml/v2, resolve.go)
//! has them, so that `yes` is a flag and `010` is eight here too.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Number;
use zeroize::Zeroizing;

use super::value::Value;

/// Where the tags of YAML's own types stand.
const TYPES: &str = "tag:yaml.org,2002:";

/// A scalar's value. `plain` says that it was written without quotes; `tag` is in full, and may be
/// empty. Errors quote nothing.
pub(super) fn resolve(text: Cow<'_, str>, plain: bool, tag: &str) -> Result<Value, &'static str> {
    match tag.strip_prefix(TYPES) {
        None if tag.is_empty() && plain => untagged(text),
        Some("bool") => match untagged(text)? {
            flag @ Value::Flag(_) => Ok(flag),
            _ => Err("a value tagged as a boolean is none"),
        },
        Some("int" | "float") => match untagged(text)? {
            number @ Value::Number(_) => Ok(number),
            _ => Err("a value tagged as a number is none"),
        },
        Some("null") => match untagged(text)? {
            Value::Null => Ok(Value::Null),
            _ => Err("a value tagged as null is none"),
        },
        Some("binary") => {
            let folded: Zeroizing<String> = Zeroizing::new(
                text.chars()
                    .filter(|character| !matches!(character, '\r' | '\n'))
                    .collect(),
            );
            let bytes = STANDARD
                .decode(folded.as_bytes())
                .map_err(|_| "a value tagged as binary is not base64")?;
            String::from_utf8(bytes).map(Value::text).map_err(|error| {
                drop(Zeroizing::new(error.into_bytes()));
                "a value tagged as binary is not text"
            })
        }
        _ => Ok(Value::text(text)),
    }
}

/// The number that a text stands for when it isn't quoted. Integers can be octal (`010`, `0o10`),
/// hexadecimal and binary, and `_` may part their digits.
pub(super) fn number(text: &str) -> Option<Number> {
    let digits = match text.bytes().next()? {
        b'.' => return float(text),
        b'0'..=b'9' | b'+' | b'-' => Zeroizing::new(text.replace('_', "")),
        _ => return None,
    };
    if let Some(integer) = integer(&digits) {
        return Some(integer);
    }
    let unsigned = digits.strip_prefix(['+', '-']).unwrap_or(&digits);
    let decimal = unsigned
        .bytes()
        .all(|byte| byte.is_ascii_digit() || matches!(byte, b'.' | b'e' | b'E' | b'+' | b'-'));
    if decimal { float(&digits) } else { None }
}

fn untagged(text: Cow<'_, str>) -> Result<Value, &'static str> {
    Ok(match text.as_ref() {
        "" | "~" | "null" | "Null" | "NULL" => Value::Null,
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
            Value::Flag(true)
        }
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            Value::Flag(false)
        }
        ".nan" | ".NaN" | ".NAN" | ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF"
        | "-.inf" | "-.Inf" | "-.INF" => return Err("JSON has no such number"),
        other if number(other).is_some() => Value::Number(Zeroizing::new(text.into_owned())),
        _ => Value::text(text),
    })
}

fn integer(digits: &str) -> Option<Number> {
    let (negative, unsigned) = match digits.strip_prefix('-') {
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
    if negative {
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
        match resolve(text.into(), plain, tag) {
            Ok(value) => super::super::value::json(&value).to_string(),
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
            (
                "five",
                true,
                "tag:yaml.org,2002:int",
                "a value tagged as a number is none",
            ),
            ("aGk=", true, "tag:yaml.org,2002:binary", r#""hi""#),
            ("0", true, "!mine", r#""0""#),
        ] {
            assert_eq!(shown(text, plain, tag), json, "{text} {tag}");
        }
    }
}
