//! The first two stages: a library under its lock, and a token in it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::StageObserver;
use crate::config::{InitArgs, TokenSelector, TrustedLibrary};
use crate::error::Error;
use crate::pin::PinProvider;
use crate::process::lock::{Lock, LockError};
use crate::token::{self, FoundToken, Module, Token, TokenError, WaitObserver};

/// A library that is loaded and initialised. Its lock is held until it is released or this is
/// dropped.
pub struct Library {
    pub module: Module,
    pub lock: LibraryLock,
}

impl Library {
    /// Waits for other processes to finish with the library, at most `patience`, and opens it. `on_wait`
    /// is called when a token waits for a person.
    ///
    /// # Errors
    /// [`TokenError::Busy`] if it doesn't become free;
    /// [`ModuleError`](crate::token::ModuleError) if it can't be loaded or initialised.
    pub fn open(
        library: &TrustedLibrary,
        init_args: Option<&InitArgs>,
        on_wait: WaitObserver,
        lock: LibraryLock,
        patience: Duration,
        observer: &mut dyn StageObserver,
    ) -> Result<Self, Error> {
        lock.acquire(library, patience, observer)?;
        let module = Module::open(library, init_args, on_wait)?;
        let library = Self { module, lock };
        observer.library(&library);
        Ok(library)
    }

    /// Opens a session to the token that the selector names. If it is missing and there are
    /// `pins`, a person may be asked to insert it.
    ///
    /// # Errors
    /// [`TokenError`] if there isn't exactly one token that fits, or it can't be opened.
    pub fn token(
        &self,
        selector: &TokenSelector,
        pins: Option<&mut dyn PinProvider>,
        observer: &mut dyn StageObserver,
    ) -> Result<Token<'_>, Error> {
        let token = self.token_with(selector, pins, |found| found.open(&self.module))?;
        observer.token(&token);
        Ok(token)
    }

    /// [`Library::token`] with a session in which objects can be made and removed.
    ///
    /// # Errors
    /// Those of [`Library::token`].
    pub fn token_to_write(
        &self,
        selector: &TokenSelector,
        pins: Option<&mut dyn PinProvider>,
        observer: &mut dyn StageObserver,
    ) -> Result<Token<'_>, Error> {
        let open = |found: FoundToken| found.open_to_write(&self.module);
        let token = self.token_with(selector, pins, open)?;
        observer.token(&token);
        Ok(token)
    }

    /// [`Library::token`] for a caller who may have a session to it already.
    ///
    /// # Errors
    /// Those of [`Library::token`] and of `open`.
    pub fn token_with<T>(
        &self,
        selector: &TokenSelector,
        pins: Option<&mut dyn PinProvider>,
        mut open: impl FnMut(FoundToken) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let mut find_and_open = || open(FoundToken::find(&self.module, selector)?);
        match pins {
            Some(pins) => token::open_or_ask(pins, find_and_open),
            None => find_and_open(),
        }
    }

    /// Finalises the library (C_Finalize) so that it can be opened again, without a limit of time.
    pub fn close(self) {
        self.module.close();
    }

    /// Finalises the library (C_Finalize) at the end of the process, which ends with `code` even
    /// if the library hangs or crashes: to be called when the answer is out.
    pub fn finalize(self, code: u8) {
        self.module.finalize(code);
    }
}

/// A lock on a library between the processes of this user: SoftHSM's files, for example, don't
/// survive two logins at once. Clones are the same lock, so that a thread which waits for another
/// can release what that one holds.
#[derive(Clone, Default)]
pub struct LibraryLock {
    held: Arc<Mutex<Option<Lock>>>,
    /// Of the one thread that waits for other processes: two would wait for each other.
    turn: Arc<Mutex<()>>,
}

impl LibraryLock {
    /// Acquires the lock unless it is held. If there is no place for a lock, the observer
    /// learns why and the library is used without.
    ///
    /// # Errors
    /// [`TokenError::Busy`] if other processes keep it longer than `patience`.
    pub fn acquire(
        &self,
        library: &TrustedLibrary,
        patience: Duration,
        observer: &mut dyn StageObserver,
    ) -> Result<(), Error> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        if self.held().is_some() {
            return Ok(());
        }
        let name = library.path().to_string_lossy();
        let lock = Lock::acquire_within(patience, &name, &mut |holder| observer.waiting(holder));
        match lock {
            Ok(lock) => *self.held() = Some(lock),
            Err(LockError::Busy(busy)) => return Err(TokenError::from(busy).into()),
            Err(LockError::Unavailable(reason)) => observer.unlocked(&reason),
        }
        Ok(())
    }

    pub fn release(&self) {
        *self.held() = None;
    }

    /// Whether another process held the lock when it was acquired.
    pub fn has_waited(&self) -> bool {
        self.held().as_ref().is_some_and(Lock::waited)
    }

    fn held(&self) -> MutexGuard<'_, Option<Lock>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Sender, channel};
    use std::thread;

    use super::*;

    impl StageObserver for Sender<()> {
        fn waiting(&mut self, _: Option<u32>) {
            self.send(()).unwrap();
        }
    }

    #[test]
    fn two_threads_that_wait_for_another_process_both_get_the_lock() {
        let own = std::env::current_exe().unwrap();
        let library = &TrustedLibrary::check(own.to_str().unwrap()).ok().unwrap();
        let (long, other) = (Duration::from_secs(10), LibraryLock::default());
        other.acquire(library, long, &mut ()).unwrap();
        let lock = LibraryLock::default();
        let (waiting, waits) = channel();
        thread::scope(|threads| {
            let all = [(); 2].map(|()| {
                let (lock, mut waiting) = (lock.clone(), waiting.clone());
                threads.spawn(move || lock.acquire(library, long, &mut waiting).is_ok())
            });
            waits.recv().unwrap();
            other.release();
            assert_eq!(all.map(|it| it.join().unwrap()), [true; 2]);
        });
    }
}
