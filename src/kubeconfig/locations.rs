//! Which files make up the kubeconfig (client-go, tools/clientcmd, ClientConfigLoadingRules).

use std::collections::HashSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// Which files, in kubectl's order.
#[derive(Clone)]
pub struct Locations {
    pub(super) files: Vec<PathBuf>,
    /// One of them has to be there: the one that the command line names, or any.
    pub(super) required: bool,
}

impl Locations {
    /// The file of `--kubeconfig` alone; else those of the variable KUBECONFIG, separated by colons,
    /// empty and repeated ones left out; else `~/.kube/config`. What is empty counts as not given; without a
    /// home there is no file, where kubectl would take one from the working directory.
    pub fn new(explicit: Option<&Path>, variable: Option<&OsStr>, home: Option<&Path>) -> Self {
        if let Some(path) = explicit.filter(|path| !path.as_os_str().is_empty()) {
            return Self { files: vec![path.to_owned()], required: true };
        }
        let files = match variable.filter(|list| !list.is_empty()) {
            Some(list) => {
                let mut seen = HashSet::new();
                std::env::split_paths(list)
                    .filter(|path| !path.as_os_str().is_empty())
                    .filter(|path| seen.insert(path.clone().into_os_string()))
                    .collect()
            }
            None => home
                .filter(|home| !home.as_os_str().is_empty())
                .map(|home| home.join(".kube/config"))
                .into_iter()
                .collect(),
        };
        Self { files, required: false }
    }

    /// The same files, of which none has to be there.
    pub fn optional(&self) -> Self {
        Self { required: false, ..self.clone() }
    }

    /// The same files, of which one has to be there.
    pub fn required(&self) -> Self {
        Self { required: true, ..self.clone() }
    }

    /// The files, whether they are there or not.
    pub fn files(&self) -> &[PathBuf] {
        &self.files
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(explicit: &str, variable: &str) -> (Vec<String>, bool) {
        let locations = Locations::new(
            Some(Path::new(explicit)),
            Some(OsStr::new(variable)),
            Some(Path::new("/home/jane")),
        );
        let files = locations.files().iter();
        (files.map(|path| path.to_str().unwrap().to_owned()).collect(), locations.required)
    }

    #[test]
    fn the_explicit_file_then_the_variable_then_home() {
        assert_eq!(files("x", "a:b"), (vec!["x".into()], true));
        assert_eq!(files("", "a::b:a:"), (vec!["a".into(), "b".into()], false));
        assert_eq!(files("", ":"), (vec![], false));
        assert_eq!(files("", ""), (vec!["/home/jane/.kube/config".into()], false));
    }
}
