//! A kubeconfig as JSON that says the same to kubectl, which reads it as YAML 1.1.

use std::io;

use serde::Serialize;
use serde_json::Value;
use serde_json::ser::Formatter;

/// Where kubectl's own fields are, of which those that aren't given are null.
const TYPED: [&str; 10] = [
    "auth-provider",
    "cluster",
    "clusters",
    "context",
    "contexts",
    "env",
    "exec",
    "preferences",
    "user",
    "users",
];

/// The data without fields that aren't given.
pub(super) fn value(data: &impl Serialize) -> Value {
    // Every key is a text, so nothing fails.
    let mut value = serde_json::to_value(data).unwrap_or_default();
    remove_nulls(&mut value);
    value
}

fn remove_nulls(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.retain(|_, member| !member.is_null());
            let typed = members.iter_mut().filter(|(key, _)| TYPED.contains(&key.as_str()));
            typed.for_each(|(_, member)| remove_nulls(member));
        }
        Value::Array(items) => items.iter_mut().for_each(remove_nulls),
        _ => {}
    }
}

/// The value as JSON without spaces.
pub(super) fn text(value: &impl Serialize) -> String {
    let mut bytes = Vec::new();
    let mut serializer = serde_json::Serializer::with_formatter(&mut bytes, ForYaml);
    // The writer doesn't fail, and every key is a text.
    let _ = value.serialize(&mut serializer);
    String::from_utf8(bytes).unwrap_or_default()
}

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
    matches!(character, '\u{7f}'..='\u{9f}' | '\u{2028}' | '\u{2029}' | '\u{fffe}' | '\u{ffff}')
}
