//! No core file, and no other process of this user that reads our memory or attaches to us.
//!
//! Against root, and against a debugger that was there first, nothing here helps.

#![cfg_attr(not(target_os = "macos"), forbid(unsafe_code))]

#[cfg(target_os = "linux")]
use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Makes the process undumpable and untraceable. To be called first of all.
///
/// A system can refuse it only through a filter put around the process (seccomp, a sandbox
/// profile). The process is then no worse off than any other inside that filter, and a user who
/// needs an answer has no use for a refusal: failures are passed over.
///
/// Returns the limit of core files as it was, for a command that is to have it back.
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

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use rustix::process::dumpable_behavior;

    use super::super::child;
    use super::*;

    #[test]
    fn nothing_is_dumped_and_nobody_looks_on() {
        if child::is_this() {
            harden();
            assert_eq!(dumpable_behavior().unwrap(), DumpableBehavior::NotDumpable);
            let limit = getrlimit(Resource::Core);
            assert_eq!(limit.current, Some(0));
            assert_eq!(std::fs::metadata("/proc/self/environ").unwrap().uid(), 0);
            super::super::leave(23);
        }
        let output =
            child::command("process::harden::tests::nothing_is_dumped_and_nobody_looks_on")
                .output()
                .unwrap();
        assert_eq!(output.status.code(), Some(23), "{output:?}");
    }
}
