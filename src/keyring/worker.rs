//! The worker: what the library's own thread has and does. It is the only one that calls the library, and it waits for
//! nothing else.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::attempt::{Attempt, AttemptEnd, KeyAccess};
use super::open_library::{KeyInSession, NewClient, OpenLibrary};
use super::question::AnswerAtHand;
use super::unknown_key;
use config::pin::PinProvider;
use config::{Config, TokenName};
use files::lock::BUSY;
use messages::error::{Error, Exit};
use token::kind;
use token::{SessionAccess, Token};

/// Work that is done with an open key and its token.
pub(super) type Work<T> =
    dyn FnMut(&mut Token, &KeyInSession, &mut dyn PinProvider) -> Result<T, Error> + Send;

/// A library, with the keys that are configured for it, open or not.
pub(super) struct Worker {
    keys: Vec<ConfiguredKey>,
    opened: OpenLibrary,
    has_finished: bool,
}

/// A key that the keyring was given, and how it has been used.
struct ConfiguredKey {
    /// The key's configuration, without the PIN source, which is at its desk.
    config: Config,
    /// The token on which the key was opened, until the key is closed. The token may be gone by now.
    token: Option<TokenName>,
    is_closed: bool,
    admitted: AdmittedClients,
}

/// Which clients may use a key without logging in themselves.
#[derive(Clone, Copy)]
enum AdmittedClients {
    Nobody,
    /// Clients that have no digests signed.
    TlsClients,
    All,
}

impl AdmittedClients {
    /// Clients like one that has logged in, which `signs` digests or doesn't.
    fn like(signs: bool) -> Self {
        if signs { Self::All } else { Self::TlsClients }
    }

    fn include(self, signs: bool) -> bool {
        match self {
            Self::Nobody => false,
            Self::TlsClients => !signs,
            Self::All => true,
        }
    }
}

/// What has to be done before a key can be used.
#[derive(Clone, Copy)]
enum Preparation {
    /// The key is open.
    Nothing,
    /// The key has to be opened: for a client that logs in itself; or else with the keyring's own login, if the token
    /// requires one.
    Open(Option<NewClient>),
}

impl Worker {
    /// A worker for a library that isn't loaded yet. `has_entered_pin` is shared with the other libraries of the process.
    pub(super) fn new(access: SessionAccess, has_entered_pin: Arc<AtomicBool>) -> Self {
        let opened = OpenLibrary::new(access, has_entered_pin);
        Self { keys: Vec::new(), opened, has_finished: false }
    }

    /// Adds a key. Its index is the number of keys before it.
    pub(super) fn add(&mut self, config: Config) {
        self.keys.push(ConfiguredKey {
            config,
            token: None,
            is_closed: false,
            admitted: AdmittedClients::Nobody,
        });
    }

    /// Whether the library is finalised, and nothing more is to be done.
    pub(super) fn has_finished(&self) -> bool {
        self.has_finished
    }

    /// Finalises the library. The process ends with `code`, even if the library hangs or crashes.
    pub(super) fn finish(&mut self, code: u8) {
        self.has_finished = true;
        self.keys.clear();
        self.opened.finish(code);
    }

    /// Closes the key, and the token with its session and login if no other key needs them.
    pub(super) fn close(&mut self, number: usize) {
        if let Some(key) = self.keys.get_mut(number) {
            key.token = None;
            key.is_closed = true;
            key.admitted = AdmittedClients::Nobody;
        }
        self.opened.forget_key(number);
        self.close_unused();
    }

    /// Has the next client of the key log in.
    pub(super) fn dismiss_clients(&mut self, number: usize) {
        if let Some(key) = self.keys.get_mut(number) {
            key.admitted = AdmittedClients::Nobody;
        }
    }

    /// Closes the tokens that no key needs: their sessions and logins end, and their PINs are forgotten.
    fn close_unused(&mut self) {
        let keys = &self.keys;
        self.opened.close_unless(|token| {
            let mut held = keys.iter().filter_map(|key| key.token.as_ref());
            held.any(|held| held.is_same_token(token))
        });
    }

    /// Does the work with the key, after opening it if it isn't open; or says what is needed first.
    pub(super) fn attempt<T>(
        &mut self,
        number: usize,
        attempt: Attempt,
        work: &mut Work<T>,
    ) -> AttemptEnd<T> {
        let Some(key) = self.keys.get(number) else { return AttemptEnd::Done(Err(unknown_key())) };
        if key.is_closed && attempt.access.is_in_time() {
            return AttemptEnd::Done(Err(Error::internal("the key was closed")));
        }
        let selector = key.config.token.clone();
        let preparation = self.preparation(number, key.admitted, &attempt);
        let needs_lock = match preparation {
            // Only one process at a time may look at a token and then write to it.
            Preparation::Nothing => matches!(attempt.access, KeyAccess::Exclusive),
            Preparation::Open(_) => true,
        };
        if needs_lock && !attempt.is_locked {
            return AttemptEnd::WantsLock(attempt.pins.into_unused());
        }
        let has_served = self.opened.has_served(&selector);
        let Attempt { mut pins, was_lost, .. } = attempt;
        let outcome = self.prepare_and_work(number, preparation, &mut pins, work);
        let Err(error) = &outcome else { return AttemptEnd::Done(outcome) };
        if let Some(question) = pins.into_unanswered() {
            return AttemptEnd::WantsAnswer(question);
        }
        if has_served && !was_lost && may_be_lost(error) {
            self.opened.lose(&selector);
            return AttemptEnd::TokenLost;
        }
        self.close_unused();
        AttemptEnd::Done(outcome)
    }

    /// What has to be done before the attempt can use the key. `admitted` are the clients that need no login of their own.
    fn preparation(
        &self,
        number: usize,
        admitted: AdmittedClients,
        attempt: &Attempt,
    ) -> Preparation {
        if let KeyAccess::Client { signs } = attempt.access
            && !admitted.include(signs)
        {
            return Preparation::Open(Some(NewClient { signs, is_first: attempt.is_first }));
        }
        let is_outdated = attempt.access.shows_certificate() && self.opened.may_be_renewed(number);
        if self.opened.is_open(number) && !is_outdated {
            Preparation::Nothing
        } else {
            Preparation::Open(None)
        }
    }

    /// Opens the key if that is needed, and does the work with it.
    fn prepare_and_work<T>(
        &mut self,
        number: usize,
        preparation: Preparation,
        pins: &mut AnswerAtHand,
        work: &mut Work<T>,
    ) -> Result<T, Error> {
        let key = self.keys.get_mut(number).ok_or_else(unknown_key)?;
        if let Preparation::Open(new_client) = preparation {
            self.opened.open(number, &key.config, pins, new_client)?;
        }
        let (token, opened) = self
            .opened
            .key(number)
            .ok_or_else(|| Error::internal("a key that was just opened is not open"))?;
        key.token = Some(token.state().name.clone());
        key.is_closed = false;
        if let Preparation::Open(Some(client)) = preparation {
            key.admitted = AdmittedClients::like(client.signs);
        }
        work(token, opened, pins)
    }
}

/// Whether it could help to open the token again after this error. It doesn't help against a refused PIN.
fn may_be_lost(error: &Error) -> bool {
    // If another process has the token, nothing is known about the token.
    let is_of_token = error.exits_with(Exit::Token) && !error.is(&BUSY);
    is_of_token || error.is(&kind::CALL_FAILED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_opened_again_after_a_failed_call_and_not_after_a_refusal() {
        let new = |exit| Error::new(exit, "failed");
        for (error, is_lost) in [
            (new(Exit::Token), true),
            (new(Exit::Token).kind(BUSY), false),
            (new(Exit::Login).kind(kind::CALL_FAILED), true),
            (new(Exit::Login), false),
        ] {
            assert_eq!(may_be_lost(&error), is_lost, "{error}");
        }
    }
}
