//! Standard output, kept for the answer.
//!
//! A library may print whatever it likes, when it is loaded, in any call and at exit; the client
//! reads standard output as one JSON document. So the real one is put aside before any library is
//! loaded, and descriptor 1 leads to standard error from then on.

use std::fs::File;
use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::fcntl_dupfd_cloexec;
use rustix::stdio;

use crate::error::RequestError;

/// Above the numbers that a library might take for its own.
const LOWEST_DESCRIPTOR: i32 = 10;

/// Whether standard output was closed when the process began. Rust's runtime opens `/dev/null`
/// in its place before `main`, where an answer would be lost without a word.
static CLOSED_AT_START: AtomicBool = AtomicBool::new(false);

#[used]
#[cfg_attr(target_os = "macos", unsafe(link_section = "__DATA,__mod_init_func"))]
#[cfg_attr(not(target_os = "macos"), unsafe(link_section = ".init_array"))]
static LOOK_AT_START: extern "C" fn() = look_at_start;

extern "C" fn look_at_start() {
    // SAFETY: F_GETFD takes no argument and changes nothing.
    let closed = unsafe { libc::fcntl(libc::STDOUT_FILENO, libc::F_GETFD) } == -1;
    CLOSED_AT_START.store(closed, Ordering::Relaxed);
}

/// The way to the client. Having one means that nothing else leads there; it is used up by the
/// one document that it takes.
pub struct AnswerChannel {
    output: File,
}

impl AnswerChannel {
    /// Takes standard output. To be called before a library is loaded.
    pub fn open() -> Result<Self, RequestError> {
        if CLOSED_AT_START.load(Ordering::Relaxed) {
            return Err(RequestError::OutputClosed);
        }
        let output: OwnedFd = fcntl_dupfd_cloexec(stdio::stdout(), LOWEST_DESCRIPTOR)
            .map_err(|error| RequestError::AnswerLost(error.into()))?;
        stdio::dup2_stdout(stdio::stderr())
            .map_err(|error| RequestError::AnswerLost(error.into()))?;
        Ok(Self {
            output: File::from(output),
        })
    }

    /// Writes the document and a newline.
    pub fn send(mut self, document: &str) -> Result<(), RequestError> {
        let mut line = String::with_capacity(document.len() + 1);
        line.push_str(document);
        line.push('\n');
        self.output
            .write_all(line.as_bytes())
            .map_err(RequestError::AnswerLost)
    }
}
