//! The library that `pathLib` names: which is loaded, which is not, and what is said of it.

use crate::fixture::*;

/// SoftHSM's library in a directory of one's own, each with these permissions.
fn copied(store: &Store, directory_mode: u32, file_mode: u32) -> PathBuf {
    let library = format!("{directory_mode:o}-{file_mode:o}/library.so");
    let library = store.library(&library, file_mode);
    set_mode(library.parent().unwrap(), directory_mode);
    library
}

#[test]
fn a_library_of_ones_own_is_loaded() {
    let store = token_with_pair(Kind::P256);
    store.certificate_through(copied(&store, 0o755, 0o644)).run().certificate();
    store.certificate_through(copied(&store, 0o700, 0o600)).run().certificate();
}

#[test]
fn what_is_no_library_or_one_that_others_can_change_is_not_loaded() {
    let store = token_with_pair(Kind::P256);
    let text = copied(&store, 0o755, 0o644);
    fs::write(&text, "not a library\n".repeat(100)).unwrap();
    let loose = copied(&store, 0o755, 0o755);
    let mut bytes = fs::read(&loose).unwrap();
    let (needed, nowhere) = (b"libcrypto.so", b"libnowhere.s");
    let place = bytes.windows(needed.len()).position(|window| window == needed);
    let place = place.expect("SoftHSM needs libcrypto");
    bytes[place..place + needed.len()].copy_from_slice(nowhere);
    fs::write(&loose, bytes).unwrap();
    // The C library is one that is loaded for certain, in this very process.
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let is_libc = |word: &&str| word.starts_with('/') && word.contains("libc.so");
    let no_pkcs11 = maps.split_whitespace().find(is_libc).expect("a C library");
    let link = store.path("link.so");
    symlink(copied(&store, 0o777, 0o755), &link).unwrap();
    for (library, code, says) in [
        ("libsofthsm2.so", 3, &["pathLib"][..]),
        ("./libsofthsm2.so", 3, &["pathLib"]),
        ("/usr/lib", 3, &["pathLib"]),
        ("/dev/null", 3, &["pathLib"]),
        ("/usr/lib/no-such-library.so", 4, &["No such file"]),
        (text.to_str().unwrap(), 4, &["does not load", "ELF"]),
        (loose.to_str().unwrap(), 4, &["does not load", "libnowhere.s", "cannot open"]),
        (no_pkcs11, 4, &["it has no C_GetFunctionList"]),
    ] {
        store.certificate_through(library).run().fails(code, says).fails(code, &[library]);
    }
    store.certificate_through(link).run().fails(3, &["pathLib"]);
}

/// As somebody types it who knows its name from a page. No loader's directories are searched: the path is told.
#[test]
fn a_librarys_name_alone_leads_to_the_path_of_the_installed_one() {
    let store = token_with_pair(Kind::P256);
    let list = |module: &str| store.with_pin(&["list", "--module", module]).run();
    let refused = list("libsofthsm2.so");
    assert_eq!(refused.told(2), "");
    let (_, path) = refused.stderr.split_once("type its whole path: --module=").expect("a path");
    let path = path.lines().next().unwrap();
    assert!(list(path).printed().contains("test token"), "{path}");
    // Whatever isn't installed is a file that isn't there.
    list("libnowhere.so").fails(4, &["/libnowhere.so does not load", "list` shows them"]);
}

#[test]
fn a_library_that_does_not_initialise_is_told_with_its_value() {
    let store = token_with_pair(Kind::P256);
    let ask = |init_args| {
        store.certificate_with(&store.configuration().with("initArgs", init_args)).run()
    };
    // SoftHSM takes none.
    let remedy = "set initArgs (--init-args) to what this library needs";
    ask("configDir='sql:/db'").fails(4, &["C_Initialize: CKR_ARGUMENTS_BAD", remedy]);
    let library = "secmod='' library='/home/jane/evil.so'";
    ask(library).fails(3, &["initArgs names a library", "pathLib"]);
    let ask = store.certificate_with(&store.configuration());
    let unset = ask.variable("SOFTHSM2_CONF", "/nowhere/softhsm2.conf");
    unset.run().fails(4, &["C_Initialize", "CKR_", "SOFTHSM2_CONF"]);

    for (faults, told) in [
        ("null", "no function list"),
        ("misaligned", "no function list"),
        ("return=0x5", "CKR_GENERAL_ERROR"),
        // Such a library isn't unloaded either.
        ("return=0x5,unload:crash=segv", "CKR_GENERAL_ERROR"),
    ] {
        let faults = format!("C_GetFunctionList:{faults}");
        let outcome = store.certificate_suffering(store.configuration(), &faults).run();
        outcome.fails(4, &["C_GetFunctionList", told, "libfault_module.so"]);
    }
}

/// scute takes no arguments, and says that its functions are those of version 1.0; AKIS takes no arguments either.
#[test]
fn a_library_that_takes_no_arguments_is_initialised_without() {
    let store = token_with_pair(Kind::P256);
    let configuration = store.configuration_with_pin_source();
    for faults in [
        "C_Initialize:refuse-arguments=0x7",
        "C_GetFunctionList:old,C_Initialize:refuse-arguments=0xa",
    ] {
        assert_signed(&store.sign_suffering(configuration.clone(), faults).run());
    }
    // What initArgs say isn't left out in silence.
    let told = store.configuration().with("initArgs", "slots=2");
    let outcome = store.certificate_suffering(told, "C_Initialize:refuse-arguments=0xa").run();
    outcome.fails(4, &["C_Initialize: CKR_CANT_LOCK"]);
}
