//! kubectl's kubeconfig as data: found, read, merged, pointed at other servers and edited.
//!
//! Read as client-go's tools/clientcmd reads it, so that a command that gets our copy sees what it
//! would have seen without us, except for the clusters that were redirected. Unknown fields are kept.
//! Only files that are named are read, and only `edit` writes one.

#![forbid(unsafe_code)]

mod decode;
mod edit;
mod entries;
mod error;
mod exec;
mod file;
mod json;
mod load;
mod locations;
mod model;
mod program;
mod redirect;
mod replace;
mod scalar;
mod tunnelled;
mod yaml;

pub use edit::{
    EntryKind, KubeconfigFile, LocalHop, OF_OBJECT, OriginalContext, PluginEntries, PluginUser,
    ProviderConfig, Saved, file_for, local_address,
};
pub use entries::{Cluster, Context, Provider};
pub use error::KubeconfigError;
pub use exec::{Plugin, SELECTORS, options};
pub use locations::Locations;
pub use model::Kubeconfig;
pub use program::find_program;
pub use redirect::{ClientIdentity, TunnelEndpoint};
pub use tunnelled::tunnelled;

use std::path::PathBuf;

use serde_json::Value;

impl Kubeconfig {
    /// The files that somebody else can change, and who, as "belongs to uid 7, who".
    pub fn concerns(&self) -> &[(PathBuf, String)] {
        &self.concerns
    }

    /// The name of the current context, which need not exist.
    pub fn current_context(&self) -> Option<&str> {
        Some(self.current_context.as_str()).filter(|name| !name.is_empty())
    }

    /// # Errors
    ///
    /// There is no context of this name.
    pub fn set_current_context(&mut self, name: &str) -> Result<(), KubeconfigError> {
        self.context(name)?;
        self.current_context = name.to_owned();
        Ok(())
    }

    /// Makes the context of this name the current one and removes what it doesn't need, unknown
    /// members too, since they can hold what others need: `kubectl config view --minify`.
    ///
    /// # Errors
    ///
    /// There is no context of this name.
    pub fn keep_only(&mut self, name: &str) -> Result<(), KubeconfigError> {
        let Context { cluster, user, .. } = self.context(name)?;
        self.set_current_context(name)?;
        self.contexts.0.retain(|other, _| other == name);
        self.clusters.0.retain(|other, _| *other == cluster);
        self.users.0.retain(|other, _| *other == user);
        self.other.clear();
        Ok(())
    }

    /// The whole as JSON, which is a kubeconfig too; lists are in the order of names, as kubectl
    /// writes them.
    pub fn to_json(&self) -> String {
        json::text(&self.to_value())
    }

    fn to_value(&self) -> Value {
        let mut value = json::value(self);
        if let Value::Object(members) = &mut value {
            members.insert("apiVersion".to_owned(), "v1".into());
            members.insert("kind".to_owned(), "Config".into());
        }
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A kubeconfig of this content, in a directory that is gone.
    pub(super) fn config(content: &str) -> Kubeconfig {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("config");
        std::fs::write(&path, content).unwrap();
        match Kubeconfig::load(&Locations::new(Some(&path), None, None)) {
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
        let error = crate::error::Error::from(config.set_current_context("c").unwrap_err());
        assert_eq!(error.to_string(), "the kubeconfig has no context \"c\"");
        assert_eq!(error.remedy().to_string(), "name a context that is there: a; b");
        assert_eq!(error.exit_code(), 3);
        assert_eq!(config.current_context(), Some("a"));
    }

    #[test]
    fn json_is_escaped() {
        let config = config("current-context: \"a\\\"\\n\\u001b\"\n");
        let json: Value = serde_json::from_str(&config.to_json()).unwrap();
        assert_eq!(json["current-context"], "a\"\n\u{1b}");
    }

    #[test]
    fn json_holds_nothing_that_yaml_reads_otherwise() {
        for (text, written) in [
            ("\u{7f}~\u{80}", r"\u007f~\u0080"),
            ("a\u{85}\u{9f}\u{a0}", "a\\u0085\\u009f\u{a0}"),
            ("\u{2028}x\u{2029}", r"\u2028x\u2029"),
            ("\u{fffd}\u{fffe}\u{ffff}😀", "\u{fffd}\\ufffe\\uffff😀"),
        ] {
            let before = Kubeconfig { current_context: text.to_owned(), ..Kubeconfig::default() };
            let json = before.to_json();
            assert!(json.contains(&format!("\"{written}\"")), "{json}");
            assert_eq!(config(&json).current_context(), Some(text));
        }
    }
}
