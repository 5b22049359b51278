//! Which PKCS#11 libraries this machine has: those that p11-kit has registered, and those that
//! stand where SoftHSM, OpenSC, ykcs11 and tpm2-pkcs11 are usually installed.
//!
//! Files are looked at, none is loaded. p11-kit's own proxy is not among them: it shows the same
//! tokens once more.

#![forbid(unsafe_code)]

mod p11_kit;
mod places;

use std::collections::HashSet;
use std::path::{Path, PathBuf};

/// The libraries, each once, under the path they are installed as (symbolic links not followed:
/// what they lead to has a version in its name). Registered ones come first.
pub fn libraries(home: Option<&Path>) -> Vec<PathBuf> {
    let mut seen = HashSet::new();
    p11_kit::registered(home)
        .into_iter()
        .chain(places::usual())
        .filter(|library| match library.canonicalize() {
            Ok(file) => seen.insert(file),
            // Registered, but not there: the loader shall say so.
            Err(_) => seen.insert(library.clone()),
        })
        .collect()
}
