//! A PIN from standard input, which belongs to the client: a manifest may be waiting there.
//!
//! With `pinSource: stdin` one line is taken and not a byte more. Without, and with no terminal
//! to ask at, the whole input is looked at *before* anything is taken; it is a PIN only if it is
//! a single line as long as a PIN. Anything else stays for the next reader.

use std::fs::File;
use std::io::{IsTerminal as _, Read as _};
use std::time::{Duration, Instant};

use super::{first_line, wait_for};
use crate::pin::{MAX_PIN_LENGTH, Pin, PinError};
use rustix::event::PollFlags;
use rustix::fs::FileType;
use rustix::io::{Errno, pread, read};
use rustix::stdio::stdin;

/// How long `pinSource: stdin` waits for its line.
const LINE_LIMIT: Duration = Duration::from_secs(60);
/// How long to wait for input that was not announced.
#[cfg(target_os = "linux")]
const WHOLE_LIMIT: Duration = Duration::from_secs(1);
/// How often it is looked whether there is already too much of it.
#[cfg(target_os = "linux")]
const GLANCE: Duration = Duration::from_millis(20);
/// The longest PIN, its line ending, and one byte that tells that there is more.
const LOOK: usize = MAX_PIN_LENGTH + 3;

pub(super) fn is_terminal() -> bool {
    std::io::stdin().is_terminal()
}

/// `pinSource: stdin`: the next line, taken byte by byte so that the rest stays.
pub(super) fn read_line() -> Result<Pin, PinError> {
    let failure = |reason: &str| PinError::StandardInput { reason: reason.to_owned() };
    let deadline = Instant::now() + LINE_LIMIT;
    let mut line = Vec::new();
    let mut byte = [0_u8];
    while line.len() < LOOK {
        if !is_ready(PollFlags::IN, deadline) {
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

/// The whole input, if it is a single line of a length that a PIN can have. Otherwise nothing is
/// taken.
pub(super) fn whole_line(shortest: usize, longest: usize) -> Option<Pin> {
    let bytes = match kind()? {
        FileType::RegularFile => look_at_file()?,
        FileType::Fifo => look_at_pipe()?,
        _ => return None,
    };
    let pin = only_line(&bytes, shortest, longest)?;
    take(bytes.len());
    Some(pin)
}

/// Whether it is something in which [`whole_line`] looks.
pub(super) fn can_hold_a_line() -> bool {
    matches!(kind(), Some(FileType::RegularFile | FileType::Fifo))
}

fn kind() -> Option<FileType> {
    let mode = rustix::fs::fstat(stdin()).ok()?.st_mode;
    Some(FileType::from_raw_mode(mode))
}

/// The bytes as a PIN, if they are one line and nothing else.
fn only_line(bytes: &[u8], shortest: usize, longest: usize) -> Option<Pin> {
    let content = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    // A manifest can be one line of JSON.
    if content.contains(&b'\n') || content.starts_with(b"{") || content.starts_with(b"[") {
        return None;
    }
    first_line(content).filter(|pin| (shortest..=longest).contains(&pin.length()))
}

fn look_at_file() -> Option<Vec<u8>> {
    let offset = rustix::fs::tell(stdin()).ok()?;
    let mut bytes = vec![0; LOOK];
    let length = pread(stdin(), bytes.as_mut_slice(), offset).ok()?;
    bytes.truncate(length);
    Some(bytes)
}

/// What the pipe holds when its last writer has gone; `None` if that doesn't come in time, or if
/// there is more than a PIN.
#[cfg(target_os = "linux")]
fn look_at_pipe() -> Option<Vec<u8>> {
    use rustix::io::ioctl_fionread;
    use rustix::pipe::{PipeFlags, SpliceFlags, pipe_with, tee};

    let deadline = Instant::now() + WHOLE_LIMIT;
    // Poll reports a hang-up without being asked for it, also while there is data.
    while !is_ready(PollFlags::empty(), deadline.min(Instant::now() + GLANCE)) {
        let waiting = ioctl_fionread(stdin()).ok()?;
        if waiting > LOOK as u64 || Instant::now() >= deadline {
            return None;
        }
    }
    // tee copies without consuming.
    let (copy, into) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).ok()?;
    tee(stdin(), into, LOOK, SpliceFlags::NONBLOCK).ok()?;
    // One read could end with a packet, and tee with a pipe that takes fewer pieces.
    let mut bytes = Vec::new();
    File::from(copy).read_to_end(&mut bytes).ok()?;
    let waiting = ioctl_fionread(stdin()).ok()?;
    (bytes.len() as u64 == waiting).then_some(bytes)
}

/// Without a way to look, input from a pipe is taken for a PIN only where it was announced.
#[cfg(not(target_os = "linux"))]
fn look_at_pipe() -> Option<Vec<u8>> {
    None
}

fn is_ready(events: PollFlags, deadline: Instant) -> bool {
    wait_for(stdin(), events, deadline).unwrap_or(false)
}

/// Consumes what was looked at.
fn take(length: usize) {
    if let Ok(input) = stdin().try_clone_to_owned() {
        let _ = File::from(input).read_exact(&mut vec![0; length]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pin(input: &str) -> Option<String> {
        only_line(input.as_bytes(), 4, 8).map(|pin| pin.expose().to_owned())
    }

    #[test]
    fn one_line_as_long_as_a_pin_is_one() {
        assert_eq!(pin("1234").as_deref(), Some("1234"));
        assert_eq!(pin("12345678\n").as_deref(), Some("12345678"));
        assert_eq!(pin("123456\r\n").as_deref(), Some("123456"));
    }

    #[test]
    fn a_manifest_is_no_pin() {
        for input in [
            "",
            "\n",
            "123\n",
            "123456789\n",
            "1234\n\n",
            "kind: A\nx: 1\n",
            "a: 1\nb: 2",
            "\n1234\n",
            "12\t34\n",
            "12\x0034\n",
        ] {
            assert_eq!(pin(input), None, "{input:?}");
        }
    }
}
