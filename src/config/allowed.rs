//! Which libraries the machine's administrator allows: `/etc/pkcs11-external-signer/libraries`, one path a line.
//!
//! Without that file, any library may be loaded that only root and the user can change. With it, only
//! one that it lists, even if a kubeconfig, a variable or an option names another. A file that can't be
//! read, trusted or parsed allows none.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use super::library::weakness;
use super::misconfigured;
use base::error::Error;
use base::printable::excerpt;

/// The file's only place: the user can't choose another one.
pub(super) const ALLOWED_LIBRARIES: &str = "/etc/pkcs11-external-signer/libraries";

/// The libraries, and directories of libraries, that are allowed.
pub(super) struct Allowed(pub(super) Vec<String>);

impl Allowed {
    /// `None` where there is no file.
    pub(super) fn read() -> Result<Option<Self>, Error> {
        let found = fs::symlink_metadata(ALLOWED_LIBRARIES);
        if found.is_err_and(|error| error.kind() == ErrorKind::NotFound) {
            return Ok(None);
        }
        read_trusted().map(Some)
    }

    /// Whether the library at this place, to which no symbolic link leads, is allowed.
    pub(super) fn allows(&self, library: &Path) -> bool {
        self.0.iter().any(|entry| {
            // What is listed may be a link, such as one to the version that is installed.
            let listed = fs::canonicalize(entry).unwrap_or_else(|_| PathBuf::from(entry));
            match entry.ends_with('/') {
                true => library != listed && library.starts_with(listed),
                false => library == listed,
            }
        })
    }
}

#[cold]
#[inline(never)]
fn read_trusted() -> Result<Allowed, Error> {
    // macOS: /etc is a link of the system's.
    let etc = fs::canonicalize("/etc").map_err(|error| unreadable(&error))?;
    let path = etc.join(ALLOWED_LIBRARIES.trim_start_matches("/etc/"));
    // It has to be root's.
    if let Some(weakness) = weakness(&path, 0, false).map_err(|error| unreadable(&error))? {
        return Err(refused(format!("{ALLOWED_LIBRARIES} can't be trusted: {weakness}")));
    }
    parse(&fs::read(&path).map_err(|error| unreadable(&error))?)
}

/// A line is empty, a comment that begins with `#`, or an absolute path.
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

/// With a remedy for a user who can't change the file.
fn refused(what: String) -> Error {
    misconfigured(
        what,
        "none is loaded until the administrator mends it: root has to own it and all above it, and write there alone",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

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
        std::os::unix::fs::symlink(&library, &link).unwrap();
        let list = allowed(link.to_str().unwrap());
        assert!(list.allows(&library));
        assert!(!list.allows(&directory.join("other.so")));
    }
}
