//! Which descriptors the programs that we start get: the first three, unless the program is what a
//! run is for.
//!
//! Ours are closed on exec, as Rust opens them. A library's need not be, and what our caller handed
//! to us is not a matter of whoever asks for a PIN.

use std::os::fd::{AsFd as _, BorrowedFd, RawFd};
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use rustix::io::{FdFlags, fcntl_getfd, fcntl_setfd};

/// The program, to be started at once, gets none but its standard streams.
pub fn hand_on_none(command: &mut Command) -> &mut Command {
    let descriptors = open_descriptors();
    // SAFETY: between fork and exec it makes system calls only.
    unsafe {
        command.pre_exec(move || {
            descriptors.iter().copied().for_each(close_on_exec);
            Ok(())
        })
    }
}

/// The numbers of the open descriptors but the first three.
pub(super) fn open_descriptors() -> Vec<RawFd> {
    let Ok(entries) = std::fs::read_dir("/dev/fd") else {
        return Vec::new();
    };
    let mut descriptors: Vec<RawFd> = entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|descriptor| *descriptor > 2)
        .collect();
    // That of the directory itself was among them. Taken for the caller's, its number would let
    // the next one that gets it through to the command.
    descriptors.retain(|descriptor| {
        // SAFETY: it is only used for the call below, which fails if it was closed meanwhile.
        let descriptor = unsafe { BorrowedFd::borrow_raw(*descriptor) };
        fcntl_getfd(descriptor).is_ok()
    });
    descriptors
}

pub(super) fn close_on_exec(descriptor: RawFd) {
    // SAFETY: it is only used for the two calls below, which fail if it was closed meanwhile.
    let descriptor = unsafe { BorrowedFd::borrow_raw(descriptor) };
    if let Ok(flags) = fcntl_getfd(descriptor.as_fd()) {
        let _ = fcntl_setfd(descriptor, flags | FdFlags::CLOEXEC);
    }
}
