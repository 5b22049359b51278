//! An advisory lock between this user's own processes, around the use of a token.
//!
//! SoftHSM rewrites a token's file at login and finds no token while another process does that;
//! other modules answer device errors under load. The lock is flock(2)'s, so the kernel releases
//! it however its holder ends. It keeps out nobody who doesn't ask for it.

#![forbid(unsafe_code)]

use std::os::fd::OwnedFd;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, Mode, OFlags, flock, openat};
use rustix::io::{Errno, pread, pwrite};

use super::runtime;

/// How long others may keep a lock: longer than a prompt may stay unanswered, so that whoever waits
/// behind one gets its turn.
pub const LIMIT: Duration = Duration::from_secs(90);
/// A longer wait is told: a person begins to wonder.
const QUIET_WAIT: Duration = Duration::from_secs(1);
/// The holder of SoftHSM's lock needs about 30 ms.
const SHORTEST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

/// The lock is held, until this is dropped or the process ends.
#[derive(Debug)]
pub struct Lock {
    _file: OwnedFd,
    waited: bool,
}

#[derive(Debug)]
pub enum LockError {
    /// Others held it until the limit; the last of them, if its process number is known.
    Busy { holder: Option<u32> },
    /// There is no safe place for a lock, or the system has no locks: why, for a warning.
    Unavailable(String),
}

impl Lock {
    /// Takes the lock of this name, which can be any text. Waits for it, [`LIMIT`] at the longest;
    /// `on_wait` is called once, with the holder's process number, if that takes over a second.
    pub fn acquire(name: &str, on_wait: &mut dyn FnMut(Option<u32>)) -> Result<Self, LockError> {
        Self::acquire_within(LIMIT, name, on_wait)
    }

    /// The same with less patience, or more.
    pub fn acquire_within(
        limit: Duration,
        name: &str,
        on_wait: &mut dyn FnMut(Option<u32>),
    ) -> Result<Self, LockError> {
        let directory = runtime::directory().map_err(LockError::Unavailable)?;
        Self::acquire_in(directory, name, limit, on_wait)
    }

    /// Takes the lock that guards what is remembered under this name. Waits for it as
    /// [`Lock::acquire`] does.
    pub fn acquire_for_memory(name: &str) -> Result<Self, LockError> {
        let directory = runtime::memory().map_err(LockError::Unavailable)?;
        Self::acquire_in(directory, name, LIMIT, &mut |_| {})
    }

    fn acquire_in(
        directory: &Path,
        name: &str,
        limit: Duration,
        on_wait: &mut dyn FnMut(Option<u32>),
    ) -> Result<Self, LockError> {
        let file = open_file(directory, name).map_err(LockError::Unavailable)?;
        let start = Instant::now();
        let mut pause = SHORTEST_PAUSE;
        let (mut waited, mut told) = (false, false);
        loop {
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => break,
                Err(Errno::INTR) => continue,
                Err(Errno::WOULDBLOCK) => waited = true,
                Err(error) => {
                    return Err(LockError::Unavailable(format!(
                        "no lock in {}: {}",
                        directory.display(),
                        std::io::Error::from(error)
                    )));
                }
            }
            let elapsed = start.elapsed();
            if elapsed >= limit {
                return Err(LockError::Busy {
                    holder: holder(&file),
                });
            }
            if elapsed >= QUIET_WAIT && !told {
                told = true;
                on_wait(holder(&file));
            }
            thread::sleep(pause.min(limit - elapsed));
            pause = (pause * 3 / 2).min(LONGEST_PAUSE);
        }
        note_holder(&file);
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

/// Opens the lock's file; the error is a text for people.
fn open_file(path: &Path, name: &str) -> Result<OwnedFd, String> {
    let directory = runtime::open_directory(path)?;
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file_name = runtime::file_name(name, "lock");
    openat(&directory, file_name, flags, Mode::RUSR | Mode::WUSR)
        .map_err(|error| runtime::failure(path, error))
}

/// Writes this process's number into the file: always as many bytes, in one write, so that nobody
/// reads a part of it. Only a message is the poorer if that fails.
fn note_holder(file: &OwnedFd) {
    let _ = pwrite(file, format!("{:>10}\n", std::process::id()).as_bytes(), 0);
}

/// The number that the holder wrote; just after a change of holders, that of the one before.
fn holder(file: &OwnedFd) -> Option<u32> {
    let mut text = [0; 11];
    let length = pread(file, &mut text, 0).ok()?;
    str::from_utf8(text.get(..length)?)
        .ok()?
        .trim()
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    use std::path::PathBuf;
    use std::process::Stdio;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::super::child;
    use super::*;

    const NAME: &str = "/usr/lib/softhsm/libsofthsm2.so";
    const LONG: Duration = Duration::from_secs(30);

    fn acquire(directory: &Path, limit: Duration) -> Result<Lock, LockError> {
        Lock::acquire_in(directory, NAME, limit, &mut |_| {})
    }

    /// A place for locks that isn't there yet, and what removes it again.
    fn place() -> (PathBuf, tempfile::TempDir) {
        let parent = tempfile::tempdir().unwrap();
        (parent.path().join("locks"), parent)
    }

    fn reason(result: Result<Lock, LockError>) -> String {
        match result {
            Err(LockError::Unavailable(reason)) => reason,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn fifty_at_once_all_get_through_one_at_a_time() {
        let (place, _parent) = place();
        let inside = AtomicU32::new(0);
        let start = Instant::now();
        thread::scope(|scope| {
            for _ in 0..50 {
                scope.spawn(|| {
                    let _lock = acquire(&place, LONG).unwrap();
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                    thread::sleep(Duration::from_millis(5));
                    inside.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        assert!(start.elapsed() < LONG / 2, "{:?}", start.elapsed());
    }

    #[test]
    fn a_wait_has_an_end_and_tells_who_was_waited_for_once() {
        let (place, _parent) = place();
        let first = acquire(&place, Duration::ZERO).unwrap();
        assert!(!first.waited());
        let mut told = Vec::new();
        let limit = QUIET_WAIT + Duration::from_millis(200);
        let start = Instant::now();
        let result = Lock::acquire_in(&place, NAME, limit, &mut |holder| told.push(holder));
        let own = Some(std::process::id());
        assert!(
            matches!(result, Err(LockError::Busy { holder }) if holder == own),
            "{result:?}"
        );
        assert_eq!(told, [own]);
        assert!(start.elapsed() >= limit);
        drop(first);
        assert!(!acquire(&place, Duration::ZERO).unwrap().waited());
    }

    #[test]
    fn whoever_had_to_wait_knows_it() {
        let (place, _parent) = place();
        let first = acquire(&place, Duration::ZERO).unwrap();
        thread::scope(|scope| {
            let second = scope.spawn(|| acquire(&place, LONG).unwrap().waited());
            thread::sleep(Duration::from_millis(50));
            drop(first);
            assert!(second.join().unwrap());
        });
    }

    #[test]
    fn a_holder_that_is_killed_leaves_no_lock() {
        const PLACE: &str = "LOCK_OF_A_TEST";
        if child::is_this() {
            let place = PathBuf::from(std::env::var_os(PLACE).unwrap());
            let _lock = acquire(&place, Duration::ZERO).unwrap();
            rustix::io::write(rustix::stdio::stderr(), b"!").unwrap();
            thread::sleep(LONG);
        }
        let (place, _parent) = place();
        let mut holder =
            child::command("process::lock::tests::a_holder_that_is_killed_leaves_no_lock")
                .env(PLACE, &place)
                .stdout(Stdio::null())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap();
        holder.stderr.take().unwrap().read_exact(&mut [0]).unwrap();
        let other = Some(holder.id());
        let result = acquire(&place, Duration::from_millis(10));
        assert!(
            matches!(result, Err(LockError::Busy { holder }) if holder == other),
            "{result:?}"
        );
        holder.kill().unwrap();
        holder.wait().unwrap();
        acquire(&place, Duration::ZERO).unwrap();
    }

    #[test]
    fn different_names_do_not_wait_for_each_other() {
        let (place, _parent) = place();
        let names = [
            "",
            "a",
            "b",
            "../../escape",
            "/usr/lib/opensc-pkcs11.so",
            &"x".repeat(5000),
        ];
        let locks: Vec<_> = names
            .iter()
            .map(|name| Lock::acquire_in(&place, name, Duration::ZERO, &mut |_| {}).unwrap())
            .collect();
        assert_eq!(std::fs::read_dir(&place).unwrap().count(), locks.len());
    }

    #[test]
    fn a_place_that_somebody_prepared_is_refused() {
        let parent = tempfile::tempdir().unwrap();
        let own = parent.path().join("own");
        acquire(&own, Duration::ZERO).unwrap();
        assert_eq!(own.metadata().unwrap().permissions().mode() & 0o777, 0o700);

        let link = parent.path().join("link");
        symlink(&own, &link).unwrap();
        assert!(reason(acquire(&link, Duration::ZERO)).ends_with("is not a directory"));

        let file = parent.path().join("file");
        std::fs::write(&file, "").unwrap();
        assert!(reason(acquire(&file, Duration::ZERO)).ends_with("is not a directory"));

        for mode in [0o710, 0o701, 0o777] {
            std::fs::set_permissions(&own, std::fs::Permissions::from_mode(mode)).unwrap();
            let reason = reason(acquire(&own, Duration::ZERO));
            assert!(
                reason.ends_with(&format!("is open to other users (mode 0{mode:o})")),
                "{reason}"
            );
        }
    }

    #[test]
    fn a_lock_file_that_is_a_link_is_not_followed() {
        let (place, _parent) = place();
        let target = place.join("target");
        std::fs::create_dir(&place).unwrap();
        std::fs::set_permissions(&place, std::fs::Permissions::from_mode(0o700)).unwrap();
        symlink(&target, place.join(runtime::file_name(NAME, "lock"))).unwrap();
        reason(acquire(&place, Duration::ZERO));
        assert!(!target.exists());
    }
}
