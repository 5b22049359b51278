//! One prompt at a time on a terminal, and none right after one that was left.
//!
//! A client that opens ten connections starts ten processes, and k9s starts the next when one has
//! failed. A person who has said no to the first prompt has said it to those behind it, too.

use std::cell::RefCell;
use std::time::{Duration, SystemTime};

use crate::error::LoginError;
use crate::printable::printable;
use crate::process;
use crate::process::lock::{self, Lock, LockError};
use crate::process::marker::Marker;

/// How long no new process asks after a prompt was left. Somebody who wants to go on after all
/// doesn't wait long.
const BRAKE: Duration = Duration::from_secs(5);

/// Who is asked: nobody else asks there meanwhile.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Place {
    /// The session's terminal.
    Terminal,
    /// A window of another program's.
    Window,
}

/// This process's turn to ask.
pub(super) struct Turn {
    lock: RefCell<Option<Lock>>,
    place: String,
    marker: Option<Marker>,
    token: String,
}

impl Turn {
    /// Waits for the prompts before this one. `since` is when the PIN was first needed: if one of
    /// them was left since then, this one was behind it.
    pub(super) fn take(place: Place, token: &str, since: SystemTime) -> Result<Self, LoginError> {
        // Its number stands for the terminal, which processes see under different names.
        let place = match place {
            Place::Terminal => format!("terminal of session {}", process::session()),
            Place::Window => "window".to_owned(),
        };
        let lock = acquire(&place)?;
        let marker = Marker::of("left", &format!("{place}\0{token}")).ok();
        let left = marker.as_ref().and_then(Marker::time);
        if left.is_some_and(|left| is_braked(left, since, SystemTime::now())) {
            return Err(LoginError::CancelledBefore {
                token: token.to_owned(),
            });
        }
        Ok(Self {
            lock: RefCell::new(lock),
            place,
            marker,
            token: token.to_owned(),
        })
    }

    /// The prompt was left. To be called before a signal that came meanwhile ends the process.
    pub(super) fn brake(&self) {
        if let Some(marker) = &self.marker {
            marker.remove();
            // Somebody is asked once more without it.
            let _ = marker.add(&format!(
                "the prompt for token {} was left",
                printable(&self.token)
            ));
        }
    }

    /// Lets others ask while this process is stopped, and waits for its turn again.
    pub(super) fn yield_while(&self, stopped: impl FnOnce()) -> Result<(), LoginError> {
        self.lock.replace(None);
        stopped();
        self.lock.replace(acquire(&self.place)?);
        Ok(())
    }
}

fn acquire(place: &str) -> Result<Option<Lock>, LoginError> {
    match Lock::acquire(place, &mut |_| {}) {
        Ok(lock) => Ok(Some(lock)),
        Err(LockError::Unavailable(_)) => Ok(None),
        Err(LockError::Busy { holder }) => {
            let holder = holder.map_or_else(String::new, |holder| format!(" (process {holder})"));
            Err(LoginError::Terminal {
                reason: format!(
                    "another prompt{holder} has had it for {} s",
                    lock::LIMIT.as_secs()
                ),
            })
        }
    }
}

fn is_braked(left: SystemTime, since: SystemTime, now: SystemTime) -> bool {
    // From the future, it tells nothing but that somebody set the clock.
    now.duration_since(left)
        .is_ok_and(|age| age < BRAKE || left > since && age < lock::LIMIT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prompt_that_was_left_brakes_those_behind_it_and_new_ones_for_a_while() {
        let at = |seconds: u64| SystemTime::UNIX_EPOCH + Duration::from_secs(1_000 + seconds);
        let left = at(100);
        // Those that were waiting.
        assert!(is_braked(left, at(60), at(101)));
        assert!(is_braked(left, at(60), at(150)));
        assert!(!is_braked(left, at(60), at(200)));
        // New ones.
        assert!(is_braked(left, at(104), at(104)));
        assert!(!is_braked(left, at(105), at(105)));
        assert!(!is_braked(left, at(50), at(99)));
    }
}
