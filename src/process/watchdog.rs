//! A bound on how long a library may take: one that hangs (a reader that was pulled, a service that
//! is down) would hold up the client, and with the lock every later request.
//!
//! Off until a door starts it, and off again where others keep the time. A thread and not an alarm, because a library can block a signal or
//! take it over. What a person takes to enter a PIN doesn't count.

#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// How long one step may take. A key that waits to be touched gives up long before.
pub const LIMIT: Duration = Duration::from_secs(60);

/// Rust's own needs, and a library's thread-local storage.
const STACK: usize = 256 * 1024;

/// The step that is watched, and until when.
static WATCHED: Mutex<Option<Step>> = Mutex::new(None);
static CHANGED: Condvar = Condvar::new();
static IS_ON: AtomicBool = AtomicBool::new(false);
/// The thread is there.
static IS_WATCHING: AtomicBool = AtomicBool::new(false);

#[derive(Clone, Copy)]
struct Step {
    doing: &'static str,
    end: Instant,
}

/// From now on `expired` is called, in a thread of its own, when a step takes longer than
/// [`LIMIT`], with what that step does. It should end the process. Without a thread there is no
/// bound.
pub fn start(expired: impl FnOnce(&'static str) + Send + 'static) {
    let watch = move || {
        let mut watched = lock();
        IS_WATCHING.store(true, Ordering::Relaxed);
        CHANGED.notify_one();
        loop {
            let now = Instant::now();
            watched = match *watched {
                None => CHANGED
                    .wait(watched)
                    .unwrap_or_else(PoisonError::into_inner),
                Some(step) if step.end <= now => break expired(step.doing),
                Some(step) => {
                    let waited = CHANGED.wait_timeout(watched, step.end - now);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    };
    if !IS_ON.swap(true, Ordering::Relaxed) {
        let thread = thread::Builder::new().stack_size(STACK).spawn(watch);
        // A thread can't begin while a library's constructor hangs, which holds the loader's lock.
        let mut watched = lock();
        while thread.is_ok() && !IS_WATCHING.load(Ordering::Relaxed) {
            watched = CHANGED
                .wait(watched)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// From now on no step is watched.
pub fn stop() {
    IS_ON.store(false, Ordering::Relaxed);
    let _ = replace(None);
}

/// Watches this step until the guard is dropped.
pub fn step(doing: &'static str) -> Guard {
    set(Some(doing))
}

/// Nothing is watched until the guard is dropped: a person is asked for something.
pub fn pause() -> Guard {
    set(None)
}

/// When it is dropped, what was watched before is watched again, with a time of its own.
#[must_use]
pub struct Guard {
    before: Option<&'static str>,
}

impl Drop for Guard {
    fn drop(&mut self) {
        let _ = replace(self.before);
    }
}

fn set(doing: Option<&'static str>) -> Guard {
    Guard {
        before: replace(doing),
    }
}

fn replace(doing: Option<&'static str>) -> Option<&'static str> {
    if !IS_ON.load(Ordering::Relaxed) && doing.is_some() {
        return None;
    }
    let step = doing.map(|doing| Step {
        doing,
        end: Instant::now() + LIMIT,
    });
    let before = std::mem::replace(&mut *lock(), step);
    CHANGED.notify_one();
    before.map(|step| step.doing)
}

fn lock() -> MutexGuard<'static, Option<Step>> {
    WATCHED.lock().unwrap_or_else(PoisonError::into_inner)
}
