//! Who can change a file: its owner, and every user who may write to it or to a directory above it.

use std::fmt;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

pub(super) const STICKY: u32 = 0o1000;
const GROUP_WRITE: u32 = 0o020;
const OTHERS_WRITE: u32 = 0o002;

/// Why a component of a path can't be trusted.
#[derive(Debug, Eq, PartialEq)]
pub(super) enum Weakness {
    Link,
    /// Not a regular file.
    NoFile,
    /// Its uid.
    Owner(u32),
    /// Its mode.
    Writable(u32),
}

/// Looks for the first component of a path that others than root and `user` can change, from the root
/// down: each is looked at when others can no longer replace it. The path has to be canonical,
/// and lead to a regular file if `is_file`. A sticky directory above what counts is accepted if
/// `accepts_sticky`: only the owner of an entry can replace it there.
pub(super) fn weakness(
    path: &Path,
    is_file: bool,
    user: u32,
    accepts_sticky: bool,
) -> io::Result<Option<(PathBuf, Weakness)>> {
    let mut components: Vec<&Path> = path.ancestors().collect();
    components.reverse();
    for component in components {
        let metadata = fs::symlink_metadata(component)?;
        let is_last = component == path;
        let ownership = Ownership::of(&metadata);
        let is_sticky = ownership.mode & STICKY != 0 && metadata.is_dir() && !is_last;
        let weakness = if metadata.is_symlink() {
            Some(Weakness::Link)
        } else if is_last && is_file && !metadata.is_file() {
            Some(Weakness::NoFile)
        } else {
            ownership.weakness(user, accepts_sticky && is_sticky)
        };
        if let Some(weakness) = weakness {
            return Ok(Some((component.to_owned(), weakness)));
        }
    }
    Ok(None)
}

struct Ownership {
    owner: u32,
    group: u32,
    mode: u32,
}

impl Ownership {
    fn of(metadata: &Metadata) -> Self {
        Self { owner: metadata.uid(), group: metadata.gid(), mode: metadata.mode() & 0o7777 }
    }

    /// The weakness for a user who trusts root and `user`.
    fn weakness(&self, user: u32, is_sticky: bool) -> Option<Weakness> {
        if self.owner != 0 && self.owner != user {
            return Some(Weakness::Owner(self.owner));
        }
        let group_write = self.mode & GROUP_WRITE != 0 && !is_administrators(self.group);
        let is_writable = group_write || self.mode & OTHERS_WRITE != 0;
        (is_writable && !is_sticky).then_some(Weakness::Writable(self.mode))
    }
}

/// macOS: wheel and admin, which can become root anyway and own what Homebrew installs.
fn is_administrators(group: u32) -> bool {
    cfg!(target_os = "macos") && matches!(group, 0 | 80)
}

impl fmt::Display for Weakness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Link => f.write_str("is a symbolic link"),
            Self::NoFile => f.write_str("is not a regular file"),
            Self::Owner(owner) => write!(f, "belongs to uid {owner}"),
            Self::Writable(mode) if mode & OTHERS_WRITE != 0 => {
                write!(f, "can be changed by every user (mode {mode:04o})")
            }
            Self::Writable(mode) => write!(f, "can be changed by its group (mode {mode:04o})"),
        }
    }
}

impl Weakness {
    /// What to do about it: a clause without an end.
    pub(super) fn remedy(&self, component: &str) -> String {
        match self {
            Self::Link | Self::NoFile => {
                format!("put a file or directory of root's in the place of {component}")
            }
            Self::Owner(_) => format!("give {component} to root (chown root)"),
            Self::Writable(_) => {
                format!("take the write permission off {component} (chmod go-w)")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_root_and_the_user_are_owners_to_trust() {
        let access = |owner, mode| Ownership { owner, group: 100, mode };
        assert_eq!(access(0, 0o755).weakness(1000, false), None);
        assert_eq!(access(1000, 0o700).weakness(1000, false), None);
        assert_eq!(access(1001, 0o755).weakness(1000, false), Some(Weakness::Owner(1001)));
        // Also for root, and in a sticky directory, whose owner may replace any entry.
        assert_eq!(access(1001, 0o755).weakness(0, false), Some(Weakness::Owner(1001)));
        assert_eq!(access(1001, 0o1777).weakness(1000, true), Some(Weakness::Owner(1001)));
        assert_eq!(access(0, 0o775).weakness(1000, false), Some(Weakness::Writable(0o775)));
    }

    #[test]
    fn the_group_of_administrators_is_trusted_where_it_is_roots() {
        let homebrew = Ownership { owner: 501, group: 80, mode: 0o775 };
        assert_eq!(homebrew.weakness(501, false).is_none(), cfg!(target_os = "macos"));
        let open = Ownership { owner: 501, group: 80, mode: 0o777 };
        assert_eq!(open.weakness(501, false), Some(Weakness::Writable(0o777)));
    }
}
