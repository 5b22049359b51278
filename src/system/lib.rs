//! The operating system: the process, prepared to hold a PIN, its signals, its clock and its limits.
//!
//! At the start of each process, in this order, while there is one thread and no library: [`memory::harden`],
//! [`signals`], [`environment`] (the request is taken out), [`output`]. Because of its system calls, `unsafe` is allowed
//! here.

#![allow(unsafe_code, reason = "system calls")]

#[cfg(any(test, feature = "testing"))]
pub mod child;
pub mod clock;
pub mod command;
pub mod descriptors;
pub mod environment;
pub mod limits;
pub mod memory;
pub mod output;
pub mod peer;
pub mod process;
pub mod signals;

use std::fmt::Display;
use std::io::{self, IoSlice};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, writev};
use rustix::stdio::stderr;

use messages::error::{Error, Exit};

/// Whether one of the events, or the end of the descriptor, came before the deadline.
pub fn wait_for(descriptor: impl AsFd, events: PollFlags, deadline: Instant) -> io::Result<bool> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let mut descriptor = [PollFd::new(&descriptor, events)];
        match poll(&mut descriptor, Timespec::try_from(left).ok().as_ref()) {
            Ok(ready) => return Ok(ready > 0),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// The mutex's value, also after a thread has panicked while it had it.
pub fn locked<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Says a line, given in parts, if standard error takes it within a second. May be called in a signal handler, before the
/// process ends: it allocates nothing.
pub fn say<const N: usize>(parts: [&str; N]) {
    let deadline = Instant::now() + Duration::from_secs(1);
    if wait_for(stderr(), PollFlags::OUT, deadline).unwrap_or(false) {
        let _ = writev(stderr(), &parts.map(|part| IoSlice::new(part.as_bytes())));
    }
}

/// An error for what the system lacks although a connection through the token needs it: memory, threads, open files.
pub fn shortage(reason: impl Display) -> Error {
    Error::new(Exit::Cluster, format!("the system doesn't give what this needs: {reason}"))
        .help("see what is short: memory, threads, or open files (`ulimit -n`)")
}

/// Whether this program itself is at fault for an abort that may follow.
static IS_OWN_FAULT: AtomicBool = AtomicBool::new(false);

/// Notes that an abort from now on is not a library's: this program has panicked, or gets no memory, and has said so.
pub fn note_own_fault() {
    IS_OWN_FAULT.store(true, Ordering::Relaxed);
}

/// Whether an abort is this program's own, and not a library's.
pub fn is_own_fault() -> bool {
    IS_OWN_FAULT.load(Ordering::Relaxed)
}

/// Calls the function when the process calls exit(3): before those that were registered earlier.
pub fn at_exit(function: extern "C" fn()) {
    // SAFETY: the function lives as long as the process.
    let _ = unsafe { libc::atexit(function) };
}

/// Ends the process at once with this exit code: nothing that a library does at the end happens.
pub fn leave(code: u8) -> ! {
    // SAFETY: _exit has no preconditions.
    unsafe { libc::_exit(code.into()) }
}
