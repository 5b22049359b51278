//! A file put in place of another in one step: a reader sees the old one or the new one, and a
//! failure leaves the old one as it was.
//!
//! Root may edit the file of a malicious user who owns its directory. So the directory is opened
//! once, the file that is replaced is the one that was read, and owner and mode are set on open
//! files, never by name.

#![forbid(unsafe_code)]

use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::io::{self, ErrorKind, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, Gid, Mode, OFlags, RawMode, Uid, fchmod, fchown, fsync, linkat, openat, renameat,
    unlinkat,
};
use rustix::io::Errno;

/// The place of a file, which need not be there.
pub struct ReplacedFile {
    pub directory: Directory,
    pub name: OsString,
    /// As it was opened.
    pub old: Option<OldFile>,
}

pub struct OldFile {
    pub file: File,
    pub found: Metadata,
}

/// Opened once.
pub struct Directory {
    pub open: OwnedFd,
    /// For messages.
    pub path: PathBuf,
}

/// A file that is removed when it is dropped, by its name in a directory.
pub struct Temporary {
    directory: OwnedFd,
    name: OsString,
}

impl ReplacedFile {
    /// The file, or the one that a symbolic link leads to.
    pub fn open(path: &Path) -> io::Result<Self> {
        let target = match path.canonicalize() {
            Err(error) if error.kind() == ErrorKind::NotFound && !path.is_symlink() => {
                path.to_owned()
            }
            target => target?,
        };
        let (directory, name) = Directory::of(&target)?;
        Ok(Self { old: directory.old_file(name)?, name: name.to_owned(), directory })
    }

    /// The content beside the file, with the old one's mode and owner, or readable by this user alone.
    pub fn write(&self, content: &[u8]) -> io::Result<Temporary> {
        let mode = Mode::RUSR | Mode::WUSR;
        let (new, file) = self.directory.create_temporary(&self.name, mode)?;
        write(file, content, self.old.as_ref(), None)?;
        Ok(new)
    }

    /// Puts what was written in the place of the file that was opened.
    pub fn replace(&self, new: &Temporary) -> io::Result<()> {
        // Programs that heed no lock write in place.
        let state = |old: &OldFile| {
            let it = &old.found;
            (it.dev(), it.ino(), it.size(), it.mtime(), it.mtime_nsec())
        };
        match self.directory.old_file(&self.name) {
            Ok(found) if found.as_ref().map(state) == self.old.as_ref().map(state) => {
                self.directory.rename(new, &self.name)
            }
            _ => Err(io::Error::other("it was changed meanwhile")),
        }
    }
}

impl Directory {
    pub fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self { open: rustix::fs::open(path, flags, Mode::empty())?, path: path.to_owned() })
    }

    /// The directory of a file, and the file's name in it.
    pub fn of(path: &Path) -> io::Result<(Self, &OsStr)> {
        let parent = path.parent().filter(|it| !it.as_os_str().is_empty());
        let name = path.file_name();
        let name = name.ok_or_else(|| io::Error::other("it is not a file's path"))?;
        Ok((Self::open(parent.unwrap_or_else(|| Path::new(".")))?, name))
    }

    /// The file of this name, which is no symbolic link.
    fn old_file(&self, name: &OsStr) -> io::Result<Option<OldFile>> {
        // O_NONBLOCK: a FIFO without a writer must not hang the command.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = match openat(&self.open, name, flags, Mode::empty()) {
            Err(Errno::NOENT) => return Ok(None),
            opened => File::from(opened?),
        };
        let found = file.metadata()?;
        Ok(Some(OldFile { file, found }))
    }

    /// Makes a file that isn't there yet.
    pub fn create(&self, name: &OsStr, mode: Mode) -> rustix::io::Result<File> {
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        openat(&self.open, name, flags, mode).map(File::from)
    }

    /// Makes a file beside the one of this name, with a name that can't be guessed.
    fn create_temporary(&self, name: &OsStr, mode: Mode) -> io::Result<(Temporary, File)> {
        let mut random = [0; 8];
        getrandom::fill(&mut random).map_err(io::Error::other)?;
        let random = format!(".new-{:016x}", u64::from_ne_bytes(random));
        let name = [OsStr::new("."), name, OsStr::new(&random)];
        let name: OsString = name.into_iter().collect();
        let file = self.create(&name, mode)?;
        Ok((self.temporary(name)?, file))
    }

    /// A file that was made, and is to be removed.
    pub fn temporary(&self, name: OsString) -> io::Result<Temporary> {
        let directory = self.open.try_clone()?;
        Ok(Temporary { directory, name })
    }

    /// Makes the file of this name, or puts it in the place of the one that is there, whatever that is.
    pub fn put(&self, name: &OsStr, content: &[u8], mode: u32) -> io::Result<()> {
        let mode = Mode::from_raw_mode(mode as RawMode);
        let (new, file) = self.create_temporary(name, mode)?;
        write(file, content, None, None)?;
        self.rename(&new, name)
    }

    /// Makes the file of this name, whole; one that is there stays.
    pub(super) fn add(&self, name: &OsStr, content: &[u8]) -> io::Result<()> {
        let (new, file) = self.create_temporary(name, Mode::RUSR | Mode::WUSR)?;
        write(file, content, None, None)?;
        match linkat(&self.open, &new.name, &self.open, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::EXIST) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn rename(&self, new: &Temporary, name: &OsStr) -> io::Result<()> {
        renameat(&self.open, &new.name, &self.open, name)?;
        // The name is durable with its directory; not every file system can say so.
        let _ = fsync(&self.open);
        Ok(())
    }

    pub fn remove(&self, name: &OsStr) {
        let _ = unlinkat(&self.open, name, AtFlags::empty());
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = unlinkat(&self.directory, &self.name, AtFlags::empty());
    }
}

/// Fills a new file and gives it the owner of another, and its mode unless another is given.
pub fn write(
    mut file: File,
    content: &[u8],
    like: Option<&OldFile>,
    mode: Option<Mode>,
) -> io::Result<()> {
    file.write_all(content)?;
    if let Some(OldFile { found: like, .. }) = like {
        let found = file.metadata()?;
        if (found.uid(), found.gid()) != (like.uid(), like.gid()) {
            let (user, group) = (Uid::from_raw(like.uid()), Gid::from_raw(like.gid()));
            // A group that isn't ours can't be given; the mode would then open it to another.
            fchown(&file, Some(user), Some(group)).map_err(|error| {
                let what = match found.uid() == like.uid() {
                    true => "group",
                    false => "owner",
                };
                let error = io::Error::from(error);
                let text = format!("the {what} of the file can't be kept: {error}");
                io::Error::new(error.kind(), text)
            })?;
        }
        let its_mode = Mode::from_raw_mode((like.mode() & 0o7777) as RawMode);
        fchmod(&file, mode.unwrap_or(its_mode))?;
    }
    file.sync_all()
}
