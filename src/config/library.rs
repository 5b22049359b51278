//! `pathLib`: a library that only root and the user can change.
//!
//! Loading a library runs it, with the PIN in the same process. So the file and each directory above it, with symbolic
//! links resolved, must belong to root or the user, and be writable only by them. Access control lists are not looked
//! at. Where the machine's administrator lists the libraries that may be loaded, it must be one of those as well.
//!
//! What is checked is what is loaded, without a descriptor (through which a library would not find the
//! files beside it): each directory is checked before what it holds, so from then on only root and
//! the user can change where the path leads. A path that leads nowhere is not loaded at all.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use super::{misconfigured, quoted};
use files::ownership::weakness;
use messages::error::Error;
use messages::printable::excerpt;

/// A library that passed the check, or the path of one that isn't there.
#[derive(Clone)]
pub struct TrustedLibrary {
    path: PathBuf,
    is_there: bool,
}

impl TrustedLibrary {
    /// Checks the value of `pathLib`. A path that leads nowhere passes, as a library without a file. An error for a
    /// path that isn't absolute, or that leads through a place that differs from process to process; for a library that
    /// the administrator doesn't allow; and for one that others than root and this user can change.
    pub fn check(value: &str) -> Result<Self, Error> {
        const HELP: &str = "set pathLib (--module) to the library's path as `realpath` prints it; only root and you \
                            may be able to change the file and each directory above it (chown, chmod go-w); in a user \
                            namespace, what is root's outside may be uid 65534's: run this outside";
        let wrong = |what: String| misconfigured(format!("pathLib {} {what}", quoted(value)), HELP);
        let unchecked = |error| wrong(format!("can't be checked: {error}"));
        let path = Path::new(value);
        if !path.is_absolute() {
            return Err(wrong("is not an absolute path".to_owned()));
        }
        let allowed = Allowed::read()?;
        // The path is resolved only once: what is looked at here is what is checked and loaded.
        let found = path.canonicalize();
        if let Some(place) = per_process_place(path, found.as_deref().ok()) {
            return Err(wrong(format!(
                "leads through {}, where each process finds something else",
                place.display()
            )));
        }
        let found = match found {
            Ok(found) => found,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Ok(Self { path: path.to_owned(), is_there: false });
            }
            Err(error) => return Err(unchecked(error)),
        };
        if let Some(allowed) = allowed {
            allowed.check(value, &found)?;
        }
        match weakness(&found, rustix::process::geteuid().as_raw(), true) {
            Ok(None) => Ok(Self { path: found, is_there: true }),
            Ok(Some(weakness)) => Err(wrong(format!("is not safe to load: {weakness}"))),
            Err(error) => Err(unchecked(error)),
        }
    }

    /// What to call the library. The path is absolute, and without symbolic links if the file was there.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path to load, which only root and the user can change; `None` if nothing was there.
    pub fn file(&self) -> Option<&Path> {
        self.is_there.then_some(self.path.as_path())
    }
}

/// The first part of a path, from its end, that leads to a place that differs from process to process. `found` is where
/// the whole path leads.
fn per_process_place<'a>(path: &'a Path, found: Option<&Path>) -> Option<&'a Path> {
    if found.is_some_and(is_per_process) {
        return Some(path);
    }
    let mut above = path.ancestors().skip(1);
    above.find(|place| place.canonicalize().is_ok_and(|found| is_per_process(&found)))
}

/// Whether the place is in /proc, or in /dev, which has links there: `self/cwd` is where a stranger's files were
/// unpacked.
fn is_per_process(place: &Path) -> bool {
    let place = place.to_string_lossy().to_lowercase();
    ["/proc", "/dev"].iter().any(|root| Path::new(&place).starts_with(root))
}

/// The only place for the administrator's list. The user can't choose another one.
const ALLOWED_LIBRARIES: &str = "/etc/pkcs11-external-signer/libraries";

/// The list of earlier releases. If only this one exists, what it forbade must not become allowed silently.
const FORMER: &str = "/etc/pkcs11-external-signer/config.toml";

/// The libraries, and directories of libraries, that are allowed.
pub(super) struct Allowed(Vec<String>);

impl Allowed {
    /// Reads the administrator's list; `None` if there is no file.
    pub(super) fn read() -> Result<Option<Self>, Error> {
        let found = fs::symlink_metadata(ALLOWED_LIBRARIES);
        if found.is_err_and(|error| error.kind() == ErrorKind::NotFound) {
            return match fs::symlink_metadata(FORMER) {
                Err(_) => Ok(None),
                Ok(_) => Err(misconfigured(
                    format!("{FORMER} is no longer read, and {ALLOWED_LIBRARIES} is missing"),
                    "have the machine's administrator write its `modules` there, one path a line",
                )),
            };
        }
        read_trusted().map(Some)
    }

    /// Fails if the library isn't allowed. `pathLib` names it by `value`, and it is found at this place.
    fn check(&self, value: &str, found: &Path) -> Result<(), Error> {
        if self.allows(found) {
            return Ok(());
        }
        let what = format!(
            "pathLib {} is not allowed by {ALLOWED_LIBRARIES}: it is {}",
            quoted(value),
            found.display()
        );
        let listed = self.0.join(", ");
        let help = format!(
            "name a library that this file lists ({listed}), or have the administrator add it"
        );
        Err(misconfigured(what, help))
    }

    /// Whether the library at this place, to which no symbolic link leads, is allowed.
    fn allows(&self, library: &Path) -> bool {
        self.0.iter().any(|entry| {
            // An entry may be a link, for example to the installed version.
            let listed = fs::canonicalize(entry).unwrap_or_else(|_| PathBuf::from(entry));
            if entry.ends_with('/') {
                library != listed && library.starts_with(listed)
            } else {
                library == listed
            }
        })
    }
}

#[cold]
#[inline(never)]
fn read_trusted() -> Result<Allowed, Error> {
    // On macOS, /etc is a link that the system has made.
    let etc = fs::canonicalize("/etc").map_err(|error| unreadable(&error))?;
    let path = etc.join(ALLOWED_LIBRARIES.trim_start_matches("/etc/"));
    // The file has to be root's.
    if let Some(weakness) = weakness(&path, 0, false).map_err(|error| unreadable(&error))? {
        return Err(refused(format!("{ALLOWED_LIBRARIES} can't be trusted: {weakness}")));
    }
    parse(&fs::read(&path).map_err(|error| unreadable(&error))?)
}

/// Parses a list. Each line is empty, a comment that begins with `#`, or an absolute path.
fn parse(bytes: &[u8]) -> Result<Allowed, Error> {
    let text = str::from_utf8(bytes)
        .map_err(|error| refused(format!("{ALLOWED_LIBRARIES} is not UTF-8: {error}")))?;
    let mut listed = Vec::new();
    for (number, line) in (1..).zip(text.lines().map(str::trim)) {
        if line.starts_with('/') {
            listed.push(line.to_owned());
        } else if !line.is_empty() && !line.starts_with('#') {
            let line = excerpt(line);
            return Err(refused(format!(
                "{ALLOWED_LIBRARIES}, line {number}: \"{line}\" is not an absolute path"
            )));
        }
    }
    Ok(Allowed(listed))
}

fn unreadable(error: &io::Error) -> Error {
    refused(format!("{ALLOWED_LIBRARIES} can't be read: {error}"))
}

/// The error for a list that can't be used, with a remedy for a user who can't change the file.
fn refused(what: String) -> Error {
    misconfigured(
        what,
        "none is loaded until the administrator mends it: root has to own it and all above it, and write there alone",
    )
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::os::unix::net::UnixListener;

    use tempfile::TempDir;

    use super::*;

    /// A library in a directory below a directory of its own.
    struct Installed {
        root: TempDir,
        directory: PathBuf,
        library: PathBuf,
    }

    fn installed() -> Installed {
        let root = TempDir::new().unwrap();
        let directory = root.path().canonicalize().unwrap().join("lib");
        fs::create_dir(&directory).unwrap();
        let library = directory.join("module.so");
        fs::write(&library, "").unwrap();
        set_mode(&directory, 0o755);
        set_mode(&library, 0o644);
        Installed { root, directory, library }
    }

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    fn check(path: &Path) -> Result<PathBuf, String> {
        match TrustedLibrary::check(path.to_str().unwrap()) {
            Ok(library) => Ok(library.path().to_owned()),
            Err(error) => Err(error.to_string()),
        }
    }

    /// What is wrong, without the value it starts with.
    fn reason(path: &Path) -> String {
        let what = check(path).unwrap_err();
        what.split_once("\" ").unwrap().1.to_owned()
    }

    #[test]
    fn a_library_of_the_users_own_is_trusted_by_its_canonical_path() {
        let installed = installed();
        assert_eq!(check(&installed.library), Ok(installed.library.clone()));
        let link = installed.root.path().join("link.so");
        symlink(&installed.library, &link).unwrap();
        assert_eq!(check(&link), Ok(installed.library.clone()));
        let roundabout = installed.directory.join("../lib/./module.so");
        assert_eq!(check(&roundabout), Ok(installed.library));
    }

    #[test]
    fn what_others_can_write_is_named_with_its_mode() {
        for (mode, who) in [(0o666, "every user"), (0o664, "its group")] {
            let installed = installed();
            set_mode(&installed.library, mode);
            let library = installed.library.display();
            assert_eq!(
                reason(&installed.library),
                format!("is not safe to load: {library} can be changed by {who} (mode {mode:04o})")
            );
        }
        for mode in [0o777, 0o775] {
            let installed = installed();
            set_mode(&installed.directory, mode);
            let component = format!("{} can be changed by", installed.directory.display());
            assert!(reason(&installed.library).contains(&component));
            // Where the link stands doesn't matter.
            let link = installed.root.path().join("link.so");
            symlink(&installed.library, &link).unwrap();
            assert!(reason(&link).contains(&component));
        }
    }

    #[test]
    fn a_sticky_directory_is_safe_for_what_is_there() {
        let installed = installed();
        set_mode(&installed.directory, 0o1777);
        assert_eq!(check(&installed.library), Ok(installed.library));
    }

    #[test]
    fn what_is_missing_is_not_loaded() {
        let installed = installed();
        let link = installed.directory.join("link.so");
        symlink("nowhere/library.so", &link).unwrap();
        for missing in
            [installed.directory.join("missing.so"), installed.directory.join("no/x.so"), link]
        {
            let library = TrustedLibrary::check(missing.to_str().unwrap()).ok().unwrap();
            assert_eq!((library.path(), library.file()), (missing.as_path(), None));
        }
    }

    #[test]
    fn what_is_no_file_is_refused() {
        let installed = installed();
        assert!(reason(&installed.directory).ends_with("is not a regular file"));
        let socket = installed.directory.join("socket.so");
        let _socket = UnixListener::bind(&socket).unwrap();
        assert!(reason(&socket).ends_with("is not a regular file"));
        assert!(reason(&installed.library.join("below")).starts_with("can't be checked: "));
        assert!(reason(Path::new("/nul\0")).starts_with("can't be checked: "));
        let link = installed.directory.join("loop.so");
        symlink("loop.so", &link).unwrap();
        assert!(reason(&link).starts_with("can't be checked: "));
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn what_is_elsewhere_for_each_process_is_no_way_to_a_library() {
        for (path, through) in [
            ("/proc/self/cwd/evil.so", "/proc/self"),
            ("/proc/thread-self/root/usr/lib/x.so", "/proc/thread-self"),
            ("/usr/../proc/self/exe", "/usr/../proc/self"),
            ("/dev/fd/3", "/dev/fd"),
            ("/dev/stdin", "/dev"),
        ] {
            let reason = reason(Path::new(path));
            assert!(reason.starts_with(&format!("leads through {through}")), "{path}: {reason}");
        }
    }

    fn allowed(text: &str) -> Allowed {
        parse(text.as_bytes()).ok().unwrap()
    }

    #[test]
    fn a_library_is_allowed_by_its_own_name_or_by_a_directory_above_it() {
        let list = allowed("# ours\n/no/such/a.so\n\n  /no/dir/\r\n");
        for (library, is_allowed) in [
            ("/no/such/a.so", true),
            ("/no/such/a.so.2", false),
            ("/no/such/b.so", false),
            ("/no/such", false),
            ("/no/dir/a.so", true),
            ("/no/dir/below/a.so", true),
            ("/no/dir", false),
            ("/no/directory/a.so", false),
        ] {
            assert_eq!(list.allows(Path::new(library)), is_allowed, "{library}");
        }
        assert!(!allowed("").allows(Path::new("/no/such/a.so")));
    }

    #[test]
    fn what_is_listed_may_be_a_link() {
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path().canonicalize().unwrap();
        let library = directory.join("module.so.2");
        fs::write(&library, "").unwrap();
        let link = directory.join("module.so");
        symlink(&library, &link).unwrap();
        let list = allowed(link.to_str().unwrap());
        assert!(list.allows(&library));
        assert!(!list.allows(&directory.join("other.so")));
    }
}
