//! `pathLib`: a library that nobody but root and the user can change.
//!
//! Loading a library runs it, with the PIN in the same process. So the file and each directory
//! above it, with symbolic links resolved, must be in the hands of root or the user. Access control
//! lists are not looked at. Where the machine's administrator has said which libraries may be
//! loaded, it must be one of those as well.
//!
//! What is checked is what is loaded, without a descriptor (by which libraries would not find what
//! lies beside them): each directory is checked before what it holds, so from then on nobody else
//! can lead the path elsewhere. A path that leads nowhere is not loaded at all.

use std::ffi::OsString;
use std::fmt;
use std::fs::{self, Metadata};
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use super::allowed::{Allowed, PLACE};
use super::error::Problem;
use super::quoted;
use crate::printable::printable;

/// A library that passed the check, or a path without one.
pub struct TrustedLibrary {
    path: PathBuf,
    is_there: bool,
}

impl TrustedLibrary {
    /// Looks at the file system; the problem names the component at fault.
    pub fn check(value: &str) -> Result<Self, Problem> {
        let path = Path::new(value);
        if !path.is_absolute() {
            return Err(Problem::new(
                format!("pathLib {} is not an absolute path", quoted(value)),
                "write the whole path of the library into pathLib, such as \
                 /usr/lib/x86_64-linux-gnu/opensc-pkcs11.so",
            ));
        }
        let allowed = Allowed::read()?;
        let unreadable = |error: io::Error| {
            Problem::new(
                format!("pathLib {} can't be checked: {error}", quoted(value)),
                "set pathLib to a library that you can read, by a path that leads there",
            )
        };
        let resolved = match resolve(path) {
            Ok(resolved) => resolved,
            Err(Unresolved::Elsewhere(place)) => {
                return Err(Problem::new(
                    format!(
                        "pathLib {} leads through {}, where each process finds something else",
                        quoted(value),
                        printable(&place.to_string_lossy())
                    ),
                    "set pathLib to the path at which the library is installed, which `realpath` \
                     prints",
                ));
            }
            Err(Unresolved::Failed(error)) => return Err(unreadable(error)),
        };
        if let Some((component, weakness)) = weakness(&resolved).map_err(unreadable)? {
            let component = component.to_string_lossy();
            let component = printable(&component);
            return Err(Problem::new(
                format!(
                    "pathLib {} is not safe to load: {component} {weakness}",
                    quoted(value)
                ),
                weakness.remedy(&component),
            ));
        }
        let end = resolved.end();
        // Where case doesn't count (macOS), one library has one path all the same.
        let end = end.map(|end| end.canonicalize().unwrap_or(end));
        if let Some(allowed) = allowed
            && !end.as_deref().is_some_and(|end| allowed.allows(end))
        {
            let leads = match (&resolved, &end) {
                (Resolved::Library(_), Some(end)) if end != path => {
                    format!(", which is {},", printable(&end.to_string_lossy()))
                }
                _ => String::new(),
            };
            return Err(Problem::new(
                format!("pathLib {}{leads} is not allowed by {PLACE}", quoted(value)),
                format!(
                    "set pathLib to a library that this file lists ({}), or have the machine's \
                     administrator add this one",
                    allowed.words()
                ),
            ));
        }
        Ok(match (resolved, end) {
            (Resolved::Library(_), Some(path)) => Self {
                path,
                is_there: true,
            },
            _ => Self {
                path: path.to_owned(),
                is_there: false,
            },
        })
    }

    /// What to call it: absolute, and without symbolic links if the file was there.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What to load, at a path without symbolic links on which nobody but root and the user can
    /// change anything; `None` if nothing was there.
    pub fn file(&self) -> Option<&Path> {
        self.is_there.then_some(self.path.as_path())
    }
}

/// The problem of a configuration without a library.
pub(super) fn missing(what: &str) -> Problem {
    Problem::new(
        what,
        "set pathLib to the absolute path of the token's PKCS#11 library, such as \
         /usr/lib/x86_64-linux-gnu/opensc-pkcs11.so",
    )
}

/// Where a path leads; both are canonical.
enum Resolved {
    Library(PathBuf),
    /// Nothing is there; this is the last directory on the way, and what it lacks.
    Missing {
        directory: PathBuf,
        rest: PathBuf,
    },
}

impl Resolved {
    /// Where the library is, or would be; `None` if that can't be said.
    fn end(&self) -> Option<PathBuf> {
        match self {
            Self::Library(canonical) => Some(canonical.clone()),
            Self::Missing { directory, rest } => rest
                .components()
                .all(|component| matches!(component, Component::Normal(_)))
                .then(|| directory.join(rest)),
        }
    }
}

/// Why a path has no end.
enum Unresolved {
    /// This stands for another place in each process.
    Elsewhere(PathBuf),
    Failed(io::Error),
}

impl From<io::Error> for Unresolved {
    fn from(error: io::Error) -> Self {
        Self::Failed(error)
    }
}

/// As many as Linux follows.
const MOST_LINKS: usize = 40;

/// As `realpath` does it, and sees each place on the way.
fn resolve(path: &Path) -> Result<Resolved, Unresolved> {
    let mut place = PathBuf::from("/");
    // The next one last, and whether a link said so.
    let mut ahead: Vec<(OsString, bool)> = Vec::new();
    let mut links = 0;
    let put = |ahead: &mut Vec<(OsString, bool)>, path: &Path, of_link| {
        let names = path.components().rev();
        ahead.extend(names.map(|name| (name.as_os_str().to_owned(), of_link)));
    };
    put(&mut ahead, path, false);
    while let Some((name, of_link)) = ahead.pop() {
        if name == "." {
            continue;
        }
        if name == ".." {
            place.pop();
            continue;
        }
        let next = place.join(&name);
        let found = match next.symlink_metadata() {
            Ok(found) => found,
            // It could lead to anybody's file a moment later.
            Err(error) if error.kind() == ErrorKind::NotFound && of_link => {
                return Err(io::Error::other("a symbolic link on the way leads nowhere").into());
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {
                ahead.push((name, false));
                return Ok(Resolved::Missing {
                    directory: place,
                    rest: ahead.into_iter().rev().map(|(name, _)| name).collect(),
                });
            }
            Err(error) => return Err(error.into()),
        };
        if is_elsewhere(&next, &found)? {
            return Err(Unresolved::Elsewhere(next));
        }
        if !found.is_symlink() {
            place = next;
            continue;
        }
        links += 1;
        if links > MOST_LINKS {
            return Err(io::Error::from(rustix::io::Errno::LOOP).into());
        }
        put(&mut ahead, &fs::read_link(&next)?, true);
    }
    Ok(Resolved::Library(place))
}

/// /proc, wherever it is mounted, in which /dev/fd and /dev/stdin are links: `self/cwd` there is
/// where a stranger's files were unpacked.
#[cfg(target_os = "linux")]
fn is_elsewhere(place: &Path, found: &Metadata) -> io::Result<bool> {
    let is_proc = |place| Ok(rustix::fs::statfs(place)?.f_type == rustix::fs::PROC_SUPER_MAGIC);
    if found.is_dir() {
        is_proc(place)
    } else {
        Ok(false)
    }
}

/// The descriptors, to which /dev/stdin is a link.
#[cfg(not(target_os = "linux"))]
fn is_elsewhere(place: &Path, _found: &Metadata) -> io::Result<bool> {
    Ok(place.as_os_str().eq_ignore_ascii_case("/dev/fd"))
}

/// Why a component can't be trusted.
#[derive(Debug, Eq, PartialEq)]
pub(super) enum Weakness {
    /// Not a regular file.
    NoFile,
    Owner(u32),
    Writable(u32),
}

/// The first weak component, from the root down: what is in a directory is looked at when nobody
/// else can change it any more.
fn weakness(resolved: &Resolved) -> io::Result<Option<(PathBuf, Weakness)>> {
    let (last, library) = match resolved {
        Resolved::Library(path) => (path, true),
        Resolved::Missing { directory, .. } => (directory, false),
    };
    let user = rustix::process::geteuid().as_raw();
    let mut components: Vec<&Path> = last.ancestors().collect();
    components.reverse();
    for component in components {
        let metadata = fs::symlink_metadata(component)?;
        let is_last = component == last;
        let access = Access::of(&metadata);
        // In a sticky directory only the owner of an entry can replace it, and the entry that
        // counts is the next component. Where that is missing, anybody could put it there.
        let sticky = access.mode & STICKY != 0 && metadata.is_dir() && !is_last;
        let weakness = if metadata.is_symlink() {
            // It wasn't when the path was resolved.
            return Err(io::Error::other("it was changed meanwhile"));
        } else if is_last && library && !metadata.is_file() {
            Some(Weakness::NoFile)
        } else {
            access.weakness(user, sticky)
        };
        if let Some(weakness) = weakness {
            return Ok(Some((component.to_owned(), weakness)));
        }
    }
    Ok(None)
}

const STICKY: u32 = 0o1000;
const GROUP_WRITE: u32 = 0o020;
const OTHERS_WRITE: u32 = 0o002;

/// Who owns a component, and who may write to it.
pub(super) struct Access {
    owner: u32,
    group: u32,
    mode: u32,
}

impl Access {
    pub(super) fn of(metadata: &Metadata) -> Self {
        Self {
            owner: metadata.uid(),
            group: metadata.gid(),
            mode: metadata.mode() & 0o7777,
        }
    }

    /// For someone who trusts root and this user.
    pub(super) fn weakness(&self, user: u32, sticky: bool) -> Option<Weakness> {
        if self.owner != 0 && self.owner != user {
            return Some(Weakness::Owner(self.owner));
        }
        let group_write = self.mode & GROUP_WRITE != 0 && !is_administrators(self.group);
        let writable = group_write || self.mode & OTHERS_WRITE != 0;
        (writable && !sticky).then_some(Weakness::Writable(self.mode))
    }
}

/// macOS: wheel and admin, which can become root anyway and own what Homebrew installs.
fn is_administrators(group: u32) -> bool {
    cfg!(target_os = "macos") && matches!(group, 0 | 80)
}

impl fmt::Display for Weakness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoFile => f.write_str("is not a regular file"),
            Self::Owner(owner) => write!(f, "belongs to uid {owner}, neither to root nor to you"),
            Self::Writable(mode) if mode & OTHERS_WRITE != 0 => {
                write!(f, "can be changed by every user (mode {mode:04o})")
            }
            Self::Writable(mode) => write!(f, "can be changed by its group (mode {mode:04o})"),
        }
    }
}

impl Weakness {
    fn remedy(&self, component: &str) -> String {
        const ELSEWHERE: &str = "or set pathLib to a library in a place of root's";
        match self {
            Self::NoFile => "set pathLib to the library's file itself".to_owned(),
            Self::Owner(_) => format!("give {component} to root (chown root), {ELSEWHERE}"),
            // Taking the bits off a shared sticky directory would break it for all its users.
            Self::Writable(mode) if mode & STICKY != 0 => {
                format!("install the library outside {component}, {ELSEWHERE}")
            }
            Self::Writable(_) => {
                format!("take the write permission off {component} (chmod go-w), {ELSEWHERE}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    use tempfile::TempDir;

    use super::*;

    /// A library in a directory below a directory of its own.
    struct Place {
        root: TempDir,
        directory: PathBuf,
        library: PathBuf,
    }

    fn place() -> Place {
        let root = TempDir::new().unwrap();
        let directory = root.path().canonicalize().unwrap().join("lib");
        fs::create_dir(&directory).unwrap();
        let library = directory.join("module.so");
        fs::write(&library, "").unwrap();
        set_mode(&directory, 0o755);
        set_mode(&library, 0o644);
        Place {
            root,
            directory,
            library,
        }
    }

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    fn check(path: &Path) -> Result<PathBuf, String> {
        match TrustedLibrary::check(path.to_str().unwrap()) {
            Ok(library) => Ok(library.path().to_owned()),
            Err(problem) => Err(problem.what),
        }
    }

    /// What is wrong, without the value it starts with.
    fn reason(path: &Path) -> String {
        let what = check(path).unwrap_err();
        what.split_once("\" ").unwrap().1.to_owned()
    }

    #[test]
    fn a_library_of_the_users_own_is_trusted_by_its_canonical_path() {
        let place = place();
        assert_eq!(check(&place.library), Ok(place.library.clone()));
        let link = place.root.path().join("link.so");
        symlink(&place.library, &link).unwrap();
        assert_eq!(check(&link), Ok(place.library.clone()));
        let detour = place.directory.join("../lib/./module.so");
        assert_eq!(check(&detour), Ok(place.library));
    }

    #[test]
    fn what_others_can_write_is_named_with_its_mode() {
        for (mode, who) in [(0o666, "every user"), (0o664, "its group")] {
            let place = place();
            set_mode(&place.library, mode);
            let library = place.library.display();
            assert_eq!(
                reason(&place.library),
                format!("is not safe to load: {library} can be changed by {who} (mode {mode:04o})")
            );
        }
        for mode in [0o777, 0o775] {
            let place = place();
            set_mode(&place.directory, mode);
            let component = format!("{} can be changed by", place.directory.display());
            assert!(reason(&place.library).contains(&component));
            // The way in doesn't matter: the link stands in a safe place, the library doesn't.
            let link = place.root.path().join("link.so");
            symlink(&place.library, &link).unwrap();
            assert!(reason(&link).contains(&component));
        }
    }

    #[test]
    fn a_sticky_directory_is_safe_for_what_is_there_and_for_nothing_else() {
        let place = place();
        set_mode(&place.directory, 0o1777);
        assert_eq!(check(&place.library), Ok(place.library.clone()));
        assert!(
            reason(&place.directory.join("missing.so"))
                .ends_with("can be changed by every user (mode 1777)")
        );
    }

    #[test]
    fn a_missing_library_is_left_to_the_loader() {
        let place = place();
        for missing in [
            place.directory.join("missing.so"),
            place.directory.join("no/../such/library.so"),
        ] {
            assert_eq!(check(&missing), Ok(missing));
        }
        set_mode(&place.directory, 0o777);
        assert!(reason(&place.directory.join("no/such.so")).contains("by every user (mode 0777)"));
    }

    #[test]
    fn what_is_no_file_is_refused() {
        let place = place();
        assert!(reason(&place.directory).ends_with("is not a regular file"));
        assert!(reason(Path::new("/dev/null")).ends_with("is not a regular file"));
        assert!(reason(&place.library.join("below")).starts_with("can't be checked: "));
        assert!(reason(Path::new("/nul\0")).starts_with("can't be checked: "));
        for target in ["nowhere/library.so", "loop.so"] {
            let link = place.directory.join("loop.so");
            symlink(target, &link).unwrap();
            assert!(reason(&link).starts_with("can't be checked: "), "{target}");
            fs::remove_file(link).unwrap();
        }
    }

    /// Whoever may write to a directory changes a link in it, and has a library where it leads to.
    #[test]
    fn a_link_that_is_changed_all_the_time_leads_to_no_library_of_a_strangers() {
        let place = place();
        let open = place.root.path().canonicalize().unwrap().join("open");
        fs::create_dir(&open).unwrap();
        for name in ["module.so", "missing.so"] {
            fs::write(open.join(name), "").unwrap();
        }
        set_mode(&open, 0o777);
        let link = open.join("link");
        let lead_to = |target: &Path| {
            let new = open.join("new");
            symlink(target, &new).unwrap();
            fs::rename(new, &link).unwrap();
        };
        lead_to(&open);
        let is_over = AtomicBool::new(false);
        let (mut refused, mut missing, mut found, mut strangers) = (0, 0, 0, 0);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    for target in [&place.directory, &open, &open.join("nowhere")] {
                        lead_to(target);
                    }
                }
            });
            for round in 0..12_000 {
                let name = ["module.so", "missing.so"][round % 2];
                let library = TrustedLibrary::check(link.join(name).to_str().unwrap());
                match library.as_ref().map(TrustedLibrary::file) {
                    Err(_) => refused += 1,
                    Ok(None) => missing += 1,
                    Ok(Some(file)) if file == place.library => found += 1,
                    Ok(Some(_)) => strangers += 1,
                }
            }
            is_over.store(true, Ordering::Relaxed);
        });
        assert_eq!(strangers, 0);
        let counts = [refused, missing, found];
        assert!(counts.iter().all(|count| *count > 100), "{counts:?}");
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn what_is_elsewhere_for_each_process_is_no_way_to_a_library() {
        let place = place();
        let link = place.directory.join("here");
        symlink("/proc/self/cwd", &link).unwrap();
        for (path, through) in [
            (PathBuf::from("/proc/self/cwd/evil.so"), "/proc"),
            (
                PathBuf::from("/proc/thread-self/root/usr/lib/x.so"),
                "/proc",
            ),
            (PathBuf::from("/usr/../proc/self/exe"), "/proc"),
            (PathBuf::from("/dev/fd/3"), "/proc"),
            (PathBuf::from("/dev/stdin"), "/proc"),
            (link.join("evil.so"), "/proc"),
        ] {
            assert_eq!(
                reason(&path),
                format!("leads through {through}, where each process finds something else"),
                "{path:?}"
            );
        }
    }

    #[test]
    fn relative_paths_are_refused() {
        for value in ["opensc-pkcs11.so", "./lib.so", "~/lib.so"] {
            assert_eq!(reason(Path::new(value)), "is not an absolute path");
        }
    }

    #[test]
    fn only_root_and_the_user_are_owners_to_trust() {
        let access = |owner, mode| Access {
            owner,
            group: 100,
            mode,
        };
        assert_eq!(access(0, 0o755).weakness(1000, false), None);
        assert_eq!(access(1000, 0o700).weakness(1000, false), None);
        assert_eq!(
            access(1001, 0o755).weakness(1000, false),
            Some(Weakness::Owner(1001))
        );
        // Also for root, and in a sticky directory, whose owner may replace any entry.
        assert_eq!(
            access(1001, 0o755).weakness(0, false),
            Some(Weakness::Owner(1001))
        );
        assert_eq!(
            access(1001, 0o1777).weakness(1000, true),
            Some(Weakness::Owner(1001))
        );
        assert_eq!(
            access(0, 0o775).weakness(1000, false),
            Some(Weakness::Writable(0o775))
        );
    }

    #[test]
    fn the_group_of_administrators_is_trusted_where_it_is_roots() {
        let homebrew = Access {
            owner: 501,
            group: 80,
            mode: 0o775,
        };
        assert_eq!(
            homebrew.weakness(501, false).is_none(),
            cfg!(target_os = "macos")
        );
        let open = Access {
            owner: 501,
            group: 80,
            mode: 0o777,
        };
        assert_eq!(open.weakness(501, false), Some(Weakness::Writable(0o777)));
    }
}
