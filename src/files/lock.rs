//! Advisory locks between this user's processes, and lines that a holder leaves in the lock's file for later ones.
//!
//! Libraries don't always bear two processes at once: SoftHSM rewrites a token's file at each login, and finds no token
//! while another process does that; others report device errors under load. The locks are those of flock(2), so the kernel
//! releases them however their holder ends. Programs that don't ask for the lock aren't kept out.
//!
//! A lock's file begins with its holder's process number. Only holders read and write the rest.

use std::fs::Metadata;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{
    Access, FlockOperation, Mode, OFlags, access, flock, fstat, ftruncate, lstat, openat,
};
use rustix::io::{Errno, pread, pwrite};
use rustix::process::geteuid;

use crate::directories;
use messages::error::{Error, Exit, Kind};
use system::limits;

/// The kind of error that says that another process is using the library or the token.
pub const BUSY: Kind = Kind::new("busy");

/// The first pause between two tries to get a lock, which get longer. A request holds SoftHSM's lock for about 30 ms.
const SHORTEST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

/// The length in bytes of the holder's number and a line ending, which the lines follow.
const HEADER: usize = 11;
/// How many bytes of lines are written and read at most.
const LONGEST: usize = 4096;

/// A lock that is held until this is dropped or the process ends.
#[derive(Debug)]
pub struct Lock {
    file: OwnedFd,
    path: PathBuf,
    /// Files with lines that earlier holders had to leave in other directories, or that earlier releases have left under
    /// another name. The next write takes their lines over.
    fallback_files: Vec<PathBuf>,
}

/// The holder's process number for a sentence, as ` (process 7)`; empty if it isn't known.
pub fn in_brackets(holder: Option<u32>) -> String {
    holder.map_or_else(String::new, |holder| format!(" (process {holder})"))
}

/// The error, of the kind [`BUSY`], for a lock on a library or a token that others have held for as long as this process
/// has `waited`.
pub fn busy(holder: Option<u32>, waited: Duration) -> Error {
    let holder = in_brackets(holder);
    let seconds = waited.as_secs();
    let text = format!(
        "the token is in use by another request{holder} and did not become free within {seconds} s"
    );
    Error::new(Exit::Token, text).kind(BUSY).help(
        "finish or end the other request (it may be waiting for a PIN or a touch) and try again",
    )
}

/// Why a lock was not taken.
#[derive(Debug)]
pub enum LockError {
    /// Others have held it all the time: the process number of the last one, if it is known.
    Busy(Option<u32>),
    /// There is no safe place for a lock, or the file system has no locks: the reason, for a warning.
    Unavailable(String),
}

impl Lock {
    /// Takes the lock of this name, which can be any text, and waits for it no longer than `limit`. If that takes longer
    /// than [`limits::LOCK_NOTICE`], `on_wait` is called once, with the holder's process number.
    pub fn acquire_within(
        limit: Duration,
        name: &str,
        on_wait: &mut dyn FnMut(Option<u32>),
    ) -> Result<Self, LockError> {
        Self::acquire_in(&directories::LOCKS, &file_name(name, "lock"), limit, on_wait)
    }

    /// Takes a lock whose lines are kept when the machine is restarted, and waits for it no longer than [`limits::LOCK`].
    /// `earlier` is its name in an earlier release.
    pub fn acquire_lasting(name: &str, earlier: &str) -> Result<Self, LockError> {
        let names = [file_name(name, "ledger"), file_name(earlier, "refused")];
        let mut lock =
            Self::acquire_in(&directories::LASTING, &names[0], limits::LOCK, &mut |_| {})?;
        for base in directories::LASTING.iter().filter(|base| is_ours(base)) {
            for path in names.iter().map(|name| base.join(name)) {
                if path != lock.path && has_lines(base, &path)? {
                    lock.fallback_files.push(path);
                }
            }
        }
        Ok(lock)
    }

    /// Takes the lock in the first of these directories that this user can have, on a file system that has room for its file
    /// and has locks (some network file systems have none). If the file is there but can't be used, no other directory is
    /// tried: the lines in it would be passed over.
    fn acquire_in(
        directories: &[PathBuf],
        name: &str,
        limit: Duration,
        on_wait: &mut dyn FnMut(Option<u32>),
    ) -> Result<Self, LockError> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let outcome = directories::in_first(directories, |path, directory| {
            let outcome = match openat(directory, name, flags, Mode::RUSR | Mode::WUSR) {
                Err(error) if has_no_room(error) => return Err(directories::failure(path, error)),
                Err(error) => return Ok(Err(unavailable(path, error))),
                Ok(file) => Self::wait_for(path.join(name), file, limit, on_wait),
            };
            match outcome {
                Err(LockError::Unavailable(reason)) => Err(reason),
                outcome => Ok(outcome),
            }
        });
        outcome.unwrap_or_else(|reasons| Err(LockError::Unavailable(reasons)))
    }

    fn wait_for(
        path: PathBuf,
        file: OwnedFd,
        limit: Duration,
        on_wait: &mut dyn FnMut(Option<u32>),
    ) -> Result<Self, LockError> {
        let start = Instant::now();
        let mut pause = SHORTEST_PAUSE;
        let mut is_reported = false;
        loop {
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => break,
                Err(Errno::INTR) => continue,
                Err(Errno::WOULDBLOCK) => {}
                Err(error) => {
                    let reason = directories::failure(&path, error);
                    return Err(LockError::Unavailable(format!("no lock on {reason}")));
                }
            }
            let elapsed = start.elapsed();
            if elapsed >= limits::LOCK_NOTICE && !is_reported {
                is_reported = true;
                on_wait(holder(&file));
            }
            if elapsed >= limit {
                return Err(LockError::Busy(holder(&file)));
            }
            thread::sleep(pause.min(limit - elapsed));
            pause = (pause * 3 / 2).min(LONGEST_PAUSE);
        }
        // Always of the same length and in one write, so that nobody reads a part of it.
        let _ = pwrite(&file, format!("{:>10}\n", std::process::id()).as_bytes(), 0);
        Ok(Self { file, path, fallback_files: Vec::new() })
    }

    /// The lines that holders have left. A file that can't be read counts as one line.
    pub fn lines(&self) -> Vec<String> {
        let files = std::iter::once(&self.path).chain(&self.fallback_files);
        let texts = files.map(|path| match std::fs::read(path) {
            Ok(bytes) if bytes.len() <= HEADER + LONGEST => {
                String::from_utf8_lossy(bytes.get(HEADER..).unwrap_or_default()).into_owned()
            }
            _ => "(can't be read)".to_owned(),
        });
        texts.flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>()).collect()
    }

    /// Writes these lines in place of the old ones. The error is the reason why they can't be written, for people.
    pub fn write(&mut self, lines: &[String]) -> Result<(), String> {
        let failed = |error| directories::failure(&self.path, error);
        let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
        if text.len() > LONGEST {
            return Err(format!("{} is full", self.path.display()));
        }
        let before = (fstat(&self.file).map_err(failed)?.st_size as u64).max(HEADER as u64);
        let written = match pwrite(&self.file, text.as_bytes(), HEADER as u64) {
            Ok(length) if length < text.len() => Err(Errno::NOSPC),
            written => written.map(|length| (HEADER + length) as u64),
        };
        // The length isn't set if it stays: for a file system, that costs as much as changing it.
        if !written.is_ok_and(|end| end >= before) {
            let _ = ftruncate(&self.file, written.unwrap_or(before));
        }
        written.map_err(failed)?;
        for path in self.fallback_files.drain(..) {
            let _ = std::fs::remove_file(path);
        }
        Ok(())
    }
}

/// Whether it is a directory of this user, whatever its mode.
fn is_ours(directory: &Path) -> bool {
    let is_ours = |found: Metadata| found.is_dir() && found.uid() == geteuid().as_raw();
    directory.symlink_metadata().is_ok_and(is_ours)
}

/// Whether this file of the directory exists and has lines in it.
fn has_lines(directory: &Path, path: &Path) -> Result<bool, LockError> {
    match lstat(path) {
        Err(Errno::NOENT) => Ok(false),
        Ok(found) if found.st_size <= HEADER as i64 => Ok(false),
        // An error if the directory can't be written: lines that could never be removed must not count.
        Ok(_) => access(directory, Access::WRITE_OK).map(|()| true),
        Err(error) => Err(error),
    }
    .map_err(|error| unavailable(path, error))
}

/// Whether a file can't be made because its disk, or the user's share of it, is full.
fn has_no_room(error: Errno) -> bool {
    matches!(error, Errno::NOSPC | Errno::DQUOT)
}

fn unavailable(path: &Path, error: Errno) -> LockError {
    LockError::Unavailable(directories::failure(path, error))
}

/// A file name for any text. Two texts may have the same name; their holders then wait for each other.
fn file_name(text: &str, extension: &str) -> String {
    format!("{:016x}.{extension}", directories::fnv_1a(text))
}

/// The process number that the holder has written. Just after a change of holders, it is that of the one before.
fn holder(file: &OwnedFd) -> Option<u32> {
    let mut text = [0; HEADER];
    let length = pread(file, &mut text, 0).ok()?;
    str::from_utf8(text.get(..length)?).ok()?.trim().parse().ok()
}

/// Takes the lock of this name in the directory, for tests.
#[cfg(any(test, feature = "testing"))]
#[expect(clippy::unwrap_used, reason = "it is for tests")]
pub fn in_directory(directory: &Path, name: &str) -> Lock {
    // It may have to wait: a process that another test has just forked still holds an earlier lock.
    Lock::acquire_in(&[directory.to_owned()], name, limits::LOCK, &mut |_| {}).unwrap()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    use std::path::PathBuf;

    use super::*;

    const NAME: &str = "/usr/lib/softhsm/libsofthsm2.so";

    fn named(
        directory: &Path,
        name: &str,
        limit: Duration,
        on_wait: &mut dyn FnMut(Option<u32>),
    ) -> Result<Lock, LockError> {
        Lock::acquire_in(&[directory.to_owned()], &file_name(name, "lock"), limit, on_wait)
    }

    fn acquire(directory: &Path, limit: Duration) -> Result<Lock, LockError> {
        named(directory, NAME, limit, &mut |_| {})
    }

    /// A place for locks that isn't there yet, and what removes it again.
    fn base() -> (PathBuf, tempfile::TempDir) {
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
    fn a_wait_has_an_end_and_tells_who_was_waited_for_once() {
        let (base, _parent) = base();
        let first = acquire(&base, Duration::ZERO).unwrap();
        let mut reported = Vec::new();
        let limit = limits::LOCK_NOTICE + Duration::from_millis(200);
        let start = Instant::now();
        let result = named(&base, NAME, limit, &mut |holder| reported.push(holder));
        let pid = Some(std::process::id());
        assert!(matches!(result, Err(LockError::Busy(holder)) if holder == pid), "{result:?}");
        assert_eq!(reported, [pid]);
        assert!(start.elapsed() >= limit);
        drop(first);
        acquire(&base, Duration::ZERO).unwrap();
    }

    #[test]
    fn different_names_do_not_wait_for_each_other() {
        let (base, _parent) = base();
        let names = ["", "a", "b", "../../escape", "/usr/lib/opensc-pkcs11.so", &"x".repeat(5000)];
        let locks: Vec<_> = names
            .iter()
            .map(|name| named(&base, name, Duration::ZERO, &mut |_| {}).unwrap())
            .collect();
        assert_eq!(std::fs::read_dir(&base).unwrap().count(), locks.len());
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
        let (base, _parent) = base();
        let target = base.join("target");
        std::fs::create_dir(&base).unwrap();
        std::fs::set_permissions(&base, std::fs::Permissions::from_mode(0o700)).unwrap();
        symlink(&target, base.join(file_name(NAME, "lock"))).unwrap();
        reason(acquire(&base, Duration::ZERO));
        assert!(!target.exists());
    }

    fn base_in(parent: &tempfile::TempDir) -> PathBuf {
        parent.path().join("locks")
    }

    fn lines(lines: &[&str]) -> Vec<String> {
        lines.iter().map(|line| (*line).to_owned()).collect()
    }

    #[test]
    fn a_later_holder_finds_the_lines_of_earlier_ones() {
        let parent = tempfile::tempdir().unwrap();
        let mut lock = in_directory(&base_in(&parent), "ledger");
        assert_eq!(lock.lines(), [""; 0]);
        lock.write(&lines(&["one", "two"])).unwrap();
        drop(lock);
        let mut lock = in_directory(&base_in(&parent), "ledger");
        assert_eq!(lock.lines(), ["one", "two"]);
        lock.write(&lines(&["new"])).unwrap();
        assert_eq!(lock.lines(), ["new"]);
        lock.write(&[]).unwrap();
        assert_eq!(lock.lines(), [""; 0]);
        let other = in_directory(&base_in(&parent), "other");
        assert_eq!(other.lines(), [""; 0]);
    }

    #[test]
    fn a_file_of_this_users_with_lines_is_found_in_a_directory_that_it_can_change() {
        let parent = tempfile::tempdir().unwrap();
        let base = base_in(&parent);
        let mut lock = in_directory(&base, "ledger");
        let path = lock.path.clone();
        let found = |path: &Path| has_lines(&base, path);
        assert!(!found(&path).unwrap());
        lock.write(&lines(&["one"])).unwrap();
        for mode in [0o700, 0o711, 0o777] {
            std::fs::set_permissions(&base, std::fs::Permissions::from_mode(mode)).unwrap();
            assert!(found(&path).unwrap(), "{mode:o}");
        }
        assert!(!found(&base.join("none")).unwrap());
        let too_long = base.join("x".repeat(300));
        assert!(matches!(found(&too_long), Err(LockError::Unavailable(_))));
    }

    #[test]
    fn a_full_file_takes_no_more_lines_and_one_that_is_too_long_is_not_read() {
        let parent = tempfile::tempdir().unwrap();
        let mut lock = in_directory(&base_in(&parent), "ledger");
        lock.write(&lines(&["before"])).unwrap();
        let error = lock.write(&["x".repeat(LONGEST)]).unwrap_err();
        assert!(error.ends_with("ledger is full"), "{error}");
        assert_eq!(lock.lines(), ["before"]);
        ftruncate(&lock.file, (HEADER + LONGEST + 1) as u64).unwrap();
        assert_eq!(lock.lines(), ["(can't be read)"]);
    }

    #[test]
    fn a_lock_is_readable_by_its_user_alone() {
        let parent = tempfile::tempdir().unwrap();
        let lock = in_directory(&base_in(&parent), "ledger");
        assert_eq!(fstat(&lock.file).unwrap().st_mode & 0o777, 0o600);
    }
}
