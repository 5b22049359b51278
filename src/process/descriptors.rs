//! Which descriptors the programs that we start get: the first three, unless the program is what a
//! run is for.
//!
//! Ours are closed on exec, as Rust opens them. A library's need not be, and what our caller handed
//! to us is not a matter of whoever asks for a PIN.

use std::os::fd::RawFd;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

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
        // SAFETY: F_GETFD only reads, and fails for a number that is not open.
        unsafe { libc::fcntl(*descriptor, libc::F_GETFD) != -1 }
    });
    descriptors
}

pub(super) fn close_on_exec(descriptor: RawFd) {
    // SAFETY: it sets the only flag that a descriptor has, and fails for a number that is not open.
    let _ = unsafe { libc::fcntl(descriptor, libc::F_SETFD, libc::FD_CLOEXEC) };
}
