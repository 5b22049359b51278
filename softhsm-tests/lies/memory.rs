//! No memory is touched that isn't the program's own: neither by what is `unsafe` here (token::raw,
//! process) nor, led astray by a library, by anything else.

use super::{LIES, assert_is, sign, store};
use crate::fixture::*;

/// The same under valgrind, whose complaints are on standard error and whose exit code is 99.
fn watched(program: &str, invocation: Invocation) -> Invocation {
    invocation
        .program(Path::new("valgrind"))
        .arguments(&["--quiet", "--error-exitcode=99", "--leak-check=no"])
        .argument(program)
}

#[test]
fn no_answer_makes_the_program_touch_memory_that_is_not_its_own() {
    let left = Mutex::new(LIES.iter());
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let Some((faults, code, told)) = left.lock().unwrap().next() else {
                        break;
                    };
                    let store = store();
                    let outcome = watched(PROGRAM, sign(&store, faults)).run();
                    assert_is(&outcome, faults, *code, told);
                    assert!(!outcome.stderr.contains("=="), "{faults}: {outcome:?}");
                }
            });
        }
    });
}

#[test]
fn no_function_list_makes_the_program_touch_memory_that_is_not_its_own() {
    let store = store();
    let configuration = store.faulty(store.configuration());
    for (faults, code) in [
        ("C_GetFunctionList:misaligned", 4),
        ("C_GetFunctionList:null", 4),
        ("C_GetFunctionList:old", 0),
    ] {
        let invocation = store.certificate_with(&configuration).suffering(&store, faults);
        let outcome =
            watched(PROGRAM, invocation.variable("PKCS11_EXTERNAL_SIGNER_LOG", "1")).run();
        assert_eq!(outcome.status.code(), Some(code), "{faults}: {outcome:?}");
        assert!(!outcome.stderr.contains("=="), "{faults}: {outcome:?}");
    }
}

#[test]
fn the_ways_of_the_program_touch_no_memory_that_is_not_its_own() {
    let store = token_asking_each_time(Kind::P256);
    let configuration = store.faulty(store.configuration_with_pin_source());
    let kubeconfig = store.path("kubeconfig");
    drop(store.with_kubeconfig(&configuration));
    let clean = |outcome: &Outcome| {
        assert!(outcome.status.success(), "{outcome:?}");
        assert!(!outcome.stderr.contains("=="), "{outcome:?}");
    };
    // The PIN is typed, and given once more for the signature.
    let typed = store.faulty(store.configuration());
    let typing = watched(PROGRAM, store.sign_with(&typed).suffering(&store, ""));
    clean(&typing.at_terminal().finish_with_pin());
    let module = softhsm_library().to_str().unwrap();
    for arguments in [&["list", "--module", module][..], &["run", "--", "true"], &["check"]] {
        let invocation = store
            .command(&[])
            .variable("KUBECONFIG", &kubeconfig)
            .variable("TOKEN_PIN", PIN)
            .suffering(&store, "");
        clean(&watched(COMMANDS, invocation).arguments(arguments).run());
    }
}
