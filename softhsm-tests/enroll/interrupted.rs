//! Interruptions at each step: the same command again ends well, with one key and one certificate.

use rustix::process::{Signal, kill_process};

use super::{assert_signs, at, enroll, enroll_through, issue, keys_of};
use crate::fixture::softhsm::{Store, token_with};

/// A token whose key has the certificate in the file.
fn with_certificate() -> (Store, String) {
    let store = token_with([]);
    let csr = at(&store, "jane.csr");
    enroll(&store, &["--user=jane", "--csr", &csr])
        .run()
        .silently();
    let certificate = issue(&csr, 30, "clientAuth");
    (store, certificate)
}

#[track_caller]
fn assert_ends_well(store: &Store) {
    let csr = at(store, "jane.csr");
    enroll(store, &["--user=jane", "--csr", &csr])
        .run()
        .silently()
        .printed();
    assert_eq!(keys_of(store).len(), 1);
    let certificate = issue(&csr, 30, "clientAuth");
    enroll(store, &["--certificate", &certificate])
        .run()
        .silently()
        .printed();
    assert_signs(store, "1");
    assert_eq!(keys_of(store).len(), 1);
}

#[test]
fn a_key_that_was_made_is_taken_up_whatever_came_of_the_call() {
    for fault in [
        // A full token, one that was pulled, and one that failed when its work was done.
        "C_GenerateKeyPair:return=0x31",
        "C_GenerateKeyPair:return=0x32",
        "C_GenerateKeyPair:then-return=0x30",
        "C_GenerateKeyPair:then-return=0x32",
        // Half a pair, and handles that are none.
        "C_GenerateKeyPair:half,C_GenerateKeyPair:then-return=0x30",
        "C_GenerateKeyPair:zero",
        "C_SignInit:return=0x32",
        "C_Sign:return=0x30",
        "C_SignInit:lose-sessions",
        "C_Sign:crash=segv",
    ] {
        let store = token_with([]);
        let csr = at(&store, "jane.csr");
        let request = ["--user=jane", "--csr", csr.as_str()];
        let outcome = enroll_through(&store, &store.faulty_module(), &request)
            .suffering(&store, fault)
            .run();
        assert!(!outcome.status.success(), "{fault}: {outcome:?}");
        assert!(outcome.stderr.contains("error: "), "{fault}: {outcome:?}");
        if fault.contains("=0x31") {
            outcome.fails(
                6,
                &["has no room left: C_GenerateKeyPair: CKR_DEVICE_MEMORY"],
            );
        }
        assert_ends_well(&store);
    }
}

#[test]
fn a_certificate_is_written_once_whatever_came_of_the_call() {
    for fault in [
        "C_CreateObject:return=0x31",
        "C_CreateObject:return=0x32",
        "C_CreateObject:then-return=0x30",
        "C_CreateObject:then-return=0x32",
        "C_CreateObject:crash=abort",
        "C_CreateObject:zero",
    ] {
        let (store, certificate) = with_certificate();
        let install = ["--certificate", certificate.as_str()];
        let outcome = enroll_through(&store, &store.faulty_module(), &install)
            .suffering(&store, fault)
            .run();
        assert!(!outcome.status.success(), "{fault}: {outcome:?}");
        assert!(outcome.stderr.contains("error: "), "{fault}: {outcome:?}");
        enroll(&store, &install).run().silently().printed();
        let keys = keys_of(&store);
        assert_eq!(keys.len(), 1, "{fault}: {keys:?}");
        assert_signs(&store, "1");
    }
}

#[test]
fn ctrl_c_waits_for_the_end_of_a_write() {
    for (fault, function) in [
        (
            "C_GenerateKeyPair:print=error,C_GenerateKeyPair:delay=1500",
            "C_GenerateKeyPair",
        ),
        (
            "C_CreateObject:print=error,C_CreateObject:delay=1500",
            "C_CreateObject",
        ),
    ] {
        let (store, certificate) = match function {
            "C_CreateObject" => with_certificate(),
            _ => (token_with([]), String::new()),
        };
        let csr = at(&store, "jane.csr");
        let arguments = match certificate.as_str() {
            "" => ["--user=jane".to_owned(), format!("--csr={csr}")],
            _ => [
                "--user=jane".to_owned(),
                format!("--certificate={certificate}"),
            ],
        };
        let arguments = arguments.each_ref().map(String::as_str);
        let mut running = enroll_through(&store, &store.faulty_module(), &arguments)
            .suffering(&store, fault)
            .start(None);
        running.wait_for_error("complaint from the module");
        kill_process(running.pid(), Signal::INT).unwrap();
        let outcome = running.finish();
        outcome.dies_of(Signal::INT);
        assert!(
            outcome.stderr.contains("interrupted by SIGINT"),
            "{outcome:?}"
        );
        // The call was let finish.
        assert_eq!(store.calls(function), ["0x0"]);
        match certificate.as_str() {
            "" => assert_ends_well(&store),
            _ => assert_signs(&store, "1"),
        }
    }
}

#[test]
fn a_killed_call_leaves_nothing_that_the_next_one_cannot_go_on_with() {
    for function in ["C_GenerateKeyPair", "C_SignInit"] {
        let store = token_with([]);
        let csr = at(&store, "jane.csr");
        let fault = format!("{function}:print=error,{function}:hang");
        let request = ["--user=jane", "--csr", csr.as_str()];
        let mut running = enroll_through(&store, &store.faulty_module(), &request)
            .suffering(&store, &fault)
            .start(None);
        running.wait_for_error("complaint from the module");
        kill_process(running.pid(), Signal::KILL).unwrap();
        running.finish().dies_of(Signal::KILL);
        assert_ends_well(&store);
    }
}
