//! Which types the fields of a kubeconfig have (client-go, tools/clientcmd/api/v1, types.go).
//!
//! A file with a field of another type is refused as kubectl refuses it. `null` goes everywhere and
//! is the same as no field; fields that aren't listed can be anything.

use std::collections::HashSet;

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use zeroize::Zeroizing;

use super::value::{Object, Value, text_at};
use crate::printable::excerpt;

/// A field, and what is expected of it; or else an entry that is there more than once.
pub(super) struct Fault {
    pub(super) field: String,
    pub(super) expected: Option<&'static str>,
}

/// Of a whole file. Values of `auth-provider.config` become texts where that can't change what was
/// meant.
pub(super) fn check(config: &mut Object) -> Result<(), Fault> {
    members(config, CONFIG, "")
}

/// As Go decodes it: padded, line breaks passed over, the last bits not looked at.
pub(super) fn base64(text: &str) -> Option<Zeroizing<Vec<u8>>> {
    const LENIENT: GeneralPurpose = GeneralPurpose::new(
        &alphabet::STANDARD,
        GeneralPurposeConfig::new()
            .with_decode_allow_trailing_bits(true)
            .with_decode_padding_mode(DecodePaddingMode::RequireCanonical),
    );
    let folded = Zeroizing::new(text.replace(['\r', '\n'], ""));
    LENIENT.decode(folded.as_bytes()).ok().map(Zeroizing::new)
}

enum Shape {
    /// Base64.
    Bytes,
    /// Of an auth provider: every value a text.
    Configuration,
    Each(&'static Self),
    Flag,
    /// A list of objects told apart by `name`; how errors call one of them, and its fields.
    Named(&'static str, Fields),
    Object(Fields),
    Text,
    Values(&'static Self),
}

type Fields = &'static [(&'static str, Shape)];

const EXTENSIONS: Shape = Shape::Named("extension", &[("name", Shape::Text)]);

const CONFIG: Fields = &[
    ("apiVersion", Shape::Text),
    ("kind", Shape::Text),
    (
        "preferences",
        Shape::Object(&[("colors", Shape::Flag), ("extensions", EXTENSIONS)]),
    ),
    (
        "clusters",
        Shape::Named(
            "cluster",
            &[("name", Shape::Text), ("cluster", Shape::Object(CLUSTER))],
        ),
    ),
    (
        "users",
        Shape::Named(
            "user",
            &[("name", Shape::Text), ("user", Shape::Object(USER))],
        ),
    ),
    (
        "contexts",
        Shape::Named(
            "context",
            &[("name", Shape::Text), ("context", Shape::Object(CONTEXT))],
        ),
    ),
    ("current-context", Shape::Text),
    ("extensions", EXTENSIONS),
];

const CLUSTER: Fields = &[
    ("server", Shape::Text),
    ("tls-server-name", Shape::Text),
    ("insecure-skip-tls-verify", Shape::Flag),
    ("certificate-authority", Shape::Text),
    ("certificate-authority-data", Shape::Bytes),
    ("proxy-url", Shape::Text),
    ("disable-compression", Shape::Flag),
    ("extensions", EXTENSIONS),
];

const USER: Fields = &[
    ("client-certificate", Shape::Text),
    ("client-certificate-data", Shape::Bytes),
    ("client-key", Shape::Text),
    ("client-key-data", Shape::Bytes),
    ("token", Shape::Text),
    ("tokenFile", Shape::Text),
    ("as", Shape::Text),
    ("as-uid", Shape::Text),
    ("as-groups", Shape::Each(&Shape::Text)),
    ("as-user-extra", Shape::Values(&Shape::Each(&Shape::Text))),
    ("username", Shape::Text),
    ("password", Shape::Text),
    (
        "auth-provider",
        Shape::Object(&[("name", Shape::Text), ("config", Shape::Configuration)]),
    ),
    ("exec", Shape::Object(EXEC)),
    ("extensions", EXTENSIONS),
];

const EXEC: Fields = &[
    ("command", Shape::Text),
    ("args", Shape::Each(&Shape::Text)),
    (
        "env",
        Shape::Each(&Shape::Object(&[
            ("name", Shape::Text),
            ("value", Shape::Text),
        ])),
    ),
    ("apiVersion", Shape::Text),
    ("installHint", Shape::Text),
    ("provideClusterInfo", Shape::Flag),
    ("interactiveMode", Shape::Text),
];

const CONTEXT: Fields = &[
    ("cluster", Shape::Text),
    ("user", Shape::Text),
    ("namespace", Shape::Text),
    ("extensions", EXTENSIONS),
];

impl Shape {
    /// `field` is the value's own name.
    fn check(&self, value: &mut Value, field: &str) -> Result<(), Fault> {
        let expected = match (self, value) {
            (_, Value::Null) => return Ok(()),
            (Self::Text, Value::Text(_)) | (Self::Flag, Value::Flag(_)) => return Ok(()),
            (Self::Bytes, Value::Text(text)) if base64(text).is_some() => return Ok(()),
            (Self::Object(fields), Value::Object(object)) => return members(object, fields, field),
            (Self::Configuration, Value::Object(object)) => return configuration(object, field),
            (Self::Each(shape), Value::List(items)) => {
                return items
                    .iter_mut()
                    .enumerate()
                    .try_for_each(|(index, item)| shape.check(item, &format!("{field}[{index}]")));
            }
            (Self::Values(shape), Value::Object(object)) => {
                return object
                    .iter_mut()
                    .try_for_each(|(key, item)| shape.check(item, &inside(field, key)));
            }
            (Self::Named(kind, fields), Value::List(items)) => {
                return named(items, kind, fields, field);
            }
            (Self::Text, _) => "a text",
            (Self::Flag, _) => "true or false",
            (Self::Bytes, _) => "base64",
            (Self::Object(_) | Self::Configuration | Self::Values(_), _) => "an object",
            (Self::Each(_) | Self::Named(..), _) => "a list",
        };
        Err(Fault {
            field: field.to_owned(),
            expected: Some(expected),
        })
    }
}

fn members(object: &mut Object, fields: Fields, field: &str) -> Result<(), Fault> {
    fields.iter().try_for_each(|(key, shape)| {
        object
            .get_mut(*key)
            .map_or(Ok(()), |value| shape.check(value, &inside(field, key)))
    })
}

fn named(items: &mut [Value], kind: &str, fields: Fields, field: &str) -> Result<(), Fault> {
    let mut names = HashSet::new();
    for (index, item) in items.iter_mut().enumerate() {
        let fault = |field, expected| {
            let expected = Some(expected);
            Err(Fault { field, expected })
        };
        if matches!(item, Value::Null) {
            *item = Value::Object(Object::new());
        }
        let Value::Object(object) = item else {
            return fault(format!("{field}[{index}]"), "an object");
        };
        if !matches!(
            object.get("name"),
            None | Some(Value::Null | Value::Text(_))
        ) {
            return fault(format!("{field}[{index}].name"), "a text");
        }
        let name = text_at(object, "name").to_owned();
        let called = match field.rsplit_once(", ") {
            Some((outer, _)) => format!("{outer}, {kind} \"{}\"", excerpt(&name)),
            None => format!("{kind} \"{}\"", excerpt(&name)),
        };
        // The entry's content stands under its kind, which would be said twice.
        for (key, shape) in fields.iter().filter(|(key, _)| *key != "name") {
            if let Some(value) = object.get_mut(*key) {
                match shape {
                    Shape::Object(fields) if *key == kind => match value {
                        Value::Object(content) => members(content, fields, &called)?,
                        value => shape.check(value, &called)?,
                    },
                    _ => shape.check(value, &inside(&called, key))?,
                }
            }
        }
        if !names.insert(name) {
            return Err(Fault {
                field: called,
                expected: None,
            });
        }
    }
    Ok(())
}

/// kubectl takes nothing but texts here, and would stop at `slotId: 0`. A number that is written as
/// every program writes it can mean one thing only and becomes a text; `02` or `yes` can't.
fn configuration(object: &mut Object, field: &str) -> Result<(), Fault> {
    for (key, value) in object {
        let text = match value {
            Value::Text(_) => continue,
            Value::Null => Zeroizing::new(String::new()),
            Value::Number(number)
                if number.bytes().all(|byte| byte.is_ascii_digit())
                    && (!number.starts_with('0') || number.len() == 1) =>
            {
                number.clone()
            }
            _ => {
                return Err(Fault {
                    field: inside(field, key),
                    expected: Some("a text"),
                });
            }
        };
        *value = Value::Text(text);
    }
    Ok(())
}

/// `user "jane", exec.command`, or `current-context` at the outermost.
fn inside(field: &str, key: &str) -> String {
    let key = excerpt(key);
    if field.is_empty() {
        key
    } else if field.ends_with('"') {
        format!("{field}, {key}")
    } else {
        format!("{field}.{key}")
    }
}

#[cfg(test)]
mod tests {
    use super::super::yaml;
    use super::*;

    fn fault(text: &str) -> String {
        let Ok(Value::Object(mut object)) = yaml::parse(text) else {
            panic!("{text}");
        };
        match check(&mut object) {
            Ok(()) => super::super::value::json(&object).to_string(),
            Err(fault) => match fault.expected {
                Some(expected) => format!("{} is not {expected}", fault.field),
                None => format!("{} is there twice", fault.field),
            },
        }
    }

    #[test]
    fn a_wrong_type_is_named_with_its_entry_and_without_its_value() {
        for (text, expected) in [
            ("current-context: 5", "current-context is not a text"),
            ("clusters: {}", "clusters is not a list"),
            ("clusters: [5]", "clusters[0] is not an object"),
            ("clusters: [{name: 5}]", "clusters[0].name is not a text"),
            (
                "clusters: [{name: a, cluster: {insecure-skip-tls-verify: 1}}]",
                "cluster \"a\", insecure-skip-tls-verify is not true or false",
            ),
            (
                "clusters: [{name: a, cluster: 5}]",
                "cluster \"a\" is not an object",
            ),
            (
                "clusters: [{name: a}, {name: a}]",
                "cluster \"a\" is there twice",
            ),
            (
                "users: [{name: j, user: {auth-provider: {config: {pin: 012}}}}]",
                "user \"j\", auth-provider.config.pin is not a text",
            ),
            (
                "users: [{name: j, user: {auth-provider: {config: {a: yes}}}}]",
                "user \"j\", auth-provider.config.a is not a text",
            ),
            (
                "users: [{name: j, user: {auth-provider: {config: {a: [b]}}}}]",
                "user \"j\", auth-provider.config.a is not a text",
            ),
            (
                "users: [{name: j, user: {exec: {env: [{name: 1}]}}}]",
                "user \"j\", exec.env[0].name is not a text",
            ),
            (
                "users: [{name: j, user: {client-key-data: secret}}]",
                "user \"j\", client-key-data is not base64",
            ),
            (
                "users: [{name: j, user: {extensions: [{name: e}, {name: e}]}}]",
                "user \"j\", extension \"e\" is there twice",
            ),
        ] {
            assert_eq!(fault(text), expected, "{text}");
        }
    }

    #[test]
    fn what_can_mean_one_thing_only_becomes_a_text() {
        assert_eq!(
            fault(
                "users: [{name: j, user: {auth-provider: {config: {slotId: 0, pin: 123456, x: }}}}]"
            ),
            r#"{"users":[{"name":"j","user":{"auth-provider":{"config":{"pin":"123456","slotId":"0","x":""}}}}]}"#
        );
    }

    #[test]
    fn null_and_what_is_not_listed_pass() {
        let text = "clusters:\nusers: [null]\ncontexts: []\nfoo: [1]\npreferences: {bar: 2}";
        assert!(fault(text).starts_with('{'), "{}", fault(text));
    }
}
