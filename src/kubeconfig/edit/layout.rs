//! How entries are written into a kubeconfig: in block style, in an order that people read them in, and
//! with comments.

use std::fmt::Write as _;

use serde_json::{Map, Value};

use super::super::json;
use super::provider_config::CONFIG;
use crate::printable::{is_harmful, printable};

/// Members come in this order, then others, then those of [`LAST`].
const ORDER: [&str; 37] = [
    "plugin",
    "name",
    "clusters",
    "cluster",
    "server",
    "tls-server-name",
    "certificate-authority",
    "certificate-authority-data",
    "insecure-skip-tls-verify",
    "proxy-url",
    "users",
    "user",
    "apiVersion",
    "command",
    "args",
    "env",
    "interactiveMode",
    "provideClusterInfo",
    "installHint",
    "contexts",
    "context",
    "namespace",
    "pathExec",
    "pathLib",
    "initArgs",
    "tokenSerial",
    "tokenLabel",
    "slotId",
    "objectId",
    "objectLabel",
    "certificateFile",
    "pinSource",
    "keep",
    "uri",
    "pin",
    "kind",
    "preferences",
];
const LAST: [&str; 5] = ["auth-provider", "config", "exec", "extensions", "extension"];

/// The comments of what is written.
#[derive(Default)]
pub(super) struct Layout {
    comments: Vec<Comment>,
}

struct Comment {
    /// Of the value; an element of a list has no step of its own.
    path: Vec<&'static str>,
    value: String,
    text: String,
}

impl Layout {
    /// Has this value explained where it stands at this path. A comment that is there already can be
    /// about another value.
    pub(super) fn explain(&mut self, path: Vec<&'static str>, value: String, text: &str) {
        let text = text.to_owned();
        self.comments.push(Comment { path, value, text });
    }

    pub(super) fn comment(&self, path: &[&str], value: &Value) -> Option<&str> {
        let value = value.as_str()?;
        let mut comments = self.comments.iter();
        let comment = comments.find(|it| it.value == value && it.path == path)?;
        Some(&comment.text)
    }

    /// A list of a kubeconfig with this one entry.
    pub(super) fn excerpt(&self, list: &str, entry: &Map<String, Value>) -> String {
        format!("{list}:\n- {}\n", self.item(&[list], entry, 2))
    }

    /// A list's element behind its `- `; its further lines are indented so far.
    pub(super) fn item(&self, path: &[&str], map: &Map<String, Value>, indent: usize) -> String {
        let margin = format!("\n{}", " ".repeat(indent));
        let members = in_order(map).into_iter();
        let members =
            members.map(|(key, value)| self.member(&[path, &[key]].concat(), value, indent));
        members.collect::<Vec<_>>().join(&margin)
    }

    /// A key and its value, without the indentation and the end of the last line.
    pub(super) fn member(&self, path: &[&str], value: &Value, indent: usize) -> String {
        let key = scalar(path.last().copied().unwrap_or_default());
        format!("{key}:{}", self.value(path, value, indent))
    }

    /// What follows the colon of a key that is indented so far.
    pub(super) fn value(&self, path: &[&str], value: &Value, indent: usize) -> String {
        let margin = " ".repeat(indent);
        match value {
            Value::Object(map) if !map.is_empty() => {
                format!("\n{margin}  {}", self.item(path, map, indent + 2))
            }
            Value::Array(items) if !items.is_empty() => {
                let items = items.iter().map(|item| match item {
                    Value::Object(map) if !map.is_empty() => self.item(path, map, indent + 2),
                    Value::String(text) => self.text(path, text),
                    _ => json::text(item),
                });
                items.map(|item| format!("\n{margin}- {item}")).collect()
            }
            Value::String(text) => format!(" {}", self.text(path, text)),
            // JSON is YAML.
            _ => format!(" {}", json::text(value)),
        }
    }

    fn text(&self, path: &[&str], text: &str) -> String {
        // A serial number that begins with a letter stands in quotes like any other.
        let is_setting = path.starts_with(CONFIG) && !text.starts_with('/');
        let written = if is_setting { quoted(text) } else { scalar(text) };
        match self.comment(path, &text.into()) {
            // A comment ends with its line, even if a label has a line break.
            Some(comment) => format!("{written}   # {}", printable(comment)),
            None => written,
        }
    }
}

/// The members of a map in the order they are written in.
pub(super) fn in_order(map: &Map<String, Value>) -> Vec<(&str, &Value)> {
    let place = |key: &str| {
        let at = |list: &[&str]| list.iter().position(|it| *it == key);
        let last = at(&LAST).map_or(0, |place| place + 1);
        (last, at(&ORDER).unwrap_or(ORDER.len()))
    };
    let mut members: Vec<_> = map.iter().map(|(key, it)| (key.as_str(), it)).collect();
    members.sort_by_key(|(key, _)| place(key));
    members
}

/// A text written as the one that it replaces, which may be in quotes.
pub(super) fn like(old: &str, text: &str, is_flow: bool) -> String {
    let is_fit = !text.chars().any(is_harmful);
    if old.starts_with('\'') && is_fit {
        return format!("'{}'", text.replace('\'', "''"));
    }
    // JSON's escapes are not all of YAML's.
    let is_word = !old.is_empty() && !old.starts_with('"') && is_plain(text);
    match is_flow {
        true if !is_word || text.contains(':') => json::text(&text),
        _ if is_word || !old.starts_with('"') => scalar(text),
        _ => quoted(text),
    }
}

/// A text that YAML 1.1 and 1.2 read as this text.
pub(super) fn scalar(text: &str) -> String {
    match is_plain(text) {
        true => text.to_owned(),
        false => quoted(text),
    }
}

/// Whether a text is itself without quotes, in a block.
fn is_plain(text: &str) -> bool {
    // What another type could be written as.
    const TYPED: [&str; 9] = ["true", "false", "yes", "no", "on", "off", "null", "y", "n"];
    let is_start = |first: char| first.is_ascii_alphabetic() || first == '/';
    let option = text.strip_prefix("--").unwrap_or(text);
    option.starts_with(is_start)
        && !text.ends_with(':')
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/._-+=@:".contains(&byte))
        && !TYPED.contains(&text.to_ascii_lowercase().as_str())
}

fn quoted(text: &str) -> String {
    let mut quoted = String::from('"');
    for character in text.chars() {
        match character {
            '"' | '\\' => {
                quoted.push('\\');
                quoted.push(character);
            }
            // Not printable in YAML, a line break there, or no good on a terminal.
            _ if is_harmful(character) => {
                let _ = write!(quoted, "\\U{:08x}", u32::from(character));
            }
            _ => quoted.push(character),
        }
    }
    quoted.push('"');
    quoted
}
