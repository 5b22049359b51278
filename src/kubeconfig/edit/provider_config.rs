//! A user's configuration, as it is written into a kubeconfig: for our auth provider, or as the arguments
//! of our exec plugin.

use serde_json::{Map, Value, json};

use super::super::entries::EXTERNAL_SIGNER;
use super::super::exec;
use super::layout::Layout;

/// What a user's entry says of the key, with comments, in the order it is written in.
#[derive(Default)]
pub struct ProviderConfig {
    settings: Vec<SettingLine>,
}

struct SettingLine {
    key: &'static str,
    value: String,
    comment: Option<String>,
}

/// Where the provider's settings stand; an element of a list has no step of its own.
pub(super) const CONFIG: &[&str] = &["users", "user", "auth-provider", "config"];

/// Where the plugin's arguments stand.
pub(super) const ARGUMENTS: &[&str] = &["users", "user", "exec", "args"];

/// What clients show where the program is missing.
const HINT: &str = "Install pkcs11-external-signer where this user's exec.command says.";

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
            self.settings.push(SettingLine { key, value, comment });
        }
    }

    /// Keys and values in their order.
    pub fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.settings.iter().map(|setting| (setting.key, setting.value.as_str()))
    }

    /// The list `users` of a kubeconfig with one user of this configuration, for the auth provider.
    pub fn as_excerpt(&self, name: &str) -> String {
        let mut user = Map::new();
        self.apply(&mut user, |_, _| false);
        self.user_excerpt(name, user)
    }

    /// The same for the exec plugin.
    pub fn as_plugin_excerpt(&self, name: &str) -> String {
        let user = Map::from_iter([("exec".to_owned(), self.exec(Map::new()).into())]);
        self.user_excerpt(name, user)
    }

    fn user_excerpt(&self, name: &str, user: Map<String, Value>) -> String {
        let entry =
            Map::from_iter([("name".to_owned(), name.into()), ("user".to_owned(), user.into())]);
        self.layout().excerpt("users", &entry)
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

    /// The `exec` of a user with this configuration. `old` is one of ours, whose other fields stay, or
    /// empty.
    pub(super) fn exec(&self, mut old: Map<String, Value>) -> Map<String, Value> {
        let mut pairs = self.pairs();
        let program = pairs.find(|(key, _)| *key == "pathExec");
        let (_, program) = program.unwrap_or(("", exec::PROGRAM));
        for (key, value) in [
            ("apiVersion", "client.authentication.k8s.io/v1"),
            ("command", program),
            ("interactiveMode", "IfAvailable"),
            ("installHint", HINT),
        ] {
            old.entry(key).or_insert_with(|| value.into());
        }
        // What isn't about the key comes first.
        let mut settings: Vec<_> = self.settings.iter().collect();
        settings.sort_by_key(|it| it.key != "keep");
        let words = settings.into_iter().filter_map(argument);
        let words: Vec<_> = [exec::COMMAND.to_owned()].into_iter().chain(words).collect();
        old.insert("args".to_owned(), words.into());
        old.insert("provideClusterInfo".to_owned(), true.into());
        old
    }

    /// The settings as arguments of the plugin.
    pub(super) fn arguments(&self) -> impl Iterator<Item = String> {
        self.settings.iter().filter_map(argument)
    }

    /// How it is written, in either form.
    pub(super) fn layout(&self) -> Layout {
        let mut layout = Layout::default();
        for setting in &self.settings {
            if let Some(comment) = &setting.comment {
                let path = [CONFIG, &[setting.key]].concat();
                layout.explain(path, setting.value.clone(), comment);
                if let Some(word) = argument(setting) {
                    layout.explain(ARGUMENTS.to_vec(), word, comment);
                }
            }
        }
        layout
    }
}

/// In one word, since a value could begin with a hyphen.
fn argument(setting: &SettingLine) -> Option<String> {
    let mut options = exec::options().chain([exec::KUBECONFIG]);
    let (_, option) = options.find(|(key, _)| *key == setting.key)?;
    Some(format!("{option}={}", setting.value))
}

#[cfg(test)]
mod tests {
    use super::super::layout::scalar;
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
            "a:",
            "a:b@c+d=",
            "https://[::1]:1",
            "https://a:1/b",
            "--a=b: c",
            "--a=01:02",
            "---",
            "--1",
            "arn:aws:eks:x:1:cluster/y",
        ] {
            let written = format!("a: {0}\nb:\n- {0}\n", scalar(text));
            let node = yaml::parse(&written).unwrap().unwrap();
            let value: Value = decode::from_node(&node).unwrap();
            assert_eq!(value, json!({"a": text, "b": [text]}), "{written}");
        }
    }

    fn of_jane() -> ProviderConfig {
        let mut config = ProviderConfig::default();
        config.set("pathExec", Some("/usr/bin/pkcs11-external-signer"));
        config.set("pathLib", Some("/usr/lib/a.so"));
        config.set_explained("tokenSerial", "123", "a\nlabel".to_owned());
        config.set("tokenLabel", Some("my token"));
        config.set("keep", Some("terminal"));
        config
    }

    #[test]
    fn an_excerpt_can_be_pasted() {
        assert_eq!(
            of_jane().as_excerpt("jane"),
            "users:\n\
             - name: jane\n  \
               user:\n    \
                 auth-provider:\n      \
                   name: externalSigner\n      \
                   config:\n        \
                     pathExec: /usr/bin/pkcs11-external-signer\n        \
                     pathLib: /usr/lib/a.so\n        \
                     tokenSerial: \"123\"   # a\\u{a}label\n        \
                     tokenLabel: \"my token\"\n        \
                     keep: \"terminal\"\n"
        );
        assert_eq!(
            of_jane().as_plugin_excerpt("jane"),
            "users:\n\
             - name: jane\n  \
               user:\n    \
                 exec:\n      \
                   apiVersion: client.authentication.k8s.io/v1\n      \
                   command: /usr/bin/pkcs11-external-signer\n      \
                   args:\n      \
                   - credential\n      \
                   - --keep=terminal\n      \
                   - --module=/usr/lib/a.so\n      \
                   - --token-serial=123   # a\\u{a}label\n      \
                   - \"--token-label=my token\"\n      \
                   interactiveMode: IfAvailable\n      \
                   provideClusterInfo: true\n      \
                   installHint: \"Install pkcs11-external-signer where this user's exec.command says.\"\n"
        );
    }
}
