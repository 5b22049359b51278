//! kubectl's own fields of a kubeconfig (client-go, tools/clientcmd/api/v1, types.go) and their types. A field
//! of another type is refused, as kubectl refuses it; `null` is the same as no field.

use std::collections::HashSet;

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde_json::Value;

use crate::printable::excerpt;

pub(super) enum Shape {
    Any,
    Text,
    Flag,
    Base64,
    List(&'static Self),
    /// A list whose elements are distinguished by their names.
    Named(&'static Self),
    Map(&'static [(&'static str, Self)]),
    /// A map with any keys.
    Each(&'static Self),
}

use Shape::{Any, Base64, Each, Flag, List, Map, Named, Text};

const TEXTS: Shape = List(&Text);
const EXTENSIONS: Shape = Named(&Map(&[("name", Text), ("extension", Any)]));

pub(super) const KUBECONFIG: Shape = Map(&[
    ("apiVersion", Text),
    ("kind", Text),
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

impl Shape {
    /// What the first value that is of another type is not: `users["jane"].user.token is not a string`. The whole stands
    /// `at` a field, or at none.
    pub(super) fn misfit(&self, at: &str, value: &Value) -> Option<String> {
        let expected = match (self, value) {
            (Any, _) | (_, Value::Null) | (Text, Value::String(_)) | (Flag, Value::Bool(_)) => {
                return None;
            }
            (Base64, Value::String(text)) if decode_base64(text).is_some() => return None,
            (List(shape) | Named(shape), Value::Array(items)) => {
                let mut names = HashSet::new();
                return items.iter().enumerate().find_map(|(index, item)| {
                    let name = item["name"].as_str();
                    let step = name.map_or_else(
                        || format!("{at}[{index}]"),
                        |name| format!("{at}[\"{}\"]", excerpt(name)),
                    );
                    match names.insert(name) || matches!(self, List(_)) {
                        true => shape.misfit(&step, item),
                        false => Some(format!("{step} is not the only one of its name")),
                    }
                });
            }
            (Map(fields), Value::Object(members)) => {
                return fields.iter().find_map(|(name, shape)| {
                    shape.misfit(&member(at, name), members.get(*name)?)
                });
            }
            (Each(shape), Value::Object(members)) => {
                return members
                    .iter()
                    .find_map(|(name, value)| shape.misfit(&member(at, &excerpt(name)), value));
            }
            (Base64, Value::String(_)) => "base64",
            (Text | Base64, _) => "a string",
            (Flag, _) => "a boolean",
            (List(_) | Named(_), _) => "a list",
            (Map(_) | Each(_), _) => "a map",
        };
        Some(format!("{} is not {expected}", if at.is_empty() { "it" } else { at }))
    }
}

fn member(at: &str, name: &str) -> String {
    format!("{at}.{name}").trim_start_matches('.').to_owned()
}

/// As Go decodes it: padded, line breaks passed over, the last bits not looked at.
pub(super) fn decode_base64(text: &str) -> Option<Vec<u8>> {
    const LENIENT: GeneralPurpose = GeneralPurpose::new(
        &alphabet::STANDARD,
        GeneralPurposeConfig::new()
            .with_decode_allow_trailing_bits(true)
            .with_decode_padding_mode(DecodePaddingMode::RequireCanonical),
    );
    LENIENT.decode(text.replace(['\r', '\n'], "")).ok()
}
