//! Which file it is that a path leads to.

use std::fs::symlink_metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// A file by its device and its inode number: another one that is put in its place differs, as long as the first one is
/// there.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct FileIdentity {
    device: u64,
    inode: u64,
}

impl FileIdentity {
    /// The file at this path, which may be a symbolic link itself; `None` if there is none, or it can't be looked at.
    pub fn of(path: &Path) -> Option<Self> {
        let found = symlink_metadata(path).ok()?;
        Some(Self { device: found.dev(), inode: found.ino() })
    }
}
