//! RFC 7512 `pkcs11:` URIs: a key by one text that other tools print and take.
//!
//! Strict: an attribute that this program can't match is refused, since ignoring it could find
//! another key. No problem quotes a PIN, nor a whole URI that might hold one.

use std::fmt;
use std::mem;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, percent_encode};

use super::{ObjectId, misconfigured};
use crate::error::Error;
use crate::printable::excerpt;

/// What a URI says of a token, an object, a library and a PIN; no text in it is empty.
#[derive(Default)]
pub struct Uri {
    pub token: Option<String>,
    pub manufacturer: Option<String>,
    pub model: Option<String>,
    pub serial: Option<String>,
    pub slot_id: Option<u64>,
    pub id: Option<ObjectId>,
    /// CKA_LABEL.
    pub object: Option<String>,
    pub module_path: Option<String>,
    /// In the form of `pinSource`.
    pub pin_source: Option<String>,
    /// Never printed.
    pub pin_value: Option<String>,
}

const SCHEME: &str = "pkcs11:";

/// What stands for itself in an attribute's value, besides letters and digits (RFC 7512, section
/// 2.3). Some programs print a `/`, `?` or `&` of a label unescaped.
const UNESCAPED: &[u8] = b"-._~:[]@!$'()*+,=/?|&";

/// What is escaped when a URI is printed.
const PATH: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b':').remove(b'=');
const QUERY: &AsciiSet = &PATH.remove(b'/');

/// The URI as it is written, without the PIN and its source.
pub fn without_pin(uri: &str) -> String {
    without(uri, ["pin-source", "pin-value"])
}

/// The URI as it is written, including a PIN in it, without the object.
pub fn without_object(uri: &str) -> String {
    without(uri, ["id", "object"])
}

fn without(uri: &str, names: [&str; 2]) -> String {
    let (scheme, rest) = uri.split_once(':').unwrap_or((uri, ""));
    let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
    let keep = |component: &str, separator: &str| {
        let stays = |it: &&str| !names.contains(&it.split('=').next().unwrap_or_default());
        let attributes: Vec<_> = component.split(separator).filter(stays).collect();
        attributes.join(separator)
    };
    format!("{scheme}:{}?{}", keep(path, ";"), keep(query, "&"))
}

impl Uri {
    /// Parses a URI; an error names the first attribute that is malformed or unknown.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let scheme = text.get(..SCHEME.len()).unwrap_or_default();
        if !scheme.eq_ignore_ascii_case(SCHEME) {
            return Err(misconfigured(
                "uri does not begin with pkcs11:",
                "write uri as in pkcs11:token=prod;id=%02; `pkcs11-external-signer list --uri` prints them",
            ));
        }
        let rest = text.get(SCHEME.len()..).unwrap_or_default();
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        let mut uri = Self::default();
        let mut seen = Vec::new();
        for (component, separator) in [(path, ';'), (query, '&')] {
            if component.is_empty() {
                continue;
            }
            for attribute in component.split(separator) {
                let Some((name, value)) = attribute.split_once('=') else {
                    return Err(misconfigured(
                        "uri has an attribute without a value",
                        format!(
                            "write each attribute of uri as name=value, separated by {separator}"
                        ),
                    ));
                };
                // Only a vendor's own in the query may be repeated (RFC 7512, section 2.3).
                if seen.contains(&name) && !name.starts_with("x-") {
                    return Err(problem(name, "occurs twice", "leave one of them out"));
                }
                seen.push(name);
                uri.set(name, value, separator == '&')?;
            }
        }
        Ok(uri)
    }

    fn set(&mut self, name: &str, value: &str, is_query: bool) -> Result<(), Error> {
        let text = || text(name, value);
        match (is_query, name) {
            (false, "token") => self.token = Some(text()?),
            (false, "manufacturer") => self.manufacturer = Some(text()?),
            (false, "model") => self.model = Some(text()?),
            (false, "serial") => self.serial = Some(text()?),
            (false, "slot-id") => self.slot_id = Some(number(name, &text()?)?),
            (false, "id") => self.id = Some(ObjectId::from_bytes(bytes(name, value)?)),
            (false, "object") => self.object = Some(text()?),
            // One object stands for the pair that shares its CKA_ID.
            (false, "type") if matches!(value, "cert" | "private" | "public") => {}
            (false, "type") => {
                let what = "names no certificate and no key pair";
                return Err(problem(name, what, "write type=private, or leave it out"));
            }
            (true, "module-path") => self.module_path = Some(text()?),
            (true, "pin-source") => self.pin_source = Some(pin_source(&text()?)?),
            (true, "pin-value") => self.pin_value = Some(text()?),
            // A vendor's own, which a consumer may ignore (RFC 7512, section 2.4).
            (true, _) if name.starts_with("x-") => {}
            (true, "module-name") => {
                let help = "give module-path, or pathLib, with the library's whole path";
                return Err(problem(name, "can't be looked up", help));
            }
            _ => {
                let known = match is_query {
                    true => "pin-source, pin-value and module-path",
                    false => "token, manufacturer, model, serial, slot-id, id, object and type",
                };
                let help = format!(
                    "leave it out, since what it demands can't be looked at; known there are {known}"
                );
                return Err(problem(name, "is not known here", &help));
            }
        }
        Ok(())
    }

    /// The attributes that it has, in the order in which they are printed: the name, the key of the configuration that can say the
    /// same, and that key's value.
    pub(super) fn attributes(
        &self,
    ) -> impl Iterator<Item = (&'static str, Option<&'static str>, String)> {
        let attributes = [
            ("token", Some("tokenLabel"), self.token.clone()),
            ("manufacturer", None, self.manufacturer.clone()),
            ("model", None, self.model.clone()),
            ("serial", Some("tokenSerial"), self.serial.clone()),
            ("slot-id", Some("slotId"), self.slot_id.map(|slot| slot.to_string())),
            ("id", Some("objectId"), self.id.as_ref().map(ToString::to_string)),
            ("object", Some("objectLabel"), self.object.clone()),
            ("module-path", Some("pathLib"), self.module_path.clone()),
            ("pin-source", Some("pinSource"), self.pin_source.clone()),
            ("pin-value", Some("pin"), self.pin_value.clone()),
        ];
        attributes.into_iter().filter_map(|(name, key, value)| Some((name, key, value?)))
    }
}

/// The form that other tools take; never with a PIN.
impl fmt::Display for Uri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(SCHEME)?;
        let (mut in_path, mut in_query) = ("", "?");
        for (name, _, value) in self.attributes().filter(|(name, ..)| *name != "pin-value") {
            let (set, separator) = match name {
                "module-path" | "pin-source" => (QUERY, mem::replace(&mut in_query, "&")),
                _ => (PATH, mem::replace(&mut in_path, ";")),
            };
            write!(f, "{separator}{name}=")?;
            match &self.id {
                // Bytes whose letters mean nothing.
                Some(id) if name == "id" => {
                    id.as_bytes().iter().try_for_each(|byte| write!(f, "%{byte:02X}"))?;
                }
                _ => write!(f, "{}", percent_encode(value.as_bytes(), set))?,
            }
        }
        Ok(())
    }
}

fn text(name: &str, value: &str) -> Result<String, Error> {
    match String::from_utf8(bytes(name, value)?) {
        Ok(text) if !text.contains('\0') => Ok(text),
        Ok(_) => Err(problem(name, "holds a NUL", "correct it")),
        Err(_) => Err(problem(name, "is not UTF-8", "correct its % escapes")),
    }
}

fn number(name: &str, digits: &str) -> Result<u64, Error> {
    let is_decimal = digits.bytes().all(|digit| digit.is_ascii_digit());
    let number = digits.parse().ok().filter(|_| is_decimal);
    number.ok_or_else(|| problem(name, "is not a number", "write it in decimal digits"))
}

/// Decodes a value strictly.
fn bytes(name: &str, value: &str) -> Result<Vec<u8>, Error> {
    const ESCAPES: &str = "write other characters than letters, digits and -._~ as % and two \
                           hexadecimal digits: %20 for a space, %25 for a %";
    let is_escape = |rest: &str| {
        let digits = rest.bytes().take(2).filter(u8::is_ascii_hexdigit);
        digits.count() == 2
    };
    let is_allowed =
        |byte: u8| byte == b'%' || byte.is_ascii_alphanumeric() || UNESCAPED.contains(&byte);
    if value.is_empty() {
        Err(problem(name, "is empty", "leave it out, or give it a value"))
    } else if !value.split('%').skip(1).all(is_escape) {
        Err(problem(name, "has a % without two digits", ESCAPES))
    } else if !value.bytes().all(is_allowed) {
        Err(problem(name, "has a character that must be escaped", ESCAPES))
    } else {
        Ok(percent_decode_str(value).collect())
    }
}

/// `pin-source` as `pinSource` has it. A path alone is a file's (RFC 7512, section 2.4), and so is a
/// file URI of this machine's (RFC 8089, section 2).
fn pin_source(value: &str) -> Result<String, Error> {
    let path = match value.strip_prefix("file://") {
        Some(rest) => rest.strip_prefix("localhost").unwrap_or(rest),
        None if value.starts_with('/') => value,
        None => return Ok(value.to_owned()),
    };
    if !path.starts_with('/') {
        return Err(problem(
            "pin-source",
            "is a file on another machine",
            "write it as file:/path",
        ));
    }
    // Two slashes would be read as the beginning of a machine's name.
    Ok(format!("file:/{}", path.trim_start_matches('/')))
}

fn problem(name: &str, what: &str, help: &str) -> Error {
    // A name of other characters may be a piece of a PIN.
    let is_name = |byte: u8| byte.is_ascii_alphabetic() || byte == b'-';
    let name = if name.bytes().all(is_name) { excerpt(name) } else { "…".to_owned() };
    misconfigured(format!("uri: {name} {what}"), format!("in uri, {name}: {help}"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn shown(text: &str) -> String {
        match Uri::parse(text) {
            Ok(uri) => uri.to_string(),
            Err(error) => error.to_string().replace("configuration: ", ""),
        }
    }

    #[test]
    fn every_attribute_is_read_and_printed_in_one_order() {
        let uri = "pkcs11:id=%02%ff;object=a%3Bb;type=private;serial=5d9c;model=SoftHSM%20v2;\
                   manufacturer=SoftHSM%20project;token=gr%C3%B6%C3%9Fe;slot-id=7\
                   ?pin-source=file:///run/pin&module-path=/usr/lib/a%26b.so&x-vendor=1";
        assert_eq!(
            shown(uri),
            "pkcs11:token=gr%C3%B6%C3%9Fe;manufacturer=SoftHSM%20project;model=SoftHSM%20v2;\
             serial=5d9c;slot-id=7;id=%02%FF;object=a%3Bb\
             ?module-path=/usr/lib/a%26b.so&pin-source=file:/run/pin"
        );
        let uri = Uri::parse(uri).ok().unwrap();
        assert_eq!(uri.token.as_deref(), Some("größe"));
        assert_eq!(uri.object.as_deref(), Some("a;b"));
        assert_eq!(uri.module_path.as_deref(), Some("/usr/lib/a&b.so"));
        assert_eq!(uri.id.unwrap().as_bytes(), [2, 255]);
        assert_eq!(shown("PKCS11:"), "pkcs11:");
        for (source, pin_source) in [
            ("/a/b", "file:/a/b"),
            ("file:/a", "file:/a"),
            ("file://localhost/a", "file:/a"),
            ("file:////a", "file:/a"),
            ("//a", "file:/a"),
            ("prompt", "prompt"),
            ("env:PIN", "env:PIN"),
            ("|command", "|command"),
        ] {
            let uri = Uri::parse(&format!("pkcs11:?pin-source={source}")).ok().unwrap();
            assert_eq!(uri.pin_source.as_deref(), Some(pin_source));
        }
    }

    #[test]
    fn what_is_misspelt_is_named_and_no_pin_is_shown() {
        for (uri, what) in [
            ("token=a", "uri does not begin with pkcs11:"),
            ("", "uri does not begin with pkcs11:"),
            ("größe", "uri does not begin with pkcs11:"),
            ("pkcs11:token", "uri has an attribute without a value"),
            ("pkcs11:token=a;", "uri has an attribute without a value"),
            ("pkcs11:;token=a", "uri has an attribute without a value"),
            ("pkcs11:token=a;token=a", "uri: token occurs twice"),
            ("pkcs11:token=", "uri: token is empty"),
            ("pkcs11:token=%4", "uri: token has a % without two digits"),
            ("pkcs11:token=%+4", "uri: token has a % without two digits"),
            ("pkcs11:token=a b", "uri: token has a character that must be escaped"),
            ("pkcs11:token=ö", "uri: token has a character that must be escaped"),
            ("pkcs11:token=%ff", "uri: token is not UTF-8"),
            ("pkcs11:token=a%00", "uri: token holds a NUL"),
            ("pkcs11:slot-id=0x1", "uri: slot-id is not a number"),
            ("pkcs11:slot-id=+1", "uri: slot-id is not a number"),
            ("pkcs11:slot-id=99999999999999999999", "uri: slot-id is not a number"),
            ("pkcs11:type=data", "uri: type names no certificate and no key pair"),
            ("pkcs11:slot-description=a", "uri: slot-description is not known here"),
            ("pkcs11:library-version=3", "uri: library-version is not known here"),
            ("pkcs11:x-vendor=a", "uri: x-vendor is not known here"),
            ("pkcs11:pin-value=1234", "uri: pin-value is not known here"),
            ("pkcs11:token=a?id=%01", "uri: id is not known here"),
            ("pkcs11:?module-name=a", "uri: module-name can't be looked up"),
            ("pkcs11:?pin-value=12 34", "uri: pin-value has a character that must be escaped"),
            ("pkcs11:?1234=x", "uri: … is not known here"),
            (
                "pkcs11:?pin-source=file://host/run/pin",
                "uri: pin-source is a file on another machine",
            ),
            ("pkcs11:?x-a=1&x-a=2", "pkcs11:"),
            ("pkcs11:?pin-value=1&pin-value=1", "uri: pin-value occurs twice"),
        ] {
            assert_eq!(shown(uri), what, "{uri}");
        }
        // It stands between single quotes in a shell.
        let uri = Uri::parse("pkcs11:token=a'b?module-path=/c'd").ok().unwrap();
        assert_eq!(uri.to_string(), "pkcs11:token=a%27b?module-path=/c%27d");
        let uri = Uri::parse("pkcs11:id=%01?pin-value=1234").ok().unwrap();
        assert_eq!(uri.to_string(), "pkcs11:id=%01");
        assert_eq!(uri.pin_value.as_deref(), Some("1234"));
    }

    proptest! {
        #[test]
        fn what_is_printed_is_read_as_the_same(
            texts in prop::array::uniform5(prop::option::of("[^\0]{1,20}")),
            slot_id: Option<u64>,
            id in prop::option::of(prop::collection::vec(any::<u8>(), 1..20)),
        ) {
            let [token, manufacturer, serial, object, module_path] = texts;
            let id = id.map(ObjectId::from_bytes);
            let uri = Uri { token, manufacturer, serial, object, module_path, slot_id, id, ..Uri::default() };
            let printed = uri.to_string();
            let read = Uri::parse(&printed).ok().unwrap();
            prop_assert_eq!(read.to_string(), printed);
            prop_assert_eq!(
                (read.token, read.manufacturer, read.serial, read.object, read.module_path),
                (uri.token, uri.manufacturer, uri.serial, uri.object, uri.module_path)
            );
            prop_assert_eq!((read.slot_id, read.id), (uri.slot_id, uri.id));
        }

        #[test]
        fn nothing_makes_it_panic(text in "(pkcs11:)?[-a-z%0-9=;&? ö]{0,60}") {
            let _ = Uri::parse(&text);
        }
    }
}
