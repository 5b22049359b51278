//! The configuration of our auth provider as it is written into a kubeconfig: in block style with
//! comments.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};

use super::super::entries::EXTERNAL_SIGNER;
use super::super::json;
use crate::printable::{is_harmful, printable};

/// The `config` of a user's `auth-provider`, with comments, in the order it is written in.
#[derive(Default)]
pub struct ProviderConfig {
    settings: Vec<SettingLine>,
}

struct SettingLine {
    key: &'static str,
    value: String,
    comment: Option<String>,
}

/// Where the settings stand; an element of a list has no step of its own.
const CONFIG: &[&str] = &["users", "user", "auth-provider", "config"];

impl ProviderConfig {
    /// Adds a setting, unless the value is empty or there is none.
    pub fn set(&mut self, key: &'static str, value: Option<impl Into<String>>) {
        self.add(key, value.map(Into::into).unwrap_or_default(), None);
    }

    /// Adds a setting, unless the value is empty, with a comment for the end of its line.
    pub fn set_explained(&mut self, key: &'static str, value: &str, comment: String) {
        self.add(key, value.to_owned(), Some(comment));
    }

    fn add(&mut self, key: &'static str, value: String, comment: Option<String>) {
        if !value.is_empty() {
            self.settings.push(SettingLine {
                key,
                value,
                comment,
            });
        }
    }

    /// Keys and values in their order.
    pub fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.settings
            .iter()
            .map(|setting| (setting.key, setting.value.as_str()))
    }

    /// The list `users` of a kubeconfig with one user of this configuration.
    pub fn as_excerpt(&self, name: &str) -> String {
        let mut user = Map::new();
        self.apply(&mut user, |_, _| false);
        let entry = Map::from_iter([
            ("name".to_owned(), name.into()),
            ("user".to_owned(), user.into()),
        ]);
        format!("users:\n- {}\n", self.item(&["users"], &entry, 2))
    }

    /// Gives a user this configuration. Settings that the user has and for which `stays(key, value)`
    /// is true win over this configuration's; the names of those that are gone are returned.
    pub(super) fn apply(
        &self,
        user: &mut Map<String, Value>,
        stays: impl Fn(&str, &str) -> bool,
    ) -> Vec<String> {
        let mut provider = match user.remove("auth-provider") {
            Some(Value::Object(own)) if own.get("name") == Some(&json!(EXTERNAL_SIGNER)) => own,
            _ => Map::from_iter([("name".to_owned(), EXTERNAL_SIGNER.into())]),
        };
        let mut config = match provider.remove("config") {
            Some(Value::Object(config)) => config,
            _ => Map::new(),
        };
        let mut lost = Vec::new();
        config.retain(|key, value| {
            let is_kept = stays(key, value.as_str().unwrap_or_default());
            if !is_kept && self.pairs().all(|(set, _)| set != key) {
                lost.push(key.clone());
            }
            is_kept
        });
        for (key, value) in self.pairs() {
            config.entry(key).or_insert_with(|| value.into());
        }
        provider.insert("config".to_owned(), config.into());
        user.insert("auth-provider".to_owned(), provider.into());
        lost
    }

    /// The comment for the value at this path, if it is what this configuration has there. One that
    /// stands there already can be about another key.
    pub(super) fn comment(&self, path: &[&str], value: &Value) -> Option<&str> {
        let (key, parents) = path.split_last()?;
        let mut settings = self.settings.iter();
        let setting = settings.find(|it| it.key == *key && value.as_str() == Some(&it.value))?;
        setting.comment.as_deref().filter(|_| parents == CONFIG)
    }

    /// The members of a map in the order they are written in.
    pub(super) fn in_order<'a>(&self, map: &'a Map<String, Value>) -> Vec<(&'a str, &'a Value)> {
        let place = |key: &str| match key {
            "name" => 0,
            "auth-provider" | "config" => usize::MAX,
            _ => {
                let known = self.settings.iter().position(|it| it.key == key);
                known.map_or(usize::MAX - 1, |place| place + 1)
            }
        };
        let mut members: Vec<_> = map.iter().map(|(key, it)| (key.as_str(), it)).collect();
        members.sort_by_key(|(key, _)| place(key));
        members
    }

    /// A list's element behind its `- `; its further lines are indented so far.
    pub(super) fn item(&self, path: &[&str], map: &Map<String, Value>, indent: usize) -> String {
        let margin = format!("\n{}", " ".repeat(indent));
        let members = self.in_order(map).into_iter();
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
        match (value, path) {
            (Value::Object(map), _) if !map.is_empty() => {
                format!("\n{margin}  {}", self.item(path, map, indent + 2))
            }
            (Value::Array(items), [_list]) if !items.is_empty() => items
                .iter()
                .filter_map(Value::as_object)
                .map(|item| format!("\n{margin}- {}", self.item(path, item, indent + 2)))
                .collect(),
            (Value::String(text), [.., key]) => {
                // A serial number that begins with a letter stands in quotes like any other.
                let is_name = matches!(*key, "name" | "user") || text.starts_with('/');
                let text = if is_name { scalar(text) } else { quoted(text) };
                match self.comment(path, value) {
                    // A comment ends with its line, whatever a label holds.
                    Some(comment) => format!(" {text}   # {}", printable(comment)),
                    None => format!(" {text}"),
                }
            }
            // JSON is YAML.
            _ => format!(" {}", json::text(value)),
        }
    }
}

/// A text that YAML 1.1 and 1.2 read as this text.
pub(super) fn scalar(text: &str) -> String {
    let is_word = text.starts_with(|first: char| first.is_ascii_alphabetic() || first == '/')
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"/._-".contains(&byte));
    // What another type could be written as.
    const TYPED: [&str; 9] = ["true", "false", "yes", "no", "on", "off", "null", "y", "n"];
    if is_word && !TYPED.contains(&text.to_ascii_lowercase().as_str()) {
        return text.to_owned();
    }
    quoted(text)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kubeconfig::{decode, yaml};

    #[test]
    fn every_text_is_read_as_itself() {
        for text in [
            "",
            "0",
            "0x01",
            "01:02",
            "yes",
            "Null",
            "~",
            "a: b",
            "a #b",
            "- a",
            "\"\\",
            "größe",
            "tab\tnul\0bell\x07",
            "\u{202e}\u{e0001}",
            "\u{85}\u{2028}\u{feff}\u{1f600}",
            "\u{7f}\u{fffd}\u{fffe}\u{ffff}",
            " a ",
            "/usr/lib/x.so",
            "a\nb",
            "{a",
            "&a",
            "*a",
            "!a",
            "%a",
            "@a",
            "1e3",
            ".5",
            "2026-01-02",
            "<<",
            "=",
        ] {
            let written = format!("a: {}\n", scalar(text));
            let node = yaml::parse(&written).unwrap().unwrap();
            let value: Value = decode::from_node(&node).unwrap();
            assert_eq!(value["a"], text, "{written}");
        }
    }

    #[test]
    fn an_excerpt_can_be_pasted() {
        let mut config = ProviderConfig::default();
        config.set("pathLib", Some("/usr/lib/a.so"));
        config.set_explained("tokenSerial", "123", "a\nlabel".to_owned());
        assert_eq!(
            config.as_excerpt("jane"),
            "users:\n\
             - name: jane\n  \
               user:\n    \
                 auth-provider:\n      \
                   name: externalSigner\n      \
                   config:\n        \
                     pathLib: /usr/lib/a.so\n        \
                     tokenSerial: \"123\"   # a\\u{a}label\n"
        );
    }
}
