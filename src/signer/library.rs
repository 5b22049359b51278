//! A library that a command or a request uses: under its lock, loaded and initialised. Waits for the lock are
//! reported, and a library that hangs ends the process.

use std::ffi::CStr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::report;
use base::error::Error;
use base::process::lock::{self, Lock, LockError};
use base::process::{locked, watchdog};
use config::{TokenSelector, TrustedLibrary};
use token::{Module, SessionAccess, Token};

pub struct Library {
    pub module: Arc<Module>,
    pub lock: LibraryLock,
}

/// Opens the library, for which other processes may take `patience` to finish. From now on each call
/// has a limit of time, and a token that waits for a person says so on the terminal.
pub fn open(
    library: &TrustedLibrary,
    init_args: Option<&CStr>,
    patience: Duration,
) -> Result<Library, Error> {
    watchdog::start(library.path());
    let lock = LibraryLock::default();
    lock.acquire(library, patience, &mut note_wait)?;
    let module = Arc::new(Module::open(library, init_args, pin_entry::show_after)?);
    Ok(Library { module, lock })
}

impl Library {
    /// Opens a session to the one token that the selector names.
    pub fn token(&self, selector: &TokenSelector) -> Result<Token, Error> {
        let found = self.module.find_token(selector)?;
        Token::with_session(&self.module, found, SessionAccess::ReadOnly)
    }
}

/// A lock on a library between the processes of this user: SoftHSM's files, for example, don't survive two logins at
/// once. Clones are the same lock, so that a thread which waits for another can release what that one holds.
#[derive(Clone, Default)]
pub struct LibraryLock {
    held: Arc<Mutex<Option<Lock>>>,
    /// Of the one thread that waits for other processes: two would wait for each other.
    turn: Arc<Mutex<()>>,
}

impl LibraryLock {
    /// Acquires the lock unless it is held. Without a place for locks there is but a warning.
    pub fn acquire(
        &self,
        library: &TrustedLibrary,
        patience: Duration,
        waiting: &mut dyn FnMut(Option<u32>),
    ) -> Result<(), Error> {
        let _turn = locked(&self.turn);
        if locked(&self.held).is_some() {
            return Ok(());
        }
        let name = library.path().to_string_lossy();
        match Lock::acquire_within(patience, &name, waiting) {
            Ok(lock) => *locked(&self.held) = Some(lock),
            Err(LockError::Busy(holder)) => return Err(lock::busy(holder, patience)),
            Err(LockError::Unavailable(reason)) => report::warning(&format!(
                "requests at the same time may disturb each other: {reason}"
            )),
        }
        Ok(())
    }

    pub fn release(&self) {
        *locked(&self.held) = None;
    }
}

pub fn note_wait(holder: Option<u32>) {
    let holder = lock::in_brackets(holder);
    report::note(&format!("waiting for another request{holder} to finish with the token"));
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::thread;

    use super::*;

    #[test]
    fn two_threads_that_wait_for_another_process_both_get_the_lock() {
        let program = std::env::current_exe().unwrap();
        let library = &TrustedLibrary::check(program.to_str().unwrap()).ok().unwrap();
        let (long, other) = (Duration::from_secs(10), LibraryLock::default());
        other.acquire(library, long, &mut |_| ()).unwrap();
        let lock = LibraryLock::default();
        let (waiting, waits) = channel();
        thread::scope(|threads| {
            let all = [(); 2].map(|()| {
                let (lock, waiting) = (lock.clone(), waiting.clone());
                threads.spawn(move || {
                    lock.acquire(library, long, &mut |_| waiting.send(()).unwrap()).is_ok()
                })
            });
            waits.recv().unwrap();
            other.release();
            assert_eq!(all.map(|it| it.join().unwrap()), [true; 2]);
        });
    }
}
