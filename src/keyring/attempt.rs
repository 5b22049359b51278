//! What goes from the requester to the worker, and what comes back: an attempt to do something with a key.
//!
//! The worker waits for nobody. Where an attempt needs what only waiting gives, the library's lock or a person's answer,
//! it ends and says so; the requester gets that, and has the next attempt begin anew.
//!
//! That is safe, since an attempt ends
//!
//! - for the lock before anything is done;
//! - for an answer where a PIN is wanted, and that is before the call that needs the login. What went to the token before
//!   then has left its mark where the next attempt finds it: the session, the login, and the PINs that were refused and are
//!   counted belong to the worker, and not to the attempt. No signature was made. Work that writes looks first at what is
//!   there, as it has to after an interruption, too;
//! - because the token was lost once, after which it has forgotten all that was not written.

use std::time::Instant;

use super::question::{AnswerAtHand, GivenAnswer, Question};
use messages::error::Error;
use system::limits;

/// For whom a key is opened, and with what rights.
#[derive(Clone, Copy)]
pub(super) enum KeyAccess {
    /// For a TLS client, unless the key was closed.
    InTime,
    /// For a TLS client, unless the key was closed, to show the certificate that it has now.
    Showing,
    /// For whoever has the keyring.
    Own,
    /// For a client of the process, who may have digests signed.
    Client { signs: bool },
    /// For whoever has the keyring; no other process uses the library meanwhile.
    Exclusive,
}

impl KeyAccess {
    /// Whether somebody at the other end of a TLS connection waits.
    pub(super) fn is_in_time(self) -> bool {
        matches!(self, Self::InTime | Self::Showing)
    }

    /// When the library has to have answered an attempt that begins now; `None` if it has no limit.
    pub(super) fn deadline(self) -> Option<Instant> {
        self.is_in_time().then(|| Instant::now() + limits::REPLY)
    }

    /// Whether the certificate that the key has now is wanted.
    pub(super) fn shows_certificate(self) -> bool {
        matches!(self, Self::Showing | Self::Own | Self::Client { .. })
    }
}

/// One try of the worker to do what the requester wants.
pub(super) struct Attempt {
    pub(super) access: KeyAccess,
    /// Whether the requester holds the library's lock.
    pub(super) is_locked: bool,
    /// Whether no earlier attempt of the same request has got to the token.
    pub(super) is_first: bool,
    /// Whether the token was lost in an earlier attempt of the same request.
    pub(super) was_lost: bool,
    pub(super) pins: AnswerAtHand,
}

/// How an attempt has ended, and so what the requester does next.
pub(super) enum AttemptEnd<T> {
    /// What the caller gets.
    Done(Result<T, Error>),
    /// Nothing was done yet: begin anew under the library's lock, with the answer that isn't used yet.
    WantsLock(Option<GivenAnswer>),
    /// Begin anew with an answer to this.
    WantsAnswer(Question),
    /// The token was lost, and its session closed: begin anew with another session.
    TokenLost,
}
