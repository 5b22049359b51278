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
        format!("users:\n- {}", *self.as_entry(name, &user, |_, _| None, 2))
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

    /// The entry of this name as it follows a `- `, its further lines indented so far, of a user
    /// to whom the stanza was applied. `written` is the line of the user's member at this path, if
    /// it has one that says this already.
    pub(super) fn as_entry<'a>(
        &self,
        name: &str,
        user: &Object,
        written: impl Fn(&[&str], &Value) -> Option<&'a str>,
        indent: usize,
    ) -> Zeroizing<String> {
        let none = Object::new();
        let provider = user.get("auth-provider").and_then(Value::as_object);
        let provider = provider.unwrap_or(&none);
        let config = provider.get("config").and_then(Value::as_object);
        let config = config.unwrap_or(&none);
        let mut lines = Vec::new();
        let mut line = |depth: usize, text: &str| {
            lines.push(Zeroizing::new(format!("{:depth$}{text}", "")));
        };
        let member = |path: &[&str], value: &Value| {
            let key = path.last().copied().unwrap_or_default();
            Zeroizing::new(match written(path, value) {
                Some(line) => line.to_owned(),
                // JSON is YAML; as an entry of its own line.
                None => format!("{}: {}", scalar(key), *json(value)),
            })
        };
        line(0, &format!("name: {}", scalar(name)));
        line(0, "user:");
        for (key, value) in user.iter().filter(|(key, _)| *key != "auth-provider") {
            line(2, &member(&[key], value));
        }
        line(2, "auth-provider:");
        line(4, &format!("name: {EXTERNAL_SIGNER}"));
        for (key, value) in provider {
            if key != "name" && key != "config" {
                line(4, &member(&["auth-provider", key], value));
            }
        }
        line(4, "config:");
        let of_config = |key| ["auth-provider", "config", key];
        for setting in &self.settings {
            let path = of_config(setting.key);
            // A comment that is there can be about another key; one of the stanza is about this.
            let stays = |value: &Value| match &setting.comment {
                Some(_) => false,
                None => written(&path, value).is_some(),
            };
            match config.get(setting.key) {
                Some(value) if value.as_text() != Some(&setting.value) || stays(value) => {
                    line(6, &member(&path, value));
                }
                _ => line(6, &setting.line()),
            }
        }
        for (key, value) in config.iter().filter(|(key, _)| !self.has(key)) {
            line(6, &member(&of_config(key), value));
        }
        // At its full length, since what is kept can be a PIN.
        let length = lines.iter().map(|line| indent + line.len() + 1).sum();
        let mut entry = Zeroizing::new(String::with_capacity(length));
        for (place, line) in lines.iter().enumerate() {
            if place > 0 {
                entry.push_str(&" ".repeat(indent));
            }
            entry.push_str(line);
            entry.push('\n');
        }
        entry
    }
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
