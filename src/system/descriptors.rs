//! Which descriptors other programs get. Programs that are started inherit only the three standard streams; the command of
//! a run also inherits those of this program's caller. And descriptors are sent over sockets to other processes of this
//! program.
//!
//! Descriptors that Rust opens are closed on exec. A library's need not be. And a program that asks for a PIN must not get
//! those of the caller.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::mem::{self, MaybeUninit};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use rustix::cmsg_space;
use rustix::fs::{Mode, OFlags, open};
use rustix::io::{Errno, fcntl_getfd, retry_on_intr};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::stdio::{stderr, stdin, stdout};

use crate::leave;
use messages::error::Exit;

/// How many descriptors are sent at once, at most.
const MOST: usize = 2;

/// Opens the standard streams that are closed, so that no file that is opened later takes the place of one.
pub fn open_standard() {
    for stream in [stdin(), stdout(), stderr()] {
        if fcntl_getfd(stream) == Err(Errno::BADF) {
            // It gets the lowest free number.
            let nothing = open("/dev/null", OFlags::RDWR, Mode::empty());
            mem::forget(nothing.unwrap_or_else(|_| leave(Exit::Internal as u8)));
        }
    }
}

/// Sends these descriptors over the socket, two at most.
pub fn send(socket: impl AsFd, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(MOST))];
    let mut message = SendAncillaryBuffer::new(&mut space);
    message.push(SendAncillaryMessage::ScmRights(descriptors));
    sendmsg(socket, &[IoSlice::new(&[0])], &mut message, SendFlags::empty())?;
    Ok(())
}

/// Waits for descriptors that [`send`] has sent. An error if the socket was closed.
pub fn receive(socket: impl AsFd) -> io::Result<Vec<OwnedFd>> {
    #[cfg(target_os = "linux")]
    const FLAGS: RecvFlags = RecvFlags::CMSG_CLOEXEC;
    #[cfg(not(target_os = "linux"))]
    const FLAGS: RecvFlags = RecvFlags::empty();
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(MOST))];
    let mut message = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let mut byte = [IoSliceMut::new(&mut byte)];
    let received = retry_on_intr(|| recvmsg(&socket, &mut byte, &mut message, FLAGS))?;
    if received.bytes == 0 {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    let descriptors = message.drain().filter_map(|part| match part {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    Ok(descriptors.flatten().collect())
}

/// From now on, programs that are started inherit only the standard streams, and descriptors that a library's threads may
/// open later. To be used for processes of this program itself.
pub fn keep_to_this_process() {
    if !close_between_on_exec(&[]) {
        for descriptor in open_descriptors() {
            close_on_exec(descriptor);
        }
    }
}

/// Has the program inherit the standard streams and these descriptors of this process, and no others.
pub fn hand_on(command: &mut Command, mut kept: Vec<RawFd>) -> &mut Command {
    kept.sort_unstable();
    // For systems without close_range(2). It isn't enough where that exists: other threads may open more until the program
    // is started.
    let mut others = open_descriptors();
    others.retain(|descriptor| !kept.contains(descriptor));
    // SAFETY: between fork and exec it makes system calls only.
    unsafe {
        command.pre_exec(move || {
            if !close_between_on_exec(&kept) {
                for descriptor in &others {
                    close_on_exec(*descriptor);
                }
            }
            Ok(())
        })
    }
}

/// Has all descriptors closed on exec but the standard streams and these, which are in order. Returns whether the system
/// could do that.
#[cfg(target_os = "linux")]
fn close_between_on_exec(kept: &[RawFd]) -> bool {
    let mut first = 3;
    let ends = kept.iter().map(|descriptor| descriptor.cast_unsigned());
    ends.chain([u32::MAX]).all(|end| {
        let begin = first;
        let flag = libc::CLOSE_RANGE_CLOEXEC;
        first = end.saturating_add(1);
        // SAFETY: it only sets a flag of descriptors. Kernels before 5.11 don't have the call.
        begin >= end || unsafe { libc::syscall(libc::SYS_close_range, begin, end - 1, flag) == 0 }
    })
}

#[cfg(not(target_os = "linux"))]
fn close_between_on_exec(_: &[RawFd]) -> bool {
    false
}

/// Raises the limit of open descriptors as far as possible, since each connection takes two. Returns the limit from before.
pub fn raise_limit() -> Rlimit {
    let before = getrlimit(Resource::Nofile);
    // macOS has no maximum, but refuses to set no limit. It accepts OPEN_MAX.
    let unlimited = cfg!(target_os = "macos").then_some(10_240).max(before.current);
    let raised = Rlimit { current: before.maximum.or(unlimited), ..before };
    let _ = setrlimit(Resource::Nofile, raised);
    before
}

/// The numbers of the open descriptors, without the first three.
pub fn open_descriptors() -> Vec<RawFd> {
    let Ok(entries) = std::fs::read_dir("/dev/fd") else { return Vec::new() };
    let mut descriptors: Vec<RawFd> = entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|descriptor| *descriptor > 2)
        .collect();
    // The descriptor of the directory itself was among them, and is closed by now. A later descriptor with its number must
    // not be taken for one of the caller's, which the command inherits.
    descriptors.retain(|descriptor| {
        // SAFETY: F_GETFD only reads, and fails for a number that is not open.
        unsafe { libc::fcntl(*descriptor, libc::F_GETFD) != -1 }
    });
    descriptors
}

fn close_on_exec(descriptor: RawFd) {
    // SAFETY: it sets the only flag that a descriptor has, and fails for a number that is not open.
    let _ = unsafe { libc::fcntl(descriptor, libc::F_SETFD, libc::FD_CLOEXEC) };
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Descriptors that stay open over exec, as a library opens them in another thread.
    fn opened(at_least: RawFd) -> RawFd {
        // SAFETY: it duplicates standard error.
        unsafe { libc::fcntl(2, libc::F_DUPFD, at_least) }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_descriptor_that_is_opened_just_before_the_program_starts_is_not_handed_on() {
        let kept = [opened(300), opened(310)];
        for kept in [&kept[..], &[]] {
            let mut command = Command::new("sh");
            hand_on(&mut command, kept.iter().rev().copied().collect());
            let others = [opened(299), opened(301), opened(311)];
            let open = "for it in \"$@\"; do [ -e /dev/fd/$it ] && printf \"$it \"; done; exit 0";
            command.args(["-c", open, "sh"]);
            command.args(kept.iter().chain(&others).map(ToString::to_string));
            let output = command.output().unwrap();
            let expected: String = kept.iter().map(|number| format!("{number} ")).collect();
            assert_eq!(String::from_utf8(output.stdout).unwrap(), expected);
        }
    }
}
