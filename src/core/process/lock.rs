//! Advisory locks between this user's own processes, and the lines that their holders leave in them
//! for later ones.
//!
//! SoftHSM rewrites a token's file at login and finds no token while another process does that;
//! other modules answer device errors under load. The lock is flock(2)'s, so the kernel releases
//! it however its holder ends. It keeps out no process that doesn't ask for it.
//!
//! The locked file begins with its holder's process number. What follows is a ledger: lines that only
//! a holder reads and writes. `LONGEST` bounds it.

#![forbid(unsafe_code)]

use std::ops::Range;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags, flock, fstat, ftruncate, openat, statat};
use rustix::io::{Errno, pread, pwrite};

use super::runtime;

/// How long others may keep a lock: longer than a prompt may stay unanswered, so that a process that
/// waits behind one still gets the lock.
pub const LIMIT: Duration = Duration::from_secs(90);
/// A longer wait is reported: a person begins to wonder.
const QUIET_WAIT: Duration = Duration::from_secs(1);
/// The holder of SoftHSM's lock needs about 30 ms.
const SHORTEST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

/// The holder's number and a line ending, in bytes; the ledger's lines follow.
const HEADER: usize = 11;
/// No line is added to a file this long, in bytes.
const LONGEST: usize = 4096;
/// What is read of a file: the last line may begin just before that.
const READ: usize = 2 * LONGEST;

/// The lock is held, until this is dropped or the process ends.
#[derive(Debug)]
pub struct Lock {
    file: OwnedFd,
    path: PathBuf,
    waited: bool,
    /// Files in which an earlier holder may have had to write: of the same name in other places, and of
    /// an earlier release.
    elsewhere: Vec<OwnedFd>,
    /// Where the line is that was added last.
    added: Option<Range<usize>>,
}

/// Others held a lock all the while.
#[derive(Debug)]
pub struct LockBusy {
    pub waited: Duration,
    /// The last of them, if its process number is known.
    pub holder: Option<u32>,
}

#[derive(Debug)]
pub enum LockError {
    Busy(LockBusy),
    /// There is no safe place for a lock, or the system has no locks: why, for a warning.
    Unavailable(String),
}

impl Lock {
    /// Takes the lock of this name, which can be any text, and waits for it no longer than `limit`.
    /// `on_wait` is called once, with the holder's process number, if that takes over a second.
    pub fn acquire_within(
        limit: Duration,
        name: &str,
        on_wait: &mut dyn FnMut(Option<u32>),
    ) -> Result<Self, LockError> {
        let (path, directory) =
            runtime::open_first(&runtime::SESSION).map_err(LockError::Unavailable)?;
        Self::acquire_in(path, &directory, &file_name(name, "lock"), limit, on_wait)
    }

    /// Takes a lock whose lines stay when the machine is restarted, and waits for it for [`LIMIT`].
    /// `earlier` names it in an earlier release.
    pub fn acquire_lasting(name: &str, earlier: &str) -> Result<Self, LockError> {
        let places = &runtime::LASTING;
        let names = [file_name(name, "ledger"), file_name(earlier, "refused")];
        let (mut taken, mut reasons) = (None, Vec::new());
        for path in places.iter() {
            let directory = match runtime::open_directory(path) {
                Ok(directory) => directory,
                Err(reason) => {
                    reasons.push(reason);
                    continue;
                }
            };
            let file = open_file(path, &directory, &names[0])?;
            match Self::wait_for(path.join(&names[0]), file, LIMIT, &mut |_| {}) {
                // A file system without locks, such as some network's.
                Err(LockError::Unavailable(reason)) => reasons.push(reason),
                lock => {
                    taken = Some(lock?);
                    break;
                }
            }
        }
        let mut lock = taken.ok_or_else(|| LockError::Unavailable(reasons.join("; ")))?;
        for path in places.iter() {
            for name in names.iter().filter(|name| path.join(name) != lock.path) {
                let file = earlier_file(path, name).map_err(LockError::Unavailable)?;
                lock.elsewhere.extend(file);
            }
        }
        Ok(lock)
    }

    /// `path` is the directory's, for messages.
    fn acquire_in(
        path: &Path,
        directory: &OwnedFd,
        file_name: &str,
        limit: Duration,
        on_wait: &mut dyn FnMut(Option<u32>),
    ) -> Result<Self, LockError> {
        let file = open_file(path, directory, file_name)?;
        Self::wait_for(path.join(file_name), file, limit, on_wait)
    }

    fn wait_for(
        path: PathBuf,
        file: OwnedFd,
        limit: Duration,
        on_wait: &mut dyn FnMut(Option<u32>),
    ) -> Result<Self, LockError> {
        let start = Instant::now();
        let mut pause = SHORTEST_PAUSE;
        let (mut waited, mut told) = (false, false);
        loop {
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => break,
                Err(Errno::INTR) => continue,
                Err(Errno::WOULDBLOCK) => waited = true,
                Err(error) => {
                    let reason = runtime::failure(&path, error);
                    return Err(LockError::Unavailable(format!("no lock on {reason}")));
                }
            }
            let elapsed = start.elapsed();
            if elapsed >= limit {
                return Err(LockError::Busy(LockBusy { waited: limit, holder: holder(&file) }));
            }
            if elapsed >= QUIET_WAIT && !told {
                told = true;
                on_wait(holder(&file));
            }
            thread::sleep(pause.min(limit - elapsed));
            pause = (pause * 3 / 2).min(LONGEST_PAUSE);
        }
        note_holder(&file);
        Ok(Self { file, path, waited, elsewhere: Vec::new(), added: None })
    }

    /// Whether another process held it first.
    pub fn waited(&self) -> bool {
        self.waited
    }

    /// The lines that holders have left.
    pub fn lines(&self) -> Vec<String> {
        let files = std::iter::once(&self.file).chain(&self.elsewhere);
        files.flat_map(lines_of).collect()
    }

    /// Adds a line.
    pub fn add(&mut self, line: &str) -> Result<(), String> {
        self.added = None;
        let failed = |error| runtime::failure(&self.path, error);
        let size = fstat(&self.file).map_err(failed)?.st_size;
        let end = usize::try_from(size).unwrap_or(LONGEST).max(HEADER);
        if end >= LONGEST {
            return Err(format!("{} is full", self.path.display()));
        }
        if let Err(error) = write_line(&self.file, line, end) {
            let _ = ftruncate(&self.file, end as u64);
            return Err(failed(error));
        }
        self.added = Some(end..end + line.len());
        Ok(())
    }

    /// Puts another line, which is as long and so needs no room, in the place of the one that was
    /// added last.
    pub fn replace_added(&mut self, line: &str) {
        if let Some(place) = &self.added
            && place.len() == line.len()
        {
            let _ = write_line(&self.file, line, place.start);
        }
    }

    /// Takes the line that was added last away again, unless a process that holds the lock of another
    /// place has done so.
    pub fn remove_added(&mut self) {
        if let Some(place) = self.added.take()
            && fstat(&self.file).is_ok_and(|file| file.st_size >= place.end as i64)
        {
            let _ = ftruncate(&self.file, place.start as u64);
        }
    }

    /// Removes the other lines, and changes these, unless they become more than can be read.
    pub fn retain(&mut self, mut keep: impl FnMut(&mut String) -> bool) {
        self.added = None;
        for file in std::iter::once(&self.file).chain(&self.elsewhere) {
            let before = lines_of(file);
            let mut lines = before.clone();
            lines.retain_mut(&mut keep);
            if lines == before {
                continue;
            }
            let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
            if text.is_empty()
                || text.len() <= READ
                    && pwrite(file, text.as_bytes(), HEADER as u64) == Ok(text.len())
            {
                let _ = ftruncate(file, (HEADER + text.len()) as u64);
            }
        }
    }
}

fn open_file(path: &Path, directory: &OwnedFd, name: &str) -> Result<OwnedFd, LockError> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(directory, name, flags, Mode::RUSR | Mode::WUSR)
        .map_err(|error| LockError::Unavailable(runtime::failure(path, error)))
}

/// A file of before, whatever has become of its directory's mode; `None` if there is none, or if it has no
/// lines and can't have any.
fn earlier_file(directory: &Path, name: &str) -> Result<Option<OwnedFd>, String> {
    let Some(opened) = runtime::find_own(directory)? else {
        return Ok(None);
    };
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match openat(&opened, name, flags, Mode::empty()) {
        Ok(file) => Ok(Some(file)),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => match statat(&opened, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(found) if found.st_size <= HEADER as i64 => Ok(None),
            _ => Err(runtime::failure(&directory.join(name), error)),
        },
    }
}

fn lines_of(file: &OwnedFd) -> Vec<String> {
    let mut bytes = vec![0; READ];
    let Ok(length) = pread(file, bytes.as_mut_slice(), HEADER as u64) else {
        return vec!["(can't be read)".to_owned()];
    };
    let text = String::from_utf8_lossy(bytes.get(..length).unwrap_or_default());
    text.lines().map(str::to_owned).collect()
}

fn write_line(file: &OwnedFd, line: &str, place: usize) -> Result<(), Errno> {
    let line = format!("{line}\n");
    match pwrite(file, line.as_bytes(), place as u64)? {
        written if written == line.len() => Ok(()),
        _ => Err(Errno::NOSPC),
    }
}

/// A file name for any text. Texts that should collide would share a file: a wait without need, or
/// another token's lines.
fn file_name(text: &str, extension: &str) -> String {
    format!("{:016x}.{extension}", runtime::fnv_1a(text))
}

/// Writes this process's number into the file: always as many bytes, in one write, so that no part
/// of it is read. Only a message is the poorer if that fails.
fn note_holder(file: &OwnedFd) {
    let _ = pwrite(file, format!("{:>10}\n", std::process::id()).as_bytes(), 0);
}

/// The number that the holder wrote; just after a change of holders, that of the one before.
fn holder(file: &OwnedFd) -> Option<u32> {
    let mut text = [0; HEADER];
    let length = pread(file, &mut text, 0).ok()?;
    str::from_utf8(text.get(..length)?).ok()?.trim().parse().ok()
}

/// For tests of what is kept in a lock.
#[cfg(test)]
pub(crate) fn in_directory(directory: &Path, name: &str) -> Lock {
    let opened = runtime::open_directory(directory).unwrap();
    // A process that another test has just forked still has the one before.
    Lock::acquire_in(directory, &opened, name, LIMIT, &mut |_| {}).unwrap()
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    use std::path::PathBuf;
    use std::process::Stdio;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::sync::mpsc;

    use super::super::child;
    use super::*;

    const NAME: &str = "/usr/lib/softhsm/libsofthsm2.so";
    /// Nothing but what hangs takes so long.
    const LONG: Duration = Duration::from_secs(600);

    fn named(
        directory: &Path,
        name: &str,
        limit: Duration,
        on_wait: &mut dyn FnMut(Option<u32>),
    ) -> Result<Lock, LockError> {
        let opened = runtime::open_directory(directory).map_err(LockError::Unavailable)?;
        Lock::acquire_in(directory, &opened, &file_name(name, "lock"), limit, on_wait)
    }

    fn acquire(directory: &Path, limit: Duration) -> Result<Lock, LockError> {
        named(directory, NAME, limit, &mut |_| {})
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
    }

    #[test]
    fn a_wait_has_an_end_and_tells_who_was_waited_for_once() {
        let (place, _parent) = place();
        let first = acquire(&place, Duration::ZERO).unwrap();
        assert!(!first.waited());
        let mut told = Vec::new();
        let limit = QUIET_WAIT + Duration::from_millis(200);
        let start = Instant::now();
        let result = named(&place, NAME, limit, &mut |holder| told.push(holder));
        let own = Some(std::process::id());
        assert!(
            matches!(result, Err(LockError::Busy(LockBusy { holder, .. })) if holder == own),
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
            let (waits, is_waiting) = mpsc::channel();
            let place = &place;
            let second = scope.spawn(move || {
                let mut on_wait = |_| waits.send(()).unwrap();
                named(place, NAME, LONG, &mut on_wait).unwrap().waited()
            });
            is_waiting.recv().unwrap();
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
            matches!(result, Err(LockError::Busy(LockBusy { holder, .. })) if holder == other),
            "{result:?}"
        );
        holder.kill().unwrap();
        holder.wait().unwrap();
        acquire(&place, Duration::ZERO).unwrap();
    }

    #[test]
    fn different_names_do_not_wait_for_each_other() {
        let (place, _parent) = place();
        let names = ["", "a", "b", "../../escape", "/usr/lib/opensc-pkcs11.so", &"x".repeat(5000)];
        let locks: Vec<_> = names
            .iter()
            .map(|name| named(&place, name, Duration::ZERO, &mut |_| {}).unwrap())
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
        symlink(&target, place.join(file_name(NAME, "lock"))).unwrap();
        reason(acquire(&place, Duration::ZERO));
        assert!(!target.exists());
    }

    fn place_in(parent: &tempfile::TempDir) -> PathBuf {
        parent.path().join("locks")
    }

    #[test]
    fn a_later_holder_finds_the_lines_of_earlier_ones() {
        let parent = tempfile::tempdir().unwrap();
        let mut lock = in_directory(&place_in(&parent), "ledger");
        assert_eq!(lock.lines(), [""; 0]);
        lock.add("one").unwrap();
        lock.add("two").unwrap();
        drop(lock);
        let mut lock = in_directory(&place_in(&parent), "ledger");
        assert_eq!(lock.lines(), ["one", "two"]);
        // Nothing was added by this one.
        lock.remove_added();
        lock.replace_added("xxx");
        assert_eq!(lock.lines(), ["one", "two"]);
        lock.add("new").unwrap();
        lock.replace_added("NEW");
        lock.replace_added("longer");
        assert_eq!(lock.lines(), ["one", "two", "NEW"]);
        lock.remove_added();
        lock.retain(|line| line != "one");
        assert_eq!(lock.lines(), ["two"]);
        lock.retain(|line| {
            line.push_str(" and more");
            true
        });
        assert_eq!(lock.lines(), ["two and more"]);
        lock.retain(|_| false);
        assert_eq!(lock.lines(), [""; 0]);
        let other = in_directory(&place_in(&parent), "other");
        assert_eq!(other.lines(), [""; 0]);
    }

    #[test]
    fn lines_in_other_places_count_and_go_too() {
        let parent = tempfile::tempdir().unwrap();
        let mut earlier = in_directory(&parent.path().join("earlier"), "ledger");
        earlier.add("one").unwrap();
        let mut lock = in_directory(&place_in(&parent), "ledger");
        lock.elsewhere.push(earlier.file);
        lock.add("two").unwrap();
        assert_eq!(lock.lines(), ["two", "one"]);
        lock.retain(|line| line == "two");
        assert_eq!(lock.lines(), ["two"]);
    }

    #[test]
    fn a_full_file_takes_no_more_lines_and_keeps_what_it_has() {
        let parent = tempfile::tempdir().unwrap();
        let mut lock = in_directory(&place_in(&parent), "ledger");
        let full = (0..LONGEST).find_map(|_| lock.add("again").err());
        assert!(full.unwrap().ends_with("ledger is full"));
        let lines = lock.lines();
        lock.retain(|line| {
            *line = line.repeat(3);
            true
        });
        assert!(fstat(&lock.file).unwrap().st_size as usize <= LONGEST + "again\n".len());
        lock.replace_added("other");
        lock.remove_added();
        assert_eq!(lock.lines(), lines);
    }

    #[test]
    fn a_lock_is_readable_by_its_user_alone() {
        let parent = tempfile::tempdir().unwrap();
        let lock = in_directory(&place_in(&parent), "ledger");
        assert_eq!(fstat(&lock.file).unwrap().st_mode & 0o777, 0o600);
    }
}
