//! The library that `pathLib` names: which is loaded, which is not, and what is said of it.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use crate::fixture::keys::Kind;
use crate::fixture::program::Outcome;
use crate::fixture::request::{Configuration, certificate_request};
use crate::fixture::softhsm::{Store, softhsm_library, token_with_pair};

fn ask_with(store: &Store, library: &Path) -> Outcome {
    let configuration = store.configuration().with("pathLib", library.to_str().unwrap());
    store.ask(&certificate_request(&configuration)).run()
}

/// SoftHSM's library in a directory of one's own, each with these permissions.
fn copied(store: &Store, directory_mode: u32, file_mode: u32) -> PathBuf {
    let directory = store.directory.path().join(format!("{directory_mode:o}-{file_mode:o}"));
    let library = directory.join("library.so");
    fs::create_dir(&directory).unwrap();
    fs::copy(softhsm_library(), &library).unwrap();
    fs::set_permissions(&library, fs::Permissions::from_mode(file_mode)).unwrap();
    fs::set_permissions(&directory, fs::Permissions::from_mode(directory_mode)).unwrap();
    library
}

#[test]
fn a_library_of_ones_own_is_loaded() {
    let store = token_with_pair(Kind::P256);
    ask_with(&store, &copied(&store, 0o755, 0o644)).certificate();
    ask_with(&store, &copied(&store, 0o700, 0o600)).certificate();
}

#[test]
fn a_library_is_given_its_parameters_and_no_other_library() {
    let store = token_with_pair(Kind::P256);
    let ask = |init_args| {
        let configuration = store.configuration().with("initArgs", init_args);
        store.ask(&certificate_request(&configuration)).run()
    };
    // SoftHSM takes none.
    let remedy = "set initArgs to what this library needs";
    ask("configDir='sql:/db'").fails(4, &["C_Initialize: CKR_ARGUMENTS_BAD", remedy]);
    let library = "secmod='' library='/home/jane/evil.so'";
    ask(library).fails(3, &["initArgs names a library", "pathLib"]);
}

#[test]
fn a_library_that_others_can_change_is_not_loaded() {
    let store = token_with_pair(Kind::P256);
    for (directory_mode, file_mode) in
        [(0o755, 0o666), (0o755, 0o646), (0o755, 0o664), (0o777, 0o644), (0o775, 0o644)]
    {
        let library = copied(&store, directory_mode, file_mode);
        ask_with(&store, &library).fails(3, &["pathLib", library.to_str().unwrap()]);
    }
    let link = store.directory.path().join("link.so");
    std::os::unix::fs::symlink(copied(&store, 0o777, 0o755), &link).unwrap();
    ask_with(&store, &link).fails(3, &["pathLib"]);
}

#[test]
fn a_path_that_is_no_path_to_a_file_is_refused() {
    let store = token_with_pair(Kind::P256);
    for path in ["libsofthsm2.so", "./libsofthsm2.so", "/usr/lib", "/dev/null"] {
        ask_with(&store, path.as_ref()).fails(3, &["pathLib", path]);
    }
}

#[test]
fn what_does_not_load_is_told_with_the_reason() {
    let store = token_with_pair(Kind::P256);
    let missing = Path::new("/usr/lib/no-such-library.so");
    ask_with(&store, missing).fails(4, &[missing.to_str().unwrap(), "No such file"]);

    let text = copied(&store, 0o755, 0o644);
    fs::write(&text, "not a library\n".repeat(100)).unwrap();
    let path = text.to_str().unwrap();
    ask_with(&store, &text).fails(4, &[path, "not a PKCS#11 library", "no ELF file"]);
}

#[test]
fn a_library_without_the_libraries_it_needs_is_told_in_the_loaders_words() {
    let store = token_with_pair(Kind::P256);
    let library = copied(&store, 0o755, 0o644);
    let mut bytes = fs::read(&library).unwrap();
    let (needed, nowhere) = (b"libcrypto.so", b"libnowhere.s");
    let place = bytes
        .windows(needed.len())
        .position(|window| window == needed)
        .expect("SoftHSM needs libcrypto");
    bytes[place..place + needed.len()].copy_from_slice(nowhere);
    fs::write(&library, bytes).unwrap();
    ask_with(&store, &library).fails(4, &["does not load", "libnowhere.s", "cannot open"]);
}

#[test]
fn a_library_without_pkcs11_is_told_apart() {
    let store = token_with_pair(Kind::P256);
    // The C library is one that is loaded for certain, in this very process.
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let library = maps
        .split_whitespace()
        .find(|word| word.starts_with('/') && word.contains("libc.so"))
        .expect("a C library");
    ask_with(&store, library.as_ref()).fails(4, &["not a PKCS#11 library", library]);
}

#[test]
fn a_library_that_does_not_initialise_is_told_with_its_value() {
    let store = token_with_pair(Kind::P256);
    let request = certificate_request(&store.configuration());
    store
        .ask(&request)
        .variable("SOFTHSM2_CONF", "/nowhere/softhsm2.conf")
        .run()
        .fails(4, &["C_Initialize", "CKR_", "SOFTHSM2_CONF"]);
}

fn certificate_through(store: &Store, configuration: &Configuration, faults: &str) -> Outcome {
    store.ask(&certificate_request(configuration)).suffering(store, faults).run()
}

#[test]
fn a_library_that_gives_no_function_list_is_told_by_the_call() {
    let store = token_with_pair(Kind::P256);
    let library = store.faulty(store.configuration());
    for (faults, told) in [
        ("C_GetFunctionList:null", "no function list"),
        ("C_GetFunctionList:misaligned", "no function list"),
        ("C_GetFunctionList:old", "a function list of version 1.0"),
        ("C_GetFunctionList:return=0x5", "CKR_GENERAL_ERROR"),
        // Such a library isn't unloaded either.
        ("C_GetFunctionList:return=0x5,unload:crash=segv", "CKR_GENERAL_ERROR"),
    ] {
        let outcome = certificate_through(&store, &library, faults);
        outcome.fails(4, &["C_GetFunctionList", told, "libfault_module.so"]);
    }
}
