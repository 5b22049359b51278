//! `pathLib`: a library that only root and the user can change.
//!
//! Loading a library runs it, with the PIN in the same process. So the file and each directory
//! above it, with symbolic links resolved, must belong to root or the user, and be writable only
//! by them. Access control lists are not looked at. Where the machine's administrator lists the libraries
//! that may be loaded, it must be one of those as well.
//!
//! What is checked is what is loaded, without a descriptor (through which a library would not find the
//! files beside it): each directory is checked before what it holds, so from then on only root and
//! the user can change where the path leads. A path that leads nowhere is not loaded at all.

use std::ffi::OsString;
use std::fs::{self, Metadata};
use std::io::{self, ErrorKind};
use std::path::{Component, Path, PathBuf};

use super::allowed::{Allowed, PLACE};
use super::error::Problem;
use super::quoted;
use super::trust::{STICKY, Weakness, weakness};
use crate::error::{Setting, remedy};

/// A library that passed the check, or a path without one.
pub struct TrustedLibrary {
    path: PathBuf,
    is_there: bool,
    is_roots: bool,
}

impl TrustedLibrary {
    /// Checks the file and the directories above it.
    pub fn check(value: &str) -> Result<Self, Problem> {
        let path = Path::new(value);
        if !path.is_absolute() {
            return Err(Problem::new(
                format!("pathLib {} is not an absolute path", quoted(value)),
                remedy!(
                    "write the whole path of the library into ",
                    Setting("pathLib"),
                    ", such as /usr/lib/x86_64-linux-gnu/opensc-pkcs11.so"
                ),
            ));
        }
        let allowed = Allowed::read()?;
        let resolved = resolve_safely(path).map_err(|refusal| refusal.problem(value))?;
        let place = resolved.place();
        // Where case doesn't count (macOS), one library has one path all the same.
        let place = place.map(|place| place.canonicalize().unwrap_or(place));
        let is_there = resolved.missing.is_none();
        if let Some(allowed) = allowed
            && !place.as_deref().is_some_and(|place| allowed.allows(place))
        {
            let target = match &place {
                Some(place) if is_there && place != path => {
                    format!(", which is {},", place.display())
                }
                _ => String::new(),
            };
            return Err(Problem::new(
                format!("pathLib {}{target} is not allowed by {PLACE}", quoted(value)),
                remedy!(
                    "set ",
                    Setting("pathLib"),
                    format!(
                        " to a library that this file lists ({allowed}), or have the machine's administrator add this one"
                    )
                ),
            ));
        }
        let path = place.filter(|_| is_there).unwrap_or_else(|| path.to_owned());
        Ok(Self {
            path,
            is_there,
            is_roots: matches!(weakness(&resolved.existing, is_there, 0, true), Ok(None)),
        })
    }

    /// Whether nobody but root can change it.
    pub fn is_roots(&self) -> bool {
        self.is_roots
    }

    /// What to call it: absolute, and without symbolic links if the file was there.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What to load: a path without symbolic links on which only root and the user can change
    /// anything; `None` if nothing was there.
    pub fn file(&self) -> Option<&Path> {
        self.is_there.then_some(self.path.as_path())
    }
}

/// Where a path leads.
struct Resolved {
    /// Canonical: the library, or the last directory that exists on the path to it.
    existing: PathBuf,
    /// What that directory lacks.
    missing: Option<PathBuf>,
}

impl Resolved {
    /// Where the library is, or would be; `None` if that can't be said.
    fn place(&self) -> Option<PathBuf> {
        let Some(missing) = &self.missing else {
            return Some(self.existing.clone());
        };
        let is_plain = |it: Component<'_>| matches!(it, Component::Normal(_));
        let is_known = missing.components().all(is_plain);
        is_known.then(|| self.existing.join(missing))
    }
}

/// Why a path is not loaded from.
enum Refusal {
    Failed(io::Error),
    /// It leads through a place that is another one for each process.
    PerProcess(PathBuf),
    Weak(PathBuf, Weakness),
}

impl From<io::Error> for Refusal {
    fn from(error: io::Error) -> Self {
        Self::Failed(error)
    }
}

impl Refusal {
    fn problem(self, value: &str) -> Problem {
        let value = quoted(value);
        match self {
            Self::Failed(error) => Problem::new(
                format!("pathLib {value} can't be checked: {error}"),
                remedy!(
                    "set ",
                    Setting("pathLib"),
                    " to a library that you can read, by a path that leads there"
                ),
            ),
            Self::PerProcess(place) => Problem::new(
                format!(
                    "pathLib {value} leads through {}, where each process finds something else",
                    place.display()
                ),
                remedy!(
                    "set ",
                    Setting("pathLib"),
                    " to the path at which the library is installed, which `realpath` prints"
                ),
            ),
            Self::Weak(component, weakness) => {
                let component = component.to_string_lossy();
                Problem::new(
                    format!("pathLib {value} is not safe to load: {component} {weakness}"),
                    match weakness {
                        Weakness::NoFile => {
                            remedy!("set ", Setting("pathLib"), " to the library's file itself")
                        }
                        // Taking the bits off a shared directory would break it for all its users.
                        Weakness::Writable(mode) if mode & STICKY != 0 => remedy!(format!(
                            "install the library outside {component}, in a directory of root's"
                        )),
                        _ => remedy!(
                            weakness.remedy(&component),
                            ", or set ",
                            Setting("pathLib"),
                            " to a library in a directory of root's"
                        ),
                    },
                )
            }
        }
    }
}

/// Resolves the path, and checks that only root and the user can change what it leads to.
fn resolve_safely(path: &Path) -> Result<Resolved, Refusal> {
    let resolved = resolve(path)?;
    let user = rustix::process::geteuid().as_raw();
    let is_there = resolved.missing.is_none();
    match weakness(&resolved.existing, is_there, user, true)? {
        Some((component, weakness)) => Err(Refusal::Weak(component, weakness)),
        None => Ok(resolved),
    }
}

/// The number of links that Linux follows.
const MOST_LINKS: usize = 40;

/// Resolves symbolic links as `realpath` does, which would hide that one leads through /proc.
fn resolve(path: &Path) -> Result<Resolved, Refusal> {
    let mut place = PathBuf::from("/");
    // The components that are left, the next one last, and whether a link names them.
    let mut left: Vec<(OsString, bool)> = Vec::new();
    let mut links = 0;
    let push = |left: &mut Vec<(OsString, bool)>, path: &Path, of_link| {
        let names = path.components().rev();
        left.extend(names.map(|name| (name.as_os_str().to_owned(), of_link)));
    };
    push(&mut left, path, false);
    while let Some((name, of_link)) = left.pop() {
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
            // A moment later it could lead to a stranger's file.
            Err(error) if error.kind() == ErrorKind::NotFound && of_link => {
                return Err(io::Error::other("a symbolic link on the way leads nowhere").into());
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {
                left.push((name, false));
                return Ok(Resolved {
                    existing: place,
                    missing: Some(left.into_iter().rev().map(|(name, _)| name).collect()),
                });
            }
            Err(error) => return Err(error.into()),
        };
        if is_per_process(&next, &found)? {
            return Err(Refusal::PerProcess(next));
        }
        if !found.is_symlink() {
            place = next;
            continue;
        }
        links += 1;
        if links > MOST_LINKS {
            return Err(io::Error::from(rustix::io::Errno::LOOP).into());
        }
        push(&mut left, &fs::read_link(&next)?, true);
    }
    Ok(Resolved { existing: place, missing: None })
}

/// Whether it is /proc, wherever it is mounted. /dev/fd and /dev/stdin are links into it; `self/cwd`
/// there is where a stranger's files were unpacked.
#[cfg(target_os = "linux")]
fn is_per_process(place: &Path, found: &Metadata) -> io::Result<bool> {
    Ok(found.is_dir() && rustix::fs::statfs(place)?.f_type == rustix::fs::PROC_SUPER_MAGIC)
}

/// Whether it is the directory of descriptors, to which /dev/stdin is a link.
#[cfg(not(target_os = "linux"))]
fn is_per_process(place: &Path, _found: &Metadata) -> io::Result<bool> {
    Ok(place.as_os_str().eq_ignore_ascii_case("/dev/fd"))
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::os::unix::net::UnixListener;
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
        Place { root, directory, library }
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
        let roundabout = place.directory.join("../lib/./module.so");
        assert_eq!(check(&roundabout), Ok(place.library));
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
            // Where the link stands doesn't matter.
            let link = place.root.path().join("link.so");
            symlink(&place.library, &link).unwrap();
            assert!(reason(&link).contains(&component));
        }
    }

    #[test]
    fn the_remedy_is_for_what_is_wrong() {
        let place = place();
        let remedy = |path: &Path| {
            let problem = TrustedLibrary::check(path.to_str().unwrap()).err();
            problem.unwrap().remedy.text
        };
        assert!(remedy(&place.directory).ends_with("to the library's file itself"));
        set_mode(&place.directory, 0o777);
        let mended = remedy(&place.library);
        assert!(mended.contains("chmod go-w") && mended.contains("pathLib"), "{mended}");
        // That would break a shared directory for its users.
        set_mode(&place.directory, 0o1777);
        let moved = remedy(&place.directory.join("missing.so"));
        assert!(moved.starts_with("install the library outside"), "{moved}");
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
        for missing in
            [place.directory.join("missing.so"), place.directory.join("no/../such/library.so")]
        {
            assert_eq!(check(&missing), Ok(missing));
        }
        set_mode(&place.directory, 0o777);
        assert!(reason(&place.directory.join("no/such.so")).contains("by every user (mode 0777)"));
    }

    #[test]
    fn what_is_no_file_is_refused() {
        let place = place();
        assert!(reason(&place.directory).ends_with("is not a regular file"));
        let socket = place.directory.join("socket.so");
        let _socket = UnixListener::bind(&socket).unwrap();
        assert!(reason(&socket).ends_with("is not a regular file"));
        assert!(reason(&place.library.join("below")).starts_with("can't be checked: "));
        assert!(reason(Path::new("/nul\0")).starts_with("can't be checked: "));
        for target in ["nowhere/library.so", "loop.so"] {
            let link = place.directory.join("loop.so");
            symlink(target, &link).unwrap();
            assert!(reason(&link).starts_with("can't be checked: "), "{target}");
            fs::remove_file(link).unwrap();
        }
    }

    #[test]
    fn as_many_links_are_followed_as_the_system_follows() {
        let place = place();
        let mut target = place.library.clone();
        for number in 0..=MOST_LINKS {
            let link = place.directory.join(number.to_string());
            symlink(&target, &link).unwrap();
            target = link;
        }
        let last = place.directory.join((MOST_LINKS - 1).to_string());
        assert!(last.is_file() && !target.is_file());
        assert_eq!(check(&last), Ok(place.library));
        assert!(reason(&target).starts_with("can't be checked: "));
    }

    /// A stranger changes a link in a directory of theirs, and has a library where it leads to.
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
            (PathBuf::from("/proc/thread-self/root/usr/lib/x.so"), "/proc"),
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
}
