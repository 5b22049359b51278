//! From files to one kubeconfig: which value counts where several files have one (client-go,
//! tools/clientcmd, loader.go).

use std::path::Path;

use super::decode::{self, Reason, YamlError};
use super::error::KubeconfigError;
use super::file::{self, FileContent, ReadFailure};
use super::locations::Locations;
use super::model::{Extensions, Kubeconfig, Preferences};
use super::yaml;

impl Kubeconfig {
    /// All files that are there: of entries with the same name the first counts, whole; of current
    /// contexts the first that is set. No file at all makes an empty kubeconfig, as it does for
    /// kubectl, unless one is required.
    ///
    /// # Errors
    ///
    /// A file can't be read, can be written by others, isn't YAML or has a field of a wrong type;
    /// or there is no file where one is required.
    pub fn load(locations: &Locations) -> Result<Self, KubeconfigError> {
        let mut merged = Self::default();
        let mut is_there = false;
        for path in &locations.files {
            let FileContent { bytes, access } = match file::read(path) {
                Ok(content) => content,
                Err(ReadFailure::Missing) => continue,
                Err(ReadFailure::Other(reason)) => return Err(unreadable(path, reason)),
            };
            if let Some(access) = access {
                if access.is_writable_by_others() {
                    let (path, mode) = (path.clone(), access.mode);
                    return Err(KubeconfigError::WritableByOthers { path, mode });
                }
                merged.concerns.extend(access.concern().map(|who| (path.clone(), who)));
            }
            merged.absorb(Self::parse(&bytes, path)?);
            is_there = true;
        }
        if locations.required && !is_there {
            let paths = locations.files.clone();
            return Err(KubeconfigError::Missing { paths });
        }
        Ok(merged)
    }

    /// The content of one file, whose path is where relative paths start and what errors name.
    ///
    /// # Errors
    ///
    /// It isn't YAML or has a field of a wrong type.
    pub fn parse(content: &[u8], path: &Path) -> Result<Self, KubeconfigError> {
        let text = std::str::from_utf8(content).map_err(|error| {
            let before = content.get(..error.valid_up_to()).unwrap_or_default();
            let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
            malformed(path, line, "it is not UTF-8".to_owned())
        })?;
        let root = yaml::parse(text).map_err(|error| refused(path, error))?;
        let config = root.as_deref().map(decode::from_node::<Option<Self>>);
        let config = config.transpose().map_err(|error| refused(path, error))?;
        let mut config = config.flatten().unwrap_or_default();
        for (field, value, expected) in
            [("apiVersion", &config.api_version, "v1"), ("kind", &config.kind, "Config")]
        {
            if !value.is_empty() && value != expected {
                return Err(KubeconfigError::Field {
                    path: path.to_owned(),
                    line: None,
                    field: field.to_owned(),
                    expected: expected.to_owned(),
                });
            }
        }
        config.resolve_paths(path)?;
        Ok(config)
    }

    /// Relative paths start from the directory of the file they stand in; the command of a
    /// credential plugin is a path where it has a slash.
    fn resolve_paths(&mut self, path: &Path) -> Result<(), KubeconfigError> {
        let directory =
            file::directory_of(path).map_err(|error| unreadable(path, error.to_string()))?;
        let clusters = self.clusters.0.values_mut();
        let users = self.users.0.values_mut();
        let in_clusters = clusters
            .filter_map(|entry| entry.cluster.as_mut())
            .map(|cluster| &mut cluster.certificate_authority);
        let in_users = users.filter_map(|entry| entry.user.as_mut()).flat_map(|user| {
            let command = user.exec.as_mut().map(|exec| &mut exec.command);
            let command = command.filter(|it| it.as_ref().is_some_and(|it| it.contains('/')));
            [&mut user.client_certificate, &mut user.client_key, &mut user.token_file]
                .into_iter()
                .chain(command)
        });
        for written in in_clusters.chain(in_users).flatten() {
            if written.is_empty() || written.starts_with('/') {
                continue;
            }
            *written = file::resolved(&directory, written)
                .into_os_string()
                .into_string()
                .map_err(|_| unreadable(path, "its directory's name is not UTF-8".to_owned()))?;
        }
        Ok(())
    }

    /// Adds what a later file has.
    fn absorb(&mut self, later: Self) {
        self.clusters.add_missing(later.clusters);
        self.users.add_missing(later.users);
        self.contexts.add_missing(later.contexts);
        add_extensions(&mut self.extensions, later.extensions);
        if self.current_context.is_empty() {
            self.current_context = later.current_context;
        }
        match (&mut self.preferences, later.preferences) {
            (Some(mine), Some(later)) => mine.absorb(later),
            (mine, later) => *mine = mine.take().or(later),
        }
        for (key, value) in later.other {
            self.other.entry(key).or_insert(value);
        }
    }
}

impl Preferences {
    /// Adds what a later file has; colors stay on once they are.
    fn absorb(&mut self, later: Self) {
        self.colors = self.colors.max(later.colors);
        add_extensions(&mut self.extensions, later.extensions);
        for (key, value) in later.other {
            self.other.entry(key).or_insert(value);
        }
    }
}

fn add_extensions(mine: &mut Extensions, later: Extensions) {
    match (mine, later) {
        (Some(mine), Some(later)) => mine.add_missing(later),
        (mine, later) => *mine = mine.take().or(later),
    }
}

fn refused(path: &Path, error: YamlError) -> KubeconfigError {
    let YamlError { line, field, reason } = error;
    match reason {
        Reason::Expected(expected) if !field.is_empty() => {
            KubeconfigError::Field { path: path.to_owned(), line: Some(line), field, expected }
        }
        Reason::Expected(expected) => malformed(path, line, format!("it is not {expected}")),
        Reason::Malformed(reason) if field.is_empty() => malformed(path, line, reason),
        Reason::Malformed(reason) => malformed(path, line, format!("{field}: {reason}")),
    }
}

fn malformed(path: &Path, line: usize, reason: String) -> KubeconfigError {
    KubeconfigError::Malformed { path: path.to_owned(), line, reason }
}

fn unreadable(path: &Path, reason: String) -> KubeconfigError {
    KubeconfigError::Unreadable { path: path.to_owned(), reason }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn load(locations: &Locations) -> Result<Kubeconfig, String> {
        Kubeconfig::load(locations).map_err(|error| error.to_string())
    }

    fn explicit(path: &Path) -> Locations {
        Locations::new(Some(path), None, None)
    }

    #[test]
    fn a_file_named_on_the_command_line_has_to_be_there() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("none");
        let error = load(&explicit(&path)).err().unwrap();
        assert_eq!(error, format!("there is no kubeconfig {}", path.display()));
        for locations in [
            Locations::new(None, Some(path.as_os_str()), None),
            Locations::new(None, None, Some(directory.path())),
            Locations::new(None, None, None),
        ] {
            let config = load(&locations).ok().unwrap();
            assert_eq!(config.current_context(), None);
            assert_eq!(config.contexts(), []);
            assert!(load(&locations.required()).is_err());
        }
        // Of several files, any will do.
        let second = directory.path().join("second");
        let list = std::env::join_paths([&path, &second]).unwrap();
        let either = Locations::new(None, Some(&list), None).required();
        let error = load(&either).err().unwrap();
        assert_eq!(
            error,
            format!("there is no kubeconfig {} or {}", path.display(), second.display())
        );
        fs::write(&second, "").unwrap();
        assert!(load(&either).is_ok());
    }

    #[test]
    fn what_is_not_text_is_refused_with_its_line() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("config");
        fs::write(&path, b"a: b\nc: \xff1234\n").unwrap();
        let error = load(&explicit(&path)).err().unwrap();
        assert!(error.ends_with("config, line 2: it is not UTF-8"), "{error}");
        fs::write(&path, b"a: \0\n").unwrap();
        assert!(load(&explicit(&path)).is_err());
    }

    /// Only a path has to be written down, and JSON has no other text.
    #[test]
    fn a_directory_whose_name_is_not_text_serves_absolute_paths() {
        use std::os::unix::ffi::OsStrExt as _;
        let directory = tempfile::tempdir().unwrap();
        let odd = directory.path().join(std::ffi::OsStr::from_bytes(b"\xff"));
        if fs::create_dir(&odd).is_err() {
            return; // macOS has no such names.
        }
        let path = odd.join("config");
        fs::write(&path, "users: [{name: j, user: {client-key: /key}}]").unwrap();
        assert!(load(&explicit(&path)).is_ok());
        fs::write(&path, "users: [{name: j, user: {client-key: key}}]").unwrap();
        let error = load(&explicit(&path)).err().unwrap();
        assert!(error.contains("not UTF-8"), "{error}");
    }

    fn parsed(text: &str) -> String {
        match Kubeconfig::parse(text.as_bytes(), Path::new("/config")) {
            Ok(config) => config.to_json(),
            Err(error) => error.to_string().replace("kubeconfig /config, ", ""),
        }
    }

    #[test]
    fn a_wrong_type_is_named_with_its_entry_and_without_its_value() {
        for (text, expected) in [
            ("current-context: 5", "current-context is not a string"),
            ("clusters: {}", "clusters is not a sequence"),
            ("clusters: [5]", "clusters[0] is not a map"),
            ("clusters: [{name: 5}]", "clusters[\"5\"].name is not a string"),
            (
                "clusters: [{name: a, cluster: {insecure-skip-tls-verify: 1}}]",
                "clusters[\"a\"].cluster.insecure-skip-tls-verify is not a boolean",
            ),
            ("clusters: [{name: a, cluster: 5}]", "clusters[\"a\"].cluster is not a map"),
            ("clusters: [{name: a}, {name: a}]", "clusters: \"a\" is there twice"),
            (
                "users: [{name: j, user: {auth-provider: {config: {pin: 012}}}}]",
                "users[\"j\"].user.auth-provider.config.pin is not a string",
            ),
            (
                "users: [{name: j, user: {auth-provider: {config: {a: yes}}}}]",
                "users[\"j\"].user.auth-provider.config.a is not a string",
            ),
            (
                "users: [{name: j, user: {auth-provider: {config: {a: [b]}}}}]",
                "users[\"j\"].user.auth-provider.config.a is not a string",
            ),
            (
                "users: [{name: j, user: {exec: {env: [{name: 1}]}}}]",
                "users[\"j\"].user.exec.env[\"1\"].name is not a string",
            ),
            (
                "users: [{name: j, user: {client-key-data: secret}}]",
                "users[\"j\"].user.client-key-data is not base64",
            ),
            (
                "users: [{name: j, user: {extensions: [{name: e}, {name: e}]}}]",
                "users[\"j\"].user.extensions: \"e\" is there twice",
            ),
        ] {
            assert_eq!(parsed(text), format!("line 1: {expected}"), "{text}");
        }
    }

    #[test]
    fn what_can_mean_one_thing_only_becomes_a_text() {
        let json = parsed(
            "users: [{name: j, user: {auth-provider: {config: {slotId: 0, pin: 123456, x: }}}}]",
        );
        let config = r#""config":{"pin":"123456","slotId":"0","x":""}"#;
        assert!(json.contains(config), "{json}");
    }

    #[test]
    fn null_and_what_is_not_listed_pass() {
        let text = "clusters:\nusers: [null]\ncontexts: []\nfoo: [1]\npreferences: {bar: 2}";
        assert!(parsed(text).starts_with('{'), "{}", parsed(text));
    }
}
