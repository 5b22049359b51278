//! A file put in place of another in one step: a failure leaves the old one as it was.

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
    /// Makes an empty file that isn't there yet.
    pub fn create(path: &Path, mode: u32) -> io::Result<Self> {
        OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
        Ok(Self { _path: TempPath::try_from_path(path)? })
    }
}

/// A new file of this content, beside the one of this path and with a name that can't be guessed.
fn beside(path: &Path, content: &[u8], mode: u32) -> io::Result<NamedTempFile> {
    let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty());
    let mut builder = Builder::new();
    builder.permissions(Permissions::from_mode(mode));
    let mut new = builder.tempfile_in(directory.unwrap_or_else(|| Path::new(".")))?;
    new.write_all(content)?;
    new.as_file().sync_all()?;
    Ok(new)
}

/// A file to be put at this path, with the owner of the one that was found and this mode.
pub fn like(path: &Path, content: &[u8], found: &Metadata, mode: u32) -> io::Result<NamedTempFile> {
    let new = beside(path, content, 0o600)?;
    let own = new.as_file().metadata()?;
    if (own.uid(), own.gid()) != (found.uid(), found.gid()) {
        // The mode would open it to another group.
        fchown(new.as_file(), Some(found.uid()), Some(found.gid())).map_err(|error| {
            let text = format!("the owner and group of the file can't be kept: {error}");
            io::Error::new(error.kind(), text)
        })?;
    }
    new.as_file().set_permissions(Permissions::from_mode(mode & 0o7777))?;
    Ok(new)
}

/// Whether something is mounted there, as a single file is in a container: nothing can be put in its place.
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

/// Single files are mounted nowhere else.
#[cfg(not(target_os = "linux"))]
pub fn is_mount_point(_path: &Path) -> bool {
    false
}

/// Makes the file, or puts it in the place of the one that is there, whatever that is.
pub fn put(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    beside(path, content, mode)?.persist(path)?;
    Ok(())
}

/// Makes the file, or puts it in the place of the one that is there: a regular file leaves its owner and mode to its
/// successor. `mode` is that of a new one.
pub fn put_like(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    let found = path.symlink_metadata().ok().filter(Metadata::is_file);
    let new = match found {
        Some(found) => like(path, content, &found, found.mode())?,
        None => beside(path, content, mode)?,
    };
    new.persist(path)?;
    Ok(())
}

/// Makes the file, whole; one that is there stays.
pub(super) fn add(path: &Path, content: &[u8]) -> io::Result<()> {
    match beside(path, content, 0o600)?.persist_noclobber(path) {
        Err(error) if error.error.kind() != ErrorKind::AlreadyExists => Err(error.error),
        _ => Ok(()),
    }
}
