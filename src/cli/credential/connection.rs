//! A connection to the API server with the token's key, for what is asked for there.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::short_lived::{Making, OpenedModule};
use crate::certificate::of_subject;
use crate::cli::connection_log::ConnectionLog;
use crate::cluster_api::TokenConnection;
use crate::error::Error;
use crate::keyring::Keyring;
use crate::library::{self, LockReports};
use crate::pin::{Pin, PinError, PinOrigin, PinProvider, PinRequest};
use crate::pin_entry::Sources;
use crate::process::watchdog;
use crate::report;
use crate::tunnel::{TunnelObserver, TunnelTarget};

/// A source of PINs for the thread that opens the key, of which the others learn what became of it.
#[derive(Clone)]
pub(super) struct SharedPins(Arc<Mutex<Sources>>);

impl SharedPins {
    pub(super) fn new(pins: Sources) -> Self {
        Self(Arc::new(Mutex::new(pins)))
    }

    /// See [`Sources::failed`].
    pub(super) fn failed(&self, error: &Error) {
        self.source().failed(error);
    }

    fn source(&self) -> MutexGuard<'_, Sources> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PinProvider for SharedPins {
    fn origin(&mut self) -> PinOrigin {
        self.source().origin()
    }

    fn pin(&mut self, request: &PinRequest<'_>) -> Result<Pin, PinError> {
        self.source().pin(request)
    }

    fn confirm_at_reader(&mut self, request: &PinRequest<'_>) -> Result<(), PinError> {
        self.source().confirm_at_reader(request)
    }

    fn at_reader(&mut self, notice: &str) {
        self.source().at_reader(notice);
    }

    fn insert(&mut self, missing: &str) -> bool {
        self.source().insert(missing)
    }
}

/// Opens the key, with a PIN if it takes one, and is ready to ask the cluster as its certificate's user.
pub(super) fn connect(making: Making<'_>, target: TunnelTarget) -> Result<TokenConnection, Error> {
    let Making { config, pins, opened, .. } = making;
    let keyring = Arc::new(Keyring::default());
    let key = keyring.add_with(config, Box::new(pins))?;
    *opened = OpenedModule::Keyring(Arc::clone(&keyring));
    library::end_if_it_hangs(&keyring.library(key));
    let open = keyring.open(key, Box::new(LockReports));
    // From here on, the keyring limits the time.
    watchdog::stop();
    let open = open?;
    for concern in &open.concerns {
        report::warning(&of_subject(&open.subject, concern));
    }
    let observer: Arc<dyn TunnelObserver> = Arc::new(ConnectionLog);
    TokenConnection::new(target, key, &keyring, &observer)
}
