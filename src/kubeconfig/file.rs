//! A kubeconfig file that is changed: it is read and written as a whole, under kubectl's lock, and its former content
//! is copied.

use std::ffi::OsString;
use std::fs::{self, Metadata};
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{slice, thread};

use super::error::{missing, unwritable};
use super::load::{ReadFile, read};
use super::{EntryKind, Kubeconfig, yaml};
use files::replaced_file::{self, TemporaryFile};
use messages::error::Error;
use system::clock::unix_time;
use system::limits;
use system::signals::is_interrupted;

/// The time between two looks at another writer's lock.
const PAUSE: Duration = Duration::from_millis(20);

/// The result of changing a file.
pub struct Change<T> {
    /// What the edit of the file has returned.
    pub outcome: T,
    /// The path of the file, with links followed.
    pub path: PathBuf,
    /// The path of a copy of the former content; `None` if nothing has changed.
    pub copy: Option<PathBuf>,
}

/// Changes the one of these files that has the context of this name. `edit` gets that file and what all files say
/// together. The lock `FILE.lock` keeps kubectl and other writers away meanwhile (client-go, tools/clientcmd,
/// loader.go). A signal ends the wait for it.
pub fn change<T>(
    files: &[PathBuf],
    context: &str,
    edit: impl FnOnce(&mut Kubeconfig, &Kubeconfig, &Path) -> Result<T, Error>,
) -> Result<Change<T>, Error> {
    let path = file_of(files, context)?;
    write(path, |file, path| edit(file, &Kubeconfig::load(files)?, path))
}

/// Fails if [`change`] would, as far as that is known before: everything is done but the change.
pub fn check_change(files: &[PathBuf], context: &str) -> Result<(), Error> {
    let LockedFile { path, content, found, .. } = LockedFile::open(file_of(files, context)?)?;
    let new = replaced_file::like(&path, &content, &found, found.mode());
    new.map(drop).map_err(|error| unwritable(&path, error))
}

/// The one of these files that has the context.
fn file_of<'a>(files: &'a [PathBuf], context: &str) -> Result<&'a Path, Error> {
    // A pipe isn't read: its content would be gone for its next reader.
    let is_pipe = |path: &&PathBuf| path.metadata().is_ok_and(|found| !found.is_file());
    if let Some(path) = files.iter().find(is_pipe) {
        return Err(unwritable(path, "it is not a regular file"));
    }
    for path in files.iter().filter(|path| path.exists()) {
        if Kubeconfig::load(slice::from_ref(path))?.has(EntryKind::Context, context) {
            return Ok(path);
        }
    }
    Err(missing(files))
}

/// A file that is locked against other writers.
struct LockedFile {
    _lock: TemporaryFile,
    /// The path of the file, with links followed.
    path: PathBuf,
    content: Vec<u8>,
    found: Metadata,
    config: Kubeconfig,
}

impl LockedFile {
    /// Waits for the file's lock, and reads it.
    fn open(path: &Path) -> Result<Self, Error> {
        let lock = lock(path)?;
        let path = path.canonicalize().map_err(|error| unwritable(path, error))?;
        if replaced_file::is_mount_point(&path) {
            return Err(unwritable(
                &path,
                "it is a mount point, which no other file can take the place of",
            ));
        }
        let ReadFile { content, found } = read(&path).map_err(|error| unwritable(&path, error))?;
        // A file that kubectl refuses must not be changed.
        let config = Kubeconfig::as_written(&content, &path)?;
        Ok(Self { _lock: lock, path, content, found, config })
    }
}

/// Changes the file as `edit` does. It keeps its mode and owner. Relative paths in it stay as they are written.
fn write<T>(
    path: &Path,
    edit: impl FnOnce(&mut Kubeconfig, &Path) -> Result<T, Error>,
) -> Result<Change<T>, Error> {
    let locked = LockedFile::open(path)?;
    let mut after = locked.config.clone();
    let outcome = edit(&mut after, &locked.path)?;
    let mut copy = None;
    if locked.config.config != after.config {
        copy = Some(locked.replace_with(&after)?);
    }
    Ok(Change { outcome, path: locked.path, copy })
}

impl LockedFile {
    /// Writes this kubeconfig in the file's place. Returns the path of a copy of the former content.
    fn replace_with(&self, config: &Kubeconfig) -> Result<PathBuf, Error> {
        let Self { path, found, .. } = self;
        let failed = |error: io::Error| unwritable(path, error);
        let text = yaml::write(&config.config)
            .ok_or_else(|| unwritable(path, "it would be read otherwise"))?;
        let new =
            replaced_file::like(path, text.as_bytes(), found, found.mode()).map_err(failed)?;
        if is_interrupted() {
            return Err(unwritable(path, "interrupted"));
        }
        let copy = self.copy().map_err(failed)?;
        if let Err(error) = new.persist(path) {
            // The copy is of no use: it has what the file still has.
            let _ = fs::remove_file(&copy);
            return Err(failed(error.error));
        }
        Ok(copy)
    }

    /// Copies the file to `FILE.backup-TIME`. The copy replaces no other one, and only its owner may read it.
    fn copy(&self) -> io::Result<PathBuf> {
        let mut time = unix_time();
        let mut copy = self.copy_of(time);
        while copy.exists() {
            time += 1;
            copy = self.copy_of(time);
        }
        let kept = replaced_file::like(&copy, &self.content, &self.found, 0o600)?;
        kept.persist_noclobber(&copy).map_err(|error| error.error)?;
        Ok(copy)
    }

    /// The path of a copy that was made at this time, in seconds since 1970.
    fn copy_of(&self, time: i64) -> PathBuf {
        joined(&self.path, &format!(".backup-{time}"))
    }
}

/// Waits for other writers, and keeps them out from then on.
fn lock(file: &Path) -> Result<TemporaryFile, Error> {
    let path = joined(file, ".lock");
    let started = Instant::now();
    loop {
        let reason = match TemporaryFile::create(&path, 0) {
            Ok(lock) => return Ok(lock),
            Err(error) if error.kind() != ErrorKind::AlreadyExists => error.to_string(),
            Err(_) if is_interrupted() => "interrupted".to_owned(),
            Err(_) if started.elapsed() > limits::KUBECONFIG_LOCK => {
                format!("another program is writing it; if none is, remove {}", path.display())
            }
            Err(_) => {
                thread::sleep(PAUSE);
                continue;
            }
        };
        return Err(unwritable(file, reason));
    }
}

/// The path with this suffix.
fn joined(path: &Path, suffix: &str) -> PathBuf {
    let mut joined = OsString::from(path);
    joined.push(suffix);
    joined.into()
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    /// Gives the file this current context; the path of the copy.
    fn set(path: &Path, context: &str) -> Result<PathBuf, Error> {
        let set = |file: &mut Kubeconfig, _: &Path| {
            file.config["current-context"] = context.into();
            Ok(())
        };
        write(path, set).map(|change| change.copy.unwrap())
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
        let file = directory.path().join("file");
        let link = directory.path().join("link");
        let old = "current-context: old\n";
        fs::write(&file, old).unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o640)).unwrap();
        symlink("file", &link).unwrap();
        let backup = set(&link, "new").unwrap();
        assert!(link.is_symlink());
        assert_eq!(fs::read_to_string(&file).unwrap(), "current-context: new\n");
        assert_eq!(fs::read_to_string(&backup).unwrap(), old);
        for (path, mode) in [(&file, 0o640), (&backup, 0o600)] {
            assert_eq!(fs::metadata(path).unwrap().mode() & 0o7777, mode);
        }
        // Twice in a second: the first copy stays.
        let second = set(&link, "newer").unwrap();
        assert_eq!(fs::read_to_string(&second).unwrap(), "current-context: new\n");
        assert_eq!(fs::read_to_string(&backup).unwrap(), old);
        assert_eq!(names(directory.path()).len(), 4);
    }

    #[test]
    fn a_failure_leaves_nothing_behind() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("config");
        fs::create_dir(&file).unwrap();
        assert!(set(&file, "a").is_err());
        assert_eq!(names(directory.path()), ["config"]);
        let dangling = directory.path().join("link");
        symlink("nowhere/at/all", &dangling).unwrap();
        assert!(set(&dangling, "a").is_err());
        assert_eq!(names(directory.path()), ["config", "link"]);
        assert!(set(Path::new("/proc/self/status/x/config"), "a").is_err());
    }
}
