//! What was sent to a token and what it refused, remembered beyond this process: a wrong
//! stored PIN must not be sent again by the next request, nor by one that runs at the same time.
//!
//! The token's own memory is CKF_USER_PIN_COUNT_LOW (PKCS#11, section 3.2). Not all modules report
//! it, so each token has a ledger besides: a locked file with a line for each PIN that was sent and
//! not accepted. The line is written before the PIN is sent, since the process may be killed before
//! there is an answer; the answer only changes it, which needs no room on the disk. [`Ledger::begin`]
//! and [`Ledger::end`] are of one ledger, and it is locked until it is dropped: no other process of
//! this user sends the token a PIN meanwhile.
//!
//! The line of a stored PIN that was refused has [`MARK`] bits of a hash. They tell another PIN from
//! it all but once in 64 times, and then a person has to log in. A thief who reads them is left with
//! one in 64 of what that PIN could have been, and it is not the token's. A slow hash would add
//! nothing: so few bits confirm no guess. The same PIN always gives the same bits, so that they don't
//! add up. There are none of a PIN that may have been right.

#![forbid(unsafe_code)]

use std::time::SystemTime;

use sha2::{Digest as _, Sha256};

use super::error::TokenError;
use super::pin_rules::{UNCLEAR_LOGINS, Verdict};
use super::slot::{PinHolder, PinState, TokenState};
use super::tried::TRIED;
use crate::config::TokenName;
use crate::pin::Pin;
use crate::printable::{hex, printable};
use crate::process::lock::{Lock, LockError};
use crate::process::watchdog;

/// The bits of a hash that are kept.
const MARK: u8 = 0b11_1111;

/// What a line is about. The first two are as long as each other, so that one needs no room to become
/// the other.
const REFUSED: &str = "PIN refused by";
const UNCLEAR: &str = "PIN unclear by";
/// The token sets COUNT_LOW even after a login, so that it says nothing.
const ALWAYS_LOW: &str = "COUNT_LOW always set by";
/// In the place of a mark.
const UNMARKED: &str = "--";

/// The memory of one token, locked until this is dropped.
pub(super) struct Ledger {
    /// Without a place for it, why there is none.
    file: Result<Lock, String>,
    token: TokenName,
    holder: PinHolder,
    /// Of all tokens that may count wrong PINs together.
    subject: String,
    /// Tells this token's lines from those of the others.
    own: String,
    /// The line of the PIN that is being sent.
    line: String,
}

/// What a token answered to a PIN.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum PinAnswer {
    /// With its state after the login, where that is known.
    Accepted(Option<PinState>),
    /// No PIN helps until a person has unlocked it, which not all libraries say before a login.
    Locked,
    /// It has not looked at the PIN.
    NotLookedAt,
    Refused,
    /// It may have counted a wrong PIN: it failed, or there was no answer.
    Unclear,
}

impl Ledger {
    /// Keeps other processes, whichever library they use, from sending this token a PIN meanwhile.
    /// Without a place for the ledger there is one that remembers nothing.
    ///
    /// # Errors
    /// Another process keeps it: it may have sent a PIN that the token hasn't answered.
    pub(super) fn open(token: &TokenState, holder: PinHolder) -> Result<Self, TokenError> {
        // The library isn't to blame for this wait.
        let _pause = watchdog::pause();
        let file = match Lock::acquire_lasting(&subject(token, holder), &whole_name(token)) {
            Ok(lock) => Ok(lock),
            Err(LockError::Unavailable(reason)) => Err(reason),
            Err(LockError::Busy(busy)) => return Err(busy.into()),
        };
        Ok(Self::new(file, token, holder))
    }

    fn new(file: Result<Lock, String>, token: &TokenState, holder: PinHolder) -> Self {
        Self {
            file,
            token: token.name.clone(),
            holder,
            subject: subject(token, holder),
            own: short_hash(&whole_name(token)),
            line: String::new(),
        }
    }

    /// What is known against sending this token, in this state, a stored PIN.
    pub(super) fn verdict(&self, state: PinState) -> Verdict {
        match &self.file {
            Ok(file) => judge(&file.lines(), &self.own, state == PinState::CountLow),
            // Without a memory nothing is sent.
            Err(_) => Verdict::Clear,
        }
    }

    /// Some bits of the PIN, the same for the same PIN.
    pub(super) fn mark(&self, pin: &Pin) -> u8 {
        // Boxed, it is wiped where it is.
        let mut hash = Box::new(Sha256::new());
        hash.update(self.subject.as_bytes());
        hash.update([0]);
        hash.update(pin.expose().as_bytes());
        hash.finalize_reset().first().map_or(0, |byte| byte & MARK)
    }

    /// To be called before a PIN is sent.
    ///
    /// # Errors
    /// Why that can't be remembered, for people.
    pub(super) fn begin(&mut self) -> Result<(), String> {
        self.line = self.entry(UNCLEAR, UNMARKED);
        let file = self.file.as_mut().map_err(|reason| reason.clone())?;
        file.add(&self.line)
    }

    /// To be called with the answer to the PIN that was sent; a person typed it, or their program gave
    /// it, if `is_attended`.
    pub(super) fn end(&mut self, pin: &Pin, is_attended: bool, answer: PinAnswer) {
        if let PinAnswer::Accepted(after) = answer {
            return self.accepted(after);
        }
        if is_attended && answer != PinAnswer::NotLookedAt {
            TRIED.add(&self.token, self.holder, pin, answer != PinAnswer::Unclear);
        }
        let mark = match is_attended || answer == PinAnswer::Locked {
            true => UNMARKED.to_owned(),
            false => format!("{:02x}", self.mark(pin)),
        };
        let Ok(file) = &mut self.file else { return };
        match answer {
            PinAnswer::Refused | PinAnswer::Locked => {
                let refused = self.line.replacen(UNCLEAR, REFUSED, 1);
                let before = refused.strip_suffix(&format!("{UNMARKED})"));
                file.replace_added(&format!("{}{mark})", before.unwrap_or(&refused)));
            }
            PinAnswer::NotLookedAt => file.remove_added(),
            PinAnswer::Accepted(_) | PinAnswer::Unclear => {}
        }
    }

    /// The token has accepted a PIN, and its state after that, where it is known.
    pub(super) fn accepted(&mut self, after: Option<PinState>) {
        TRIED.forget(&self.token, self.holder);
        let always_low = self.entry(ALWAYS_LOW, UNMARKED);
        let Ok(file) = &mut self.file else { return };
        file.retain(|line| {
            let is_settled = is_settled(line, &self.own);
            if !is_settled && is_others(line, &self.own) {
                // It stands against that token still: its PIN may be another one.
                line.truncate(line.len() - 1);
                line.push_str(&format!(" {})", self.own));
            }
            is_others(line, &self.own) || line.starts_with(ALWAYS_LOW)
        });
        let is_known = is_always_low(&file.lines(), &self.own);
        if after == Some(PinState::CountLow) && !is_known {
            // Without it stored PINs aren't sent.
            let _ = file.add(&always_low);
        }
    }

    /// For people, too, who find the file.
    fn entry(&self, what: &str, mark: &str) -> String {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let seconds = now.map_or(0, |now| now.as_secs());
        let token = self.token.to_string();
        let token = printable(&token);
        let of = match self.holder {
            PinHolder::User => "",
            PinHolder::SecurityOfficer => "the security officer of ",
        };
        format!("{what} {of}token {token} at {seconds} ({} {mark})", self.own)
    }
}

/// What the lines say against a stored PIN. `own` are the token's own, among those of other tokens
/// that may count wrong PINs with it; `is_low` is what the token says of itself.
fn judge(lines: &[String], own: &str, is_low: bool) -> Verdict {
    let is_always_low = is_always_low(lines, own);
    let sent = lines.iter().filter(|line| !is_settled(line, own));
    // What can't be read is a refusal.
    let (unclear, refused): (Vec<_>, Vec<_>) = sent.partition(|line| line.starts_with(UNCLEAR));
    match (refused.as_slice(), unclear.len()) {
        ([], 0) if !is_low || is_always_low => Verdict::Clear,
        ([], 1..UNCLEAR_LOGINS) if !is_low => Verdict::Clear,
        // Another PIN is sent once: a new one for each request would be sent each time.
        ([only], 0) => mark_in(only).map_or(Verdict::Refused, Verdict::Unless),
        _ => Verdict::Refused,
    }
}

/// Whether the token says COUNT_LOW even after the right PIN.
fn is_always_low(lines: &[String], own: &str) -> bool {
    let mut lines = lines.iter();
    lines.any(|line| line.starts_with(ALWAYS_LOW) && !is_others(line, own))
}

/// Whether the line says nothing against the token: it is of no PIN, or the token has accepted one since.
fn is_settled(line: &str, own: &str) -> bool {
    line.starts_with(ALWAYS_LOW) || words(line).iter().skip(2).any(|token| *token == own)
}

/// Whether the line is another token's of the same card. One that can't be read is of each.
fn is_others(line: &str, own: &str) -> bool {
    words(line).first().is_some_and(|token| *token != own)
}

/// What a line ends with: its token, the mark, and the others that have accepted a PIN since.
fn words(line: &str) -> Vec<&str> {
    // A label could hold the same.
    let end = line.rsplit_once(" (").map(|(_, end)| end);
    let end = end.and_then(|end| end.strip_suffix(')'));
    end.map_or_else(Vec::new, |end| end.split(' ').collect())
}

fn mark_in(line: &str) -> Option<u8> {
    u8::from_str_radix(words(line).get(1)?, 16).ok()
}

fn short_hash(text: &str) -> String {
    let mut hash = hex(&Sha256::digest(text.as_bytes()));
    hash.truncate(8);
    hash
}

/// The token without its slot, which moves, and whose PIN it is. A card may show itself as several
/// tokens whose PIN is one, with one serial number and several labels; a serial number of zeros is none.
fn subject(token: &TokenState, holder: PinHolder) -> String {
    match holder {
        PinHolder::User => card(token),
        PinHolder::SecurityOfficer => card(token) + "\0SO",
    }
}

fn card(token: &TokenState) -> String {
    let serial = &token.name.serial;
    if serial.chars().all(|it| it == '0' || it == ' ') {
        return whole_name(token);
    }
    [token.manufacturer.as_str(), &token.model, serial].join("\0")
}

fn whole_name(token: &TokenState) -> String {
    [token.manufacturer.as_str(), &token.model, &token.name.serial, &token.name.label].join("\0")
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::fs::File;
    use std::path::Path;

    use super::*;
    use crate::pin::{PinKind, PinOrigin};
    use crate::process::lock::in_directory;
    use crate::token::slot::state_with_label as state;
    use PinHolder::{SecurityOfficer, User};

    fn open(place: &Path, label: &str) -> Ledger {
        Ledger::new(Ok(in_directory(place, "ledger")), &state(label), User)
    }

    fn pin(text: &str) -> Pin {
        Pin::new(text).unwrap()
    }

    /// A stored PIN that was sent, and answered so.
    fn sent(place: &Path, label: &str, text: &str, answer: PinAnswer) {
        let mut ledger = open(place, label);
        ledger.begin().unwrap();
        ledger.end(&pin(text), false, answer);
    }

    #[test]
    fn a_pin_without_an_answer_is_there_before_it_is_sent() {
        let parent = tempfile::tempdir().unwrap();
        let place = parent.path().join("state");
        for expected in [Verdict::Clear, Verdict::Clear, Verdict::Refused] {
            let mut ledger = open(&place, "one");
            assert_eq!(ledger.verdict(PinState::Good), expected);
            ledger.begin().unwrap();
            // The process is killed.
        }
        let text = open(&place, "one").file.unwrap().lines().join("\n");
        assert!(
            text.starts_with("PIN unclear by token \"one\" (serial 0815, slotId 1) at "),
            "{text}"
        );
        assert_eq!(text.matches(" --)").count(), 3, "{text}");
    }

    /// The label is the token's, which may be made to harm another one.
    #[test]
    fn a_label_does_not_make_a_line_another_tokens() {
        let parent = tempfile::tempdir().unwrap();
        let place = parent.path().join("state");
        let own = open(&place, "one").own;
        let forging = format!("x ({own} ");
        sent(&place, &forging, "1111", PinAnswer::Refused);
        sent(&place, "one", "2222", PinAnswer::Accepted(None));
        assert_ne!(open(&place, &forging).verdict(PinState::Good), Verdict::Clear);
    }

    /// As when this process had to write where the other one's ledger is not.
    #[test]
    fn a_file_that_another_process_has_emptied_stays_empty() {
        let parent = tempfile::tempdir().unwrap();
        let place = parent.path().join("state");
        let mut ledger = open(&place, "one");
        ledger.begin().unwrap();
        let path = place.join("ledger");
        let file = File::options().write(true).open(path).unwrap();
        file.set_len(11).unwrap();
        ledger.end(&pin("1111"), false, PinAnswer::NotLookedAt);
        assert_eq!(file.metadata().unwrap().len(), 11);
    }

    #[test]
    fn a_refused_pin_leaves_its_mark_until_one_is_accepted() {
        let parent = tempfile::tempdir().unwrap();
        let place = parent.path().join("state");
        let verdict = |label, state| open(&place, label).verdict(state);
        sent(&place, "one", "1111", PinAnswer::NotLookedAt);
        assert_eq!(verdict("one", PinState::Good), Verdict::Clear);
        sent(&place, "one", "1111", PinAnswer::Refused);
        let mark = open(&place, "one").mark(&pin("1111"));
        assert!(mark <= MARK);
        // With the same serial number it may be one card.
        for label in ["one", "two"] {
            for state in [PinState::Good, PinState::CountLow] {
                assert_eq!(verdict(label, state), Verdict::Unless(mark));
            }
        }
        sent(&place, "one", "2222", PinAnswer::Refused);
        assert_eq!(verdict("one", PinState::Good), Verdict::Refused);
        // Another token's login says nothing of this one's PIN, and something of its own.
        for _ in 0..2 {
            sent(&place, "two", "3333", PinAnswer::Accepted(None));
            for (label, expected) in [("one", false), ("two", true), ("three", false)] {
                let is_clear = verdict(label, PinState::Good) == Verdict::Clear;
                assert_eq!(is_clear, expected, "{label}");
            }
        }
        sent(&place, "two", "4444", PinAnswer::Refused);
        assert_ne!(verdict("two", PinState::Good), Verdict::Clear);
        for label in ["one", "two"] {
            assert_ne!(verdict(label, PinState::Good), Verdict::Clear, "{label}");
            sent(&place, label, "3333", PinAnswer::Accepted(None));
            assert_eq!(verdict(label, PinState::Good), Verdict::Clear, "{label}");
        }
        assert_eq!(open(&place, "one").file.unwrap().lines(), [""; 0]);
    }

    #[test]
    fn after_a_locked_pin_no_stored_one_is_sent_until_a_person_has_logged_in() {
        let parent = tempfile::tempdir().unwrap();
        let place = parent.path().join("state");
        sent(&place, "one", "1111", PinAnswer::Locked);
        assert_eq!(open(&place, "one").verdict(PinState::Good), Verdict::Refused);
        sent(&place, "one", "1111", PinAnswer::Accepted(None));
        assert_eq!(open(&place, "one").verdict(PinState::Good), Verdict::Clear);
    }

    /// Otherwise a PIN that was corrected would be held back.
    #[test]
    fn other_pins_have_other_marks() {
        let ledger = Ledger::new(Err("no place".to_owned()), &state("one"), User);
        let marks = ["1111", "2222", "3333", "4444"].map(|text| ledger.mark(&pin(text)));
        let all: HashSet<_> = marks.into_iter().collect();
        assert_eq!(all.len(), marks.len());
    }

    #[test]
    fn the_security_officers_refusals_are_not_the_users() {
        let token = state("one");
        assert_ne!(subject(&token, User), subject(&token, SecurityOfficer));
        let ledger = Ledger::new(Err("no place".to_owned()), &token, SecurityOfficer);
        let entry = ledger.entry(UNCLEAR, UNMARKED);
        assert!(entry.contains("security officer of token"), "{entry}");
        assert_eq!(words(&entry), [ledger.own.as_str(), UNMARKED]);
    }

    /// Which PINs count together.
    #[test]
    fn one_serial_number_is_one_card_and_zeros_are_none() {
        let of = |serial: &str, label: &str| {
            let mut token = state(label);
            token.name.serial = serial.to_owned();
            subject(&token, User)
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
    fn a_person_s_pin_leaves_no_mark() {
        let parent = tempfile::tempdir().unwrap();
        let place = parent.path().join("state");
        let mut ledger = open(&place, "person's");
        ledger.begin().unwrap();
        ledger.end(&pin("1111"), true, PinAnswer::Refused);
        assert_eq!(ledger.verdict(PinState::Good), Verdict::Refused);
        assert!(ledger.file.unwrap().lines().join("").ends_with(" --)"));
    }

    #[test]
    fn a_flag_that_outlasts_a_login_says_nothing_from_then_on() {
        let parent = tempfile::tempdir().unwrap();
        let place = parent.path().join("state");
        let verdict = |label| open(&place, label).verdict(PinState::CountLow);
        assert_eq!(verdict("one"), Verdict::Refused);
        for _ in 0..2 {
            let low = Some(PinState::CountLow);
            sent(&place, "one", "1111", PinAnswer::Accepted(low));
            assert_eq!(verdict("one"), Verdict::Clear);
            assert_eq!(open(&place, "one").file.unwrap().lines().len(), 1);
        }
        assert_eq!(verdict("two"), Verdict::Refused);
        sent(&place, "one", "1111", PinAnswer::Unclear);
        assert_eq!(verdict("one"), Verdict::Refused);
    }

    #[test]
    fn without_a_place_nothing_can_be_remembered() {
        let mut ledger = Ledger::new(Err("no place".to_owned()), &state("placeless"), User);
        assert_eq!(ledger.begin(), Err("no place".to_owned()));
        ledger.end(&pin("1111"), true, PinAnswer::Refused);
        assert_eq!(TRIED.count(&state("placeless").name, User), 1);
        ledger.accepted(None);
        assert_eq!(TRIED.count(&state("placeless").name, User), 0);
    }

    #[test]
    fn what_a_person_tries_is_counted_until_one_is_accepted() {
        let token = state("tried");
        let mut ledger = Ledger::new(Err("no place".to_owned()), &token, User);
        let origin = || PinOrigin::Askpass("ask".into());
        for (is_attended, answer, count, is_refused) in [
            (false, PinAnswer::Refused, 0, false),
            (false, PinAnswer::Unclear, 0, false),
            (true, PinAnswer::NotLookedAt, 0, false),
            (true, PinAnswer::Unclear, 1, false),
            (true, PinAnswer::Refused, 2, true),
            (true, PinAnswer::Accepted(None), 0, false),
        ] {
            let pin = pin("1111");
            ledger.end(&pin, is_attended, answer);
            let told = format!("{is_attended}, {answer:?}");
            assert_eq!(TRIED.count(&token.name, User), count, "{told}");
            let check = TRIED.check(&token.name, (User, PinKind::User), &pin, origin());
            assert_eq!(check.is_err(), is_refused, "{told}");
        }
    }

    #[test]
    fn what_is_not_known_is_a_refusal() {
        let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
        for (text, is_low, expected) in [
            ("", false, Verdict::Clear),
            ("", true, Verdict::Refused),
            ("garbage", false, Verdict::Refused),
            ("garbage (own 3f)", false, Verdict::Unless(0x3f)),
            ("garbage (other -- own)", false, Verdict::Clear),
            ("garbage (other -- next)", false, Verdict::Refused),
            ("PIN unclear by token a (own --)", false, Verdict::Clear),
            ("PIN unclear by token a (own --)", true, Verdict::Refused),
            ("COUNT_LOW always set by token a (own --)", true, Verdict::Clear),
            ("COUNT_LOW always set by token a (other --)", true, Verdict::Refused),
            (
                "PIN refused by token a (own 0a)\nPIN unclear by token a (own --)",
                false,
                Verdict::Refused,
            ),
        ] {
            assert_eq!(judge(&lines(text), "own", is_low), expected, "{text}");
        }
    }
}
