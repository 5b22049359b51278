//! Who can change a file: its owner, and every user who may write to it or to a directory above it.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

const STICKY: u32 = 0o1000;
const GROUP_WRITE: u32 = 0o020;
const OTHERS_WRITE: u32 = 0o002;

/// Why others than root and `user` can change the file at a canonical path: its first component that they can
/// change, from the root down, since each is looked at when others can no longer replace it. A sticky directory is
/// accepted if `accepts_sticky`: only the owner of an entry can replace it there.
pub(super) fn weakness(path: &Path, user: u32, accepts_sticky: bool) -> io::Result<Option<String>> {
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

/// For a user who trusts root and `user`.
fn weakness_of(found: &Metadata, user: u32, is_sticky: bool) -> Option<String> {
    let (owner, mode) = (found.uid(), found.mode() & 0o7777);
    if owner != 0 && owner != user {
        return Some(format!("belongs to uid {owner}"));
    }
    // macOS: wheel and admin can become root anyway, and own what Homebrew installs.
    let is_administrators = cfg!(target_os = "macos") && matches!(found.gid(), 0 | 80);
    let who = match mode {
        _ if is_sticky => return None,
        mode if mode & OTHERS_WRITE != 0 => "every user",
        mode if mode & GROUP_WRITE != 0 && !is_administrators => "its group",
        _ => return None,
    };
    Some(format!("can be changed by {who} (mode {mode:04o})"))
}
