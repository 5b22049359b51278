//! Whether the tokens of a run are still there, as far as somebody wants to know.
//!
//! A token that is taken out takes nothing back: connections that stand go on, and so do TLS sessions
//! that are resumed, which need no signature.

#![forbid(unsafe_code)]

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use crate::keyring::Keyring;
use crate::process::signals;
use crate::report;
use crate::tunnel::Tunnels;

/// Between two looks. What is missed in one is looked for again: a card may be another program's for
/// a moment.
const GLANCE: Duration = Duration::from_secs(2);

/// The tunnels of a run, as long as they are to be there.
pub(super) struct Presence {
    tunnels: Mutex<Option<Tunnels>>,
    /// Whether they end with a token.
    ends: bool,
    /// Somebody has asked for a connection since the last look.
    is_asked: AtomicBool,
}

impl Presence {
    pub(super) fn new(ends: bool) -> Self {
        Self {
            tunnels: Mutex::new(None),
            ends,
            is_asked: AtomicBool::new(false),
        }
    }

    /// Somebody asks for a connection.
    pub(super) fn asked(&self) {
        self.is_asked.store(true, Ordering::Relaxed);
    }

    /// Looks after the tokens from now on.
    pub(super) fn watch(
        self: &Arc<Self>,
        tunnels: Tunnels,
        keyring: &Arc<Keyring>,
    ) -> io::Result<()> {
        *self.tunnels() = Some(tunnels);
        let (this, keyring) = (Arc::clone(self), Arc::clone(keyring));
        thread::Builder::new()
            .name("presence".to_owned())
            .spawn(move || this.look_after(&keyring))
            .map(drop)
    }

    /// Ends the tunnels.
    pub(super) fn end(&self) {
        drop(self.tunnels().take());
    }

    fn look_after(&self, keyring: &Keyring) {
        signals::write_in_background();
        let mut missed: Vec<String> = Vec::new();
        let mut is_told = false;
        loop {
            thread::sleep(GLANCE);
            // Without a connection nothing goes on that could surprise anybody.
            let is_wanted = self.ends || !missed.is_empty();
            if !self.is_asked.swap(false, Ordering::Relaxed) && !is_wanted {
                continue;
            }
            let missing = keyring.missing();
            let twice = missing.iter().find(|token| missed.contains(token));
            match twice {
                Some(token) if self.ends => {
                    report::warning(&format!(
                        "token {token} is gone, and with it the connections of this run; start it again for others"
                    ));
                    return self.end();
                }
                Some(token) if !is_told => {
                    is_told = true;
                    report::warning(&format!(
                        "token {token} is gone; connections that stand and TLS sessions that are resumed go on until they end (`run --end-with-token` ends them)"
                    ));
                }
                _ => {}
            }
            is_told &= !missing.is_empty();
            missed = missing;
        }
    }

    fn tunnels(&self) -> MutexGuard<'_, Option<Tunnels>> {
        self.tunnels.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
