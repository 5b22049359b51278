//! A kubeconfig that is replaced: under kubectl's lock, with a copy of what it was.

use std::ffi::{OsStr, OsString};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::Mode;
use rustix::io::Errno;

use crate::process::replaced_file::{Directory, ReplacedFile, Temporary, write};
use crate::process::signals::is_interrupted;
use crate::process::unix_time;

/// How long another writer is waited for. kubectl holds its lock for milliseconds.
const LOCK_LIMIT: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(20);

const INTERRUPTED: &str = "interrupted";

/// A file that kubectl and other writers that use its lock don't write meanwhile: the lock is
/// `FILE.lock` beside it (client-go, tools/clientcmd, loader.go).
pub(super) struct LockedFile {
    _lock: Temporary,
    file: ReplacedFile,
    content: Vec<u8>,
}

impl LockedFile {
    /// The file and its content; why not, for people. Waiting and [`Self::replace`] end with an interruption.
    pub(super) fn open(path: &Path) -> Result<(Self, Vec<u8>), String> {
        let about = |error: io::Error| about(path, error);
        let (directory, name) = Directory::of(path).map_err(about)?;
        let lock = lock(&directory, name)?;
        let file = ReplacedFile::open(path).map_err(about)?;
        let mut content = Vec::new();
        if let Some(old) = &file.old {
            (&old.file).read_to_end(&mut content).map_err(about)?;
        }
        Ok((Self { _lock: lock, file, content: content.clone() }, content))
    }

    /// Puts the content in place of the file that was read, with its mode and owner. Returns the
    /// path of a copy of the old content.
    pub(super) fn replace(self, content: &[u8]) -> Result<PathBuf, String> {
        let directory = &self.file.directory;
        let about = |error: io::Error| about(&directory.path.join(&self.file.name), error);
        let new = self.file.write(content).map_err(about)?;
        if is_interrupted() {
            return Err(INTERRUPTED.to_owned());
        }
        let backup = self.back_up().map_err(about)?;
        self.file.replace(&new).inspect_err(|_| directory.remove(&backup)).map_err(about)?;
        Ok(directory.path.join(backup))
    }

    /// Makes a copy that replaces no other and that only its owner may read. Returns its name.
    fn back_up(&self) -> io::Result<OsString> {
        let directory = &self.file.directory;
        let mode = Mode::RUSR | Mode::WUSR;
        let time = unix_time();
        let mut suffix = format!(".backup-{time}");
        let mut count = 0;
        let (name, file) = loop {
            let name = joined(&self.file.name, &suffix);
            match directory.create(&name, mode) {
                Err(Errno::EXIST) => {
                    count += 1;
                    suffix = format!(".backup-{time}-{count}");
                }
                created => break (name, created?),
            }
        };
        let written = write(file, &self.content, self.file.old.as_ref(), Some(mode));
        written.inspect_err(|_| directory.remove(&name))?;
        Ok(name)
    }
}

/// Waits for other writers.
fn lock(directory: &Directory, name: &OsStr) -> Result<Temporary, String> {
    let lock = joined(name, ".lock");
    let path = directory.path.join(&lock);
    let started = Instant::now();
    loop {
        match directory.create(&lock, Mode::empty()) {
            Ok(_) => return directory.temporary(lock).map_err(|error| about(&path, error)),
            Err(Errno::EXIST) if is_interrupted() => return Err(INTERRUPTED.to_owned()),
            Err(Errno::EXIST) if started.elapsed() > LOCK_LIMIT => {
                let path = path.display();
                return Err(format!("another program is writing it; if none is, remove {path}"));
            }
            Err(Errno::EXIST) => thread::sleep(PAUSE),
            Err(error) => return Err(about(&path, error.into())),
        }
    }
}

fn joined(name: &OsStr, suffix: &str) -> OsString {
    [name, OsStr::new(suffix)].into_iter().collect()
}

fn about(path: &Path, error: io::Error) -> String {
    format!("{}: {error}", path.display())
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};

    use super::*;

    fn lock(path: &Path) -> Result<LockedFile, String> {
        LockedFile::open(path).map(|(file, _)| file)
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
        let backup = lock(&link).unwrap().replace(b"new").unwrap();
        assert!(link.is_symlink());
        assert_eq!(fs::read_to_string(&file).unwrap(), "new");
        assert_eq!(fs::read_to_string(&backup).unwrap(), "old");
        for (path, mode) in [(&file, 0o640), (&backup, 0o600)] {
            assert_eq!(fs::metadata(path).unwrap().mode() & 0o7777, mode);
        }
        // Twice in a second: the first copy stays.
        let second = lock(&link).unwrap().replace(b"newer").unwrap();
        assert_eq!(fs::read_to_string(&second).unwrap(), "new");
        assert_eq!(fs::read_to_string(&backup).unwrap(), "old");
        assert_eq!(names(directory.path()).len(), 4);
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
        fs::write(path("config"), "ours").unwrap();
        locked.replace(b"new").unwrap_err();
        assert_eq!(fs::read_to_string(path("config")).unwrap(), "ours");
        fs::remove_file(path("new")).unwrap();
        assert_eq!(names(directory.path()), ["config"]);
    }

    #[test]
    fn a_failure_leaves_nothing_behind() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("config");
        fs::create_dir(&file).unwrap();
        assert!(lock(&file).is_err());
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
