//! Exit code 3 too: the kubeconfig, as files and as what they name.
//!
//! A kubeconfig can hold a PIN, a token or a key, so no text here quotes a value of one: files,
//! lines, fields and the names of entries are all it says.

use std::path::PathBuf;

use crate::error::{Failure, Help, PROGRAM, THIS_KUBECONFIG, listed, remedy};
use crate::printable::shell_word;

#[derive(Debug, thiserror::Error)]
pub enum KubeconfigError {
    #[error("certificate-authority {} of cluster \"{cluster}\" can't be read: {reason}", .path.display())]
    Authority { cluster: String, path: PathBuf, reason: String },
    /// The credential plugin needs the entries that `kubeconfig --write` makes.
    #[error("the cluster's extension client.authentication.k8s.io/exec {problem}")]
    Extension { problem: String },
    #[error("kubeconfig {}{}: {field} is not {expected}", .path.display(), in_line(*.line))]
    Field {
        path: PathBuf,
        /// From 1.
        line: Option<usize>,
        /// As `users["jane"].user.auth-provider.config.pin`.
        field: String,
        expected: String,
    },
    #[error("cluster \"{cluster}\" has both a certificate authority and insecure-skip-tls-verify")]
    InsecureAuthority { cluster: String },
    /// Often tabs for indentation or an unclosed quote. `kubeconfig --write` leaves a copy,
    /// `FILE.backup-…`.
    #[error("kubeconfig {}, line {line}: {reason}", .path.display())]
    Malformed {
        path: PathBuf,
        /// From 1.
        line: usize,
        reason: String,
    },
    #[error("there is no kubeconfig {}", missing(.paths))]
    Missing { paths: Vec<PathBuf> },
    #[error("context \"{name}\" was not written for the credential plugin")]
    NoPluginContext { name: String, candidates: Vec<String> },
    #[error("the kubeconfig has no cluster \"{name}\"")]
    NoCluster { name: String, candidates: Vec<String> },
    #[error("the kubeconfig has no context \"{name}\"")]
    NoContext { name: String, candidates: Vec<String> },
    #[error("the kubeconfig has no current-context")]
    NoCurrentContext { candidates: Vec<String> },
    #[error("cluster \"{cluster}\" has no server")]
    NoServer { cluster: String },
    #[error("kubeconfig {} can't be edited without a risk to what else it says", .path.display())]
    NotEditable { path: PathBuf },
    /// It has neither this program as its `exec` plugin nor `auth-provider: {name: externalSigner, …}`.
    #[error("user \"{user}\" of context \"{context}\" has no key for this program")]
    NotExternalSigner { context: String, user: String },
    /// A user with one has this program as its `exec` plugin, without `--as`, or `auth-provider: {name: externalSigner, …}`.
    #[error("no context of {kubeconfig} has a user with a key for this program")]
    NothingToServe { kubeconfig: String, inside: bool },
    /// The plugin would refuse it, too.
    #[error("in the plugin arguments of user \"{user}\", {problem}")]
    PluginArguments { user: String, problem: String },
    #[error("user \"{user}\" has both exec and auth-provider")]
    PluginBesideProvider { user: String },
    /// For a pipe such as `<(sops -d config.enc)`, run what writes it by itself: it has a minute.
    #[error("kubeconfig {} can't be read: {reason}", .path.display())]
    Unreadable { path: PathBuf, reason: String },
    /// *the group of the file can't be kept*: you aren't in that group (`chgrp`).
    #[error("kubeconfig {} can't be written: {reason}", .path.display())]
    Unwritable { path: PathBuf, reason: String },
    #[error("kubeconfig {} has a user \"{name}\" with other credentials", .path.display())]
    UserExists { path: PathBuf, name: String },
    #[error("the kubeconfig's user would have no name")]
    UserUnnamed,
    /// Others could have changed which library is loaded, which token is sent a PIN and which server sees
    /// the certificate. Look through it: `kubectl config view`.
    #[error("kubeconfig {} can be changed by other users (mode {mode:04o})", .path.display())]
    WritableByOthers { path: PathBuf, mode: u32 },
}

fn in_line(line: Option<usize>) -> String {
    line.map_or_else(String::new, |line| format!(", line {line}"))
}

fn missing(paths: &[PathBuf]) -> String {
    let paths: Vec<_> = paths.iter().map(|path| path.to_string_lossy()).collect();
    let paths: Vec<_> = paths.iter().map(AsRef::as_ref).collect();
    match paths.as_slice() {
        [] => "to look for: HOME is not set".to_owned(),
        paths => listed(paths, "or"),
    }
}

impl Failure for KubeconfigError {
    fn exit_code(&self) -> u8 {
        3
    }

    fn remedy(&self) -> Help {
        match self {
            Self::Authority { .. } => remedy!(
                "correct certificate-authority of that cluster; a relative path starts from the \
                 directory of the kubeconfig it stands in"
            ),
            Self::Extension { .. } => remedy!(
                "have the context's entries written with `",
                format!("{PROGRAM} kubeconfig --write{THIS_KUBECONFIG}"),
                " --context NAME`"
            ),
            Self::Field { .. } => remedy!(
                "correct that field; a number or a word such as yes that is meant as text stands \
                 in quotes"
            ),
            Self::InsecureAuthority { .. } => remedy!(
                "take insecure-skip-tls-verify out of that cluster to have its server verified"
            ),
            Self::Malformed { .. } => remedy!(
                "correct the file; `kubectl config view --kubeconfig FILE` has to read it, too"
            ),
            Self::Missing { paths } if paths.is_empty() => {
                remedy!("set HOME, or name the file with --kubeconfig or KUBECONFIG")
            }
            Self::Missing { .. } => remedy!(
                "correct --kubeconfig or KUBECONFIG, or put the kubeconfig there that the cluster's \
                 operators give out"
            ),
            Self::NoCluster { candidates, .. } => choice("cluster", candidates),
            Self::NoContext { candidates, .. } | Self::NoCurrentContext { candidates } => {
                choice("context", candidates)
            }
            Self::NoPluginContext { candidates, .. } if candidates.is_empty() => {
                remedy!("nothing is to be undone: no context was")
            }
            Self::NoPluginContext { candidates, .. } => {
                remedy!("name one that was:").with_candidates(candidates)
            }
            Self::NotExternalSigner { context, .. } => remedy!(
                "name a context with --context, or write the user with `",
                format!("{PROGRAM} kubeconfig --write{THIS_KUBECONFIG}"),
                format!(" --context {}`", shell_word(context))
            ),
            Self::NothingToServe { inside: true, .. } => {
                remedy!("this shell is inside a run already: start the command as it is")
            }
            Self::NothingToServe { .. } => remedy!(
                "name the file with --kubeconfig or KUBECONFIG, or have a context of it use a key: `",
                format!("{PROGRAM} kubeconfig --write{THIS_KUBECONFIG}"),
                " --context NAME`"
            ),
            Self::NoServer { .. } => remedy!("set server of that cluster, as https://HOST:PORT"),
            Self::PluginArguments { .. } => remedy!(
                "correct exec.args of that user, or have it written with `",
                format!("{PROGRAM} kubeconfig --write{THIS_KUBECONFIG}"),
                " --context NAME`"
            ),
            Self::PluginBesideProvider { .. } => {
                remedy!("take one of them out; kubectl refuses such a user")
            }
            Self::UserExists { name, .. } => remedy!(format!(
                "choose another name with --user, or give --user {} to replace that one",
                shell_word(name)
            )),
            Self::UserUnnamed => remedy!(
                "name it with --user; without that it is called as the certificate's CN, or else \
                 as the key's label"
            ),
            Self::NotEditable { .. } => remedy!(
                "run the command without --write and paste what it prints; the file was not touched"
            ),
            Self::Unwritable { .. } => remedy!(
                "correct that, or run the command without --write and paste what it prints; the file \
                 was not touched"
            ),
            Self::WritableByOthers { path, .. } => remedy!(format!(
                "make sure that it was not changed, then take the permission away: `chmod go-w {}`",
                shell_word(&path.to_string_lossy())
            )),
            Self::Unreadable { .. } => {
                remedy!("make it a regular file that you can read, or take it out of KUBECONFIG")
            }
        }
    }
}

fn choice(kind: &str, candidates: &[String]) -> Help {
    if candidates.is_empty() {
        return remedy!(format!("there is no {kind} at all: check --kubeconfig and KUBECONFIG"));
    }
    remedy!(format!("name a {kind} that is there:")).with_candidates(candidates)
}
