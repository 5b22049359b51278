//! A bound on how long a library may take: one that hangs (a reader that was pulled, a service that
//! is down) would hold up the client, and with the lock every later request.
//!
//! Off until a door starts it, and off again where others keep the time. A thread and not an alarm,
//! because a library can block a signal or take it over. What a person takes to enter a PIN doesn't
//! count, nor the time in which the process is stopped.

#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// How long one step may take. A key that waits to be touched gives up long before.
pub const LIMIT: Duration = Duration::from_secs(60);

/// Time is counted in these: a stop of the whole process is one of them, however long.
const TICK: Duration = Duration::from_secs(1);

/// Rust's own needs, and a library's thread-local storage.
const STACK: usize = 256 * 1024;

static WATCHED: Mutex<Option<Step>> = Mutex::new(None);
static IS_ON: AtomicBool = AtomicBool::new(false);
/// The thread is there.
static IS_WATCHING: AtomicBool = AtomicBool::new(false);
static STARTED: Condvar = Condvar::new();

/// The step that is watched.
struct Step {
    doing: &'static str,
    /// What it has taken.
    ticks: u32,
}

/// From now on `expired` is called, in a thread of its own, when a step takes longer than
/// [`LIMIT`], with what that step does. It should end the process. Without a thread there is no
/// bound.
pub fn start(expired: impl FnOnce(&'static str) + Send + 'static) {
    let watch = move || {
        if let Some(doing) = watch() {
            expired(doing);
        }
    };
    if !IS_ON.swap(true, Ordering::Relaxed) {
        let thread = thread::Builder::new().stack_size(STACK).spawn(watch);
        // A thread can't begin while a library's constructor hangs, which holds the loader's lock.
        let mut watched = lock();
        while thread.is_ok() && !IS_WATCHING.load(Ordering::Relaxed) {
            watched = STARTED
                .wait(watched)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Waits for a step to take too long; what it does. `None` once nothing is watched any more.
fn watch() -> Option<&'static str> {
    {
        let _watched = lock();
        IS_WATCHING.store(true, Ordering::Relaxed);
        STARTED.notify_one();
    }
    while IS_ON.load(Ordering::Relaxed) {
        thread::sleep(TICK);
        let mut watched = lock();
        let Some(step) = watched.as_mut() else {
            continue;
        };
        step.ticks += 1;
        if TICK * step.ticks > LIMIT {
            return Some(step.doing);
        }
    }
    None
}

/// From now on no step is watched.
pub fn stop() {
    IS_ON.store(false, Ordering::Relaxed);
    let _ = replace(None);
}

/// Watches this step until the guard is dropped. One within another has a time of its own, and so
/// has the outer one after it.
pub fn step(doing: &'static str) -> Guard {
    let step = IS_ON.load(Ordering::Relaxed).then(|| Step::new(doing));
    Guard {
        before: replace(step),
    }
}

/// The step goes on, and has all its time again: a loop of many calls is no call that hangs.
pub fn renew() {
    if let Some(step) = lock().as_mut() {
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
        let _ = replace(self.before.map(Step::new));
    }
}

impl Step {
    fn new(doing: &'static str) -> Self {
        Self { doing, ticks: 0 }
    }
}

fn replace(step: Option<Step>) -> Option<&'static str> {
    let before = std::mem::replace(&mut *lock(), step);
    before.map(|step| step.doing)
}

fn lock() -> MutexGuard<'static, Option<Step>> {
    WATCHED.lock().unwrap_or_else(PoisonError::into_inner)
}
