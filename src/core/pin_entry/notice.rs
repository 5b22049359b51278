//! A line that is shown on the terminal after a delay, and removed when its cause is over.

use std::any::Any;
use std::fs::File;
use std::io::Write as _;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::termios::{LocalModes, tcgetattr, tcgetwinsize};

use super::prompt::open_terminal;
use crate::printable::printable;
use crate::process::signals;

/// The width of a terminal that doesn't say it.
const USUAL_COLUMNS: usize = 80;

/// The guard: dropped, it takes the line away, or sees to it that it never comes.
struct Notice(Option<(Sender<()>, JoinHandle<()>)>);

/// Shows the line once `delay` has passed, until what this gives is dropped. Without a terminal, or
/// without a thread to wait in, nothing is shown.
pub fn show_after(delay: Duration, text: &str) -> Box<dyn Any> {
    if open_terminal().is_none() {
        return Box::new(());
    }
    let text = printable(text).into_owned();
    let (sender, over) = mpsc::channel::<()>();
    let thread = thread::Builder::new().spawn(move || {
        if over.recv_timeout(delay) != Err(RecvTimeoutError::Timeout) {
            return;
        }
        signals::write_in_background();
        let Some(mut terminal) = open_terminal().filter(is_free) else {
            return;
        };
        let _ = terminal.write_all(on_one_row(&text, &terminal).as_bytes());
        // Ends when the guard drops its sender.
        let _ = over.recv();
        let _ = terminal.write_all(take_away().as_bytes());
    });
    Box::new(Notice(thread.ok().map(|thread| (sender, thread))))
}

impl Drop for Notice {
    fn drop(&mut self) {
        if let Some((sender, thread)) = self.0.take() {
            drop(sender);
            let _ = thread.join();
        }
    }
}

/// Not while a program draws on it (`k9s`): a line from elsewhere would be in its way.
fn is_free(terminal: &File) -> bool {
    tcgetattr(terminal).is_ok_and(|settings| settings.local_modes.contains(LocalModes::ICANON))
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
