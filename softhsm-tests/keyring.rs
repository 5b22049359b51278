//! Keys that are opened and closed while the process lives on. The process is this program once more,
//! since SoftHSM has one state in each.

use std::collections::BTreeMap;
use std::env;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use pkcs11_external_signer::config::Config;
use pkcs11_external_signer::keyring::{KeyNumber, Keyring};
use pkcs11_external_signer::pin::{Pin, PinError, PinOrigin, PinProvider, PinRequest};
use pkcs11_external_signer::process::environment::TakenVariables;
use pkcs11_external_signer::protocol;

use crate::fixture::keys::{Kind, key};
use crate::fixture::program::Invocation;
use crate::fixture::softhsm::{Object, PIN, Store, WRONG_PIN, blueprint};

/// The configurations of the keys, for the process.
const KEYS: &str = "KEYRING_TEST_KEYS";

/// Somebody who types this PIN, and counts how often.
struct Person {
    pin: &'static str,
    asked: Arc<AtomicUsize>,
}

impl PinProvider for Person {
    fn origin(&mut self) -> PinOrigin {
        PinOrigin::Person
    }

    fn pin(&mut self, request: &PinRequest<'_>) -> Result<Pin, PinError> {
        let nth = self.asked.fetch_add(1, Ordering::Relaxed);
        let token = request.token.to_owned();
        // A person gives up after a refusal.
        let pin = Pin::new(self.pin).filter(|_| self.pin == PIN || nth.is_multiple_of(2));
        pin.ok_or(PinError::Cancelled { token })
    }

    fn confirm_at_reader(&mut self, request: &PinRequest<'_>) -> Result<(), PinError> {
        let token = request.token.to_owned();
        Err(PinError::Cancelled { token })
    }

    fn insert(&mut self, _: &str) -> bool {
        false
    }
}

/// What a test does in a process of its own, with two keys of one token and one of another.
struct Keys {
    keyring: Keyring,
    numbers: Vec<KeyNumber>,
    asked: Arc<AtomicUsize>,
}

impl Keys {
    /// `None` in the process that starts the other one.
    fn here() -> Option<Self> {
        let configs: Vec<BTreeMap<String, String>> =
            serde_json::from_str(env::var_os(KEYS)?.to_str()?).unwrap();
        let keyring = Keyring::default();
        keyring.leave_terminal();
        let numbers = configs.iter().map(|pairs| {
            let pairs = pairs.iter().map(|(name, value)| (&**name, &**value));
            let mut map: protocol::Configuration = pairs.collect();
            let config = Config::from_map(&mut map).unwrap();
            keyring.add(config, &TakenVariables::default()).unwrap()
        });
        let numbers = numbers.collect();
        Some(Self {
            keyring,
            numbers,
            asked: Arc::default(),
        })
    }

    /// Opens a key with this PIN; how often it was asked for, or the error's exit code.
    fn open(&self, number: usize, pin: &'static str) -> Result<usize, u8> {
        self.asked.store(0, Ordering::Relaxed);
        let asked = Arc::clone(&self.asked);
        let person = Box::new(Person { pin, asked });
        let opened = self
            .keyring
            .open_with(self.numbers[number], person, Box::new(()));
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

/// Runs the test in a process of its own; the calls that begin or end something.
fn calls_of(test: &str) -> Vec<String> {
    let [one, two] = [Kind::P256, Kind::P384].map(key);
    let objects = Object::pair(one, &[1])
        .into_iter()
        .chain(Object::pair(two, &[2]));
    let store = Store::new([
        blueprint("one", objects),
        blueprint("two", Object::pair(one, &[1])),
    ]);
    let configuration = |token: usize, id| {
        let slot = store.tokens[token].slot.to_string();
        let configuration = store.configuration().with("slotId", &slot);
        store.faulty(configuration.with("objectId", id))
    };
    let keys = [(0, "1"), (0, "2"), (1, "1")].map(|(token, id)| configuration(token, id));
    let outcome = Invocation::new(store.directory.path())
        .program(&env::current_exe().unwrap())
        .arguments(&["--exact", &format!("keyring::{test}"), "--nocapture"])
        .suffering(&store, "")
        .variable(KEYS, serde_json::to_string(&keys).unwrap())
        .run();
    assert!(outcome.status.success(), "{outcome:?}");
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
fn a_token_is_left_with_its_last_key_and_a_library_with_its_last_token() {
    let Some(keys) = Keys::here() else {
        let calls = calls_of("a_token_is_left_with_its_last_key_and_a_library_with_its_last_token");
        let life = [&["Initialize"][..], &OPENED, &OPENED, &CLOSED, &CLOSED];
        let again = [&["Finalize", "Initialize"][..], &OPENED, &["Finalize"]];
        assert_eq!(calls, [life.concat(), again.concat()].concat());
        return;
    };
    assert_eq!(keys.open(0, PIN), Ok(1));
    // Its token is logged in.
    assert_eq!(keys.open(1, PIN), Ok(0));
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
        let calls = calls_of("a_key_that_did_not_open_leaves_nothing_when_it_is_closed");
        let refused = ["Initialize", "OpenSession", "Login 0xa0"];
        let closed = ["CloseSession", "Finalize"];
        assert_eq!(calls, [&refused[..], &closed].concat());
        return;
    };
    assert_eq!(keys.open(0, WRONG_PIN), Err(7));
    keys.close(0);
    assert!(keys.sign(0).is_err());
}
