//! The exit guard: the process's exit code is this program's to choose, even if the PKCS#11 library crashes.
//!
//! A library is foreign code in this process. Some crash in a call; in some C_Finalize hangs (a thread that is never joined,
//! a reader that was pulled) or crashes after all work is done. Without a guard the client, which waits for the exit code,
//! would take an answer that it has already got for a failure, and a crash would be a bare `Segmentation fault`.
//!
//! So the signals of a crash are handled, exit(3) is caught, and what they do depends on how far the process is:
//!
//! | | from | a crash, or exit(3) | SIGALRM | SIGHUP, SIGINT, SIGTERM |
//! |---|---|---|---|---|
//! | a library is in use | [`report_crashes`] | names the library; exit code of a library error (4) | the [watchdog](crate::watchdog)'s | `system::signals` |
//! | the answer is out | [`arm`] | the answer's exit code | the answer's exit code | the answer's exit code |
//!
//! There are two exceptions before the answer. In a process that another one of ours watches ([`end_by_signal`]), a crash ends
//! the process by its signal, and that one reports it. And an abort for which this program itself is to blame (a panic, no
//! memory left) is not the library's: it has been reported, and ends with the exit code of an internal error.
//!
//! The answer's code wins over everything: nothing is reported after [`arm`].
//!
//! A signal handler can read nothing but statics. These are private, and each is set by one function:
//!
//! | | set by | read by |
//! |---|---|---|
//! | `ANSWER` | [`arm`] | the handlers, and the watchdog (`is_armed`), which leaves the alarm alone then |
//! | `LIBRARY` | `name_library` | the handlers, and the watchdog's |
//! | `ENDS_BY_SIGNAL` | [`end_by_signal`] | the handlers |

#![allow(unsafe_code, reason = "signal handlers, and what they read")]

use std::path::Path;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, Ordering};

use libc::{SIGABRT, SIGALRM, SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGSYS, SIGTRAP, c_int, c_uint};
use signal_hook::low_level::signal_name;

use messages::error::{Exit, PROGRAM};
use messages::printable::printable;
use system::signals::{INTERRUPTING, die_of, handle, mask, set_alarm};
use system::{at_exit, is_own_fault, leave, say};

/// The exit code that goes with the answer; -1 as long as there is no answer.
static ANSWER: AtomicI32 = AtomicI32::new(-1);

/// How each message about the library in use begins: a signal handler can't put a text together.
static LIBRARY: AtomicPtr<String> = AtomicPtr::new(ptr::null_mut());

/// Whether a crash before the answer ends the process by its signal.
static ENDS_BY_SIGNAL: AtomicBool = AtomicBool::new(false);

/// The signals of a crash. SIGTRAP is how a compiler's trap ends on some processors, SIGSYS what a system-call filter sends.
const CRASHES: [c_int; 7] = [SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGSYS, SIGTRAP];

/// Has messages about a crash or an overdue call name this library.
pub(super) fn name_library(path: &Path) {
    let text = format!("{PROGRAM}: error: PKCS#11 library {} ", path.display());
    let text = printable(&text);
    if library() != Some(&*text) {
        // The text before is never freed: a handler may be reading it.
        LIBRARY.store(Box::leak(Box::new(text.into_owned())), Ordering::Release);
    }
}

/// How each message about the library in use begins.
pub(super) fn library() -> Option<&'static str> {
    // SAFETY: null, or a value that is never freed nor changed.
    unsafe { LIBRARY.load(Ordering::Acquire).as_ref() }.map(String::as_str)
}

/// From now until [`arm`], a crash ends the process with the exit code of a library error and a line on standard error that
/// names this library. So does a call of exit(3), which nothing else makes: SoftHSM calls it when it has no memory left. A
/// library can replace the handlers.
pub fn report_crashes(library: &Path) {
    name_library(library);
    catch(&CRASHES);
}

/// From now until [`arm`], a crash ends the process by its signal, for the process that has started this one to see.
pub fn end_by_signal() {
    ENDS_BY_SIGNAL.store(true, Ordering::Relaxed);
}

/// From now on the process ends with `code`, whatever the library does: at once if the library crashes or calls exit(3), or
/// if the process is interrupted, and after `limit` seconds at the latest.
///
/// To be called once the answer is out, right before C_Finalize: the library may have set handlers and blocked signals until
/// then, which this undoes. One that does so in C_Finalize itself isn't limited.
pub fn arm(limit: c_uint, code: u8) {
    // First: from now on the watchdog leaves the alarm alone.
    ANSWER.store(code.into(), Ordering::Relaxed);
    catch(&[&CRASHES[..], &INTERRUPTING, &[SIGALRM]].concat());
    set_alarm(limit);
}

/// Whether [`arm`] was called: the answer is out, and the process's alarm limits its end.
pub(super) fn is_armed() -> bool {
    answer().is_some()
}

/// The exit code that goes with the answer, if that is out.
fn answer() -> Option<u8> {
    u8::try_from(ANSWER.load(Ordering::Relaxed)).ok()
}

/// Handles exit(3) and these signals. They are unblocked, too, since the library may have blocked them: the kernel kills the
/// process for a blocked SIGSEGV without calling the handler.
fn catch(signals: &[c_int]) {
    for signal in signals {
        // SAFETY: the handler reads atomics, writes a line and ends the process.
        unsafe { handle(*signal, on_signal, libc::SA_ONSTACK) };
    }
    mask(libc::SIG_UNBLOCK, signals);
    // Exit functions run in the reverse order of their registration: this one before any that the library has registered.
    at_exit(on_exit);
}

extern "C" fn on_signal(signal: c_int) {
    let has_answered = answer().is_some();
    if !has_answered && ENDS_BY_SIGNAL.load(Ordering::Relaxed) {
        die_of(signal);
    }
    if !has_answered && signal == SIGABRT && is_own_fault() {
        leave(Exit::Internal as u8);
    }
    end(signal_name(signal).unwrap_or_default())
}

extern "C" fn on_exit() {
    end("exit")
}

/// Ends the process with the answer's exit code; without an answer, because the library has crashed it by this signal or call.
fn end(cause: &str) -> ! {
    if let Some(code) = answer() {
        leave(code)
    }
    if let Some(library) = library() {
        let help = ")\nhelp: update the library, or use another one for this token\n";
        say([library, "crashed the process (", cause, help]);
    }
    leave(Exit::Library as u8)
}

#[cfg(test)]
mod tests {
    use std::hint::black_box;
    use std::os::unix::process::CommandExt as _;
    use std::thread;
    use std::time::{Duration, Instant};

    use super::*;
    use system::child;

    /// Neither success, nor what a failed test or a shell would return.
    const ANSWERED: u8 = 23;
    /// In seconds: twice what a busy machine may take.
    const LONG: c_uint = 1200;

    /// Asserts that `fault` ends a process, in which signals were ignored and blocked before, with the answer's code.
    fn assert_ends(test: &str, limit: c_uint, fault: fn()) {
        if child::is_this() {
            for signal in CRASHES.into_iter().chain([SIGALRM]) {
                // SAFETY: SIG_IGN is a valid disposition of each of them.
                unsafe { libc::signal(signal, libc::SIG_IGN) };
            }
            arm(limit, ANSWERED);
            fault();
            leave(1);
        }
        let mut child = child::command(&format!("exit_guard::tests::{test}"));
        let all: Vec<_> = (1..32).collect();
        // SAFETY: sigprocmask is async-signal-safe. The mask is that of all threads.
        unsafe {
            child.pre_exec(move || {
                mask(libc::SIG_BLOCK, &all);
                Ok(())
            })
        };
        let start = Instant::now();
        let output = child.output().unwrap();
        assert_eq!(output.status.code(), Some(i32::from(ANSWERED)), "{output:?}");
        assert!(start.elapsed() < Duration::from_secs(u64::from(LONG / 2)));
    }

    fn wait_forever() {
        loop {
            thread::park();
        }
    }

    fn write_where_nothing_is() {
        // SAFETY: none: this is the fault.
        unsafe { ptr::without_provenance_mut::<u8>(8).write_volatile(1) };
    }

    #[test]
    fn an_abort_of_our_own_is_not_the_librarys() {
        if child::is_this() {
            report_crashes(Path::new("/the/library.so"));
            system::note_own_fault();
            std::process::abort();
        }
        let test = "exit_guard::tests::an_abort_of_our_own_is_not_the_librarys";
        let output = child::command(test).output().unwrap();
        assert_eq!(output.status.code(), Some(i32::from(Exit::Internal as u8)), "{output:?}");
        assert!(!String::from_utf8_lossy(&output.stderr).contains("library"), "{output:?}");
    }

    #[test]
    fn a_hang_ends_in_time() {
        assert_ends("a_hang_ends_in_time", 1, wait_forever);
    }

    #[test]
    fn a_fault_in_a_thread_of_the_module_is_no_failure() {
        assert_ends("a_fault_in_a_thread_of_the_module_is_no_failure", LONG, || {
            thread::spawn(write_where_nothing_is);
            wait_forever();
        });
    }

    #[test]
    fn a_stack_that_overflows_is_no_failure() {
        fn deeper(depth: u64) -> u64 {
            if black_box(depth) == u64::MAX { 0 } else { deeper(depth + 1) + black_box(1) }
        }
        assert_ends("a_stack_that_overflows_is_no_failure", LONG, || {
            black_box(deeper(0));
        });
    }
}
