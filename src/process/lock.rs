//! An advisory lock between this user's requests, around the whole use of a library.
//!
//! SoftHSM rewrites a token's file at login and finds no token while another process does;
//! others answer device errors under load. The lock is the kernel's (flock), so that it ends with
//! the process that holds it, however that ends. The file holds that process's number.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::process::geteuid;

/// Waiting longer than this is told.
const QUIET_WAIT: Duration = Duration::from_secs(1);
const SHORTEST_PAUSE: Duration = Duration::from_millis(2);
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

/// The lock, until it is dropped or the process ends.
#[derive(Debug)]
pub struct Lock {
    _file: File,
    waited: bool,
}

#[derive(Debug)]
pub enum LockError {
    /// Another process held it all the while.
    Busy { holder: Option<u32> },
    /// There is no place for it, and why.
    Unavailable(String),
}

impl Lock {
    /// Waits for `limit` at most; `on_wait` is called once, with the holder's process number,
    /// when the wait becomes one that a person notices.
    pub fn acquire(
        name: &str,
        limit: Duration,
        on_wait: &mut dyn FnMut(Option<u32>),
    ) -> Result<Self, LockError> {
        let directory = directory().map_err(LockError::Unavailable)?;
        Self::acquire_in(&directory, name, limit, on_wait)
    }

    fn acquire_in(
        directory: &Path,
        name: &str,
        limit: Duration,
        on_wait: &mut dyn FnMut(Option<u32>),
    ) -> Result<Self, LockError> {
        let path = directory.join(file_name(name));
        let unavailable =
            |error: io::Error| LockError::Unavailable(format!("{}: {error}", path.display()));
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(libc::O_NOFOLLOW)
            .open(&path)
            .map_err(unavailable)?;
        let start = Instant::now();
        let mut pause = SHORTEST_PAUSE;
        let mut waited = false;
        let mut told = false;
        loop {
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => break,
                Err(Errno::WOULDBLOCK | Errno::INTR) => {}
                Err(error) => return Err(unavailable(error.into())),
            }
            waited = true;
            let elapsed = start.elapsed();
            if elapsed >= limit {
                return Err(LockError::Busy {
                    holder: holder(&mut file),
                });
            }
            if elapsed >= QUIET_WAIT && !told {
                told = true;
                on_wait(holder(&mut file));
            }
            thread::sleep(pause);
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
        // Only a message is the poorer if this fails.
        let _ = note_holder(&mut file);
        Ok(Self {
            _file: file,
            waited,
        })
    }

    /// Whether another process held it first.
    pub fn waited(&self) -> bool {
        self.waited
    }
}

/// A directory that nobody but this user can write to or squat in.
fn directory() -> Result<PathBuf, String> {
    let user = geteuid().as_raw();
    let path = std::env::var_os("XDG_RUNTIME_DIR")
        .map(PathBuf::from)
        .filter(|path| path.is_absolute())
        .filter(|path| {
            path.metadata()
                .is_ok_and(|found| found.is_dir() && found.uid() == user)
        })
        .map_or_else(
            || PathBuf::from(format!("/tmp/pkcs11-external-signer-{user}")),
            |runtime| runtime.join("pkcs11-external-signer"),
        );
    private(path, user)
}

/// Makes the directory where it isn't there, and trusts it only if it is ours alone.
fn private(path: PathBuf, user: u32) -> Result<PathBuf, String> {
    match DirBuilder::new().mode(0o700).create(&path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            return Err(format!("{}: {error}", path.display()));
        }
        _ => {}
    }
    let found = path
        .symlink_metadata()
        .map_err(|error| format!("{}: {error}", path.display()))?;
    if !found.is_dir() || found.uid() != user || found.mode() & 0o077 != 0 {
        return Err(format!(
            "{} is not a directory of yours with mode 0700",
            path.display()
        ));
    }
    Ok(path)
}

/// The name with everything but letters and digits written as hex: no two names share a file.
fn file_name(name: &str) -> String {
    let mut file = String::with_capacity(name.len() + 8);
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() {
            file.push(char::from(byte));
        } else {
            file.push_str(&format!("_{byte:02x}"));
        }
    }
    // A file name has at most 255 bytes, and the end of a path tells more than its beginning.
    let start = file.len().saturating_sub(200);
    format!("{}.lock", file.get(start..).unwrap_or_default())
}

fn note_holder(file: &mut File) -> io::Result<()> {
    file.set_len(0)?;
    file.rewind()?;
    file.write_all(std::process::id().to_string().as_bytes())
}

fn holder(file: &mut File) -> Option<u32> {
    let mut number = String::new();
    file.rewind().ok()?;
    file.take(10).read_to_string(&mut number).ok()?;
    number.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    fn acquire(directory: &Path, limit: Duration) -> Result<Lock, LockError> {
        Lock::acquire_in(directory, "/usr/lib/module.so", limit, &mut |_| {})
    }

    #[test]
    fn the_second_waits_for_the_first() {
        let directory = tempfile::tempdir().unwrap();
        let first = acquire(directory.path(), Duration::ZERO).unwrap();
        assert!(!first.waited());
        let path = directory.path().to_owned();
        let second = thread::spawn(move || acquire(&path, Duration::from_secs(10)));
        thread::sleep(Duration::from_millis(50));
        drop(first);
        assert!(second.join().unwrap().unwrap().waited());
    }

    #[test]
    fn a_wait_has_an_end_and_names_the_holder() {
        let directory = tempfile::tempdir().unwrap();
        let _first = acquire(directory.path(), Duration::ZERO).unwrap();
        match acquire(directory.path(), Duration::from_millis(20)) {
            Err(LockError::Busy { holder }) => assert_eq!(holder, Some(std::process::id())),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn two_libraries_have_two_locks() {
        assert_ne!(file_name("/a/b.so"), file_name("/a_b.so"));
        assert!(file_name(&"/x".repeat(1000)).len() < 255);
    }

    #[test]
    fn a_directory_that_is_not_ours_alone_is_refused() {
        let user = geteuid().as_raw();
        let parent = tempfile::tempdir().unwrap();
        let open = parent.path().join("open");
        std::fs::create_dir(&open).unwrap();
        std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o755)).unwrap();
        assert!(private(open.clone(), user).is_err());
        let link = parent.path().join("link");
        symlink(parent.path(), &link).unwrap();
        assert!(private(link, user).is_err());
        assert!(private(parent.path().join("new"), user).is_ok());
        assert!(private(parent.path().join("new"), user + 1).is_err());
    }
}
