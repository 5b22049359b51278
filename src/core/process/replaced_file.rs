//! A file put in place of another in one step: a reader sees the old one or the new one, and a
//! failure leaves the old one as it was.

#![forbid(unsafe_code)]

use std::ffi::OsString;
use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, fchown};
use std::path::{Path, PathBuf};

/// A file that is removed when it is dropped.
pub struct Temporary(PathBuf);

impl Temporary {
    /// Makes a file that isn't there yet.
    pub fn create(path: PathBuf, mode: u32) -> io::Result<(Self, File)> {
        let file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&path)?;
        Ok((Self(path), file))
    }

    /// A new file of this content, beside the one of this path and with a name that can't be guessed.
    fn beside(path: &Path, content: &[u8], mode: u32) -> io::Result<(Self, File)> {
        let mut random = [0; 8];
        getrandom::fill(&mut random).map_err(io::Error::other)?;
        let name = path.file_name().ok_or_else(|| io::Error::other("it is not a file's path"))?;
        let mut hidden = OsString::from(".");
        hidden.push(name);
        hidden.push(format!(".new-{:016x}", u64::from_ne_bytes(random)));
        let (new, mut file) = Self::create(path.with_file_name(hidden), mode)?;
        file.write_all(content)?;
        file.sync_all()?;
        Ok((new, file))
    }

    /// A file to be put at this path, with the owner of the one that was found and this mode.
    pub fn of(path: &Path, content: &[u8], found: &Metadata, mode: u32) -> io::Result<Self> {
        let (new, file) = Self::beside(path, content, 0o600)?;
        let own = file.metadata()?;
        if (own.uid(), own.gid()) != (found.uid(), found.gid()) {
            // The mode would open it to another group.
            fchown(&file, Some(found.uid()), Some(found.gid())).map_err(|error| {
                let text = format!("the owner and group of the file can't be kept: {error}");
                io::Error::new(error.kind(), text)
            })?;
        }
        file.set_permissions(Permissions::from_mode(mode & 0o7777))?;
        Ok(new)
    }

    /// Puts it in the place of what is at this path, whatever that is.
    pub fn put(self, path: &Path) -> io::Result<()> {
        fs::rename(&self.0, path)
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Makes the file, or puts it in the place of the one that is there, whatever that is.
pub fn put(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    Temporary::beside(path, content, mode)?.0.put(path)
}

/// Makes the file, whole; one that is there stays.
pub(super) fn add(path: &Path, content: &[u8]) -> io::Result<()> {
    let (new, _) = Temporary::beside(path, content, 0o600)?;
    match fs::hard_link(&new.0, path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}
