//! Files that replace others in one step: if that fails, the old file is as it was.

use std::fs::{Metadata, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, fchown};
use std::path::Path;

use tempfile::{Builder, NamedTempFile, TempPath};

/// A file that is removed when this is dropped.
pub struct TemporaryFile {
    _path: TempPath,
}

impl TemporaryFile {
    /// Makes an empty file with this mode. An error if there is a file already.
    pub fn create(path: &Path, mode: u32) -> io::Result<Self> {
        OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
        Ok(Self { _path: TempPath::try_from_path(path)? })
    }
}

/// Makes a new file with this content in the directory of `path`, under a name that can't be guessed.
fn beside(path: &Path, content: &[u8], mode: u32) -> io::Result<NamedTempFile> {
    let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty());
    let mut builder = Builder::new();
    builder.permissions(Permissions::from_mode(mode));
    let mut new = builder.tempfile_in(directory.unwrap_or_else(|| Path::new(".")))?;
    new.write_all(content)?;
    new.as_file().sync_all()?;
    Ok(new)
}

/// Makes a new file that is to replace the one that was `found` at this path, with the same owner and with this mode.
pub fn like(path: &Path, content: &[u8], found: &Metadata, mode: u32) -> io::Result<NamedTempFile> {
    let new = beside(path, content, 0o600)?;
    let own = new.as_file().metadata()?;
    if (own.uid(), own.gid()) != (found.uid(), found.gid()) {
        // Without the same group, the mode would open the file to another one.
        fchown(new.as_file(), Some(found.uid()), Some(found.gid())).map_err(|error| {
            let text = format!("the owner and group of the file can't be kept: {error}");
            io::Error::new(error.kind(), text)
        })?;
    }
    new.as_file().set_permissions(Permissions::from_mode(mode & 0o7777))?;
    Ok(new)
}

/// Whether something is mounted at this path, as single files can be in a container. Such a file can't be replaced.
#[cfg(target_os = "linux")]
pub fn is_mount_point(path: &Path) -> bool {
    use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
    let mount_of = |path: &Path| {
        let found = statx(CWD, path, AtFlags::empty(), StatxFlags::MNT_ID).ok()?;
        (found.stx_mask & StatxFlags::MNT_ID.bits() != 0).then_some(found.stx_mnt_id)
    };
    let own = mount_of(path);
    own.is_some() && path.parent().is_some_and(|parent| mount_of(parent) != own)
}

/// Only Linux mounts single files.
#[cfg(not(target_os = "linux"))]
pub fn is_mount_point(_path: &Path) -> bool {
    false
}

/// Makes the file, or replaces whatever is at its path.
pub fn put(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    beside(path, content, mode)?.persist(path)?;
    Ok(())
}

/// Makes the file with this mode, or replaces what is at its path. If that is a regular file, the new one gets its owner
/// and mode.
pub fn put_like(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    let found = path.symlink_metadata().ok().filter(Metadata::is_file);
    let new = match found {
        Some(found) => like(path, content, &found, found.mode())?,
        None => beside(path, content, mode)?,
    };
    new.persist(path)?;
    Ok(())
}

/// Makes the file, as a whole. If there is one already, that stays.
pub(super) fn add(path: &Path, content: &[u8]) -> io::Result<()> {
    match beside(path, content, 0o600)?.persist_noclobber(path) {
        Err(error) if error.error.kind() != ErrorKind::AlreadyExists => Err(error.error),
        _ => Ok(()),
    }
}
