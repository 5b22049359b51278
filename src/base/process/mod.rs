//! Prepares the process to hold a PIN, and protects it from the library that it loads.
//!
//! In this order, while there is one thread and no library: [`memory::harden`], [`signals`], [`environment`] (the
//! request is taken out), [`output`]; then [`watchdog`], [`lock`], and when the answer is out
//! [`exit_guard`]. Because of its system calls, `unsafe` is allowed here.

#![allow(unsafe_code, reason = "system calls")]

pub mod background;
#[cfg(test)]
mod child;
pub mod command;
pub mod control_socket;
pub mod data_file;
pub mod descriptors;
pub mod environment;
pub mod exit_guard;
pub mod lock;
pub mod memory;
pub mod output;
pub mod replaced_file;
mod runtime;
pub mod signals;
pub mod told;
pub mod watchdog;
pub mod watched;

pub use runtime::{exposure, fnv_1a, run_directory};

use std::fmt::Display;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, IoSlice, Read as _};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, writev};
use rustix::stdio::stderr;
use rustix::time::{ClockId, clock_gettime};

use crate::error::{Error, Exit};

/// The clock, in whole seconds since 1970; 0 for a clock that is set before that.
pub fn unix_time() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

/// The time since the machine was started, which goes on while it sleeps.
pub fn time_since_boot() -> Duration {
    #[cfg(target_os = "linux")]
    const CLOCK: ClockId = ClockId::Boottime;
    #[cfg(not(target_os = "linux"))]
    const CLOCK: ClockId = ClockId::Monotonic;
    let now = clock_gettime(CLOCK);
    Duration::try_from(now).unwrap_or_default()
}

/// Opens a regular file to read it, and never waits for a FIFO's writer.
pub fn open_regular(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::other("it is not a regular file")),
    }
}

/// The content of a regular file, which has `longest` bytes at most.
pub fn read_regular(path: &Path, longest: u64) -> io::Result<Vec<u8>> {
    read_at_most(open_regular(path)?, longest)
}

/// Everything up to the end; fails where that is more than `longest` bytes.
fn read_at_most(file: File, longest: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if file.take(longest + 1).read_to_end(&mut bytes)? as u64 > longest {
        let text = format!("it is longer than {longest} bytes");
        return Err(io::Error::new(ErrorKind::FileTooLarge, text));
    }
    Ok(bytes)
}

/// The number of the session of the process with this number, or of this process for 0: a session has at most one
/// terminal. 0 if its leader is in another PID namespace, -1 if there is no such process. rustix's panics where the
/// leader is in another PID namespace, or is the kernel.
pub fn session_of(process: i32) -> i32 {
    // SAFETY: getsid has no preconditions.
    unsafe { libc::getsid(process) }
}

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
pub fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Says a line if standard error takes it within a second: from a signal handler, before the process ends.
fn say<const N: usize>(parts: [&str; N]) {
    if wait_for(stderr(), PollFlags::OUT, Instant::now() + Duration::from_secs(1))
        .is_ok_and(|it| it)
    {
        let _ = writev(stderr(), &parts.map(|part| IoSlice::new(part.as_bytes())));
    }
}

/// The system lacks what a connection through the token needs.
pub fn shortage(reason: impl Display) -> Error {
    Error::new(Exit::Cluster, format!("the system doesn't give what this needs: {reason}"))
        .help("see what is short: memory, threads, or open files (`ulimit -n`)")
}

/// Ends the process at once: nothing that a library does at the end happens.
pub fn leave(code: u8) -> ! {
    // SAFETY: _exit has no preconditions.
    unsafe { libc::_exit(code.into()) }
}
