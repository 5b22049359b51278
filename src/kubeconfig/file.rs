//! One file, whole and within limits, and the paths that are written in it.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Read as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use rustix::io::Errno;

/// In bytes. A kubeconfig with a thousand clusters has a few MiB.
const MAX_SIZE: u64 = 16 << 20;
const TOO_LARGE: &str = "it is larger than 16 MiB";

/// How long the writer of a pipe may take: `<(sops -d …)` may ask for a passphrase.
const PIPE_LIMIT: Duration = Duration::from_secs(60);

/// Why a file was not read.
pub(super) enum ReadFailure {
    Missing,
    Other(String),
}

impl ReadFailure {
    fn other(reason: &str) -> Self {
        Self::Other(reason.to_owned())
    }
}

impl From<io::Error> for ReadFailure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            ErrorKind::NotFound => Self::Missing,
            _ => Self::Other(error.to_string()),
        }
    }
}

pub(super) struct FileContent {
    pub(super) bytes: Vec<u8>,
    /// `None` for what can be read only once, such as a pipe.
    pub(super) access: Option<Access>,
}

/// Whose a regular file is, and its mode.
pub(super) struct Access {
    owner: u32,
    group: u32,
    pub(super) mode: u32,
}

impl Access {
    /// By more than this user's own group, of which many systems make this user the only member.
    pub(super) fn is_writable_by_others(&self) -> bool {
        let is_of_own_group = self.group == rustix::process::getegid().as_raw();
        self.mode & 0o002 != 0 || self.mode & 0o020 != 0 && !is_of_own_group
    }

    /// Who else can change it without being refused, in words.
    pub(super) fn concern(&self) -> Option<String> {
        let is_foreign = self.owner != 0 && self.owner != rustix::process::geteuid().as_raw();
        match self.mode & 0o020 {
            _ if is_foreign => Some(format!("belongs to uid {}, who", self.owner)),
            0 => None,
            _ => Some(format!("can be changed by its group (mode {:04o}), which", self.mode)),
        }
    }
}

/// The content of a file, or of what can be read only once, to its end: a FIFO, a shell's `<(…)`,
/// /dev/stdin, /dev/null.
pub(super) fn read(path: &Path) -> Result<FileContent, ReadFailure> {
    read_within(path, PIPE_LIMIT)
}

fn read_within(path: &Path, limit: Duration) -> Result<FileContent, ReadFailure> {
    // Neither waits for a FIFO's writer nor makes a terminal ours.
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = OpenOptions::new().read(true).custom_flags(flags.bits() as i32).open(path)?;
    let found = file.metadata()?;
    if found.is_dir() {
        return Err(ReadFailure::other("it is a directory"));
    }
    if !found.is_file() {
        let bytes = read_stream(file, limit)?;
        let access = None;
        return Ok(FileContent { bytes, access });
    }
    Ok(FileContent {
        bytes: read_regular(&file, &found)?,
        access: Some(Access {
            owner: found.uid(),
            group: found.gid(),
            mode: found.mode() & 0o7777,
        }),
    })
}

/// The content of a regular file that is open, from where it was read to.
pub(super) fn read_regular(file: &File, found: &Metadata) -> Result<Vec<u8>, ReadFailure> {
    if !found.is_file() {
        return Err(ReadFailure::other("it is not a regular file"));
    }
    if found.len() > MAX_SIZE {
        return Err(ReadFailure::other(TOO_LARGE));
    }
    // One byte more shows a file that has grown.
    let size = found.len() + 1;
    let mut content = Vec::with_capacity(size as usize);
    file.take(size).read_to_end(&mut content)?;
    if content.len() as u64 == size {
        return Err(ReadFailure::other("it was written to while it was read"));
    }
    Ok(content)
}

/// The content of a stream, which has to end within the limit.
fn read_stream(file: File, limit: Duration) -> Result<Vec<u8>, ReadFailure> {
    let deadline = Instant::now() + limit;
    let mut content = Vec::new();
    let mut rest = (&file).take(MAX_SIZE + 1);
    loop {
        let remaining = deadline.saturating_duration_since(Instant::now());
        let remaining = Timespec::try_from(remaining).ok();
        // A FIFO that has no writer yet would read as empty.
        match poll(&mut [PollFd::new(&file, PollFlags::IN)], remaining.as_ref()) {
            Ok(0) => {
                let waited = limit.as_secs();
                let reason = format!("its writer was not done after {waited} seconds");
                return Err(ReadFailure::Other(reason));
            }
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(error) => return Err(ReadFailure::Other(error.to_string())),
        }
        match rest.read_to_end(&mut content) {
            Ok(_) if rest.limit() == 0 => return Err(ReadFailure::other(TOO_LARGE)),
            Ok(_) => return Ok(content),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Why the file can't be put in place of another, if it can't; one that isn't there can be made.
pub(super) fn not_replaceable(path: &Path) -> Option<&'static str> {
    let found = std::fs::metadata(path).ok()?;
    (!found.is_file()).then_some("it is not a regular file")
}

/// The directory that the relative paths in `file` start from. Links aren't followed, and `..`
/// removes the name before it, both as in Go's filepath.
pub(super) fn directory_of(file: &Path) -> io::Result<PathBuf> {
    let absolute = cleaned(&std::path::absolute(file)?);
    Ok(absolute.parent().unwrap_or(&absolute).to_owned())
}

/// `path` as seen from `directory`, which is absolute.
pub(super) fn resolved(directory: &Path, path: &str) -> PathBuf {
    if path.starts_with('/') { path.into() } else { cleaned(&directory.join(path)) }
}

/// An absolute path without `.` and `..`.
fn cleaned(path: &Path) -> PathBuf {
    let mut clean = PathBuf::from("/");
    for component in path.components() {
        match component {
            Component::Normal(name) => clean.push(name),
            Component::ParentDir => {
                clean.pop();
            }
            Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
        }
    }
    clean
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn reason(path: &Path) -> String {
        match read_within(path, Duration::from_millis(50)) {
            Ok(content) => format!("read {}", content.bytes.len()),
            Err(ReadFailure::Missing) => "missing".into(),
            Err(ReadFailure::Other(reason)) => reason,
        }
    }

    fn fifo(path: &Path) {
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    }

    #[test]
    fn what_has_an_end_within_the_limits_is_read() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        fifo(&at("fifo"));
        fs::write(at("file"), "text").unwrap();
        fs::write(at("empty"), "").unwrap();
        std::os::unix::fs::symlink("file", at("link")).unwrap();
        std::os::unix::fs::symlink("nowhere", at("dangling")).unwrap();
        let large = File::create(at("large")).unwrap();
        large.set_len(MAX_SIZE + 1).unwrap();
        for (name, expected) in [
            ("file", "read 4"),
            ("empty", "read 0"),
            ("link", "read 4"),
            ("none", "missing"),
            ("dangling", "missing"),
            ("fifo", "its writer was not done after 0 seconds"),
            (".", "it is a directory"),
            ("large", "it is larger than 16 MiB"),
            ("/dev/null", "read 0"),
            ("/dev/zero", "it is larger than 16 MiB"),
        ] {
            assert_eq!(reason(&at(name)), expected, "{name}");
        }
        assert!(reason(&at("file/below")).contains("ot a directory"));
    }

    #[test]
    fn a_fifo_is_read_up_to_where_its_writer_closes_it() {
        use std::io::Write as _;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("fifo");
        fifo(&path);
        let writer = std::thread::spawn({
            let path = path.clone();
            move || {
                // More than a pipe holds, after a while, in two parts.
                std::thread::sleep(Duration::from_millis(100));
                let mut writer = OpenOptions::new().write(true).open(path).unwrap();
                writer.write_all(&[b'a'; 100_000]).unwrap();
                std::thread::sleep(Duration::from_millis(100));
                writer.write_all(b"b").unwrap();
            }
        });
        let content = read_within(&path, PIPE_LIMIT).ok().unwrap().bytes;
        writer.join().unwrap();
        assert_eq!((content.len(), content.last()), (100_001, Some(&b'b')));
        // A writer that doesn't end.
        let _writer = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        assert!(reason(&path).starts_with("its writer was not done"));
    }

    #[test]
    fn relative_paths_start_from_the_files_directory() {
        for (file, path, expected) in [
            ("/a/b/config", "ca.pem", "/a/b/ca.pem"),
            ("/a/b/config", "../c/./ca.pem", "/a/c/ca.pem"),
            ("/a/../b/config", "../../../ca.pem", "/ca.pem"),
            ("/config", "ca.pem", "/ca.pem"),
            ("/a/config", "/b/../ca.pem", "/b/../ca.pem"),
        ] {
            let directory = directory_of(Path::new(file)).unwrap();
            assert_eq!(resolved(&directory, path), Path::new(expected), "{file}");
        }
        let here = std::env::current_dir().unwrap();
        assert_eq!(directory_of(Path::new("config")).unwrap(), here);
        assert_eq!(directory_of(Path::new("./a/../b/config")).unwrap(), here.join("b"));
    }
}
