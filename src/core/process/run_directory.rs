//! A directory for the files of one run, removed when the run ends.
//!
//! The run holds a lock on it (flock(2)), which the kernel releases however the run ends. So a later
//! run recognises the directory of one that was killed, and removes it.

#![forbid(unsafe_code)]

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use tempfile::TempDir;

use super::runtime;

const PREFIX: &str = "run-";

/// When it is dropped, it is removed with everything in it.
#[derive(Debug)]
pub struct RunDirectory {
    directory: TempDir,
    _locked: File,
}

impl RunDirectory {
    /// Makes one with an unpredictable name, readable by this user alone, and removes those of runs
    /// that have ended.
    pub fn create() -> Result<Self, String> {
        let (parent, _) = runtime::open_first(&runtime::SESSION)?;
        remove_abandoned(parent);
        Self::create_in(parent).map_err(|error| format!("{}: {error}", parent.display()))
    }

    fn create_in(parent: &Path) -> io::Result<Self> {
        let mut new = tempfile::Builder::new();
        let directory =
            new.prefix(PREFIX).permissions(Permissions::from_mode(0o700)).tempdir_in(parent)?;
        let locked = File::open(directory.path())?;
        // Another run that looks whether it is in use may hold it for an instant, and then have removed it.
        flock(&locked, FlockOperation::LockExclusive)?;
        fs::metadata(directory.path())?;
        Ok(Self { directory, _locked: locked })
    }

    /// Writes a new file into it, readable by this user alone, and returns its path.
    pub fn write(&self, name: &str, content: &[u8]) -> Result<PathBuf, String> {
        let path = self.directory.path().join(name);
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        match file.and_then(|mut file| file.write_all(content)) {
            Ok(()) => Ok(path),
            Err(error) => Err(format!("{}: {error}", path.display())),
        }
    }
}

/// Removes the directories of runs that have ended, and ignores errors: a later run tries again.
fn remove_abandoned(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let is_runs = entry.file_name().as_encoded_bytes().starts_with(PREFIX.as_bytes());
        let is_unlocked =
            |left: File| flock(left, FlockOperation::NonBlockingLockExclusive).is_ok();
        if is_runs && File::open(entry.path()).is_ok_and(is_unlocked) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn create_in(base: &Path) -> Result<RunDirectory, String> {
        runtime::open_directory(base)?;
        remove_abandoned(base);
        RunDirectory::create_in(base).map_err(|error| error.to_string())
    }

    #[test]
    fn it_is_private_and_gone_when_it_is_dropped() {
        let parent = tempfile::tempdir().unwrap();
        let base = parent.path().join("runtime");
        let run = create_in(&base).unwrap();
        let file = run.write("kubeconfig", b"{}").unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
        assert_eq!((mode(run.directory.path()), mode(&file)), (0o700, 0o600));
        assert_eq!(fs::read(&file).unwrap(), b"{}");
        // The command may have left something beside it.
        fs::create_dir(run.directory.path().join("more")).unwrap();
        drop(run);
        assert_eq!(fs::read_dir(&base).unwrap().count(), 0);
    }

    #[test]
    fn what_a_killed_run_has_left_is_removed_and_nothing_else() {
        let parent = tempfile::tempdir().unwrap();
        let base = parent.path().join("runtime");
        let alive = create_in(&base).unwrap();
        // What is left of a run is its directory, without the lock.
        fs::create_dir(base.join("run-dead")).unwrap();
        fs::write(base.join("run-dead/kubeconfig"), "{}").unwrap();
        fs::write(base.join("somebody.lock"), "").unwrap();
        let next = create_in(&base).unwrap();
        assert!(!base.join("run-dead").exists());
        for kept in [alive.directory.path(), next.directory.path(), &base.join("somebody.lock")] {
            assert!(kept.exists(), "{}", kept.display());
        }
    }
}
