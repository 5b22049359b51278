//! A kubeconfig that is replaced: under kubectl's lock, with copies of what it was.

use std::cmp::Reverse;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, ErrorKind, Seek as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{Dir, Mode};
use rustix::io::Errno;

use super::file::{self, ReadFailure};
use crate::process::replaced_file::{Directory, OldFile, ReplacedFile, Temporary, write};
use crate::process::unix_time;

/// How long another writer is waited for. kubectl holds its lock for milliseconds.
const LOCK_LIMIT: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(20);

/// How many copies of earlier contents are kept.
const BACKUPS: usize = 3;
/// What follows a file's name in that of a copy, before the time.
const BACKUP: &str = ".backup-";

const INTERRUPTED: &str = "interrupted";

/// A file that kubectl and other writers that use its lock don't write meanwhile: the lock is
/// `FILE.lock` beside it (client-go, tools/clientcmd, loader.go).
pub(super) struct LockedFile {
    _lock: Temporary,
    file: ReplacedFile,
    is_interrupted: fn() -> bool,
}

impl LockedFile {
    /// Locks the file, which need not be there; its directory is made if it isn't, for the user
    /// alone. Waiting and [`Self::replace`] end once it `is_interrupted`.
    ///
    /// # Errors
    ///
    /// A text for people: the file or its directory can't be opened, or is locked for too long.
    pub(super) fn lock(path: &Path, is_interrupted: fn() -> bool) -> Result<Self, String> {
        let parent = path.parent().filter(|it| !it.as_os_str().is_empty());
        if let Some(parent) = parent.filter(|it| !it.exists()) {
            let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(parent);
            made.map_err(|error| about(parent, error))?;
        }
        let (directory, name) = Directory::of(path).map_err(|error| about(path, error))?;
        Ok(Self {
            _lock: lock(&directory, name, is_interrupted)?,
            file: ReplacedFile::open(path).map_err(|error| about(path, error))?,
            is_interrupted,
        })
    }

    /// The content of the file.
    pub(super) fn read(&self) -> Result<Vec<u8>, ReadFailure> {
        let old = self.file.old.as_ref().ok_or(ReadFailure::Missing)?;
        file::read_regular(&old.file, &old.found)
    }

    /// Puts the content in place of the file that was read, with its mode and owner. Returns the
    /// path of a copy of the old content.
    pub(super) fn replace(self, content: &[u8]) -> Result<Option<PathBuf>, String> {
        let directory = &self.file.directory.path;
        self.replace_open(content)
            .map(|backup| backup.map(|backup| directory.join(backup)))
            .map_err(|error| match error.kind() {
                ErrorKind::Interrupted => INTERRUPTED.to_owned(),
                _ => about(&directory.join(&self.file.name), error),
            })
    }

    fn replace_open(&self, content: &[u8]) -> io::Result<Option<OsString>> {
        let new = self.file.write(content)?;
        if (self.is_interrupted)() {
            return Err(ErrorKind::Interrupted.into());
        }
        let (directory, name) = (&self.file.directory, &self.file.name);
        let backup = self.file.old.as_ref();
        let backup = backup.map(|old| back_up(directory, name, old)).transpose()?;
        if let Err(error) = self.file.replace(&new) {
            if let Some(backup) = &backup {
                directory.remove(backup);
            }
            return Err(error);
        }
        if backup.is_some() {
            remove_old_backups(directory, name);
        }
        Ok(backup)
    }
}

/// Waits for other writers.
fn lock(
    directory: &Directory,
    name: &OsStr,
    is_interrupted: fn() -> bool,
) -> Result<Temporary, String> {
    let lock = joined(&[name, OsStr::new(".lock")]);
    let path = directory.path.join(&lock);
    let started = Instant::now();
    loop {
        match directory.create(&lock, Mode::empty()) {
            Ok(_) => {
                let lock = directory.temporary(lock);
                return lock.map_err(|error| about(&path, error));
            }
            Err(Errno::EXIST) if is_interrupted() => return Err(INTERRUPTED.to_owned()),
            Err(Errno::EXIST) if started.elapsed() > LOCK_LIMIT => {
                return Err(format!(
                    "another program is writing it; if none is, remove {}",
                    path.display()
                ));
            }
            Err(Errno::EXIST) => thread::sleep(PAUSE),
            Err(error) => return Err(about(&path, error)),
        }
    }
}

/// Makes a copy that replaces no other and that only its owner may read. Returns its name.
fn back_up(directory: &Directory, name: &OsStr, old: &OldFile) -> io::Result<OsString> {
    (&old.file).rewind()?;
    let content = file::read_regular(&old.file, &old.found).map_err(|failure| match failure {
        ReadFailure::Missing => io::Error::from(ErrorKind::NotFound),
        ReadFailure::Other(reason) => io::Error::other(reason),
    })?;
    let mode = Mode::RUSR | Mode::WUSR;
    let first = format!("{BACKUP}{}", unix_time());
    let mut count = 0;
    let (backup, file) = loop {
        let suffix = match count {
            0 => first.clone(),
            _ => format!("{first}-{count}"),
        };
        let backup = joined(&[name, OsStr::new(&suffix)]);
        match directory.create(&backup, mode) {
            Err(Errno::EXIST) => count += 1,
            created => break (backup, created?),
        }
    };
    write(file, &content, Some(old), Some(mode)).inspect_err(|_| directory.remove(&backup))?;
    Ok(backup)
}

/// The oldest copies go first. One that can't be removed is tried again the next time.
fn remove_old_backups(directory: &Directory, name: &OsStr) {
    let prefix = joined(&[name, OsStr::new(BACKUP)]);
    let Ok(entries) = Dir::read_from(&directory.open) else {
        return;
    };
    let mut backups: Vec<_> = entries
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name().to_bytes();
            let suffix = str::from_utf8(name.strip_prefix(prefix.as_bytes())?).ok()?;
            let (time, count) = suffix.split_once('-').unwrap_or((suffix, "0"));
            let order: (u64, u64) = (time.parse().ok()?, count.parse().ok()?);
            Some((Reverse(order), OsStr::from_bytes(name).to_owned()))
        })
        .collect();
    backups.sort();
    for (_, backup) in backups.into_iter().skip(BACKUPS) {
        directory.remove(&backup);
    }
}

fn joined(parts: &[&OsStr]) -> OsString {
    parts.iter().copied().collect()
}

fn about(path: &Path, error: impl Into<io::Error>) -> String {
    format!("{}: {}", path.display(), error.into())
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};

    use super::*;

    fn lock(path: &Path) -> Result<LockedFile, String> {
        LockedFile::lock(path, || false)
    }

    fn names(directory: &Path) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(directory)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn the_link_stays_and_what_it_leads_to_is_replaced_with_its_mode() {
        let directory = tempfile::tempdir().unwrap();
        let (file, link) = (directory.path().join("file"), directory.path().join("link"));
        fs::write(&file, "old").unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o640)).unwrap();
        symlink("file", &link).unwrap();
        let backup = lock(&link).unwrap().replace(b"new").unwrap().unwrap();
        assert!(link.is_symlink());
        assert_eq!(fs::read_to_string(&file).unwrap(), "new");
        assert_eq!(fs::read_to_string(&backup).unwrap(), "old");
        for (path, mode) in [(&file, 0o640), (&backup, 0o600)] {
            assert_eq!(fs::metadata(path).unwrap().mode() & 0o7777, mode);
        }
        // Twice in a second: the first copy stays.
        let second = lock(&link).unwrap().replace(b"newer").unwrap().unwrap();
        assert_eq!(fs::read_to_string(&second).unwrap(), "new");
        assert_eq!(fs::read_to_string(&backup).unwrap(), "old");
        assert_eq!(names(directory.path()).len(), 4);
    }

    #[test]
    fn few_copies_are_kept_and_nothing_else_goes() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        fs::write(path("config"), "now").unwrap();
        let others = ["config.backup-mine", "config.backup-7-a", "config2.backup-1"];
        let copies = ["config.backup-9", "config.backup-10", "config.backup-10-1"];
        for name in others.iter().chain(&copies) {
            fs::write(path(name), "").unwrap();
        }
        lock(&path("config")).unwrap().replace(b"x").unwrap();
        let left = names(directory.path());
        assert_eq!(left.len(), 1 + others.len() + BACKUPS, "{left:?}");
        assert!(others.iter().all(|name| path(name).exists()), "{left:?}");
        assert!(!path("config.backup-9").exists(), "{left:?}");
    }

    /// The directory's owner has time to exchange files between any two calls.
    #[test]
    fn only_what_was_read_is_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        fs::write(path("config"), "a stranger's").unwrap();
        fs::write(path("victim"), "root's").unwrap();
        fs::set_permissions(path("victim"), Permissions::from_mode(0o600)).unwrap();
        let locked = lock(&path("config")).unwrap();
        fs::rename(path("victim"), path("config")).unwrap();
        let reason = locked.replace(b"new").unwrap_err();
        assert!(reason.ends_with("it was changed meanwhile"), "{reason}");
        assert_eq!(fs::read_to_string(path("config")).unwrap(), "root's");
        let locked = lock(&path("new")).unwrap();
        symlink("config", path("new")).unwrap();
        locked.replace(b"new").unwrap_err();
        assert_eq!(fs::read_to_string(path("config")).unwrap(), "root's");
        // In place, by a program without kubectl's lock.
        let locked = lock(&path("config")).unwrap();
        locked.read().ok().unwrap();
        fs::write(path("config"), "ours").unwrap();
        locked.replace(b"new").unwrap_err();
        assert_eq!(fs::read_to_string(path("config")).unwrap(), "ours");
        fs::remove_file(path("new")).unwrap();
        assert_eq!(names(directory.path()), ["config"]);
    }

    #[test]
    fn a_new_file_is_the_users_alone() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("a/b/config");
        assert_eq!(lock(&file).unwrap().replace(b"x").unwrap(), None);
        assert_eq!(fs::metadata(&file).unwrap().mode() & 0o7777, 0o600);
        let parent = fs::metadata(file.parent().unwrap()).unwrap();
        assert_eq!(parent.mode() & 0o7777, 0o700);
        assert_eq!(names(file.parent().unwrap()), ["config"]);
    }

    #[test]
    fn a_failure_leaves_nothing_behind() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("config");
        fs::create_dir(&file).unwrap();
        lock(&file).unwrap().replace(b"x").unwrap_err();
        assert_eq!(names(directory.path()), ["config"]);
        let dangling = directory.path().join("link");
        symlink("nowhere/at/all", &dangling).unwrap();
        assert!(lock(&dangling).is_err());
        assert_eq!(names(directory.path()), ["config", "link"]);
        assert!(lock(Path::new("/proc/self/status/x/config")).is_err());
    }

    #[test]
    fn another_writer_is_waited_for_and_a_lock_that_stays_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("config");
        let first = lock(&file).unwrap();
        let waiting = thread::spawn({
            let file = file.clone();
            move || lock(&file).map(drop)
        });
        thread::sleep(Duration::from_millis(100));
        drop(first);
        assert_eq!(waiting.join().unwrap(), Ok(()));
        fs::write(file.with_extension("lock"), "").unwrap();
        let reason = lock(&file).err().unwrap();
        assert!(reason.contains("config.lock"), "{reason}");
    }
}
