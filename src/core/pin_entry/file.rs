//! A PIN in a file, which only its owner may read.

use std::fs::Metadata;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rustix::process::geteuid;

use super::first_line;
use crate::error::{Error, Exit};
use crate::pin::{MAX_PIN_LENGTH, Pin};
use crate::process::open_regular;

/// The file's first line. The checks are of the file that was opened, since the path may lead to
/// another one by then.
pub(super) fn read(path: &Path) -> Result<Pin, Error> {
    let failure = |reason: &str| {
        Error::new(Exit::Login, format!("pinSource: file {}: {reason}", path.display())).help(
            "the file must hold the PIN in its first line, belong to you or root, and not be readable by \
             others (chmod 600)",
        )
    };
    let (file, found) = open_regular(path).map_err(|error| failure(&error.to_string()))?;
    check(&found).map_err(|reason| failure(&reason))?;
    let mut bytes = Vec::new();
    file.take(MAX_PIN_LENGTH as u64 + 2)
        .read_to_end(&mut bytes)
        .map_err(|error| failure(&error.to_string()))?;
    first_line(&bytes)
        .ok_or_else(|| failure("its first line is no PIN (empty, too long, or not text)"))
}

fn check(found: &Metadata) -> Result<(), String> {
    if found.uid() != geteuid().as_raw() && found.uid() != 0 {
        return Err(format!("it belongs to user {}, not to you", found.uid()));
    }
    if found.mode() & 0o077 != 0 {
        let mode = found.mode() & 0o7777;
        return Err(format!("others can read it (mode {mode:04o})"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn pin_of(content: &str, mode: u32) -> Result<String, String> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pin");
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        read(&path).map(|pin| pin.expose().to_owned()).map_err(|error| error.to_string())
    }

    #[test]
    fn the_first_line_is_the_pin() {
        for content in ["1234", "1234\n", "1234\r\n", "1234\nsecond line\n"] {
            assert_eq!(pin_of(content, 0o600).unwrap(), "1234");
        }
        assert_eq!(pin_of(" 12 34 \n", 0o400).unwrap(), " 12 34 ");
    }

    #[test]
    fn what_is_no_pin_is_refused() {
        for content in ["", "\n", "\r\n1234", "12\x0734\n", &"9".repeat(300)] {
            assert!(pin_of(content, 0o600).unwrap_err().contains("first line"), "{content:?}");
        }
    }

    #[test]
    fn a_file_that_others_can_read_is_refused() {
        for mode in [0o644, 0o640, 0o604, 0o660] {
            let error = pin_of("1234\n", mode).unwrap_err();
            assert!(error.contains("others can read it"), "{error}");
            assert!(!error.contains("1234"));
        }
    }

    #[test]
    fn a_fifo_and_a_directory_are_refused_without_waiting() {
        let directory = tempfile::tempdir().unwrap();
        let fifo = directory.path().join("fifo");
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        for path in [fifo.as_path(), directory.path()] {
            let error = read(path).unwrap_err().to_string();
            assert!(error.contains("not a regular file"), "{error}");
        }
    }
}
