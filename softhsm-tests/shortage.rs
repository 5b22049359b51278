//! A machine that lacks something: what can be answered is answered, and the rest is reported.

use crate::fixture::*;

fn certificate(store: &Store) -> Invocation {
    store.certificate_with(&store.configuration())
}

fn sign(store: &Store) -> Invocation {
    store.sign(&Options::hash(Hash::Sha256), &sample(32))
}

/// `run` of a command that says that it was started.
fn run(store: &Store) -> Invocation {
    store.with_kubeconfig(&store.configuration_with_pin_source()).variable("TOKEN_PIN", PIN)
}

/// The program after this preparation, for a request.
fn after(preparation: &str, invocation: Invocation) -> Outcome {
    invocation.within("bash", &format!("{preparation}; exec \"$SIGNER\"")).run()
}

/// `run` after this preparation.
fn run_after(preparation: &str, store: &Store) -> Outcome {
    run(store).within("bash", &format!("{preparation}; exec \"$SIGNER\" run -- echo started")).run()
}

/// The same in a mount namespace of its own. In a user namespace, which needs no root, what root has
/// installed is another user's, and no library would be loaded.
#[track_caller]
pub(crate) fn mounted(preparation: &str) -> String {
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
fn more_clusters_than_descriptors_are_refused() {
    let store = token_with_pair(Kind::P256);
    drop(run_after("true", &store));
    let mut config: Value = read_json(store.path("kubeconfig"));
    for number in 1..100 {
        for list in ["clusters", "contexts"] {
            let mut entry = config[list][0].clone();
            entry["name"] = json!(format!("{number}"));
            if list == "contexts" {
                entry["context"]["cluster"] = json!(format!("{number}"));
            }
            config[list].as_array_mut().unwrap().push(entry);
        }
    }
    fs::write(store.path("many"), config.to_string()).unwrap();
    let script = "ulimit -n 64; exec \"$SIGNER\" run --kubeconfig \"$HOME/many\" -- echo started";
    let outcome = run(&store).within("bash", script).run();
    outcome.fails(9, &["Too many open files", "`ulimit -n`"]);
}

#[test]
fn more_connections_than_descriptors_are_told_once() {
    let store = token_with_pair(Kind::P256);
    let many = r#"
port=$(sed 's/.*https:..127.0.0.1:\([0-9]*\).*/\1/' "$KUBECONFIG")
for _ in 1 2 3; do
  (for _ in {1..15}; do exec {connection}<>"/dev/tcp/127.0.0.1/$port"; done; read -r _ <&3) &
done
wait"#;
    let script = "ulimit -n 32; exec \"$SIGNER\" run -- bash -c \"exec 3<&0; $MANY\"";
    let (input, keyboard) = std::io::pipe().unwrap();
    let run = run(&store).within("bash", script).variable("MANY", many);
    let mut run = run.input_file(std::os::fd::OwnedFd::from(input).into()).start(None);
    let told = run.wait_for_error("has to wait: Too many open files");
    // What a run tells twice it tells two seconds later.
    thread::sleep(Duration::from_millis(2500));
    drop(keyboard);
    let outcome = run.finish();
    let told = told + &outcome.stderr;
    for text in ["has to wait: Too many open files", "`ulimit -n`"] {
        assert_eq!(told.matches(text).count(), 1, "{text}: {told}");
    }
    outcome.printed();
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
    needs_isolation!();
    let store = token_with_pair(Kind::P256);
    // A user without other processes. Root has no limit.
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

/// Nothing is written there for a request.
#[test]
fn a_full_disk_at_the_runtime_directory_stops_runs_and_no_requests() {
    needs_isolation!();
    let store = token_with_pair(Kind::P256);
    let full = mounted(&format!(
        "export XDG_RUNTIME_DIR={RUNTIME}; mount -t tmpfs -o size=64k,mode=700 none {RUNTIME}; \
         ! cat /dev/zero > {RUNTIME}/fill 2> /dev/null"
    ));
    after(&full, certificate(&store)).silently().certificate();
    assert_signed(after(&full, sign(&store)).silently());
    run_after(&full, &store).fails(9, &["No space left", "XDG_RUNTIME_DIR", "disk is not full"]);

    // Not even a name fits: there are other places.
    let full = mounted(&format!(
        "export XDG_RUNTIME_DIR={RUNTIME}; mount -t tmpfs -o nr_inodes=1,mode=700 none {RUNTIME}"
    ));
    assert_signed(after(&full, sign(&store)).silently());
    run_after(&full, &store).printed();
}

#[test]
fn without_a_directory_to_write_to_there_is_a_warning_and_no_stored_pin_is_sent() {
    needs_isolation!();
    let store = token_with_pair(Kind::P256);
    let state = state();
    // The token itself must stay writable: SoftHSM counts logins in it.
    let read_only = mounted(&format!(
        "mount --bind \"$HOME\" \"$HOME\"; \
         for place in /tmp {LOCKS} /dev/shm {RUNTIME} {state}; do \
           mount --rbind $place $place; mount -o remount,bind,ro $place; \
         done; unset XDG_RUNTIME_DIR"
    ));
    let outcome = after(&read_only, certificate(&store));
    outcome.certificate();
    assert!(outcome.stderr.contains("Read-only file system"), "{outcome:?}");
    let told = [
        "could not be remembered",
        "Read-only file system",
        ".local/state/pkcs11-external-signer in your home",
    ];
    // A stored PIN that was refused would be sent again.
    after(&read_only, sign(&store)).fails(7, &told);
    run_after(&read_only, &store).fails(7, &["could not be remembered"]);
    // A person knows what they have typed.
    let script = format!("{read_only}; exec \"$SIGNER\"");
    assert_signed(
        &store
            .sign_with(&store.configuration())
            .within("bash", &script)
            .at_terminal()
            .finish_with_pin(),
    );
}

/// Its file system may be read-only by now. There are other places, but that is where it stands.
#[test]
fn a_refusal_that_can_not_be_taken_back_holds_back_stored_pins() {
    needs_isolation!();
    let store = token_with_pair(Kind::P256);
    let read_only = |pin| {
        let state = state();
        let invocation = store.sign_suffering(
            store.configuration().with("pin", pin),
            "C_GetTokenInfo:clear=CKF_USER_PIN_COUNT_LOW",
        );
        let script = format!("\"$SIGNER\" || true; mount -o remount,bind,ro {state}");
        after(&mounted(&script), invocation)
    };
    // What says nothing against it is no hindrance.
    let outcome = read_only(PIN);
    assert!(!outcome.stderr.contains("error"), "{outcome:?}");
    let outcome = read_only(WRONG_PIN);
    assert!(outcome.stderr.contains("ledger: Read-only file system"), "{outcome:?}");
    assert_eq!(store.calls("C_Login"), ["0x0", "0x0", "0xa0"]);
}

/// What remembers a refusal is there before the PIN is sent, so it is sent once or not at all,
/// whatever the file system runs out of: files, room in the ledger, or room in another file.
#[test]
fn a_stored_pin_is_sent_once_or_never_where_there_is_no_room_to_remember_it() {
    needs_isolation!();
    // The directory itself and the token's ledger, with room for it or not, and how often it is sent.
    let state = state();
    let full = format!("head -c 4096 /dev/zero > {state}/file");
    let shortages = [
        // The record is made in the next place.
        ("nr_inodes=1", "true", 1),
        ("nr_inodes=2", "true", 1),
        ("nr_inodes=3", "true", 1),
        ("size=4k", full.as_str(), 0),
        ("size=4k", "true", 1),
        ("size=8k", full.as_str(), 1),
    ];
    for (room, filled, sent) in shortages {
        let store = token_with_pair(Kind::P256);
        let wrong = store.faulty(store.configuration()).with("pin", WRONG_PIN);
        let little = mounted(&format!(
            "mount -t tmpfs -o {room},mode=700 none {state}; {filled}; \
             for _ in 1 2 3; do \"$SIGNER\" && exit 99; done"
        ));
        let invocation = store
            .sign_with(&wrong)
            .suffering(&store, "C_GetTokenInfo:clear=CKF_USER_PIN_COUNT_LOW");
        let outcome = after(&little, invocation);
        let told = |text| outcome.stderr.matches(text).count();
        assert_eq!(outcome.status.code(), Some(7), "{room}: {outcome:?}");
        assert_eq!(told("CKR_PIN_INCORRECT"), sent, "{room}: {outcome:?}");
        let why = ["could not be remembered", "seems to have refused a PIN"];
        assert_eq!(told(why[sent]), 4 - sent, "{room}: {outcome:?}");
        let calls = fs::read_to_string(store.path("calls")).unwrap();
        assert_eq!(calls.matches("C_Login").count(), sent, "{room}: {calls}");
    }
}

/// As on some network's file systems: flock(2) fails for the ledger's file and works elsewhere.
#[cfg(target_os = "linux")]
#[test]
fn a_ledger_on_a_file_system_without_locks_is_kept_in_another_place() {
    needs_isolation!();
    let store = token_with_pair(Kind::P256);
    assert_signed(&sign(&store).run());
    let mut files = fs::read_dir(store.path("state")).unwrap();
    let name = files.next().unwrap().unwrap().file_name();
    let ledger = format!("{}/{}", state(), name.to_str().unwrap());
    let options = ["-f", "-o", "/dev/null", "-P", &ledger];
    let options = [&options[..], &["-e", "inject=flock:error=ENOLCK"]].concat();
    let strace = tool("strace", "strace");
    let strace = strace.get_program().to_str().unwrap();

    let wrong = store.faulty(store.configuration()).with("pin", WRONG_PIN);
    let ask =
        || store.sign_with(&wrong).suffering(&store, "C_GetTokenInfo:clear=CKF_USER_PIN_COUNT_LOW");
    for told in ["CKR_PIN_INCORRECT", "seems to have refused a PIN"] {
        ask().through(strace, &options).run().fails(7, &[told]);
    }
    // Where the locks work, what was written in the other place counts, too.
    ask().run().fails(7, &["seems to have refused a PIN"]);
    assert_eq!(store.calls("C_Login"), ["0xa0"]);
}

/// Whose it is, and what to do, where another user was there first.
#[test]
fn a_place_that_a_stranger_took_is_told_as_theirs() {
    needs_isolation!();
    let store = token_with_pair(Kind::P256);
    let directory = store.directory.path();
    let copy = copy_of_program(directory);
    let (user, stranger) = (61_185, 61_186);
    drop(sign(&store));
    hand_over(directory, user);
    let taken = ["/tmp", "/dev/shm"].map(|place| format!("{place}/pkcs11-external-signer-{user}"));
    let script = format!(
        "mkdir -m 700 {0} {1}; chown {stranger} {0} {1}; \
         setpriv --reuid={user} --regid={user} --clear-groups {2}; code=$?; rmdir {0} {1}; exit $code",
        taken[0],
        taken[1],
        copy.display()
    );
    let invocation = sign(&store).without_variable("XDG_RUNTIME_DIR").within("sh", &script);
    hand_over(directory, user);
    let outcome = invocation.run();
    outcome.fails(7, &["could not be remembered"]);
    for place in taken {
        let told = format!("{place} belongs to another user (uid {stranger})");
        assert!(outcome.stderr.contains(&told), "{told}: {outcome:?}");
    }
}

#[test]
fn a_home_that_is_read_only_or_missing_is_not_missed() {
    needs_isolation!();
    let store = token_with_pair(Kind::P256);
    let read_only = mounted(
        "export HOME=\"$HOME/home\"; mkdir -p \"$HOME\"; mount --bind \"$HOME\" \"$HOME\"; \
         mount -o remount,bind,ro \"$HOME\"; ! touch \"$HOME/file\" 2> /dev/null",
    );
    for homeless in [read_only.as_str(), "unset HOME"] {
        after(homeless, certificate(&store)).silently().certificate();
        assert_signed(after(homeless, sign(&store)).silently());
        assert_eq!(run_after(homeless, &store).printed(), "started\n");
    }
    for arguments in ["run", "run --context=prod", "check --server"] {
        let script = format!("unset HOME KUBECONFIG; exec \"$SIGNER\" {arguments} echo started");
        let script = script.replace("--server echo started", "--server >&2");
        let outcome = run(&store).within("bash", &script).run();
        assert_eq!(outcome.status.code(), Some(3), "{outcome:?}");
        outcome.says(&["HOME is not set", "set HOME, or name the file"]);
    }
}

#[test]
fn standard_streams_that_are_closed_or_full_spoil_nothing() {
    let store = token_with_pair(Kind::P256);
    for streams in ["exec 0<&-", "exec 2>&-", "exec 0<&- 2>&-", "exec 2>/dev/full"] {
        after(streams, certificate(&store)).certificate();
        assert_signed(&after(streams, sign(&store)));
        assert_eq!(run_after(streams, &store).printed(), "started\n");
    }
    assert_eq!(
        after("exec 2>&-", store.certificate_with(&store.configuration().with("objectId", "9")))
            .status
            .code(),
        Some(6)
    );
    // A PIN from standard input has nowhere to come from.
    let configuration = store.configuration().with("pinSource", "stdin");
    after("exec 0<&-", store.sign_with(&configuration)).fails(7, &["standard input"]);
    for command in ["list --json", "completions bash", "--help", "--version"] {
        let full = format!("exec \"$SIGNER\" {command} >/dev/full");
        run(&store).within("bash", &full).run().fails(2, &["No space left"]);
    }
}

/// The library is the first to find too little: what it and its own libraries take is the most.
#[test]
fn too_little_memory_is_told() {
    let store = token_with_pair(Kind::P256);
    let with = |kibibytes| after(&format!("ulimit -v {kibibytes}"), sign(&store));
    for kibibytes in (0..=80_000).rev().step_by(2_000) {
        let outcome = with(kibibytes);
        // glibc and Rust end a process themselves where it has no room for a new library's data, or a buffer.
        let ends = ["cannot allocate memory for thread-local data", "memory allocation of "];
        if ends.iter().any(|it| outcome.stderr.contains(it)) {
            continue;
        }
        // SoftHSM ends the process itself where it has too little.
        if outcome.stderr.contains("crashed the process (exit)") {
            outcome.fails(4, &["libsofthsm2.so", "help: update the library"]);
            continue;
        }
        if !outcome.status.success() {
            outcome.fails(4, &["does not load"]);
            return;
        }
        assert_signed(&outcome);
    }
    panic!("there was always enough");
}
