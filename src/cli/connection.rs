//! A connection that a command makes for itself, and the key for it.

use std::sync::Arc;

use super::reporter::Reporter;
use crate::cluster_api::TokenConnection;
use crate::error::Error;
use crate::keyring::{KeyNumber, Keyring, OpenKey};
use crate::library;
use crate::process::watchdog;
use crate::tunnel::{TunnelObserver, TunnelTarget};

/// Opens the key, with a prompt where it has to be.
pub(super) fn open(keyring: &Keyring, key: KeyNumber) -> Result<Arc<OpenKey>, Error> {
    // Once it is open, the keyring limits the time.
    library::end_if_it_hangs(&keyring.library(key));
    let open = keyring.open(key, None, Box::new(library::note_wait));
    watchdog::stop();
    open
}

/// Ready to ask the cluster as the user of the key's certificate.
pub(super) fn connect(
    target: TunnelTarget,
    key: KeyNumber,
    keyring: &Arc<Keyring>,
) -> Result<TokenConnection, Error> {
    let observer: Arc<dyn TunnelObserver> = Arc::new(Reporter::default());
    TokenConnection::new(target, key, keyring, &observer)
}
