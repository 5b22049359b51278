//! TLS sessions to be resumed, which spare the token a signature and its owner a touch.
//!
//! A TLS 1.3 ticket serves one connection, which then gets a new one. Several connections at once
//! would each want a signature of their own; where signatures are slow (a touch, a card), a
//! connection waits a while for the ticket of one that is being made.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustls::NamedGroup;
use rustls::client::{ClientSessionStore, Tls12ClientSessionValue, Tls13ClientSessionValue};
use rustls::pki_types::ServerName;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

/// More connections than this are not made at once.
const TICKETS: usize = 64;

/// A signature that takes longer is worth waiting for the ticket of another connection.
const SLOW: Duration = Duration::from_millis(50);

/// How long a handshake may take from one step to the next, apart from its signature, before others
/// no longer wait for its ticket: its server may never answer.
const STEP: Duration = Duration::from_secs(1);

/// How long after its handshake a connection may still bring a ticket.
const TICKET_DELAY: Duration = Duration::from_millis(200);

/// The sessions with one server.
#[derive(Default)]
pub(super) struct Sessions {
    state: Mutex<SessionState>,
    changed: Notify,
}

#[derive(Default)]
struct SessionState {
    group: Option<NamedGroup>,
    tls12: Option<Tls12ClientSessionValue>,
    tickets: VecDeque<Tls13ClientSessionValue>,
    /// Tickets for which a permit was given.
    promised: usize,
    /// Handshakes under way that need a signature and may bring a ticket.
    under_way: usize,
    /// When one of them last made progress.
    progress: Option<Instant>,
    /// Signatures that are being made.
    signing: usize,
    /// How long the last signature took.
    signature: Option<Duration>,
}

/// The right to make a handshake now.
pub(super) struct HandshakePermit {
    sessions: Arc<Sessions>,
    resumes: bool,
}

impl Sessions {
    /// Waits as long as that may save a signature.
    pub(super) async fn permit(self: &Arc<Self>) -> HandshakePermit {
        loop {
            let changed = self.changed.notified();
            let deadline = {
                let mut state = self.state();
                let now = Instant::now();
                let resumes = state.tls12.is_some() || state.tickets.len() > state.promised;
                let is_fast = state.signature.is_some_and(|took| took < SLOW);
                let deadline = state.progress.map_or(now, |progress| progress + STEP);
                let is_stuck = state.signing == 0 && deadline <= now;
                if resumes || state.under_way == 0 || is_fast || is_stuck {
                    if resumes {
                        state.promised += 1;
                    } else {
                        state.under_way += 1;
                        state.progress = Some(now);
                    }
                    return HandshakePermit {
                        sessions: Arc::clone(self),
                        resumes,
                    };
                }
                // A token has its own time limits.
                Some(deadline).filter(|_| state.signing == 0)
            };
            match deadline {
                Some(deadline) => drop(timeout_at(deadline, changed).await),
                None => changed.await,
            }
        }
    }

    /// A signature is being made.
    pub(super) fn signing(&self) -> Signing<'_> {
        self.state().signing += 1;
        Signing(self)
    }

    fn state(&self) -> MutexGuard<'_, SessionState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A signature that is being made.
pub(super) struct Signing<'a>(&'a Sessions);

impl Signing<'_> {
    /// Notes how long the signature took.
    pub(super) fn took(&self, time: Duration) {
        self.0.state().signature = Some(time);
    }
}

impl Drop for Signing<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.signing = state.signing.saturating_sub(1);
        state.progress = Some(Instant::now());
        drop(state);
        self.0.changed.notify_waiters();
    }
}

impl HandshakePermit {
    /// The handshake has made progress.
    pub(super) fn progress(&self) {
        self.sessions.state().progress = Some(Instant::now());
    }

    /// The handshake is made; others may go on when its ticket has come, or won't.
    pub(super) fn made(self) {
        if !self.resumes {
            tokio::spawn(async move {
                tokio::time::sleep(TICKET_DELAY).await;
                drop(self);
            });
        }
    }
}

impl Drop for HandshakePermit {
    fn drop(&mut self) {
        let mut state = self.sessions.state();
        let count = if self.resumes {
            &mut state.promised
        } else {
            &mut state.under_way
        };
        *count = count.saturating_sub(1);
        drop(state);
        self.sessions.changed.notify_waiters();
    }
}

impl fmt::Debug for Sessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sessions").finish_non_exhaustive()
    }
}

impl ClientSessionStore for Sessions {
    fn set_kx_hint(&self, _: ServerName<'static>, group: NamedGroup) {
        self.state().group = Some(group);
    }

    fn kx_hint(&self, _: &ServerName<'_>) -> Option<NamedGroup> {
        self.state().group
    }

    fn set_tls12_session(&self, _: ServerName<'static>, session: Tls12ClientSessionValue) {
        self.state().tls12 = Some(session);
        self.changed.notify_waiters();
    }

    fn tls12_session(&self, _: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        self.state().tls12.clone()
    }

    fn remove_tls12_session(&self, _: &ServerName<'static>) {
        self.state().tls12 = None;
    }

    fn insert_tls13_ticket(&self, _: ServerName<'static>, ticket: Tls13ClientSessionValue) {
        let mut state = self.state();
        if state.tickets.len() == TICKETS {
            state.tickets.pop_front();
        }
        state.tickets.push_back(ticket);
        drop(state);
        self.changed.notify_waiters();
    }

    fn take_tls13_ticket(&self, _: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        // The newest: it is valid for the longest time.
        self.state().tickets.pop_back()
    }
}
