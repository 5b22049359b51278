//! What a kubeconfig is made of: JSON's values, whose texts are wiped when they are dropped.

use std::collections::BTreeMap;
use std::io;

use serde::ser::{Serialize, Serializer};
use serde_json::ser::Formatter;
use zeroize::Zeroizing;

use super::scalar;

/// An object's members; their order says nothing.
pub(super) type Object = BTreeMap<String, Value>;

/// A value. No `Debug`, no `Clone`: it can be a PIN or a key.
pub(super) enum Value {
    Null,
    Flag(bool),
    /// As it was written, since `02` can be meant as a text.
    Number(Zeroizing<String>),
    Text(Zeroizing<String>),
    List(Vec<Self>),
    Object(Object),
}

/// How much a value is, its copies included.
#[derive(Clone, Copy, Default)]
pub(super) struct Weight {
    pub(super) nodes: usize,
    /// Of all texts.
    pub(super) bytes: usize,
    /// 0 for a scalar.
    pub(super) depth: usize,
}

impl Value {
    pub(super) fn text(text: impl Into<String>) -> Self {
        Self::Text(Zeroizing::new(text.into()))
    }

    pub(super) fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    pub(super) fn as_object(&self) -> Option<&Object> {
        match self {
            Self::Object(object) => Some(object),
            _ => None,
        }
    }

    pub(super) fn duplicate(&self) -> Self {
        match self {
            Self::Null => Self::Null,
            Self::Flag(flag) => Self::Flag(*flag),
            Self::Number(text) => Self::Number(text.clone()),
            Self::Text(text) => Self::Text(text.clone()),
            Self::List(items) => Self::List(items.iter().map(Self::duplicate).collect()),
            Self::Object(object) => Self::Object(duplicate(object)),
        }
    }

    pub(super) fn weight(&self) -> Weight {
        let inside = |children: &mut dyn Iterator<Item = (usize, &Self)>| {
            let empty = Weight {
                nodes: 1,
                bytes: 0,
                depth: 1,
            };
            children.fold(empty, |sum, (key, child)| {
                let child = child.weight();
                Weight {
                    nodes: sum.nodes.saturating_add(child.nodes),
                    bytes: sum.bytes.saturating_add(child.bytes).saturating_add(key),
                    depth: sum.depth.max(child.depth + 1),
                }
            })
        };
        match self {
            Self::Null | Self::Flag(_) => Weight {
                nodes: 1,
                ..Weight::default()
            },
            Self::Number(text) | Self::Text(text) => Weight {
                nodes: 1,
                bytes: text.len(),
                depth: 0,
            },
            Self::List(items) => inside(&mut items.iter().map(|item| (0, item))),
            Self::Object(object) => {
                inside(&mut object.iter().map(|(key, value)| (key.len(), value)))
            }
        }
    }
}

/// A second copy, wiped like the first.
pub(super) fn duplicate(object: &Object) -> Object {
    object
        .iter()
        .map(|(key, value)| (key.clone(), value.duplicate()))
        .collect()
}

/// The object under `key`; made where there is none.
pub(super) fn object_at<'a>(object: &'a mut Object, key: &str) -> Option<&'a mut Object> {
    let value = object.entry(key.to_owned()).or_insert(Value::Null);
    if matches!(value, Value::Null) {
        *value = Value::Object(Object::new());
    }
    match value {
        Value::Object(object) => Some(object),
        _ => None,
    }
}

/// The text under `key`; empty where there is none, which kubectl takes for the same.
pub(super) fn text_at<'a>(object: &'a Object, key: &str) -> &'a str {
    object.get(key).and_then(Value::as_text).unwrap_or_default()
}

/// As JSON, in one buffer of the right size: a growing one would leave pieces behind.
pub(super) fn json(value: &impl Serialize) -> Zeroizing<String> {
    let mut length = Length(0);
    let mut bytes = Vec::new();
    // Neither writer fails, and every key is a text.
    if write(&mut length, value).is_ok() {
        bytes.reserve_exact(length.0);
        let _ = write(&mut bytes, value);
    }
    Zeroizing::new(String::from_utf8(bytes).unwrap_or_default())
}

fn write(writer: impl io::Write, value: &impl Serialize) -> serde_json::Result<()> {
    let mut serializer = serde_json::Serializer::with_formatter(writer, ForYaml);
    value.serialize(&mut serializer)
}

/// JSON that says the same to kubectl, which reads it as YAML 1.1.
struct ForYaml;

impl Formatter for ForYaml {
    fn write_string_fragment<W: ?Sized + io::Write>(
        &mut self,
        writer: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        let mut rest = fragment;
        while let Some(place) = rest.find(is_unfit_for_yaml) {
            let (before, from_there) = rest.split_at(place);
            let mut characters = from_there.chars();
            let unfit = characters.next().map_or(0, u32::from);
            write!(writer, "{before}\\u{unfit:04x}")?;
            rest = characters.as_str();
        }
        writer.write_all(rest.as_bytes())
    }
}

/// What JSON takes as it is, and go.yaml.in/yaml/v2 refuses (readerc.go) or takes for a line break.
fn is_unfit_for_yaml(character: char) -> bool {
    matches!(
        character,
        '\u{7f}'..='\u{9f}' | '\u{2028}' | '\u{2029}' | '\u{fffe}' | '\u{ffff}'
    )
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Null => serializer.serialize_unit(),
            Self::Flag(flag) => serializer.serialize_bool(*flag),
            Self::Number(text) => scalar::number(text).serialize(serializer),
            Self::Text(text) => serializer.serialize_str(text),
            Self::List(items) => serializer.collect_seq(items),
            Self::Object(object) => serializer.collect_map(object),
        }
    }
}

/// Counts what is written.
struct Length(usize);

impl io::Write for Length {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
