//! A file put in place of another in one step: whoever reads it sees the old one or the new one,
//! and a failure on the way leaves the old one as it was.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::{
    DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, chown,
};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

/// How long another writer is waited for. kubectl holds its lock for milliseconds.
const LOCK_LIMIT: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(20);

const INTERRUPTED: &str = "interrupted";

/// A file that programs with the same manners don't write meanwhile: `FILE.lock` beside it is
/// kubectl's way to say so (client-go, tools/clientcmd, loader.go).
pub(super) struct LockedFile {
    path: PathBuf,
    lock: PathBuf,
    is_interrupted: fn() -> bool,
}

impl LockedFile {
    /// The file need not be there; a directory that isn't is made, for the user alone. Nothing is
    /// waited for or put in its place once it `is_interrupted`. The error is a text for people.
    pub(super) fn lock(path: &Path, is_interrupted: fn() -> bool) -> Result<Self, String> {
        let directory = directory_of(path);
        if !directory.exists() {
            let made = fs::DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(directory);
            made.map_err(|error| about(directory, &error))?;
        }
        let lock = with_suffix(path, ".lock");
        let started = Instant::now();
        loop {
            let mut options = OpenOptions::new();
            match options.write(true).create_new(true).mode(0o000).open(&lock) {
                Ok(_) => {
                    let path = path.to_owned();
                    return Ok(Self {
                        path,
                        lock,
                        is_interrupted,
                    });
                }
                Err(error) if error.kind() != ErrorKind::AlreadyExists => {
                    return Err(about(&lock, &error));
                }
                Err(_) if is_interrupted() => return Err(INTERRUPTED.to_owned()),
                Err(_) if started.elapsed() > LOCK_LIMIT => {
                    return Err(format!(
                        "another program is writing it; if none is, remove {}",
                        lock.display()
                    ));
                }
                Err(_) => thread::sleep(PAUSE),
            }
        }
    }

    /// Puts the content in the file's place, with the old one's mode and owner; where the path is
    /// a symbolic link, in place of what it leads to. The path of a copy of the old content.
    pub(super) fn replace(self, content: &[u8]) -> Result<Option<PathBuf>, String> {
        let target = match self.path.canonicalize() {
            Ok(target) => target,
            Err(error) if error.kind() == ErrorKind::NotFound && !self.path.is_symlink() => {
                self.path.clone()
            }
            Err(error) => return Err(about(&self.path, &error)),
        };
        let old = fs::metadata(&target).ok();
        let backup = match &old {
            Some(_) => Some(back_up(&target)?),
            None => None,
        };
        let written = self.write_beside(&target, content, old.as_ref());
        if let (Err(_), Some(backup)) = (&written, &backup) {
            let _ = fs::remove_file(backup);
        }
        written.map(|()| backup)
    }

    fn write_beside(
        &self,
        target: &Path,
        content: &[u8],
        old: Option<&fs::Metadata>,
    ) -> Result<(), String> {
        let new = with_suffix(target, &format!(".new-{}", std::process::id()));
        let written = write_new(&new, content, old)
            .map_err(|error| about(&new, &error))
            .and_then(|()| match (self.is_interrupted)() {
                true => Err(INTERRUPTED.to_owned()),
                false => fs::rename(&new, target).map_err(|error| about(target, &error)),
            });
        if written.is_err() {
            let _ = fs::remove_file(&new);
            return written;
        }
        // The name is durable with its directory; not every file system can say so.
        if let Ok(directory) = File::open(directory_of(target)) {
            let _ = directory.sync_all();
        }
        Ok(())
    }
}

impl Drop for LockedFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.lock);
    }
}

/// A copy that replaces no other.
fn back_up(target: &Path) -> Result<PathBuf, String> {
    let now = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs();
    let mut candidates = (0_u32..).map(|count| match count {
        0 => with_suffix(target, &format!(".backup-{now}")),
        _ => with_suffix(target, &format!(".backup-{now}-{count}")),
    });
    let content = fs::read(target).map_err(|error| about(target, &error))?;
    let old = fs::metadata(target).ok();
    loop {
        let Some(backup) = candidates.next() else {
            return Err("no name is left for a copy".to_owned());
        };
        match write_new(&backup, &content, old.as_ref()) {
            Ok(()) => return Ok(backup),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(about(&backup, &error)),
        }
    }
}

/// A file that isn't there yet, with the mode and owner of another.
fn write_new(path: &Path, content: &[u8], like: Option<&fs::Metadata>) -> io::Result<()> {
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    let written = (|| {
        if let Some(like) = like {
            let own = file.metadata()?;
            if (own.uid(), own.gid()) != (like.uid(), like.gid()) {
                // A group that isn't ours can't be given; the mode would then open it to another.
                chown(path, Some(like.uid()), Some(like.gid())).map_err(|error| {
                    let what = match own.uid() == like.uid() {
                        true => "group",
                        false => "owner",
                    };
                    let text = format!("the {what} of the file can't be kept: {error}");
                    io::Error::new(error.kind(), text)
                })?;
            }
            file.set_permissions(Permissions::from_mode(like.mode() & 0o7777))?;
        }
        file.write_all(content)?;
        file.sync_all()
    })();
    if written.is_err() {
        let _ = fs::remove_file(path);
    }
    written
}

fn directory_of(path: &Path) -> &Path {
    path.parent()
        .filter(|parent| !parent.as_os_str().is_empty())
        .unwrap_or_else(|| Path::new("."))
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

fn about(path: &Path, error: &io::Error) -> String {
    format!("{}: {error}", path.display())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

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
        for path in [&file, &backup] {
            assert_eq!(fs::metadata(path).unwrap().mode() & 0o7777, 0o640);
        }
        // Twice in a second: the first copy stays.
        let second = lock(&link).unwrap().replace(b"newer").unwrap().unwrap();
        assert_eq!(fs::read_to_string(&second).unwrap(), "new");
        assert_eq!(fs::read_to_string(&backup).unwrap(), "old");
        assert_eq!(names(directory.path()).len(), 4);
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
        lock(&dangling).unwrap().replace(b"x").unwrap_err();
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
        fs::write(with_suffix(&file, ".lock"), "").unwrap();
        let reason = lock(&file).err().unwrap();
        assert!(reason.contains("config.lock"), "{reason}");
    }
}
