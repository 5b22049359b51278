//! What this program needs of the operating system: a process that is fit to hold a PIN, signals, clocks, descriptors,
//! other processes; and all limits of time.
//!
//! Each process begins with these, in this order, while it has one thread and no library: [`memory::harden`], [`signals`],
//! [`environment`] (the request is taken out), [`output`]. This crate makes system calls, so `unsafe` is allowed here.

#![allow(unsafe_code, reason = "system calls")]

pub mod activation;
pub mod background;
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

/// Waits for one of the events, or the other end's closing, until the deadline. Returns whether it has come.
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

/// Locks the mutex, even if a thread has panicked while it held the lock.
pub fn locked<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Writes a line, given in parts, to standard error, unless that takes nothing for a second. May be called in a signal
/// handler, since it allocates nothing.
pub fn say<const N: usize>(parts: [&str; N]) {
    let deadline = Instant::now() + Duration::from_secs(1);
    if wait_for(stderr(), PollFlags::OUT, deadline).unwrap_or(false) {
        let _ = writev(stderr(), &parts.map(|part| IoSlice::new(part.as_bytes())));
    }
}

/// The error for a resource that the system doesn't give, and without which there is no connection: memory, threads, open
/// files.
pub fn shortage(reason: impl Display) -> Error {
    Error::new(Exit::Cluster, format!("the system is short of something that this needs: {reason}"))
        .help("find out what is short: memory, threads, or open files (`ulimit -n`)")
}

/// Whether an abort from now on is this program's own fault.
static IS_OWN_FAULT: AtomicBool = AtomicBool::new(false);

/// Notes that an abort from now on is this program's own fault and not a library's: it has panicked or gets no memory, and
/// has said so.
pub fn note_own_fault() {
    IS_OWN_FAULT.store(true, Ordering::Relaxed);
}

/// Whether an abort is this program's own, and not a library's.
pub fn is_own_fault() -> bool {
    IS_OWN_FAULT.load(Ordering::Relaxed)
}

/// Has the function called when the process calls exit(3), before the functions that were registered earlier.
pub fn at_exit(function: extern "C" fn()) {
    // SAFETY: the function lives as long as the process.
    let _ = unsafe { libc::atexit(function) };
}

/// Ends the process at once with this exit code. Nothing that a library does at the end of a process is done.
pub fn leave(code: u8) -> ! {
    // SAFETY: _exit has no preconditions.
    unsafe { libc::_exit(code.into()) }
}
