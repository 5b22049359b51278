//! Which PKCS#11 libraries this machine has: those that p11-kit has registered, and those that
//! stand where SoftHSM, OpenSC, ykcs11, tpm2-pkcs11 and opencryptoki are usually installed.
//!
//! Files are looked at, none is loaded. p11-kit's own proxy is not among them: it shows the same
//! tokens once more.

mod locations;
mod p11_kit;

use std::collections::HashSet;
use std::path::{Path, PathBuf};

/// A library, and its parameters for C_Initialize.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Installed {
    pub path: PathBuf,
    pub init_args: Option<String>,
}

/// The libraries, each once with the same parameters, under the path they are installed as:
/// links are not followed, since their targets have a version in their names. Registered ones come
/// first.
pub fn libraries(home: Option<&Path>) -> Vec<Installed> {
    let mut seen = HashSet::new();
    p11_kit::registered(home)
        .into_iter()
        .chain(locations::usual())
        .filter(|library| {
            // If it is registered but missing, the loader reports that.
            let file = library.path.canonicalize();
            let file = file.unwrap_or_else(|_| library.path.clone());
            seen.insert((file, library.init_args.clone()))
        })
        .collect()
}
