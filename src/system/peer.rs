//! Which process, and which user's, is at the other end of a UNIX socket.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd};

use rustix::process::geteuid;

/// The process at the other end of a connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Peer {
    user: u32,
    /// The process's number in this process's PID namespace; 0 if it isn't in there.
    pub process: i32,
}

impl Peer {
    /// Whether it is a process of root's, as which API servers mostly run.
    pub fn is_root(self) -> bool {
        self.user == 0
    }

    /// Whether it is a process of the same user as this one.
    pub fn is_this_user(self) -> bool {
        self.user == geteuid().as_raw()
    }
}

/// Whose process is at the other end.
#[cfg(target_os = "linux")]
pub fn peer(stream: impl AsFd) -> io::Result<Peer> {
    // rustix isn't used here, since its process numbers are never 0.
    let found: libc::ucred = option(stream.as_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED)?;
    Ok(Peer { user: found.uid, process: found.pid })
}

/// Whose process is at the other end.
#[cfg(target_os = "macos")]
pub fn peer(stream: impl AsFd) -> io::Result<Peer> {
    let mut user = 0;
    let mut group = 0;
    // SAFETY: both places are valid.
    match unsafe { libc::getpeereid(stream.as_fd().as_raw_fd(), &raw mut user, &raw mut group) } {
        0 => Ok(Peer {
            user,
            process: option(stream.as_fd(), libc::SOL_LOCAL, libc::LOCAL_PEERPID)?,
        }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The value of a socket option that is a number or a structure of numbers.
fn option<T: Copy>(stream: BorrowedFd<'_>, level: libc::c_int, name: libc::c_int) -> io::Result<T> {
    let mut found = MaybeUninit::<T>::zeroed();
    let mut length = libc::socklen_t::try_from(size_of::<T>()).unwrap_or_default();
    let descriptor = stream.as_raw_fd();
    let value = found.as_mut_ptr().cast();
    // SAFETY: the value is as long as is said, and the kernel writes no more than that.
    match unsafe { libc::getsockopt(descriptor, level, name, value, &raw mut length) } {
        // SAFETY: all zeros are valid numbers, too.
        0 => Ok(unsafe { found.assume_init() }),
        _ => Err(io::Error::last_os_error()),
    }
}
