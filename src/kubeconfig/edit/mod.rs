//! Entries written into a kubeconfig file or taken out, and a context pointed at them; the rest stays as it
//! is, byte for byte.
//!
//! The text is edited, not the data, since comments, order and quoting are not in the data. The
//! edited text is then read again: if it doesn't say what the old one said with this one change,
//! the file is left alone, even if the reason is unknown.

mod layout;
mod plugin;
mod provider_config;
mod splice;

use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use self::layout::Layout;
pub use self::plugin::{
    EntryKind, LocalHop, OriginalContext, PluginEntries, PluginUser, local_address,
};
use self::provider_config::ARGUMENTS;
pub use self::provider_config::ProviderConfig;
use super::file::{self, ReadFailure};
use super::model::UserEntry;
use super::replace::LockedFile;
use super::yaml::comments;
use super::{Kubeconfig, Locations, Provider};
use super::{exec, json};
use crate::kubeconfig::KubeconfigError;

/// What a user can be known by otherwise; client-go would take some of it before the provider.
const CREDENTIALS: [&str; 10] = [
    "auth-provider",
    "client-certificate",
    "client-certificate-data",
    "client-key",
    "client-key-data",
    "exec",
    "password",
    "token",
    "tokenFile",
    "username",
];

/// The keys of a configuration that say which object is meant, or where its certificate is.
pub const OF_OBJECT: [&str; 4] = ["certificateFile", "objectId", "objectLabel", "uri"];

/// A kubeconfig file that is locked against other writers.
pub struct KubeconfigFile {
    path: PathBuf,
    file: LockedFile,
    text: String,
    is_changed: bool,
}

/// What became of the file.
#[derive(Debug, Eq, PartialEq)]
pub enum Saved {
    New,
    /// The path of a copy of what was there before.
    Replaced(PathBuf),
    Unchanged,
}

/// In which file an entry stands or belongs (client-go, tools/clientcmd, config.go): where there is
/// one of that name; else the first file that is there, else the last.
///
/// # Errors
///
/// One of the files can't be read, or can't be replaced: a pipe's content would be gone for its next
/// reader.
pub fn file_for(
    locations: &Locations,
    holds: impl Fn(&Kubeconfig) -> bool,
) -> Result<Option<PathBuf>, KubeconfigError> {
    for path in locations.files() {
        if let Some(reason) = file::not_replaceable(path) {
            return Err(KubeconfigError::Unwritable {
                path: path.clone(),
                reason: reason.to_owned(),
            });
        }
    }
    for path in locations.files() {
        let one = Locations { files: vec![path.clone()], required: false };
        if holds(&Kubeconfig::load(&one)?) {
            return Ok(Some(path.clone()));
        }
    }
    let files = locations.files();
    Ok(files.iter().find(|path| path.exists()).or_else(|| files.last()).cloned())
}

impl Kubeconfig {
    /// Whether there is a user of this name.
    pub fn has_user(&self, name: &str) -> bool {
        self.users.0.contains_key(name)
    }

    /// Whether the user of this name has anything that [`KubeconfigFile::set_user`] would replace.
    pub fn has_credentials(&self, name: &str) -> bool {
        self.user(name).is_some_and(|user| members(user).keys().any(|key| is_credential(key)))
    }
}

fn is_credential(key: &str) -> bool {
    CREDENTIALS.contains(&key)
}

fn members(user: &UserEntry) -> Map<String, Value> {
    match json::value(user) {
        Value::Object(members) => members,
        _ => Map::new(),
    }
}

impl KubeconfigFile {
    /// A file that is not there yet counts as an empty one.
    ///
    /// # Errors
    ///
    /// Another program is writing it, or it `is_interrupted`, now or when it is saved; it can't be
    /// read, or not as a kubeconfig.
    pub fn open(path: &Path, is_interrupted: fn() -> bool) -> Result<Self, KubeconfigError> {
        let unreadable =
            |reason: String| KubeconfigError::Unreadable { path: path.to_owned(), reason };
        let file = LockedFile::lock(path, is_interrupted)
            .map_err(|reason| KubeconfigError::Unwritable { path: path.to_owned(), reason })?;
        let content = match file.read() {
            Ok(content) => content,
            Err(ReadFailure::Missing) => Vec::new(),
            Err(ReadFailure::Other(reason)) => return Err(unreadable(reason)),
        };
        // What kubectl refuses is not for us to add to.
        Kubeconfig::parse(&content, path)?;
        let text = String::from_utf8(content);
        Ok(Self {
            path: path.to_owned(),
            file,
            text: text.map_err(|error| unreadable(error.to_string()))?,
            is_changed: false,
        })
    }

    /// The path that was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes or changes the user of this name; `as`, extensions and unknown fields are kept, and so
    /// is each setting of the provider for which `stays(key, value)` is true. Returns the names of
    /// the fields and settings that were removed.
    ///
    /// # Errors
    ///
    /// The text can't be edited without changing something else.
    pub fn set_user(
        &mut self,
        name: &str,
        config: &ProviderConfig,
        stays: impl Fn(&str, &str) -> bool,
    ) -> Result<Vec<String>, KubeconfigError> {
        let mut lost = Vec::new();
        let comments = self.edit(&config.layout(), |after| {
            let is_ours = matches!(after.provider(name), Ok(Provider::ExternalSigner(_)));
            let entry = after.users.0.entry(name.to_owned()).or_default();
            entry.name = name.to_owned();
            let mut user = entry.user.as_ref().map_or_else(Map::new, members);
            user.retain(|key, _| {
                let stays = !is_credential(key) || is_ours && key == "auth-provider";
                if !stays {
                    lost.push(key.clone());
                }
                stays
            });
            lost.extend(config.apply(&mut user, stays));
            entry.user = Some(serde_json::from_value(user.into()).ok()?);
            Some(())
        })?;
        lost.extend(comments);
        Ok(lost)
    }

    /// Has the user of this name, whose provider or plugin this program is, use another object: `config` says
    /// which, in place of [what](OF_OBJECT) the user says of one.
    ///
    /// # Errors
    ///
    /// There is no such user in this file, or the text can't be edited without changing something else.
    pub fn set_object(
        &mut self,
        name: &str,
        config: &ProviderConfig,
    ) -> Result<(), KubeconfigError> {
        let mut layout = config.layout();
        // The list of arguments is written anew, with what stands behind those that stay.
        for (line, comment) in comments(&self.text) {
            let line = self.text.lines().nth(line.saturating_sub(1));
            let word = line.and_then(|line| line.trim().strip_prefix("- ")?.strip_suffix(comment));
            if let (Some(word), Some(text)) = (word, comment.strip_prefix("# ")) {
                let word = word.trim().trim_matches(['"', '\'']);
                layout.explain(ARGUMENTS.to_vec(), word.to_owned(), text);
            }
        }
        self.edit(&layout, |after| {
            let user = after.users.0.get_mut(name)?.user.as_mut()?;
            if let Some(exec) = &mut user.exec {
                exec.args = Some(exec::arguments_with(exec, &OF_OBJECT, config.arguments()));
            } else {
                let mut own = members(user);
                config.apply(&mut own, |key, _| !OF_OBJECT.contains(&key));
                *user = serde_json::from_value(own.into()).ok()?;
            }
            Some(())
        })?;
        Ok(())
    }

    /// Makes or changes one of the entries for the plugin. Returns what was removed beside what is
    /// written, for people.
    ///
    /// # Errors
    ///
    /// There is no such context in this file, or the text can't be edited without changing something
    /// else.
    pub fn set_entry(
        &mut self,
        kind: EntryKind,
        entries: &PluginEntries,
    ) -> Result<Option<String>, KubeconfigError> {
        if kind == EntryKind::Context {
            self.model()?.context(&entries.context)?;
        }
        self.edit(&entries.layout, |after| {
            match kind {
                EntryKind::Cluster => {
                    let entry = after.clusters.0.entry(entries.cluster.clone());
                    let entry = entry.or_default();
                    entry.name.clone_from(&entries.cluster);
                    entry.cluster = Some(entries.local.clone());
                }
                EntryKind::User => {
                    let entry = after.users.0.entry(entries.user.clone()).or_default();
                    entry.name.clone_from(&entries.user);
                    entry.user = Some(entries.with_plugin.clone());
                }
                EntryKind::Context => {
                    let entry = after.contexts.0.get_mut(&entries.context)?;
                    entries.point(entry.context.as_mut()?);
                }
            }
            Some(())
        })
    }

    /// Gives a context back what it had before it was given this program as its plugin.
    ///
    /// # Errors
    ///
    /// It wasn't given one, or the text can't be edited without changing something else.
    pub fn restore_context(&mut self, name: &str) -> Result<(), KubeconfigError> {
        let original = self.model()?.original(name)?;
        self.edit(&Layout::default(), |after| {
            let entry = after.contexts.0.get_mut(name)?;
            plugin::restore(entry.context.as_mut()?, &original);
            Some(())
        })?;
        Ok(())
    }

    /// Takes an entry out.
    ///
    /// # Errors
    ///
    /// The text can't be edited without changing something else.
    pub fn remove(&mut self, kind: EntryKind, name: &str) -> Result<(), KubeconfigError> {
        self.edit(&Layout::default(), |after| {
            match kind {
                EntryKind::Cluster => drop(after.clusters.0.remove(name)),
                EntryKind::User => drop(after.users.0.remove(name)),
                EntryKind::Context => drop(after.contexts.0.remove(name)),
            }
            Some(())
        })?;
        Ok(())
    }

    /// Whether there is anything to be saved.
    pub fn is_changed(&self) -> bool {
        self.is_changed
    }

    /// Points the context of this name at the user.
    ///
    /// # Errors
    ///
    /// There is no such context in this file, or the text can't be edited without changing something
    /// else.
    pub fn set_context(&mut self, name: &str, user: &str) -> Result<(), KubeconfigError> {
        self.model()?.context(name)?;
        self.edit(&Layout::default(), |after| {
            let context = after.contexts.0.get_mut(name)?.context.as_mut()?;
            context.user = Some(user.to_owned());
            Some(())
        })?;
        Ok(())
    }

    /// Writes what has changed, if anything has.
    ///
    /// # Errors
    ///
    /// The file can't be replaced, or another one was put in its place.
    pub fn save(self) -> Result<Saved, KubeconfigError> {
        if !self.is_changed {
            return Ok(Saved::Unchanged);
        }
        match self.file.replace(self.text.as_bytes()) {
            Ok(Some(backup)) => Ok(Saved::Replaced(backup)),
            Ok(None) => Ok(Saved::New),
            Err(reason) => Err(KubeconfigError::Unwritable { path: self.path, reason }),
        }
    }

    fn model(&self) -> Result<Kubeconfig, KubeconfigError> {
        Kubeconfig::parse(self.text.as_bytes(), &self.path)
    }

    /// Edits the text, if the result means what `change` makes of the model and nothing else. Returns
    /// the comments that went, for people.
    fn edit(
        &mut self,
        layout: &Layout,
        change: impl FnOnce(&mut Kubeconfig) -> Option<()>,
    ) -> Result<Option<String>, KubeconfigError> {
        let before = self.model()?;
        let mut after = before.clone();
        change(&mut after).ok_or_else(|| self.not_editable())?;
        let (before, after) = (before.to_value(), after.to_value());
        if before == after {
            return Ok(None);
        }
        let says_after = |text: &String| {
            Kubeconfig::parse(text.as_bytes(), &self.path).is_ok_and(|it| it.to_value() == after)
        };
        let new = splice::edited(&self.text, (&before, &after), layout);
        let new = new.filter(says_after).ok_or_else(|| self.not_editable())?;
        let lost = lost_comments(&self.text, &new);
        self.text = new;
        self.is_changed = true;
        Ok(lost)
    }

    fn not_editable(&self) -> KubeconfigError {
        KubeconfigError::NotEditable { path: self.path.clone() }
    }
}

/// In which lines of the old text the comments stand that the new one doesn't have.
fn lost_comments(old: &str, new: &str) -> Option<String> {
    let mut kept: Vec<_> = comments(new).into_iter().map(|(_, text)| text).collect();
    let lines: Vec<_> = comments(old)
        .into_iter()
        .filter(|(_, text)| match kept.iter().position(|it| it == text) {
            Some(place) => {
                kept.swap_remove(place);
                false
            }
            None => true,
        })
        .map(|(line, _)| line.to_string())
        .collect();
    match lines.as_slice() {
        [] => None,
        [line] => Some(format!("a comment in line {line}")),
        [lines @ .., last] => Some(format!("comments in lines {} and {last}", lines.join(", "))),
    }
}

#[cfg(test)]
mod tests;
