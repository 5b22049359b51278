//! Reports tokens that are removed during a run, and ends its connections if that is wanted.
//!
//! Without that, connections that are open continue, and so do TLS sessions that are resumed, which
//! need no signature.

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

/// Between two checks. A token counts as removed if two in a row don't find it: another program may
/// have a card for a moment.
const INTERVAL: Duration = Duration::from_secs(2);

/// The tunnels of a run, until they end.
pub(super) struct Presence {
    tunnels: Mutex<Option<Tunnels>>,
    ends_with_token: bool,
    /// Set by a request for a connection, cleared by a check.
    is_in_use: AtomicBool,
}

impl Presence {
    pub(super) fn new(ends_with_token: bool) -> Self {
        Self { tunnels: Mutex::new(None), ends_with_token, is_in_use: AtomicBool::new(false) }
    }

    /// A client asks for a connection.
    pub(super) fn asked(&self) {
        self.is_in_use.store(true, Ordering::Relaxed);
    }

    /// Checks the tokens from now on.
    ///
    /// # Errors
    /// If there is no thread for it.
    pub(super) fn watch(
        self: &Arc<Self>,
        tunnels: Tunnels,
        keyring: &Arc<Keyring>,
    ) -> io::Result<()> {
        *self.tunnels() = Some(tunnels);
        let (this, keyring) = (Arc::clone(self), Arc::clone(keyring));
        let thread = thread::Builder::new().name("presence".to_owned());
        thread.spawn(move || this.check_repeatedly(&keyring)).map(drop)
    }

    /// Ends the tunnels.
    pub(super) fn end(&self) {
        drop(self.tunnels().take());
    }

    fn check_repeatedly(&self, keyring: &Keyring) {
        signals::write_in_background();
        let mut missed: Vec<String> = Vec::new();
        let mut is_reported = false;
        loop {
            thread::sleep(INTERVAL);
            // A run without connections doesn't depend on its tokens.
            let is_needed = self.ends_with_token || !missed.is_empty();
            if !self.is_in_use.swap(false, Ordering::Relaxed) && !is_needed {
                continue;
            }
            let missing = keyring.missing();
            if let Some(token) = missing.iter().find(|token| missed.contains(token)) {
                if self.ends_with_token {
                    report::warning(&format!(
                        "token {token} is gone, and with it the connections of this run; start it again for others"
                    ));
                    return self.end();
                }
                if !is_reported {
                    report::warning(&format!(
                        "token {token} is gone; connections that stand and TLS sessions that are resumed go on until they end (`run --end-with-token` ends them)"
                    ));
                }
                is_reported = true;
            }
            is_reported &= !missing.is_empty();
            missed = missing;
        }
    }

    fn tunnels(&self) -> MutexGuard<'_, Option<Tunnels>> {
        self.tunnels.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
