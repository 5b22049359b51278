//! A directory for the files of one run, removed when the run ends.

#![forbid(unsafe_code)]

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;

use tempfile::{Builder, TempDir};

use super::runtime;

/// Makes one with an unpredictable name, readable by this user alone. When this is dropped, it is removed with
/// everything in it.
pub fn create() -> Result<TempDir, String> {
    runtime::in_first(&runtime::SESSION, |parent, _| {
        let mut new = Builder::new();
        new.prefix("run-").permissions(Permissions::from_mode(0o700));
        new.tempdir_in(parent).map_err(|error| format!("{}: {error}", parent.display()))
    })
}
