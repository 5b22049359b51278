//! Limits how long a call of a library may take: one that hangs (a reader that was pulled, a service that is
//! down) would block the client and, since it holds the lock, every later request.
//!
//! It is off until a command starts it. It is an alarm and not a thread, with which each allocation in the process
//! would take a lock. A library that blocks SIGALRM or handles it itself isn't limited. After a stop of the process, or
//! a sleep of the machine, beyond its limit a call has all of its time again.

#![allow(unsafe_code, reason = "a signal handler, and what it reads")]

use std::path::Path;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicPtr, Ordering};

use crate::exit_guard;
use messages::error::Exit;
use system::clock::unix_time;
use system::limits::Limit;
use system::{leave, say, signals};

/// A call of a library whose time is limited.
pub struct TimedCall {
    /// As in `C_Sign`.
    pub name: &'static str,
    pub limit: Limit,
}

const HELP: &str = "\nhelp: check that the token is still inserted, restart the library's service (pcscd, tpm2-abrmd), \
                    then try again\n";

static IS_ON: AtomicBool = AtomicBool::new(false);

/// The call that is timed, if any.
static CALL: AtomicPtr<TimedCall> = AtomicPtr::new(ptr::null_mut());

/// When the limit of the timed call is over, by the clock: one that was set forward gives it more.
static DUE: AtomicI64 = AtomicI64::new(0);

/// From now on a call that takes longer than its limit ends the process with the exit code of a library error and
/// a line on standard error that names this library.
pub fn start(library: &Path) {
    exit_guard::name_library(library);
    if !signals::is_interrupted() {
        // SAFETY: the handler reads atomics, sets an alarm, or writes a line and ends the process.
        unsafe {
            signals::handle(libc::SIGALRM, on_alarm, libc::SA_RESTART | libc::SA_ONSTACK);
        }
    }
    IS_ON.store(true, Ordering::Relaxed);
}

/// From now on no call is timed.
pub fn stop() {
    IS_ON.store(false, Ordering::Relaxed);
    CALL.store(ptr::null_mut(), Ordering::Relaxed);
    set_alarm(0);
}

/// To be called before the library is: its time ends when the result is dropped.
pub fn call(call: &'static TimedCall) -> Guard {
    if IS_ON.load(Ordering::Relaxed) {
        set_alarm(call.limit.seconds);
        CALL.store(ptr::from_ref(call).cast_mut(), Ordering::Release);
    }
    Guard
}

/// A call that is being made.
#[must_use]
pub struct Guard;

impl Drop for Guard {
    fn drop(&mut self) {
        if !CALL.swap(ptr::null_mut(), Ordering::Relaxed).is_null() {
            set_alarm(0);
        }
    }
}

/// Has the alarm come in so many seconds, or never for 0. An interrupted process has an alarm of its own, to end by.
fn set_alarm(seconds: libc::c_uint) {
    if !signals::is_interrupted() {
        DUE.store(unix_time() + i64::from(seconds), Ordering::Relaxed);
        signals::set_alarm(seconds);
        // One that came in between had set its own.
        signals::end_in_time();
    }
}

extern "C" fn on_alarm(_alarm: libc::c_int) {
    // SAFETY: null, or a value that lives as long as the process.
    let Some(TimedCall { name, limit }) = (unsafe { CALL.load(Ordering::Acquire).as_ref() }) else {
        return;
    };
    if unix_time() > DUE.load(Ordering::Relaxed) + 1 {
        return set_alarm(limit.seconds);
    }
    let library = exit_guard::library().unwrap_or_default();
    say([library, "hangs: ", name, " has taken ", limit.text, HELP]);
    leave(Exit::Library as u8)
}
