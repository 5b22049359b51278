//! The prompt: on `/dev/tty`, never on standard input or output, which are the client's.
//!
//! Echo goes off before the prompt is shown, and what was typed ahead is thrown away: it was not
//! meant as a PIN. The kernel edits the line and turns Ctrl-C into a signal as ever; signals are
//! stored while echo is off, the terminal is put right, and only then they do what they do. After
//! Ctrl-Z and `fg` the prompt comes again.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, read};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use zeroize::Zeroizing;

use super::PinRequest;
use crate::error::{LoginError, PinOrigin};
use crate::printable::printable;
use crate::process::signals::{self, Held, Signal};
use crate::secret::Pin;

/// How long a prompt stays unanswered.
const LIMIT: Duration = Duration::from_secs(60);
/// How often a typed PIN may have a length that the token's can't have.
const ENTRIES: usize = 3;
/// The longest line a terminal hands over.
const LINE: usize = 4096;
/// A YubiKey touched too early types a one-time password of this length, in these letters.
const OTP: (usize, &str) = (44, "cbdefghijklnrtuv");

/// The process's terminal.
pub(super) struct Terminal {
    file: File,
}

enum Entry {
    Line(Zeroizing<Vec<u8>>),
    Nothing,
    Signal(Signal),
    TimedOut,
}

impl Terminal {
    /// `None` where the process has no terminal.
    pub(super) fn open() -> Option<Self> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open("/dev/tty")
            .ok()?;
        Some(Self { file })
    }

    /// Asks until there is a PIN that the token can have.
    pub(super) fn ask(&self, request: &PinRequest<'_>) -> Result<Pin, LoginError> {
        if let Some(warning) = request.confirm {
            self.confirm(warning, request)?;
        }
        let mut notice = request.notice.map(str::to_owned);
        for _ in 0..ENTRIES {
            let mut text = notice.map_or_else(String::new, |notice| self.line(&notice));
            text.push_str(&format!(
                "PIN for token {}, {}: ",
                printable(request.token),
                printable(request.key)
            ));
            let line = self.enter(&text, false, request)?;
            match typed_pin(&line) {
                Some(pin) if request.allows(&pin) => return Ok(pin),
                _ => notice = Some(why_not(&line, request)),
            }
        }
        Err(request.wrong_length(PinOrigin::Person))
    }

    /// The explicit word that a token's final try needs.
    fn confirm(&self, warning: &str, request: &PinRequest<'_>) -> Result<(), LoginError> {
        let text = self.line(warning) + "Type yes to go on: ";
        let answer = self.enter(&text, true, request)?;
        if answer.as_slice() == b"yes" {
            return Ok(());
        }
        Err(LoginError::FinalTry {
            token: request.token.to_owned(),
            origin: PinOrigin::Person,
        })
    }

    fn line(&self, text: &str) -> String {
        format!("pkcs11-external-signer: {}\n", printable(text))
    }

    /// One line, without its ending and never empty; asked again after a stop.
    fn enter(
        &self,
        text: &str,
        echo: bool,
        request: &PinRequest<'_>,
    ) -> Result<Zeroizing<Vec<u8>>, LoginError> {
        loop {
            match self
                .enter_once(text, echo)
                .map_err(|error| LoginError::Terminal {
                    reason: error.to_string(),
                })? {
                Entry::Line(line) => return Ok(line),
                Entry::Nothing => {
                    return Err(LoginError::Cancelled {
                        token: request.token.to_owned(),
                    });
                }
                Entry::TimedOut => {
                    return Err(LoginError::TimedOut {
                        token: request.token.to_owned(),
                        seconds: LIMIT.as_secs(),
                    });
                }
                Entry::Signal(signal) => {
                    signals::raise(signal);
                    if !signal.is_stop() {
                        // Its handler is the process's own; one that comes back ends the prompt.
                        return Err(LoginError::Cancelled {
                            token: request.token.to_owned(),
                        });
                    }
                }
            }
        }
    }

    fn enter_once(&self, text: &str, echo: bool) -> std::io::Result<Entry> {
        let held = Held::new()?;
        let hidden = Hidden::new(&self.file, echo)?;
        (&self.file).write_all(text.as_bytes())?;
        let entry = self.read_line(&held)?;
        // What Enter would have shown.
        if !echo || !matches!(entry, Entry::Line(_)) {
            (&self.file).write_all(b"\n")?;
        }
        drop(hidden);
        Ok(entry)
    }

    fn read_line(&self, held: &Held) -> std::io::Result<Entry> {
        let deadline = Instant::now() + LIMIT;
        let mut line = Zeroizing::new(vec![0; LINE]);
        loop {
            if let Some(signal) = held.caught() {
                return Ok(Entry::Signal(signal));
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(Entry::TimedOut);
            }
            let mut ready = [
                PollFd::from_borrowed_fd(self.file.as_fd(), PollFlags::IN),
                PollFd::from_borrowed_fd(held.wake(), PollFlags::IN),
            ];
            match poll(&mut ready, Timespec::try_from(left).ok().as_ref()) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            let [terminal, wake] = &ready;
            if !wake.revents().is_empty() || terminal.revents().is_empty() {
                continue;
            }
            match read(&self.file, line.as_mut_slice()) {
                Ok(length) => {
                    line.truncate(length);
                    if line.last() == Some(&b'\n') {
                        line.pop();
                    }
                    return Ok(if line.is_empty() {
                        Entry::Nothing
                    } else {
                        Entry::Line(line)
                    });
                }
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// The terminal's settings, put back when it is dropped.
struct Hidden<'t> {
    terminal: &'t File,
    before: Termios,
}

impl<'t> Hidden<'t> {
    fn new(terminal: &'t File, echo: bool) -> std::io::Result<Self> {
        let before = tcgetattr(terminal)?;
        let mut settings = before.clone();
        settings.local_modes.set(LocalModes::ECHO, echo);
        settings.local_modes.remove(LocalModes::ECHONL);
        settings
            .local_modes
            .insert(LocalModes::ICANON | LocalModes::ISIG);
        set(terminal, OptionalActions::Flush, &settings)?;
        Ok(Self { terminal, before })
    }
}

impl Drop for Hidden<'_> {
    fn drop(&mut self) {
        let _ = set(self.terminal, OptionalActions::Flush, &self.before);
    }
}

fn set(terminal: &File, when: OptionalActions, settings: &Termios) -> std::io::Result<()> {
    loop {
        match tcsetattr(terminal, when, settings) {
            Err(Errno::INTR) => {}
            outcome => return Ok(outcome?),
        }
    }
}

fn typed_pin(line: &[u8]) -> Option<Pin> {
    let text = std::str::from_utf8(line).ok()?;
    if text.chars().any(char::is_control) {
        return None;
    }
    Pin::new(Zeroizing::new(text.to_owned()))
}

/// Why an entry is no PIN of this token, without a word of the entry.
fn why_not(line: &[u8], request: &PinRequest<'_>) -> String {
    let (length, letters) = OTP;
    if line.len() == length && line.iter().all(|byte| letters.as_bytes().contains(byte)) {
        return "that was a one-time password: touch the YubiKey only when it blinks; \
                it was not sent to the token"
            .to_owned();
    }
    format!(
        "that can't be the PIN and was not sent to the token: its PINs have {} to {} characters",
        request.shortest, request.longest
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_that_is_no_pin_is_explained_without_being_shown() {
        let request = PinRequest {
            token: "t",
            key: "k",
            shortest: 6,
            longest: 8,
            notice: None,
            confirm: None,
        };
        let otp = b"ccccccbchvthlivuitriujjifivbvtrjkjfirllluurj";
        assert!(why_not(otp, &request).contains("one-time password"));
        let long = b"my-login-password";
        let text = why_not(long, &request);
        assert!(text.contains("6 to 8"), "{text}");
        assert!(!text.contains("login"), "{text}");
    }

    #[test]
    fn control_characters_make_no_pin() {
        assert!(typed_pin(b"1234").is_some());
        assert!(typed_pin(b"12\x1b[A34").is_none());
        assert!(typed_pin(b"12\x0034").is_none());
        assert!(typed_pin(b"\xff\xfe1234").is_none());
    }
}
