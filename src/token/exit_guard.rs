//! Determines the exit code independently of the module: that of a library error if the module crashes
//! before the answer is out, and that of the answer afterwards.
//!
//! C_Finalize hangs in some modules (a thread that is never joined, a reader that was pulled) and
//! crashes in others. The client has its answer by then, but waits for the exit code.

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

/// The answer's exit code, where a signal handler can read it; -1 before there is one.
static CODE: AtomicI32 = AtomicI32::new(-1);

/// How messages about the library in use begin.
static LIBRARY: AtomicPtr<String> = AtomicPtr::new(ptr::null_mut());

/// Whether a crash ends the process by its signal.
static ENDS_BY_SIGNAL: AtomicBool = AtomicBool::new(false);

/// The signals of a crash; SIGTRAP is a compiler's trap on some processors, SIGSYS a filter's.
const CRASHES: [c_int; 7] = [SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGSYS, SIGTRAP];

/// A signal handler can't format its name.
pub(super) fn name_library(path: &Path) {
    let text = format!("{PROGRAM}: error: PKCS#11 library {} ", path.display());
    let text = printable(&text);
    if library() != Some(&*text) {
        // Never freed: a handler may be reading the one before.
        LIBRARY.store(Box::leak(Box::new(text.into_owned())), Ordering::Release);
    }
}

pub(super) fn library() -> Option<&'static str> {
    // SAFETY: null, or a value that is never freed nor changed.
    unsafe { LIBRARY.load(Ordering::Acquire).as_ref() }.map(String::as_str)
}

/// From now on, until [`arm`], a crash ends the process with the exit code of a library error and a
/// line on standard error that names this one. So does a call of `exit`, which nothing else makes:
/// SoftHSM calls it where it has no memory left. A library can replace the handlers.
pub fn report_crashes(library: &Path) {
    name_library(library);
    catch(&CRASHES);
}

/// From now on, until [`arm`], a crash ends the process by its signal, for the one that has started it.
pub fn end_by_signal() {
    ENDS_BY_SIGNAL.store(true, Ordering::Relaxed);
}

/// From now on the process ends with `code`, independently of the module: after `limit` seconds at the latest, and at
/// once if the module crashes or calls exit, or the process is interrupted. To be called right before C_Finalize, when
/// the answer is out, since a module may have set handlers and blocked signals before; one that does so in C_Finalize
/// itself has no limit. The alarm is also the [`super::watchdog`]'s, which must have stopped.
pub fn arm(limit: c_uint, code: u8) {
    CODE.store(code.into(), Ordering::Relaxed);
    catch(&[&CRASHES[..], &INTERRUPTING, &[SIGALRM]].concat());
    set_alarm(limit);
}

/// Handles a call of exit and these signals, and unblocks them, which the module may have blocked: a blocked SIGSEGV
/// kills the process without calling the handler.
fn catch(signals: &[c_int]) {
    for signal in signals {
        // SAFETY: the handler reads atomics, writes a line and ends the process.
        unsafe { handle(*signal, on_signal, libc::SA_ONSTACK) };
    }
    mask(libc::SIG_UNBLOCK, signals);
    // Exit functions run in the reverse order of their registration: this one before any that a module has registered.
    at_exit(on_exit);
}

extern "C" fn on_signal(signal: c_int) {
    if ENDS_BY_SIGNAL.load(Ordering::Relaxed) && CODE.load(Ordering::Relaxed) < 0 {
        die_of(signal);
    }
    if signal == SIGABRT && is_own_fault() && CODE.load(Ordering::Relaxed) < 0 {
        leave(Exit::Internal as u8);
    }
    end(signal_name(signal).unwrap_or_default())
}

extern "C" fn on_exit() {
    end("exit")
}

/// Ends the process, as the answer says or, if there is none yet, because of a crash.
fn end(cause: &str) -> ! {
    if let Ok(code) = u8::try_from(CODE.load(Ordering::Relaxed)) {
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
