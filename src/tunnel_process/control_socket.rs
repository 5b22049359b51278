//! The socket by which this user's processes find the tunnel process. It is in a directory that only this user can enter,
//! and each end checks that the other one is a process of this user.

use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, Mode, chmod, flock};
use rustix::io::Errno;

use files::directories;
use files::identity::FileIdentity;
use system::limits;
use system::peer::peer;

const NAME: &str = "tunnel.socket";

/// The pause between two looks whether another process is about to listen.
const PAUSE: Duration = Duration::from_millis(10);

#[derive(Debug)]
pub(crate) struct ControlSocket {
    path: PathBuf,
    directory: OwnedFd,
    /// Which file the socket was when it was found or made.
    file: Option<FileIdentity>,
}

impl ControlSocket {
    /// Finds the socket's directory, or makes it.
    pub(crate) fn find() -> Result<Self, String> {
        directories::in_first(&directories::SESSION, |path, directory| {
            let path = path.join(NAME);
            Ok(Self { file: FileIdentity::of(&path), path, directory })
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Connects, if a process listens.
    pub(crate) fn connect(&self) -> io::Result<Option<UnixStream>> {
        match UnixStream::connect(&self.path) {
            Ok(stream) if peer(&stream)?.is_this_user() => Ok(Some(stream)),
            Ok(_) => Err(io::Error::other("another user's process listens")),
            Err(error) => match error.kind() {
                ErrorKind::NotFound | ErrorKind::ConnectionRefused => Ok(None),
                _ => Err(error),
            },
        }
    }

    /// Keeps other processes from listening, until the socket is dropped. Waits for one that does so already, and calls
    /// `on_wait` once if that takes a while. On a file system without locks it doesn't wait.
    pub(crate) fn lock(&self, on_wait: impl FnOnce()) {
        let start = Instant::now();
        let mut on_wait = Some(on_wait);
        loop {
            match flock(&self.directory, FlockOperation::NonBlockingLockExclusive) {
                Err(Errno::INTR) => {}
                Err(Errno::WOULDBLOCK) => {
                    if start.elapsed() >= limits::LOCK_NOTICE
                        && let Some(on_wait) = on_wait.take()
                    {
                        on_wait();
                    }
                    thread::sleep(PAUSE);
                }
                Ok(()) | Err(_) => return,
            }
        }
    }

    /// Listens, in place of a process that left its socket behind; there must be no other.
    pub(crate) fn listen(&mut self) -> io::Result<UnixListener> {
        match std::fs::remove_file(&self.path) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = UnixListener::bind(&self.path)?;
        self.file = FileIdentity::of(&self.path);
        chmod(&self.path, Mode::RUSR | Mode::WUSR)?;
        Ok(listener)
    }

    /// Removes the socket, unless another one was put in its place.
    pub(crate) fn remove(&self) {
        if FileIdentity::of(&self.path) == self.file {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{Permissions, set_permissions};
    use std::os::unix::fs::PermissionsExt as _;
    use std::sync::mpsc;

    use super::*;

    fn socket_in(directory: &Path) -> ControlSocket {
        set_permissions(directory, Permissions::from_mode(0o700)).unwrap();
        ControlSocket {
            path: directory.join(NAME),
            directory: directories::open_directory(directory).unwrap(),
            file: None,
        }
    }

    #[test]
    fn a_socket_that_was_left_behind_is_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let mut socket = socket_in(directory.path());
        assert!(socket.connect().unwrap().is_none());
        drop(socket.listen().unwrap());
        assert!(socket.path().exists());
        // A process that another test has just started may hold it a moment longer.
        while socket.connect().unwrap().is_some() {}
        let listener = socket.listen().unwrap();
        let client = socket.connect().unwrap().unwrap();
        let (server, _) = listener.accept().unwrap();
        for end in [client, server] {
            let peer = peer(&end).unwrap();
            assert!(peer.is_this_user());
            assert_eq!(u32::try_from(peer.process), Ok(std::process::id()));
        }
        let mode = std::fs::metadata(socket.path()).unwrap().permissions();
        assert_eq!(mode.mode() & 0o7777, 0o600);
    }

    #[test]
    fn a_wait_for_another_process_is_told_once() {
        let directory = tempfile::tempdir().unwrap();
        let [first, second] = [(); 2].map(|()| socket_in(directory.path()));
        first.lock(|| panic!("nobody has it"));
        let (told, is_told) = mpsc::channel();
        let waiting = thread::spawn(move || second.lock(|| told.send(()).unwrap()));
        is_told.recv().unwrap();
        assert!(!waiting.is_finished());
        drop(first);
        waiting.join().unwrap();
    }

    #[test]
    fn only_the_own_socket_is_removed() {
        let directory = tempfile::tempdir().unwrap();
        let [mut first, mut second] = [(); 2].map(|()| socket_in(directory.path()));
        let _first = first.listen().unwrap();
        // A file that keeps the number of the first from being given to the second.
        std::fs::hard_link(first.path(), directory.path().join("kept")).unwrap();
        let _second = second.listen().unwrap();
        first.remove();
        assert!(first.path().exists());
        second.remove();
        assert!(!second.path().exists());
    }
}
