//! Standard output, kept for the answer.
//!
//! The client reads standard output as one JSON document, and a module may print whatever it
//! likes: when it is loaded, in any call, at exit. So the real standard output is put aside before
//! a module is loaded, and descriptor 1 leads to standard error from then on.

use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{Errno, fcntl_dupfd_cloexec, write};
use rustix::stdio;

use super::error::AnswerError;

/// Above the numbers that a program would take for its own, as shells do it.
const LOWEST_DESCRIPTOR: i32 = 10;

/// Whether standard output was closed when the program started. `main` is too late to ask: Rust's
/// runtime has opened /dev/null there, and an answer would be lost without an error.
static CLOSED_AT_START: AtomicBool = AtomicBool::new(false);

/// Finds out whether standard output is closed. For a program to have called before its `main`.
pub extern "C" fn look_at_standard_output() {
    // SAFETY: F_GETFD takes no third argument and only reads.
    let flags = unsafe { libc::fcntl(libc::STDOUT_FILENO, libc::F_GETFD) };
    CLOSED_AT_START.store(flags == -1, Ordering::Relaxed);
}

/// The way to the client. Having one means that descriptor 1 no longer leads there, so what a
/// module prints arrives at standard error; and that nothing has been answered yet.
pub struct AnswerChannel {
    output: OwnedFd,
}

impl AnswerChannel {
    /// Takes standard output. To be called once, before a module is loaded.
    ///
    /// # Errors
    /// [`AnswerError::Closed`] if the program was started without a standard output,
    /// [`AnswerError::NotSetAside`] if there is no descriptor left to keep it under.
    pub fn open() -> Result<Self, AnswerError> {
        if CLOSED_AT_START.load(Ordering::Relaxed) {
            return Err(AnswerError::Closed);
        }
        let failed = |error: Errno| AnswerError::NotSetAside(error.into());
        // Closed on exec: a program that the module starts must not keep the client waiting for
        // the end of the answer.
        let output = fcntl_dupfd_cloexec(stdio::stdout(), LOWEST_DESCRIPTOR).map_err(failed)?;
        stdio::dup2_stdout(stdio::stderr()).map_err(failed)?;
        Ok(Self { output })
    }

    /// Writes the document and a newline. A client that is gone is an error, not a signal: Rust's
    /// runtime ignores SIGPIPE.
    ///
    /// # Errors
    /// [`AnswerError::Lost`]; a part of the document may have been written.
    pub fn send(mut self, document: &str) -> Result<(), AnswerError> {
        self.write(&format!("{document}\n"))
    }

    /// Writes a part of what an operator's command prints. A reader that has had enough of it, such
    /// as `head`, is no error.
    ///
    /// # Errors
    /// As for [`AnswerChannel::send`].
    pub fn show(&mut self, text: &str) -> Result<(), AnswerError> {
        match self.write(text) {
            Err(AnswerError::Lost(error)) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
            outcome => outcome,
        }
    }

    fn write(&mut self, text: &str) -> Result<(), AnswerError> {
        let mut rest = text.as_bytes();
        while !rest.is_empty() {
            match write(&self.output, rest) {
                Ok(written) => rest = rest.get(written..).unwrap_or_default(),
                Err(Errno::INTR) => {}
                // Some clients hand on a pipe that doesn't block.
                Err(Errno::AGAIN) => self.wait_for_room(),
                Err(error) => return Err(AnswerError::Lost(error.into())),
            }
        }
        Ok(())
    }

    fn wait_for_room(&self) {
        let mut output = [PollFd::new(&self.output, PollFlags::OUT)];
        // Whatever it says, the next write tells what is the matter.
        let _ = poll(&mut output, None);
    }
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;
    use std::io::Read as _;
    use std::os::fd::AsFd;
    use std::process::Command;

    use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
    use rustix::io::{FdFlags, fcntl_getfd};
    use rustix::pipe::pipe;

    use super::super::{child, leave};
    use super::*;

    const DOCUMENT: &str = "{\"kind\":\"SignResponse\"}";

    /// What a module does that prints, at the level where every library ends up.
    fn print(text: &str) {
        write(stdio::stdout(), text.as_bytes()).unwrap();
    }

    #[test]
    fn only_the_document_reaches_the_client() {
        if child::is_this() {
            let channel = AnswerChannel::open().unwrap();
            assert_eq!(fcntl_getfd(&channel.output).unwrap(), FdFlags::CLOEXEC);
            print("noise before\n");
            // A program that the module starts prints there too.
            assert!(
                Command::new("echo")
                    .arg("noise of a program")
                    .status()
                    .unwrap()
                    .success()
            );
            channel.send(DOCUMENT).unwrap();
            print("noise after\n");
            leave(0);
        }
        let output = child::command("process::answer::tests::only_the_document_reaches_the_client")
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        let (harness, answer) = answer_in(&output.stdout);
        assert_eq!(answer, format!("{DOCUMENT}\n"), "after {harness:?}");
        assert_eq!(
            String::from_utf8(output.stderr).unwrap(),
            "noise before\nnoise of a program\nnoise after\n"
        );
    }

    /// What the test harness printed, up to the end of `test NAME ... `, and what follows it.
    fn answer_in(output: &[u8]) -> (&str, &str) {
        str::from_utf8(output).unwrap().split_once(" ... ").unwrap()
    }

    fn channel_to(output: impl Into<OwnedFd>) -> AnswerChannel {
        AnswerChannel {
            output: output.into(),
        }
    }

    #[test]
    fn a_client_that_is_gone_is_an_error_and_no_signal() {
        let (reader, writer) = pipe().unwrap();
        drop(reader);
        match channel_to(writer).send(DOCUMENT) {
            Err(AnswerError::Lost(error)) => {
                assert_eq!(error.kind(), ErrorKind::BrokenPipe);
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_full_disk_is_an_error() {
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        match channel_to(full).send(DOCUMENT) {
            Err(AnswerError::Lost(error)) => {
                assert_eq!(error.kind(), ErrorKind::StorageFull);
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_pipe_that_takes_little_and_does_not_block_gets_all_of_it() {
        let (reader, writer) = pipe().unwrap();
        let flags = fcntl_getfl(writer.as_fd()).unwrap();
        fcntl_setfl(&writer, flags | OFlags::NONBLOCK).unwrap();
        let document = "x".repeat(1 << 20);
        let client = std::thread::spawn(move || {
            let mut received = String::new();
            std::fs::File::from(reader)
                .read_to_string(&mut received)
                .unwrap();
            received
        });
        channel_to(writer).send(&document).unwrap();
        assert_eq!(client.join().unwrap(), format!("{document}\n"));
    }
}
