//! What a process leaves for later ones of the same user: that something happened, to what, and
//! when. Files with a line for each time, which others don't write meanwhile if they keep to a lock.

#![forbid(unsafe_code)]

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustix::fs::{AtFlags, Mode, OFlags, fstat, ftruncate, openat, statat, unlinkat};
use rustix::io::{Errno, pwrite, read};

use super::runtime;

/// The place of a marker, whether it is there or not.
#[derive(Clone, Debug)]
pub struct Marker {
    directory: Arc<OwnedFd>,
    /// The directory's, for people.
    path: PathBuf,
    name: String,
}

/// A line that was added.
#[derive(Debug)]
pub struct Line {
    file: OwnedFd,
    offset: u64,
    length: usize,
}

/// More is never looked at, or written.
const LONGEST: usize = 4096;

impl Marker {
    /// One that ends with the user's session at the latest. `kind` is what happened, a word fit for a
    /// file's name; `subject` any text that tells to what. Where there is no safe place for it, a text
    /// says why.
    pub fn of(kind: &str, subject: &str) -> Result<Self, String> {
        let directory = runtime::directory()?;
        Ok(Self::in_directory(
            directory,
            runtime::open_directory(directory)?,
            kind,
            subject,
        ))
    }

    /// One that stays, and those that are in other places where it may have been put.
    pub fn remembered(kind: &str, subject: &str) -> Result<(Self, Vec<Self>), String> {
        let directory = runtime::memory()?;
        let opened = runtime::open_directory(directory)?;
        let others = runtime::memories()
            .iter()
            .filter(|other| *other != directory);
        let others = others.filter_map(|other| {
            let opened = runtime::open_existing(other).ok()?;
            Some(Self::in_directory(other, opened, kind, subject))
        });
        let others = others.collect();
        Ok((Self::in_directory(directory, opened, kind, subject), others))
    }

    fn in_directory(path: &Path, directory: OwnedFd, kind: &str, subject: &str) -> Self {
        Self {
            directory: Arc::new(directory),
            path: path.to_owned(),
            name: runtime::file_name(subject, kind),
        }
    }

    /// Adds a line, without its ending. It is for people, too, who find the file. The error is a
    /// text for people, and then nothing was added.
    pub fn add(&self, line: &str) -> Result<Line, String> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = Mode::RUSR | Mode::WUSR;
        let failed = |error| runtime::failure(&self.path, error);
        let file = openat(&self.directory, &self.name, flags, mode).map_err(failed)?;
        let size = fstat(&file).map_err(failed)?.st_size;
        let line = Line {
            file,
            offset: u64::try_from(size).unwrap_or_default(),
            length: line.len() + 1,
        }
        .filled(line);
        line.map_err(failed)
    }

    /// Makes these lines, each with its ending, its only ones; without any it is gone.
    pub fn write(&self, lines: &str) {
        self.remove();
        for line in lines.lines() {
            let _ = self.add(line);
        }
    }

    /// The lines, each with its ending; `None` where there is none.
    pub fn text(&self) -> Option<String> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(&self.directory, &self.name, flags, Mode::empty()).ok()?;
        let mut bytes = vec![0; LONGEST];
        let length = read(file, bytes.as_mut_slice()).unwrap_or(0);
        bytes.truncate(length);
        Some(String::from_utf8_lossy(&bytes).into_owned()).filter(|text| !text.is_empty())
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

impl Line {
    fn filled(self, text: &str) -> Result<Self, Errno> {
        // What is full says enough already.
        if self.offset >= LONGEST as u64 {
            return Ok(self);
        }
        let written = self.put(text).inspect_err(|_| self.take_back());
        written.map(|()| self)
    }

    fn put(&self, text: &str) -> Result<(), Errno> {
        let text = text.to_owned() + "\n";
        match pwrite(&self.file, text.as_bytes(), self.offset)? {
            written if written == text.len() => Ok(()),
            _ => Err(Errno::NOSPC),
        }
    }

    /// Puts another in its place, which is as long and so needs no room.
    pub fn replace_with(&self, text: &str) {
        if text.len() + 1 == self.length && self.offset < LONGEST as u64 {
            let _ = self.put(text);
        }
    }

    /// It was the last.
    pub fn take_back(&self) {
        if self.offset < LONGEST as u64 {
            let _ = ftruncate(&self.file, self.offset);
        }
    }
}

/// A file's time, as the system tells it; `None` for one before 1970.
fn moment(seconds: impl TryInto<u64>, nanoseconds: impl TryInto<u32>) -> Option<SystemTime> {
    let (seconds, nanoseconds) = (seconds.try_into().ok()?, nanoseconds.try_into().ok()?);
    SystemTime::UNIX_EPOCH.checked_add(Duration::new(seconds, nanoseconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marker(place: &Path, kind: &str, subject: &str) -> Marker {
        let opened = runtime::open_directory(place).unwrap();
        Marker::in_directory(place, opened, kind, subject)
    }

    #[test]
    fn a_marker_is_found_by_its_kind_and_subject_until_it_is_removed() {
        let parent = tempfile::tempdir().unwrap();
        let place = parent.path().join("runtime");
        let refused = marker(&place, "refused", "token a");
        assert_eq!(refused.time(), None);
        let before = SystemTime::now() - Duration::from_secs(1);
        refused.add("token a: refused").unwrap();
        refused.add("once more").unwrap();
        assert_eq!(refused.text().unwrap(), "token a: refused\nonce more\n");
        assert!(marker(&place, "refused", "token a").time().unwrap() > before);
        assert_eq!(marker(&place, "refused", "token b").time(), None);
        assert_eq!(marker(&place, "cancelled", "token a").time(), None);
        marker(&place, "refused", "token a").remove();
        assert_eq!((refused.time(), refused.text()), (None, None));
        refused.remove();
    }

    #[test]
    fn a_line_becomes_another_or_is_taken_back() {
        let parent = tempfile::tempdir().unwrap();
        let marker = marker(&parent.path().join("runtime"), "refused", "token a");
        marker.add("first").unwrap();
        let line = marker.add("unclear").unwrap();
        line.replace_with("refused");
        assert_eq!(marker.text().unwrap(), "first\nrefused\n");
        line.replace_with("longer than it was");
        assert_eq!(marker.text().unwrap(), "first\nrefused\n");
        marker.add("third").unwrap().take_back();
        assert_eq!(marker.text().unwrap(), "first\nrefused\n");
        marker.write("only\n");
        assert_eq!(marker.text().unwrap(), "only\n");
        marker.write("");
        assert_eq!(marker.text(), None);
        // It grows no longer than it is read.
        for _ in 0..LONGEST {
            marker.add("again").unwrap();
        }
        assert!(marker.text().unwrap().len() <= LONGEST);
    }
}
