//! One prompt at a time on a terminal, and none right after one that was cancelled.
//!
//! A client that opens ten connections starts ten processes, and k9s starts the next when one has
//! failed. A person who cancels the first prompt means those behind it, too.

use std::cell::RefCell;
use std::thread;
use std::time::{Duration, SystemTime};

use super::notice::show_after;
use crate::pin::PinError;
use crate::printable::printable;
use crate::process;
use crate::process::lock::{self, Lock, LockBusy, LockError};

/// How long no new process asks after a prompt was cancelled. A person who wants to go on after all
/// doesn't wait long.
const REST: Duration = Duration::from_secs(5);

/// Between the time and the token of a line.
const PROMPT_FOR: &str = ": the prompt for token ";
/// How a prompt ended without an answer.
const CANCELLED: &str = "cancelled";
/// By a signal.
const INTERRUPTED: &str = "interrupted";

/// Where a person is asked, by one process at a time.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum PromptPlace {
    /// The session's terminal.
    Terminal,
    /// A window of another program's.
    Window,
}

/// The place to ask in, for this process alone.
pub(super) struct PromptSlot {
    /// `None` where there can be no lock.
    lock: RefCell<Option<Lock>>,
    place: String,
    token: String,
}

impl PromptSlot {
    /// Waits for the prompts before this one. `since` is when the PIN was first needed: if one of
    /// them was cancelled since then, this one was behind it.
    ///
    /// # Errors
    /// This one is cancelled, too, or others keep the place.
    pub(super) fn take(
        place: PromptPlace,
        token: &str,
        since: SystemTime,
    ) -> Result<Self, PinError> {
        // Its number stands for the terminal, which processes see under different names.
        let place = match place {
            PromptPlace::Terminal => format!("terminal of session {}", process::session()),
            PromptPlace::Window => "window".to_owned(),
        };
        let slot = Self {
            lock: RefCell::new(acquire(&place)?),
            place,
            token: printable(token).into_owned(),
        };
        while let Some((how, left)) = slot.last_left() {
            match Delay::after(left, since, SystemTime::now()) {
                Delay::None => break,
                // A person who interrupts a client and starts it again wants a prompt.
                Delay::Wait(rest) if how == INTERRUPTED => {
                    let text = format!(
                        "the last prompt was cancelled a moment ago; asking again in {} s",
                        rest.as_secs() + 1
                    );
                    let _notice = show_after(Duration::ZERO, &text);
                    thread::sleep(rest);
                }
                Delay::Cancelled | Delay::Wait(_) => {
                    return Err(PinError::CancelledBefore {
                        token: token.to_owned(),
                    });
                }
            }
        }
        Ok(slot)
    }

    /// The prompt was cancelled, or not answered.
    pub(super) fn cancelled(&self) {
        self.leave(CANCELLED);
    }

    /// A signal came meanwhile. To be called before it ends the process.
    pub(super) fn interrupted(&self) {
        self.leave(INTERRUPTED);
    }

    /// How and when this token's last prompt ended without an answer.
    fn last_left(&self) -> Option<(String, SystemTime)> {
        let lock = self.lock.borrow();
        let lines = lock.as_ref()?.lines();
        lines.iter().find_map(|line| {
            let (how, time, token) = parsed(line)?;
            (token == self.token).then(|| (how.to_owned(), time))
        })
    }

    fn leave(&self, how: &str) {
        if let Some(lock) = self.lock.borrow_mut().as_mut() {
            let now = SystemTime::now();
            lock.retain(|line| {
                parsed(line).is_some_and(|(_, time, token)| {
                    let age = now.duration_since(time);
                    token != self.token && age.is_ok_and(|age| age < lock::LIMIT)
                })
            });
            let since_epoch = now.duration_since(SystemTime::UNIX_EPOCH);
            let micros = since_epoch.unwrap_or_default().as_micros();
            // Without it the next process asks at once.
            let _ = lock.add(&format!("{how} at {micros}{PROMPT_FOR}{}", self.token));
        }
    }

    /// Lets others ask while this process is stopped, and waits for the place again.
    ///
    /// # Errors
    /// Others keep the place.
    pub(super) fn yield_while(&self, stopped: impl FnOnce()) -> Result<(), PinError> {
        self.lock.replace(None);
        stopped();
        self.lock.replace(acquire(&self.place)?);
        Ok(())
    }
}

/// How a prompt ended, when, and for which token.
fn parsed(line: &str) -> Option<(&str, SystemTime, &str)> {
    let (how, rest) = line.split_once(" at ")?;
    let (micros, token) = rest.split_once(PROMPT_FOR)?;
    let since_epoch = Duration::from_micros(micros.parse().ok()?);
    Some((how, SystemTime::UNIX_EPOCH + since_epoch, token))
}

fn acquire(place: &str) -> Result<Option<Lock>, PinError> {
    match Lock::acquire_within(lock::LIMIT, place, &mut |_| {}) {
        Ok(lock) => Ok(Some(lock)),
        Err(LockError::Unavailable(_)) => Ok(None),
        Err(LockError::Busy(LockBusy { waited, holder })) => {
            let holder = holder.map_or_else(String::new, |holder| format!(" (process {holder})"));
            Err(PinError::Terminal {
                reason: format!(
                    "another prompt{holder} has had it for {} s",
                    waited.as_secs()
                ),
            })
        }
    }
}

/// What a prompt that was cancelled means for another one.
#[derive(Debug, Eq, PartialEq)]
enum Delay {
    None,
    /// It waited behind the one that was cancelled, and is cancelled with it.
    Cancelled,
    /// It is new, and this is left of the time.
    Wait(Duration),
}

impl Delay {
    fn after(left: SystemTime, since: SystemTime, now: SystemTime) -> Self {
        match now.duration_since(left) {
            Ok(age) if left > since && age < lock::LIMIT => Self::Cancelled,
            Ok(age) if left <= since && age < REST => Self::Wait(REST - age),
            // From the future, it says nothing but that the clock was set.
            Ok(_) | Err(_) => Self::None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prompt_that_was_cancelled_cancels_those_behind_it_and_delays_new_ones() {
        let at = |seconds: u64| SystemTime::UNIX_EPOCH + Duration::from_secs(1_000 + seconds);
        let left = at(100);
        let delay = |since, now| Delay::after(left, at(since), at(now));
        // Those that were waiting.
        assert_eq!(delay(60, 101), Delay::Cancelled);
        assert_eq!(delay(60, 150), Delay::Cancelled);
        assert_eq!(delay(60, 200), Delay::None);
        // New ones.
        assert_eq!(delay(104, 104), Delay::Wait(Duration::from_secs(1)));
        assert_eq!(delay(100, 100), Delay::Wait(REST));
        assert_eq!(delay(105, 105), Delay::None);
        assert_eq!(delay(50, 99), Delay::None);
    }
}
