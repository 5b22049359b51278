//! A PIN that nobody has to be asked for: in a file that only its owner may read, or on standard input.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use rustix::io::{Errno, read};
use rustix::process::geteuid;
use rustix::stdio::stdin;

use super::first_line;
use base::error::{Error, Exit};
use base::pin::{MAX_PIN_LENGTH, Pin};
use base::process::{exposure, open_regular, wait_for};

/// How long a line of standard input may take.
const LINE_LIMIT: Duration = Duration::from_secs(60);

pub(super) fn read_file(path: &Path) -> Result<Pin, Error> {
    let failure = |reason: &str| {
        Error::new(Exit::Login, format!("pinSource: file {}: {reason}", path.display())).help(
            "it must hold the PIN in its first line, be yours or root's, and not readable by others (chmod 600)",
        )
    };
    let bytes = |file: File| {
        // Of the file that was opened, since the path may lead to another one by now.
        if let Some(exposure) = exposure(&file, &[geteuid().as_raw(), 0])? {
            return Err(std::io::Error::other(format!("it {exposure}")));
        }
        let mut bytes = Vec::new();
        file.take(MAX_PIN_LENGTH as u64 + 2).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let bytes = open_regular(path).and_then(bytes).map_err(|error| failure(&error.to_string()))?;
    first_line(&bytes)
        .ok_or_else(|| failure("its first line is no PIN (empty, too long, or not text)"))
}

/// The next line of standard input, taken byte by byte so that the rest stays.
pub(super) fn read_line() -> Result<Pin, Error> {
    let failure = |reason: &str| {
        Error::new(Exit::Login, format!("pinSource: standard input {reason}"))
            .help("write the PIN and a newline to it, or choose another pinSource (--pin-source)")
    };
    let deadline = Instant::now() + LINE_LIMIT;
    let mut line = Vec::new();
    let mut byte = [0_u8];
    while line.len() <= MAX_PIN_LENGTH + 2 && !line.ends_with(b"\n") {
        if !wait_for(stdin(), PollFlags::IN, deadline).unwrap_or(false) {
            return Err(failure("held no line within a minute"));
        }
        match read(stdin(), &mut byte) {
            Ok(0) => break,
            Ok(_) => line.push(byte[0]),
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(error) => return Err(failure(&format!("can't be read: {error}"))),
        }
    }
    first_line(&line).ok_or_else(|| failure("holds no PIN (empty, too long, or not text)"))
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
