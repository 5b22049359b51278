//! PINs that nobody has to be asked for: in a file that only its owner may read, or on standard input.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::Instant;

use rustix::event::PollFlags;
use rustix::io::{Errno, read};
use rustix::process::geteuid;
use rustix::stdio::stdin;

use super::first_line;
use config::pin::{MAX_PIN_LENGTH, Pin};
use files::directories::exposure;
use files::open_regular;
use messages::error::{Error, Exit};
use system::limits;
use system::wait_for;

/// Reads the first line of the file, which must belong to this user or root and be closed to others.
pub(super) fn read_file(path: &Path) -> Result<Pin, Error> {
    let failure = |reason: &str| {
        Error::new(Exit::Login, format!("pinSource: file {}: {reason}", path.display())).help(
            "it must hold the PIN in its first line, be yours or root's, and not readable by others (chmod 600)",
        )
    };
    let bytes = |file: File| {
        // This is about the file that was opened, since the path may lead to another one by now.
        let found = file.metadata()?;
        // systemd gives a service's user its credentials by an access list, whose mask stands in the place of the
        // group's mode.
        let is_credential = (found.uid(), found.gid(), found.mode() & 0o7777) == (0, 0, 0o440);
        let exposure = exposure(&file, &[geteuid().as_raw(), 0])?;
        if let Some(exposure) = exposure.filter(|_| !is_credential) {
            return Err(io::Error::other(format!("it {exposure}")));
        }
        let mut bytes = Vec::new();
        file.take(MAX_PIN_LENGTH as u64 + 2).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let bytes = open_regular(path).and_then(bytes).map_err(|error| failure(&error.to_string()))?;
    first_line(&bytes)
        .ok_or_else(|| failure("its first line is no PIN (it is empty, too long, or not text)"))
}

/// Reads the next line of standard input. It is taken byte by byte, so that the rest stays there.
pub(super) fn read_line() -> Result<Pin, Error> {
    let failure = |reason: &str| {
        Error::new(Exit::Login, format!("pinSource: standard input {reason}"))
            .help("write the PIN and a newline to it, or choose another pinSource (--pin-source)")
    };
    let mut input = TimedInput { input: stdin(), deadline: Instant::now() + limits::PIN_LINE };
    let mut line = Vec::new();
    let mut byte = [0];
    while line.len() <= MAX_PIN_LENGTH + 2 && !line.ends_with(b"\n") {
        let length = input.read(&mut byte).map_err(|error| match error.kind() {
            ErrorKind::TimedOut => failure("gave no line within a minute"),
            _ => failure(&format!("can't be read: {error}")),
        })?;
        if length == 0 {
            break;
        }
        line.extend(byte);
    }
    first_line(&line).ok_or_else(|| failure("holds no PIN (it is empty, too long, or not text)"))
}

/// An input that is read until the deadline.
pub(super) struct TimedInput<I> {
    pub(super) input: I,
    pub(super) deadline: Instant,
}

impl<I: AsFd> Read for TimedInput<I> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while wait_for(&self.input, PollFlags::IN, self.deadline)? {
            match read(&self.input, &mut *buffer) {
                Err(Errno::AGAIN | Errno::INTR) => {}
                outcome => return Ok(outcome?),
            }
        }
        Err(ErrorKind::TimedOut.into())
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn spaces_belong_to_the_pin() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pin");
        fs::write(&path, " 12 34 \n").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        assert_eq!(read_file(&path).ok().unwrap().expose(), " 12 34 ");
    }

    #[test]
    fn a_fifo_and_a_directory_are_refused_without_waiting() {
        let directory = tempfile::tempdir().unwrap();
        let fifo = directory.path().join("fifo");
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        for path in [fifo.as_path(), directory.path()] {
            let error = read_file(path).unwrap_err().to_string();
            assert!(error.contains("not a regular file"), "{error}");
        }
    }
}
