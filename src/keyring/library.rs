//! A library that a command or a request uses without a keyring. Its lock is held, waits for the lock are reported, and a
//! library that hangs ends the process.

use std::ffi::CStr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use config::pin::{Pin, PinOrigin, PinProvider, PinRequest};
use config::{TokenSelector, TrustedLibrary};
use files::lock::{self, Lock, LockError};
use messages::error::Error;
use messages::report;
use system::limits;
use system::locked;
use token::watchdog::Watch;
use token::{Callers, Module, SessionAccess, Token};

/// A library that this process has opened.
pub struct Library {
    pub module: Arc<Module>,
    pub lock: LibraryLock,
    _watch: Watch,
}

/// Opens the library, for which other processes may take `patience` to finish. As long as the result exists, each call
/// has a limit of time. A token that waits for a person says so on the terminal.
pub fn open(
    library: &TrustedLibrary,
    init_args: Option<&CStr>,
    callers: Callers,
    patience: Duration,
) -> Result<Library, Error> {
    let watch = Watch::over(library.path());
    let lock = LibraryLock::default();
    lock.acquire(library, patience, &mut note_wait)?;
    let module = Arc::new(Module::open(library, init_args, callers, pin_entry::show_after)?);
    Ok(Library { module, lock, _watch: watch })
}

impl Library {
    /// Opens a session to the one token that the selector names.
    pub fn token(&self, selector: &TokenSelector) -> Result<Token, Error> {
        let found = self.module.find_token(selector)?;
        Token::with_session(&self.module, found, SessionAccess::ReadOnly)
    }
}

/// A provider of PINs that lets other processes use the library while it asks a person.
pub struct AskingUnlocked<P> {
    pins: P,
    lock: LibraryLock,
    library: TrustedLibrary,
}

impl<P: PinProvider> AskingUnlocked<P> {
    /// The provider that it was made of.
    pub fn into_inner(self) -> P {
        self.pins
    }

    /// Asks with the lock free, and takes the lock again. If there is no answer, the lock stays free.
    fn unlocked<T>(&mut self, ask: impl FnOnce(&mut P) -> Result<T, Error>) -> Result<T, Error> {
        self.lock.release();
        let answer = ask(&mut self.pins)?;
        self.lock.acquire(&self.library, limits::LOCK, &mut note_wait)?;
        Ok(answer)
    }
}

impl<P: PinProvider> PinProvider for AskingUnlocked<P> {
    fn origin(&mut self) -> PinOrigin {
        self.pins.origin()
    }

    fn pin(&mut self, request: &PinRequest<'_>) -> Result<Pin, Error> {
        if !self.pins.origin().is_attended() {
            return self.pins.pin(request);
        }
        self.unlocked(|pins| pins.pin(request))
    }

    fn confirm_at_reader(&mut self, request: &PinRequest<'_>) -> Result<(), Error> {
        self.unlocked(|pins| pins.confirm_at_reader(request))
    }

    fn at_reader(&mut self, notice: &str) {
        self.pins.at_reader(notice);
    }
}

/// A lock that only one process of this user holds for a library: SoftHSM's files, for example, don't survive two logins at
/// once. Clones are the same lock, which is released with the last of them.
#[derive(Clone, Default)]
pub struct LibraryLock {
    held: Arc<Mutex<Option<Lock>>>,
}

impl LibraryLock {
    /// Acquires the lock, unless it is held already. If there is no place for locks, there is only a warning.
    pub fn acquire(
        &self,
        library: &TrustedLibrary,
        patience: Duration,
        waiting: &mut dyn FnMut(Option<u32>),
    ) -> Result<(), Error> {
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

    /// Makes a provider of this one that releases the lock while a person is asked. That is safe: the session stays, and
    /// the token's record and state are looked at again afterwards.
    pub fn asking_unlocked<P: PinProvider>(
        &self,
        library: &TrustedLibrary,
        pins: P,
    ) -> AskingUnlocked<P> {
        AskingUnlocked { pins, lock: self.clone(), library: library.clone() }
    }

    pub fn release(&self) {
        *locked(&self.held) = None;
    }
}

pub fn note_wait(holder: Option<u32>) {
    let holder = lock::in_brackets(holder);
    report::note(&format!("waiting for another request{holder} to finish with the token"));
}
