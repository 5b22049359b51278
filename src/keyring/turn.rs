//! The turn to ask somebody for the PIN of a key, which one thread has at a time.

use std::mem;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Instant;

use system::locked;

/// The turn to ask for a PIN, which one thread holds at a time, and for which others wait.
#[derive(Default)]
pub(super) struct PinTurn {
    is_taken: Mutex<bool>,
    is_free: Condvar,
}

/// The turn, held until this is dropped.
pub(super) struct HeldTurn<'a>(&'a PinTurn);

impl PinTurn {
    /// The turn, unless another thread holds it.
    pub(super) fn take_if_free(&self) -> Option<HeldTurn<'_>> {
        let was_taken = mem::replace(&mut *locked(&self.is_taken), true);
        (!was_taken).then(|| HeldTurn(self))
    }

    /// Waits until the turn is free, and takes it; `None` if it isn't free by the deadline.
    pub(super) fn take(&self, deadline: Option<Instant>) -> Option<HeldTurn<'_>> {
        let mut is_taken = locked(&self.is_taken);
        while *is_taken {
            is_taken = match deadline {
                None => self.is_free.wait(is_taken).unwrap_or_else(PoisonError::into_inner),
                Some(deadline) => {
                    let left = deadline.checked_duration_since(Instant::now())?;
                    let waited = self.is_free.wait_timeout(is_taken, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
        *is_taken = true;
        Some(HeldTurn(self))
    }
}

impl Drop for HeldTurn<'_> {
    fn drop(&mut self) {
        *locked(&self.0.is_taken) = false;
        self.0.is_free.notify_one();
    }
}
