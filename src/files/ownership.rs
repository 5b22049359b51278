//! Who can change a file: its owner, and whoever may write to it or to a directory above it.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rustix::process::geteuid;

use super::read_regular;

const STICKY: u32 = 0o1000;
const GROUP_WRITE: u32 = 0o020;
const OTHERS_WRITE: u32 = 0o002;

/// Why others than root and `user` can change the file at a canonical path: its first component that they can
/// change, from the root down, since each is looked at when others can no longer replace it. A sticky directory is
/// accepted if `accepts_sticky`: only the owner of an entry can replace it there.
pub fn weakness(path: &Path, user: u32, accepts_sticky: bool) -> io::Result<Option<String>> {
    let mut components: Vec<&Path> = path.ancestors().collect();
    components.reverse();
    for component in components {
        let found = fs::symlink_metadata(component)?;
        let is_sticky = accepts_sticky && found.is_dir() && found.mode() & STICKY != 0;
        let weakness = if found.is_symlink() {
            Some("is a symbolic link".to_owned())
        } else if component == path && !found.is_file() {
            Some("is not a regular file".to_owned())
        } else {
            weakness_of(&found, user, is_sticky)
        };
        if let Some(weakness) = weakness {
            return Ok(Some(format!("{} {weakness}", component.display())));
        }
    }
    Ok(None)
}

/// Why others than root and `user` can change a file or directory with this metadata; in a sticky directory they can
/// replace nothing of what is there.
fn weakness_of(found: &Metadata, user: u32, is_sticky: bool) -> Option<String> {
    let owner = found.uid();
    let mode = found.mode() & 0o7777;
    if owner != 0 && owner != user {
        return Some(format!("belongs to uid {owner}"));
    }
    // On macOS, wheel and admin can become root anyway, and own what Homebrew installs.
    let is_administrators = cfg!(target_os = "macos") && matches!(found.gid(), 0 | 80);
    let who = match mode {
        _ if is_sticky => return None,
        mode if mode & OTHERS_WRITE != 0 => "every user",
        mode if mode & GROUP_WRITE != 0 && !is_administrators => "its group",
        _ => return None,
    };
    Some(format!("can be changed by {who} (mode {mode:04o})"))
}

/// The content of a regular file that only root and this user can change, with symbolic links resolved. An error if others
/// can, or if it has more than `longest` bytes.
pub fn read_trusted(path: &Path, longest: u64) -> io::Result<Vec<u8>> {
    let found = path.canonicalize()?;
    check(&found)?;
    read_regular(&found, longest)
}

/// An error if others than root and this user can change the file at a canonical path.
pub fn check(path: &Path) -> io::Result<()> {
    match weakness(path, geteuid().as_raw(), true)? {
        None => Ok(()),
        Some(weakness) => Err(io::Error::other(format!("another user can change it: {weakness}"))),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_file_that_others_can_change_or_replace_is_not_read() {
        let directory = tempfile::tempdir().unwrap();
        let above = directory.path().join("above");
        fs::create_dir(&above).unwrap();
        let path = above.join("file");
        fs::write(&path, "mine").unwrap();
        let set_mode = |path: &Path, mode| fs::set_permissions(path, Permissions::from_mode(mode));
        for (directory_mode, file_mode, is_fine) in [
            (0o755, 0o644, true),
            (0o755, 0o664, false),
            (0o755, 0o646, false),
            (0o775, 0o644, false),
            (0o757, 0o644, false),
            (0o1777, 0o644, true),
        ] {
            set_mode(&above, directory_mode).unwrap();
            set_mode(&path, file_mode).unwrap();
            let read = read_trusted(&path, 10);
            assert_eq!(read.is_ok(), is_fine, "{directory_mode:o} {file_mode:o} {read:?}");
        }
    }
}
