//! Standard output, which is set aside for what this program itself prints.
//!
//! The client reads standard output as one JSON document, but a PKCS#11 library may print at any time: when it is loaded,
//! in any call, at exit. So the real standard output is duplicated before a library is loaded, and descriptor 1 leads to
//! standard error from then on.

use std::io;
use std::os::fd::OwnedFd;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{Errno, fcntl_dupfd_cloexec, write};
use rustix::stdio;

use messages::error::{Error, Exit};

/// The lowest number for the duplicate: above those that programs use for their own purposes, as in shells.
const LOWEST_DESCRIPTOR: i32 = 10;

/// The real standard output. What a library prints goes to standard error.
pub struct StandardOutput(OwnedFd);

impl StandardOutput {
    /// Sets standard output aside. This is to be called once, before a library is loaded.
    pub fn set_aside() -> Result<Self, Error> {
        duplicate().map(Self).map_err(|error| {
            Error::new(Exit::Request, format!("standard output can't be set aside: {error}"))
                .help("too many files are open for the limit: raise it (`ulimit -n`), or start the program with fewer open")
        })
    }

    /// Writes the whole text. An error if the reader is gone, since SIGPIPE is ignored.
    pub fn write(&mut self, text: &str) -> io::Result<()> {
        let mut rest = text.as_bytes();
        while !rest.is_empty() {
            match write(&self.0, rest) {
                Ok(written) => rest = rest.get(written..).unwrap_or_default(),
                Err(Errno::INTR) => {}
                // Some clients pass a pipe that doesn't block. If something else is wrong, the next write says so.
                Err(Errno::AGAIN) => {
                    let _ = poll(&mut [PollFd::new(&self.0, PollFlags::OUT)], None);
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

/// The error for an answer that could not be written.
pub fn answer_lost(error: &io::Error) -> Error {
    let text = format!("the answer could not be written to standard output: {error}");
    Error::new(Exit::Request, text)
        .help("run the program with a standard output that stays open until it ends")
}

/// Duplicates standard output, and has descriptor 1 lead to standard error. The duplicate is closed on exec, so that no
/// program that a library starts keeps the client waiting.
pub(crate) fn duplicate() -> Result<OwnedFd, Errno> {
    let output = fcntl_dupfd_cloexec(stdio::stdout(), LOWEST_DESCRIPTOR)?;
    stdio::dup2_stdout(stdio::stderr())?;
    Ok(output)
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::os::fd::AsFd;

    use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
    use rustix::pipe::pipe;

    use super::*;

    #[test]
    fn a_pipe_that_takes_little_and_does_not_block_gets_all_of_it() {
        let (reader, writer) = pipe().unwrap();
        let flags = fcntl_getfl(writer.as_fd()).unwrap();
        fcntl_setfl(&writer, flags | OFlags::NONBLOCK).unwrap();
        let document = "x".repeat(1 << 20);
        let client = std::thread::spawn(move || {
            let mut received = String::new();
            std::fs::File::from(reader).read_to_string(&mut received).unwrap();
            received
        });
        StandardOutput(writer).write(&document).unwrap();
        assert_eq!(client.join().unwrap(), document);
    }
}
