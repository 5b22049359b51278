//! Which descriptors the programs that we start inherit: the three standard streams, except for the
//! command of a run, which gets those of our caller, too.
//!
//! Our own descriptors are closed on exec, as Rust opens them. A library's need not be, and a program
//! that asks for a PIN must not get those of our caller.

use std::os::fd::RawFd;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Has the program, which must be started at once, inherit only its standard streams.
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

/// Has this process open as many as it may, since each connection takes two; the limit before that.
pub(super) fn raise_limit() -> Rlimit {
    let before = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: before.maximum,
        maximum: before.maximum,
    };
    let _ = setrlimit(Resource::Nofile, raised);
    before
}

/// The numbers of the open descriptors, without the first three.
pub(super) fn open_descriptors() -> Vec<RawFd> {
    let Ok(entries) = std::fs::read_dir("/dev/fd") else {
        return Vec::new();
    };
    let mut descriptors: Vec<RawFd> = entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|descriptor| *descriptor > 2)
        .collect();
    // The directory's own descriptor was among them and is closed by now. The next descriptor with
    // its number must not be taken for the caller's and inherited by the command.
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
