//! A kubeconfig file that is changed: read and written whole, under kubectl's lock, with a copy of what it was.

use std::ffi::OsString;
use std::fs::Metadata;
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{slice, thread};

use super::error::{missing, unwritable};
use super::load::read;
use super::{EntryKind, Kubeconfig, PluginEntries, yaml};
use crate::error::Error;
use crate::process::replaced_file::{self, TempPath};
use crate::process::signals::is_interrupted;
use crate::process::unix_time;

/// How long another writer is waited for. kubectl holds its lock for milliseconds.
const LOCK_LIMIT: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(20);

/// A kubeconfig file that kubectl and other writers that use its lock don't write meanwhile: the lock is
/// `FILE.lock` beside it (client-go, tools/clientcmd, loader.go).
pub struct KubeconfigFile {
    _lock: TempPath,
    /// That a link leads to.
    pub path: PathBuf,
    found: Metadata,
    content: Vec<u8>,
    /// Relative paths are as they are written.
    before: Kubeconfig,
    after: Kubeconfig,
    /// What all files say together.
    pub all: Kubeconfig,
}

impl KubeconfigFile {
    /// The one of these files in which the context of this name stands. Waiting for it and [`Self::save`] end with an
    /// interruption.
    pub fn of_context(files: &[PathBuf], context: &str) -> Result<Self, Error> {
        // A pipe's content would be gone for its next reader.
        let is_pipe = |path: &&PathBuf| path.metadata().is_ok_and(|found| !found.is_file());
        if let Some(path) = files.iter().find(is_pipe) {
            return Err(unwritable(path, "it is not a regular file"));
        }
        for path in files.iter().filter(|path| path.exists()) {
            if Kubeconfig::load(slice::from_ref(path))?.has(EntryKind::Context, context) {
                let file = Self::open(path)?;
                return Ok(Self { all: Kubeconfig::load(files)?, ..file });
            }
        }
        Err(missing(files))
    }

    fn open(path: &Path) -> Result<Self, Error> {
        let failed = |error: io::Error| unwritable(path, error);
        let lock = lock(path)?;
        let path = path.canonicalize().map_err(failed)?;
        let (content, found) = read(&path).map_err(failed)?;
        // What kubectl refuses is not for us to add to.
        let before = Kubeconfig::as_written(&content, &path)?;
        let (after, all) = (before.clone(), Kubeconfig::default());
        Ok(Self { _lock: lock, path, found, content, before, after, all })
    }

    /// Has the context use these entries.
    pub fn put(&mut self, entries: &PluginEntries) -> Result<(), Error> {
        let put = entries.put_into(&mut self.after, &self.all);
        put.map_err(|reason| unwritable(&self.path, reason))
    }

    /// Gives a context back what it had before it was given this program as its plugin.
    pub fn restore(&mut self, context: &str) -> Result<(), Error> {
        self.after.restore(context, &self.all.entries_of_plugin(context))
    }

    /// Writes what has changed, with the file's mode and owner. Returns the path of a copy of what was there, `None` if
    /// nothing has changed.
    pub fn save(&self) -> Result<Option<PathBuf>, Error> {
        let Self { path, found, before, after, .. } = self;
        if before.config == after.config {
            return Ok(None);
        }
        let failed = |error: io::Error| unwritable(path, error);
        let text = yaml::write(&after.config);
        let text = text.ok_or_else(|| unwritable(path, "it would be read otherwise"))?;
        let new =
            replaced_file::like(path, text.as_bytes(), found, found.mode()).map_err(failed)?;
        if is_interrupted() {
            return Err(unwritable(path, "interrupted"));
        }
        let copy = self.back_up().map_err(failed)?;
        new.persist(path).map_err(|error| failed(error.error))?;
        Ok(Some(copy))
    }

    /// Makes a copy that replaces no other and that only its owner may read. Returns its path.
    fn back_up(&self) -> io::Result<PathBuf> {
        let mut paths = (unix_time()..).map(|it| joined(&self.path, &format!(".backup-{it}")));
        let free = paths.find(|it| !it.exists()).unwrap_or_default();
        replaced_file::like(&free, &self.content, &self.found, 0o600)?.persist_noclobber(&free)?;
        Ok(free)
    }
}

/// Waits for other writers.
fn lock(file: &Path) -> Result<TempPath, Error> {
    let path = joined(file, ".lock");
    let started = Instant::now();
    loop {
        let reason = match replaced_file::temporary(&path, 0) {
            Ok(lock) => return Ok(lock),
            Err(error) if error.kind() != ErrorKind::AlreadyExists => error.to_string(),
            Err(_) if is_interrupted() => "interrupted".to_owned(),
            Err(_) if started.elapsed() > LOCK_LIMIT => {
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

fn joined(path: &Path, suffix: &str) -> PathBuf {
    let mut joined = OsString::from(path);
    joined.push(suffix);
    joined.into()
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    /// Gives the file this current context; the path of the copy.
    fn write(path: &Path, context: &str) -> PathBuf {
        let mut file = KubeconfigFile::open(path).unwrap_or_else(|error| panic!("{error}"));
        file.after.config["current-context"] = context.into();
        file.save().unwrap().unwrap()
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
        let old = "current-context: old\n";
        fs::write(&file, old).unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o640)).unwrap();
        symlink("file", &link).unwrap();
        let backup = write(&link, "new");
        assert!(link.is_symlink());
        assert_eq!(fs::read_to_string(&file).unwrap(), "current-context: new\n");
        assert_eq!(fs::read_to_string(&backup).unwrap(), old);
        for (path, mode) in [(&file, 0o640), (&backup, 0o600)] {
            assert_eq!(fs::metadata(path).unwrap().mode() & 0o7777, mode);
        }
        // Twice in a second: the first copy stays.
        let second = write(&link, "newer");
        assert_eq!(fs::read_to_string(&second).unwrap(), "current-context: new\n");
        assert_eq!(fs::read_to_string(&backup).unwrap(), old);
        assert_eq!(names(directory.path()).len(), 4);
    }

    #[test]
    fn a_failure_leaves_nothing_behind() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("config");
        fs::create_dir(&file).unwrap();
        assert!(KubeconfigFile::open(&file).is_err());
        assert_eq!(names(directory.path()), ["config"]);
        let dangling = directory.path().join("link");
        symlink("nowhere/at/all", &dangling).unwrap();
        assert!(KubeconfigFile::open(&dangling).is_err());
        assert_eq!(names(directory.path()), ["config", "link"]);
        assert!(KubeconfigFile::open(Path::new("/proc/self/status/x/config")).is_err());
    }
}
