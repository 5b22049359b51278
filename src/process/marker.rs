//! What a process leaves for later ones of the same user: that something happened, to what, and
//! when. Files in the runtime directory, a line for each time, which end with the user's session.

#![forbid(unsafe_code)]

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustix::fs::{AtFlags, Mode, OFlags, openat, renameat, statat, unlinkat};
use rustix::io::{Errno, read, write};

use super::runtime;

/// The place of a marker, whether it is there or not.
#[derive(Clone, Debug)]
pub struct Marker {
    directory: Arc<OwnedFd>,
    /// The directory's, for people.
    path: PathBuf,
    /// The file's name as far as the subject makes it.
    stem: String,
    name: String,
}

/// More is never looked at.
const LONGEST: usize = 4096;

impl Marker {
    /// `kind` is what happened, a word fit for a file's name; `subject` any text that tells to what.
    /// Where there is no safe place for it, a text says why.
    pub fn of(kind: &str, subject: &str) -> Result<Self, String> {
        Self::in_directory(runtime::directory(), kind, subject)
    }

    fn in_directory(path: &Path, kind: &str, subject: &str) -> Result<Self, String> {
        let name = runtime::file_name(subject, kind);
        Ok(Self {
            directory: Arc::new(runtime::open_directory(path)?),
            path: path.to_owned(),
            stem: name.strip_suffix(kind).unwrap_or_default().to_owned(),
            name,
        })
    }

    /// The place of another kind of marker of the same subject.
    pub fn beside(&self, kind: &str) -> Self {
        Self {
            name: self.stem.clone() + kind,
            ..self.clone()
        }
    }

    /// Adds a line, without its ending. It is for people, too, who find the file. The error is a
    /// text for people; the marker may be there all the same.
    pub fn add(&self, line: &str) -> Result<(), String> {
        self.put(OFlags::APPEND, line)
    }

    /// Makes these lines its only ones, the last without its ending. If that fails, what was there
    /// is lost, and the marker may be there without all of them.
    pub fn write(&self, lines: &str) -> Result<(), String> {
        self.put(OFlags::TRUNC, lines)
    }

    fn put(&self, how: OFlags, lines: &str) -> Result<(), String> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC | how;
        let mode = Mode::RUSR | Mode::WUSR;
        let text = lines.to_owned() + "\n";
        openat(&self.directory, &self.name, flags, mode)
            .and_then(|file| write(file, text.as_bytes()))
            .and_then(|written| {
                if written == text.len() {
                    Ok(())
                } else {
                    Err(Errno::NOSPC)
                }
            })
            .map_err(|error| runtime::failure(&self.path, error))
    }

    /// Puts this one, which is there, in the other's place, in one step that needs no room. Whether
    /// it did.
    pub fn replace(&self, other: &Self) -> bool {
        renameat(&self.directory, &self.name, &other.directory, &other.name).is_ok()
    }

    /// The lines, each with its ending. One that is there but empty, left on a full disk, has one
    /// that says nothing; `None` where there is none.
    pub fn text(&self) -> Option<String> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(&self.directory, &self.name, flags, Mode::empty()).ok()?;
        let mut bytes = vec![0; LONGEST];
        let length = read(file, bytes.as_mut_slice()).unwrap_or(0);
        bytes.truncate(length);
        let mut text = String::from_utf8_lossy(&bytes).into_owned();
        if !text.ends_with('\n') {
            text.push('\n');
        }
        Some(text)
    }

    /// When the last line was added; `None` where there is none.
    pub fn time(&self) -> Option<SystemTime> {
        let found = statat(&self.directory, &self.name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        moment(found.st_mtime, found.st_mtime_nsec)
    }

    pub fn remove(&self) {
        let _ = unlinkat(&self.directory, &self.name, AtFlags::empty());
    }
}

/// A file's time, as the system tells it; `None` for one before 1970.
pub fn moment(seconds: impl TryInto<u64>, nanoseconds: impl TryInto<u32>) -> Option<SystemTime> {
    let (seconds, nanoseconds) = (seconds.try_into().ok()?, nanoseconds.try_into().ok()?);
    SystemTime::UNIX_EPOCH.checked_add(Duration::new(seconds, nanoseconds))
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
        refused.add("token a: refused").unwrap();
        refused.add("once more").unwrap();
        assert_eq!(refused.text().unwrap(), "token a: refused\nonce more\n");
        assert!(marker("refused", "token a").time().unwrap() > before);
        assert_eq!(marker("refused", "token b").time(), None);
        assert_eq!(marker("cancelled", "token a").time(), None);
        marker("cancelled", "token a")
            .beside("refused")
            .time()
            .unwrap();
        marker("refused", "token a").remove();
        assert_eq!((refused.time(), refused.text()), (None, None));
        refused.remove();
    }

    #[test]
    fn a_marker_that_was_prepared_takes_another_ones_place() {
        let parent = tempfile::tempdir().unwrap();
        let place = parent.path().join("runtime");
        let marker = |kind| Marker::in_directory(&place, kind, "token a").unwrap();
        let (refused, prepared) = (marker("refused"), marker("prepared"));
        assert!(!prepared.replace(&refused));
        prepared.write("left by a killed process").unwrap();
        refused.add("once").unwrap();
        prepared.write("once\nagain").unwrap();
        assert_eq!(refused.text().unwrap(), "once\n");
        assert!(prepared.replace(&refused));
        assert_eq!(refused.text().unwrap(), "once\nagain\n");
        assert_eq!(prepared.text(), None);
    }

    #[test]
    fn no_marker_is_left_where_others_could_have_prepared_the_place() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert!(Marker::in_directory(file.path(), "refused", "a").is_err());
    }
}
