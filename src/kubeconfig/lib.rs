//! kubectl's kubeconfig as data: found, read, merged, pointed at other servers and written.
//!
//! Read as client-go's tools/clientcmd reads it, so that a command that gets our copy sees what it
//! would have seen without us, except for the clusters that were redirected. What isn't known here is kept.
//! Only files that are named are read, and only `file` writes one.

#![forbid(unsafe_code)]

pub mod exec_credential;

mod entries;
mod error;
mod exec;
mod file;
mod index;
mod load;
mod plugin;
mod redirect;
mod shape;
mod tunnelled;
mod yaml;

pub use entries::{Cluster, Context, NamedCluster, Provider};
pub use error::{NO_CONTEXT_KEY, other_user, unreadable, write_command};
pub use exec::user_excerpt;
pub use file::{Change, change, check_change};
pub use load::files;
pub use plugin::{LocalEndpoint, OriginalContext, PluginEntries, PluginUser, local_address};
pub use redirect::TunnelEndpoint;
pub use tunnelled::{LocalCluster, tunnelled};

use serde_json::{Value, json};

use self::index::EntryIndex;
use messages::error::Error;

/// One kubeconfig, from a file or merged from several. It has no `Debug`, since it can hold a PIN and keys.
#[derive(Clone, Default)]
pub struct Kubeconfig {
    /// The content: a map or null. Its known fields have kubectl's types or are null.
    config: Value,
    /// The positions of the entries of `config` by their names: a kubeconfig can have thousands.
    index: EntryIndex,
    /// Warnings about files that somebody else can change, in a sentence each.
    pub concerns: Vec<String>,
}

/// A kind of entry, each in a list of its own.
#[derive(Clone, Copy, Eq, Hash, PartialEq)]
pub enum EntryKind {
    Cluster,
    User,
    Context,
}

impl EntryKind {
    /// The field of a kubeconfig that holds the entries of this kind.
    fn list(self) -> &'static str {
        match self {
            Self::Cluster => "clusters",
            Self::User => "users",
            Self::Context => "contexts",
        }
    }

    /// The kind's name, which is also the member with what an entry says.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cluster => "cluster",
            Self::User => "user",
            Self::Context => "context",
        }
    }
}

impl Kubeconfig {
    /// The name of the current context, which need not exist.
    pub fn current_context(&self) -> Option<&str> {
        text(&self.config, "current-context")
    }

    /// Makes the context of this name the current one. Fails if there is none.
    pub fn set_current_context(&mut self, name: &str) -> Result<(), Error> {
        self.context(name)?;
        self.config["current-context"] = name.into();
        Ok(())
    }

    /// Makes the context of this name the current one and removes what it doesn't need, as `kubectl config view
    /// --minify` does. Unknown members go, too, since they may belong to others.
    pub fn keep_only(&mut self, name: &str) -> Result<(), Error> {
        let Context { cluster, user, .. } = self.context(name)?;
        self.set_current_context(name)?;
        for (kind, name) in
            [(EntryKind::Context, name), (EntryKind::Cluster, &cluster), (EntryKind::User, &user)]
        {
            self.retain(kind, |known| known == name);
        }
        let known =
            ["clusters", "contexts", "current-context", "extensions", "preferences", "users"];
        if let Some(members) = self.config.as_object_mut() {
            members.retain(|key, _| known.contains(&&**key));
        }
        Ok(())
    }

    /// The whole kubeconfig as JSON, which kubectl reads with the same meaning.
    pub fn to_json(&self) -> String {
        let mut config = self.config.clone();
        config["apiVersion"] = "v1".into();
        config["kind"] = "Config".into();
        yaml::json(&config)
    }

    fn elements(&self, kind: EntryKind) -> impl Iterator<Item = &Value> {
        self.config[kind.list()].as_array().into_iter().flatten()
    }

    /// The names of all entries of this kind, sorted.
    pub fn names(&self, kind: EntryKind) -> Vec<String> {
        let elements = self.elements(kind);
        let mut names: Vec<_> = elements.map(|element| name_of(element).to_owned()).collect();
        names.sort();
        names
    }

    /// Whether there is an entry of this kind and name.
    pub fn has(&self, kind: EntryKind, name: &str) -> bool {
        self.index.position(kind, name).is_some()
    }

    /// Whether the user has a secret in its entry or in a file that it names, which only this context needs.
    pub fn is_secret_of_one(&self, user: &str, context: &str) -> bool {
        let entry = self.entry(EntryKind::User, user);
        let has_secret = ["client-key", "client-key-data", "password", "token"]
            .iter()
            .any(|field| !entry[field].is_null());
        let is_needed = |other: &Context| other.name != context && other.user == user;
        has_secret && !self.contexts().iter().any(is_needed)
    }

    /// The element with this name in the list of this kind.
    fn element(&self, kind: EntryKind, name: &str) -> Option<&Value> {
        let position = self.index.position(kind, name)?;
        self.config[kind.list()].get(position)
    }

    /// The content of an entry; null if there is none.
    fn entry(&self, kind: EntryKind, name: &str) -> &Value {
        self.element(kind, name).map_or(&Value::Null, |element| &element[kind.name()])
    }

    /// The content of an entry, which can be changed; `None` if there is none.
    fn entry_mut(&mut self, kind: EntryKind, name: &str) -> Option<&mut Value> {
        let position = self.index.position(kind, name)?;
        let element = self.config.get_mut(kind.list())?.get_mut(position)?;
        Some(&mut element[kind.name()])
    }

    /// Makes an entry with this content, or replaces the content of one.
    fn set_entry(&mut self, kind: EntryKind, name: &str, content: Value) {
        if let Some(entry) = self.entry_mut(kind, name) {
            *entry = content;
            return;
        }
        let list = &mut self.config[kind.list()];
        if !list.is_array() {
            *list = json!([]);
        }
        if let Some(elements) = list.as_array_mut() {
            self.index.add(kind, name, elements.len());
            elements.push(json!({"name": name, kind.name(): content}));
        }
    }

    /// Keeps the entries of a list whose names are to be kept.
    fn retain(&mut self, kind: EntryKind, is_kept: impl Fn(&str) -> bool) {
        if let Some(Value::Array(elements)) = self.config.get_mut(kind.list()) {
            elements.retain(|element| is_kept(name_of(element)));
        }
        self.index = EntryIndex::of(&self.config);
    }
}

/// The name of an element of a list; empty if it has none.
fn name_of(element: &Value) -> &str {
    element["name"].as_str().unwrap_or_default()
}

/// The text of a field; `None` if it is empty, which for kubectl is the same as none.
fn text<'a>(map: &'a Value, key: &str) -> Option<&'a str> {
    map[key].as_str().filter(|text| !text.is_empty())
}

/// Takes these fields out of an entry.
fn remove(map: &mut Value, keys: &[&str]) {
    if let Some(members) = map.as_object_mut() {
        members.retain(|key, _| !keys.contains(&&**key));
    }
}

/// The content of the extension of this name, or null.
fn extension<'a>(entry: &'a Value, name: &str) -> &'a Value {
    let mut extensions = entry["extensions"].as_array().into_iter().flatten();
    let found = extensions.find(|element| name_of(element) == name);
    found.map_or(&Value::Null, |element| &element["extension"])
}

/// Gives the extension of this name another content, or removes it.
fn set_extension(entry: &mut Value, name: &str, content: Option<Value>) {
    let mut extensions = entry["extensions"].as_array().cloned().unwrap_or_default();
    extensions.retain(|element| name_of(element) != name);
    if let Some(content) = content {
        extensions.push(json!({"name": name, "extension": content}));
    }
    if extensions.is_empty() {
        remove(entry, &["extensions"]);
    } else {
        entry["extensions"] = extensions.into();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A kubeconfig of this content, in a directory that is gone.
    pub(crate) fn config(content: &str) -> Kubeconfig {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("config");
        std::fs::write(&path, content).unwrap();
        match Kubeconfig::load(&[path]) {
            Ok(config) => config,
            Err(error) => panic!("{error}"),
        }
    }

    #[test]
    fn the_current_context_can_only_become_one_that_exists() {
        let mut config = config("contexts: [{name: b}, {name: a}]\ncurrent-context: gone\n");
        assert_eq!(config.current_context(), Some("gone"));
        config.set_current_context("a").unwrap();
        assert_eq!(config.current_context(), Some("a"));
        let error = config.set_current_context("c").unwrap_err();
        assert_eq!(error.to_string(), "the kubeconfig has no context \"c\"");
        let remedy = error.remedy().to_string();
        assert!(remedy.contains("`kubectl config get-contexts`"), "{remedy}");
        assert_eq!(error.exit_code(), 3);
        assert_eq!(config.current_context(), Some("a"));
    }

    #[test]
    fn json_holds_nothing_that_yaml_reads_otherwise() {
        for (text, written) in [
            ("a\"\n\u{1b}", r#"a\"\n\u001b"#),
            ("\u{7f}~\u{80}", r"\u007f~\u0080"),
            ("a\u{85}\u{9f}\u{a0}", "a\\u0085\\u009f\u{a0}"),
            ("\u{2028}x\u{2029}", r"\u2028x\u2029"),
            ("\u{fffd}\u{fffe}\u{ffff}😀", "\u{fffd}\\ufffe\\uffff😀"),
        ] {
            let mut before = Kubeconfig::default();
            before.config["current-context"] = text.into();
            let json = before.to_json();
            assert!(json.contains(&format!("\"{written}\"")), "{json}");
            assert_eq!(config(&json).current_context(), Some(text));
        }
    }
}
