//! The prompt: on `/dev/tty`, never on standard input or output, which are the client's.
//!
//! Echo goes off before the prompt is shown, and what was typed ahead is thrown away: it was not meant as a PIN. The
//! kernel edits the line and turns Ctrl-C into a signal as ever; signals are stored while echo is off, the terminal is
//! put right, and only then they do what they do. After Ctrl-Z and `fg` the prompt comes again. The terminal is opened
//! without blocking, so that the time limit and the signals hold also where it takes no output (Ctrl-S).

use std::any::Any;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt as _;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use rustix::io::{Errno, read, retry_on_intr, write};
use rustix::termios::{
    InputModes, LocalModes, OptionalActions, OutputModes, QueueSelector, Termios, tcflush,
    tcgetattr, tcsetattr,
};

use super::queue::{CANCELLED, PromptKind, PromptSlot, TIMED_OUT};
use super::{pin_of, question, timed_out, wrong_length};
use config::pin::{self, Answer, Pin, PinOrigin, PinRequest};
use messages::error::Error;
use messages::folding::{folded, terminal_width};
use messages::printable::printable;
use system::limits;
use system::signals;

/// How often a person may type a PIN whose length the token can't have.
const ENTRIES: usize = 3;
/// How often a prompt looks for signals, and looks at a terminal that can't be polled.
const GLANCE: Duration = Duration::from_millis(50);
/// The longest line that a terminal hands over, in bytes.
const LINE: usize = 4096;

/// Why an entry has ended without a line.
enum End {
    Failed(Error),
    /// The person has pressed Ctrl-D, or Enter without typing anything.
    Nothing,
    Signal(i32),
    TimedOut,
}

impl From<Errno> for End {
    fn from(error: Errno) -> Self {
        Self::Failed(pin::terminal_unusable(error))
    }
}

pub(super) fn open_terminal() -> Option<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags((OFlags::NOCTTY | OFlags::NONBLOCK).bits() as i32)
        .open("/dev/tty")
        .ok()
}

/// Asks the person at the terminal for something that isn't a PIN. With `echo`, it is shown as it is typed. The
/// question must be fit for a terminal.
pub fn ask(question: &str, echo: bool) -> Answer {
    let deadline = Instant::now() + limits::ANSWER;
    let Some(terminal) = open_terminal() else { return Answer::NoTerminal };
    let prompt = Prompt { terminal, slot: PromptSlot::default(), deadline };
    prompt.enter(question, echo).map_or(Answer::None, Answer::Typed)
}

/// A prompt on the terminal. No other process asks there meanwhile.
pub(super) struct Prompt {
    terminal: File,
    slot: PromptSlot,
    /// By when everything that this prompt asks for has to be answered.
    deadline: Instant,
}

impl Prompt {
    /// Waits for the terminal, as [`PromptSlot::take`] does; `None` if the process has none.
    pub(super) fn open(
        token: &str,
        since: SystemTime,
        deadline: Instant,
    ) -> Result<Option<Self>, Error> {
        let Some(terminal) = open_terminal() else { return Ok(None) };
        let slot = PromptSlot::take(PromptKind::Terminal, token, since, deadline)?;
        Ok(Some(Self { terminal, slot, deadline }))
    }

    /// Asks until there is a PIN that the token can have.
    pub(super) fn ask(&self, request: &PinRequest<'_>) -> Result<Pin, Error> {
        let mut notice = request.notice.as_deref().map(str::to_owned);
        if request.confirm.is_some() {
            self.confirm(request, PinOrigin::Person)?;
            notice = None;
        }
        for _ in 0..ENTRIES {
            let mut text = notice.map_or_else(String::new, |notice| self.line(&notice));
            text.push_str(&question(request));
            let entry = self.enter(&text, false)?;
            match pin_of(&entry) {
                Some(pin) if request.allows(&pin) => return Ok(pin),
                _ => {
                    let PinRequest { shortest, longest, .. } = request;
                    notice = Some(format!(
                        "that can't be the PIN, so no try was used up: this token's PINs have {shortest} to {longest} \
                         bytes"
                    ));
                }
            }
        }
        Err(wrong_length(request, &PinOrigin::Person))
    }

    /// Asks for the explicit yes that a token's last try needs. The PIN comes from `origin`.
    pub(super) fn confirm(&self, request: &PinRequest<'_>, origin: PinOrigin) -> Result<(), Error> {
        let notices = [&request.notice, &request.confirm].into_iter().flatten();
        let mut text: String = notices.map(|notice| self.line(notice)).collect();
        text.push_str("Type yes to continue: ");
        if self.enter(&text, true)?.as_slice() == b"yes" {
            return Ok(());
        }
        self.slot.leave(CANCELLED);
        Err(pin::final_try(&request.token, &origin))
    }

    /// The notice, folded between words where the terminal ends.
    fn line(&self, notice: &str) -> String {
        folded(line(notice).trim_end(), terminal_width(&self.terminal), 0, 2) + "\n"
    }

    /// Asks for one line, which is returned without its ending and is never empty. After the process was stopped, it
    /// asks once more.
    fn enter(&self, text: &str, echo: bool) -> Result<Vec<u8>, Error> {
        let signal = loop {
            match self.enter_once(text, echo) {
                Ok(line) => return Ok(line),
                Err(End::Failed(error)) => return Err(error),
                Err(End::Nothing) => break None,
                Err(End::Signal(signals::STOP)) => signals::raise(signals::STOP),
                Err(End::Signal(signal)) => break Some(signal),
                Err(End::TimedOut) => {
                    self.slot.leave(TIMED_OUT);
                    return Err(timed_out(&self.slot.token));
                }
            }
        };
        self.slot.leave(CANCELLED);
        // The signal's own handler acts on it. If that returns, the prompt has ended.
        if let Some(signal) = signal {
            signals::raise(signal);
        }
        Err(pin::cancelled(&self.slot.token))
    }

    /// Reads a line once. If a signal has come, nothing that was typed counts.
    fn enter_once(&self, text: &str, echo: bool) -> Result<Vec<u8>, End> {
        signals::during_prompt(|| self.enter_line(text, echo))
            .unwrap_or_else(|signal| Err(End::Signal(signal)))
    }

    /// Reads a line. The terminal gets its former settings back afterwards.
    fn enter_line(&self, text: &str, echo: bool) -> Result<Vec<u8>, End> {
        let _settings = line_mode(&self.terminal, echo)?;
        let deadline = self.deadline.min(Instant::now() + limits::ANSWER);
        let entry = self.show(text, deadline).and_then(|()| self.read_line(deadline));
        // Enter would have shown this line break.
        if !echo || entry.is_err() {
            let _ = write(&self.terminal, b"\n");
        }
        entry
    }

    fn show(&self, text: &str, deadline: Instant) -> Result<(), End> {
        let mut rest = text.as_bytes();
        while !rest.is_empty() {
            let write = || write(&self.terminal, rest);
            let length = self.when_ready(PollFlags::OUT, deadline, write)?;
            rest = rest.get(length..).unwrap_or_default();
        }
        Ok(())
    }

    fn read_line(&self, deadline: Instant) -> Result<Vec<u8>, End> {
        let mut line = vec![0; LINE];
        let read = || read(&self.terminal, line.as_mut_slice());
        let length = self.when_ready(PollFlags::IN, deadline, read)?;
        line.truncate(length);
        // Half a PIN would cost a try, so only Enter ends one. Ctrl-D would hand over the beginning of a line, and so
        // would another program that changes the settings.
        match line.pop() {
            Some(b'\n') if !line.is_empty() => Ok(line),
            _ => Err(End::Nothing),
        }
    }

    /// Reads or writes as soon as the terminal is ready, unless a signal has come.
    fn when_ready(
        &self,
        events: PollFlags,
        deadline: Instant,
        mut transfer: impl FnMut() -> Result<usize, Errno>,
    ) -> Result<usize, End> {
        loop {
            if signals::is_prompt_interrupted() {
                return Err(End::Nothing);
            }
            if Instant::now() >= deadline {
                return Err(End::TimedOut);
            }
            let mut ready = [PollFd::new(&self.terminal, events)];
            match poll(&mut ready, Timespec::try_from(GLANCE).ok().as_ref()) {
                Ok(0) | Err(Errno::INTR) => continue,
                // macOS can't poll /dev/tty, so it is tried again and again.
                Ok(_) if ready[0].revents().contains(PollFlags::NVAL) => thread::sleep(GLANCE),
                Ok(_) => {}
                Err(error) => return Err(error.into()),
            }
            match transfer() {
                Err(Errno::AGAIN | Errno::INTR) => {}
                outcome => return outcome.map_err(End::from),
            }
        }
    }
}

fn line(text: &str) -> String {
    format!("pkcs11-external-signer: {}\n", printable(text))
}

/// The settings of a terminal, which are restored when this is dropped.
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
        let _ = retry_on_intr(|| tcsetattr(&self.terminal, self.when, &self.before));
    }
}

/// Has the terminal hand over lines and, with `echo`, show them as they are typed.
fn line_mode(terminal: &File, echo: bool) -> Result<Settings<&File>, Errno> {
    // In the background this call stops the job, which goes on after fg. Settings that were read before that would be
    // those of a shell in the middle of editing a command line.
    retry_on_intr(|| tcflush(terminal, QueueSelector::IFlush))?;
    let before = tcgetattr(terminal)?;
    let mut settings = before.clone();
    // A full-screen client (k9s) has its terminal in raw mode, in which Enter doesn't end a line.
    settings.input_modes.remove(InputModes::IGNCR | InputModes::INLCR);
    settings.input_modes.insert(InputModes::ICRNL);
    settings.output_modes.insert(OutputModes::OPOST | OutputModes::ONLCR);
    settings.local_modes.set(LocalModes::ECHO, echo);
    settings.local_modes.remove(LocalModes::ECHONL);
    settings.local_modes.insert(LocalModes::ICANON | LocalModes::ISIG);
    retry_on_intr(|| tcsetattr(terminal, OptionalActions::Flush, &settings))?;
    let when = OptionalActions::Flush;
    Ok(Settings { terminal, before, when })
}

/// Shows the line on the terminal after `delay`, unless the result was dropped before. Without a terminal, or a thread
/// to wait in, nothing is shown.
pub fn show_after(delay: Duration, text: &str) -> Box<dyn Any> {
    let (guard, over) = mpsc::channel::<()>();
    if open_terminal().is_some() {
        let text = line(text);
        let _ = thread::Builder::new().spawn(move || {
            if over.recv_timeout(delay) == Err(RecvTimeoutError::Timeout)
                && let Some(mut terminal) = open_terminal().filter(is_free)
            {
                signals::write_in_background();
                let _ = terminal.write_all(text.as_bytes());
            }
        });
    }
    Box::new(guard)
}

/// Whether no program such as k9s draws on the terminal, where a line from elsewhere would be in its way.
fn is_free(terminal: &File) -> bool {
    tcgetattr(terminal).is_ok_and(|settings| settings.local_modes.contains(LocalModes::ICANON))
}
