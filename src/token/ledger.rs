//! The record of a token: a file with a line for a PIN that was sent and not accepted. It outlives the process.
//!
//! The line is written before the PIN is sent, since the process may be killed before the token has answered, and only an
//! accepted PIN removes it. So a wrong stored PIN is not sent again by the next request. Nor is it by a request at the same
//! time: as long as a [`Ledger`] exists the record is locked, and no other process of this user sends the token a PIN. The
//! token remembers a wrong PIN itself (CKF_USER_PIN_COUNT_LOW; PKCS#11, section 3.2), but not all libraries report that.
//!
//! Besides, [`TriedPins`] is the memory of this process: keyed hashes of the PINs that it has tried since the token has
//! last accepted one. A person's three tries are for all connections of a run together, and a program that is asked for a
//! PIN may give the same one each time.

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

/// How a line begins that says that a PIN was sent. A line that begins in a way that isn't known is taken for such a line.
const SENT: &str = "PIN sent to";
/// How a line begins that says that this token has accepted a PIN. It is kept only as long as there is a line of another
/// token of the same card.
const ACCEPTED: &str = "PIN accepted by";

/// The record of one card, locked until this is dropped.
pub(super) struct Ledger {
    /// The locked file; or why there can be none.
    file: Result<Lock, String>,
    /// The lines of the record from before the PIN was sent.
    before: Vec<String>,
    token: String,
    /// Distinguishes this token's lines from those of the card's other tokens.
    id: String,
}

/// What a token has answered to a PIN that was sent.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum PinAnswer {
    Accepted,
    /// The PIN is locked, so that none helps until a person has unlocked it. Not all libraries say that before a login.
    Locked,
    /// The library itself has refused the PIN's form, and the token has counted none.
    Malformed,
    /// The token has not looked at the PIN.
    NotLookedAt,
    Refused,
    /// The token may have counted a wrong PIN: the login has failed in another way, or there was no answer.
    Unclear,
}

impl Ledger {
    /// Locks the record, which keeps other processes from sending this token a PIN, whichever library they use. Where there
    /// is no place for the file, the record remembers nothing.
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

    /// Whether a PIN was sent to this token, or to another one of its card, and this token has accepted none since.
    pub(super) fn stands(&self) -> bool {
        let is_accepted = |line: &&String| line.starts_with(ACCEPTED) && self.is_own(line);
        let mut since = self.before.iter().rev().take_while(|line| !is_accepted(line));
        since.any(|line| is_of_sent(line))
    }

    /// Writes the line, before a PIN is sent. The error is the reason why it can't be written, for people.
    pub(super) fn begin(&mut self) -> Result<(), String> {
        let mut lines = self.before.clone();
        if !lines.iter().any(|line| line.starts_with(SENT) && self.is_own(line)) {
            lines.push(self.line(SENT));
        }
        self.write(&lines)
    }

    /// Records the answer to the PIN that was sent.
    pub(super) fn end(&mut self, answer: PinAnswer) {
        let mut lines = self.before.clone();
        match answer {
            PinAnswer::Locked | PinAnswer::Refused | PinAnswer::Unclear => {
                // The line stays, whatever the answer to the next PIN in this login is.
                self.before = recorded(&self.file);
                return;
            }
            PinAnswer::Malformed | PinAnswer::NotLookedAt => {}
            PinAnswer::Accepted => {
                // The lines of the card's other tokens stay: they may have other PINs.
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

    /// A line that begins with `what`, for this token and with the time. It is also for people who find the file.
    fn line(&self, what: &str) -> String {
        let now = unix_time();
        format!("{what} token {} at {now} ({})", printable(&self.token), self.id)
    }
}

/// The lines of the record; none where there is no place for it.
fn recorded(file: &Result<Lock, String>) -> Vec<String> {
    file.as_ref().map_or_else(|_| Vec::new(), Lock::lines)
}

/// Whether the line stands for a PIN that was sent. A line that can't be understood does.
fn is_of_sent(line: &str) -> bool {
    !line.starts_with(ACCEPTED)
}

/// The id of the token that the line is about. It is taken from the line's end, since the token's label before it could
/// contain an id as well. An earlier release wrote more behind the id.
fn token_of(line: &str) -> Option<&str> {
    line.strip_suffix(')')?.rsplit_once(" (")?.1.split(' ').next()
}

/// The name of the card that the token is on. A card can show itself as several tokens with one PIN, which have the same
/// serial number and different labels. A serial number of zeros says nothing, so that the label counts then. The slot
/// doesn't count, since a card can move.
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

/// After this many logins without a clear answer, the same PIN is not taken from a program again.
pub(super) const UNCLEAR_LOGINS: usize = 2;

pub(super) static TRIED_PINS: LazyLock<TriedPins> = LazyLock::new(TriedPins::default);

#[derive(Default)]
pub(super) struct TriedPins {
    tries: Mutex<Vec<Try>>,
    /// The hash's key is random, and this process's own.
    hash: RandomState,
}

struct Try {
    token: TokenName,
    pin: u64,
    /// What the token has answered. Unless that is a refusal, it may not have looked at the PIN.
    answer: PinAnswer,
}

impl TriedPins {
    /// Notes a PIN that the token has not accepted, with its answer.
    pub(super) fn add(&self, token: &TokenName, pin: &Pin, answer: PinAnswer) {
        let pin = self.hash.hash_one(pin.expose());
        self.all().push(Try { token: token.clone(), pin, answer });
    }

    pub(super) fn forget(&self, token: &TokenName) {
        self.all().retain(|tried| !tried.token.is_same_token(token));
    }

    /// How many PINs this process has sent to the token since that accepted one.
    pub(super) fn count(&self, token: &TokenName) -> usize {
        self.all().iter().filter(|tried| tried.token.is_same_token(token)).count()
    }

    /// Whether the PIN, which a program gives, is one that the token has refused or may have refused.
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
