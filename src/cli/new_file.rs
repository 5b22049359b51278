//! Files that a command writes: each is there as a whole or not at all, and put in place of an older one in
//! one step.

use std::path::Path;

use crate::error::{Error, Exit};
use crate::process::replaced_file;

/// Writes a file with this mode: 0600 for one that this user alone may read.
pub(super) fn write(path: &Path, content: &str, mode: u32) -> Result<(), Error> {
    replaced_file::put(path, content.as_bytes(), mode).map_err(|reason| {
        Error::new(Exit::Cluster, format!("{} can't be written: {reason}", path.display()))
            .help("name a place where you may write, on a file system with room")
    })
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn a_file_replaces_an_older_one_with_its_own_mode() {
        let base = tempfile::tempdir().unwrap();
        let path = base.path().join("file");
        write(&path, "first", 0o644).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o666)).unwrap();
        write(&path, "second", 0o600).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "second");
        assert_eq!(mode(&path), 0o600);
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn a_link_is_replaced_and_not_followed() {
        let base = tempfile::tempdir().unwrap();
        let [other, link] = ["other", "link"].map(|name| base.path().join(name));
        fs::write(&other, "kept").unwrap();
        symlink(&other, &link).unwrap();
        write(&link, "new", 0o600).unwrap();
        assert_eq!(fs::read_to_string(&other).unwrap(), "kept");
        assert_eq!(fs::read_to_string(&link).unwrap(), "new");
    }

    #[test]
    fn what_cannot_be_written_leaves_nothing() {
        let base = tempfile::tempdir().unwrap();
        let directory = base.path().join("directory");
        fs::create_dir_all(directory.join("full")).unwrap();
        let error = write(&directory, "text", 0o600).unwrap_err();
        assert!(error.to_string().contains("directory"), "{error}");
        assert_eq!(fs::read_dir(base.path()).unwrap().count(), 1);
        let missing = base.path().join("none/file");
        assert_eq!(write(&missing, "text", 0o600).unwrap_err().exit_code(), 9);
    }
}
