//! RFC 7512 `pkcs11:` URIs: a key by one text that other tools print and take.
//!
//! Strict: what is misspelt is named, and what this program can't match is refused rather than
//! passed over, since a wider match could find another key. No problem quotes a PIN, nor a whole
//! URI that might hold one.

use std::fmt;

use super::error::Problem;
use super::{ObjectId, Reader, Setting, quoted};
use crate::printable::excerpt;
use crate::protocol::Configuration;

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
    /// As `pinSource` has it.
    pub pin_source: Option<String>,
    /// Never printed.
    pub pin_value: Option<String>,
}

/// What a URI can say of the PIN.
const OF_PIN: [&str; 2] = ["pin-source", "pin-value"];
/// What it can say of the object.
const OF_OBJECT: [&str; 2] = ["id", "object"];

/// The URI as it is written, but for what it says of the PIN.
pub(super) fn without_pin(uri: &str) -> String {
    without(uri, OF_PIN)
}

/// The URI as it is written, a PIN in it included, but for what it says of the object.
pub fn without_object(uri: &str) -> String {
    without(uri, OF_OBJECT)
}

fn without(uri: &str, names: [&str; 2]) -> String {
    let (scheme, rest) = uri.split_once(':').unwrap_or((uri, ""));
    let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
    let mut kept = scheme.to_owned();
    for (component, before, between) in [(path, ':', ';'), (query, '?', '&')] {
        kept.push(before);
        let stays = |it: &&str| !names.contains(&it.split('=').next().unwrap_or_default());
        for (place, attribute) in component.split(between).filter(stays).enumerate() {
            if place > 0 {
                kept.push(between);
            }
            kept.push_str(attribute);
        }
    }
    kept
}

impl Uri {
    /// Errors name the attribute at fault.
    pub fn parse(text: &str) -> Result<Self, Problem> {
        let scheme = text.get(..SCHEME.len()).unwrap_or_default();
        if !scheme.eq_ignore_ascii_case(SCHEME) {
            return Err(Problem::new(
                "uri does not begin with pkcs11:",
                "write uri as in pkcs11:token=prod;id=%02; pkcs11-external-signer list --uri \
                 prints them",
            ));
        }
        let rest = text.get(SCHEME.len()..).unwrap_or_default();
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        let mut uri = Self::default();
        let mut seen = Vec::new();
        for (component, separator) in [(path, ';'), (query, '&')] {
            let attributes = component.split(separator);
            for attribute in attributes.filter(|it| !component.is_empty() || !it.is_empty()) {
                let (name, value) = attribute.split_once('=').ok_or_else(|| {
                    Problem::new(
                        "uri has an attribute without a value",
                        format!("write each attribute of uri as name=value, parted by {separator}"),
                    )
                })?;
                // Only a vendor's own in the query may be repeated (RFC 7512, section 2.3).
                if seen.contains(&name) && !name.starts_with("x-") {
                    return Err(problem(name, "occurs twice", "leave one of them out"));
                }
                seen.push(name);
                uri.take(name, value, separator == '&')?;
            }
        }
        Ok(uri)
    }

    fn take(&mut self, name: &str, value: &str, is_query: bool) -> Result<(), Problem> {
        if is_query {
            return match name {
                "module-path" => put(&mut self.module_path, name, value),
                "pin-source" => {
                    let source = text(name, value)?;
                    self.pin_source = Some(pin_source(&source)?);
                    Ok(())
                }
                "pin-value" => {
                    self.pin_value = Some(text(name, value)?);
                    Ok(())
                }
                // RFC 7512, section 2.4: a vendor's own, which a consumer may pass over.
                _ if name.starts_with("x-") => Ok(()),
                "module-name" => Err(problem(
                    name,
                    "can't be looked up",
                    "give module-path, or pathLib, with the library's whole path",
                )),
                _ => Err(unknown(name, "pin-source, pin-value and module-path")),
            };
        }
        match name {
            "token" => put(&mut self.token, name, value),
            "manufacturer" => put(&mut self.manufacturer, name, value),
            "model" => put(&mut self.model, name, value),
            "serial" => put(&mut self.serial, name, value),
            "object" => put(&mut self.object, name, value),
            "slot-id" => {
                let number = text(name, value)?;
                let is_decimal = number.bytes().all(|digit| digit.is_ascii_digit());
                let number = number.parse().ok().filter(|_| is_decimal);
                self.slot_id = Some(number.ok_or_else(|| {
                    problem(name, "is not a number", "write it in decimal digits")
                })?);
                Ok(())
            }
            "id" => {
                self.id = Some(ObjectId::from_bytes(bytes(name, value)?));
                Ok(())
            }
            // One object stands for the pair that shares its CKA_ID.
            "type" if matches!(value, "cert" | "private" | "public") => Ok(()),
            "type" => Err(problem(
                name,
                "names no certificate and no key pair",
                "write type=private, or leave it out",
            )),
            _ => Err(unknown(
                name,
                "token, manufacturer, model, serial, slot-id, id, object and type",
            )),
        }
    }

    /// As keys of the configuration.
    fn pairs(&self) -> impl Iterator<Item = (&'static str, String)> {
        [
            ("pathLib", self.module_path.clone()),
            ("slotId", self.slot_id.map(|slot| slot.to_string())),
            ("tokenLabel", self.token.clone()),
            ("tokenSerial", self.serial.clone()),
            ("objectId", self.id.as_ref().map(ToString::to_string)),
            ("objectLabel", self.object.clone()),
            ("pinSource", self.pin_source.clone()),
            ("pin", self.pin_value.clone()),
        ]
        .into_iter()
        .filter_map(|(key, value)| Some((key, value?)))
    }
}

impl Reader<'_> {
    /// Takes `uri` out of the map, and puts what it says under the keys that say the same.
    pub(super) fn unfold_uri(&mut self) {
        let uri = match self.read("uri", Uri::parse) {
            Setting::Absent => return,
            Setting::Refused => {
                self.is_uri_refused = true;
                return;
            }
            Setting::Read(uri) => uri,
        };
        for (key, value) in uri.pairs() {
            match contradiction(self.map, key, &value) {
                Some(problem) => self.problems.push(problem),
                None if self.map.has(key) => {}
                None => self.map.set(key, &value),
            }
        }
        self.manufacturer = uri.manufacturer;
        self.model = uri.model;
    }
}

/// Between what the URI says and what stands under the key.
fn contradiction(map: &Configuration, key: &'static str, of_uri: &str) -> Option<Problem> {
    let given = map.value(key)?;
    let number = |text: &str| super::selector::slot(text).ok();
    let is_same = match key {
        "objectId" => match (ObjectId::parse(given), ObjectId::parse(of_uri)) {
            (Ok(given), Ok(of_uri)) => given == of_uri,
            // Told as a problem of its own.
            _ => true,
        },
        "slotId" => number(given).is_none_or(|given| Some(given) == number(of_uri)),
        _ => given == of_uri,
    };
    if is_same {
        return None;
    }
    let attribute = match key {
        "pathLib" => "module-path",
        "slotId" => "slot-id",
        "tokenLabel" => "token",
        "tokenSerial" => "serial",
        "objectId" => "id",
        "objectLabel" => "object",
        "pinSource" => "pin-source",
        _ => "pin-value",
    };
    Some(Problem::new(
        if key.starts_with("pin") {
            format!("uri has another {attribute} than {key}")
        } else {
            format!(
                "uri has {attribute} {}, but {key} is {}",
                quoted(of_uri),
                quoted(given)
            )
        },
        format!("take {attribute} out of uri, or leave {key} out"),
    ))
}

/// The form that other tools take; never with a PIN.
impl fmt::Display for Uri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(SCHEME)?;
        let mut separator = "";
        let mut write = |f: &mut fmt::Formatter<'_>, name: &str, bytes: &[u8], next| {
            write!(f, "{separator}{name}=")?;
            separator = next;
            bytes.iter().try_for_each(|byte| {
                // An id is bytes, and its letters say nothing.
                if name != "id" && is_printed(*byte, false) {
                    write!(f, "{}", char::from(*byte))
                } else {
                    write!(f, "%{byte:02X}")
                }
            })
        };
        let slot = self.slot_id.map(|slot| slot.to_string());
        for (name, value) in [
            ("token", &self.token),
            ("manufacturer", &self.manufacturer),
            ("model", &self.model),
            ("serial", &self.serial),
            ("slot-id", &slot),
        ] {
            if let Some(value) = value {
                write(f, name, value.as_bytes(), ";")?;
            }
        }
        if let Some(id) = &self.id {
            write(f, "id", id.as_bytes(), ";")?;
        }
        if let Some(object) = &self.object {
            write(f, "object", object.as_bytes(), ";")?;
        }
        let mut separator = "?";
        for (name, value) in [
            ("module-path", &self.module_path),
            ("pin-source", &self.pin_source),
        ] {
            let Some(value) = value else { continue };
            write!(f, "{separator}{name}=")?;
            separator = "&";
            for byte in value.bytes() {
                if is_printed(byte, true) {
                    write!(f, "{}", char::from(byte))?;
                } else {
                    write!(f, "%{byte:02X}")?;
                }
            }
        }
        Ok(())
    }
}

const SCHEME: &str = "pkcs11:";

/// What may stand for itself (RFC 7512, section 2.3; `&` in a path could, too).
fn is_plain(byte: u8, is_query: bool) -> bool {
    byte.is_ascii_alphanumeric()
        || b"-._~:[]@!$'()*+,=".contains(&byte)
        || is_query && b"/?|".contains(&byte)
}

/// As [`is_plain`], but for what ends a shell's single quotes.
fn is_printed(byte: u8, is_query: bool) -> bool {
    byte != b'\'' && is_plain(byte, is_query)
}

fn put(place: &mut Option<String>, name: &str, value: &str) -> Result<(), Problem> {
    *place = Some(text(name, value)?);
    Ok(())
}

fn text(name: &str, value: &str) -> Result<String, Problem> {
    match String::from_utf8(bytes(name, value)?) {
        Ok(text) if !text.contains('\0') => Ok(text),
        Ok(_) => Err(problem(name, "holds a NUL", "correct it")),
        Err(_) => Err(problem(name, "is not UTF-8", "correct its % escapes")),
    }
}

/// Percent-decoded.
fn bytes(name: &str, value: &str) -> Result<Vec<u8>, Problem> {
    const ESCAPES: &str = "write other characters than letters, digits and -._~ as % and two \
                           hexadecimal digits: %20 for a space, %25 for a %";
    let mut decoded = Vec::with_capacity(value.len());
    let mut rest = value.bytes();
    while let Some(byte) = rest.next() {
        decoded.push(match byte {
            b'%' => {
                let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
                let (high, low) = (digit(rest.next()), digit(rest.next()));
                let code = high
                    .zip(low)
                    .and_then(|(high, low)| u8::try_from(high * 16 + low).ok());
                code.ok_or_else(|| problem(name, "has a % without two digits", ESCAPES))?
            }
            // Some print a / or a ? of a label as it is.
            b'&' => byte,
            _ if is_plain(byte, true) => byte,
            _ => {
                return Err(problem(
                    name,
                    "has a character that must be escaped",
                    ESCAPES,
                ));
            }
        });
    }
    if decoded.is_empty() {
        return Err(problem(
            name,
            "is empty",
            "leave it out, or give it a value",
        ));
    }
    Ok(decoded)
}

/// A path alone is a file's (RFC 7512, section 2.4), and so is a file URI of this machine's
/// (RFC 8089, section 2).
fn pin_source(value: &str) -> Result<String, Problem> {
    let path = match value.strip_prefix("file://") {
        Some(rest) => Some(rest.strip_prefix("localhost").unwrap_or(rest)),
        None => value.strip_prefix('/').map(|_| value),
    };
    match path {
        None => Ok(value.to_owned()),
        // Two slashes would be read as the beginning of a machine's name.
        Some(path) if path.starts_with('/') => {
            Ok(format!("file:/{}", path.trim_start_matches('/')))
        }
        Some(_) => Err(problem(
            "pin-source",
            "is a file on another machine",
            "write it as file:/path",
        )),
    }
}

fn unknown(name: &str, known: &str) -> Problem {
    problem(
        name,
        "is not known here",
        &format!("leave it out, since what it demands can't be looked at; known there are {known}"),
    )
}

fn problem(name: &str, what: &str, remedy: &str) -> Problem {
    // A name that is no name may be a piece of a PIN.
    let is_name = name
        .bytes()
        .all(|byte| byte.is_ascii_alphabetic() || byte == b'-');
    let name = if is_name {
        excerpt(name)
    } else {
        "…".to_owned()
    };
    Problem::new(
        format!("uri: {name} {what}"),
        format!("in uri, {name}: {remedy}"),
    )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn shown(text: &str) -> String {
        match Uri::parse(text) {
            Ok(uri) => uri.to_string(),
            Err(problem) => problem.what,
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
            let uri = Uri::parse(&format!("pkcs11:?pin-source={source}"))
                .ok()
                .unwrap();
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
            (
                "pkcs11:token=a b",
                "uri: token has a character that must be escaped",
            ),
            (
                "pkcs11:token=ö",
                "uri: token has a character that must be escaped",
            ),
            ("pkcs11:token=%ff", "uri: token is not UTF-8"),
            ("pkcs11:token=a%00", "uri: token holds a NUL"),
            ("pkcs11:slot-id=0x1", "uri: slot-id is not a number"),
            ("pkcs11:slot-id=+1", "uri: slot-id is not a number"),
            (
                "pkcs11:slot-id=99999999999999999999",
                "uri: slot-id is not a number",
            ),
            (
                "pkcs11:type=data",
                "uri: type names no certificate and no key pair",
            ),
            (
                "pkcs11:slot-description=a",
                "uri: slot-description is not known here",
            ),
            (
                "pkcs11:library-version=3",
                "uri: library-version is not known here",
            ),
            ("pkcs11:x-vendor=a", "uri: x-vendor is not known here"),
            ("pkcs11:pin-value=1234", "uri: pin-value is not known here"),
            ("pkcs11:token=a?id=%01", "uri: id is not known here"),
            (
                "pkcs11:?module-name=a",
                "uri: module-name can't be looked up",
            ),
            (
                "pkcs11:?pin-value=12 34",
                "uri: pin-value has a character that must be escaped",
            ),
            ("pkcs11:?1234=x", "uri: … is not known here"),
            (
                "pkcs11:?pin-source=file://host/run/pin",
                "uri: pin-source is a file on another machine",
            ),
            ("pkcs11:?x-a=1&x-a=2", "pkcs11:"),
            (
                "pkcs11:?pin-value=1&pin-value=1",
                "uri: pin-value occurs twice",
            ),
        ] {
            assert_eq!(shown(uri), what, "{uri}");
        }
        // It stands between single quotes in a shell.
        let uri = Uri::parse("pkcs11:token=a'b?module-path=/c'd")
            .ok()
            .unwrap();
        assert_eq!(uri.to_string(), "pkcs11:token=a%27b?module-path=/c%27d");
        let uri = Uri::parse("pkcs11:id=%01?pin-value=1234").ok().unwrap();
        assert_eq!(uri.to_string(), "pkcs11:id=%01");
        assert_eq!(uri.pin_value.as_ref().unwrap().as_str(), "1234");
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
