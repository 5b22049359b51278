//! The two things that systemd and a service tell each other: the socket that systemd has opened for it (sd_listen_fds(3)),
//! and what state the service is in (sd_notify(3)).

use std::ffi::OsString;
use std::io;
use std::os::fd::{FromRawFd as _, OwnedFd};
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener};

use rustix::io::{FdFlags, fcntl_setfd};

use crate::environment::{self, SingleThreaded};

/// The descriptor of the first socket that systemd hands over.
const FIRST: i32 = 3;

/// Where systemd hears what state the service is in. Nothing is said where no systemd listens.
#[derive(Clone, Debug, Default)]
pub struct ServiceManager {
    socket: Option<OsString>,
}

impl ServiceManager {
    /// Takes the address out of the environment (`NOTIFY_SOCKET`), so that no other program speaks for this one.
    pub fn take(alone: &SingleThreaded) -> Self {
        Self { socket: environment::take("NOTIFY_SOCKET", alone) }
    }

    /// Says something, such as `READY=1`: lines of NAME=VALUE. It is lost where nobody listens.
    pub fn tell(&self, state: &str) {
        let Some(socket) = &self.socket else { return };
        let _ = address(socket)
            .and_then(|address| UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address));
    }
}

/// The address that is a path, or a name behind `@`.
fn address(socket: &OsString) -> io::Result<SocketAddr> {
    #[cfg(target_os = "linux")]
    if let Some(name) = socket.as_encoded_bytes().strip_prefix(b"@") {
        use std::os::linux::net::SocketAddrExt as _;
        return SocketAddr::from_abstract_name(name);
    }
    SocketAddr::from_pathname(socket)
}

/// Takes the listening UNIX socket that systemd has opened for this process, and its variables out of the environment
/// (`LISTEN_FDS`, `LISTEN_PID`, `LISTEN_FDNAMES`); `None` if it has opened none. An error for several, or for another kind of
/// socket.
pub fn take_listener(alone: &SingleThreaded) -> io::Result<Option<UnixListener>> {
    let [process, count, _] = ["LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"]
        .map(|name| environment::take(name, alone).and_then(|value| value.into_string().ok()));
    // The variables may have been meant for the process that has started this one.
    if process.and_then(|process| process.parse().ok()) != Some(std::process::id()) {
        return Ok(None);
    }
    match count.as_deref() {
        None | Some("0") => return Ok(None),
        Some("1") => {}
        Some(_) => return Err(io::Error::other("LISTEN_FDS names more than one socket")),
    }
    // SAFETY: systemd has opened it for this process, and the variables that say so are gone, so that it is taken once.
    let socket = unsafe { OwnedFd::from_raw_fd(FIRST) };
    fcntl_setfd(&socket, FdFlags::CLOEXEC)?;
    let listener = UnixListener::from(socket);
    // The address of a socket of another family is an error.
    if listener.local_addr().is_err() || !listens(&listener)? {
        return Err(io::Error::other("LISTEN_FDS names no listening UNIX socket"));
    }
    Ok(Some(listener))
}

/// Whether clients can connect to the socket. macOS, which has no systemd either, doesn't tell.
fn listens(socket: &UnixListener) -> io::Result<bool> {
    #[cfg(target_os = "linux")]
    let listens = rustix::net::sockopt::socket_acceptconn(socket)?;
    #[cfg(not(target_os = "linux"))]
    let listens = socket.local_addr().is_ok();
    Ok(listens)
}
