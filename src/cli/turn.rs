//! This process's turn at a library, and how long the library may take.

#![forbid(unsafe_code)]

use std::path::Path;
use std::time::Duration;

use crate::config::TrustedLibrary;
use crate::error::Error;
use crate::process::lock::{self, Lock, LockError};
use crate::process::{leave, watchdog};
use crate::report;
use crate::token::{ModuleError, TokenError};

/// Keeps other processes off the library while this one uses it: SoftHSM's files, for one, don't
/// stand two logins at once. Without a place for the lock it goes on, with a warning. From then on
/// the library has to answer in time.
pub(super) fn take(library: &TrustedLibrary) -> Result<Option<Lock>, Error> {
    take_within(lock::LIMIT, library)
}

/// The same for who has less patience with those other processes.
pub(super) fn take_within(
    limit: Duration,
    library: &TrustedLibrary,
) -> Result<Option<Lock>, Error> {
    let name = library.path().to_string_lossy();
    let lock = match Lock::acquire_within(limit, &name, &mut tell) {
        Ok(lock) => Some(lock),
        Err(LockError::Busy { holder }) => {
            return Err(TokenError::Busy {
                waited: limit,
                holder,
            }
            .into());
        }
        Err(LockError::Unavailable(reason)) => {
            report::warning(&format!(
                "requests at the same time may disturb each other: {reason}"
            ));
            None
        }
    };
    bound(library.path());
    Ok(lock)
}

/// Says who has the library.
pub(super) fn tell(holder: Option<u32>) {
    let holder = holder.map_or_else(String::new, |holder| format!(" (process {holder})"));
    report::note(&format!(
        "waiting for another request{holder} to finish with the token"
    ));
}

/// Ends the process, with an error, once the library hangs.
pub(super) fn bound(library: &Path) {
    let path = library.to_owned();
    watchdog::start(move |doing| {
        let error = Error::from(ModuleError::Hangs {
            path,
            doing,
            seconds: watchdog::LIMIT.as_secs(),
        });
        report::last_error(&error);
        leave(error.exit_code())
    });
}
