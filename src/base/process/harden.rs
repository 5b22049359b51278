//! No core file, and no other process of this user that reads our memory or attaches to us.
//!
//! Against root, and against a debugger that was there first, nothing here helps.

#![cfg_attr(not(target_os = "macos"), forbid(unsafe_code))]

#[cfg(target_os = "linux")]
use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Makes the process undumpable and untraceable, first of all; the limit of core files before that.
/// Only a filter around the process (seccomp) can refuse it, which is no reason not to answer.
pub fn harden() -> Rlimit {
    // Also makes /proc/PID/environ and /proc/PID/mem root's own. It alone stops a core_pattern
    // that pipes to a collector, which the kernel runs in spite of the limit.
    #[cfg(target_os = "linux")]
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);

    // For the programs that a module starts: exec makes a process dumpable again.
    let before = getrlimit(Resource::Core);
    let nothing = Rlimit { current: Some(0), maximum: before.maximum };
    let _ = setrlimit(Resource::Core, nothing);

    // With a debugger attached already, this call ends the process.
    #[cfg(target_os = "macos")]
    // SAFETY: PT_DENY_ATTACH reads none of its other arguments.
    let _ = unsafe { libc::ptrace(libc::PT_DENY_ATTACH, 0, std::ptr::null_mut(), 0) };

    before
}
