//! The kubeconfig: exit code 3, as for the configuration in it. No text quotes a value that could
//! be a PIN or a key.

use std::fmt;
use std::path::PathBuf;

use super::Help;

#[derive(Debug)]
pub enum KubeconfigError {
    /// A cluster's entry that can't be used.
    Cluster {
        name: String,
        reason: String,
    },
    /// A file that is not YAML; where, if it can be told.
    Malformed {
        file: PathBuf,
        line: Option<u64>,
        reason: String,
    },
    /// None of the files is there.
    Missing {
        files: Vec<PathBuf>,
    },
    NoCluster {
        name: String,
        present: Vec<String>,
    },
    NoContext {
        name: String,
        present: Vec<String>,
    },
    /// YAML, but not a kubeconfig.
    Structure {
        file: PathBuf,
        reason: String,
    },
    Unreadable {
        file: PathBuf,
        reason: String,
    },
    /// A user's entry that can't be used.
    User {
        name: String,
        reason: String,
    },
}

impl fmt::Display for KubeconfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cluster { name, reason } => write!(f, "cluster \"{name}\": {reason}"),
            Self::Malformed { file, line, reason } => {
                write!(f, "kubeconfig {}", file.display())?;
                if let Some(line) = line {
                    write!(f, ", line {line}")?;
                }
                write!(f, ": {reason}")
            }
            Self::Missing { files } => {
                let files: Vec<_> = files
                    .iter()
                    .map(|file| file.display().to_string())
                    .collect();
                write!(f, "there is no kubeconfig: {}", files.join(", "))
            }
            Self::NoCluster { name, .. } => write!(f, "no cluster is named \"{name}\""),
            Self::NoContext { name, .. } => write!(f, "no context is named \"{name}\""),
            Self::Structure { file, reason } | Self::Unreadable { file, reason } => {
                write!(f, "kubeconfig {}: {reason}", file.display())
            }
            Self::User { name, reason } => write!(f, "user \"{name}\": {reason}"),
        }
    }
}

impl KubeconfigError {
    pub(super) fn help(&self) -> Help {
        match self {
            Self::Cluster { .. } | Self::User { .. } => {
                Help::new("correct the entry in the kubeconfig")
            }
            Self::Malformed { .. } | Self::Structure { .. } => {
                Help::new("correct the file; `kubectl config view` reads it the same way")
            }
            Self::Missing { .. } => {
                Help::new("name the kubeconfig with --kubeconfig or KUBECONFIG")
            }
            Self::NoCluster { present, .. } => {
                Help::with_candidates("the kubeconfig has these clusters:", present)
            }
            Self::NoContext { present, .. } => {
                Help::with_candidates("the kubeconfig has these contexts:", present)
            }
            Self::Unreadable { .. } => Help::new("name a file that you can read"),
        }
    }
}
