//! A kubeconfig user as it is written down: in block style with comments, and as JSON where the
//! file is JSON.

use std::fmt::Write as _;

use zeroize::Zeroizing;

use super::super::entries::EXTERNAL_SIGNER;
use super::super::value::{Object, Value, json, text_at};
use crate::printable::is_harmful;

/// The `config` of a user's `auth-provider`.
#[derive(Default)]
pub struct Stanza {
    settings: Vec<Setting>,
}

struct Setting {
    key: &'static str,
    value: String,
    comment: Option<String>,
}

impl Stanza {
    pub fn set(&mut self, key: &'static str, value: impl Into<String>, comment: Option<String>) {
        self.settings.push(Setting {
            key,
            value: value.into(),
            comment,
        });
    }

    /// Keys and values in their order.
    pub fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.settings
            .iter()
            .map(|setting| (setting.key, setting.value.as_str()))
    }

    fn has(&self, key: &str) -> bool {
        self.settings.iter().any(|setting| setting.key == key)
    }

    /// As the list `users` of a kubeconfig.
    pub fn as_excerpt(&self, name: &str) -> String {
        let mut user = Object::new();
        self.apply(&mut user, |_, _| false);
        let entry = Object::from([
            ("name".to_owned(), Value::text(name)),
            ("user".to_owned(), Value::Object(user)),
        ]);
        format!("users:\n- {}", *self.as_entry(&entry, 2))
    }

    /// Gives a user this configuration. What it has of one already, and `stays` by its key and
    /// value, goes before the stanza; the other keys that the stanza doesn't set are returned.
    pub(super) fn apply(
        &self,
        user: &mut Object,
        stays: impl Fn(&str, &str) -> bool,
    ) -> Vec<String> {
        let mut provider = match user.remove("auth-provider") {
            Some(Value::Object(own)) if text_at(&own, "name") == EXTERNAL_SIGNER => own,
            _ => Object::from([("name".to_owned(), Value::text(EXTERNAL_SIGNER))]),
        };
        let mut config = match provider.remove("config") {
            Some(Value::Object(config)) => config,
            _ => Object::new(),
        };
        let mut lost = Vec::new();
        config.retain(|key, value| {
            let is_kept = stays(key, value.as_text().unwrap_or_default());
            if !is_kept && !self.has(key) {
                lost.push(key.clone());
            }
            is_kept
        });
        for setting in &self.settings {
            config
                .entry(setting.key.to_owned())
                .or_insert_with(|| Value::text(&*setting.value));
        }
        provider.insert("config".to_owned(), Value::Object(config));
        user.insert("auth-provider".to_owned(), Value::Object(provider));
        lost
    }

    /// An entry whose user the stanza was applied to, as it follows a `- `; its further lines are
    /// indented so far.
    pub(super) fn as_entry(&self, entry: &Object, indent: usize) -> Zeroizing<String> {
        let members = self.in_order(entry);
        let lines = members
            .into_iter()
            .map(|(key, value)| self.lines(&[key], value));
        indented(lines.flatten().collect(), indent)
    }

    /// The member at this path of an entry, likewise.
    pub(super) fn member(&self, path: &[&str], value: &Value, indent: usize) -> Zeroizing<String> {
        indented(self.lines(path, value), indent)
    }

    /// Whether the stanza has a comment about what it says there. One that is there already can be
    /// about another key.
    pub(super) fn explains(&self, path: &[&str], value: &Value) -> bool {
        self.setting(path, value)
            .is_some_and(|setting| setting.comment.is_some())
    }

    /// The members of an object of the entry, as they follow each other when they are written anew.
    pub(super) fn in_order<'a>(&self, object: &'a Object) -> Vec<(&'a str, &'a Value)> {
        let place = |key: &str| match key {
            "name" => 0,
            "auth-provider" | "config" => usize::MAX,
            _ => {
                let known = self.settings.iter().position(|it| it.key == key);
                known.map_or(usize::MAX - 1, |place| place + 1)
            }
        };
        let mut members: Vec<_> = object.iter().map(|(key, it)| (key.as_str(), it)).collect();
        members.sort_by_key(|(key, _)| place(key));
        members
    }

    fn lines(&self, path: &[&str], value: &Value) -> Vec<Zeroizing<String>> {
        let key = path.last().copied().unwrap_or_default();
        let line = |value: &str| vec![Zeroizing::new(format!("{}: {value}", scalar(key)))];
        match (path, value) {
            (["user"] | ["user", "auth-provider"] | CONFIG, Value::Object(object)) => {
                let mut lines = vec![Zeroizing::new(format!("{key}:"))];
                for (key, value) in self.in_order(object) {
                    let inner = self.lines(&[path, &[key]].concat(), value);
                    lines.extend(inner.iter().map(|it| Zeroizing::new(format!("  {}", **it))));
                }
                lines
            }
            (["name"] | ["user", "auth-provider", "name"], Value::Text(name)) => {
                line(&scalar(name))
            }
            _ => match self.setting(path, value) {
                Some(setting) => vec![Zeroizing::new(setting.line())],
                // JSON is YAML.
                None => line(&json(value)),
            },
        }
    }

    /// Where what stands there is what the stanza says.
    fn setting(&self, path: &[&str], value: &Value) -> Option<&Setting> {
        let [parents @ .., key] = path else {
            return None;
        };
        let is_said = |it: &&Setting| it.key == *key && value.as_text() == Some(&it.value);
        self.settings
            .iter()
            .find(is_said)
            .filter(|_| parents == CONFIG)
    }
}

/// Where an entry has what the stanza says.
const CONFIG: &[&str] = &["user", "auth-provider", "config"];

/// In a text of the right size, since what is kept can be a PIN.
fn indented(lines: Vec<Zeroizing<String>>, indent: usize) -> Zeroizing<String> {
    let length = lines.iter().map(|line| indent + line.len() + 1).sum();
    let mut text = Zeroizing::new(String::with_capacity(length));
    for (place, line) in lines.iter().enumerate() {
        if place > 0 {
            text.push_str(&" ".repeat(indent));
        }
        text.push_str(line);
        text.push('\n');
    }
    text
}

impl Setting {
    fn line(&self) -> String {
        // A serial number that begins with a letter stands in quotes like any other.
        let value = if self.value.starts_with('/') {
            scalar(&self.value)
        } else {
            quoted(&self.value)
        };
        match &self.comment {
            Some(comment) => format!("{}: {value}   # {}", self.key, comment_text(comment)),
            None => format!("{}: {value}", self.key),
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

/// A comment ends with its line, whatever a label holds.
fn comment_text(text: &str) -> String {
    crate::printable::printable(text).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kubeconfig::value::Value;
    use crate::kubeconfig::yaml;

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
            match yaml::parse(&written) {
                Ok(Value::Object(object)) => {
                    assert_eq!(object["a"].as_text(), Some(text), "{written}");
                }
                _ => panic!("{written}"),
            }
        }
    }

    #[test]
    fn an_excerpt_can_be_pasted() {
        let mut stanza = Stanza::default();
        stanza.set("pathLib", "/usr/lib/a.so", None);
        stanza.set("tokenSerial", "123", Some("a\nlabel".to_owned()));
        assert_eq!(
            stanza.as_excerpt("jane"),
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
