//! Limits how long a library may take: one that hangs (a reader that was pulled, a service that is
//! down) would block the client and, since it holds the lock, every later request.
//!
//! It is off until a command starts it. It is a thread and not an alarm, because a library can block
//! a signal or handle it itself. The time in which a person enters a PIN doesn't count, nor the time
//! in which the process is stopped.

#![forbid(unsafe_code)]

use std::sync::{Mutex, mpsc};
use std::thread;
use std::time::Duration;

use super::locked;

/// How long one step may take, unless it has a limit of its own. A token that waits for a touch gives up long before.
pub const LIMIT: Duration = Duration::from_secs(60);

/// Time is counted in these: a stop of the whole process counts as one, however long it is.
const TICK: Duration = Duration::from_secs(1);

/// Rust's own needs, and a library's thread-local storage.
const STACK: usize = 256 * 1024;

static WATCH: Mutex<Watch> = Mutex::new(Watch { is_on: false, step: None });

struct Watch {
    is_on: bool,
    /// The step that is timed.
    step: Option<Step>,
}

struct Step {
    doing: &'static str,
    limit: Duration,
    /// How long it has taken, in [`TICK`]s.
    ticks: u32,
}

/// From now on `expired` is called with what a step does and its limit, in a thread of its own, if that
/// step takes longer. It should end the process. If no thread can be started, there is no limit.
pub fn start(expired: impl FnOnce(&'static str, Duration) + Send + 'static) {
    if std::mem::replace(&mut locked(&WATCH).is_on, true) {
        return;
    }
    let (started, start) = mpsc::channel();
    let _ = thread::Builder::new().stack_size(STACK).spawn(move || {
        let _ = started.send(());
        if let Some((doing, limit)) = watch() {
            expired(doing, limit);
        }
    });
    // A thread can't begin while a library's constructor hangs, which holds the loader's lock.
    let _ = start.recv();
}

/// Waits until a step takes too long, and returns what it does and its limit; `None` after [`stop`].
fn watch() -> Option<(&'static str, Duration)> {
    loop {
        thread::sleep(TICK);
        let mut watch = locked(&WATCH);
        if !watch.is_on {
            return None;
        }
        if let Some(step) = &mut watch.step {
            step.ticks += 1;
            if TICK * step.ticks > step.limit {
                return Some((step.doing, step.limit));
            }
        }
    }
}

/// From now on no step is timed.
pub fn stop() {
    *locked(&WATCH) = Watch { is_on: false, step: None };
}

/// Times this step until the guard is dropped. A step within another has its own time, and the outer
/// one starts again after it.
pub fn step(doing: &'static str) -> Guard {
    step_within(doing, LIMIT)
}

/// [`step`] with a limit of its own.
pub fn step_within(doing: &'static str, limit: Duration) -> Guard {
    Guard { before: replace(Some((doing, limit))) }
}

/// Gives the current step its full time again: a loop of many calls is not one call that hangs.
pub fn renew() {
    if let Some(step) = &mut locked(&WATCH).step {
        step.ticks = 0;
    }
}

/// Times nothing until the guard is dropped, because a person is asked for something.
pub fn pause() -> Guard {
    Guard { before: replace(None) }
}

/// When it is dropped, the step before it is timed again.
#[must_use]
pub struct Guard {
    before: Option<(&'static str, Duration)>,
}

impl Drop for Guard {
    fn drop(&mut self) {
        let _ = replace(self.before);
    }
}

fn replace(step: Option<(&'static str, Duration)>) -> Option<(&'static str, Duration)> {
    let mut watch = locked(&WATCH);
    let step = step.filter(|_| watch.is_on).map(|(doing, limit)| Step { doing, limit, ticks: 0 });
    let before = std::mem::replace(&mut watch.step, step);
    before.map(|step| (step.doing, step.limit))
}
