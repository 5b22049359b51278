//! The watchdog: ends the process when a single call of the PKCS#11 library takes too long.
//!
//! A library can hang, because its reader was pulled out or the service behind it (pcscd, tpm2-abrmd) is down. Such a call
//! never returns. Meanwhile this process holds the lock on the library, so every later request of this user waits as well.
//!
//! ```text
//!   Watch::over(library) ── calls are limited from here ...
//!     │
//!     ├─ LimitedCall::begin(&C_SIGN) ── sets CALL and DUE, starts the alarm ──┐
//!     │      the library works                                                │ alarm rings: on_alarm names library
//!     │  LimitedCall dropped ─────────── clears CALL, stops the alarm         │ and call, and ends the process with
//!     │                                                                       ▼ the exit code of a library error (4)
//!   Watch dropped ───────── ... to here
//! ```
//!
//! **Who watches?** No thread does. The kernel sends SIGALRM when the time of alarm(2) is over, and its handler runs on
//! whichever thread the signal interrupts, usually the one that hangs. A watching thread would cost every request time:
//! an allocator takes locks as soon as there is a second thread.
//!
//! **Why isn't it a timeout?** A timeout has to return to somebody. PKCS#11 can't cancel a call, and a thread that hangs in
//! foreign code can't be ended safely. The keyring, which waits in another thread than the one that calls, can give up on a
//! reply; but then the hung thread is still there. Only the end of the process takes it away, and the lock with it.
//!
//! **Which calls are not limited?**
//!
//! - Those without a [`Watch`]: once a key of a run is open, the process has other keys to serve and must survive a token
//!   that hangs. There the keyring gives up on the reply ([`system::limits::REPLY`]).
//! - Those after a signal has interrupted the process, which ends within a limit of its own (`system::signals`).
//! - C_Finalize after the answer, which [`exit_guard`] limits.
//! - Those of a library that blocks SIGALRM or handles it itself.
//!
//! The process has one alarm, so only one call can be limited at a time. That is enough, since as long as there is a
//! [`Watch`], only one thread of a process calls libraries. If the alarm rings long after it was due (the process was
//! stopped, the machine slept), the call gets its whole time again.
//!
//! A signal handler can read nothing but statics. These four are private, and only the guards and [`limit_process`] set
//! them:
//!
//! | | set by | read by |
//! |---|---|---|
//! | `WATCHES` | [`Watch`] | `LimitedCall::begin` |
//! | `CALL` | `LimitedCall`, and the last [`Watch`] when it ends | `on_alarm` |
//! | `DUE` | whatever sets the alarm | `on_alarm` |
//! | `END` | [`limit_process`] | `LimitedCall::begin`, `on_alarm` |

#![allow(unsafe_code, reason = "a signal handler, and what it reads")]

use std::path::Path;
use std::ptr;
use std::sync::atomic::{AtomicI64, AtomicPtr, AtomicUsize, Ordering};
use std::time::Duration;

use crate::exit_guard;
use messages::error::Exit;
use system::clock::unix_time;
use system::limits::Limit;
use system::{leave, say, signals};

const HELP: &str = "check that the token is still inserted, restart the library's service (pcscd, tpm2-abrmd), \
                    then try again\n";

/// How many [`Watch`]es there are.
static WATCHES: AtomicUsize = AtomicUsize::new(0);

/// The limited call that is being made; null between calls.
static CALL: AtomicPtr<CallLimit> = AtomicPtr::new(ptr::null_mut());

/// When the limited call is overdue, in seconds since 1970. A clock that is set forward gives the call more time.
static DUE: AtomicI64 = AtomicI64::new(0);

/// When the process is to have ended, in seconds since 1970: no call gets time beyond it.
static END: AtomicI64 = AtomicI64::new(i64::MAX);

/// Limits what all calls of this process may take together, because whoever has started it waits no longer. The call that
/// has begun by then is the last one.
pub fn limit_process(limit: Duration) {
    let seconds = limit.as_secs().try_into().unwrap_or(i64::MAX);
    END.store(unix_time().saturating_add(seconds), Ordering::Relaxed);
}

/// While it exists, a call that takes longer than its limit ends the process.
#[derive(Debug)]
#[must_use = "calls are limited only while it exists"]
pub struct Watch(());

impl Watch {
    /// Limits the calls of this library, which the message about an overdue call names.
    pub fn over(library: &Path) -> Self {
        exit_guard::name_library(library);
        if !signals::is_interrupted() {
            // SAFETY: the handler reads atomics, sets an alarm, or writes a line and ends the process.
            unsafe {
                signals::handle(libc::SIGALRM, on_alarm, libc::SA_RESTART | libc::SA_ONSTACK);
            }
        }
        WATCHES.fetch_add(1, Ordering::Relaxed);
        Self(())
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if WATCHES.fetch_sub(1, Ordering::Relaxed) == 1 {
            CALL.store(ptr::null_mut(), Ordering::Relaxed);
            set_alarm(0);
        }
    }
}

/// A function of the library, and how long a call of it may take.
pub(crate) struct CallLimit {
    /// The function's name, such as `C_Sign`.
    pub(crate) name: &'static str,
    pub(crate) limit: Limit,
}

/// A call that is being made, from before the library is entered until this is dropped.
#[must_use = "the call's time is over when it is dropped"]
pub(crate) struct LimitedCall(());

impl LimitedCall {
    /// Begins the call's time, if there is a [`Watch`].
    pub(crate) fn begin(call: &'static CallLimit) -> Self {
        if WATCHES.load(Ordering::Relaxed) > 0 {
            let left = END.load(Ordering::Relaxed).saturating_sub(unix_time()).max(1);
            set_alarm(
                left.try_into()
                    .map_or(call.limit.seconds, |left: u32| left.min(call.limit.seconds)),
            );
            CALL.store(ptr::from_ref(call).cast_mut(), Ordering::Release);
        }
        Self(())
    }
}

impl Drop for LimitedCall {
    fn drop(&mut self) {
        if !CALL.swap(ptr::null_mut(), Ordering::Relaxed).is_null() {
            set_alarm(0);
        }
    }
}

/// Has the alarm ring in so many seconds, or never for 0, unless the process's alarm is somebody else's by now: an
/// interrupted process ends by it, and one that has answered limits C_Finalize with it.
fn set_alarm(seconds: libc::c_uint) {
    if signals::is_interrupted() || exit_guard::is_armed() {
        return;
    }
    DUE.store(unix_time() + i64::from(seconds), Ordering::Relaxed);
    signals::set_alarm(seconds);
    // A signal that came in between had set the alarm, too: it counts.
    signals::end_in_time();
}

/// The alarm has rung: if a call is overdue, this says so and ends the process.
extern "C" fn on_alarm(_alarm: libc::c_int) {
    // SAFETY: null, or a value that lives as long as the process.
    let Some(CallLimit { name, limit }) = (unsafe { CALL.load(Ordering::Acquire).as_ref() }) else {
        return;
    };
    if unix_time() > DUE.load(Ordering::Relaxed) + 1 {
        // The process or the machine stood still meanwhile, and so did the library.
        return set_alarm(limit.seconds);
    }
    let library = exit_guard::library().unwrap_or_default();
    let is_last = unix_time() >= END.load(Ordering::Relaxed);
    // Who limits the process logs an error as one line.
    let (taken, separator) = if is_last {
        ("all the time that is waited for it", "; ")
    } else {
        (limit.text, "\nhelp: ")
    };
    say([library, "hangs: ", name, " has taken ", taken, separator, HELP]);
    leave(Exit::Library as u8)
}
