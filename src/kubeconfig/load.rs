//! Which files make up the kubeconfig, and which value counts if several files have one (client-go, tools/clientcmd,
//! loader.go and ClientConfigLoadingRules).

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::io::{self, ErrorKind, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};

use serde_json::{Value, json};

use super::error::{error, missing, unreadable};
use super::index::EntryIndex;
use super::shape::KUBECONFIG;
use super::yaml;
use super::{EntryKind, Kubeconfig, name_of};
use messages::error::Error;
use messages::printable::shell_word;

/// The size of the largest file that is read, in bytes. A kubeconfig with ten thousand clusters has some 20 MiB.
const MAX_SIZE: u64 = 64 << 20;

/// The fields of clusters and users that are paths.
const PATHS: [&str; 5] = [
    "/cluster/certificate-authority",
    "/user/client-certificate",
    "/user/client-key",
    "/user/tokenFile",
    "/user/exec/command",
];

/// The files of the kubeconfig in kubectl's order, whether they exist or not. The file of `--kubeconfig` is the only
/// one. Otherwise they are those of the variable KUBECONFIG, separated by colons, without empty and repeated ones; or
/// else `~/.kube/config`. An empty value counts as not given. Without a home directory there is no file, where kubectl
/// would take the working directory's.
pub fn files(
    explicit: Option<&Path>,
    variable: Option<&OsStr>,
    home: Option<&Path>,
) -> Vec<PathBuf> {
    if let Some(path) = explicit.filter(|path| !path.as_os_str().is_empty()) {
        return vec![path.to_owned()];
    }
    if let Some(list) = variable.filter(|list| !list.is_empty()) {
        let mut seen = HashSet::new();
        let is_new = |path: &PathBuf| {
            !path.as_os_str().is_empty() && seen.insert(path.as_os_str().to_owned())
        };
        return std::env::split_paths(list).filter(is_new).collect();
    }
    let home = home.filter(|home| !home.as_os_str().is_empty());
    home.map(|home| home.join(".kube/config")).into_iter().collect()
}

impl Kubeconfig {
    /// Reads and merges those of the files that exist, of which there has to be one. If several have an entry of the
    /// same name, the first one counts as a whole. Of other fields, the first that is set counts.
    pub fn load(files: &[PathBuf]) -> Result<Self, Error> {
        let mut merged = None::<Self>;
        for path in files {
            let ReadFile { content, found } = match read(path) {
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                read => read.map_err(|error| unreadable(path, error))?,
            };
            let merged = merged.get_or_insert_default();
            if found.is_file()
                && let Some(concern) = concern(path, &found)?
            {
                merged.concerns.push(concern);
            }
            merged.add(Self::parse(&content, path)?);
        }
        merged.ok_or_else(|| missing(files))
    }

    /// Parses the content of one file. Relative paths start from the directory of `path`, and errors name it.
    pub fn parse(content: &[u8], path: &Path) -> Result<Self, Error> {
        let mut config = Self::as_written(content, path)?;
        config.resolve_paths(path)?;
        Ok(config)
    }

    /// Parses the content of one file and changes nothing of it: relative paths stay relative.
    pub(super) fn as_written(content: &[u8], path: &Path) -> Result<Self, Error> {
        let malformed = |position: String, reason: &str| {
            error(
                format!("kubeconfig {}{position}: {reason}", path.display()),
                "correct the file, which kubectl has to read, too; a number or a word such as yes that is meant \
                 as text stands in quotes",
            )
        };
        let text = str::from_utf8(content).map_err(|error| {
            let (before, _) = content.split_at(error.valid_up_to());
            malformed(yaml::end(&String::from_utf8_lossy(before)), "it is not UTF-8")
        })?;
        let config = yaml::read(text).map_err(|(position, reason)| malformed(position, reason))?;
        if config.is_null() {
            return Ok(Self::default());
        }
        if let Some(misfit) = KUBECONFIG.misfit(&config) {
            return Err(malformed(yaml::position(text, &misfit.path), &misfit.to_string()));
        }
        Ok(Self { index: EntryIndex::of(&config), config, ..Self::default() })
    }

    /// Makes paths absolute: relative ones start from the directory of their file. The command of a credential plugin
    /// is a path if it has a slash.
    fn resolve_paths(&mut self, path: &Path) -> Result<(), Error> {
        let absolute = std::path::absolute(path).map_err(|error| unreadable(path, error))?;
        let absolute = cleaned(&absolute);
        let directory = absolute.parent().unwrap_or(&absolute);
        for kind in [EntryKind::Cluster, EntryKind::User] {
            let elements = self.config.get_mut(kind.list()).and_then(Value::as_array_mut);
            for element in elements.into_iter().flatten() {
                resolve_paths(element, directory)
                    .ok_or_else(|| unreadable(path, "its directory's name is not UTF-8"))?;
            }
        }
        Ok(())
    }

    /// Adds the entries and fields of a later file that this one doesn't have.
    fn add(&mut self, later: Self) {
        if self.config.is_null() {
            (self.config, self.index) = (later.config, later.index);
            return;
        }
        let Value::Object(members) = later.config else { return };
        for (key, later) in members {
            match (&mut self.config[&key], later) {
                (Value::Array(mine), Value::Array(later)) => add_elements(mine, later),
                (mine, later) if mine.is_null() || *mine == json!("") => *mine = later,
                _ => {}
            }
        }
        self.index = EntryIndex::of(&self.config);
    }
}

/// Makes the relative paths of a cluster or a user start from this directory; `None` if one would not be text then.
fn resolve_paths(element: &mut Value, directory: &Path) -> Option<()> {
    for field in PATHS {
        let Some(Value::String(written)) = element.pointer_mut(field) else { continue };
        let is_name = field.ends_with("command") && !written.contains('/');
        if is_name || written.is_empty() || written.starts_with('/') {
            continue;
        }
        *written = cleaned(&directory.join(&*written)).to_str()?.to_owned();
    }
    Some(())
}

/// Adds those elements of a later file to a list whose names the list doesn't have.
fn add_elements(mine: &mut Vec<Value>, later: Vec<Value>) {
    let mut known: HashSet<_> = mine.iter().map(|element| name_of(element).to_owned()).collect();
    mine.extend(later.into_iter().filter(|element| known.insert(name_of(element).to_owned())));
}

/// A file that was read.
pub(super) struct ReadFile {
    pub(super) content: Vec<u8>,
    /// The file's metadata when it was opened.
    pub(super) found: Metadata,
}

/// Reads a file to its end. That may be one that can be read only once: a FIFO, or a shell's `<(…)`.
pub(super) fn read(path: &Path) -> io::Result<ReadFile> {
    let file = File::open(path)?;
    let found = file.metadata()?;
    let mut content = Vec::new();
    file.take(MAX_SIZE + 1).read_to_end(&mut content)?;
    if content.len() as u64 > MAX_SIZE {
        return Err(io::Error::other("it is larger than 64 MiB"));
    }
    Ok(ReadFile { content, found })
}

/// A warning about a file that somebody else can change. An error if more people can than its owner and this user's own
/// group, of which many systems make the user the only member.
fn concern(path: &Path, found: &Metadata) -> Result<Option<String>, Error> {
    let file = path.display();
    let owner = found.uid();
    let mode = found.mode() & 0o7777;
    let is_foreign = owner != 0 && owner != rustix::process::geteuid().as_raw();
    let is_of_own_group = found.gid() == rustix::process::getegid().as_raw();
    let is_of_group = mode & 0o020 != 0;
    if mode & 0o002 != 0 || is_of_group && !is_of_own_group {
        return Err(error(
            format!("kubeconfig {file} can be changed by other users (mode {mode:04o})"),
            format!(
                "make sure that it was not changed, then take the permission away: `chmod go-w {}`",
                shell_word(&path.to_string_lossy())
            ),
        ));
    }
    let who = match (is_foreign, is_of_group) {
        (true, _) => format!("belongs to uid {owner}, who"),
        (false, true) => format!("can be changed by its group (mode {mode:04o}), which"),
        (false, false) => return Ok(None),
    };
    Ok(Some(format!("kubeconfig {file} {who} can name another library, token or server in it")))
}

/// The path made absolute, without `.` and `..`, as Go's filepath.Clean does it. Links aren't followed.
fn cleaned(path: &Path) -> PathBuf {
    let mut clean = PathBuf::from("/");
    for component in path.components() {
        match component {
            Component::Normal(name) => clean.push(name),
            Component::ParentDir => drop(clean.pop()),
            Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
        }
    }
    clean
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn load(path: &Path) -> Result<Kubeconfig, String> {
        Kubeconfig::load(&[path.to_owned()]).map_err(|error| error.to_string())
    }

    #[test]
    fn of_several_files_one_has_to_be_there() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("none");
        let error = load(&path).err().unwrap();
        assert_eq!(error, format!("there is no kubeconfig {}", path.display()));
        assert!(Kubeconfig::load(&[]).is_err());
        let second = directory.path().join("second");
        let either = [path.clone(), second.clone()];
        let error = Kubeconfig::load(&either).err().unwrap().to_string();
        assert_eq!(
            error,
            format!("there is no kubeconfig {} or {}", path.display(), second.display())
        );
        fs::write(&second, "").unwrap();
        assert_eq!(Kubeconfig::load(&either).unwrap().contexts(), []);
    }

    #[test]
    fn what_is_not_text_is_refused_with_its_line() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("config");
        fs::write(&path, b"a: b\nc: \xff1234\n").unwrap();
        let error = load(&path).err().unwrap();
        assert!(error.ends_with("config, line 2, column 4: it is not UTF-8"), "{error}");
        fs::write(&path, b"a: \0\n").unwrap();
        assert!(load(&path).is_err());
    }

    /// Only a path has to be written down, and JSON has no other text.
    #[test]
    fn a_directory_whose_name_is_not_text_serves_absolute_paths() {
        use std::os::unix::ffi::OsStrExt as _;
        let directory = tempfile::tempdir().unwrap();
        let odd = directory.path().join(OsStr::from_bytes(b"\xff"));
        if fs::create_dir(&odd).is_err() {
            return; // macOS has no such names.
        }
        let path = odd.join("config");
        fs::write(&path, "users: [{name: j, user: {client-key: /key}}]").unwrap();
        assert!(load(&path).is_ok());
        fs::write(&path, "users: [{name: j, user: {client-key: key}}]").unwrap();
        let error = load(&path).err().unwrap();
        assert!(error.contains("not UTF-8"), "{error}");
    }

    fn parsed(text: &str) -> String {
        match Kubeconfig::parse(text.as_bytes(), Path::new("/config")) {
            Ok(config) => config.to_json(),
            Err(error) => error.to_string().replace("kubeconfig /config, ", ""),
        }
    }

    #[test]
    fn what_is_no_yaml_is_refused_with_its_place_and_without_its_text() {
        let deep = |open: &str| open.repeat(1000);
        let mut bomb = "a0: &a0 [1]\n".to_owned();
        for index in 1..40 {
            let previous = index - 1;
            bomb += &format!("a{index}: &a{index} [*a{previous}, *a{previous}, *a{previous}]\n");
        }
        for (text, position) in [
            ("a: 1\nb: [1234\n", "line "),
            ("a: 1\n\tb: 1234\n", "line 1, "),
            ("pin: \"1234\nb: c\n", "line "),
            ("a: 1\nb: *1234\n", "line 2, column 4: "),
            ("a: .inf # 1234", "line 1, column 4: "),
            ("a: 1\n---\nb: 1234\n", "line 3, column 1: "),
            // Line breaks for kubectl, which would read the line behind them.
            ("a: b\nc # 1234\u{2028}c: d\n", "line 2, column 9: U+0085, U+2028 or U+2029"),
            ("a: '1234\u{85}'\n", "line 1, column 9: U+0085"),
            ("{\"a\": \"1234\u{2029}\"}", "line 1, column 12: U+0085"),
            (&deep("["), "line 1, "),
            (&deep("- "), "line 1, "),
            (&bomb, "line "),
        ] {
            let error = parsed(text);
            assert!(error.starts_with(position) && !error.contains("1234"), "{text:.60}: {error}");
        }
    }

    #[test]
    fn what_has_an_end_within_the_limits_is_read() {
        let directory = tempfile::tempdir().unwrap();
        let large = directory.path().join("large");
        File::create(&large).unwrap().set_len(MAX_SIZE + 1).unwrap();
        for (path, expected) in [
            (Path::new("/dev/null"), "read"),
            (Path::new("/dev/zero"), "it is larger than 64 MiB"),
            (&large, "it is larger than 64 MiB"),
            (directory.path(), "irectory"),
        ] {
            let read = read(path).map_or_else(|error| error.to_string(), |_| "read".to_owned());
            assert!(read.contains(expected), "{}: {read}", path.display());
        }
    }

    #[test]
    fn the_explicit_file_then_the_variable_then_home() {
        let found = |explicit: &str, variable: &str| {
            let home = Some(Path::new("/home/jane"));
            let files = files(Some(explicit.as_ref()), Some(variable.as_ref()), home).into_iter();
            files.map(|path| path.to_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(found("x", "a:b"), ["x"]);
        assert_eq!(found("", "a::b:a:"), ["a", "b"]);
        assert_eq!(found("", ":"), [""; 0]);
        assert_eq!(found("", ""), ["/home/jane/.kube/config"]);
        assert!(files(None, None, None).is_empty());
    }
}
