//! One file, whole and within limits, and the paths that are written in it.

use std::fs::OpenOptions;
use std::io::Read as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Component, Path, PathBuf};

use zeroize::Zeroizing;

/// In bytes. A kubeconfig with a thousand clusters has a few MiB.
const MAX_SIZE: u64 = 16 << 20;

/// Why a file was not read.
pub(super) enum Failure {
    Missing,
    Other(String),
}

/// The content, in one buffer that is wiped.
pub(super) fn read(path: &Path) -> Result<Zeroizing<Vec<u8>>, Failure> {
    let failure = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::NotFound => Failure::Missing,
        _ => Failure::Other(error.to_string()),
    };
    let other = |reason: &str| Err(Failure::Other(reason.to_owned()));
    // O_NONBLOCK: a FIFO that nobody writes to must not hang the run.
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(rustix::fs::OFlags::NONBLOCK.bits() as i32)
        .open(path)
        .map_err(failure)?;
    let found = file.metadata().map_err(failure)?;
    if !found.is_file() {
        return other("it is not a regular file");
    }
    if found.len() > MAX_SIZE {
        return other("it is larger than 16 MiB");
    }
    // One byte more shows a file that has grown, before the buffer would have to.
    let size = found.len() + 1;
    let mut content = Zeroizing::new(Vec::with_capacity(size as usize));
    file.take(size).read_to_end(&mut content).map_err(failure)?;
    if content.len() as u64 == size {
        return other("it was written to while it was read");
    }
    Ok(content)
}

/// The directory that the relative paths in `file` start from. Links aren't followed, and `..`
/// goes up in the text: both as Go's filepath has it.
pub(super) fn directory_of(file: &Path) -> std::io::Result<PathBuf> {
    let absolute = cleaned(&std::path::absolute(file)?);
    Ok(absolute.parent().unwrap_or(&absolute).to_owned())
}

/// `path` as seen from `directory`, which is absolute.
pub(super) fn resolved(directory: &Path, path: &str) -> PathBuf {
    if path.starts_with('/') {
        path.into()
    } else {
        cleaned(&directory.join(path))
    }
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
        match read(path) {
            Ok(_) => "read".into(),
            Err(Failure::Missing) => "missing".into(),
            Err(Failure::Other(reason)) => reason,
        }
    }

    #[test]
    fn only_regular_files_within_the_limit_are_read() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        let kind = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, at("fifo"), kind, mode, 0).unwrap();
        fs::write(at("file"), "text").unwrap();
        fs::write(at("empty"), "").unwrap();
        std::os::unix::fs::symlink("file", at("link")).unwrap();
        std::os::unix::fs::symlink("nowhere", at("dangling")).unwrap();
        let large = fs::File::create(at("large")).unwrap();
        large.set_len(MAX_SIZE + 1).unwrap();
        for (name, expected) in [
            ("file", "read"),
            ("empty", "read"),
            ("link", "read"),
            ("none", "missing"),
            ("dangling", "missing"),
            ("fifo", "it is not a regular file"),
            (".", "it is not a regular file"),
            ("large", "it is larger than 16 MiB"),
        ] {
            assert_eq!(reason(&at(name)), expected, "{name}");
        }
        assert!(reason(&at("file/below")).contains("ot a directory"));
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
        assert_eq!(
            directory_of(Path::new("./a/../b/config")).unwrap(),
            here.join("b")
        );
    }
}
