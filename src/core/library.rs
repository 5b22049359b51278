//! How the commands open a library: waits and trouble with the lock are reported, and a library
//! that hangs ends the process.

#![forbid(unsafe_code)]

use std::path::Path;
use std::time::Duration;

use crate::config::{InitArgs, TrustedLibrary};
use crate::error::Error;
use crate::pin_entry;
use crate::pipeline::{Library, LibraryLock, StageObserver};
use crate::process::{leave, watchdog};
use crate::report;
use crate::token::ModuleError;

/// Opens the library, for which other processes may take `patience` to finish. From now on each call
/// has a limit of time, and a token that waits for a person says so on the terminal.
///
/// # Errors
/// Those of [`Library::open`].
pub fn open(
    library: &TrustedLibrary,
    init_args: Option<&InitArgs>,
    patience: Duration,
    observer: &mut dyn StageObserver,
) -> Result<Library, Error> {
    end_if_it_hangs(library.path());
    let lock = LibraryLock::default();
    let on_wait = pin_entry::show_after;
    Library::open(library, init_args, on_wait, lock, patience, observer)
}

/// Reports waits for the lock on a library, and that there is none.
pub struct LockReports;

impl StageObserver for LockReports {
    fn waiting(&mut self, holder: Option<u32>) {
        note_wait(holder);
    }

    fn unlocked(&mut self, reason: &str) {
        warn_of_no_lock(reason);
    }
}

/// Says which process has the library.
pub fn note_wait(holder: Option<u32>) {
    let holder = holder.map_or_else(String::new, |holder| format!(" (process {holder})"));
    report::note(&format!("waiting for another request{holder} to finish with the token"));
}

pub fn warn_of_no_lock(reason: &str) {
    report::warning(&format!("requests at the same time may disturb each other: {reason}"));
}

/// From now on, ends the process with an error if a call of the library takes too long.
pub fn end_if_it_hangs(library: &Path) {
    let path = library.to_owned();
    watchdog::start(move |doing, limit| {
        let error = Error::from(ModuleError::Hangs { path, doing, seconds: limit.as_secs() });
        report::last_error(&error);
        leave(error.exit_code())
    });
}
