//! Which files make up the kubeconfig, and what becomes of several.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{ErrorKind, Read as _};
use std::path::{Path, PathBuf, absolute};

use serde_json::{Map, Value};
use zeroize::Zeroizing;

use super::{Kubeconfig, List, text};
use crate::error::KubeconfigError;

/// A file longer than this is no kubeconfig, and no certificate.
const LONGEST_FILE: u64 = 16 << 20;

/// Which files, in kubectl's order.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Locations {
    files: Vec<PathBuf>,
    /// A file that was asked for has to be there.
    is_explicit: bool,
}

impl Locations {
    /// The explicit file alone; else those of `variable` (KUBECONFIG, a list as PATH is one); else
    /// `.kube/config` in `home`.
    pub fn new(explicit: Option<&Path>, variable: Option<&OsStr>, home: Option<&Path>) -> Self {
        if let Some(file) = explicit {
            return Self {
                files: vec![file.to_owned()],
                is_explicit: true,
            };
        }
        let files = match variable.filter(|list| !list.is_empty()) {
            Some(list) => {
                let mut known = HashSet::new();
                std::env::split_paths(list)
                    .filter(|file| !file.as_os_str().is_empty() && known.insert(file.clone()))
                    .collect()
            }
            None => home
                .iter()
                .map(|home| home.join(".kube").join("config"))
                .collect(),
        };
        Self {
            files,
            is_explicit: false,
        }
    }
}

impl Kubeconfig {
    /// Reads and merges the files. Of entries with the same name, and of other settings, that of
    /// the first file counts; files that aren't there are passed over, unless none is.
    pub fn load(locations: &Locations) -> Result<Self, KubeconfigError> {
        let mut merged = Self(Map::new());
        let mut is_missing = true;
        for file in &locations.files {
            let unreadable = |reason| KubeconfigError::Unreadable {
                file: file.clone(),
                reason,
            };
            if !locations.is_explicit
                && std::fs::metadata(file).is_err_and(|error| error.kind() == ErrorKind::NotFound)
            {
                continue;
            }
            is_missing = false;
            let content = read(file).map_err(unreadable)?;
            let mut config = parse(&content, file)?;
            let place = absolute(file).map_err(|error| unreadable(error.to_string()))?;
            config.make_paths_absolute(place.parent().unwrap_or_else(|| Path::new("/")));
            merged.merge(config);
        }
        if is_missing {
            return Err(KubeconfigError::Missing {
                files: locations.files.clone(),
            });
        }
        Ok(merged)
    }

    /// Takes what the other one has beyond this.
    fn merge(&mut self, mut other: Self) {
        for (key, value) in std::mem::take(&mut other.0) {
            match (self.0.get_mut(&key), value) {
                (Some(Value::Array(known)), Value::Array(more)) => {
                    for entry in more {
                        if !known.iter().any(|known| known["name"] == entry["name"]) {
                            known.push(entry);
                        }
                    }
                }
                (Some(Value::Object(known)), Value::Object(more)) => {
                    for (key, value) in more {
                        known.entry(key).or_insert(value);
                    }
                }
                (Some(known), value) if is_empty(known) => *known = value,
                (Some(_), _) => {}
                (None, value) => {
                    self.0.insert(key, value);
                }
            }
        }
    }

    fn make_paths_absolute(&mut self, base: &Path) {
        let join = |value: &mut Value| {
            if let Value::String(path) = value
                && !path.is_empty()
                && let Ok(whole) = absolute(base.join(&*path))
                && let Ok(whole) = whole.into_os_string().into_string()
            {
                *path = whole;
            }
        };
        for (list, keys) in [
            (List::Clusters, &["certificate-authority"][..]),
            (
                List::Users,
                &["client-certificate", "client-key", "tokenFile"],
            ),
        ] {
            for entry in self.entries_mut(list) {
                for key in keys {
                    entry.get_mut(*key).map(join);
                }
                // A command without a slash is looked for in PATH.
                if let Some(command) = entry
                    .get_mut("exec")
                    .and_then(|exec| exec.get_mut("command"))
                    && text(Some(command)).is_some_and(|command| command.contains('/'))
                {
                    join(command);
                }
            }
        }
    }

    pub(super) fn entries_mut(
        &mut self,
        list: List,
    ) -> impl Iterator<Item = &mut Map<String, Value>> {
        let (list, item) = list.keys();
        self.0
            .get_mut(list)
            .and_then(Value::as_array_mut)
            .into_iter()
            .flatten()
            .filter_map(move |entry| entry.get_mut(item)?.as_object_mut())
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => false,
    }
}

/// The content of a file; the error is a text for people.
pub(super) fn read(file: &Path) -> Result<Zeroizing<Vec<u8>>, String> {
    let opened = File::open(file).map_err(|error| error.to_string())?;
    // As long as it will be, so that no copy is left behind where it grew.
    let length = opened.metadata().map_or(0, |data| data.len());
    let capacity = usize::try_from(length.min(LONGEST_FILE)).unwrap_or_default() + 1;
    let mut content = Zeroizing::new(Vec::with_capacity(capacity));
    opened
        .take(LONGEST_FILE)
        .read_to_end(&mut content)
        .map_err(|error| error.to_string())?;
    if content.len() as u64 == LONGEST_FILE {
        return Err("it is too long".to_owned());
    }
    Ok(content)
}

/// One file's content. Nothing of it is quoted in an error: it can hold a PIN.
pub(super) fn parse(content: &[u8], file: &Path) -> Result<Kubeconfig, KubeconfigError> {
    let malformed = |line, reason: &str| KubeconfigError::Malformed {
        file: file.to_owned(),
        line,
        reason: reason.to_owned(),
    };
    let content = str::from_utf8(content).map_err(|_| malformed(None, "it is not UTF-8 text"))?;
    if content.trim().is_empty() {
        return Ok(Kubeconfig(Map::new()));
    }
    let options = serde_saphyr::options! { with_snippet: false };
    let tree: Value = serde_saphyr::from_str_with_options(content, options).map_err(|error| {
        let line = error.location().map(|place| place.line());
        malformed(line, "it is not valid YAML, or one key stands there twice")
    })?;
    let structure = |reason: String| KubeconfigError::Structure {
        file: file.to_owned(),
        reason,
    };
    let config = match tree {
        Value::Null => Map::new(),
        Value::Object(config) => config,
        _ => return Err(structure("it is not a map".to_owned())),
    };
    let config = Kubeconfig(config);
    if let Some(kind) = text(config.0.get("kind")).filter(|kind| *kind != "Config") {
        return Err(structure(format!("it is of kind {kind} and no kubeconfig")));
    }
    for list in [List::Clusters, List::Contexts, List::Users] {
        let (key, _) = list.keys();
        if !matches!(
            config.0.get(key),
            None | Some(Value::Null | Value::Array(_))
        ) {
            return Err(structure(format!("{key} is not a list")));
        }
        let mut names = HashSet::new();
        if let Some((name, _)) = config.entries(list).find(|(name, _)| !names.insert(*name)) {
            return Err(structure(format!("{key} has two entries named \"{name}\"")));
        }
    }
    Ok(config)
}
