//! Limits how long a call of a library may take: one that hangs (a reader that was pulled, a service that is
//! down) would block the client and, since it holds the lock, every later request.
//!
//! It is off until a command starts it. It is a thread and not an alarm, because a library can block
//! a signal or handle it itself. The time in which the process is stopped doesn't count.

#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, mpsc};
use std::thread;
use std::time::Duration;

use super::locked;

/// How long most calls may take. A token that waits for a touch gives up long before.
pub const LIMIT: Duration = Duration::from_secs(60);

/// Time is counted in these: a stop of the whole process counts as one, however long it is.
const TICK: Duration = Duration::from_secs(1);

/// Rust's own needs, and a library's thread-local storage.
const STACK: usize = 256 * 1024;

static IS_ON: AtomicBool = AtomicBool::new(false);

/// The call that is timed: its name, its limit, and how long it has taken in [`TICK`]s.
static CALL: Mutex<Option<(&'static str, Duration, u32)>> = Mutex::new(None);

/// From now on `expired` is called with a call's name and its limit, in a thread of its own, if that
/// call takes longer. It should end the process. If no thread can be started, there is no limit.
pub fn start(expired: impl FnOnce(&'static str, Duration) + Send + 'static) {
    if IS_ON.swap(true, Ordering::Relaxed) {
        return;
    }
    let (started, start) = mpsc::channel();
    let _ = thread::Builder::new().stack_size(STACK).spawn(move || {
        let _ = started.send(());
        if let Some((name, limit)) = watch() {
            expired(name, limit);
        }
    });
    // A thread can't begin while a library's constructor hangs, which holds the loader's lock.
    let _ = start.recv();
}

/// Waits until a call takes too long, and returns its name and its limit; `None` after [`stop`].
fn watch() -> Option<(&'static str, Duration)> {
    loop {
        thread::sleep(TICK);
        if !IS_ON.load(Ordering::Relaxed) {
            return None;
        }
        if let Some((name, limit, ticks)) = &mut *locked(&CALL) {
            *ticks += 1;
            if TICK * *ticks > *limit {
                return Some((*name, *limit));
            }
        }
    }
}

/// From now on no call is timed.
pub fn stop() {
    IS_ON.store(false, Ordering::Relaxed);
}

pub fn call(name: &'static str, limit: Duration) -> Guard {
    *locked(&CALL) = Some((name, limit, 0));
    Guard
}

#[must_use]
pub struct Guard;

impl Drop for Guard {
    fn drop(&mut self) {
        *locked(&CALL) = None;
    }
}
