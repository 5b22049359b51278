//! A bound on how long a library may take: one that hangs (a reader that was pulled, a service that
//! is down) would hold up the client, and with the lock every later request.
//!
//! Off until a door starts it, and off again where others keep the time. A thread and not an alarm,
//! because a library can block a signal or take it over. What a person takes to enter a PIN doesn't
//! count, nor the time in which the process is stopped.

#![forbid(unsafe_code)]

use std::sync::{Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

/// How long one step may take. A key that waits to be touched gives up long before.
pub const LIMIT: Duration = Duration::from_secs(60);

/// Time is counted in these: a stop of the whole process is one of them, however long.
const TICK: Duration = Duration::from_secs(1);

/// Rust's own needs, and a library's thread-local storage.
const STACK: usize = 256 * 1024;

static WATCH: Mutex<Watch> = Mutex::new(Watch {
    is_on: false,
    step: None,
});

struct Watch {
    is_on: bool,
    /// The step that is watched.
    step: Option<Step>,
}

struct Step {
    doing: &'static str,
    /// What it has taken.
    ticks: u32,
}

/// From now on `expired` is called, in a thread of its own, when a step takes longer than
/// [`LIMIT`], with what that step does. It should end the process. Without a thread there is no
/// bound.
pub fn start(expired: impl FnOnce(&'static str) + Send + 'static) {
    if std::mem::replace(&mut lock().is_on, true) {
        return;
    }
    let (started, start) = mpsc::channel();
    let _ = thread::Builder::new().stack_size(STACK).spawn(move || {
        let _ = started.send(());
        if let Some(doing) = watch() {
            expired(doing);
        }
    });
    // A thread can't begin while a library's constructor hangs, which holds the loader's lock.
    let _ = start.recv();
}

/// Waits for a step to take too long; what it does. `None` once nothing is watched any more.
fn watch() -> Option<&'static str> {
    loop {
        thread::sleep(TICK);
        let mut watch = lock();
        if !watch.is_on {
            return None;
        }
        if let Some(step) = &mut watch.step {
            step.ticks += 1;
            if TICK * step.ticks > LIMIT {
                return Some(step.doing);
            }
        }
    }
}

/// From now on no step is watched.
pub fn stop() {
    *lock() = Watch {
        is_on: false,
        step: None,
    };
}

/// Watches this step until the guard is dropped. One within another has a time of its own, and so
/// has the outer one after it.
pub fn step(doing: &'static str) -> Guard {
    Guard {
        before: replace(Some(doing)),
    }
}

/// The step goes on, and has all its time again: a loop of many calls is no call that hangs.
pub fn renew() {
    if let Some(step) = &mut lock().step {
        step.ticks = 0;
    }
}

/// Nothing is watched until the guard is dropped: a person is asked for something.
pub fn pause() -> Guard {
    Guard {
        before: replace(None),
    }
}

/// When it is dropped, what was watched before is watched again.
#[must_use]
pub struct Guard {
    before: Option<&'static str>,
}

impl Drop for Guard {
    fn drop(&mut self) {
        let _ = replace(self.before);
    }
}

fn replace(doing: Option<&'static str>) -> Option<&'static str> {
    let mut watch = lock();
    let step = doing
        .filter(|_| watch.is_on)
        .map(|doing| Step { doing, ticks: 0 });
    let before = std::mem::replace(&mut watch.step, step);
    before.map(|step| step.doing)
}

fn lock() -> MutexGuard<'static, Watch> {
    WATCH.lock().unwrap_or_else(PoisonError::into_inner)
}
