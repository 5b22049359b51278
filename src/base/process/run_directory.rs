//! A directory for the files of one run, removed when the run ends.

#![forbid(unsafe_code)]

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use tempfile::TempDir;

use super::{replaced_file, runtime};

/// When it is dropped, it is removed with everything in it.
#[derive(Debug)]
pub struct RunDirectory(TempDir);

impl RunDirectory {
    /// Makes one with an unpredictable name, readable by this user alone.
    pub fn create() -> Result<Self, String> {
        let (parent, _) = runtime::open_first(&runtime::SESSION)?;
        let mut new = tempfile::Builder::new();
        new.prefix("run-").permissions(Permissions::from_mode(0o700));
        let made = new.tempdir_in(parent);
        made.map(Self).map_err(|error| format!("{}: {error}", parent.display()))
    }

    /// Writes a new file into it, readable by this user alone, and returns its path.
    pub fn write(&self, name: &str, content: &[u8]) -> Result<PathBuf, String> {
        let path = self.0.path().join(name);
        replaced_file::put(&path, content, 0o600)
            .map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(path)
    }
}
