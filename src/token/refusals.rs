//! What a token has refused, remembered beyond this process: a wrong PIN that nobody types must not
//! be sent again by the next request, nor by those that run beside this one.
//!
//! The token's own memory is CKF_USER_PIN_COUNT_LOW (PKCS#11, section 3.2). Not all modules report
//! it, so a marker stands beside it, with a line for each PIN that was sent and not accepted: written
//! before the PIN is sent, since the process may be killed before there is an answer.
//!
//! Of a stored PIN that was refused, the line has [`MARK`] bits of a hash. Another one is told from
//! it all but once in 64 times, and then a person has to log in. A thief who reads them is left with
//! one in 64 of what that PIN could have been, and it is not the token's. A slow hash would add
//! nothing: so few bits confirm no guess. The same PIN always gives the same, so that they don't add
//! up. Of a PIN that may have been right there are none.

#![forbid(unsafe_code)]

use std::time::SystemTime;

use sha2::{Digest as _, Sha256};

use super::error::TokenError;
use super::slot::{PinState, TokenState};
use crate::pin::Pin;
use crate::printable::printable;
use crate::process::lock::{self, Lock, LockError};
use crate::process::marker::{Line, Marker};
use crate::process::watchdog;

/// Logins that came to no end, or to one that says nothing, before they count as a refusal: a client
/// that has no patience left kills, and a right PIN must not be held back for one kill.
const DOUBTS: usize = 2;

/// Of a hash, what is kept.
const MARK: u8 = 0b11_1111;

/// How the lines of a marker begin; as long as each other, so that one needs no room to become the
/// other.
const REFUSED: &str = "PIN refused by";
const UNCLEAR: &str = "PIN unclear by";
/// In the place of a mark.
const UNMARKED: &str = "--";

/// The memory of one token.
pub(super) struct Refusals {
    token: String,
    /// Tells it from others with its serial number.
    name: String,
    /// Of all that may count wrong PINs together.
    subject: String,
    marker: Marker,
    /// In other places, in which an earlier process may have had to write.
    elsewhere: Vec<Marker>,
    /// Left where COUNT_LOW is set after a login, so that it says nothing.
    always_low: (Marker, Vec<Marker>),
}

/// Whether a stored PIN may be sent.
pub(super) enum Verdict {
    Clear,
    Refused,
    /// If it hasn't this mark.
    Unless(u8),
}

/// A PIN that is being sent.
pub(super) struct Sent {
    line: Line,
    text: String,
}

impl Refusals {
    /// Where there is no safe place to remember anything, a text says why.
    pub(super) fn of(token: &TokenState) -> Result<Self, String> {
        let subject = subject(token);
        let name = whole_name(token);
        let (marker, elsewhere) = Marker::remembered("refused", &subject)?;
        Ok(Self {
            token: printable(&token.name.to_string()).into_owned(),
            always_low: Marker::remembered("low", &name)?,
            name,
            subject,
            marker,
            elsewhere,
        })
    }

    pub(super) fn verdict(&self, state: &TokenState) -> Verdict {
        let lines: String = self.all().filter_map(Marker::text).collect();
        let (refused, unclear): (Vec<_>, Vec<_>) =
            lines.lines().partition(|line| !line.starts_with(UNCLEAR));
        let is_low = state.pin == PinState::CountLow;
        match (refused.as_slice(), unclear.len()) {
            ([], 0) if !is_low || self.is_always_low() => Verdict::Clear,
            ([], doubts) if doubts > 0 && doubts < DOUBTS && !is_low => Verdict::Clear,
            // Once: one that is made anew each time would be sent each time.
            ([only], 0) => mark_in(only).map_or(Verdict::Refused, Verdict::Unless),
            _ => Verdict::Refused,
        }
    }

    /// Some bits of it, the same for the same PIN.
    pub(super) fn mark(&self, pin: &Pin) -> u8 {
        // Boxed, it is wiped where it is.
        let mut hash = Box::new(Sha256::new());
        hash.update(self.subject.as_bytes());
        hash.update([0]);
        hash.update(pin.expose().as_bytes());
        hash.finalize_reset().first().map_or(0, |byte| byte & MARK)
    }

    /// To be called before a PIN is sent. Where that can't be remembered, a text says why.
    pub(super) fn send(&self) -> Result<Sent, String> {
        let text = self.line(UNCLEAR, None);
        let line = self.marker.add(&text)?;
        Ok(Sent { line, text })
    }

    fn line(&self, what: &str, mark: Option<u8>) -> String {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let seconds = now.map_or(0, |now| now.as_secs());
        let mark = mark.map_or_else(|| UNMARKED.to_owned(), |mark| format!("{mark:02x}"));
        let name = short(&self.name);
        format!("{what} token {} at {seconds} ({name} {mark})", self.token)
    }

    /// To be called for each login, with the token's state after it where that was low before.
    pub(super) fn forget(&self, after: Option<PinState>) {
        let own = format!(" ({} ", short(&self.name));
        for marker in self.all() {
            if let Some(text) = marker.text() {
                let others = text.lines().filter(|line| !line.contains(&own));
                marker.write(&others.collect::<Vec<_>>().join("\n"));
            }
        }
        if after == Some(PinState::CountLow) && !self.is_always_low() {
            // Stored PINs aren't sent without it.
            let _ = self
                .always_low
                .0
                .add(&format!("token {} says COUNT_LOW always", self.token));
        }
    }

    fn all(&self) -> impl Iterator<Item = &Marker> {
        std::iter::once(&self.marker).chain(&self.elsewhere)
    }

    fn is_always_low(&self) -> bool {
        let (marker, elsewhere) = &self.always_low;
        let mut all = std::iter::once(marker).chain(elsewhere);
        all.any(|marker| marker.time().is_some())
    }
}

impl Sent {
    /// The token has refused it; the mark of one that was stored.
    pub(super) fn refused(&self, mark: Option<u8>) {
        let mut text = self.text.replacen(UNCLEAR, REFUSED, 1);
        if let Some(mark) = mark
            && let Some(before) = text.strip_suffix(&format!("{UNMARKED})"))
        {
            text = format!("{before}{mark:02x})");
        }
        self.line.replace_with(&text);
    }

    /// The token has not looked at it.
    pub(super) fn not_looked_at(&self) {
        self.line.take_back();
    }
}

fn mark_in(line: &str) -> Option<u8> {
    let mark = line.strip_suffix(')')?.rsplit(' ').next()?;
    u8::from_str_radix(mark, 16).ok()
}

/// A text's own, to be found in a line.
fn short(name: &str) -> String {
    let hash = Sha256::digest(name.as_bytes());
    hash.iter()
        .take(4)
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// Keeps other processes, whichever library they use, from sending this token a PIN meanwhile. One
/// that keeps it all the while may have sent one that the token hasn't answered. Without a place for
/// the lock it goes on.
pub(super) fn alone_with(token: &TokenState) -> Result<Option<Lock>, TokenError> {
    // The library isn't to blame for this wait.
    let _pause = watchdog::pause();
    match Lock::acquire_for_memory(&format!("token {}", subject(token))) {
        Ok(lock) => Ok(Some(lock)),
        Err(LockError::Unavailable(_)) => Ok(None),
        Err(LockError::Busy { holder }) => Err(TokenError::Busy {
            waited: lock::LIMIT,
            holder,
        }),
    }
}

/// The token without its slot, which moves. A card may show itself as several tokens whose PIN is
/// one, with one serial number and several labels; a serial number of zeros is none.
fn subject(token: &TokenState) -> String {
    let serial = &token.name.serial;
    if serial.chars().all(|it| it == '0' || it == ' ') {
        return whole_name(token);
    }
    [token.manufacturer.as_str(), &token.model, serial].join("\0")
}

fn whole_name(token: &TokenState) -> String {
    [
        token.manufacturer.as_str(),
        &token.model,
        &token.name.serial,
        &token.name.label,
    ]
    .join("\0")
}
