//! Limits how long a call of a library may take: one that hangs (a reader that was pulled, a service that is
//! down) would block the client and, since it holds the lock, every later request.
//!
//! It is off until a command starts it. It is a thread and not an alarm, because a library can block
//! a signal or handle it itself. The time in which the process is stopped doesn't count.

#![forbid(unsafe_code)]

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

static WATCH: Mutex<Watch> = Mutex::new(Watch { is_on: false, call: None });

struct Watch {
    is_on: bool,
    /// The call that is timed.
    call: Option<TimedCall>,
}

struct TimedCall {
    name: &'static str,
    limit: Duration,
    /// How long it has taken, in [`TICK`]s.
    ticks: u32,
}

/// From now on `expired` is called with a call's name and its limit, in a thread of its own, if that
/// call takes longer. It should end the process. If no thread can be started, there is no limit.
pub fn start(expired: impl FnOnce(&'static str, Duration) + Send + 'static) {
    if std::mem::replace(&mut locked(&WATCH).is_on, true) {
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
        let mut watch = locked(&WATCH);
        if !watch.is_on {
            return None;
        }
        if let Some(call) = &mut watch.call {
            call.ticks += 1;
            if TICK * call.ticks > call.limit {
                return Some((call.name, call.limit));
            }
        }
    }
}

/// From now on no call is timed.
pub fn stop() {
    *locked(&WATCH) = Watch { is_on: false, call: None };
}

/// Times this call until the guard is dropped.
pub fn call(name: &'static str, limit: Duration) -> Guard {
    let mut watch = locked(&WATCH);
    watch.call = watch.is_on.then_some(TimedCall { name, limit, ticks: 0 });
    Guard
}

/// Ends the call when it is dropped.
#[must_use]
pub struct Guard;

impl Drop for Guard {
    fn drop(&mut self) {
        locked(&WATCH).call = None;
    }
}
