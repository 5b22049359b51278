//! A kubeconfig user as it is written down: in block style with comments, and as JSON where the
//! file is JSON.

use std::fmt::Write as _;

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

    /// As the list `users` of a kubeconfig.
    pub fn as_excerpt(&self, name: &str) -> String {
        format!("users:\n- {}", self.as_entry(name, "", 2))
    }

    /// The entry of this name as it follows a `- `, its further lines indented so far. `others` are
    /// members of the user that stay, each on a line of its own.
    pub(super) fn as_entry(&self, name: &str, others: &str, indent: usize) -> String {
        let mut lines = format!("name: {}\nuser:\n", scalar(name));
        for line in others.lines() {
            let _ = writeln!(lines, "  {line}");
        }
        lines.push_str("  auth-provider:\n    name: externalSigner\n    config:\n");
        for Setting {
            key,
            value,
            comment,
        } in &self.settings
        {
            // A serial number that begins with a letter stands in quotes like any other.
            let value = if value.starts_with('/') {
                scalar(value)
            } else {
                quoted(value)
            };
            let _ = write!(lines, "      {key}: {value}");
            if let Some(comment) = comment {
                let _ = write!(lines, "   # {}", comment_text(comment));
            }
            lines.push('\n');
        }
        let margin = " ".repeat(indent);
        let mut entry = String::new();
        for (place, line) in lines.lines().enumerate() {
            if place > 0 {
                entry.push_str(&margin);
            }
            entry.push_str(line);
            entry.push('\n');
        }
        entry
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
