//! kubectl's own fields of a kubeconfig (client-go, tools/clientcmd/api/v1, types.go) and their types. A field
//! of another type is refused, as kubectl refuses it; `null` is the same as no field.

use std::collections::HashSet;
use std::fmt;

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde_json::Value;

use messages::printable::excerpt;

/// The type of a field.
pub(super) enum Shape {
    Any,
    Text,
    /// Exactly this text, or an empty one.
    Only(&'static str),
    Flag,
    Integer,
    Base64,
    List(&'static Self),
    /// A list whose elements are told apart by their names.
    Named(&'static Self),
    Map(&'static [(&'static str, Self)]),
    /// A map with any keys.
    Each(&'static Self),
}

use Shape::{Any, Base64, Each, Flag, Integer, List, Map, Named, Only, Text};

const TEXTS: Shape = List(&Text);
const EXTENSIONS: Shape = Named(&Map(&[("name", Text), ("extension", Any)]));

pub(super) const KUBECONFIG: Shape = Map(&[
    ("apiVersion", Only("v1")),
    ("kind", Only("Config")),
    ("preferences", Map(&[("colors", Flag), ("extensions", EXTENSIONS)])),
    ("clusters", Named(&Map(&[("name", Text), ("cluster", CLUSTER)]))),
    ("users", Named(&Map(&[("name", Text), ("user", USER)]))),
    ("contexts", Named(&Map(&[("name", Text), ("context", CONTEXT)]))),
    ("current-context", Text),
    ("extensions", EXTENSIONS),
]);

pub(super) const CLUSTER: Shape = Map(&[
    ("server", Text),
    ("tls-server-name", Text),
    ("insecure-skip-tls-verify", Flag),
    ("certificate-authority", Text),
    ("certificate-authority-data", Base64),
    ("proxy-url", Text),
    ("disable-compression", Flag),
    ("min-connection-pool-size", Integer),
    ("extensions", EXTENSIONS),
]);

const USER: Shape = Map(&[
    ("client-certificate", Text),
    ("client-certificate-data", Base64),
    ("client-key", Text),
    ("client-key-data", Base64),
    ("token", Text),
    ("tokenFile", Text),
    ("as", Text),
    ("as-uid", Text),
    ("as-groups", TEXTS),
    ("as-user-extra", Each(&TEXTS)),
    ("username", Text),
    ("password", Text),
    ("auth-provider", Map(&[("name", Text), ("config", Each(&Text))])),
    ("exec", EXEC),
    ("extensions", EXTENSIONS),
]);

const EXEC: Shape = Map(&[
    ("command", Text),
    ("args", TEXTS),
    ("env", List(&Map(&[("name", Text), ("value", Text)]))),
    ("apiVersion", Text),
    ("installHint", Text),
    ("provideClusterInfo", Flag),
    ("interactiveMode", Text),
]);

const CONTEXT: Shape =
    Map(&[("cluster", Text), ("user", Text), ("namespace", Text), ("extensions", EXTENSIONS)]);

/// A step on the path to a value.
pub(super) enum PathStep {
    Member(String),
    Item { index: usize, name: Option<String> },
}

/// The type that a value doesn't have, and the path to the value.
pub(super) struct Misfit {
    pub(super) path: Vec<PathStep>,
    pub(super) expected: &'static str,
}

/// Says what is wrong, as in `users["jane"].user.auth-provider.config.pin is not a string`.
impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let field: String = self.path.iter().map(PathStep::to_string).collect();
        let field = if field.is_empty() { "it" } else { field.trim_start_matches('.') };
        write!(f, "{field} is not {}", self.expected)
    }
}

impl fmt::Display for PathStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Member(name) => write!(f, ".{}", excerpt(name)),
            Self::Item { name: Some(name), .. } => write!(f, "[\"{}\"]", excerpt(name)),
            Self::Item { index, .. } => write!(f, "[{index}]"),
        }
    }
}

impl Shape {
    /// The first value that has another type than this.
    pub(super) fn misfit(&self, value: &Value) -> Option<Misfit> {
        let mut path = Vec::new();
        let expected = self.look(value, &mut path)?;
        path.reverse();
        Some(Misfit { path, expected })
    }

    /// What is expected of the first wrong value. `path` gets the steps to it, the last one first.
    fn look(&self, value: &Value, path: &mut Vec<PathStep>) -> Option<&'static str> {
        match (self, value) {
            (Any, _) | (_, Value::Null) | (Text, Value::String(_)) | (Flag, Value::Bool(_)) => None,
            (Only(wanted), Value::String(text)) => {
                (!text.is_empty() && text != wanted).then_some(*wanted)
            }
            (Integer, Value::Number(number)) => number.as_i64().is_none().then_some("an integer"),
            (Base64, Value::String(text)) => decode_base64(text).is_none().then_some("base64"),
            (List(shape), Value::Array(items)) => shape.look_at_items(items, false, path),
            (Named(shape), Value::Array(items)) => shape.look_at_items(items, true, path),
            (Map(fields), Value::Object(members)) => fields.iter().find_map(|(name, shape)| {
                let expected = shape.look(members.get(*name)?, path);
                expected.inspect(|_| path.push(PathStep::Member((*name).to_owned())))
            }),
            (Each(shape), Value::Object(members)) => members.iter().find_map(|(name, value)| {
                shape.look(value, path).inspect(|_| path.push(PathStep::Member(name.clone())))
            }),
            (Text | Only(_) | Base64, _) => Some("a string"),
            (Flag, _) => Some("a boolean"),
            (Integer, _) => Some("an integer"),
            (List(_) | Named(_), _) => Some("a list"),
            (Map(_) | Each(_), _) => Some("a map"),
        }
    }
}

impl Shape {
    /// Looks at the items of a list: one must not have another shape, nor with `by_name` the name of an earlier one.
    fn look_at_items(
        &self,
        items: &[Value],
        by_name: bool,
        path: &mut Vec<PathStep>,
    ) -> Option<&'static str> {
        let mut names = HashSet::new();
        for (index, item) in items.iter().enumerate() {
            let name = item["name"].as_str();
            let is_repeated = by_name && !names.insert(name);
            let expected =
                if is_repeated { Some("the only one of its name") } else { self.look(item, path) };
            if expected.is_some() {
                path.push(PathStep::Item { index, name: name.map(str::to_owned) });
                return expected;
            }
        }
        None
    }
}

/// Decodes base64 as Go does: it is padded, line breaks are passed over, and the last bits don't matter.
pub(super) fn decode_base64(text: &str) -> Option<Vec<u8>> {
    const LENIENT: GeneralPurpose = GeneralPurpose::new(
        &alphabet::STANDARD,
        GeneralPurposeConfig::new()
            .with_decode_allow_trailing_bits(true)
            .with_decode_padding_mode(DecodePaddingMode::RequireCanonical),
    );
    LENIENT.decode(text.replace(['\r', '\n'], "")).ok()
}
