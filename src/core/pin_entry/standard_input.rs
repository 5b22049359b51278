//! `pinSource: stdin`: one line of standard input, and not a byte more.

use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use rustix::io::{Errno, read};
use rustix::stdio::stdin;

use super::first_line;
use crate::error::{Error, Exit};
use crate::pin::{MAX_PIN_LENGTH, Pin};
use crate::process::wait_for;

/// How long the line may take.
const LINE_LIMIT: Duration = Duration::from_secs(60);

pub(super) fn is_terminal() -> bool {
    std::io::stdin().is_terminal()
}

/// The next line, taken byte by byte so that the rest stays.
pub(super) fn read_line() -> Result<Pin, Error> {
    let failure = |reason: &str| {
        Error::new(Exit::Login, format!("pinSource: standard input {reason}")).help(
            "write the PIN and a newline to standard input, or choose another pinSource (--pin-source): \
             prompt, file:/path or env:NAME",
        )
    };
    let deadline = Instant::now() + LINE_LIMIT;
    let mut line = Vec::new();
    let mut byte = [0_u8];
    while line.len() <= MAX_PIN_LENGTH + 2 {
        if !wait_for(stdin(), PollFlags::IN, deadline).unwrap_or(false) {
            return Err(failure("held no line within a minute"));
        }
        match read(stdin(), &mut byte) {
            Ok(0) => break,
            Ok(_) => line.push(byte[0]),
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(error) => return Err(failure(&format!("can't be read: {error}"))),
        }
        if byte[0] == b'\n' {
            break;
        }
    }
    first_line(&line).ok_or_else(|| failure("holds no PIN (empty, too long, or not text)"))
}
