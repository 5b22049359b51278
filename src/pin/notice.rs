//! A line on the terminal that comes after a while and goes when what it told of is over.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::printable::printable;

/// The guard: dropped, it takes the line away, or sees to it that it never comes.
#[derive(Debug)]
pub struct Notice {
    running: Option<(Sender<()>, JoinHandle<()>)>,
}

impl Notice {
    /// Without a terminal, or without a thread to wait in, nothing is shown.
    pub fn after(delay: Duration, text: &str) -> Self {
        let text = format!("pkcs11-external-signer: {}", printable(text));
        let (sender, over) = mpsc::channel::<()>();
        let thread = thread::Builder::new().spawn(move || {
            if over.recv_timeout(delay) != Err(RecvTimeoutError::Timeout) {
                return;
            }
            let Some(mut terminal) = terminal() else {
                return;
            };
            let _ = terminal.write_all(text.as_bytes());
            // Ends when the guard drops its sender.
            let _ = over.recv();
            let _ = terminal.write_all(take_away().as_bytes());
        });
        Self {
            running: thread.ok().map(|thread| (sender, thread)),
        }
    }

    /// Shows nothing.
    pub fn none() -> Self {
        Self { running: None }
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

fn terminal() -> Option<File> {
    OpenOptions::new().write(true).open("/dev/tty").ok()
}

/// To the line's beginning, and nothing from there on; a terminal that can't do that gets a new
/// line.
fn take_away() -> &'static str {
    match std::env::var_os("TERM") {
        Some(terminal) if terminal != "dumb" => "\r\x1b[K",
        _ => "\n",
    }
}
