//! Exit code 3 too: the kubeconfig, as files and as what they name.
//!
//! A kubeconfig can hold a PIN, a token or a key, so no text here quotes a value of one: files,
//! lines, fields and the names of entries are all it says.

use std::fmt;
use std::path::PathBuf;

use crate::error::{Failure, Remedy, one_of};
use crate::printable::{excerpt, printable, shell_word};

#[derive(Debug)]
pub enum KubeconfigError {
    /// The cluster's `certificate-authority` can't be read.
    Authority {
        cluster: String,
        path: PathBuf,
        reason: String,
    },
    /// A field of another type than kubectl takes.
    Field {
        path: PathBuf,
        /// From 1.
        line: Option<usize>,
        /// As `users["jane"].user.auth-provider.config.pin`.
        field: String,
        expected: String,
    },
    /// The server is both to be verified and not to be.
    InsecureAuthority {
        cluster: String,
    },
    /// Not YAML, or more of it than a kubeconfig has.
    Malformed {
        path: PathBuf,
        /// From 1.
        line: usize,
        reason: String,
    },
    /// None of the files that were looked for.
    Missing {
        paths: Vec<PathBuf>,
    },
    NoCluster {
        name: String,
        candidates: Vec<String>,
    },
    NoContext {
        name: String,
        candidates: Vec<String>,
    },
    /// No context is the current one.
    NoCurrentContext {
        candidates: Vec<String>,
    },
    NoServer {
        cluster: String,
    },
    /// Anchors, aliases or other means by which one place of the file says what another means.
    NotEditable {
        path: PathBuf,
    },
    /// The context's user has no auth-provider of ours.
    NotExternalSigner {
        context: String,
        user: String,
    },
    Unreadable {
        path: PathBuf,
        reason: String,
    },
    Unwritable {
        path: PathBuf,
        reason: String,
    },
    /// A user of this name is there, and is somebody else.
    UserExists {
        path: PathBuf,
        name: String,
    },
    /// A user without a name was to be written.
    UserUnnamed,
    /// Whoever can write to it could name another library, token or server.
    WritableByOthers {
        path: PathBuf,
        mode: u32,
    },
}

impl fmt::Display for KubeconfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Authority {
                cluster,
                path,
                reason,
            } => write!(
                f,
                "certificate-authority {} of cluster \"{}\" can't be read: {reason}",
                shown(path),
                excerpt(cluster)
            ),
            Self::Field {
                path,
                line,
                field,
                expected,
            } => {
                write!(f, "kubeconfig {}", shown(path))?;
                if let Some(line) = line {
                    write!(f, ", line {line}")?;
                }
                write!(f, ": {field} is not {expected}")
            }
            Self::InsecureAuthority { cluster } => write!(
                f,
                "cluster \"{}\" has both a certificate authority and insecure-skip-tls-verify",
                excerpt(cluster)
            ),
            Self::Malformed { path, line, reason } => {
                write!(f, "kubeconfig {}, line {line}: {reason}", shown(path))
            }
            Self::Missing { paths } if paths.is_empty() => {
                f.write_str("there is no kubeconfig to look for: HOME is not set")
            }
            Self::Missing { paths } => {
                let paths: Vec<_> = paths.iter().map(|path| shown(path)).collect();
                let paths: Vec<_> = paths.iter().map(String::as_str).collect();
                write!(f, "there is no kubeconfig {}", one_of(&paths))
            }
            Self::NoCluster { name, .. } => {
                write!(f, "the kubeconfig has no cluster \"{}\"", excerpt(name))
            }
            Self::NoContext { name, .. } => {
                write!(f, "the kubeconfig has no context \"{}\"", excerpt(name))
            }
            Self::NoCurrentContext { .. } => f.write_str("the kubeconfig has no current-context"),
            Self::NotExternalSigner { context, user } => write!(
                f,
                "user \"{}\" of context \"{}\" has no auth-provider externalSigner",
                excerpt(user),
                excerpt(context)
            ),
            Self::NoServer { cluster } => {
                write!(f, "cluster \"{}\" has no server", excerpt(cluster))
            }
            Self::UserExists { path, name } => write!(
                f,
                "kubeconfig {} has a user \"{}\" with other credentials",
                shown(path),
                excerpt(name)
            ),
            Self::UserUnnamed => f.write_str("the kubeconfig's user would have no name"),
            Self::NotEditable { path } => write!(
                f,
                "kubeconfig {} can't be edited without a risk to what else it says",
                shown(path)
            ),
            Self::Unwritable { path, reason } => {
                write!(f, "kubeconfig {} can't be written: {reason}", shown(path))
            }
            Self::Unreadable { path, reason } => {
                write!(f, "kubeconfig {} can't be read: {reason}", shown(path))
            }
            Self::WritableByOthers { path, mode } => write!(
                f,
                "kubeconfig {} can be changed by other users (mode {mode:04o})",
                shown(path)
            ),
        }
    }
}

fn shown(path: &std::path::Path) -> String {
    printable(&path.to_string_lossy()).into_owned()
}

fn choice(kind: &str, candidates: &[String]) -> Remedy {
    if candidates.is_empty() {
        return Remedy::new(format!(
            "there is no {kind} at all: check --kubeconfig and KUBECONFIG"
        ));
    }
    let shown: Vec<_> = candidates.iter().map(|name| printable(name)).collect();
    Remedy::with_candidates(format!("name a {kind} that is there:"), &shown)
}

impl std::error::Error for KubeconfigError {}

impl Failure for KubeconfigError {
    fn exit_code(&self) -> u8 {
        3
    }

    fn remedy(&self) -> Remedy {
        match self {
            Self::Authority { .. } => Remedy::new(
                "correct certificate-authority of that cluster; a relative path starts from the \
                 directory of the kubeconfig it stands in",
            ),
            Self::Field { .. } => Remedy::new(
                "correct that field; a number or a word such as yes that is meant as text stands \
                 in quotes",
            ),
            Self::InsecureAuthority { .. } => Remedy::new(
                "take insecure-skip-tls-verify out of that cluster to have its server verified",
            ),
            Self::Malformed { .. } => Remedy::new(
                "correct the file; `kubectl config view --kubeconfig FILE` has to read it, too",
            ),
            Self::Missing { paths } if paths.is_empty() => {
                Remedy::new("set HOME, or name the file with --kubeconfig or KUBECONFIG")
            }
            Self::Missing { .. } => Remedy::new(
                "correct --kubeconfig or KUBECONFIG, or make the file with \
                 `pkcs11-external-signer kubeconfig --write`",
            ),
            Self::NoCluster { candidates, .. } => choice("cluster", candidates),
            Self::NoContext { candidates, .. } | Self::NoCurrentContext { candidates } => {
                choice("context", candidates)
            }
            Self::NotExternalSigner { context, .. } => Remedy::new(format!(
                "name a context with --context, or write the user with \
                 `pkcs11-external-signer kubeconfig --write --context {}`",
                shell_word(context)
            )),
            Self::NoServer { .. } => {
                Remedy::new("set server of that cluster, as https://HOST:PORT")
            }
            Self::UserExists { name, .. } => Remedy::new(format!(
                "choose another name with --user, or give --user {} to replace that one",
                shell_word(name)
            )),
            Self::UserUnnamed => Remedy::new(
                "name it with --user; without that it is called as the certificate's CN, or else \
                 as the key's label",
            ),
            Self::NotEditable { .. } => Remedy::new(
                "run the command without --write and paste what it prints; the file was not touched",
            ),
            Self::Unwritable { .. } => Remedy::new(
                "correct that, or run the command without --write and paste what it prints; the file \
                 was not touched",
            ),
            Self::WritableByOthers { path, .. } => Remedy::new(format!(
                "make sure that nobody has changed it, then take the permission away: \
                 `chmod go-w {}`",
                shell_word(&path.to_string_lossy())
            )),
            Self::Unreadable { .. } => Remedy::new(
                "make it a regular file that you can read, or take it out of KUBECONFIG",
            ),
        }
    }
}
