//! One prompt at a time on a terminal, and none right after one that was cancelled.
//!
//! A client that opens ten connections starts ten processes, and k9s starts the next when one has
//! failed; kubectl runs a credential plugin that fails five times. A person who cancels the first prompt
//! means those behind it, too.

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

/// Between the time and the client of a line, if there is one.
const OF_CLIENT: &str = " of client ";
/// Between these and the token.
const PROMPT_FOR: &str = ": the prompt for token ";
/// How a prompt ended without an answer, or without the right one.
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

/// Since when a PIN is wanted, and by whom.
#[derive(Clone, Copy, Debug)]
pub(super) struct PinNeed {
    pub(super) since: SystemTime,
    /// The process number of the client that may start this program again when it has failed.
    pub(super) client: Option<i32>,
}

/// The place to ask in, for this process alone.
pub(super) struct PromptSlot {
    /// `None` where there can be no lock.
    lock: RefCell<Option<Lock>>,
    place: String,
    token: String,
    client: Option<i32>,
}

/// A prompt that ended without a login.
struct LeftPrompt<'a> {
    how: &'a str,
    at: SystemTime,
    client: Option<i32>,
    token: &'a str,
}

impl PromptSlot {
    /// Waits for the prompts before this one. If one of them was cancelled since the PIN was first
    /// wanted, this one was behind it; so it is if the same client's was cancelled.
    ///
    /// # Errors
    /// This one is cancelled, too, or others keep the place.
    pub(super) fn take(place: PromptPlace, token: &str, need: PinNeed) -> Result<Self, PinError> {
        // Its number stands for the terminal, which processes see under different names.
        let place = match place {
            PromptPlace::Terminal => format!("terminal of session {}", process::session()),
            PromptPlace::Window => "window".to_owned(),
        };
        let slot = Self {
            lock: RefCell::new(acquire(&place)?),
            place,
            token: printable(token).into_owned(),
            client: need.client,
        };
        while let Some((how, left, client)) = slot.last_left() {
            let since = match client.is_some() && client == need.client {
                true => SystemTime::UNIX_EPOCH,
                false => need.since,
            };
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

    /// How and when this token's last prompt ended without a login, and whose it was.
    fn last_left(&self) -> Option<(String, SystemTime, Option<i32>)> {
        let lock = self.lock.borrow();
        let lines = lock.as_ref()?.lines();
        lines.iter().find_map(|line| {
            let left = LeftPrompt::parse(line)?;
            (left.token == self.token).then(|| (left.how.to_owned(), left.at, left.client))
        })
    }

    fn leave(&self, how: &str) {
        if let Some(lock) = self.lock.borrow_mut().as_mut() {
            let now = SystemTime::now();
            lock.retain(|line| {
                LeftPrompt::parse(line).is_some_and(|left| {
                    let age = now.duration_since(left.at);
                    left.token != self.token && age.is_ok_and(|age| age < lock::LIMIT)
                })
            });
            let since_epoch = now.duration_since(SystemTime::UNIX_EPOCH);
            let micros = since_epoch.unwrap_or_default().as_micros();
            // Without it the next process asks at once.
            let client = self
                .client
                .map_or_else(String::new, |it| format!("{OF_CLIENT}{it}"));
            let _ = lock.add(&format!(
                "{how} at {micros}{client}{PROMPT_FOR}{}",
                self.token
            ));
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

impl<'a> LeftPrompt<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let (how, rest) = line.split_once(" at ")?;
        let (when, token) = rest.split_once(PROMPT_FOR)?;
        let (micros, client) = match when.split_once(OF_CLIENT) {
            Some((micros, client)) => (micros, Some(client.parse().ok()?)),
            None => (when, None),
        };
        let since_epoch = Duration::from_micros(micros.parse().ok()?);
        Some(Self {
            how,
            at: SystemTime::UNIX_EPOCH + since_epoch,
            client,
            token,
        })
    }
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
