//! The prompt: on `/dev/tty`, never on standard input or output, which are the client's.
//!
//! Echo goes off before the prompt is shown, and what was typed ahead is thrown away: it was not
//! meant as a PIN. The kernel edits the line and turns Ctrl-C into a signal as ever; signals are
//! stored while echo is off, the terminal is put right, and only then they do what they do. After
//! Ctrl-Z and `fg` the prompt comes again. The terminal is opened without blocking, so that the
//! time limit and the signals hold also where it takes no output (Ctrl-S).

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::time::{Duration, Instant};

use super::queue::PromptSlot;
use super::{ANSWER_LIMIT, question, wrong_length};
use crate::pin::{Pin, PinError, PinOrigin, PinRequest};
use crate::printable::printable;
use crate::process::signals::{self, PromptSignals, Signal};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use rustix::io::{Errno, read, write};
use rustix::termios::{
    InputModes, LocalModes, OptionalActions, OutputModes, QueueSelector, Termios, tcflush,
    tcgetattr, tcsetattr,
};

/// How often a typed PIN may have a length that the token's can't have.
const ENTRIES: usize = 3;
/// How often a terminal that can't be polled is looked at.
const GLANCE: Duration = Duration::from_millis(50);
/// The longest line a terminal hands over.
const LINE: usize = 4096;
/// A YubiKey touched too early types a one-time password of this length, in these letters.
const OTP: (usize, &str) = (44, "cbdefghijklnrtuv");

/// The process's terminal.
pub(super) struct Terminal {
    file: File,
}

enum Entry {
    /// Enter, and nothing before it.
    Empty,
    Line(Vec<u8>),
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
            .custom_flags((OFlags::NOCTTY | OFlags::NONBLOCK).bits() as i32)
            .open("/dev/tty")
            .ok()?;
        Some(Self { file })
    }

    /// Asks until there is a PIN that the token can have.
    pub(super) fn ask(&self, request: &PinRequest<'_>, slot: &PromptSlot) -> Result<Pin, PinError> {
        let mut notice = request.notice.map(str::to_owned);
        if request.confirm.is_some() {
            self.confirm(request, PinOrigin::Person, slot)?;
            notice = None;
        }
        for _ in 0..ENTRIES {
            let mut text = notice.map_or_else(String::new, |notice| line(&notice));
            text.push_str(&question(request));
            let entry = self.enter(&text, false, request, slot)?;
            match typed_pin(&entry) {
                Some(pin) if request.allows(&pin) => return Ok(pin),
                _ => notice = Some(why_not(&entry, request)),
            }
        }
        Err(wrong_length(request, PinOrigin::Person))
    }

    /// The explicit word that a token's final try needs, with a PIN that comes from `origin`.
    pub(super) fn confirm(
        &self,
        request: &PinRequest<'_>,
        origin: PinOrigin,
        slot: &PromptSlot,
    ) -> Result<(), PinError> {
        let said = [request.notice, request.confirm].into_iter().flatten();
        let mut text: String = said.map(line).collect();
        text.push_str("Type yes to go on: ");
        let answer = self.enter(&text, true, request, slot)?;
        if answer.as_slice() == b"yes" {
            return Ok(());
        }
        slot.cancelled();
        let token = request.token.to_string();
        Err(match origin {
            PinOrigin::Reader => PinError::FinalTryAtReader { token },
            origin => PinError::FinalTry { token, origin },
        })
    }

    /// An answer that is no secret; `None` where none was given in time.
    pub(super) fn ask_openly(&self, question: &str) -> Result<Option<String>, PinError> {
        Ok(match self.enter_again(question, true, None)? {
            Entry::Line(line) => Some(String::from_utf8_lossy(&line).into_owned()),
            Entry::Empty | Entry::Nothing | Entry::Signal(_) | Entry::TimedOut => None,
        })
    }

    /// Asks for the token that is missing; whether it is said to be there.
    pub(super) fn insert(&self, missing: &str, slot: &PromptSlot) -> bool {
        let question = line(missing) + "Insert it and press Enter: ";
        let entry = self.enter_again(&question, true, Some(slot));
        matches!(entry, Ok(Entry::Empty | Entry::Line(_)))
    }

    /// One line, without its ending and never empty.
    fn enter(
        &self,
        text: &str,
        echo: bool,
        request: &PinRequest<'_>,
        slot: &PromptSlot,
    ) -> Result<Vec<u8>, PinError> {
        let token = request.token.to_string();
        match self.enter_again(text, echo, Some(slot))? {
            Entry::Line(line) => Ok(line),
            Entry::Empty => {
                slot.cancelled();
                Err(PinError::Cancelled { token })
            }
            Entry::Nothing | Entry::Signal(_) => Err(PinError::Cancelled { token }),
            Entry::TimedOut => Err(PinError::TimedOut {
                token,
                seconds: ANSWER_LIMIT.as_secs(),
            }),
        }
    }

    /// Asks, and once more after each stop.
    fn enter_again(
        &self,
        text: &str,
        echo: bool,
        slot: Option<&PromptSlot>,
    ) -> Result<Entry, PinError> {
        loop {
            let entry = self
                .enter_once(text, echo)
                .map_err(|error| PinError::Terminal {
                    reason: error.to_string(),
                })?;
            match (&entry, slot) {
                (Entry::Signal(signal), Some(slot)) if signal.is_stop() => {
                    slot.yield_while(|| signals::raise(*signal))?;
                    continue;
                }
                (Entry::Empty | Entry::Line(_), _) | (_, None) => {}
                (Entry::Signal(_), Some(slot)) if !echo => slot.interrupted(),
                (_, Some(slot)) => slot.cancelled(),
            }
            let Entry::Signal(signal) = entry else {
                return Ok(entry);
            };
            signals::raise(signal);
            if !signal.is_stop() {
                // Its handler is the process's own; one that comes back ends the prompt.
                return Ok(entry);
            }
        }
    }

    fn enter_once(&self, text: &str, echo: bool) -> io::Result<Entry> {
        let held = PromptSignals::new()?;
        let entry = self.converse(text, echo, &held);
        // The settings are the old ones by now. A signal goes before anything that was typed.
        match held.release() {
            Some(signal) => Ok(Entry::Signal(signal)),
            None => entry,
        }
    }

    fn converse(&self, text: &str, echo: bool, held: &PromptSignals) -> io::Result<Entry> {
        let _hidden = Hidden::new(&self.file, echo)?;
        let deadline = Instant::now() + ANSWER_LIMIT;
        let entry = match self.show(text, held, deadline)? {
            Some(other) => other,
            None => self.read_line(held, deadline)?,
        };
        // What Enter would have shown.
        if !echo || !matches!(entry, Entry::Empty | Entry::Line(_)) {
            let _ = write(&self.file, b"\n");
        }
        Ok(entry)
    }

    /// Writes the text; what came instead, if anything.
    fn show(
        &self,
        text: &str,
        held: &PromptSignals,
        deadline: Instant,
    ) -> io::Result<Option<Entry>> {
        let mut rest = text.as_bytes();
        while !rest.is_empty() {
            match write(&self.file, rest) {
                Ok(length) => rest = rest.get(length..).unwrap_or_default(),
                Err(Errno::AGAIN) => {
                    if let Some(other) = self.wait(PollFlags::OUT, held, deadline)? {
                        return Ok(Some(other));
                    }
                }
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(None)
    }

    fn read_line(&self, held: &PromptSignals, deadline: Instant) -> io::Result<Entry> {
        let mut line = vec![0; LINE];
        loop {
            if let Some(other) = self.wait(PollFlags::IN, held, deadline)? {
                return Ok(other);
            }
            match read(&self.file, line.as_mut_slice()) {
                Ok(length) => {
                    line.truncate(length);
                    // Half a PIN would cost a try: only Enter ends one. Ctrl-D hands over the
                    // beginning of a line, and so would somebody else's change of the settings.
                    return Ok(match line.pop() {
                        Some(b'\n') if line.is_empty() => Entry::Empty,
                        Some(b'\n') => Entry::Line(line),
                        _ => Entry::Nothing,
                    });
                }
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Waits until it's worth trying to read or to write; what came instead, if anything.
    fn wait(
        &self,
        events: PollFlags,
        held: &PromptSignals,
        deadline: Instant,
    ) -> io::Result<Option<Entry>> {
        loop {
            if let Some(signal) = held.caught() {
                return Ok(Some(Entry::Signal(signal)));
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(Some(Entry::TimedOut));
            }
            let mut ready = [
                PollFd::from_borrowed_fd(self.file.as_fd(), events),
                PollFd::from_borrowed_fd(held.wake(), PollFlags::IN),
            ];
            poll_until(&mut ready, left)?;
            let [terminal, wake] = &mut ready;
            if terminal.revents().contains(PollFlags::NVAL) {
                // macOS can't poll /dev/tty: it is tried every so often, and signals are heard.
                poll_until(std::slice::from_mut(wake), left.min(GLANCE))?;
                return Ok(None);
            }
            if wake.revents().is_empty() && !terminal.revents().is_empty() {
                return Ok(None);
            }
        }
    }
}

fn line(text: &str) -> String {
    format!("pkcs11-external-signer: {}\n", printable(text))
}

/// A signal ends the wait like anything else.
fn poll_until(ready: &mut [PollFd<'_>], limit: Duration) -> io::Result<()> {
    match poll(ready, Timespec::try_from(limit).ok().as_ref()) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// The terminal's settings, put back when it is dropped.
struct Hidden<'t> {
    terminal: &'t File,
    before: Termios,
}

impl<'t> Hidden<'t> {
    fn new(terminal: &'t File, echo: bool) -> io::Result<Self> {
        // In the background this stops the job, and goes on after fg. Settings read before that
        // would be those of a shell that edits a command line.
        until_done(|| tcflush(terminal, QueueSelector::IFlush))?;
        let before = tcgetattr(terminal)?;
        let mut settings = before.clone();
        // A full-screen client (k9s) has its terminal in raw mode, where Enter ends no line.
        settings
            .input_modes
            .remove(InputModes::IGNCR | InputModes::INLCR);
        settings.input_modes.insert(InputModes::ICRNL);
        settings
            .output_modes
            .insert(OutputModes::OPOST | OutputModes::ONLCR);
        settings.local_modes.set(LocalModes::ECHO, echo);
        settings.local_modes.remove(LocalModes::ECHONL);
        settings
            .local_modes
            .insert(LocalModes::ICANON | LocalModes::ISIG);
        until_done(|| tcsetattr(terminal, OptionalActions::Flush, &settings))?;
        Ok(Self { terminal, before })
    }
}

impl Drop for Hidden<'_> {
    fn drop(&mut self) {
        let settings = || tcsetattr(self.terminal, OptionalActions::Flush, &self.before);
        let _ = until_done(settings);
    }
}

fn until_done(call: impl Fn() -> Result<(), Errno>) -> io::Result<()> {
    loop {
        match call() {
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
    Pin::new(text)
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
