//! An end that the library has no say in.
//!
//! C_Finalize hangs in some modules (a thread that never joins) and crashes in others. The answer
//! has been given by then, and the client judges it by the exit code.

use std::sync::atomic::{AtomicU8, Ordering};
use std::thread;
use std::time::Duration;

use super::leave;

/// The exit code, where a signal handler finds it.
static CODE: AtomicU8 = AtomicU8::new(0);

/// What a crash arrives as, the alarm that stands in for a thread, and interruptions, which come
/// too late to change anything.
const ENDS: [libc::c_int; 9] = [
    libc::SIGABRT,
    libc::SIGALRM,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGHUP,
    libc::SIGILL,
    libc::SIGINT,
    libc::SIGSEGV,
    libc::SIGTERM,
];

/// From now on the process ends with `code`, after `limit` at the latest, also if it crashes or
/// is interrupted.
pub fn bound(limit: Duration, code: u8) {
    CODE.store(code, Ordering::Relaxed);
    for signal in ENDS {
        super::signals::handle(signal, end, libc::SA_ONSTACK | libc::SA_NODEFER);
    }
    let watchdog = thread::Builder::new().spawn(move || {
        thread::sleep(limit);
        leave(code)
    });
    if watchdog.is_err() {
        // SAFETY: alarm has no preconditions.
        unsafe { libc::alarm(u32::try_from(limit.as_secs()).unwrap_or(1).max(1)) };
    }
}

extern "C" fn end(_signal: libc::c_int) {
    leave(CODE.load(Ordering::Relaxed))
}
