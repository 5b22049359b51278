//! A kubeconfig file that is changed: read and written whole, under kubectl's lock.

use std::path::{Path, PathBuf};

use super::error::{missing, unwritable};
use super::replace::LockedFile;
use super::{EntryKind, Kubeconfig, Locations, PluginEntries, yaml};
use crate::error::Error;

/// A kubeconfig file that is locked against other writers.
pub struct KubeconfigFile {
    path: PathBuf,
    file: LockedFile,
    /// Relative paths are as they are written.
    before: Kubeconfig,
    after: Kubeconfig,
}

/// In which file the context of this name stands.
pub fn file_for(locations: &Locations, context: &str) -> Result<PathBuf, Error> {
    for path in locations.files() {
        // A pipe's content would be gone for its next reader.
        if path.metadata().is_ok_and(|found| !found.is_file()) {
            return Err(unwritable(path, "it is not a regular file"));
        }
    }
    for path in locations.files().iter().filter(|path| path.exists()) {
        let one = Locations::new(Some(path), None, None);
        if Kubeconfig::load(&one)?.has(EntryKind::Context, context) {
            return Ok(path.clone());
        }
    }
    Err(missing(locations.files()))
}

impl KubeconfigFile {
    pub fn open(path: &Path) -> Result<Self, Error> {
        let (file, content) = LockedFile::open(path).map_err(|reason| unwritable(path, reason))?;
        // What kubectl refuses is not for us to add to.
        let before = Kubeconfig::as_written(&content, path)?;
        Ok(Self { path: path.to_owned(), file, after: before.clone(), before })
    }

    /// Has the context use these entries; `all` is what all files say together.
    pub fn put(&mut self, entries: &PluginEntries, all: &Kubeconfig) -> Result<(), Error> {
        entries.put_into(&mut self.after, all).map_err(|reason| unwritable(&self.path, reason))
    }

    /// Gives a context back what it had before it was given this program as its plugin.
    pub fn restore(&mut self, context: &str, all: &Kubeconfig) -> Result<(), Error> {
        self.after.restore(context, &all.entries_of_plugin(context))
    }

    /// Writes what has changed. Returns the path of a copy of what was there, `None` if nothing has changed.
    pub fn save(self) -> Result<Option<PathBuf>, Error> {
        let Self { path, file, before, after } = self;
        if before.config == after.config {
            return Ok(None);
        }
        let text = yaml::write(&after.config);
        let text = text.ok_or_else(|| unwritable(&path, "it would be read otherwise"))?;
        file.replace(text.as_bytes()).map(Some).map_err(|reason| unwritable(&path, reason))
    }
}
