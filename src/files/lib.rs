//! Files of this program: directories that only this user can enter, locks and records in them, small secrets, and files
//! that are replaced as a whole.

pub mod data_file;
pub mod directories;
pub mod identity;
pub mod lock;
pub mod notice;
pub mod ownership;
pub mod replaced_file;

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// Opens a regular file for reading. For a FIFO, this fails instead of waiting for somebody to write.
pub fn open_regular(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(io::Error::other("it is not a regular file"))
    }
}

/// The content of a regular file. An error if it has more than `longest` bytes.
pub fn read_regular(path: &Path, longest: u64) -> io::Result<Vec<u8>> {
    read_at_most(open_regular(path)?, longest)
}

/// Reads the file to its end. An error if that is more than `longest` bytes.
fn read_at_most(file: File, longest: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if file.take(longest + 1).read_to_end(&mut bytes)? as u64 > longest {
        let text = format!("it is longer than {longest} bytes");
        return Err(io::Error::new(ErrorKind::FileTooLarge, text));
    }
    Ok(bytes)
}
