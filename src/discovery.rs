//! Which PKCS#11 libraries this machine has: those that are registered with p11-kit, and those in the places where SoftHSM,
//! OpenSC, ykcs11, tpm2-pkcs11 and opencryptoki are usually installed.
//!
//! Files are only looked at; no library is loaded. p11-kit's own proxy is left out, since it would show the same tokens
//! again.

use std::collections::{BTreeMap, HashSet};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use files::read_regular;

/// The places below each library directory where distributions and installers put PKCS#11 libraries.
const LIBRARIES: &[&str] = &[
    // SoftHSM
    "softhsm/libsofthsm2.so",
    "pkcs11/libsofthsm2.so",
    // OpenSC
    "opensc-pkcs11.so",
    "pkcs11/opensc-pkcs11.so",
    // Yubico's ykcs11. Debian's package of only the library has no link without a version
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
    "/opt/local/lib",
    "/Library/OpenSC/lib",
];

/// p11-kit's directories, with one file for each library (pkcs11.conf(5)). As with p11-kit, options of a later directory
/// override those of an earlier one.
const REGISTRIES: &[&str] = &[
    "/usr/share/p11-kit/modules",
    "/usr/local/share/p11-kit/modules",
    "/opt/homebrew/share/p11-kit/modules",
    "/opt/homebrew/etc/pkcs11/modules",
    "/usr/local/etc/pkcs11/modules",
    "/etc/pkcs11/modules",
];

/// The option that names a command or a socket for p11-kit to talk to, in place of a library to load.
const REMOTE: &str = "remote";

/// The longest registration that is read, in bytes.
const LONGEST_FILE: u64 = 64 * 1024;

/// An installed library, and its parameters for C_Initialize.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Installed {
    pub path: PathBuf,
    pub init_args: Option<String>,
}

/// The names of the registrations that name a command or a socket (`remote:`). Only p11-kit can talk to those; its proxy
/// shows their tokens.
pub fn remote(home: Option<&Path>) -> Vec<String> {
    remote_among(&registrations(registries(home)))
}

/// The path of p11-kit's proxy, if it is installed.
pub fn proxy() -> Option<PathBuf> {
    let directories = library_directories().into_iter();
    let places = directories.map(|directory| directory.join("p11-kit-proxy.so"));
    places.into_iter().find(|path| path.is_file())
}

/// The libraries of this machine, the registered ones first. Each comes once for the same parameters, under the path that
/// it is installed as: links are not resolved, since their targets have a version in their names.
pub fn libraries(home: Option<&Path>) -> Vec<Installed> {
    let mut seen = HashSet::new();
    let directories = library_directories();
    let usual = directories
        .iter()
        .flat_map(|directory| LIBRARIES.iter().map(|library| directory.join(library)))
        .filter(|path| path.is_file())
        .map(|path| Installed { path, init_args: None });
    registered(&registrations(registries(home)), &directories)
        .into_iter()
        .chain(usual)
        .filter(|library| {
            // A registered library that is missing stays in the list: loading it says so.
            let file = library.path.canonicalize();
            let file = file.unwrap_or_else(|_| library.path.clone());
            seen.insert((file, library.init_args.clone()))
        })
        .collect()
}

/// The directories with libraries, including Debian's for this architecture.
fn library_directories() -> Vec<PathBuf> {
    let debian = PathBuf::from(format!("/usr/lib/{TRIPLET}"));
    DIRECTORIES.iter().map(PathBuf::from).chain([debian]).collect()
}

/// What Debian calls this architecture in the names of directories (dpkg-architecture(1), DEB_HOST_MULTIARCH).
const TRIPLET: &str = if cfg!(target_arch = "x86") {
    "i386-linux-gnu"
} else if cfg!(target_arch = "x86_64") {
    "x86_64-linux-gnu"
} else if cfg!(target_arch = "arm") {
    "arm-linux-gnueabihf"
} else if cfg!(target_arch = "aarch64") {
    "aarch64-linux-gnu"
} else if cfg!(target_arch = "powerpc64") {
    "powerpc64le-linux-gnu"
} else if cfg!(target_arch = "riscv64") {
    "riscv64-linux-gnu"
} else if cfg!(target_arch = "s390x") {
    "s390x-linux-gnu"
} else {
    "loongarch64-linux-gnu"
};

/// The directories with registrations, those of the user last.
fn registries(home: Option<&Path>) -> impl Iterator<Item = PathBuf> {
    let of_user = home.map(|home| home.join(".config/pkcs11/modules"));
    REGISTRIES.iter().map(PathBuf::from).chain(of_user)
}

/// Registrations by the names of their files, each with its options.
type Registrations = BTreeMap<OsString, BTreeMap<String, String>>;

/// What is registered in these directories.
fn registrations(registries: impl Iterator<Item = PathBuf>) -> Registrations {
    let mut registrations = Registrations::new();
    for entry in registries.filter_map(|registry| fs::read_dir(registry).ok()).flatten().flatten() {
        let path = entry.path();
        if path.extension().is_some_and(|extension| extension == "module")
            && let Ok(text) = read_regular(&path, LONGEST_FILE)
            && let Ok(text) = String::from_utf8(text)
        {
            let lines = text.lines().filter(|line| !line.trim_start().starts_with('#'));
            let options = lines.filter_map(|line| line.split_once(':'));
            let owned = |(name, value): (&str, &str)| (name.trim().into(), value.trim().into());
            let known = registrations.entry(entry.file_name()).or_default();
            known.extend(options.map(owned));
        }
    }
    registrations
}

fn remote_among(registrations: &Registrations) -> Vec<String> {
    let remote = registrations.iter().filter(|(_, options)| options.contains_key(REMOTE));
    remote.map(|(name, _)| name.to_string_lossy().into_owned()).collect()
}

fn registered(registrations: &Registrations, library_directories: &[PathBuf]) -> Vec<Installed> {
    let with_keys = registrations.values().filter(|options| {
        let is_anchors = options.get("trust-policy").is_some_and(|policy| policy == "yes");
        !is_anchors && !options.contains_key(REMOTE)
    });
    let found = with_keys.filter_map(|options| {
        let module = options.get("module").filter(|module| !module.is_empty())?;
        let path = resolved(Path::new(module), library_directories);
        Some(Installed { path, init_args: options.get("x-init-reserved").cloned() })
    });
    found.collect()
}

/// The path of a registered library. A relative path is relative to the directory that p11-kit was built for, which is
/// `pkcs11` below one of the library directories. Some libraries are registered by their bare name.
fn resolved(module: &Path, library_directories: &[PathBuf]) -> PathBuf {
    let in_p11_kits =
        library_directories.iter().map(|directory| directory.join("pkcs11").join(module));
    let beside = library_directories.iter().map(|directory| directory.join(module));
    in_p11_kits.chain(beside).find(|library| library.exists()).unwrap_or_else(|| module.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Machine(tempfile::TempDir);

    impl Machine {
        fn new() -> Self {
            Self(tempfile::tempdir().unwrap())
        }

        fn write(&self, path: &str, text: &str) -> PathBuf {
            let path = self.0.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, text).unwrap();
            path
        }

        fn libraries(&self) -> Vec<PathBuf> {
            self.installed().into_iter().map(|library| library.path).collect()
        }

        fn registrations(&self) -> Registrations {
            let directories = ["system", "own"].map(|name| self.0.path().join(name));
            registrations(directories.into_iter())
        }

        fn installed(&self) -> Vec<Installed> {
            registered(&self.registrations(), &[self.0.path().join("lib")])
        }
    }

    #[test]
    fn registered_libraries_come_by_name_and_the_later_directory_wins() {
        let machine = Machine::new();
        machine.write("system/a.module", "# first\nmodule: /a.so\n");
        machine.write("system/b.module", "module : /b.so\n");
        machine.write("system/c.module", "module: /c.so\n");
        machine.write("own/c.module", "module: /own-c.so\n");
        machine.write("system/README", "module: /d.so\n");
        assert_eq!(machine.libraries(), ["/a.so", "/b.so", "/own-c.so"].map(PathBuf::from));
    }

    #[test]
    fn what_holds_no_keys_is_left_out() {
        let machine = Machine::new();
        for (name, line) in
            [("anchors", "trust-policy: yes"), ("remote", "remote: |ssh host p11-kit remote x.so")]
        {
            machine
                .write(&format!("system/{name}.module"), &format!("module: /{name}.so\n{line}\n"));
        }
        machine.write("system/empty.module", "module:\n");
        machine.write("system/us.module", "module: /us.so\ntrust-policy: no\n");
        assert_eq!(machine.libraries(), [PathBuf::from("/us.so")]);
        assert_eq!(remote_among(&machine.registrations()), ["remote.module"]);
    }

    #[test]
    fn what_a_library_is_told_at_its_start_comes_along() {
        let machine = Machine::new();
        let text = "configDir='sql:/db' certPrefix='' secmod='' flags=readOnly";
        machine.write("system/nss.module", &format!("module: /nss.so\nx-init-reserved: {text}\n"));
        let library =
            Installed { path: PathBuf::from("/nss.so"), init_args: Some(text.to_owned()) };
        assert_eq!(machine.installed(), [library]);
    }

    #[test]
    fn a_relative_path_starts_from_p11_kits_directory() {
        let machine = Machine::new();
        let library = machine.write("lib/pkcs11/token.so", "");
        let beside = machine.write("lib/other.so", "");
        machine.write("system/a.module", "module: token.so\n");
        machine.write("system/b.module", "module: other.so\n");
        machine.write("system/c.module", "module: nowhere.so\n");
        assert_eq!(machine.libraries(), [library, beside, PathBuf::from("nowhere.so")]);
    }
}
