//! RFC 7512 `pkcs11:` URIs: a key by one text that other tools print and take.
//!
//! Strict: an attribute that this program can't match is refused, since ignoring it could find
//! another key. No problem quotes a PIN, nor a whole URI that might hold one.

use std::collections::BTreeMap;
use std::fmt;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, percent_encode};

use super::selector::decimal;
use super::{ObjectId, misconfigured};
use messages::error::Error;
use messages::help::{Help, command};
use messages::printable::excerpt;

/// The attributes of a URI that name a library, a token, an object and a PIN. Their values are in the form of the
/// configuration's keys that stand for the same. Only the ones about a token can be empty.
#[derive(Default)]
pub struct Uri(BTreeMap<&'static str, String>);

/// An attribute that this program matches.
struct Attribute {
    name: &'static str,
    /// The key of the configuration that stands for the attribute, if there is one.
    key: Option<&'static str>,
    component: Component,
}

/// The part of a URI in which an attribute is.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Component {
    Path,
    /// The part after the `?`.
    Query,
}

/// The attributes, in the order in which they are printed.
static ATTRIBUTES: [Attribute; 10] = [
    in_path("token", Some("tokenLabel")),
    in_path("manufacturer", None),
    in_path("model", None),
    in_path("serial", Some("tokenSerial")),
    in_path("slot-id", Some("slotId")),
    in_path("id", Some("objectId")),
    in_path("object", Some("objectLabel")),
    in_query("module-path", "pathLib"),
    in_query("pin-source", "pinSource"),
    in_query(PIN_VALUE, "pin"),
];

const fn in_path(name: &'static str, key: Option<&'static str>) -> Attribute {
    Attribute { name, key, component: Component::Path }
}

const fn in_query(name: &'static str, key: &'static str) -> Attribute {
    Attribute { name, key: Some(key), component: Component::Query }
}

impl Component {
    /// The character between two attributes of the component.
    fn separator(self) -> &'static str {
        match self {
            Self::Path => ";",
            Self::Query => "&",
        }
    }

    /// The text before the component's first attribute.
    fn beginning(self) -> &'static str {
        match self {
            Self::Path => "",
            Self::Query => "?",
        }
    }

    /// The characters that are escaped in the component's values when a URI is printed.
    fn escaped(self) -> &'static AsciiSet {
        match self {
            Self::Path => PATH,
            Self::Query => QUERY,
        }
    }
}

/// An attribute of a URI that a key of the configuration can say, too.
pub(super) struct Setting<'a> {
    pub(super) attribute: &'static str,
    pub(super) key: &'static str,
    pub(super) value: &'a str,
}

/// Attributes that a token says of itself. The standard pads them with blanks; some libraries use NULs.
const PADDED: [&str; 4] = ["token", "manufacturer", "model", "serial"];

/// The attribute with a PIN, which is never printed.
const PIN_VALUE: &str = "pin-value";

const SCHEME: &str = "pkcs11:";

/// The help that says how a URI is written.
fn syntax() -> Help {
    Help::from("write uri as ").and(command("list --uri")).and(
        " prints it, with token, manufacturer, model, serial, slot-id, id, object and type, and after a ? \
         module-path, pin-source and pin-value; each once, and what is no letter, digit or -._~ as in %02",
    )
}

/// The help that says how a library is named in place of module-name.
fn by_path() -> Help {
    Help::from(
        "name the library by its path, in place of module-name: module-path=/usr/lib/softhsm/libsofthsm2.so, or pathLib \
         (--module); ",
    )
    .and(command("list"))
    .and(" shows the libraries of this machine")
}

/// The characters that stand for themselves in an attribute's value, besides letters and digits (RFC 7512, section
/// 2.3). Some programs print a `/`, `?` or `&` of a label unescaped.
const UNESCAPED: &[u8] = b"-._~:[]@!$'()*+,=/?|&";

/// The characters that are escaped when a URI is printed.
const PATH: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b':').remove(b'=');
const QUERY: &AsciiSet = &PATH.remove(b'/');

/// The URI as it was written, but without the PIN and its source.
pub fn without_pin(uri: &str) -> String {
    without(uri, ["pin-source", "pin-value"])
}

/// The URI as it was written, including a PIN in it, but without the object.
pub fn without_object(uri: &str) -> String {
    without(uri, ["id", "object"])
}

fn without(uri: &str, names: [&str; 2]) -> String {
    let (scheme, rest) = uri.split_once(':').unwrap_or((uri, ""));
    let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
    let keep = |component: &str, separator: &str| {
        let stays =
            |attribute: &&str| !names.contains(&attribute.split('=').next().unwrap_or_default());
        let attributes: Vec<_> = component.split(separator).filter(stays).collect();
        attributes.join(separator)
    };
    format!("{scheme}:{}?{}", keep(path, ";"), keep(query, "&"))
}

impl Uri {
    /// Parses a URI. The error names the first attribute that is malformed or unknown.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let scheme = text.get(..SCHEME.len()).unwrap_or_default();
        if !scheme.eq_ignore_ascii_case(SCHEME) {
            return Err(misconfigured("uri does not begin with pkcs11:", syntax()));
        }
        let rest = text.get(SCHEME.len()..).unwrap_or_default();
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        let mut uri = Self::default();
        for (component, text) in [(Component::Path, path), (Component::Query, query)] {
            for attribute in text.split(component.separator()).filter(|_| !text.is_empty()) {
                uri.add(component, attribute)?;
            }
        }
        Ok(uri)
    }

    /// Adds an attribute of this component, in the form in which it was written.
    fn add(&mut self, component: Component, attribute: &str) -> Result<(), Error> {
        let (name, value) = attribute
            .split_once('=')
            .ok_or_else(|| misconfigured("uri has an attribute without a value", syntax()))?;
        let known = |known: &&Attribute| known.component == component && known.name == name;
        let Some(known) = ATTRIBUTES.iter().find(known) else {
            return check_unmatched(component, name, value);
        };
        match self.0.insert(known.name, setting(name, value)?) {
            None => Ok(()),
            Some(_) => Err(problem(name, "occurs twice")),
        }
    }

    /// A URI with these attributes. Those that are empty, or only padding, are left out.
    pub fn of<const N: usize>(attributes: [(&'static str, Option<String>); N]) -> Self {
        let given = attributes.into_iter().filter_map(|(name, value)| {
            let mut value = value?;
            value.truncate(unpadded_length(name, value.as_bytes()));
            Some((name, value))
        });
        Self(given.filter(|(_, value)| !value.is_empty()).collect())
    }

    /// The value of this attribute, in the form of the configuration's key that stands for it.
    pub fn get(&self, attribute: &str) -> Option<&str> {
        self.0.get(attribute).map(String::as_str)
    }

    /// The settings of the URI that keys of the configuration can say, too.
    pub(super) fn settings(&self) -> impl Iterator<Item = Setting<'_>> {
        ATTRIBUTES.iter().filter_map(|&Attribute { name, key, .. }| {
            Some(Setting { attribute: name, key: key?, value: self.get(name)? })
        })
    }
}

/// Shows the form that other tools take, and never a PIN.
impl fmt::Display for Uri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(SCHEME)?;
        for component in [Component::Path, Component::Query] {
            let mut separator = component.beginning();
            for &Attribute { name, .. } in ATTRIBUTES.iter().filter(|of| of.component == component)
            {
                if let Some(value) = self.get(name).filter(|_| name != PIN_VALUE) {
                    write!(f, "{separator}{name}=")?;
                    write_value(f, name, value, component.escaped())?;
                    separator = component.separator();
                }
            }
        }
        Ok(())
    }
}

/// Writes an attribute's value, with these characters escaped. Of an id, each byte is escaped: it isn't text.
fn write_value(
    f: &mut fmt::Formatter<'_>,
    name: &str,
    value: &str,
    escaped: &'static AsciiSet,
) -> fmt::Result {
    if name == "id"
        && let Ok(id) = ObjectId::parse(value)
    {
        return id.as_bytes().iter().try_for_each(|byte| write!(f, "%{byte:02X}"));
    }
    write!(f, "{}", percent_encode(value.as_bytes(), escaped))
}

/// Fails for an attribute that this program doesn't match, unless it can be passed over.
fn check_unmatched(component: Component, name: &str, value: &str) -> Result<(), Error> {
    match component {
        // One object stands for the pair of objects that have its CKA_ID.
        Component::Path if name == "type" => {
            if matches!(value, "cert" | "private" | "public") {
                Ok(())
            } else {
                Err(problem(name, "names no certificate and no key pair"))
            }
        }
        // This attribute says which library p11-kit would have loaded, by a name that only p11-kit knows.
        Component::Query if name == "module-name" => {
            Err(misconfigured("uri: module-name is not known here", by_path()))
        }
        // A vendor's own attribute may be ignored (RFC 7512, section 2.4).
        Component::Query if name.starts_with("x-") => Ok(()),
        _ if name.contains(|character: char| character.is_ascii_whitespace()) => {
            Err(misconfigured("uri has a blank or a line end in it", syntax()))
        }
        _ => Err(problem(name, "is not known here")),
    }
}

/// An attribute's value in the form of the key that stands for it.
fn setting(name: &str, value: &str) -> Result<String, Error> {
    let mut bytes = bytes(name, value)?;
    bytes.truncate(unpadded_length(name, &bytes));
    if bytes.is_empty() && !PADDED.contains(&name) {
        return Err(problem(name, "is empty"));
    }
    if name == "id" {
        return Ok(ObjectId::from_bytes(bytes).to_string());
    }
    let text = String::from_utf8(bytes).ok().filter(|text| !text.contains('\0'));
    let text = text.ok_or_else(|| problem(name, "is not UTF-8, or holds a NUL"))?;
    match name {
        "slot-id" if decimal(&text).is_none() => Err(problem(name, "is not a number")),
        "pin-source" => pin_source(text),
        _ => Ok(text),
    }
}

/// The length of the attribute's value in bytes, without padding.
fn unpadded_length(name: &str, value: &[u8]) -> usize {
    if !PADDED.contains(&name) {
        return value.len();
    }
    let last = value.iter().rposition(|byte| ![b' ', 0].contains(byte));
    last.map_or(0, |last| last + 1)
}

/// Decodes a value strictly.
fn bytes(name: &str, value: &str) -> Result<Vec<u8>, Error> {
    let is_escape = |rest: &str| {
        let digits = rest.bytes().take(2).filter(u8::is_ascii_hexdigit);
        digits.count() == 2
    };
    let is_allowed =
        |byte: u8| byte == b'%' || byte.is_ascii_alphanumeric() || UNESCAPED.contains(&byte);
    if !value.split('%').skip(1).all(is_escape) {
        Err(problem(name, "has a % without two digits"))
    } else if !value.bytes().all(is_allowed) {
        Err(problem(name, "has a character that must be escaped"))
    } else {
        Ok(percent_decode_str(value).collect())
    }
}

/// The `pinSource` that a `pin-source` stands for. A path alone is a file's (RFC 7512, section 2.4), and so is a file
/// URI of this machine (RFC 8089, section 2).
fn pin_source(value: String) -> Result<String, Error> {
    let path = match value.strip_prefix("file://") {
        Some(rest) => rest.strip_prefix("localhost").unwrap_or(rest),
        None if value.starts_with('/') => &value,
        None => return Ok(value),
    };
    if !path.starts_with('/') {
        return Err(problem("pin-source", "is a file on another machine"));
    }
    // Two slashes would begin the name of a machine.
    Ok(format!("file:/{}", path.trim_start_matches('/')))
}

fn problem(name: &str, what: &str) -> Error {
    // A name with other characters may be a part of a PIN.
    let is_name = |byte: u8| byte.is_ascii_alphabetic() || byte == b'-';
    let name = if name.bytes().all(is_name) { excerpt(name) } else { "…".to_owned() };
    misconfigured(format!("uri: {name} {what}"), syntax())
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
        for (attribute, value) in [
            ("token", "größe"),
            ("object", "a;b"),
            ("module-path", "/usr/lib/a&b.so"),
            ("id", "0x02ff"),
            ("slot-id", "7"),
        ] {
            assert_eq!(uri.get(attribute), Some(value));
        }
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
            assert_eq!(uri.get("pin-source"), Some(pin_source));
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
            ("pkcs11:object=", "uri: object is empty"),
            ("pkcs11:id=", "uri: id is empty"),
            ("pkcs11:token=%4", "uri: token has a % without two digits"),
            ("pkcs11:token=%+4", "uri: token has a % without two digits"),
            ("pkcs11:token=a b", "uri: token has a character that must be escaped"),
            ("pkcs11:token=ö", "uri: token has a character that must be escaped"),
            ("pkcs11:token=%ff", "uri: token is not UTF-8, or holds a NUL"),
            ("pkcs11:token=a%00b", "uri: token is not UTF-8, or holds a NUL"),
            ("pkcs11:object=a%00", "uri: object is not UTF-8, or holds a NUL"),
            ("pkcs11:slot-id=0x1", "uri: slot-id is not a number"),
            ("pkcs11:slot-id=+1", "uri: slot-id is not a number"),
            ("pkcs11:slot-id=99999999999999999999", "uri: slot-id is not a number"),
            ("pkcs11:type=data", "uri: type names no certificate and no key pair"),
            ("pkcs11:slot-description=a", "uri: slot-description is not known here"),
            ("pkcs11:library-version=3", "uri: library-version is not known here"),
            ("pkcs11:x-vendor=a", "uri: x-vendor is not known here"),
            ("pkcs11:pin-value=1234", "uri: pin-value is not known here"),
            ("pkcs11:token=a?id=%01", "uri: id is not known here"),
            ("pkcs11:?module-name=a", "uri: module-name is not known here"),
            ("pkcs11:token=a; id=%01", "uri has a blank or a line end in it"),
            ("pkcs11:token=a;\n  id=%01", "uri has a blank or a line end in it"),
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
        assert_eq!(uri.get(PIN_VALUE), Some("1234"));
    }

    /// As p11tool prints what a TPM says of itself.
    #[test]
    fn padding_is_none_of_a_tokens_text_which_can_be_empty() {
        for (uri, same) in [
            (
                "pkcs11:model=SLB9672%00%00%00;serial=%20%20;token=val%00%20",
                "pkcs11:token=val;model=SLB9672;serial=",
            ),
            ("pkcs11:token=;manufacturer=", "pkcs11:token=;manufacturer="),
        ] {
            assert_eq!(shown(uri), same);
            assert_eq!(shown(same), same);
        }
    }

    proptest! {
        #[test]
        fn what_is_printed_is_read_as_the_same(
            texts in prop::array::uniform5(prop::option::of("[^\0]{1,20}")),
            slot_id: Option<u64>,
            id in prop::option::of(prop::collection::vec(any::<u8>(), 1..20)),
        ) {
            let [token, manufacturer, serial, object, path] = texts;
            let uri = Uri::of([
                ("token", token),
                ("manufacturer", manufacturer),
                ("serial", serial),
                ("slot-id", slot_id.map(|number| number.to_string())),
                ("id", id.map(|bytes| ObjectId::from_bytes(bytes).to_string())),
                ("object", object),
                ("module-path", path),
            ]);
            prop_assert_eq!(Uri::parse(&uri.to_string()).ok().unwrap().0, uri.0);
        }

        #[test]
        fn nothing_makes_it_panic(text in "(pkcs11:)?[-a-z%0-9=;&? ö]{0,60}") {
            let _ = Uri::parse(&text);
        }
    }
}
