//! How often a token is asked: one session and one login a run, one signature a handshake, none
//! for a session that is resumed.

use super::gate::TOOLS;
use super::trouble::{Server, server_certificate};
use super::{changed_kubeconfig, run, run_recorded};
use crate::fixture::*;

/// Signatures, as the library saw them.
fn signatures(store: &Store) -> usize {
    store.calls("C_SignInit").len()
}

const TEN_IN_A_ROW: &str = "for i in $(seq 10); do kubectl auth whoami >/dev/null || exit 1; done";

#[test]
fn ten_commands_in_a_shell_need_one_signature() {
    let store = cluster().token(Kind::P256, JANE);
    assert_eq!(run_recorded(&store, "", &["bash", "-c", TEN_IN_A_ROW]).run().printed(), "");
    for (function, calls) in [("C_Initialize", 1), ("C_OpenSession", 1), ("C_Login", 1)] {
        assert_eq!(store.calls(function).len(), calls, "{function}");
    }
    assert_eq!(signatures(&store), 1);
}

/// client-go 1.38 can be told to make up to a hundred connections at once (`min-connection-pool-size`). A token that is
/// slow, or wants a touch, is asked for one signature; a fast one for a few, since waiting for a ticket would take longer.
#[test]
fn a_hundred_first_connections_at_once_need_one_slow_signature_or_a_few_fast_ones() {
    let script = format!(
        "{TOOLS}
         curl -sS --cacert ca --cert certificate --key key --connect-to ::$address --http1.1 \\
           --parallel --parallel-immediate --parallel-max 100 \"https://$name/version?[1-100]\" |
           grep -c gitVersion"
    );
    let signatures_with = |faults: &str| {
        let store = cluster().token(Kind::P256, JANE);
        let outcome = run_recorded(&store, faults, &["bash", "-c", &script]).run();
        assert_eq!(outcome.printed(), "100\n", "{outcome:?}");
        signatures(&store)
    };
    // A busy server may bring a ticket too late for the next one.
    let slow: Vec<_> = (0..3).map(|_| signatures_with("C_SignInit:delay=400")).collect();
    assert!(slow.contains(&1), "{slow:?}");
    let fast = signatures_with("");
    assert!(fast <= 20, "{fast}");
}

#[test]
fn without_a_connection_there_is_no_signature() {
    let store = cluster().token(Kind::P256, JANE);
    run_recorded(&store, "", &["true"]).run().printed();
    assert_eq!(signatures(&store), 0);
}

/// An RSA key has six schemes of TLS, and each is looked for among the token's mechanisms.
#[test]
fn nothing_is_asked_of_a_token_twice_when_its_key_is_opened() {
    let store = cluster().token(Kind::Rsa(2048), JANE);
    run_recorded(&store, "", &["true"]).run().printed();
    for (function, calls) in [
        ("C_GetFunctionList", 1),
        ("C_GetMechanismList", 2),
        // For the certificate, for a key that is there without a login, for one behind it, and for the
        // certificate's issuer; and for the first two again when the PIN is there.
        ("C_FindObjectsInit", 6),
    ] {
        assert_eq!(store.calls(function).len(), calls, "{function}");
    }
}

#[test]
fn a_slow_token_is_not_asked_for_what_a_ticket_can_do() {
    let script = "for i in $(seq 10); do kubectl auth whoami >/dev/null & done; wait";
    let signatures_of_ten = || {
        let store = cluster().token(Kind::P256, JANE);
        let outcome = run_recorded(&store, "C_SignInit:delay=400", &["bash", "-c", script]).run();
        assert_eq!(outcome.printed(), "");
        signatures(&store)
    };
    // A busy server may bring a ticket too late for the next one.
    assert!((0..5).any(|_| signatures_of_ten() == 1));
}

#[test]
fn a_key_that_wants_its_pin_each_time_gets_it_from_the_one_entry() {
    let store = cluster().token_asking_each_time(JANE);
    // Two servers would do; so do two runs of kubectl with too little time for a ticket.
    let invocation =
        cluster().run(&store, &store.faulty(store.configuration()), &["bash", "-c", TEN_IN_A_ROW]);
    let outcome = invocation.suffering(&store, "").at_terminal().finish_with_pin();
    assert_eq!(outcome.printed(), "", "{outcome:?}");
    // To log in, and for the one signature.
    assert_eq!(store.calls("C_Login"), ["0x0", "0x0"]);
}

/// Each kubectl needs a signature: the client's session cache is of no use to it.
const ASK: [&str; 3] = ["bash", "-c", "kubectl get namespace default -o name"];
const PUT_BACK: &str = "C_SignInit#1:return=0x32";

/// How often the library was initialised and finalised.
fn initialisations(store: &Store) -> Vec<String> {
    let mut history = store.history();
    history
        .retain(|call| ["C_Initialize", "C_Finalize"].contains(&call.split(' ').next().unwrap()));
    history
}

/// Some libraries find it only when they are initialised again.
#[test]
fn a_token_that_was_put_back_is_opened_once_more() {
    let store = cluster().token(Kind::P256, ADMINISTRATOR);
    let outcome = run_recorded(&store, PUT_BACK, &ASK).run();
    assert_eq!(outcome.printed(), "namespace/default\n");
    outcome.silently();
    assert_eq!(
        initialisations(&store),
        ["C_Initialize 0x0", "C_Finalize 0x0", "C_Initialize 0x0", "C_Finalize 0x0"]
    );
    assert_eq!(store.calls("C_Login"), ["0x0", "0x0"]);
}

/// A library reads its user's configuration when it is initialised: what that names by now is not loaded beside the PIN.
#[test]
fn a_library_is_not_initialised_again_beside_a_pin_that_was_typed() {
    let store = cluster().token(Kind::P256, ADMINISTRATOR);
    let run = cluster().run(&store, &store.faulty(store.configuration()), &ASK);
    let outcome = run.suffering(&store, PUT_BACK).at_terminal().finish_with_pin();
    assert_eq!(outcome.printed(), "namespace/default\n");
    // A new session, and the PIN that the token had accepted.
    assert_eq!(initialisations(&store), ["C_Initialize 0x0", "C_Finalize 0x0"]);
    assert_eq!(store.calls("C_Login"), ["0x0", "0x0"]);
}

const WHOAMI: &str = "kubectl auth whoami -o jsonpath={.status.userInfo.username}";

/// The first signatures fail after 1.5 s each, as where nobody touches a token. The keyring makes a second attempt.
fn failing_signatures(number: usize) -> String {
    let faults = (1..=number).map(|it| format!("C_Sign#{it}:delay=1500,C_Sign#{it}:return=0x30"));
    faults.collect::<Vec<_>>().join(",")
}

/// kube-apiserver asks for a certificate without insisting on one, and takes who has none for nobody.
#[test]
fn no_connection_goes_on_as_nobody_where_a_signature_fails() {
    let store = cluster().token(Kind::P256, JANE);
    let script = format!(
        "for i in $(seq 5); do {WHOAMI} & done; wait; echo; echo later;
         for i in $(seq 5); do {WHOAMI} || exit 1; echo; done"
    );
    let run = run_recorded(&store, &failing_signatures(3), &["-v", "bash", "-c", &script]).run();
    let printed = run.printed_beside(&["C_Sign", "signed by "]);
    let (meanwhile, later) = printed.split_once("\nlater\n").unwrap();
    // Who waited behind one that failed has asked the token anew, and each is let in as Jane or told why not.
    let told = run.stderr.matches("Error from server (InternalError)").count();
    assert!((1..5).contains(&told), "{run:?}");
    assert_eq!(meanwhile, "jane".repeat(5 - told), "{run:?}");
    assert_eq!(later, "jane\n".repeat(5), "{run:?}");
    for nobody in ["no client certificate", "anonymous", "Unauthorized", "Forbidden"] {
        assert!(!run.stderr.contains(nobody), "{nobody}: {run:?}");
    }
}

/// The page of `openssl s_server` says whom it has let in.
#[test]
fn nothing_of_a_handshake_without_its_signature_is_resumed() {
    for (version, faults, options) in [
        ("-tls1_2", failing_signatures(2), &[][..]),
        ("-tls1_3", failing_signatures(2), &[]),
        ("-tls1_2", String::new(), &["-client_sigalgs", "rsa_pss_rsae_sha256"]),
        ("-tls1_3", String::new(), &["-client_sigalgs", "rsa_pss_rsae_sha256"]),
    ] {
        let store = cluster().token(Kind::P256, JANE);
        let own = server_certificate(store.directory.path());
        let options = [&[version, "-verify", "1"], options].concat();
        let (_server, address) = Server::with(&own.each_ref().map(Path::new), &options);
        drop(run_recorded(&store, "", &["true"]));
        let file = changed_kubeconfig(&store, |config| {
            config["clusters"][0]["cluster"]["server"] = json!(address);
        });
        let script = "for i in 1 2 3; do kubectl get --raw /; done";
        let run = run_recorded(&store, &faults, &["--kubeconfig", &file, "sh", "-c", script]).run();
        let pages = String::from_utf8_lossy(&run.stdout);
        let let_in = |whom: &str| pages.matches(whom).count();
        let (nobody, jane) = (let_in("no client certificate available"), let_in("CN=jane"));
        // Once the key signs again, and never where it can't.
        let expected = if faults.is_empty() { 0 } else { 2 };
        assert_eq!((nobody, jane), (0, expected), "{options:?}: {}", run.stderr);
    }
}

/// Two keys on one token: that of the context `test`, and this one of the context `other`.
fn run_with_another_key(store: &Store, id: &str, faults: &str, script: &str) -> Outcome {
    let configuration = store.configuration_with_pin_source().with("objectId", "1");
    let run = cluster().run(store, &store.faulty(configuration), &["sh", "-c", script]);
    cluster().add_context(store, id);
    run.suffering(store, faults).run()
}

fn token_with_two_keys() -> Store {
    token_with([
        Object::key(key(Kind::P256), &[1]),
        Object::issued(cluster().issue(Kind::P256, JANE), &[1]),
        Object::key(key(Kind::P384), &[2]),
        Object::issued(cluster().issue(Kind::P384, ADMINISTRATOR), &[2]),
    ])
}

#[test]
fn a_token_that_was_put_back_is_opened_once_more_for_another_key_on_it() {
    let store = token_with_two_keys();
    // The first calls find the token for the first key, two before the PIN is asked for and two with it.
    let faults = "C_GetSlotList#5:lose-sessions";
    let script = format!("kubectl --context other get namespace default -o name; {WHOAMI}");
    let outcome = run_with_another_key(&store, "2", faults, &script);
    assert_eq!(outcome.silently().printed(), "namespace/default\njane");
    // None but the one that was lost and the one instead of it.
    for function in ["C_OpenSession", "C_Login"] {
        assert_eq!(store.calls(function), ["0x0", "0x0"], "{function}");
    }
}

/// Whether the first session is still there is asked before a key is opened beside another one.
#[test]
fn a_library_that_says_nothing_of_its_sessions_is_used_all_the_same() {
    // An error that says nothing, and one that says each time that the session has ended.
    for (code, sessions, logins) in [("0x5", 1, 1), ("0x54", 1, 1), ("0xb3", 4, 3)] {
        let store = token_with_two_keys();
        let faults = format!("C_GetSessionInfo:return={code}");
        let script = format!("kubectl --context other get namespace default -o name; {WHOAMI}");
        let outcome = run_with_another_key(&store, "2", &faults, &script);
        assert_eq!(outcome.silently().printed(), "namespace/default\njane");
        for (function, calls) in [("C_OpenSession", sessions), ("C_Login", logins)] {
            assert_eq!(store.calls(function).len(), calls, "{code}: {function}");
        }
    }
}

#[test]
fn a_key_that_cannot_be_opened_leaves_its_token_to_the_others() {
    let store = token_with_two_keys();
    let failing = "for i in 1 2 3; do kubectl --context other auth whoami; done";
    let outcome = run_with_another_key(&store, "9", "", &format!("{failing}; {WHOAMI}"));
    assert_eq!(outcome.printed(), "jane");
    outcome.says(&["no certificate with"]);
    for (function, calls) in [("C_Initialize", 1), ("C_OpenSession", 1), ("C_Login", 1)] {
        assert_eq!(store.calls(function).len(), calls, "{function}");
    }
}

#[test]
fn intermediate_certificates_on_the_token_are_sent() {
    let (chain, store) = crate::run::trouble::token_below_an_intermediate();
    let outcome = run(&store, &["kubectl", "auth", "whoami"]).run();
    assert!(outcome.printed().contains("jane"), "{outcome:?}");
    // Without it the server can't find the way to its authority.
    let lonely = token_with(Object::certified(Kind::P256, chain, &[1]));
    run(&lonely, &["kubectl", "auth", "whoami"]).run().failed();
}
