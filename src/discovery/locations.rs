//! Where distributions and installers put PKCS#11 libraries, on Linux and macOS.

use std::path::PathBuf;

use super::Installed;

/// Below each library directory.
const LIBRARIES: &[&str] = &[
    // SoftHSM
    "softhsm/libsofthsm2.so",
    "pkcs11/libsofthsm2.so",
    // OpenSC
    "opensc-pkcs11.so",
    "pkcs11/opensc-pkcs11.so",
    // Yubico's ykcs11; Debian's package of the library alone has no link without a version
    "libykcs11.so",
    "libykcs11.so.2",
    "libykcs11.dylib",
    // tpm2-pkcs11
    "libtpm2_pkcs11.so",
    "libtpm2_pkcs11.so.1",
    "pkcs11/libtpm2_pkcs11.so",
    // opencryptoki; distributions keep one of these names or both
    "pkcs11/libopencryptoki.so",
    "pkcs11/PKCS11_API.so",
    "opencryptoki/libopencryptoki.so",
];

const DIRECTORIES: &[&str] = &[
    "/usr/lib",
    "/usr/lib64",
    "/usr/local/lib",
    "/usr/local/lib64",
    "/opt/homebrew/lib",
    "/Library/OpenSC/lib",
];

/// Those that are there.
pub(super) fn usual() -> Vec<Installed> {
    library_directories()
        .iter()
        .flat_map(|directory| LIBRARIES.iter().map(|library| directory.join(library)))
        .filter(|path| path.is_file())
        .map(|path| Installed { path, init_args: None })
        .collect()
}

/// With Debian's directory for this processor's architecture.
pub(super) fn library_directories() -> Vec<PathBuf> {
    let debian = format!("/usr/lib/{}-linux-gnu", std::env::consts::ARCH);
    DIRECTORIES.iter().map(PathBuf::from).chain([PathBuf::from(debian)]).collect()
}
