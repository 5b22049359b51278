//! What docs/security.md promises, as a show for whoever evaluates the program: `scripts/attack` runs these tests, and
//! shows what each of them says.

use crate::credential::{ANSWER, ASK, PlainUser};
use crate::enroll::{at, enroll, enroll_through, objects_of};
use crate::fixture::*;
use crate::secrecy::{NOBODY, assert_hidden, is_traceable, onlooker};
use crate::shortage::mounted;
use crate::stranger::runs_behind_a_flipping_link;

/// Says what is promised, and what is done against it.
#[expect(clippy::disallowed_macros, reason = "it is for who sees the test run")]
fn attack(promise: &str, attempt: &str) {
    println!("promise  {promise}\nattempt  {attempt}");
}

/// Says what came of it, once it was asserted.
#[expect(clippy::disallowed_macros, reason = "it is for who sees the test run")]
fn outcome(text: &str) {
    println!("outcome  {text}");
}

#[test]
fn another_user_at_the_port() {
    needs_isolation!();
    attack(
        "the tunnel's local port is of no use to another user of the machine",
        "another user dials it with TLS, knows the tunnel's name, and shows a certificate of their own",
    );
    let user = PlainUser::new(&["--keep=15m"]);
    assert_eq!(user.shell(ASK).run().printed(), ANSWER);
    let (before, address, request) = (user.counts(), user.address(), user.request());
    let name = request["spec"]["cluster"]["tls-server-name"].as_str().unwrap();
    let script = format!(
        "place=$(mktemp -d); cd \"$place\"; trap 'rm -r \"$place\"' EXIT
         openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /O=system:masters/CN=other \
           -keyout key -out certificate 2>/dev/null
         for shown in '' '-cert certificate -key key'; do
           printf 'GET /api HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n' |
             timeout 600 openssl s_client -quiet -connect {address} -servername {name} $shown 2>&1
         done | grep -o 'alert [a-z ]*'"
    );
    let told = user.shell(&script).by(NOBODY).run();
    let told = String::from_utf8(told.stdout).unwrap();
    assert_contains(&told, &["certificate required"]);
    assert!(!told.contains("HTTP/1.1"), "{told}");
    assert_eq!(user.counts(), before);
    let alerts: Vec<_> = told.lines().collect();
    outcome(&format!("{}; nothing was signed, and the user's kubectl goes on", alerts.join(", ")));
    assert_eq!(user.shell(ASK).run().printed(), ANSWER);
}

#[test]
fn fifty_processes_with_a_wrong_pin() {
    attack(
        "a stored PIN that the token refuses is sent once, by all processes of a user together",
        "fifty signers start at once with a wrong PIN in their configuration",
    );
    let store = token_with_pair(Kind::P256);
    let wrong = store.faulty(store.configuration()).with("pin", WRONG_PIN);
    let signers: Vec<_> =
        (0..50).map(|_| store.sign_with(&wrong).suffering(&store, "").start(None)).collect();
    for signer in signers {
        signer.finish().fails(7, &["test token"]);
    }
    let tries = store.calls("C_Login").len();
    assert_eq!(tries, 1);
    outcome(&format!("tries on the token: {tries}; each of the fifty ends with 7 and says why"));
}

#[test]
fn kill_9_during_an_enrolment() {
    attack(
        "an enrolment that is killed anywhere is ended by the same command, with one key",
        "kill -9 before the key is made, behind it, and while the request is signed",
    );
    let kills = [
        "C_GenerateKeyPair:signal=kill",
        "C_GenerateKeyPair:then-signal=kill",
        "C_Sign:signal=kill",
    ];
    for kill in kills {
        let store = token_with([]);
        let request = format!("--csr={}", at(&store, "jane.csr"));
        let arguments = ["--user=jane", &request];
        let killed = enroll_through(&store, &store.faulty_module(), &arguments);
        let killed = killed.suffering(&store, kill).run();
        assert_eq!(killed.status.signal(), Some(9), "{killed:?}");
        enroll(&store, &arguments).run().succeeded();
        assert_eq!(objects_of(&store), [1, 1, 0], "{kill}: keys, public keys, certificates");
    }
    outcome("after each kill the same command ends well: one key on the token, and its request");
}

#[test]
fn a_debugger_at_the_tunnel() {
    needs_isolation!();
    attack(
        "another program of the same user can't read the processes that have the key open",
        "it attaches as a debugger does, and opens their memory, environment and files in /proc",
    );
    // It could, if the program did nothing about it.
    let mut other = onlooker("sleep", &["600"]).spawn().unwrap();
    assert!(is_traceable(Pid::from_child(&other)));
    other.kill().unwrap();
    other.wait().unwrap();
    let user = PlainUser::unprivileged(NOBODY, &["--keep=15m", "--pin-source=env:TOKEN_PIN"]);
    user.plugin(&user.request().to_string()).run().answer();
    assert_hidden(user.tunnel().unwrap().pid);
    assert_hidden(user.token_processes().pop().unwrap().pid);
    outcome(
        "Operation not permitted, for both processes; the same attempt at that user's `sleep` works",
    );
}

#[test]
fn a_forged_request_at_approve() {
    attack(
        "nobody is approved as somebody else by mistake",
        "jane asks for a certificate as kubernetes-admin, and as a member of cluster-admins",
    );
    let cluster = cluster();
    let (jane, otto) =
        (cluster.person("jane", &["dev", REQUESTERS]), cluster.person("otto", &[APPROVERS]));
    for (name, user, groups) in
        [("forged-user", "kubernetes-admin", "dev"), ("forged-group", "jane", "cluster-admins")]
    {
        jane.asks(name, &Wanted { user, groups: &[groups], ..Wanted::default() });
        let approve = otto.command("approve").argument(name);
        approve.at_terminal().finish().0.fails(9, &["the requester"]);
        assert!(cluster.conditions(name).is_empty(), "{name}");
    }
    outcome("`approve` refuses both with 9, says what the requester isn't, and approves nothing");
}

#[test]
fn a_library_swapped_under_a_link() {
    needs_isolation!();
    attack(
        "no library that another user can change is loaded beside your PIN",
        "pathLib leads through a link of theirs, which flips all the time between /usr/lib and their own",
    );
    let store = token_with_pair(Kind::P256);
    let runs = 100;
    assert_eq!(runs_behind_a_flipping_link(&store, runs), 0);
    outcome(&format!("their library ran in 0 of {runs} requests"));
}

#[test]
fn a_full_disk() {
    needs_isolation!();
    attack(
        "a stored PIN isn't sent where a refusal could not be remembered",
        "the disk with the record of refused PINs is full, and the PIN is wrong",
    );
    let store = token_with_pair(Kind::P256);
    let wrong = store.faulty(store.configuration()).with("pin", WRONG_PIN);
    let state = state();
    let full = mounted(&format!(
        "mount -t tmpfs -o size=4k,mode=700 none {state}; head -c 4096 /dev/zero > {state}/file"
    ));
    let request = store.sign_with(&wrong).suffering(&store, "");
    let refused = request.within("bash", &format!("{full}; exec \"$SIGNER\"")).run();
    refused.fails(7, &["could not be remembered"]);
    assert_eq!(store.calls("C_Login").len(), 0);
    outcome("the PIN was sent 0 times; the error says that there is no room to remember a refusal");
}
