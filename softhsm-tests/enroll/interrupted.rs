//! Interruptions at each step: the same command again ends well, with one key and one certificate.

use super::{
    assert_signs, at, certificate_of, enroll, enroll_through, enroll_with, objects_of, subject_of,
};
use crate::fixture::*;

/// What can come between at any call, in the words of the misbehaving library: Ctrl-C; an end before the call
/// and after it; a token that is pulled before the call and after it.
const INTERRUPTIONS: [&str; 5] =
    ["signal=int", "signal=kill", "then-signal=kill", "return=0x32", "then-return=0x32"];

/// What a call of `enroll` is made for.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// A new key and its request.
    Request,
    /// The certificate that was issued, beside its key.
    Install,
    /// The same in place of another one.
    Replace,
}

impl Step {
    /// The token as the step finds it.
    fn token(self) -> Store {
        let p256 = key(Kind::P256);
        let pair = [
            Object::key(p256, &[1]).labelled("test p256"),
            Object::public_key(p256, &[1]).labelled("test p256"),
        ];
        match self {
            Self::Request => token_with([]),
            Self::Install => token_with(pair),
            Self::Replace => {
                let old = issued(Kind::P256, "/CN=test p256", 30, "clientAuth");
                token_with(pair.into_iter().chain([Object::issued(old, &[1])]))
            }
        }
    }

    fn arguments(self, store: &Store) -> Vec<String> {
        let certificate = key(Kind::P256).certificate_pem();
        let certificate = format!("--certificate={}", certificate.display());
        match self {
            Self::Request => vec!["--user=jane".to_owned(), format!("--csr={}", csr(store))],
            Self::Install => vec![certificate],
            Self::Replace => vec![certificate, "--replace".to_owned()],
        }
    }

    /// What the first call is that can be interrupted with a consequence.
    fn beginning(self) -> &'static str {
        match self {
            Self::Request | Self::Install => "C_Login",
            // After the yes.
            Self::Replace => "C_CreateObject",
        }
    }

    /// The command while this goes wrong, with the yes of a person.
    fn suffering(self, store: &Store, fault: &str) -> Outcome {
        let arguments = self.arguments(store);
        let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
        let enroll = enroll_through(store, &store.faulty_module(), &arguments);
        let enroll = enroll.suffering(store, fault);
        match self {
            Self::Request | Self::Install => enroll.run(),
            Self::Replace => with_yes(enroll),
        }
    }

    /// The same command again does what is left.
    #[track_caller]
    fn assert_ends_well(self, store: &Store) {
        let arguments = self.arguments(store);
        let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
        let again = || enroll(store, &arguments);
        let outcome = match self {
            Self::Replace if is_replacing(store) => with_yes(again()),
            _ => again().run(),
        };
        outcome.silently().printed();
        self.assert_done(store);
    }

    /// The same after a login without a clear end: no stored PIN is sent, so that a person types it.
    #[track_caller]
    fn assert_ends_well_with_a_person(self, store: &Store) {
        let arguments = self.arguments(store);
        let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
        enroll(store, &arguments).run().fails(7, &["was not sent"]);
        enroll_with(store, "prompt", &arguments).at_terminal().finish_with_pin().printed();
        self.assert_done(store);
    }

    /// One key, and the certificate.
    #[track_caller]
    fn assert_done(self, store: &Store) {
        match self {
            Self::Request => {
                assert_eq!(objects_of(store), [1, 1, 0]);
                assert_eq!(subject_of(&csr(store)), "subject=CN = jane");
            }
            Self::Install | Self::Replace => {
                assert_eq!(objects_of(store), [1, 1, 1]);
                assert_eq!(certificate_of(store), key(Kind::P256).certificate);
                assert_signs(store, "1");
            }
        }
    }
}

fn csr(store: &Store) -> String {
    at(store, "jane.csr")
}

fn with_yes(enroll: Invocation) -> Outcome {
    let mut terminal = enroll.at_terminal();
    terminal.expect("Type yes").type_line("yes");
    terminal.finish().0
}

/// Whether another certificate than the new one is still there.
fn is_replacing(store: &Store) -> bool {
    objects_of(store)[2] > 1 || certificate_of(store) != key(Kind::P256).certificate
}

/// Interrupts each function, at its last call, in each way.
fn assert_survives_interruptions(step: Step) {
    let store = step.token();
    step.suffering(&store, "").silently().printed();
    step.assert_done(&store);
    let history = store.history();
    let called = || history.iter().filter_map(|call| call.split(' ').next());
    let begins = called().position(|call| call == step.beginning()).unwrap();
    let mut functions: Vec<_> = called().skip(begins).collect();
    functions.sort_unstable();
    functions.dedup();
    for function in functions {
        let last = called().filter(|call| *call == function).count();
        for interruption in INTERRUPTIONS {
            let store = step.token();
            let fault = format!("{function}#{last}:{interruption}");
            let outcome = step.suffering(&store, &fault);
            let signal = outcome.status.signal().and_then(Signal::from_named_raw);
            let told = match signal {
                Some(Signal::KILL) => "",
                Some(_) => "interrupted by SIGINT",
                // What is to be done is done when the session is closed.
                None if outcome.status.success() => "",
                None => "error: ",
            };
            let is_killed = signal == Some(Signal::KILL);
            assert_eq!(is_killed, fault.ends_with("signal=kill"), "{fault}: {outcome:?}");
            assert!(outcome.stderr.contains(told), "{fault}: {outcome:?}");
            match function == "C_Login" && interruption != "signal=int" {
                true => step.assert_ends_well_with_a_person(&store),
                false => step.assert_ends_well(&store),
            }
        }
    }
}

#[test]
fn a_request_that_is_interrupted_anywhere_is_made_by_the_same_command() {
    needs_isolation!();
    assert_survives_interruptions(Step::Request);
}

#[test]
fn a_certificate_whose_installation_is_interrupted_anywhere_is_installed_once() {
    needs_isolation!();
    assert_survives_interruptions(Step::Install);
}

#[test]
fn a_certificate_whose_replacement_is_interrupted_anywhere_is_replaced() {
    assert_survives_interruptions(Step::Replace);
}

#[test]
fn what_a_faulty_token_makes_of_a_key_or_certificate_is_gone_on_with() {
    for (step, fault) in [
        // A token that failed when its work was done.
        (Step::Request, "C_GenerateKeyPair:then-return=0x30"),
        // Handles that are none.
        (Step::Request, "C_GenerateKeyPair:zero"),
        (Step::Request, "C_SignInit:lose-sessions"),
        (Step::Request, "C_Sign:crash=segv"),
        (Step::Install, "C_CreateObject:then-return=0x30"),
        (Step::Install, "C_CreateObject:crash=abort"),
        (Step::Install, "C_CreateObject:zero"),
    ] {
        let store = step.token();
        let outcome = step.suffering(&store, fault);
        assert!(!outcome.status.success(), "{fault}: {outcome:?}");
        assert!(outcome.stderr.contains("error: "), "{fault}: {outcome:?}");
        step.assert_ends_well(&store);
    }
}

#[test]
fn a_full_token_says_so_and_has_what_it_had() {
    for (step, function, left) in [
        (Step::Request, "C_GenerateKeyPair", [0, 0, 0]),
        (Step::Install, "C_CreateObject", [1, 1, 0]),
        (Step::Replace, "C_CreateObject", [1, 1, 1]),
    ] {
        let store = step.token();
        let outcome = step.suffering(&store, &format!("{function}:return=0x31"));
        let told = format!("has no room left: {function}: CKR_DEVICE_MEMORY");
        outcome.fails(6, &[&told, "remove what is not used any more"]);
        assert_eq!(objects_of(&store), left, "{step:?}");
        step.assert_ends_well(&store);
    }
}

/// A key of the failed call may be on the token.
#[test]
fn a_key_is_made_once_where_the_token_fails() {
    for kind in ["ed25519", "rsa-2048"] {
        let store = Step::Request.token();
        let arguments = ["--user=jane", "--csr", &csr(&store), "--key", kind];
        let enroll = enroll_through(&store, &store.faulty_module(), &arguments);
        let outcome = enroll.suffering(&store, "C_GenerateKeyPair:return=0x32").run();
        outcome.fails(5, &["C_GenerateKeyPair: CKR_DEVICE_REMOVED"]);
        assert_eq!(store.calls("C_GenerateKeyPair"), ["0x32"], "{kind}");
    }
}

/// Half of a pair can't be used, and stays; another key is made under another CKA_ID.
#[test]
fn half_of_a_pair_that_a_failed_or_killed_call_has_left_is_left_alone() {
    for (half, end, objects) in [
        ("public", "signal=kill", [1, 2, 0]),
        ("private", "signal=kill", [2, 1, 0]),
        ("public", "return=0x30", [1, 2, 0]),
        ("private", "return=0x30", [2, 1, 0]),
    ] {
        let store = Step::Request.token();
        let fault = format!("C_GenerateKeyPair:half={half},C_GenerateKeyPair:then-{end}");
        let outcome = Step::Request.suffering(&store, &fault);
        assert!(!outcome.status.success(), "{fault}: {outcome:?}");
        let request = ["--user=jane", "--csr", &csr(&store)];
        if half == "private" {
            let told = "shows no public key beside the private key with objectId \"1\"";
            enroll(&store, &request).run().fails(6, &[told]);
        }
        let made = enroll(&store, &request).argument("--object-id=2").run();
        assert!(made.silently().step("key").ends_with("objectId 2, label \"jane\""));
        assert_eq!(objects_of(&store), objects);
    }
}

#[test]
fn ctrl_c_waits_for_the_end_of_a_write() {
    for (step, function) in
        [(Step::Request, "C_GenerateKeyPair"), (Step::Install, "C_CreateObject")]
    {
        let store = step.token();
        let arguments = step.arguments(&store);
        let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
        let fault = format!("{function}:print=error,{function}:delay=1500");
        let mut running = enroll_through(&store, &store.faulty_module(), &arguments)
            .suffering(&store, &fault)
            .start(None);
        running.wait_for_error("complaint from the module");
        kill_process(running.pid(), Signal::INT).unwrap();
        let outcome = running.finish();
        outcome.dies_of(Signal::INT);
        assert!(outcome.stderr.contains("interrupted by SIGINT"), "{outcome:?}");
        // The call was let finish.
        assert_eq!(store.calls(function), ["0x0"]);
        step.assert_ends_well(&store);
    }
}

/// A library that is killed while it writes may lose the whole token, and a card takes minutes for a large key.
#[test]
fn ctrl_c_waits_for_a_key_that_is_being_made() {
    let store = Step::Request.token();
    let fault = "C_GenerateKeyPair:signal=int,C_GenerateKeyPair:delay=11000";
    Step::Request.suffering(&store, fault).dies_of(Signal::INT);
    assert_eq!(store.calls("C_GenerateKeyPair"), ["0x0"]);
    Step::Request.assert_ends_well(&store);
}
