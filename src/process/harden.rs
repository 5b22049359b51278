//! No core file, and no other process of this user that reads our memory or attaches to us.

/// Makes the process not dumpable. What the system refuses here it refuses to nobody but
/// processes with less than an ordinary user's rights, and they are no worse off than before.
pub fn harden() {
    let none = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: `none` is a valid limit that is only read.
    let _ = unsafe { libc::setrlimit(libc::RLIMIT_CORE, &raw const none) };
    #[cfg(target_os = "linux")]
    {
        // Also makes /proc/PID/environ and /proc/PID/mem root's own.
        let undumpable: libc::c_ulong = 0;
        // SAFETY: PR_SET_DUMPABLE takes one number.
        let _ = unsafe { libc::prctl(libc::PR_SET_DUMPABLE, undumpable) };
    }
    #[cfg(target_os = "macos")]
    // SAFETY: PT_DENY_ATTACH ignores its other arguments.
    let _ = unsafe { libc::ptrace(libc::PT_DENY_ATTACH, 0, std::ptr::null_mut(), 0) };
}
