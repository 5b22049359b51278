//! From files to one kubeconfig: who wins where several say the same (client-go, tools/clientcmd,
//! loader.go).

use std::path::Path;

use super::error::KubeconfigError;
use super::file::{self, Failure};
use super::locations::Locations;
use super::value::{Object, Value, text_at};
use super::{Entries, Kubeconfig, schema, yaml};

impl Kubeconfig {
    /// All files that are there, the first before the later: of entries with the same name the
    /// first counts, whole; of current contexts the first that is set. No file at all makes an
    /// empty kubeconfig, as it does for kubectl, unless one has to be there.
    ///
    /// Errors: a file that can't be read, that others can write to, isn't YAML or has a field of a wrong type; no file where
    /// one has to be there.
    pub fn load(locations: &Locations) -> Result<Self, KubeconfigError> {
        let mut merged = Self::default();
        let mut is_there = false;
        for path in &locations.files {
            let (content, access) = match file::read_with_access(path) {
                Ok(read) => read,
                Err(Failure::Missing) => continue,
                Err(Failure::Other(reason)) => return Err(unreadable(path, reason)),
            };
            if let Some(access) = access {
                if access.is_writable_by_others() {
                    let (path, mode) = (path.clone(), access.mode);
                    return Err(KubeconfigError::WritableByOthers { path, mode });
                }
                if access.is_of_others() {
                    merged.of_others.push((path.clone(), access.owner));
                }
            }
            merged.absorb(Self::parse(&content, path)?);
            is_there = true;
        }
        if locations.required && !is_there {
            let paths = locations.files.clone();
            return Err(KubeconfigError::Missing { paths });
        }
        Ok(merged)
    }

    /// One file's content.
    pub fn parse(content: &[u8], path: &Path) -> Result<Self, KubeconfigError> {
        let malformed = |line, reason: &str| KubeconfigError::Malformed {
            path: path.to_owned(),
            line,
            reason: reason.to_owned(),
        };
        let text = std::str::from_utf8(content).map_err(|error| {
            let before = content.get(..error.valid_up_to()).unwrap_or_default();
            let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
            malformed(Some(line), "it is not UTF-8")
        })?;
        let mut object = match yaml::parse(text) {
            Ok(Value::Object(object)) => object,
            Ok(Value::Null) => Object::new(),
            Ok(_) => {
                return Err(malformed(
                    None,
                    "it is not an object with clusters and users",
                ));
            }
            Err(fault) => return Err(malformed(Some(fault.line), &fault.reason)),
        };
        schema::check(&mut object).map_err(|fault| {
            let (path, field) = (path.to_owned(), fault.field);
            match fault.expected {
                Some(expected) => KubeconfigError::Field {
                    path,
                    field,
                    expected,
                },
                None => KubeconfigError::Repeated { path, entry: field },
            }
        })?;
        for (field, expected) in [("apiVersion", "v1"), ("kind", "Config")] {
            let value = text_at(&object, field);
            if !value.is_empty() && value != expected {
                return Err(KubeconfigError::Field {
                    path: path.to_owned(),
                    field: field.to_owned(),
                    expected,
                });
            }
            object.remove(field);
        }
        let mut config = Self {
            clusters: entries(&mut object, "clusters"),
            users: entries(&mut object, "users"),
            contexts: entries(&mut object, "contexts"),
            current_context: text_at(&object, "current-context").to_owned(),
            rest: Object::new(),
            of_others: Vec::new(),
        };
        object.remove("current-context");
        object.retain(|_, value| !matches!(value, Value::Null));
        config.rest = object;
        config.resolve_paths(path)?;
        Ok(config)
    }

    /// Relative paths start from the directory of the file they stand in; the command of a
    /// credential plugin is a path where it has a slash.
    fn resolve_paths(&mut self, path: &Path) -> Result<(), KubeconfigError> {
        let directory =
            file::directory_of(path).map_err(|error| unreadable(path, error.to_string()))?;
        let resolve = |object: &mut Object, key: &str| {
            let relative = text_at(object, key);
            if relative.is_empty() || relative.starts_with('/') {
                return Ok(());
            }
            let resolved = file::resolved(&directory, relative)
                .into_os_string()
                .into_string()
                .map_err(|_| unreadable(path, "its directory's name is not UTF-8".to_owned()))?;
            object.insert(key.to_owned(), Value::text(resolved));
            Ok(())
        };
        for entry in self.clusters.values_mut() {
            if let Some(Value::Object(cluster)) = entry.get_mut("cluster") {
                resolve(cluster, "certificate-authority")?;
            }
        }
        for entry in self.users.values_mut() {
            if let Some(Value::Object(user)) = entry.get_mut("user") {
                for key in ["client-certificate", "client-key", "tokenFile"] {
                    resolve(user, key)?;
                }
                if let Some(Value::Object(exec)) = user.get_mut("exec")
                    && text_at(exec, "command").contains('/')
                {
                    resolve(exec, "command")?;
                }
            }
        }
        Ok(())
    }

    /// What a later file adds.
    fn absorb(&mut self, later: Self) {
        for (mine, theirs) in [
            (&mut self.clusters, later.clusters),
            (&mut self.users, later.users),
            (&mut self.contexts, later.contexts),
        ] {
            for (name, entry) in theirs {
                mine.entry(name).or_insert(entry);
            }
        }
        if self.current_context.is_empty() {
            self.current_context = later.current_context;
        }
        absorb_members(&mut self.rest, later.rest);
    }
}

/// Of what isn't an entry, the first counts; a `true` stays true, `preferences` and `extensions`
/// are merged member by member.
fn absorb_members(mine: &mut Object, theirs: Object) {
    for (key, value) in theirs {
        match (key.as_str(), mine.get_mut(&key), value) {
            ("preferences", Some(Value::Object(mine)), Value::Object(theirs)) => {
                absorb_members(mine, theirs);
            }
            ("extensions", Some(Value::List(mine)), Value::List(theirs)) => {
                absorb_extensions(mine, theirs);
            }
            ("colors", Some(Value::Flag(mine)), Value::Flag(theirs)) => *mine |= theirs,
            (_, None | Some(Value::Null), value) => {
                mine.insert(key, value);
            }
            _ => {}
        }
    }
}

fn absorb_extensions(mine: &mut Vec<Value>, theirs: Vec<Value>) {
    let name = |value: &Value| {
        value
            .as_object()
            .map(|object| text_at(object, "name").to_owned())
    };
    let known: std::collections::HashSet<_> = mine.iter().map(name).collect();
    mine.extend(
        theirs
            .into_iter()
            .filter(|theirs| !known.contains(&name(theirs))),
    );
}

/// The list's elements, which are then no longer in `object`.
fn entries(object: &mut Object, list: &str) -> Entries {
    let Some(Value::List(items)) = object.remove(list) else {
        return Entries::new();
    };
    items
        .into_iter()
        .filter_map(|item| match item {
            Value::Object(entry) => Some((text_at(&entry, "name").to_owned(), entry)),
            _ => None,
        })
        .collect()
}

fn unreadable(path: &Path, reason: String) -> KubeconfigError {
    KubeconfigError::Unreadable {
        path: path.to_owned(),
        reason,
    }
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
            format!(
                "there is no kubeconfig {} or {}",
                path.display(),
                second.display()
            )
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
        assert!(
            error.ends_with("config, line 2: it is not UTF-8"),
            "{error}"
        );
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
}
