//! A directory for the files of one run, removed when the run ends.
//!
//! The run holds a lock on it (flock(2)), which the kernel releases however the run ends. So a later
//! run recognises the directory of one that was killed, and removes it.

#![forbid(unsafe_code)]

use std::fs::{self, File};
use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{Dir, FlockOperation, Mode, OFlags, flock, fstat, mkdirat, openat};
use rustix::io::Errno;

use super::runtime;

const PREFIX: &str = "run-";

/// When it is dropped, it is removed with everything in it.
#[derive(Debug)]
pub struct RunDirectory {
    path: PathBuf,
    /// Open, and locked.
    directory: OwnedFd,
}

impl RunDirectory {
    /// Makes one with an unpredictable name, readable by this user alone, and removes those of runs
    /// that have ended.
    pub fn create() -> Result<Self, String> {
        let (parent, directory) = runtime::open_first(&runtime::SESSION)?;
        Self::create_in(parent, &directory)
    }

    fn create_in(parent: &Path, directory: &OwnedFd) -> Result<Self, String> {
        remove_abandoned(parent, directory);
        let mut random = [0; 8];
        getrandom::fill(&mut random).map_err(|error| error.to_string())?;
        let name = format!("{PREFIX}{:016x}", u64::from_ne_bytes(random));
        let path = parent.join(&name);
        let failed = |error| runtime::failure(&path, error);
        mkdirat(directory, &name, Mode::RWXU).map_err(failed)?;
        let held = open_child(directory, &name).map_err(failed)?;
        // Another run that looks whether it is in use may hold it for an instant.
        flock(&held, FlockOperation::LockExclusive).map_err(failed)?;
        if fstat(&held).map_err(failed)?.st_nlink == 0 {
            return Err(format!("{} was removed by another run", path.display()));
        }
        Ok(Self { path, directory: held })
    }

    /// Writes a new file into it, readable by this user alone, and returns its path.
    pub fn write(&self, name: &str, content: &[u8]) -> Result<PathBuf, String> {
        let path = self.path.join(name);
        let failed = |error| runtime::failure(&path, error);
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(&self.directory, name, flags, Mode::RUSR | Mode::WUSR).map_err(failed)?;
        File::from(file)
            .write_all(content)
            .map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(path)
    }
}

impl Drop for RunDirectory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Removes the directories of runs that have ended, and ignores errors: a later run tries again.
fn remove_abandoned(parent: &Path, directory: &OwnedFd) {
    let Ok(entries) = Dir::read_from(directory) else {
        return;
    };
    for entry in entries.flatten() {
        let Ok(name) = entry.file_name().to_str() else {
            continue;
        };
        if !name.starts_with(PREFIX) {
            continue;
        }
        let Ok(left) = open_child(directory, name) else {
            continue;
        };
        if flock(&left, FlockOperation::NonBlockingLockExclusive).is_ok() {
            let _ = fs::remove_dir_all(parent.join(name));
        }
    }
}

fn open_child(directory: &OwnedFd, name: &str) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(directory, name, flags, Mode::empty())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn create_in(place: &Path) -> Result<RunDirectory, String> {
        RunDirectory::create_in(place, &runtime::open_directory(place)?)
    }

    #[test]
    fn it_is_private_and_gone_when_it_is_dropped() {
        let parent = tempfile::tempdir().unwrap();
        let place = parent.path().join("runtime");
        let run = create_in(&place).unwrap();
        let file = run.write("kubeconfig", b"{}").unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
        assert_eq!((mode(&run.path), mode(&file)), (0o700, 0o600));
        assert_eq!(fs::read(&file).unwrap(), b"{}");
        // The command may have left something beside it.
        fs::create_dir(run.path.join("more")).unwrap();
        drop(run);
        assert_eq!(fs::read_dir(&place).unwrap().count(), 0);
    }

    #[test]
    fn what_a_killed_run_has_left_is_removed_and_nothing_else() {
        let parent = tempfile::tempdir().unwrap();
        let place = parent.path().join("runtime");
        let alive = create_in(&place).unwrap();
        // What is left of a run is its directory, without the lock.
        fs::create_dir(place.join("run-dead")).unwrap();
        fs::write(place.join("run-dead/kubeconfig"), "{}").unwrap();
        fs::write(place.join("somebody.lock"), "").unwrap();
        let next = create_in(&place).unwrap();
        assert!(!place.join("run-dead").exists());
        for kept in [&alive.path, &next.path, &place.join("somebody.lock")] {
            assert!(kept.exists(), "{}", kept.display());
        }
    }
}
