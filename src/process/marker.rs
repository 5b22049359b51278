//! What a process leaves for later ones of the same user: that something happened, to what, and
//! when. Files of a line each in the runtime directory, which ends with the user's session.
//!
//! Without a safe place there are no markers: nothing is remembered, and nothing fails.

#![forbid(unsafe_code)]

use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, SystemTime};

use rustix::fs::{AtFlags, Mode, OFlags, openat, statat, unlinkat};
use rustix::io::write;

use super::runtime;

/// The place of a marker, whether it is there or not.
#[derive(Debug)]
pub struct Marker {
    directory: OwnedFd,
    name: String,
}

impl Marker {
    /// `kind` is what happened, a word fit for a file's name; `subject` any text that tells to what.
    pub fn of(kind: &str, subject: &str) -> Option<Self> {
        Self::in_directory(&runtime::directory(), kind, subject)
    }

    fn in_directory(path: &Path, kind: &str, subject: &str) -> Option<Self> {
        Some(Self {
            directory: runtime::open_directory(path).ok()?,
            name: runtime::file_name(subject, kind),
        })
    }

    /// Leaves it, with the present time; `line` is for people who find it.
    pub fn leave(&self, line: &str) {
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = Mode::RUSR | Mode::WUSR;
        // An empty one, left on a full disk, says as much.
        if let Ok(file) = openat(&self.directory, &self.name, flags, mode) {
            let _ = write(file, format!("{line}\n").as_bytes());
        }
    }

    /// When it was left; `None` where there is none.
    pub fn time(&self) -> Option<SystemTime> {
        let found = statat(&self.directory, &self.name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        let seconds = u64::try_from(found.st_mtime).ok()?;
        let nanoseconds = u32::try_from(found.st_mtime_nsec).ok()?;
        SystemTime::UNIX_EPOCH.checked_add(Duration::new(seconds, nanoseconds))
    }

    pub fn remove(&self) {
        let _ = unlinkat(&self.directory, &self.name, AtFlags::empty());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_marker_is_found_by_its_kind_and_subject_until_it_is_removed() {
        let parent = tempfile::tempdir().unwrap();
        let place = parent.path().join("runtime");
        let marker = |kind, subject| Marker::in_directory(&place, kind, subject).unwrap();
        let refused = marker("refused", "token a");
        assert_eq!(refused.time(), None);
        let before = SystemTime::now() - Duration::from_secs(1);
        refused.leave("token a: refused");
        assert!(marker("refused", "token a").time().unwrap() > before);
        assert_eq!(marker("refused", "token b").time(), None);
        assert_eq!(marker("cancelled", "token a").time(), None);
        marker("refused", "token a").remove();
        assert_eq!(refused.time(), None);
        refused.remove();
    }

    #[test]
    fn no_marker_is_left_where_others_could_have_prepared_the_place() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert!(Marker::in_directory(file.path(), "refused", "a").is_none());
    }
}
