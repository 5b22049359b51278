//! Small secrets of this user that stay: files in a directory that only this user can enter.

#![forbid(unsafe_code)]

use std::io::{self, ErrorKind, Read as _};
use std::path::{Path, PathBuf};

use super::{open_regular, replaced_file, runtime};

/// In bytes.
const MAX_SIZE: u64 = 64 * 1024;

/// Where the file of this name is, if this user has a home.
pub fn path(name: &str) -> Option<PathBuf> {
    runtime::data_directory().map(|directory| directory.join(name))
}

/// The content of the file of this name, if there is one. The error is for people: it can't be read, or another
/// user can read or could have made it.
pub fn read(name: &str) -> Result<Option<Vec<u8>>, String> {
    match runtime::data_directory() {
        Some(directory) if directory.exists() => read_in(&directory, name),
        _ => Ok(None),
    }
}

/// Makes the file, whole or not at all. One that another process has made meanwhile stays.
pub fn create(name: &str, content: &[u8]) -> Result<(), String> {
    let directory = runtime::data_directory();
    let directory = directory.ok_or("the user database has no home for this user")?;
    runtime::make_parents(&directory);
    create_in(&directory, name, content)
}

fn read_in(directory: &Path, name: &str) -> Result<Option<Vec<u8>>, String> {
    runtime::open_owned(directory)?;
    let path = directory.join(name);
    let about = |error: io::Error| format!("{}: {error}", path.display());
    let file = match open_regular(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(about)?,
    };
    runtime::check_private(&path, &file)?;
    let mut content = Vec::new();
    file.take(MAX_SIZE).read_to_end(&mut content).map_err(about)?;
    Ok(Some(content))
}

fn create_in(directory: &Path, name: &str, content: &[u8]) -> Result<(), String> {
    runtime::open_directory(directory)?;
    let path = directory.join(name);
    replaced_file::add(&path, content).map_err(|error| format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    #[test]
    fn the_first_content_stays_and_only_this_user_can_read_it() {
        let parent = tempfile::tempdir().unwrap();
        let base = parent.path().join("data");
        create_in(&base, "a.pem", b"first").unwrap();
        create_in(&base, "a.pem", b"second").unwrap();
        assert_eq!(read_in(&base, "a.pem"), Ok(Some(b"first".to_vec())));
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
        assert_eq!((mode(&base), mode(&base.join("a.pem"))), (0o700, 0o600));
        assert_eq!(fs::read_dir(&base).unwrap().count(), 1);
        assert_eq!(read_in(&base, "b.pem"), Ok(None));
    }

    #[test]
    fn what_others_can_read_or_put_there_is_not_used() {
        let parent = tempfile::tempdir().unwrap();
        let base = parent.path().join("data");
        create_in(&base, "a.pem", b"first").unwrap();
        let file = base.join("a.pem");
        fs::set_permissions(&file, Permissions::from_mode(0o640)).unwrap();
        let reason = read_in(&base, "a.pem").unwrap_err();
        assert!(reason.ends_with("is open to other users (mode 0640)"), "{reason}");
        fs::remove_file(&file).unwrap();
        symlink("/etc/passwd", &file).unwrap();
        read_in(&base, "a.pem").unwrap_err();
        fs::remove_file(&file).unwrap();
        fs::create_dir(&file).unwrap();
        let reason = read_in(&base, "a.pem").unwrap_err();
        assert!(reason.ends_with("is not a regular file"), "{reason}");
        fs::set_permissions(&base, Permissions::from_mode(0o755)).unwrap();
        let reason = read_in(&base, "a.pem").unwrap_err();
        assert!(reason.contains("data is open to other users"), "{reason}");
    }
}
