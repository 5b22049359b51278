//! YAML nodes as serde's data: types as YAML 1.1 has them, merge keys, and errors that name the
//! place of a value and never quote it.

use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;

use serde::de::value::{MapDeserializer, SeqDeserializer};
use serde::de::{self, Deserializer, Expected, IntoDeserializer, Unexpected, Visitor};
use serde::forward_to_deserialize_any;
use serde_json::Value;
use serde_path_to_error::{Path, Segment};

use super::scalar;
use super::yaml::{Content, Node};
use crate::printable::excerpt;

/// Characters of a key in JSON, quotes included: what is written from here is JSON, and YAML reads
/// no longer key of it (YAML 1.2, section 7.4.2).
const MAX_KEY: usize = 1024;

/// What is wrong, and where.
#[derive(Debug)]
pub(super) struct YamlError {
    /// From 1; 0 until it is known.
    pub(super) line: usize,
    /// As `users["jane"].user.token`; empty for the whole document.
    pub(super) field: String,
    pub(super) reason: Reason,
}

#[derive(Debug)]
pub(super) enum Reason {
    Malformed(String),
    /// The value has another type than this one.
    Expected(String),
}

impl YamlError {
    pub(super) fn malformed(line: usize, reason: impl Into<String>) -> Self {
        Self { line, field: String::new(), reason: Reason::Malformed(reason.into()) }
    }
}

/// Serde's own texts would quote the value, which can be a PIN.
impl de::Error for YamlError {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self::malformed(0, message.to_string())
    }

    fn invalid_type(_: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self { line: 0, field: String::new(), reason: Reason::Expected(expected.to_string()) }
    }

    fn invalid_value(unexpected: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::invalid_type(unexpected, expected)
    }
}

impl std::error::Error for YamlError {}

impl fmt::Display for YamlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.reason)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(reason) => f.write_str(reason),
            Self::Expected(expected) => write!(f, "is not {expected}"),
        }
    }
}

/// The data of a node.
///
/// # Errors
///
/// The node or something in it has another type than `T` wants.
pub(super) fn from_node<'de, T: de::Deserialize<'de>>(node: &'de Node) -> Result<T, YamlError> {
    serde_path_to_error::deserialize(node).map_err(|error| {
        let field = described(error.path(), node);
        YamlError { field, ..error.into_inner() }
    })
}

/// `users["jane"].user.token`: elements by their names, where they have one.
fn described(path: &Path, root: &Node) -> String {
    let mut text = String::new();
    let mut node = Some(root);
    for segment in path.iter() {
        let name = match segment {
            Segment::Seq { index } => {
                node = node.and_then(|node| node.items().get(*index)).map(Rc::as_ref);
                node.and_then(|node| node.member("name")?.text())
            }
            Segment::Map { key } => {
                node = node.and_then(|node| node.member(key));
                text.push_str(if text.is_empty() { "" } else { "." });
                None
            }
            _ => None,
        };
        text += &name.map_or_else(
            || excerpt(&segment.to_string()),
            |name| format!("[\"{}\"]", excerpt(name)),
        );
    }
    text
}

impl<'de> IntoDeserializer<'de, YamlError> for &'de Node {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'de> Deserializer<'de> for &'de Node {
    type Error = YamlError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, YamlError> {
        let read = match self.resolved() {
            Content::List(items) => {
                visitor.visit_seq(SeqDeserializer::new(items.iter().map(Rc::as_ref)))
            }
            Content::Map(members) => merged(members)
                .and_then(|members| visitor.visit_map(MapDeserializer::new(members.into_iter()))),
            Content::Scalar { .. } | Content::Alias(_) => match value(self)? {
                Value::Bool(flag) => visitor.visit_bool(flag),
                Value::Number(number) => match (number.as_u64(), number.as_i64()) {
                    (Some(number), _) => visitor.visit_u64(number),
                    (None, Some(number)) => visitor.visit_i64(number),
                    (None, None) => visitor.visit_f64(number.as_f64().unwrap_or_default()),
                },
                Value::String(text) => visitor.visit_string(text),
                _ => visitor.visit_unit(),
            },
        };
        read.map_err(|error| match error.line {
            0 => YamlError { line: self.line, ..error },
            _ => error,
        })
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, YamlError> {
        match value(self)? {
            Value::Null if matches!(self.resolved(), Content::Scalar { .. }) => {
                visitor.visit_none()
            }
            _ => visitor.visit_some(self),
        }
    }

    /// The one newtype among a kubeconfig's types is a value of `auth-provider.config`.
    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, YamlError> {
        visitor.visit_newtype_struct(ConfigurationText(self))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit
        unit_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

/// kubectl takes nothing but texts there, and would stop at `slotId: 0`. A number that is written as
/// every program writes it can mean one thing only and becomes a text; `02` or `yes` can't.
struct ConfigurationText<'de>(&'de Node);

impl<'de> Deserializer<'de> for ConfigurationText<'de> {
    type Error = YamlError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, YamlError> {
        match (self.0.resolved(), value(self.0)?) {
            (Content::Scalar { .. }, Value::Null) => visitor.visit_str(""),
            (Content::Scalar { text, .. }, Value::Number(_))
                if text.bytes().all(|byte| byte.is_ascii_digit())
                    && (!text.starts_with('0') || text.len() == 1) =>
            {
                visitor.visit_str(text)
            }
            _ => self.0.deserialize_any(visitor),
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option
        unit unit_struct newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

/// A scalar's value; null for a list and a map.
fn value(node: &Node) -> Result<Value, YamlError> {
    match node.resolved() {
        Content::Scalar { text, is_plain, tag } => scalar::resolve(text, *is_plain, tag)
            .map_err(|reason| YamlError::malformed(node.line, reason)),
        _ => Ok(Value::Null),
    }
}

/// The members of a map by their names; the last of several with one name counts, as in kubectl.
fn merged(members: &[(Rc<Node>, Rc<Node>)]) -> Result<BTreeMap<String, &Node>, YamlError> {
    let mut all = BTreeMap::new();
    for (key, value) in members {
        if is_merge(key) {
            merge(&mut all, value)?;
        } else {
            all.insert(name(key)?, &**value);
        }
    }
    Ok(all)
}

/// `<<`: the members of its value become members of the map.
fn is_merge(key: &Node) -> bool {
    match &key.content {
        Content::Scalar { text, is_plain, tag } => {
            text == "<<" && (*is_plain && tag.is_empty() || tag == "tag:yaml.org,2002:merge")
        }
        _ => false,
    }
}

/// Members that come by `<<` replace those before it and give way to those after it; of several
/// maps the first wins.
fn merge<'de>(all: &mut BTreeMap<String, &'de Node>, source: &'de Node) -> Result<(), YamlError> {
    let sources = match source.resolved() {
        Content::List(items) => items.iter().rev().map(Rc::as_ref).collect(),
        _ => vec![source],
    };
    for source in sources {
        let Content::Map(members) = source.resolved() else {
            let reason = "what << names is not a map";
            return Err(YamlError::malformed(source.line, reason));
        };
        all.append(&mut merged(members)?);
    }
    Ok(())
}

/// A key as JSON has it.
fn name(key: &Node) -> Result<String, YamlError> {
    let malformed = |reason| YamlError::malformed(key.line, reason);
    let name = match value(key)? {
        Value::String(text) => text,
        Value::Number(number) => number.to_string(),
        Value::Bool(flag) => flag.to_string(),
        _ => return Err(malformed("a key is not a text")),
    };
    // No character takes more than six.
    if name.len() > MAX_KEY / 8 && super::json::text(&name).chars().count() > MAX_KEY {
        return Err(malformed("a key is longer than 1024 characters"));
    }
    Ok(name)
}
