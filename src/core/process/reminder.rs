//! What is said once a day by all processes of this user: a file for each subject, whose time of change
//! is when it was said last. Where that can't be remembered, it is said.

#![forbid(unsafe_code)]

use std::os::fd::OwnedFd;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{FlockOperation, Mode, OFlags, flock, fstat, openat};
use rustix::io::{Errno, pwrite};

use super::runtime;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Whether it is time to say something about this subject, which counts as said from now on.
pub fn is_due(subject: &str) -> bool {
    let Ok((_, directory)) = runtime::open_first(&runtime::LASTING) else {
        return true;
    };
    is_due_in(&directory, subject).unwrap_or(true)
}

fn is_due_in(directory: &OwnedFd, subject: &str) -> Result<bool, Errno> {
    let name = format!("{:016x}.said", runtime::fnv_1a(subject));
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = openat(directory, name, flags, Mode::RUSR | Mode::WUSR)?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        // Another process is saying it.
        Err(Errno::WOULDBLOCK) => return Ok(false),
        locked => locked?,
    }
    let found = fstat(&file)?;
    let said = u64::try_from(found.st_mtime).unwrap_or_default();
    let since = SystemTime::now().duration_since(UNIX_EPOCH + Duration::from_secs(said));
    // A time in the future was another clock's.
    if found.st_size > 0 && since.is_ok_and(|since| since < DAY) {
        return Ok(false);
    }
    // A write sets the time even where the file stays the same.
    pwrite(&file, b"\n", 0)?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};

    use super::*;

    #[test]
    fn it_is_said_once_a_day_for_each_subject() {
        let place = tempfile::tempdir().unwrap();
        let directory = OwnedFd::from(File::open(place.path()).unwrap());
        let is_due = |subject: &str| is_due_in(&directory, subject).unwrap();
        assert!(is_due("one"));
        assert!(!is_due("one"));
        assert!(is_due("other"));
        let hour = Duration::from_secs(60 * 60);
        let now = SystemTime::now();
        for (said, expected) in
            [(now - 23 * hour, false), (now - 25 * hour, true), (now + hour, true)]
        {
            for file in fs::read_dir(place.path()).unwrap() {
                let file = File::options().write(true).open(file.unwrap().path()).unwrap();
                file.set_modified(said).unwrap();
            }
            assert_eq!(is_due("one"), expected);
            assert_eq!(is_due("other"), expected);
            assert!(!is_due("one"));
        }
    }

    #[test]
    fn without_a_memory_it_is_said() {
        let place = tempfile::tempdir().unwrap();
        let directory = OwnedFd::from(File::open(place.path()).unwrap());
        drop(place);
        is_due_in(&directory, "one").unwrap_err();
    }
}
