//! The prompt: on `/dev/tty`, never on standard input or output, which are the client's.
//!
//! Echo goes off before the prompt is shown, and what was typed ahead is thrown away: it was not
//! meant as a PIN. The kernel edits the line and turns Ctrl-C into a signal as ever; signals are
//! stored while echo is off, the terminal is put right, and only then they do what they do. After
//! Ctrl-Z and `fg` the prompt comes again. The terminal is opened without blocking, so that the
//! time limit and the signals hold also where it takes no output (Ctrl-S).

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt as _;
use std::time::{Duration, Instant, SystemTime};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use rustix::io::{Errno, read, write};
use rustix::termios::{
    InputModes, LocalModes, OptionalActions, OutputModes, QueueSelector, Termios, tcflush,
    tcgetattr, tcsetattr,
};

use super::queue::{CANCELLED, PromptKind, PromptSlot, TIMED_OUT};
use super::{ANSWER_LIMIT, pin_of, question, timed_out, wrong_length};
use crate::error::Error;
use crate::pin::{self, Pin, PinOrigin, PinRequest};
use crate::printable::printable;
use crate::process::signals::{self, PromptSignals, Signal};

/// How often a typed PIN may have a length that the token's can't have.
const ENTRIES: usize = 3;
/// How often a terminal that can't be polled is looked at.
const GLANCE: Duration = Duration::from_millis(50);
/// The longest line a terminal hands over.
const LINE: usize = 4096;
/// A YubiKey touched too early types a one-time password of this length, in these letters.
const OTP: (usize, &str) = (44, "cbdefghijklnrtuv");

/// What a person did at the prompt.
enum Entry {
    /// Enter, and nothing before it.
    Empty,
    Line(Vec<u8>),
    Nothing,
    Signal(Signal),
    TimedOut,
}

/// The process's terminal, if it has one.
pub(super) fn open_terminal() -> Option<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags((OFlags::NOCTTY | OFlags::NONBLOCK).bits() as i32)
        .open("/dev/tty")
        .ok()
}

/// Asks the person at the terminal something that is no secret. `None` without a terminal; no
/// answer is `Some(None)`. The question must be fit for a terminal.
pub fn ask_openly(question: &str) -> Option<Option<String>> {
    let line = ask(question, true)?;
    Some(line.map(|line| String::from_utf8_lossy(&line).into_owned()))
}

/// The same for a secret that is no PIN, such as a registry's password: it isn't shown.
pub fn ask_hidden(question: &str) -> Option<Option<Vec<u8>>> {
    ask(question, false)
}

fn ask(question: &str, echo: bool) -> Option<Option<Vec<u8>>> {
    let prompt = Prompt { terminal: open_terminal()?, slot: None };
    Some(match prompt.enter_again(question, echo) {
        Ok(Entry::Line(line)) => Some(line),
        _ => None,
    })
}

/// The terminal, on which no other process asks meanwhile.
pub(super) struct Prompt {
    terminal: File,
    /// `None` for a question that need not wait for others.
    slot: Option<PromptSlot>,
}

impl Prompt {
    /// Waits for the prompts before this one, as [`PromptSlot::take`] does. `None` where the process has
    /// no terminal.
    pub(super) fn open(token: &str, since: SystemTime) -> Result<Option<Self>, Error> {
        let Some(terminal) = open_terminal() else {
            return Ok(None);
        };
        let slot = PromptSlot::take(PromptKind::Terminal, token, since)?;
        Ok(Some(Self { terminal, slot: Some(slot) }))
    }

    /// Asks until there is a PIN that the token can have.
    pub(super) fn ask(&self, request: &PinRequest<'_>) -> Result<Pin, Error> {
        let mut notice = request.notice.as_deref().map(str::to_owned);
        if request.confirm.is_some() {
            self.confirm(request, PinOrigin::Person)?;
            notice = None;
        }
        for _ in 0..ENTRIES {
            let mut text = notice.map_or_else(String::new, |notice| line(&notice));
            text.push_str(&question(request));
            let entry = self.enter(request, &text, false)?;
            match pin_of(&entry) {
                Some(pin) if request.allows(&pin) => return Ok(pin),
                _ => notice = Some(why_not(&entry, request)),
            }
        }
        Err(wrong_length(request, &PinOrigin::Person))
    }

    /// The explicit yes that a token's final try needs, with a PIN that comes from `origin`.
    pub(super) fn confirm(&self, request: &PinRequest<'_>, origin: PinOrigin) -> Result<(), Error> {
        let notices = [&request.notice, &request.confirm].into_iter().flatten();
        let mut text: String = notices.map(|notice| line(notice)).collect();
        text.push_str("Type yes to go on: ");
        if self.enter(request, &text, true)?.as_slice() == b"yes" {
            return Ok(());
        }
        self.cancelled();
        Err(pin::final_try(&request.token, &origin))
    }

    fn cancelled(&self) {
        self.slot.iter().for_each(|slot| slot.leave(CANCELLED));
    }

    /// One line, without its ending and never empty.
    fn enter(&self, request: &PinRequest<'_>, text: &str, echo: bool) -> Result<Vec<u8>, Error> {
        match self.enter_again(text, echo)? {
            Entry::Line(line) => return Ok(line),
            Entry::TimedOut => return Err(timed_out(request)),
            Entry::Empty => self.cancelled(),
            Entry::Nothing | Entry::Signal(_) => {}
        }
        Err(pin::cancelled(&request.token))
    }

    /// Asks, and once more after each stop.
    fn enter_again(&self, text: &str, echo: bool) -> Result<Entry, Error> {
        loop {
            let entry = self.enter_once(text, echo).map_err(pin::terminal_unusable)?;
            match (&entry, &self.slot) {
                (Entry::Signal(signal), Some(slot)) if signal.is_stop() => {
                    slot.yield_while(|| signals::raise(*signal))?;
                    continue;
                }
                (Entry::Empty | Entry::Line(_), _) | (_, None) => {}
                (Entry::TimedOut, Some(slot)) => slot.leave(TIMED_OUT),
                (Entry::Nothing | Entry::Signal(_), Some(slot)) => slot.leave(CANCELLED),
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
        let _settings = line_mode(&self.terminal, echo)?;
        let deadline = Instant::now() + ANSWER_LIMIT;
        let entry = match self.show(text, held, deadline)? {
            Some(other) => other,
            None => self.read_line(held, deadline)?,
        };
        // What Enter would have shown.
        if !echo || !matches!(entry, Entry::Empty | Entry::Line(_)) {
            let _ = write(&self.terminal, b"\n");
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
            match write(&self.terminal, rest) {
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
            match read(&self.terminal, line.as_mut_slice()) {
                Ok(length) => {
                    line.truncate(length);
                    // Half a PIN would cost a try: only Enter ends one. Ctrl-D hands over the
                    // beginning of a line, and so would another program's change of the settings.
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
                PollFd::from_borrowed_fd(self.terminal.as_fd(), events),
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

/// A terminal's settings, put back when this is dropped.
pub(super) struct Settings<T: AsFd> {
    terminal: T,
    before: Termios,
    when: OptionalActions,
}

impl<T: AsFd> Settings<T> {
    pub(super) fn save(terminal: T) -> Option<Self> {
        Some(Self { before: tcgetattr(&terminal).ok()?, when: OptionalActions::Now, terminal })
    }
}

impl<T: AsFd> Drop for Settings<T> {
    fn drop(&mut self) {
        let _ = until_done(|| tcsetattr(&self.terminal, self.when, &self.before));
    }
}

/// The terminal hands over lines, and shows them as they are typed if `echo`.
fn line_mode(terminal: &File, echo: bool) -> io::Result<Settings<&File>> {
    // In the background this stops the job, and goes on after fg. Settings read before that
    // would be those of a shell that edits a command line.
    until_done(|| tcflush(terminal, QueueSelector::IFlush))?;
    let before = tcgetattr(terminal)?;
    let mut settings = before.clone();
    // A full-screen client (k9s) has its terminal in raw mode, where Enter ends no line.
    settings.input_modes.remove(InputModes::IGNCR | InputModes::INLCR);
    settings.input_modes.insert(InputModes::ICRNL);
    settings.output_modes.insert(OutputModes::OPOST | OutputModes::ONLCR);
    settings.local_modes.set(LocalModes::ECHO, echo);
    settings.local_modes.remove(LocalModes::ECHONL);
    settings.local_modes.insert(LocalModes::ICANON | LocalModes::ISIG);
    until_done(|| tcsetattr(terminal, OptionalActions::Flush, &settings))?;
    let when = OptionalActions::Flush;
    Ok(Settings { terminal, before, when })
}

fn until_done(call: impl Fn() -> Result<(), Errno>) -> io::Result<()> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            outcome => return Ok(outcome?),
        }
    }
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
            token: "t".into(),
            key: "k".into(),
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
        assert!(pin_of(b"1234").is_some());
        assert!(pin_of(b"12\x1b[A34").is_none());
        assert!(pin_of(b"12\x0034").is_none());
        assert!(pin_of(b"\xff\xfe1234").is_none());
    }
}
