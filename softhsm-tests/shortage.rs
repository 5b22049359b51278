//! A machine that lacks something: what can be answered is answered, and what can't is told.

use std::fs;

use crate::fixture::keys::Kind;
use crate::fixture::openssl::assert_signed;
use crate::fixture::program::{Invocation, Outcome};
use crate::fixture::request::{Hash, Options, certificate_request, sample, sign_request};
use crate::fixture::root::{copy_of_program, hand_over, need_root};
use crate::fixture::softhsm::{PIN, Store, WRONG_PIN, token_with_pair};

fn certificate(store: &Store) -> Invocation {
    store.ask(&certificate_request(&store.configuration()))
}

fn sign(store: &Store) -> Invocation {
    store.sign(&Options::hash(Hash::Sha256), &sample(32))
}

/// `run` of a command that says that it was started.
fn run(store: &Store) -> Invocation {
    store
        .with_kubeconfig(&store.configuration_with_pin_source())
        .variable("TOKEN_PIN", PIN)
}

/// The program after this preparation, for a request.
fn after(preparation: &str, invocation: Invocation) -> Outcome {
    let script = format!("{preparation}; exec \"$SIGNER\"");
    invocation.within("bash", &script).run()
}

/// `run` after this preparation.
fn run_after(preparation: &str, store: &Store) -> Outcome {
    let script = format!("{preparation}; exec \"$SIGNER\" run -- echo started");
    run(store).within("bash", &script).run()
}

/// The same in a mount namespace of its own. In a user namespace, which needs no root, what root has
/// installed is a stranger's, and no library would be loaded.
#[track_caller]
fn mounted(preparation: &str) -> String {
    need_root();
    let again = "export PRIVATE=1; exec unshare --mount bash -c \"$BASH_EXECUTION_STRING\"";
    format!("[ \"$PRIVATE\" ] || {{ {again}; }}; set -e; {preparation}; set +e")
}

#[test]
fn sixteen_descriptors_are_enough() {
    let store = token_with_pair(Kind::P256);
    let few = "ulimit -n 16";
    after(few, certificate(&store)).silently().certificate();
    assert_signed(after(few, sign(&store)).silently());
    assert_eq!(run_after(few, &store).printed(), "started\n");
}

#[test]
fn standard_output_that_can_not_be_set_aside_is_told_with_a_remedy() {
    let store = token_with_pair(Kind::P256);
    let all_but_one = (4..16).map(|number| format!("exec {number}</dev/null; "));
    let full = all_but_one.collect::<String>() + "ulimit -n 16";
    for few in [full.as_str(), "ulimit -n 10"] {
        for request in [certificate(&store), sign(&store)] {
            after(few, request).fails(2, &["standard output can't be set aside", "ulimit -n"]);
        }
        run_after(few, &store).fails(9, &["standard output can't be set aside", "ulimit -n"]);
    }
}

/// A run that says that it could not start its command has not started it.
#[test]
fn a_run_without_processes_to_spare_starts_its_command_or_not() {
    let store = token_with_pair(Kind::P256);
    // A user whose processes nobody else counts. Root has no limit.
    let user = 61_183;
    let directory = store.directory.path();
    let copy = copy_of_program(directory);
    drop(run(&store));
    hand_over(directory, user);
    let (mut started, mut refused) = (0, 0);
    for processes in 1..=8 {
        let script = format!(
            "exec setpriv --reuid={user} --regid={user} --clear-groups \
             prlimit --nproc={processes} {} run -- echo started",
            copy.display()
        );
        let invocation = run(&store).within("sh", &script);
        hand_over(directory, user);
        let outcome = invocation.run();
        if outcome.status.success() {
            assert_eq!(outcome.printed(), "started\n");
            started += 1;
        } else {
            let is_command = outcome.status.code() == Some(126);
            outcome.fails(if is_command { 126 } else { 9 }, &["os error 11"]);
            refused += 1;
        }
    }
    assert!(started > 0 && refused > 0, "{started} and {refused}");
}

/// Locks are what is written there for a request.
#[test]
fn a_full_disk_at_the_runtime_directory_stops_runs_and_no_requests() {
    let store = token_with_pair(Kind::P256);
    let full = mounted(
        "mount -t tmpfs -o size=64k,mode=700 none \"$XDG_RUNTIME_DIR\"; \
         ! cat /dev/zero > \"$XDG_RUNTIME_DIR/fill\" 2> /dev/null",
    );
    after(&full, certificate(&store)).silently().certificate();
    assert_signed(after(&full, sign(&store)).silently());
    let no_room = ["No space left", "XDG_RUNTIME_DIR", "disk is not full"];
    run_after(&full, &store).fails(9, &no_room);

    // Not even a name fits: there are other places.
    let full = mounted("mount -t tmpfs -o nr_inodes=1,mode=700 none \"$XDG_RUNTIME_DIR\"");
    assert_signed(after(&full, sign(&store)).silently());
    run_after(&full, &store).printed();
}

#[test]
fn without_a_directory_to_write_to_there_is_a_warning_and_no_stored_pin_is_sent() {
    let store = token_with_pair(Kind::P256);
    // The token itself must stay writable: SoftHSM counts logins in it.
    let read_only = mounted(
        "mount --bind \"$HOME\" \"$HOME\"; \
         for place in /tmp /dev/shm; do \
           mount --bind $place $place; mount -o remount,bind,ro $place; \
         done; unset XDG_RUNTIME_DIR",
    );
    let outcome = after(&read_only, certificate(&store));
    outcome.certificate();
    assert!(
        outcome.stderr.contains("Read-only file system"),
        "{outcome:?}"
    );
    // A stored PIN that was refused would be sent again.
    after(&read_only, sign(&store)).fails(
        7,
        &[
            "could not be remembered",
            "Read-only file system",
            "set XDG_RUNTIME_DIR",
        ],
    );
    run_after(&read_only, &store).fails(7, &["could not be remembered"]);
}

/// What remembers a refusal is there before the PIN is sent, so it is sent once or not at all,
/// whatever the file system runs out of: files for the locks, for the memory, or room in it.
#[test]
fn a_stored_pin_is_sent_once_or_never_where_there_is_no_room_to_remember_it() {
    // A directory for the library's lock, the token's lock and the memory, and how often it is sent.
    let shortages = [
        ("nr_inodes=3", 0),
        ("nr_inodes=4", 0),
        ("nr_inodes=5", 1),
        ("nr_inodes=6", 1),
        ("size=4k", 1),
    ];
    for (room, sent) in shortages {
        let store = token_with_pair(Kind::P256);
        let wrong = store.faulty(store.configuration()).with("pin", WRONG_PIN);
        let request = sign_request(&wrong, &Options::hash(Hash::Sha256), &sample(32));
        let little = mounted(&format!(
            "mount -t tmpfs -o {room},mode=700 none \"$XDG_RUNTIME_DIR\"; \
             for _ in 1 2 3; do \"$SIGNER\" && exit 99; done"
        ));
        let invocation = store
            .ask(&request)
            .suffering(&store, "C_GetTokenInfo:clear=CKF_USER_PIN_COUNT_LOW");
        let outcome = after(&little, invocation);
        let told = |text| outcome.stderr.matches(text).count();
        assert_eq!(outcome.status.code(), Some(7), "{room}: {outcome:?}");
        assert_eq!(told("CKR_PIN_INCORRECT"), sent, "{room}: {outcome:?}");
        let why = ["could not be remembered", "seems to have refused a PIN"];
        assert_eq!(told(why[sent]), 4 - sent, "{room}: {outcome:?}");
        let calls = fs::read_to_string(store.directory.path().join("calls")).unwrap();
        assert_eq!(calls.matches("C_Login").count(), sent, "{room}: {calls}");
    }
}

#[test]
fn a_home_that_is_read_only_or_missing_is_not_missed() {
    let store = token_with_pair(Kind::P256);
    let read_only = mounted(
        "export HOME=\"$HOME/home\"; mkdir -p \"$HOME\"; mount --bind \"$HOME\" \"$HOME\"; \
         mount -o remount,bind,ro \"$HOME\"; ! touch \"$HOME/file\" 2> /dev/null",
    );
    for homeless in [read_only.as_str(), "unset HOME"] {
        after(homeless, certificate(&store))
            .silently()
            .certificate();
        assert_signed(after(homeless, sign(&store)).silently());
        assert_eq!(run_after(homeless, &store).printed(), "started\n");
    }
    let outcome = run_after("unset HOME KUBECONFIG", &store);
    outcome.fails(3, &["~/.kube/config", "--kubeconfig"]);
}

#[test]
fn standard_streams_that_are_closed_or_full_spoil_nothing() {
    let store = token_with_pair(Kind::P256);
    for streams in [
        "exec 0<&-",
        "exec 2>&-",
        "exec 0<&- 2>&-",
        "exec 2>/dev/full",
    ] {
        after(streams, certificate(&store)).certificate();
        assert_signed(&after(streams, sign(&store)));
        assert_eq!(run_after(streams, &store).printed(), "started\n");
    }
    // A PIN from standard input has nowhere to come from.
    let configuration = store.configuration().with("pinSource", "stdin");
    let request = sign_request(&configuration, &Options::hash(Hash::Sha256), &sample(32));
    after("exec 0<&-", store.ask(&request)).fails(7, &["standard input"]);
    let full = ["list", "--json"].join(" ");
    let script = format!("exec \"$SIGNER\" {full} >/dev/full");
    let outcome = run(&store).within("bash", &script).run();
    outcome.fails(2, &["No space left"]);
}

/// The library is the first to find too little: what it and its own libraries take is the most.
#[test]
fn too_little_memory_is_told() {
    let store = token_with_pair(Kind::P256);
    let with = |kibibytes| after(&format!("ulimit -v {kibibytes}"), sign(&store));
    let mut kibibytes = 80_000;
    let outcome = loop {
        let outcome = with(kibibytes);
        if !outcome.status.success() {
            break outcome;
        }
        assert_signed(&outcome);
        kibibytes -= 2_000;
    };
    outcome.fails(4, &["does not load"]);
}
