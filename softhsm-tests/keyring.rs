//! Keys, and tunnels for them, that are opened and closed while the process lives on. The process is
//! this program once more, since SoftHSM has one state in each.

use std::collections::BTreeMap;
use std::env;
use std::io::{BufRead as _, BufReader};
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicUsize, Ordering};

use config::Config;
use config::pin::{self, Pin, PinOrigin, PinProvider, PinRequest};
use keyring::{KeyClient, KeyNumber, Keyring, OpenKeys as _};
use kubeconfig::Kubeconfig;
use messages::error::Error;
use system::environment::TakenVariables;
use system::leave;
use tunnel::{KeyUsage, ServerIdentity, TunnelObserver, TunnelTarget, Tunnels};

use crate::fixture::*;

/// The configurations of the keys, for the process.
const KEYS: &str = "KEYRING_TEST_KEYS";
/// kubectl, which the process has elsewhere than its home says.
const KUBECTL: &str = "KEYRING_TEST_KUBECTL";

/// Somebody who types this PIN and counts how often, by ten at the reader.
struct Person {
    pin: &'static str,
    asked: Arc<AtomicUsize>,
}

impl PinProvider for Person {
    fn origin(&mut self) -> PinOrigin {
        PinOrigin::Person
    }

    fn pin(&mut self, request: &PinRequest<'_>) -> Result<Pin, Error> {
        let nth = self.asked.fetch_add(1, Ordering::Relaxed);
        // A person gives up after a refusal.
        let pin = Pin::new(self.pin).filter(|_| self.pin == PIN || nth.is_multiple_of(2));
        pin.ok_or_else(|| pin::cancelled(&request.token))
    }

    fn confirm_at_reader(&mut self, request: &PinRequest<'_>) -> Result<(), Error> {
        Err(pin::cancelled(&request.token))
    }

    fn at_reader(&mut self, notice: &str) {
        assert!(notice.starts_with("enter the PIN at the reader of token \"one\""));
        self.asked.fetch_add(10, Ordering::Relaxed);
    }
}

/// What a test does in a process of its own, with two keys of one token and one of another.
struct Keys {
    keyring: Arc<Keyring>,
    numbers: Vec<KeyNumber>,
    asked: Arc<AtomicUsize>,
}

impl Keys {
    /// `None` in the process that starts the other one.
    fn here() -> Option<Self> {
        let configs: Vec<BTreeMap<String, String>> =
            serde_json::from_str(env::var_os(KEYS)?.to_str()?).unwrap();
        let keyring = Arc::new(Keyring::default());
        keyring.leave_terminal();
        let numbers = configs.iter().map(|pairs| {
            let pairs = pairs.iter().map(|(name, value)| (&**name, &**value));
            let mut map: protocol::Configuration = pairs.collect();
            keyring.add(Config::from_map(&mut map).unwrap(), &TakenVariables::default()).unwrap()
        });
        let numbers = numbers.collect();
        Some(Self { keyring, numbers, asked: Arc::default() })
    }

    /// Opens a key with this PIN; how often it was asked for, or the error's exit code.
    fn open(&self, number: usize, pin: &'static str) -> Result<usize, u8> {
        self.open_for(number, pin, false)
    }

    fn open_for(&self, number: usize, pin: &'static str, signs: bool) -> Result<usize, u8> {
        self.asked.store(0, Ordering::Relaxed);
        let asked = Arc::clone(&self.asked);
        let pins = Box::new(Person { pin, asked });
        let client = KeyClient { pins, signs, waiting: Box::new(|_| ()) };
        let opened = self.keyring.open(self.numbers[number], Some(client));
        opened.map_err(|error| error.exit_code())?;
        // Dropped with the request, so that what it holds ends.
        assert_eq!(Arc::strong_count(&self.asked), 1);
        Ok(self.asked.load(Ordering::Relaxed))
    }

    fn sign(&self, number: usize) -> Result<(), String> {
        let number = self.numbers[number];
        let key = self.keyring.open_in_time(number);
        let key = key.map_err(|error| error.to_string())?;
        let signature = self.keyring.sign(number, key.schemes[0], vec![7; 32]);
        signature.map(drop).map_err(|error| error.to_string())
    }

    fn close(&self, number: usize) {
        self.keyring.close(self.numbers[number]);
    }
}

/// Runs this test in a process of its own, for which these keys are.
fn run_again(invocation: Invocation, keys: &[Configuration]) {
    let thread = thread::current();
    invocation
        .program(&env::current_exe().unwrap())
        .arguments(&["--exact", thread.name().unwrap(), "--nocapture"])
        .variable(KEYS, serde_json::to_string(keys).unwrap())
        .run()
        .succeeded();
}

/// Runs this test in a process of its own, with what goes wrong in the library; the calls that begin or end something.
fn calls_of(faults: &str) -> Vec<String> {
    let [one, two] = [Kind::P256, Kind::P384].map(key);
    let objects = Object::pair(one, &[1]).into_iter().chain(Object::pair(two, &[2]));
    let store = Store::new([blueprint("one", objects), blueprint("two", Object::pair(one, &[1]))]);
    let configuration = |token: usize, id| {
        let slot = store.tokens[token].slot.to_string();
        store.faulty(store.configuration().with("slotId", &slot).with("objectId", id))
    };
    let keys = [(0, "1"), (0, "2"), (1, "1")].map(|(token, id)| configuration(token, id));
    run_again(store.command(&[]).suffering(&store, faults), &keys);
    let mut calls = store.history();
    calls.retain(|call| {
        let marks = ["Initialize", "Finalize", "Session ", "Log"];
        !call.contains("Info") && marks.iter().any(|mark| call.contains(mark))
    });
    let names = calls.iter().map(|call| {
        let (name, returned) = call.split_once(' ').unwrap();
        match returned {
            "0x0" => name.trim_start_matches("C_").to_owned(),
            _ => call.trim_start_matches("C_").to_owned(),
        }
    });
    names.collect()
}

const OPENED: [&str; 2] = ["OpenSession", "Login"];
const CLOSED: [&str; 2] = ["Logout", "CloseSession"];

#[test]
fn a_token_is_left_with_its_last_key_and_a_library_is_initialised_once() {
    let Some(keys) = Keys::here() else {
        let calls = calls_of("");
        // Once, also when nothing of it is open any more: it reads its configuration then.
        let first = [&["Initialize"][..], &OPENED, &OPENED];
        let life = [&first.concat()[..], &CLOSED, &CLOSED];
        let again = [&OPENED[..], &["Finalize"]];
        assert_eq!(calls, [life.concat(), again.concat()].concat());
        return;
    };
    assert_eq!(keys.open(0, PIN), Ok(1));
    // Its token is logged in, but for another key.
    assert_eq!(keys.open(1, PIN), Ok(1));
    assert_eq!(keys.open(2, PIN), Ok(1));
    keys.close(0);
    assert!(keys.sign(0).unwrap_err().contains("closed"));
    assert_eq!([keys.sign(1), keys.sign(2)], [Ok(()), Ok(())]);
    keys.close(1);
    assert_eq!(keys.sign(2), Ok(()));
    keys.close(2);
    assert!(keys.sign(2).is_err());
    // The PIN has gone with it.
    assert_eq!(keys.open(0, PIN), Ok(1));
    assert_eq!(keys.sign(0), Ok(()));
    keys.keyring.finish(0);
}

#[test]
fn a_key_that_did_not_open_leaves_nothing_when_it_is_closed() {
    let Some(keys) = Keys::here() else {
        let calls = calls_of("");
        let refused = ["Initialize", "OpenSession", "Login 0xa0"];
        assert_eq!(calls, [&refused[..], &["CloseSession"]].concat());
        return;
    };
    assert_eq!(keys.open(0, WRONG_PIN), Err(7));
    keys.close(0);
    assert!(keys.sign(0).is_err());
    // As the program ends: an exit would be taken for the library's.
    leave(0)
}

#[test]
fn what_a_token_has_not_shown_is_looked_for_again() {
    let Some(keys) = Keys::here() else {
        let store = token_with_pair(Kind::P256);
        let missing = store.configuration().without("pinSource").with("objectId", "9");
        run_again(store.command(&[]).suffering(&store, ""), &[store.faulty(missing)]);
        assert_eq!(store.calls("C_FindObjectsInit").len(), 2);
        return;
    };
    assert!([keys.sign(0), keys.sign(0)].iter().all(Result::is_err));
    leave(0)
}

#[test]
fn the_pin_of_a_token_that_was_lost_is_kept_until_its_key_is_closed() {
    let Some(keys) = Keys::here() else {
        calls_of("C_SignInit#1:return=0x32,C_SignInit#3:return=0x32");
        return;
    };
    assert_eq!([keys.open(0, PIN), keys.open(2, PIN)], [Ok(1), Ok(1)]);
    // Both tokens are opened again when they are needed next.
    assert_eq!(keys.sign(0), Ok(()));
    keys.close(1);
    assert_eq!(keys.open(2, PIN), Ok(0));
    assert_eq!(keys.sign(0), Ok(()));
    keys.close(2);
    assert_eq!(keys.open(2, PIN), Ok(1));
    keys.keyring.finish(0);
}

#[test]
fn the_pin_of_a_token_that_is_away_outlasts_the_end_of_another_key() {
    let Some(keys) = Keys::here() else {
        calls_of("C_SignInit#1:return=0x32,C_OpenSession#3:return=0xe0");
        return;
    };
    assert_eq!([keys.open(0, PIN), keys.open(2, PIN)], [Ok(1), Ok(1)]);
    assert!(keys.sign(0).is_err());
    keys.close(2);
    assert_eq!(keys.sign(0), Ok(()));
    keys.keyring.finish(0);
}

/// Some libraries find a token that was put back only then. Where a person would have to type the PIN again, it isn't done.
#[test]
fn for_a_token_that_was_lost_a_library_is_initialised_again() {
    let Some(keys) = Keys::here() else {
        let store = token_with_pair(Kind::P256);
        let stored = store.faulty(store.configuration_with_pin());
        let invocation = store.command(&[]).suffering(&store, "C_SignInit#2:return=0x32");
        run_again(invocation, &[stored]);
        assert_eq!(store.calls("C_Initialize"), ["0x0"; 2]);
        return;
    };
    assert_eq!([keys.sign(0), keys.sign(0)], [Ok(()), Ok(())]);
    keys.keyring.finish(0);
}

/// A card that is pulled between C_SignInit and the login, and a PIN that was changed meanwhile.
#[test]
fn a_failed_login_for_one_signature_ends_neither_the_session_nor_what_was_typed() {
    let Some(keys) = Keys::here() else {
        let store = token_asking_each_time(Kind::P256);
        let invocation =
            store.command(&[]).suffering(&store, "C_Login#2:return=0x32,C_Login#5:return=0xa0");
        run_again(invocation, &[store.faulty(store.configuration())]);
        assert_eq!(store.calls("C_Login"), ["0x0", "0x32", "0x0", "0x0", "0xa0"]);
        assert_eq!(store.calls("C_SignInit"), ["0x0"; 4]);
        assert_eq!(store.calls("C_Initialize"), ["0x0"]);
        return;
    };
    assert_eq!(keys.open(0, PIN), Ok(1));
    // The token is opened again, and gets its PIN.
    assert_eq!(keys.sign(0), Ok(()));
    for _ in 0..2 {
        let told = keys.sign(0).unwrap_err();
        assert!(told.contains("can no longer be asked for"), "{told}");
    }
    keys.keyring.finish(0);
}

/// It may have been changed, and each of them may have been counted.
#[test]
fn a_typed_pin_is_given_up_after_two_logins_without_a_clear_answer() {
    let Some(keys) = Keys::here() else {
        for second in ["0x5", "0x32"] {
            let store = token_asking_each_time(Kind::P256);
            let unclear = format!("C_Login#2:return=0x32,C_Login#3:return={second}");
            let invocation = store.command(&[]).suffering(&store, &unclear);
            run_again(invocation, &[store.faulty(store.configuration())]);
            assert_eq!(store.calls("C_Login"), ["0x0", "0x32", second]);
        }
        return;
    };
    assert_eq!(keys.open(0, PIN), Ok(1));
    for _ in 0..3 {
        keys.sign(0).unwrap_err();
    }
    keys.keyring.finish(0);
}

/// A login is the process's: whoever has it sign has logged in for that, or uses what was opened for all.
#[test]
fn a_client_logs_in_for_what_the_key_is_not_open_for() {
    let Some(keys) = Keys::here() else {
        calls_of("");
        return;
    };
    const CANCELLED: (&str, Result<usize, u8>) = ("", Err(7));
    let dismiss = || keys.keyring.dismiss_clients(keys.numbers[0]);
    assert_eq!([keys.open(0, PIN), keys.open(0, PIN)], [Ok(1), Ok(0)]);
    // The same key by another configuration would have no other rights.
    for number in [0, 1] {
        assert_eq!(keys.open_for(number, CANCELLED.0, true), CANCELLED.1);
    }
    assert_eq!(keys.open_for(0, PIN, true), Ok(1));
    assert_eq!([keys.open_for(0, PIN, true), keys.open(0, PIN)], [Ok(0); 2]);
    dismiss();
    assert_eq!(keys.open(0, CANCELLED.0), CANCELLED.1);
    // Who uses it already isn't disturbed.
    assert_eq!(keys.sign(0), Ok(()));
    assert_eq!([keys.open(0, PIN), keys.open(0, PIN)], [Ok(1), Ok(0)]);
    assert_eq!(keys.open_for(0, CANCELLED.0, true), CANCELLED.1);
    keys.keyring.finish(0);
}

#[test]
fn each_client_has_three_tries() {
    let Some(keys) = Keys::here() else {
        let calls = calls_of("");
        assert_eq!(calls.iter().filter(|call| *call == "Login 0xa0").count(), 4);
        return;
    };
    assert_eq!(keys.open(2, PIN), Ok(1));
    for _ in 0..4 {
        assert_eq!(keys.open(0, WRONG_PIN), Err(7));
    }
    assert_eq!(keys.open(0, PIN), Ok(1));
    keys.keyring.finish(0);
}

/// What a library takes without looking at it proves nothing.
#[test]
fn a_pin_that_the_token_was_not_asked_about_admits_no_other_client() {
    let Some(keys) = Keys::here() else {
        let calls = calls_of("C_Login#2:return=0x100");
        let logins: Vec<_> = calls.iter().filter(|call| call.starts_with("Log")).collect();
        assert_eq!(logins[..3], ["Login", "Logout", "Login 0x100"]);
        return;
    };
    assert_eq!([keys.open(0, PIN), keys.open(1, WRONG_PIN)], [Ok(1), Err(7)]);
    keys.keyring.finish(0);
}

/// A wrong PIN that somebody else has sent may mean that the right one has been changed.
#[test]
fn a_login_is_not_made_again_for_a_token_that_has_counted_another_wrong_pin() {
    let Some(keys) = Keys::here() else {
        let calls = calls_of("C_GetTokenInfo:set=CKF_USER_PIN_COUNT_LOW");
        let logins: Vec<_> = calls.iter().filter(|call| call.starts_with("Log")).collect();
        assert_eq!(logins, ["Login", "Logout", "Login 0xa0"]);
        return;
    };
    assert_eq!([keys.open(0, PIN), keys.open(1, WRONG_PIN)], [Ok(1), Err(7)]);
    keys.keyring.finish(0);
}

#[test]
fn a_key_that_needs_no_login_is_open_to_every_client_beside_one_that_needs_it() {
    let Some(keys) = Keys::here() else {
        let [private, certificate] = Object::pair(key(Kind::P384), &[2]);
        let pair = Object::pair(key(Kind::P256), &[1]);
        let store = token_with(pair.into_iter().chain([private.public(), certificate]));
        let configuration = store.faulty(store.configuration());
        let keys = ["1", "2"].map(|id| configuration.clone().with("objectId", id));
        run_again(store.command(&[]).suffering(&store, ""), &keys);
        assert_eq!(store.calls("C_Login"), ["0x0"]);
        return;
    };
    assert_eq!([keys.open(0, PIN), keys.open(1, PIN)], [Ok(1), Ok(0)]);
    keys.keyring.finish(0);
}

/// There is no PIN here with which theirs could be compared.
#[test]
fn every_client_enters_the_pin_at_the_reader() {
    let Some(keys) = Keys::here() else {
        let calls =
            calls_of("C_GetTokenInfo:set=CKF_PROTECTED_AUTHENTICATION_PATH,C_Login:pin-pad");
        let logins: Vec<_> = calls.iter().filter(|call| call.starts_with("Log")).collect();
        assert_eq!(logins[..3], ["Login", "Logout", "Login"]);
        return;
    };
    assert_eq!([keys.open(0, WRONG_PIN), keys.open(1, WRONG_PIN)], [Ok(10); 2]);
    assert_eq!([keys.sign(0), keys.sign(1)], [Ok(()), Ok(())]);
    keys.keyring.finish(0);
}

#[test]
fn who_is_asked_is_told_of_a_reader_that_waits() {
    let Some(keys) = Keys::here() else {
        calls_of("C_GetTokenInfo:set=CKF_PROTECTED_AUTHENTICATION_PATH,C_Login:pin-pad");
        return;
    };
    assert_eq!(keys.open(0, WRONG_PIN), Ok(10));
    keys.keyring.finish(0);
}

/// What is told of connections.
#[derive(Default)]
struct Connections(Mutex<Vec<String>>);

impl TunnelObserver for Connections {
    fn connection(&self, line: &str) {
        self.0.lock().unwrap().push(line.to_owned());
    }

    fn trouble(&self, _: &Error) {}
    fn concern(&self, _: &str) {}
}

/// The tunnel to the cluster, with kubeconfigs for it.
struct Served {
    tunnels: Tunnels,
    connections: Arc<Connections>,
    identity: ServerIdentity,
    address: String,
    given: Kubeconfig,
}

impl Served {
    fn new(keyring: &Arc<Keyring>) -> Self {
        let given = Kubeconfig::load(&[env::var_os("KUBECONFIG").unwrap().into()]).unwrap();
        let identity = ServerIdentity::generate(&[Ipv4Addr::LOCALHOST.into()]).unwrap();
        let identity = ServerIdentity::from_pem(identity.to_pem().to_owned()).unwrap();
        let connections = Arc::new(Connections::default());
        let observer: Arc<dyn TunnelObserver> = connections.clone();
        let tunnels = Tunnels::start(&identity, keyring.clone(), &observer).unwrap();
        let target = TunnelTarget {
            name: "test".to_owned(),
            cluster: given.cluster("test").unwrap().cluster,
        };
        Self {
            address: tunnels.listen(target, None).unwrap().to_string(),
            connections,
            tunnels,
            identity,
            given,
        }
    }

    /// A kubeconfig for the certificate that the key has now.
    fn kubeconfig(&self, number: KeyNumber, name: &str) -> PathBuf {
        let mut kubeconfig = self.given.clone();
        let endpoint = self.identity.endpoint(&self.address);
        kubeconfig.redirect("test", &endpoint, &[]);
        let certificate = self.tunnels.clients.certificate(number).unwrap();
        kubeconfig.identify("jane", &certificate.certificate_pem, &certificate.key_pem);
        let file = Path::new(&env::var_os("HOME").unwrap()).join(name);
        fs::write(&file, kubeconfig.to_json()).unwrap();
        file
    }
}

fn kubectl_with(kubeconfig: &Path) -> Command {
    let mut command = Command::new(env::var_os(KUBECTL).unwrap());
    command.env("KUBECONFIG", kubeconfig).stdin(Stdio::null()).stdout(Stdio::piped());
    command
}

fn can_ask(kubeconfig: &Path) -> bool {
    let mut command = kubectl_with(kubeconfig);
    command.args(["get", "--raw", "/version"]).stderr(Stdio::null()).status().unwrap().success()
}

#[test]
fn a_withdrawn_certificate_ends_its_connections_and_its_sessions() {
    let Some(keys) = Keys::here() else {
        let store = cluster().token(Kind::P256, ADMINISTRATOR);
        let configuration = store.faulty(store.configuration());
        let invocation = cluster().kubectl(&store, &configuration);
        run_again(invocation.suffering(&store, "").variable(KUBECTL, kubectl()), &[configuration]);
        // One of each for each certificate.
        assert_eq!(store.calls("C_Login"), ["0x0"; 2]);
        assert_eq!(store.calls("C_Sign"), ["0x0"; 2]);
        return;
    };
    let number = keys.numbers[0];
    let served = Served::new(&keys.keyring);
    assert_eq!(keys.open(0, PIN), Ok(1));
    let before = served.kubeconfig(number, "before");
    assert!(can_ask(&before));
    let mut watch = kubectl_with(&before);
    let mut watch = watch.args(["get", "namespaces", "-w", "-o", "name"]).spawn().unwrap();
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "namespace/default");
    wait_until("the end of the first connection is noticed", || {
        let usage = served.tunnels.clients.usage(number);
        usage.open == 1 && usage.last_end.is_some()
    });

    served.tunnels.withdraw(number);
    keys.close(0);
    // kubectl ends as its connection does, and gets no other one.
    assert!(lines.all(|line| line.is_ok()));
    watch.wait().unwrap();
    assert!(!can_ask(&before));
    // Not even without a key: it is told why.
    let told = served.connections.0.lock().unwrap().join("\n");
    let last = told.lines().last().unwrap();
    assert!(
        last.contains("answered with 502: the key of this client's certificate has been"),
        "{told}"
    );
    assert_eq!(served.tunnels.clients.usage(number), KeyUsage::default());

    assert_eq!(keys.open(0, PIN), Ok(1));
    assert!(can_ask(&served.kubeconfig(number, "after")));
    assert!(!can_ask(&before));
    keys.keyring.finish(0);
}
