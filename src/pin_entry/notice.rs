//! A line that is shown on the terminal after a delay.

use std::any::Any;
use std::fs::File;
use std::io::Write as _;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use rustix::termios::{LocalModes, tcgetattr};

use super::prompt::{line, open_terminal};
use base::process::signals;

/// Shows the line once `delay` has passed, unless what this gives has been dropped. Without a terminal, or
/// without a thread to wait in, nothing is shown.
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

/// Not while a program draws on it (`k9s`): a line from elsewhere would be in its way.
fn is_free(terminal: &File) -> bool {
    tcgetattr(terminal).is_ok_and(|settings| settings.local_modes.contains(LocalModes::ICANON))
}
