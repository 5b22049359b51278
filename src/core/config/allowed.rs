//! Which libraries the machine's administrator allows: `/etc/pkcs11-external-signer/config.toml`.
//!
//! Without that file, any library may be loaded that only root and the user can change. With it, only
//! one that it lists, even if a kubeconfig, a variable or an option names another. A file that can't be
//! read, trusted or parsed allows none.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read as _};
use std::path::{Path, PathBuf};

use toml::de::DeTable;

use super::error::Problem;
use super::trust::weakness;
use crate::printable::excerpt;

/// The file's only place: the user can't choose another one.
pub(super) const PLACE: &str = "/etc/pkcs11-external-signer/config.toml";

/// The only user that the file may belong to.
const ROOT: u32 = 0;

/// A longer file is no list of libraries.
const LONGEST_FILE: u64 = 1 << 20;

/// The file's only key.
const MODULES: &str = "modules";

/// The libraries, and directories of libraries, that are allowed.
pub(super) struct Allowed(Vec<String>);

impl Allowed {
    /// `None` where there is no file.
    pub(super) fn read() -> Result<Option<Self>, Problem> {
        match fs::symlink_metadata(PLACE) {
            Ok(_) => read_trusted().map(Some),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(unreadable(&error)),
        }
    }

    /// Whether the library at this place, to which no symbolic link leads, is allowed.
    pub(super) fn allows(&self, library: &Path) -> bool {
        self.0.iter().any(|entry| {
            // What is listed may be a link, such as one to the version that is installed.
            let listed = fs::canonicalize(entry).unwrap_or_else(|_| PathBuf::from(entry));
            if entry.ends_with('/') {
                library != listed && library.starts_with(listed)
            } else {
                library == listed
            }
        })
    }
}

/// What is listed, for a message.
impl fmt::Display for Allowed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_slice() {
            [] => f.write_str("it lists none"),
            listed => write!(f, "it lists {}", listed.join(", ")),
        }
    }
}

#[cold]
#[inline(never)]
fn read_trusted() -> Result<Allowed, Problem> {
    // macOS: /etc is a link of the system's.
    let etc = fs::canonicalize("/etc").map_err(|error| unreadable(&error))?;
    let path = match Path::new(PLACE).strip_prefix("/etc") {
        Ok(rest) => etc.join(rest),
        Err(_) => PathBuf::from(PLACE),
    };
    let weakness = weakness(&path, true, ROOT, false).map_err(|error| unreadable(&error))?;
    if let Some((component, weakness)) = weakness {
        let component = component.display().to_string();
        return Err(Problem::new(
            format!("{PLACE} can't be trusted: {component} {weakness}"),
            format!("{}; until then no library is loaded", weakness.remedy(&component)),
        ));
    }
    let mut bytes = Vec::new();
    File::open(&path)
        .and_then(|file| file.take(LONGEST_FILE + 1).read_to_end(&mut bytes))
        .map_err(|error| unreadable(&error))?;
    if u64::try_from(bytes.len()).is_ok_and(|length| length > LONGEST_FILE) {
        return Err(unreadable(&io::Error::other("it is longer than 1 MiB")));
    }
    parse(&bytes)
}

fn parse(bytes: &[u8]) -> Result<Allowed, Problem> {
    let wrong = |place: usize, what: &str| Err(malformed(bytes, place, what));
    let text = match str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => return wrong(error.valid_up_to(), "it is not UTF-8"),
    };
    let table = match DeTable::parse(text) {
        Ok(table) => table.into_inner(),
        Err(error) => {
            let start = error.span().map_or(0, |span| span.start);
            return wrong(start, error.message());
        }
    };
    // What isn't known here could be meant to forbid something.
    let unknown = table.keys().filter(|key| key.get_ref() != MODULES);
    if let Some(key) = unknown.min_by_key(|key| key.span().start) {
        let what = format!("unknown key \"{}\"", excerpt(key.get_ref()));
        return wrong(key.span().start, &what);
    }
    let Some(list) = table.get(MODULES) else {
        return wrong(0, "modules is missing");
    };
    let Some(entries) = list.get_ref().as_array() else {
        return wrong(list.span().start, "modules is not a list");
    };
    let mut modules = Vec::with_capacity(entries.len());
    for entry in entries {
        match entry.get_ref().as_str() {
            Some(path) if path.starts_with('/') => modules.push(path.to_owned()),
            Some(path) => {
                let what = format!("\"{}\" is not an absolute path", excerpt(path));
                return wrong(entry.span().start, &what);
            }
            None => return wrong(entry.span().start, "a module is not a text"),
        }
    }
    Ok(Allowed(modules))
}

/// The remedy for a user who can't change the file.
const UNTIL_MENDED: &str = "it says which libraries may be loaded; until the machine's \
                            administrator mends it, none is";

fn malformed(bytes: &[u8], place: usize, what: &str) -> Problem {
    let before = bytes.get(..place).unwrap_or(bytes);
    let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
    let what = what.trim_end().replace('\n', "; ");
    Problem::new(format!("{PLACE}, line {line}: {what}"), UNTIL_MENDED)
}

fn unreadable(error: &io::Error) -> Problem {
    Problem::new(format!("{PLACE} can't be read: {error}"), UNTIL_MENDED)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(text: &str) -> Allowed {
        parse(text.as_bytes()).ok().unwrap()
    }

    /// What is wrong with a text, without the file it is in.
    fn wrong(text: impl AsRef<[u8]>) -> String {
        let problem = parse(text.as_ref()).err().unwrap();
        let what = problem.what.strip_prefix(PLACE).unwrap();
        what.strip_prefix(", ").unwrap().to_owned()
    }

    #[test]
    fn a_library_is_allowed_by_its_own_name_or_by_a_directory_above_it() {
        let list = allowed("# ours\nmodules = [\n  \"/no/such/a.so\", # one\n  '/no/dir/',\n]\n");
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
        assert!(!allowed("modules = []").allows(Path::new("/no/such/a.so")));
    }

    #[test]
    fn what_is_listed_may_be_a_link() {
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path().canonicalize().unwrap();
        let library = directory.join("module.so.2");
        fs::write(&library, "").unwrap();
        let link = directory.join("module.so");
        std::os::unix::fs::symlink(&library, &link).unwrap();
        let list = allowed(&format!("modules = [{link:?}]"));
        assert!(list.allows(&library));
        assert!(!list.allows(&directory.join("other.so")));
    }

    #[test]
    fn a_file_that_is_not_understood_is_told_with_its_line() {
        for (text, line, what) in [
            ("", 1, "modules is missing"),
            ("modules = 7\n", 1, "not a list"),
            ("\n\nmodules = \"/a.so\"", 3, "not a list"),
            ("modules = [\n\"/a.so\",\n7]", 3, "not a text"),
            ("modules = []\nmodule = []\n", 2, "unknown key \"module\""),
            ("modules = []\nmodules = []\n", 2, "duplicate key"),
            ("modules = []\n\n[modules]\n", 3, "duplicate key"),
            ("# one\nmodules = [\"/a.so\"\n", 2, "array"),
            ("modules = [\n  \"a.so\"]", 2, "\"a.so\" is not an absolute path"),
            ("modules = [\"\"]", 1, "\"\" is not an absolute path"),
            ("modules = [\"~/a.so\"]", 1, "is not an absolute path"),
        ] {
            let wrong = wrong(text);
            assert!(wrong.starts_with(&format!("line {line}: ")), "{text}: {wrong}");
            assert!(wrong.contains(what), "{text}: {wrong}");
            assert!(!wrong.contains('\n'), "{text}: {wrong}");
        }
        assert_eq!(wrong(b"modules = [\n\"/\xff\"]"), "line 2: it is not UTF-8");
    }
}
