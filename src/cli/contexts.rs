//! The kubeconfig that a command reads, and its contexts on the command line.

#![forbid(unsafe_code)]

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use clap_complete::{ArgValueCandidates, CompletionCandidate};

use crate::error::Error;
use crate::kubeconfig::{Kubeconfig, Locations};
use crate::printable::shell_word;
use crate::report;

/// The kubeconfig of this name, or the files that kubectl would read.
pub(super) fn locations(explicit: Option<&Path>) -> Locations {
    let variable = std::env::var_os("KUBECONFIG");
    let home = std::env::var_os("HOME").map(PathBuf::from);
    Locations::new(explicit, variable.as_deref(), home.as_deref())
}

/// Loads the kubeconfig from these files, with a warning for each that somebody else can change.
pub(super) fn load(locations: &Locations) -> Result<Kubeconfig, Error> {
    let kubeconfig = Kubeconfig::load(locations)?;
    for (path, who) in kubeconfig.concerns() {
        report::warning(&format!(
            "kubeconfig {} {who} can name another library, token or server in it",
            path.display()
        ));
    }
    Ok(kubeconfig)
}

/// The contexts of kubectl's kubeconfig. Shells take a candidate as it is, so none that needs quotes is offered.
pub(super) fn contexts() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        let contexts = kubeconfig().map(|it| it.contexts()).into_iter().flatten();
        let names = contexts.map(|context| context.name);
        let plain = names.filter(|name| matches!(shell_word(name), Cow::Borrowed(_)));
        plain.map(CompletionCandidate::new).collect()
    })
}

/// A pipe isn't read: its next reader would find it empty.
fn kubeconfig() -> Option<Kubeconfig> {
    let locations = locations(None);
    let is_file = |path: &PathBuf| !Path::exists(path) || path.is_file();
    let is_all_files = locations.files().iter().all(is_file);
    is_all_files.then(|| Kubeconfig::load(&locations).ok())?
}
