//! A line on the terminal that comes after a while and goes when what it told of is over.

use std::any::Any;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::fs::OFlags;
use rustix::termios::{LocalModes, tcgetattr, tcgetwinsize};

use crate::printable::printable;
use crate::process::signals;

/// Of a terminal that doesn't say.
const USUAL_COLUMNS: usize = 80;

/// Shows the line once `delay` has passed, until what this gives is dropped.
pub fn show_after(delay: Duration, text: &str) -> Box<dyn Any> {
    Box::new(Notice::after(delay, text))
}

/// The guard: dropped, it takes the line away, or sees to it that it never comes.
pub(super) struct Notice {
    running: Option<(Sender<()>, JoinHandle<()>)>,
}

impl Notice {
    /// Without a terminal, or without a thread to wait in, nothing is shown.
    pub(super) fn after(delay: Duration, text: &str) -> Self {
        if open().is_none() {
            return Self { running: None };
        }
        let text = printable(text).into_owned();
        let (sender, over) = mpsc::channel::<()>();
        let thread = thread::Builder::new().spawn(move || {
            if over.recv_timeout(delay) != Err(RecvTimeoutError::Timeout) {
                return;
            }
            signals::write_in_background();
            let Some(mut terminal) = terminal() else {
                return;
            };
            let _ = terminal.write_all(on_one_row(&text, &terminal).as_bytes());
            // Ends when the guard drops its sender.
            let _ = over.recv();
            let _ = terminal.write_all(take_away().as_bytes());
        });
        Self {
            running: thread.ok().map(|thread| (sender, thread)),
        }
    }
}

impl Drop for Notice {
    fn drop(&mut self) {
        if let Some((sender, thread)) = self.running.take() {
            drop(sender);
            let _ = thread.join();
        }
    }
}

/// None while a program draws on it (`k9s`): a line from elsewhere would be in its way.
fn terminal() -> Option<File> {
    open().filter(|terminal| {
        tcgetattr(terminal).is_ok_and(|settings| settings.local_modes.contains(LocalModes::ICANON))
    })
}

/// O_NONBLOCK: a terminal held with Ctrl-S must not hold back the answer.
fn open() -> Option<File> {
    OpenOptions::new()
        .write(true)
        .custom_flags(OFlags::NONBLOCK.bits() as i32)
        .open("/dev/tty")
        .ok()
}

/// A line that wraps could not be taken away; what is most important comes first in it.
fn on_one_row(text: &str, terminal: &File) -> String {
    let columns = tcgetwinsize(terminal).map_or(0, |size| usize::from(size.ws_col));
    let columns = if columns == 0 { USUAL_COLUMNS } else { columns };
    // The last column is left free: some terminals wrap when it is written to.
    text.chars().take(columns - 1).collect()
}

/// To the line's beginning, and nothing from there on; a terminal that can't do that gets a new
/// line.
fn take_away() -> &'static str {
    match std::env::var_os("TERM") {
        Some(terminal) if terminal != "dumb" => "\r\x1b[K",
        _ => "\n",
    }
}
