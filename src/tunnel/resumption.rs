//! TLS sessions that are resumed. Each spares the token a signature, and perhaps its owner a touch.
//!
//! A TLS 1.3 ticket serves one connection, which then gets a new ticket. Several connections at once would each want a
//! signature of their own. So where signatures are slow (a touch, a card), a connection waits a while for the ticket of one
//! that is being made.

use std::collections::VecDeque;
use std::mem;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustls::NamedGroup;
use rustls::client::{ClientSessionStore, Tls12ClientSessionValue, Tls13ClientSessionValue};
use rustls::pki_types::ServerName;
use tokio::sync::Notify;
use tokio::time::timeout;

use super::limits::{HOLDING_UP, TICKET_DELAY};
use system::locked;

/// The most tickets that are kept. No more connections than this are made at once.
const TICKETS: usize = 64;

/// If a signature takes longer than this, a connection rather waits for the ticket of another one.
const SLOW: Duration = Duration::from_millis(50);

/// How many handshakes may wait for a fast signature at once. Each takes a thread, and the token makes one signature after
/// the other.
const AT_ONCE: usize = 4;

/// The sessions with one server.
#[derive(Debug, Default)]
pub(super) struct Sessions {
    state: Mutex<SessionState>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct SessionState {
    group: Option<NamedGroup>,
    tls12: Option<Tls12ClientSessionValue>,
    tickets: VecDeque<Tls13ClientSessionValue>,
    /// How many of the tickets are promised to permits that were given.
    promised: usize,
    /// How many promised tickets were taken, by permits that are still to be released.
    taken: usize,
    /// How many handshakes are being made. Each may bring a ticket, even one that has used a ticket up.
    under_way: usize,
    /// Whether the server was silent in the last handshake. It may never answer.
    is_stuck: bool,
    /// Whether the last signature was fast. Before the first one that isn't known: it may need a touch.
    is_fast: bool,
    /// Whether the server has asked for no certificate in the last full handshake.
    is_anonymous: bool,
}

/// The permission to make a handshake now.
pub(super) struct HandshakePermit {
    sessions: Arc<Sessions>,
    resumes: bool,
}

impl Sessions {
    /// Waits for the permission, as long as waiting may save a signature.
    pub(super) async fn permit(self: &Arc<Self>) -> HandshakePermit {
        loop {
            let changed = self.changed.notified();
            {
                let mut state = locked(&self.state);
                let resumes = state.tls12.is_some() || state.tickets.len() > state.promised;
                let limit = if state.is_fast { AT_ONCE } else { 1 };
                if resumes || state.under_way < limit || state.is_stuck {
                    state.promised += usize::from(resumes);
                    state.under_way += 1;
                    return HandshakePermit { sessions: Arc::clone(self), resumes };
                }
            }
            changed.await;
        }
    }

    /// Notes how long a signature took.
    pub(super) fn signed(&self, took: Duration) {
        let mut state = locked(&self.state);
        state.is_fast = took < SLOW;
        state.is_anonymous = false;
        drop(state);
        self.changed.notify_waiters();
    }

    /// Notes that the server has asked for no certificate. Its sessions are forgotten: they are nobody's, and would stay so
    /// even if the server asked later.
    pub(super) fn not_asked(&self) {
        let mut state = locked(&self.state);
        (state.tls12, state.is_anonymous) = (None, true);
        state.tickets.clear();
        // No signature can be saved.
        state.is_fast = true;
        drop(state);
        self.changed.notify_waiters();
    }
}

impl HandshakePermit {
    /// Does something for which the server has to answer. If it is silent for long, other handshakes need not wait any
    /// more.
    pub(super) async fn without_holding_up<T>(&self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        if let Ok(done) = timeout(HOLDING_UP, &mut work).await {
            return done;
        }
        self.stuck();
        work.await
    }

    /// The server is silent: other connections no longer wait for its ticket.
    pub(super) fn stuck(&self) {
        locked(&self.sessions.state).is_stuck = true;
        self.sessions.changed.notify_waiters();
    }

    /// The handshake is made. Other connections may go on once its ticket has come, or it is clear that none will.
    pub(super) fn made(mut self) {
        self.release_ticket();
        let mut state = locked(&self.sessions.state);
        state.is_stuck = false;
        let delay = if state.is_fast { Duration::ZERO } else { TICKET_DELAY };
        drop(state);
        tokio::spawn(async move {
            tokio::time::sleep(delay).await;
            drop(self);
        });
    }

    /// The promised ticket was used, or won't be.
    fn release_ticket(&mut self) {
        if mem::take(&mut self.resumes) {
            let mut state = locked(&self.sessions.state);
            if state.taken > 0 {
                state.taken -= 1;
            } else {
                state.promised = state.promised.saturating_sub(1);
            }
            drop(state);
            self.sessions.changed.notify_waiters();
        }
    }
}

impl Drop for HandshakePermit {
    fn drop(&mut self) {
        self.release_ticket();
        let mut state = locked(&self.sessions.state);
        state.under_way = state.under_way.saturating_sub(1);
        drop(state);
        self.sessions.changed.notify_waiters();
    }
}

impl ClientSessionStore for Sessions {
    fn set_kx_hint(&self, _: ServerName<'static>, group: NamedGroup) {
        locked(&self.state).group = Some(group);
    }

    fn kx_hint(&self, _: &ServerName<'_>) -> Option<NamedGroup> {
        locked(&self.state).group
    }

    fn set_tls12_session(&self, _: ServerName<'static>, session: Tls12ClientSessionValue) {
        let mut state = locked(&self.state);
        state.tls12 = Some(session).filter(|_| !state.is_anonymous);
        drop(state);
        self.changed.notify_waiters();
    }

    fn tls12_session(&self, _: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        locked(&self.state).tls12.clone()
    }

    fn remove_tls12_session(&self, _: &ServerName<'static>) {
        locked(&self.state).tls12 = None;
    }

    fn insert_tls13_ticket(&self, _: ServerName<'static>, ticket: Tls13ClientSessionValue) {
        let mut state = locked(&self.state);
        if state.is_anonymous {
            return;
        }
        if state.tickets.len() == TICKETS {
            state.tickets.pop_front();
        }
        state.tickets.push_back(ticket);
        drop(state);
        self.changed.notify_waiters();
    }

    fn take_tls13_ticket(&self, _: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        let mut state = locked(&self.state);
        // The newest: it is valid for the longest time.
        let ticket = state.tickets.pop_back()?;
        if state.promised > 0 {
            state.promised -= 1;
            state.taken += 1;
        }
        Some(ticket)
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::sleep;

    use super::*;

    fn in_runtime(test: impl Future<Output = ()>) {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_time().start_paused(true).build().unwrap().block_on(test);
    }

    /// It brings the next ticket, which spares the others a signature.
    #[test]
    fn a_resumed_handshake_is_waited_for_like_one_that_was_signed() {
        in_runtime(async {
            for resumes in [false, true] {
                let sessions = Arc::new(Sessions::default());
                locked(&sessions.state).under_way = 1;
                locked(&sessions.state).promised = usize::from(resumes);
                let first = HandshakePermit { sessions: Arc::clone(&sessions), resumes };
                first.made();
                assert_eq!(locked(&sessions.state).promised, 0);
                let next = timeout(TICKET_DELAY / 2, sessions.permit()).await;
                assert!(next.is_err(), "resumes: {resumes}");
                sleep(TICKET_DELAY).await;
                let next = timeout(TICKET_DELAY / 2, sessions.permit()).await;
                assert!(next.is_ok(), "resumes: {resumes}");
            }
        });
    }

    #[test]
    fn a_fast_token_is_not_spared() {
        in_runtime(async {
            let sessions = Arc::new(Sessions::default());
            let mut permits = vec![sessions.permit().await];
            sessions.signed(Duration::from_millis(1));
            let permit = || timeout(TICKET_DELAY / 2, sessions.permit());
            while permits.len() < AT_ONCE {
                permits.push(permit().await.unwrap());
            }
            assert!(permit().await.is_err());
            permits.pop().unwrap().made();
            assert!(permit().await.is_ok());
        });
    }
}
