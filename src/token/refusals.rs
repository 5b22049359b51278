//! What a token has refused, remembered beyond this process: a wrong PIN that nobody types must not
//! be sent again by the next request, nor by those that run beside this one.
//!
//! The token's own memory is CKF_USER_PIN_COUNT_LOW (PKCS#11, section 3.2). Not all modules report
//! it, so a marker stands beside it, with the token's name and the times. It says nothing of the
//! PIN: whatever could recognise the refused one again, a thief could try PINs against. So only a
//! PIN file that was changed since is known to be another PIN; otherwise a person has to log in.

#![forbid(unsafe_code)]

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::SystemTime;

use super::slot::{PinState, TokenState};
use crate::error::{PinOrigin, TokenError};
use crate::printable::printable;
use crate::process::lock::{self, Lock, LockError};
use crate::process::marker::{Marker, moment};
use crate::process::watchdog;

/// Logins that came to no end, or to one that says nothing, before they count as a refusal.
const DOUBTS: usize = 2;

/// How the lines of a marker begin.
const REFUSED: &str = "PIN refused";
const UNANSWERED: &str = "PIN not answered";

/// The memory of one token.
#[derive(Clone)]
pub(super) struct Refusals {
    token: String,
    marker: Marker,
    /// The marker as it will be if the PIN that is being sent is refused. On its own, left by a
    /// process that was killed meanwhile, it counts for nothing: clients kill often, and a right PIN
    /// must not be held back for it.
    prepared: Marker,
    /// Left where COUNT_LOW is set after a login, so that it says nothing.
    always_low: Marker,
}

impl Refusals {
    /// Where there is no safe place to remember anything, a text says why.
    pub(super) fn of(token: &TokenState) -> Result<Self, String> {
        let marker = Marker::of("refused", &subject(token))?;
        Ok(Self {
            token: printable(&token.name.to_string()).into_owned(),
            prepared: marker.beside("prepared"),
            always_low: marker.beside("low"),
            marker,
        })
    }

    /// Whether a stored PIN may be the one that was refused.
    pub(super) fn may_include(&self, state: &TokenState, origin: &PinOrigin) -> bool {
        let Some(lines) = self.marker.text() else {
            return state.pin == PinState::CountLow && self.always_low.time().is_none();
        };
        let is_doubt = |line: &&str| line.starts_with(UNANSWERED);
        let doubts = lines.lines().filter(is_doubt).count();
        let refused = lines.lines().count() - doubts;
        match origin {
            // Once: a file that is made anew each time would be sent each time.
            PinOrigin::File(path) if refused == 1 => {
                !self.marker.time().is_some_and(|time| is_newer(path, time))
            }
            _ => refused > 0 || doubts >= DOUBTS || state.pin == PinState::CountLow,
        }
    }

    /// To be called before a PIN is sent: takes the room that a refusal needs to be remembered.
    /// Where there is none, a text says why.
    pub(super) fn prepare(&self) -> Result<(), String> {
        let before = self.marker.text();
        let is_first = before.is_none();
        let lines = before.unwrap_or_default() + &self.line(REFUSED);
        let written = self.prepared.write(&lines);
        // On a full disk there may still be room for a file: being there is enough of a first one.
        if written.is_err() && is_first && self.prepared.time().is_some() {
            return Ok(());
        }
        written.inspect_err(|_| self.prepared.remove())
    }

    /// To be called when nothing more comes of what was sent.
    pub(super) fn end(&self) {
        self.prepared.remove();
    }

    /// To be called for each refused PIN, whoever gave it.
    pub(super) fn remember(&self) {
        if !self.prepared.replace(&self.marker) {
            // Nobody relies on it: see `prepare`.
            let _ = self.marker.add(&self.line(REFUSED));
        }
    }

    /// To be called where a login may have been refused: the library didn't answer, or with what
    /// may mean anything. Without room for a doubt it is a refusal.
    pub(super) fn doubt(&self) {
        if self.marker.add(&self.line(UNANSWERED)).is_err() {
            self.remember();
        }
    }

    fn line(&self, what: &str) -> String {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let seconds = now.map_or(0, |now| now.as_secs());
        format!("{what} by token {} at {seconds}", self.token)
    }

    /// To be called for each login, with the token's state after it where that was low before.
    pub(super) fn forget(&self, after: Option<PinState>) {
        self.marker.remove();
        if after == Some(PinState::CountLow) && self.always_low.time().is_none() {
            // Stored PINs aren't sent without it.
            let _ = self
                .always_low
                .add(&format!("token {} says COUNT_LOW always", self.token));
        }
    }
}

/// Keeps other processes, whichever library they use, from sending this token a PIN meanwhile. One
/// that keeps it all the while may have sent one that the token hasn't answered. Without a place for
/// the lock it goes on.
pub(super) fn alone_with(token: &TokenState) -> Result<Option<Lock>, TokenError> {
    // The library isn't to blame for this wait.
    let _pause = watchdog::pause();
    match Lock::acquire(&format!("token {}", subject(token)), &mut |_| {}) {
        Ok(lock) => Ok(Some(lock)),
        Err(LockError::Unavailable(_)) => Ok(None),
        Err(LockError::Busy { holder }) => Err(TokenError::Busy {
            waited: lock::LIMIT,
            holder,
        }),
    }
}

/// The token without its slot, which moves.
fn subject(token: &TokenState) -> String {
    [
        token.manufacturer.as_str(),
        &token.model,
        &token.name.serial,
        &token.name.label,
    ]
    .join("\0")
}

/// Whether the file got its content or its name after that (st_ctime, which nobody can set back).
fn is_newer(path: &Path, time: SystemTime) -> bool {
    let changed = fs::metadata(path)
        .ok()
        .and_then(|found| moment(found.ctime(), found.ctime_nsec()));
    // One from the future would be newer for ever.
    changed.is_some_and(|changed| changed > time && changed <= SystemTime::now())
}
