//! The record of a token: a line for a PIN that was sent and not accepted, which outlives this process.
//!
//! The line is written before the PIN is sent, since the process may be killed before there is an answer, and only an
//! accepted PIN takes it out. So a wrong stored PIN is not sent again by the next request, nor by one that runs at the
//! same time: the record is locked until it is dropped, and meanwhile no other process of this user sends the token a
//! PIN. The token's own memory is CKF_USER_PIN_COUNT_LOW (PKCS#11, section 3.2), which not all modules report.
//!
//! And the PINs that were tried in this process since the last one that the token accepted, as keyed hashes: the three
//! tries are for all connections of a run together, and a script that asks for PINs may always give the same.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::{LazyLock, Mutex, MutexGuard};

use sha2::{Digest as _, Sha256};

use super::module::TokenState;
use config::TokenName;
use config::pin::Pin;
use files::lock::{self, Lock, LockError};
use messages::error::Error;
use messages::printable::{hex, printable};
use system::clock::unix_time;
use system::limits;
use system::locked;

/// What a line says that stands for a PIN that was sent. A line that says neither this nor the next is taken for one.
const SENT: &str = "PIN sent to";
/// What a line says that stands while the line of another token of the same card does.
const ACCEPTED: &str = "PIN accepted by";

/// The record of one card, locked until this is dropped.
pub(super) struct Ledger {
    /// Without a place for it, why there is none.
    file: Result<Lock, String>,
    /// The lines before the PIN was sent.
    before: Vec<String>,
    token: String,
    /// Tells this token's lines from those of the card's others.
    id: String,
}

/// How a token has answered a PIN.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum PinAnswer {
    Accepted,
    /// No PIN helps until a person has unlocked it, which not all libraries say before a login.
    Locked,
    /// The library itself has refused the PIN's form, and the token has counted none.
    Malformed,
    /// It has not looked at the PIN.
    NotLookedAt,
    Refused,
    /// It may have counted a wrong PIN: it failed, or there was no answer.
    Unclear,
}

impl Ledger {
    /// Keeps other processes, whichever library they use, from sending this token a PIN meanwhile.
    /// Without a place for the record there is one that remembers nothing.
    pub(super) fn open(token: &TokenState) -> Result<Self, Error> {
        match Lock::acquire_lasting(&card(token), &whole_name(token)) {
            Ok(lock) => Ok(Self::new(Ok(lock), token)),
            Err(LockError::Unavailable(reason)) => Ok(Self::new(Err(reason), token)),
            Err(LockError::Busy(holder)) => Err(lock::busy(holder, limits::LOCK)),
        }
    }

    fn new(file: Result<Lock, String>, token: &TokenState) -> Self {
        let id = hex(&Sha256::digest(whole_name(token).as_bytes())[..4]);
        let before = recorded(&file);
        Self { file, before, token: token.name.to_string(), id }
    }

    /// Whether a PIN was sent, and this token has accepted none since.
    pub(super) fn stands(&self) -> bool {
        let is_accepted = |line: &&String| line.starts_with(ACCEPTED) && self.is_own(line);
        let mut since = self.before.iter().rev().take_while(|line| !is_accepted(line));
        since.any(|line| is_of_sent(line))
    }

    /// Adds the line, before a PIN is sent. Fails with the reason, for people.
    pub(super) fn begin(&mut self) -> Result<(), String> {
        let mut lines = self.before.clone();
        if !lines.iter().any(|line| line.starts_with(SENT) && self.is_own(line)) {
            lines.push(self.line(SENT));
        }
        self.write(&lines)
    }

    /// To be called with the answer to the PIN that was sent.
    pub(super) fn end(&mut self, answer: PinAnswer) {
        let mut lines = self.before.clone();
        match answer {
            PinAnswer::Locked | PinAnswer::Refused | PinAnswer::Unclear => {
                // The line stays, whatever comes of the next PIN.
                self.before = recorded(&self.file);
                return;
            }
            PinAnswer::Malformed | PinAnswer::NotLookedAt => {}
            PinAnswer::Accepted => {
                // The lines of the card's other tokens stay: their PINs may be others.
                lines.retain(|line| token_of(line).is_some_and(|id| id != self.id));
                if lines.iter().any(|line| is_of_sent(line)) {
                    lines.push(self.line(ACCEPTED));
                } else {
                    lines.clear();
                }
            }
        }
        let _ = self.write(&lines);
    }

    fn write(&mut self, lines: &[String]) -> Result<(), String> {
        self.file.as_mut().map_err(|reason| reason.clone())?.write(lines)
    }

    fn is_own(&self, line: &str) -> bool {
        token_of(line) == Some(&self.id)
    }

    /// A line that says `what` of this token now; for people, too, who find the file.
    fn line(&self, what: &str) -> String {
        let now = unix_time();
        format!("{what} token {} at {now} ({})", printable(&self.token), self.id)
    }
}

/// The lines of the record, none where there is no place for it.
fn recorded(file: &Result<Lock, String>) -> Vec<String> {
    file.as_ref().map_or_else(|_| Vec::new(), Lock::lines)
}

/// Whether the line stands for a PIN that was sent, as what can't be read does.
fn is_of_sent(line: &str) -> bool {
    !line.starts_with(ACCEPTED)
}

/// The id of the token whose line it is, from its end: a label could hold the same. An earlier release wrote more
/// behind it.
fn token_of(line: &str) -> Option<&str> {
    line.strip_suffix(')')?.rsplit_once(" (")?.1.split(' ').next()
}

/// A card may show itself as several tokens whose PIN is one, with one serial number and several labels; a
/// serial number of zeros is none. Without the slot, which moves.
fn card(token: &TokenState) -> String {
    let serial = &token.name.serial;
    if serial.chars().all(|digit| digit == '0' || digit == ' ') {
        return whole_name(token);
    }
    [token.manufacturer.as_str(), &token.model, serial].join("\0")
}

fn whole_name(token: &TokenState) -> String {
    [token.manufacturer.as_str(), &token.model, &token.name.serial, &token.name.label].join("\0")
}

/// After so many logins without a clear answer the same PIN is not taken from a program again.
pub(super) const UNCLEAR_LOGINS: usize = 2;

pub(super) static TRIED_PINS: LazyLock<TriedPins> = LazyLock::new(TriedPins::default);

#[derive(Default)]
pub(super) struct TriedPins {
    tries: Mutex<Vec<Try>>,
    /// Its key is this process's, and random.
    hash: RandomState,
}

struct Try {
    token: TokenName,
    pin: u64,
    /// If it isn't a refusal, the token may not have looked at it.
    answer: PinAnswer,
}

impl TriedPins {
    /// The token hasn't accepted this PIN, but has answered this.
    pub(super) fn add(&self, token: &TokenName, pin: &Pin, answer: PinAnswer) {
        let pin = self.hash.hash_one(pin.expose());
        self.all().push(Try { token: token.clone(), pin, answer });
    }

    pub(super) fn forget(&self, token: &TokenName) {
        self.all().retain(|tried| !tried.token.is_same_token(token));
    }

    /// How many PINs the token was sent since it accepted one.
    pub(super) fn count(&self, token: &TokenName) -> usize {
        self.all().iter().filter(|tried| tried.token.is_same_token(token)).count()
    }

    /// Whether a program gives again what the token has refused, or may have.
    pub(super) fn is_repeated(&self, token: &TokenName, pin: &Pin) -> bool {
        let pin = self.hash.hash_one(pin.expose());
        let all = self.all();
        let same = all.iter().filter(|tried| tried.token.is_same_token(token) && tried.pin == pin);
        let (refused, unclear): (Vec<_>, Vec<_>) =
            same.partition(|tried| tried.answer == PinAnswer::Refused);
        !refused.is_empty() || unclear.len() >= UNCLEAR_LOGINS
    }

    fn all(&self) -> MutexGuard<'_, Vec<Try>> {
        locked(&self.tries)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::module::state_with_label;
    use files::lock::in_directory;

    fn open(base: &Path, label: &str) -> Ledger {
        Ledger::new(Ok(in_directory(base, "ledger")), &state_with_label(label))
    }

    fn sent(base: &Path, label: &str, answer: PinAnswer) {
        let mut ledger = open(base, label);
        ledger.begin().unwrap();
        ledger.end(answer);
    }

    fn base(parent: &tempfile::TempDir) -> std::path::PathBuf {
        parent.path().join("state")
    }

    #[test]
    fn a_line_stands_from_before_the_pin_is_sent_until_one_is_accepted() {
        use PinAnswer::{Accepted, Locked, NotLookedAt, Refused, Unclear};
        let parent = tempfile::tempdir().unwrap();
        let base = base(&parent);
        let stands = || open(&base, "one").stands();
        // The process is killed.
        open(&base, "one").begin().unwrap();
        assert!(stands());
        for (answer, expected) in [
            (NotLookedAt, true),
            (Accepted, false),
            (NotLookedAt, false),
            (Refused, true),
            (Accepted, false),
            (Locked, true),
            (Accepted, false),
            (Unclear, true),
            (Refused, true),
            (Accepted, false),
        ] {
            sent(&base, "one", answer);
            assert_eq!(stands(), expected, "{answer:?}");
            let lines = open(&base, "one").before;
            assert_eq!(lines.len(), usize::from(expected), "{lines:?}");
        }
    }

    #[test]
    fn a_refused_pins_line_stays_whatever_comes_of_the_next_one_in_the_same_login() {
        for answer in [PinAnswer::Malformed, PinAnswer::NotLookedAt] {
            let parent = tempfile::tempdir().unwrap();
            let base = base(&parent);
            let mut ledger = open(&base, "one");
            for answer in [PinAnswer::Refused, answer] {
                ledger.begin().unwrap();
                ledger.end(answer);
            }
            drop(ledger);
            assert!(open(&base, "one").stands(), "{answer:?}");
        }
    }

    #[test]
    fn a_login_settles_its_own_token_of_a_card() {
        use PinAnswer::{Accepted, Refused};
        let parent = tempfile::tempdir().unwrap();
        let base = base(&parent);
        let stands = || ["one", "two"].map(|label| open(&base, label).stands());
        for (label, answer, expected) in [
            ("one", Refused, [true, true]),
            ("two", Accepted, [true, false]),
            ("two", Accepted, [true, false]),
            ("two", Refused, [true, true]),
            ("one", Accepted, [false, true]),
            ("one", Refused, [true, true]),
            ("two", Accepted, [true, false]),
            ("one", Accepted, [false, false]),
        ] {
            sent(&base, label, answer);
            assert_eq!(stands(), expected, "{label} {answer:?}");
        }
        assert_eq!(open(&base, "one").before, [""; 0]);
    }

    #[test]
    fn what_another_release_has_written_stands() {
        let parent = tempfile::tempdir().unwrap();
        let base = base(&parent);
        let id = open(&base, "one").id;
        for line in [
            "garbage".to_owned(),
            format!("PIN refused by token \"one\" at 17 ({id} 3f)"),
            format!("PIN unclear by token \"one\" at 17 ({id} --)"),
            format!("PIN refused by token \"two\" at 17 (0a0b0c0d -- {id})"),
        ] {
            in_directory(&base, "ledger").write(std::slice::from_ref(&line)).unwrap();
            assert!(open(&base, "one").stands(), "{line}");
            sent(&base, "one", PinAnswer::Accepted);
            assert!(!open(&base, "one").stands(), "{line}");
            in_directory(&base, "ledger").write(&[]).unwrap();
        }
    }

    /// The label is the token's, which may be made to harm another one.
    #[test]
    fn a_label_does_not_make_a_line_another_tokens() {
        let parent = tempfile::tempdir().unwrap();
        let base = base(&parent);
        let forging = format!("x ({}", open(&base, "one").id);
        sent(&base, &forging, PinAnswer::Refused);
        sent(&base, "one", PinAnswer::Accepted);
        assert!(open(&base, &forging).stands());
    }

    #[test]
    fn one_serial_number_is_one_card_and_zeros_are_none() {
        let of = |serial: &str, label: &str| {
            let mut token = state_with_label(label);
            token.name.serial = serial.to_owned();
            card(&token)
        };
        for serial in ["0815", "1234", "a b"] {
            assert_eq!(of(serial, "one"), of(serial, "two"), "{serial}");
            assert_ne!(of(serial, "one"), of("4711", "one"), "{serial}");
        }
        for serial in ["", "0000", "   ", "0 0"] {
            assert_ne!(of(serial, "one"), of(serial, "two"), "{serial:?}");
        }
    }

    #[test]
    fn without_a_place_nothing_can_be_remembered() {
        let mut ledger = Ledger::new(Err("no place".to_owned()), &state_with_label("one"));
        assert!(!ledger.stands());
        assert_eq!(ledger.begin(), Err("no place".to_owned()));
        ledger.end(PinAnswer::Refused);
    }
    fn token(serial: &str, slot: u64) -> TokenName {
        TokenName { slot, label: "token".to_owned(), serial: serial.to_owned() }
    }

    fn pin(text: &str) -> Pin {
        Pin::new(text).unwrap()
    }

    #[test]
    fn all_that_a_token_refused_stays_refused_until_that_token_accepts_one() {
        let tried = TriedPins::default();
        let one = token("1", 1);
        let other = token("2", 2);
        tried.add(&one, &pin("1111"), PinAnswer::Refused);
        tried.add(&one, &pin("2222"), PinAnswer::Refused);
        tried.add(&other, &pin("3333"), PinAnswer::Refused);
        tried.forget(&other);
        // It was put into another reader.
        let moved = token("1", 7);
        for refused in ["1111", "2222"] {
            assert!(tried.is_repeated(&moved, &pin(refused)));
            assert!(!tried.is_repeated(&other, &pin(refused)));
        }
        assert!(!tried.is_repeated(&one, &pin("3333")));
        assert_eq!([&moved, &other].map(|token| tried.count(token)), [2, 0]);
        tried.forget(&moved);
        assert!(!tried.is_repeated(&one, &pin("1111")));
    }

    #[test]
    fn one_doubt_is_no_refusal_and_two_are() {
        let tried = TriedPins::default();
        let token = token("1", 1);
        tried.add(&token, &pin("1111"), PinAnswer::Unclear);
        tried.add(&token, &pin("2222"), PinAnswer::Unclear);
        assert!(!tried.is_repeated(&token, &pin("1111")));
        tried.add(&token, &pin("1111"), PinAnswer::Unclear);
        assert!(tried.is_repeated(&token, &pin("1111")));
        assert_eq!(tried.count(&token), 3);
    }
}
