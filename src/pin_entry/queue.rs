//! One prompt at a time on a terminal, and none right after one that was cancelled.
//!
//! A client that opens ten connections starts ten processes, and k9s starts the next when one has
//! failed. A person who has said no to the first prompt has said it to those behind it, too.

use std::cell::RefCell;
use std::thread;
use std::time::{Duration, SystemTime};

use super::notice::Notice;
use crate::pin::PinError;
use crate::printable::printable;
use crate::process;
use crate::process::lock::{self, Lock, LockError};
use crate::process::marker::Marker;

/// How long no new process asks after a prompt was cancelled. Somebody who wants to go on after all
/// doesn't wait long.
const BRAKE: Duration = Duration::from_secs(5);

/// How a prompt ended by a signal.
const INTERRUPTED: &str = "interrupted";

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
    /// them was cancelled since then, this one was behind it.
    pub(super) fn take(place: Place, token: &str, since: SystemTime) -> Result<Self, PinError> {
        // Its number stands for the terminal, which processes see under different names.
        let place = match place {
            Place::Terminal => format!("terminal of session {}", process::session()),
            Place::Window => "window".to_owned(),
        };
        let lock = acquire(&place)?;
        let marker = Marker::of("left", &format!("{place}\0{token}")).ok();
        while let Some(left) = marker.as_ref().and_then(Marker::time) {
            let was_interrupted = marker
                .as_ref()
                .and_then(Marker::text)
                .is_some_and(|text| text.starts_with(&how(INTERRUPTED)));
            match brake(left, since, SystemTime::now()) {
                Brake::None => break,
                // Who interrupts a client, and starts one anew, wants to go on after all.
                Brake::New(rest) if was_interrupted => {
                    let text = format!(
                        "the last prompt was cancelled a moment ago; asking again in {} s",
                        rest.as_secs() + 1
                    );
                    let _notice = Notice::after(Duration::ZERO, &text);
                    thread::sleep(rest);
                }
                Brake::Behind | Brake::New(_) => {
                    return Err(PinError::CancelledBefore {
                        token: token.to_owned(),
                    });
                }
            }
        }
        Ok(Self {
            lock: RefCell::new(lock),
            place,
            marker,
            token: token.to_owned(),
        })
    }

    /// The prompt was cancelled, or nobody answered it.
    pub(super) fn brake(&self) {
        self.mark("cancelled");
    }

    /// A signal came meanwhile. To be called before it ends the process.
    pub(super) fn interrupt(&self) {
        self.mark(INTERRUPTED);
    }

    fn mark(&self, word: &str) {
        if let Some(marker) = &self.marker {
            marker.remove();
            // Somebody is asked once more without it.
            let _ = marker.add(&format!(
                "{}: that for token {}",
                how(word),
                printable(&self.token)
            ));
        }
    }

    /// Lets others ask while this process is stopped, and waits for its turn again.
    pub(super) fn yield_while(&self, stopped: impl FnOnce()) -> Result<(), PinError> {
        self.lock.replace(None);
        stopped();
        self.lock.replace(acquire(&self.place)?);
        Ok(())
    }
}

fn how(word: &str) -> String {
    format!("a prompt was {word}")
}

fn acquire(place: &str) -> Result<Option<Lock>, PinError> {
    match Lock::acquire(place, &mut |_| {}) {
        Ok(lock) => Ok(Some(lock)),
        Err(LockError::Unavailable(_)) => Ok(None),
        Err(LockError::Busy { holder }) => {
            let holder = holder.map_or_else(String::new, |holder| format!(" (process {holder})"));
            Err(PinError::Terminal {
                reason: format!(
                    "another prompt{holder} has had it for {} s",
                    lock::LIMIT.as_secs()
                ),
            })
        }
    }
}

#[derive(Debug, Eq, PartialEq)]
enum Brake {
    None,
    /// It waited behind the prompt that was cancelled, and is cancelled with it.
    Behind,
    /// It is new, and this is left of the time.
    New(Duration),
}

fn brake(left: SystemTime, since: SystemTime, now: SystemTime) -> Brake {
    match now.duration_since(left) {
        Ok(age) if left > since && age < lock::LIMIT => Brake::Behind,
        Ok(age) if left <= since && age < BRAKE => Brake::New(BRAKE - age),
        // From the future, it tells nothing but that somebody set the clock.
        Ok(_) | Err(_) => Brake::None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prompt_that_was_cancelled_brakes_those_behind_it_and_new_ones_for_a_while() {
        let at = |seconds: u64| SystemTime::UNIX_EPOCH + Duration::from_secs(1_000 + seconds);
        let left = at(100);
        let brake = |since, now| brake(left, at(since), at(now));
        // Those that were waiting.
        assert_eq!(brake(60, 101), Brake::Behind);
        assert_eq!(brake(60, 150), Brake::Behind);
        assert_eq!(brake(60, 200), Brake::None);
        // New ones.
        assert_eq!(brake(104, 104), Brake::New(Duration::from_secs(1)));
        assert_eq!(brake(100, 100), Brake::New(BRAKE));
        assert_eq!(brake(105, 105), Brake::None);
        assert_eq!(brake(50, 99), Brake::None);
    }
}
