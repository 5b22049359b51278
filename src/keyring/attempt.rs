//! An attempt to do something with a key: what the requester sends to the worker, and what comes back.
//!
//! The worker waits for nobody. If an attempt needs something that has to be waited for, which is the library's lock or a
//! person's answer, the attempt ends and says so. The requester then waits for it, and sends another attempt, which begins
//! anew.
//!
//! To begin anew is safe, because an attempt ends only in these ways:
//!
//! - for want of the lock: before anything was done;
//! - for want of an answer: where a PIN is wanted, which is before the call that needs the login, so that no signature was
//!   made. Whatever was done on the token by then is known to the next attempt, since the session, the login and the count
//!   of refused PINs belong to the worker and not to the attempt. Work that writes looks first at what is there already, as
//!   it has to after an interruption, too;
//! - because the token was lost: it has forgotten whatever was not written. This happens once in a request.

use std::time::Instant;

use super::question::{AnswerAtHand, GivenAnswer, Question};
use messages::error::Error;
use system::limits;

/// Who wants to use a key, and for what.
#[derive(Clone, Copy)]
pub(super) enum KeyAccess {
    /// A TLS client, who wants a signature. Refused once the key was closed.
    InTime,
    /// A TLS client, who wants the certificate that the key has now. Refused once the key was closed.
    Showing,
    /// The owner of the keyring.
    Own,
    /// A client of this process; `signs` if it may have digests signed.
    Client { signs: bool },
    /// The owner of the keyring. No other process may use the library meanwhile.
    Exclusive,
}

impl KeyAccess {
    /// Whether somebody at the other end of a TLS connection waits.
    pub(super) fn is_in_time(self) -> bool {
        matches!(self, Self::InTime | Self::Showing)
    }

    /// By when the library has to answer an attempt that begins now; `None` if there is no limit.
    pub(super) fn deadline(self) -> Option<Instant> {
        self.is_in_time().then(|| Instant::now() + limits::REPLY)
    }

    /// Whether the current certificate of the key is wanted.
    pub(super) fn shows_certificate(self) -> bool {
        matches!(self, Self::Showing | Self::Own | Self::Client { .. })
    }
}

/// One attempt of the worker to do what the requester wants.
pub(super) struct Attempt {
    pub(super) access: KeyAccess,
    /// Whether the requester holds the library's lock.
    pub(super) is_locked: bool,
    /// Whether no earlier attempt of the same request has reached the token.
    pub(super) is_first: bool,
    /// Whether the token was lost in an earlier attempt of the same request.
    pub(super) was_lost: bool,
    pub(super) pins: AnswerAtHand,
}

/// How an attempt has ended, which decides what the requester does next.
pub(super) enum AttemptEnd<T> {
    /// The attempt has done it. This is the caller's result.
    Done(Result<T, Error>),
    /// Nothing was done: the next attempt needs the library's lock. An answer that was not used yet is handed back.
    WantsLock(Option<GivenAnswer>),
    /// The next attempt needs an answer to this question.
    WantsAnswer(Question),
    /// The token was lost, and its session was closed: the next attempt opens another one.
    TokenLost,
}
