//! The socket at which the API server asks: in a directory that only this user can enter, and open to this user and root.

use std::io::ErrorKind;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, Mode, chmod, flock};
use rustix::io::Errno;

use files::directories;
use files::identity::FileIdentity;
use messages::error::{Error, Exit};
use system::peer::peer;

/// A socket that listens.
pub(crate) struct ListeningSocket {
    pub(crate) listener: UnixListener,
    pub(crate) path: PathBuf,
    /// A socket that this process has made; `None` for systemd's.
    made: Option<FileIdentity>,
}

impl ListeningSocket {
    /// Listens at this path, in place of a signer that left its socket behind. The directory is made if it isn't there.
    pub(crate) fn bind(path: &Path) -> Result<Self, Error> {
        let path = std::path::absolute(path).map_err(|error| unusable(path, &error.to_string()))?;
        let directory = open_directory(&path)?;
        // Until it listens, no other signer takes this socket for one that was left behind.
        if let Err(Errno::WOULDBLOCK) = flock(&directory, FlockOperation::NonBlockingLockExclusive)
        {
            return Err(unusable(&path, "another process is about to listen there"));
        }
        remove_left_behind(&path)?;
        let listener =
            UnixListener::bind(&path).map_err(|error| unusable(&path, &error.to_string()))?;
        chmod(&path, Mode::RUSR | Mode::WUSR)
            .map_err(|error| unusable(&path, &error.to_string()))?;
        Ok(Self { listener, made: FileIdentity::of(&path), path })
    }

    /// The socket that systemd has opened.
    pub(crate) fn of_systemd(listener: UnixListener) -> Result<Self, Error> {
        let address = listener.local_addr().ok();
        let path = address.as_ref().and_then(|address| address.as_pathname());
        let Some(path) = path.map(Path::to_owned) else {
            let text = "the socket that systemd has opened has no path";
            return Err(Error::new(Exit::Configuration, text).help(
                "set ListenStream= in its unit to a path, as docs/service-accounts.md has it",
            ));
        };
        open_directory(&path)?;
        Ok(Self { listener, path, made: None })
    }

    /// Removes the socket, unless it is systemd's or another one was put in its place.
    pub(crate) fn remove(&self) {
        if self.made.is_some() && FileIdentity::of(&self.path) == self.made {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Whether the process at the other end is this user's or root's.
pub(crate) fn may_ask(stream: impl AsFd) -> bool {
    peer(stream).is_ok_and(|peer| peer.is_this_user() || peer.is_root())
}

/// Opens the socket's directory. An error if others than this user can enter it.
fn open_directory(path: &Path) -> Result<OwnedFd, Error> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let checked = directories::open_directory(directory.unwrap_or_else(|| Path::new(".")));
    checked.map_err(|reason| {
        let text = format!("{} is no place for the socket: {reason}", path.display());
        Error::new(Exit::Configuration, text).help(
            "put it into a directory of this user's own with the mode 0700, such as one below /run",
        )
    })
}

/// Removes the socket of a signer that has ended. An error if one listens, or the file is something else.
fn remove_left_behind(path: &Path) -> Result<(), Error> {
    let found = match path.symlink_metadata() {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        found => found.map_err(|error| unusable(path, &error.to_string()))?,
    };
    if !found.file_type().is_socket() {
        return Err(unusable(path, "it is there, and is no socket"));
    }
    match UnixStream::connect(path).map_err(|error| error.kind()) {
        Err(ErrorKind::ConnectionRefused) => {
            std::fs::remove_file(path).map_err(|error| unusable(path, &error.to_string()))
        }
        Err(ErrorKind::NotFound) => Ok(()),
        // One that has no room for another connection listens as well.
        Ok(_) | Err(_) => Err(unusable(path, "another process listens there")),
    }
}

fn unusable(path: &Path, reason: &str) -> Error {
    Error::new(
        Exit::Configuration,
        format!("no socket can be made at {}: {reason}", path.display()),
    )
    .help("end the other signer, or name another path with --socket")
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn private_directory() -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        fs::set_permissions(directory.path(), Permissions::from_mode(0o700)).unwrap();
        directory
    }

    #[test]
    fn the_socket_is_one_users_and_replaces_one_that_was_left() {
        let directory = private_directory();
        let path = directory.path().join("made/signer.sock");
        drop(ListeningSocket::bind(&path).unwrap());
        let socket = ListeningSocket::bind(&path).unwrap();
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o7777;
        assert_eq!(mode(&path), 0o600);
        assert_eq!(mode(path.parent().unwrap()), 0o700);
        let error = ListeningSocket::bind(&path).err().unwrap().to_string();
        assert!(error.ends_with("another process listens there"), "{error}");
        let client = UnixStream::connect(&path).unwrap();
        assert!(may_ask(&client));
        socket.remove();
        assert!(!path.exists());
        let held = directories::open_directory(path.parent().unwrap()).unwrap();
        flock(&held, FlockOperation::LockExclusive).unwrap();
        let error = ListeningSocket::bind(&path).err().unwrap().to_string();
        assert!(error.ends_with("another process is about to listen there"), "{error}");
    }

    #[test]
    fn a_directory_of_others_and_a_file_are_refused() {
        let directory = private_directory();
        let path = directory.path().join("signer.sock");
        fs::write(&path, "mine").unwrap();
        let error = ListeningSocket::bind(&path).err().unwrap().to_string();
        assert!(error.ends_with("it is there, and is no socket"), "{error}");
        fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).unwrap();
        let error = ListeningSocket::bind(&directory.path().join("other.sock")).err().unwrap();
        assert!(error.to_string().contains("is open to other users (mode 0755)"), "{error}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "mine");
    }
}
