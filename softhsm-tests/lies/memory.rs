//! No memory is touched that isn't the program's own: neither by what is `unsafe` here (token::raw,
//! process) nor, led astray by a library, by anything else.

use std::fs;
use std::path::Path;
use std::sync::Mutex;
use std::thread;

use serde_json::json;

use super::{LIES, assert_is, sign, store};
use crate::fixture::keys::{Kind, key};
use crate::fixture::program::{Invocation, Outcome, PROGRAM};
use crate::fixture::request::{Hash, Options, certificate_request, sample, sign_request};
use crate::fixture::softhsm::{Object, PIN, softhsm_library, token_with};

/// The same under valgrind, whose complaints are on standard error and whose exit code is 99.
fn watched(invocation: Invocation) -> Invocation {
    invocation
        .program(Path::new("valgrind"))
        .arguments(&["--quiet", "--error-exitcode=99", "--leak-check=no"])
        .argument(PROGRAM)
}

#[test]
fn no_answer_makes_the_program_touch_memory_that_is_not_its_own() {
    let left = Mutex::new(LIES.iter());
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let store = store();
                loop {
                    let Some((faults, code, told)) = left.lock().unwrap().next() else {
                        break;
                    };
                    let outcome = watched(sign(&store, faults)).run();
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
    let request = certificate_request(&configuration);
    for (faults, code) in [
        ("C_GetFunctionList:misaligned", 4),
        ("C_GetFunctionList:null", 4),
        ("C_GetFunctionList:old", 4),
    ] {
        let invocation = store.ask(&request).suffering(&store, faults);
        let outcome = watched(invocation.variable("PKCS11_EXTERNAL_SIGNER_LOG", "1")).run();
        assert_eq!(outcome.status.code(), Some(code), "{faults}: {outcome:?}");
        assert!(!outcome.stderr.contains("=="), "{faults}: {outcome:?}");
    }
}

#[test]
fn the_ways_of_the_program_touch_no_memory_that_is_not_its_own() {
    let [private, certificate] = Object::pair(key(Kind::P256), &[1]);
    let store = token_with([private.always_authenticate(), certificate]);
    let configuration = store.faulty(store.configuration_with_pin_source());
    let user = json!({"name": "externalSigner", "config": configuration});
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "test", "cluster": {"server": "https://127.0.0.1:9"}}],
        "users": [{"name": "jane", "user": {"auth-provider": user}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "jane"}}],
        "current-context": "test",
    });
    let kubeconfig = store.directory.path().join("kubeconfig");
    fs::write(&kubeconfig, config.to_string()).unwrap();
    let clean = |outcome: &Outcome| {
        assert!(outcome.status.success(), "{outcome:?}");
        assert!(!outcome.stderr.contains("=="), "{outcome:?}");
    };
    // The PIN is typed, and given once more for the signature.
    let typed = store.faulty(store.configuration());
    let request = sign_request(&typed, &Options::hash(Hash::Sha256), &sample(32));
    let mut terminal = watched(store.ask(&request).suffering(&store, "")).at_terminal();
    terminal.expect_prompt().type_line(PIN);
    clean(&terminal.finish().0);
    let module = softhsm_library().to_str().unwrap();
    for arguments in [&["list", "--module", module][..], &["run", "--", "true"], &["check"]] {
        let invocation = Invocation::new(store.directory.path())
            .variable("KUBECONFIG", &kubeconfig)
            .variable("TOKEN_PIN", PIN)
            .suffering(&store, "");
        clean(&watched(invocation).arguments(arguments).run());
    }
}
