//! Other processes: whether they have ended, who has started them, and their sessions.

use std::io;
use std::os::fd::OwnedFd;
use std::process::Child;
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, getpid, getppid, test_kill_process, waitid,
};

use crate::wait_for;

/// A process that can be watched and ended. It isn't mistaken for a later process with the same number.
#[derive(Debug)]
pub struct WatchedProcess {
    number: i32,
    name: String,
    /// A descriptor that becomes readable when the process has ended.
    end: OwnedFd,
}

impl WatchedProcess {
    /// The process with this number. An error if there is none, or it can't be watched.
    pub fn new(number: i32) -> io::Result<Self> {
        let process =
            pid(number).ok_or_else(|| io::Error::other("it is in another PID namespace"))?;
        let end = watch(process)?;
        Ok(Self { number, name: name(number).unwrap_or_default(), end })
    }

    /// The process's number. Once the process has ended, another one may have it.
    pub fn number(&self) -> i32 {
        self.number
    }

    /// The file name of the process's program; empty if the system doesn't tell.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether the process has ended.
    pub fn has_ended(&self) -> bool {
        self.ends_within(Duration::ZERO)
    }

    /// Waits until the process has ended, for as long as `limit`. Returns whether it has ended.
    pub fn ends_within(&self, limit: Duration) -> bool {
        wait_for(&self.end, PollFlags::IN, Instant::now() + limit).unwrap_or(false)
    }

    /// Ends the process: with SIGTERM, and after `patience` with SIGKILL.
    pub fn end(&self, patience: Duration) -> io::Result<()> {
        for signal in [Signal::TERM, Signal::KILL] {
            match self.signal(signal) {
                Ok(()) | Err(Errno::SRCH) => {}
                Err(error) => return Err(error.into()),
            }
            if self.ends_within(patience) {
                return Ok(());
            }
        }
        Err(io::Error::other("it doesn't end"))
    }
}

/// Waits until a child of this process has ended, for as long as `limit`. Returns whether it has. The child isn't reaped, so
/// that no other process gets its number.
pub fn child_ends_within(child: &Child, limit: Duration) -> io::Result<bool> {
    /// The pause between two looks at a child that can't be watched.
    const PAUSE: Duration = Duration::from_millis(20);
    if let Ok(process) = WatchedProcess::new(child.id().cast_signed()) {
        return Ok(process.ends_within(limit));
    }
    let deadline = Instant::now() + limit;
    let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    loop {
        let has_ended = waitid(WaitId::Pid(Pid::from_child(child)), look)?.is_some();
        if has_ended || Instant::now() >= deadline {
            return Ok(has_ended);
        }
        thread::sleep(PAUSE);
    }
}

#[cfg(target_os = "linux")]
impl WatchedProcess {
    /// Sends a signal to this very process, even if another one has its number by now.
    fn signal(&self, signal: Signal) -> Result<(), Errno> {
        rustix::process::pidfd_send_signal(&self.end, signal)
    }
}

#[cfg(target_os = "macos")]
impl WatchedProcess {
    fn signal(&self, signal: Signal) -> Result<(), Errno> {
        let process = Pid::from_raw(self.number).filter(|_| !self.has_ended());
        process.map_or(Ok(()), |process| rustix::process::kill_process(process, signal))
    }
}

/// A process number for system calls; `None` for 0, which stands for a process in another PID namespace, and for a negative
/// number.
fn pid(number: i32) -> Option<Pid> {
    if number > 0 { Pid::from_raw(number) } else { None }
}

/// The number of the session of the process with this number, or of this process for 0. A session has at most one terminal.
/// The number is 0 if the session's leader is in another PID namespace, and -1 if there is no such process. (rustix's
/// function panics if the leader is in another PID namespace or is the kernel.)
pub fn session_of(process: i32) -> i32 {
    // SAFETY: getsid has no preconditions.
    unsafe { libc::getsid(process) }
}

/// The process that has started this one: 0 if it is in another PID namespace, `None` if it has ended.
///
/// When a process ends, its children get another parent (init, for instance), which may never end.
pub fn parent() -> Option<i32> {
    let Some(parent) = getppid() else { return Some(0) };
    let [parent, this] = [parent, getpid()].map(|process| process.as_raw_nonzero().get());
    let session = session_of(this);
    (session == this || session_of(parent) == session).then_some(parent)
}

/// Whether `caller` is a process of this user and has started `plugin`. False if Linux hides that (`hidepid`).
pub fn is_caller(caller: i32, plugin: i32) -> bool {
    let is_own = pid(caller).is_some_and(|process| test_kill_process(process).is_ok());
    is_own && parent_of(plugin).is_none_or(|parent| parent == caller)
}

#[cfg(target_os = "linux")]
fn parent_of(process: i32) -> Option<i32> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The state and the parent come after the name, which may contain any byte.
    let (_, fields) = stat.rsplit_once(") ")?;
    fields.split(' ').nth(1)?.parse().ok()
}

#[cfg(target_os = "macos")]
fn parent_of(_: i32) -> Option<i32> {
    None
}

#[cfg(target_os = "linux")]
fn watch(process: Pid) -> io::Result<OwnedFd> {
    use rustix::process::{PidfdFlags, pidfd_open};

    Ok(pidfd_open(process, PidfdFlags::empty())?)
}

#[cfg(target_os = "macos")]
fn watch(process: Pid) -> io::Result<OwnedFd> {
    use rustix::event::kqueue::{
        Event, EventFilter, EventFlags, ProcessEvents, kevent_timespec, kqueue,
    };

    let queue = kqueue()?;
    let filter = EventFilter::Proc { pid: process, flags: ProcessEvents::EXIT };
    let wanted = [Event::new(filter, EventFlags::ADD, std::ptr::null_mut())];
    let mut none: [Event; 0] = [];
    // SAFETY: the filter names no descriptor.
    unsafe { kevent_timespec(&queue, &wanted, &mut none, None)? };
    Ok(queue)
}

#[cfg(target_os = "linux")]
fn name(number: i32) -> Option<String> {
    let name = std::fs::read_to_string(format!("/proc/{number}/comm")).ok()?;
    Some(name.trim_end().to_owned())
}

#[cfg(target_os = "macos")]
fn name(number: i32) -> Option<String> {
    let mut buffer = [0_u8; 256];
    let length = u32::try_from(buffer.len()).ok()?;
    // SAFETY: the buffer is as long as is said.
    let length = unsafe { libc::proc_name(number, buffer.as_mut_ptr().cast(), length) };
    let name = buffer.get(..usize::try_from(length).ok()?)?;
    Some(String::from_utf8_lossy(name).into_owned())
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn the_end_of_a_process_is_seen() {
        let mut child =
            Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let number = i32::try_from(child.id()).unwrap();
        let watched = WatchedProcess::new(number).unwrap();
        assert!(!watched.has_ended());
        drop(child.stdin.take());
        child.wait().unwrap();
        assert!(watched.has_ended());
        assert!(WatchedProcess::new(number).is_err());
        assert!(WatchedProcess::new(0).is_err());
        assert!(WatchedProcess::new(-1).is_err());
    }

    #[test]
    fn one_that_has_ended_is_not_signalled_by_its_number() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let watched = WatchedProcess::new(i32::try_from(child.id()).unwrap()).unwrap();
        watched.end(Duration::from_secs(600)).unwrap();
        assert!(!child.wait().unwrap().success());
        assert!(watched.has_ended());
        // Whoever has the number by now.
        watched.end(Duration::ZERO).unwrap();
    }

    #[test]
    fn a_process_has_the_name_of_its_program() {
        let this = WatchedProcess::new(i32::try_from(std::process::id()).unwrap()).unwrap();
        // The kernel keeps fifteen bytes of it.
        assert!(this.name().starts_with("pkcs11_external"), "{}", this.name());
        let parent = parent().unwrap();
        let this = this.number();
        assert!(WatchedProcess::new(parent).is_ok());
        assert!(is_caller(parent, this) && !is_caller(0, this));
        assert!(!is_caller(this, this) || cfg!(target_os = "macos"));
    }
}
