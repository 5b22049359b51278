//! What is open in a library: tokens with one session and one login each, and their keys.

use std::collections::HashMap;
use std::ffi::CString;
use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::ended;
use config::pin::PinProvider;
use config::{Config, TokenName, TokenSelector};
use crypto::certificate::{Certificate, Validity};
use crypto::scheme::Scheme;
use crypto::verify::{VerifiedSignature, verify};
use messages::error::{Error, Exit};
use pin_entry::show_after;
use system::clock::unix_time;
use system::locked;
use token::{AcceptedPin, Module, PrivateKey, SessionAccess, Token, invalid_signature};

/// How often to look for a newer certificate once the renewal is due, in seconds: as often as client-go reads its files.
const READ_AGAIN: i64 = 300;
/// How long before its end a certificate gives way to a newer one, in seconds: the server's clock may be ahead.
const LAST_MINUTE: i64 = 60;
/// How often to look then.
const READ_AGAIN_AT_LAST: i64 = 5;

/// What a TLS client has to know of a key that is open.
#[derive(Debug, Deserialize, Serialize)]
pub struct OpenKey {
    /// The certificate and its issuers, in DER.
    pub chain: Vec<Vec<u8>>,
    pub subject: String,
    /// The token on which it was found.
    pub token: TokenName,
    /// The schemes that the key and its token can make, those that TLS prefers first.
    pub schemes: Vec<Scheme>,
    /// The certificate's last moment, in seconds since 1970.
    ends: i64,
    /// When to look whether there is a newer certificate.
    read_again: i64,
    /// Why servers refuse it or soon will, until it was reported.
    warnings: Mutex<Vec<String>>,
}

impl OpenKey {
    /// Whether it can make a signature of TLS 1.3; an RSA key needs RSA-PSS for that.
    pub fn serves_tls_1_3(&self) -> bool {
        self.schemes.iter().any(Scheme::is_of_tls_1_3)
    }

    /// Whether there may be a newer certificate by now.
    pub fn may_be_renewed(&self) -> bool {
        unix_time() >= self.read_again
    }

    pub fn has_expired(&self) -> bool {
        unix_time() > self.ends
    }

    /// How long until a newer certificate should have taken its place everywhere.
    pub fn time_left(&self) -> Duration {
        let left = self.ends.saturating_sub(LAST_MINUTE).saturating_sub(unix_time());
        Duration::from_secs(u64::try_from(left).unwrap_or_default())
    }

    /// What another process says to be a signature of it, if the certificate's public key accepts that.
    pub fn verified(
        &self,
        scheme: Scheme,
        digest: &[u8],
        signature: Vec<u8>,
    ) -> Result<VerifiedSignature, Error> {
        let certificate = self.chain.first().map(Vec::as_slice).unwrap_or_default();
        let certificate = Certificate::from_der(certificate, "the token process")?;
        let verified = verify(certificate.public_key(), &scheme, digest, signature);
        verified.ok_or_else(|| invalid_signature(&self.subject, &scheme))
    }

    /// Why servers refuse it or will, now or soon; once.
    pub fn take_warnings(&self) -> Vec<String> {
        mem::take(&mut *locked(&self.warnings))
    }
}

/// When to look for a certificate that has replaced this one: now and then once its renewal is due, and before its end.
fn read_again(validity: &Validity, now: i64) -> i64 {
    let regular = validity.renewal_due().max(now.saturating_add(READ_AGAIN));
    let at_last = validity.not_after.saturating_sub(LAST_MINUTE);
    regular.min(at_last).max(now.saturating_add(READ_AGAIN_AT_LAST))
}

/// What should not stay as it is, of a certificate and what its key can make.
fn warnings(certificate: &Certificate, schemes: &[Scheme]) -> Vec<String> {
    let subject = &certificate.subject;
    let mut warnings = certificate.warnings(unix_time());
    if !schemes.iter().any(Scheme::is_of_tls_1_3) {
        warnings.push(format!(
            "the key of {subject} can serve TLS 1.2 only, which not every server speaks: an RSA key \
             needs RSA-PSS for TLS 1.3, and its token has none"
        ));
    }
    warnings
}

/// A client that has to know the PIN.
#[derive(Clone, Copy)]
pub(super) struct NewClient {
    /// Whether it comes for the first time with its request.
    pub(super) is_first: bool,
}

#[derive(Default)]
pub(super) struct OpenLibrary {
    /// `None` before a key is opened.
    pub(super) module: Option<Arc<Module>>,
    /// With which it was initialised.
    pub(super) init_args: Option<CString>,
    pub(super) tokens: Vec<OpenToken>,
    /// For tokens that are opened again.
    pub(super) accepted: Vec<AcceptedPin>,
    /// Whether somebody has entered a PIN into this process, for whichever library.
    pub(super) has_entered_pin: Arc<AtomicBool>,
    pub(super) access: SessionAccess,
}

/// One session and one login for all keys of a token.
pub(super) struct OpenToken {
    pub(super) token: Token,
    /// By their indices among the library's.
    pub(super) keys: HashMap<usize, OpenedKey>,
}

pub(super) struct OpenedKey {
    pub(super) key: PrivateKey,
    pub(super) shown: Arc<OpenKey>,
}

impl OpenLibrary {
    pub(super) fn is_open(&self, number: usize) -> bool {
        self.tokens.iter().any(|open| open.keys.contains_key(&number))
    }

    /// Whether the key is open with a certificate for which there may be a newer one.
    pub(super) fn may_be_renewed(&self, number: usize) -> bool {
        let mut opened = self.tokens.iter().filter_map(|open| open.keys.get(&number));
        opened.any(|key| key.shown.may_be_renewed())
    }

    /// The open key, with its token.
    pub(super) fn key(&mut self, number: usize) -> Option<(&mut Token, &OpenedKey)> {
        self.tokens.iter_mut().find_map(|open| Some((&mut open.token, open.keys.get(&number)?)))
    }

    /// Whether the token's session is one that has served a key, and not merely one from before a question.
    pub(super) fn has_served(&self, selector: &TokenSelector) -> bool {
        self.tokens.iter().any(|open| open.token.state().fits(selector) && open.has_served())
    }

    /// The session to the token is of no use any more. The PIN that it has accepted is kept. Some libraries find a token that
    /// was put back only when they are initialised again, and OpenSC's next call waits for ever else: so the library is
    /// finalised, unless a PIN that somebody entered is here.
    pub(super) fn lose(&mut self, selector: &TokenSelector) {
        if !self.has_entered_pin.load(Ordering::Relaxed)
            && let Some(module) = self.module.take()
        {
            let lost = self.tokens.drain(..).map(|open| open.token);
            self.accepted.extend(lost.filter_map(Token::into_accepted_pin));
            return module.close();
        }
        let lost = self.tokens.extract_if(.., |open| open.token.state().fits(selector));
        self.accepted.extend(lost.filter_map(|open| open.token.close()));
    }

    /// Opens the key. A `new_client` logs in itself, and says whether it comes for the first time: a login is the
    /// process's, whichever key it was made for.
    pub(super) fn open(
        &mut self,
        number: usize,
        config: &Config,
        pins: &mut dyn PinProvider,
        new_client: Option<NewClient>,
    ) -> Result<(), Error> {
        let module = self.module(config)?;
        let found = module.find_token(&config.token)?;
        self.close_gone();
        let name = found.name.to_string();
        let known = self.tokens.iter().position(|open| open.token.name() == name);
        if known.is_none() {
            let mut token = Token::with_session(&module, found, self.access)?;
            if new_client.is_none() {
                token.recall(&mut self.accepted);
            }
            self.tokens.push(OpenToken { token, keys: HashMap::new() });
        }
        let index = known.unwrap_or(self.tokens.len() - 1);
        let open = self.tokens.get_mut(index).ok_or_else(ended)?;
        if open.has_served() {
            // Before a PIN is sent to it.
            open.token.check_session()?;
        }
        if new_client.is_some_and(|client| client.is_first) {
            open.token.forget_tries();
        }
        let logins = open.token.logins();
        let opened = open.key(config, pins, new_client.is_some());
        if open.token.keeps_entered_pin() {
            self.has_entered_pin.store(true, Ordering::Relaxed);
        }
        if open.token.logins() != logins {
            // They are opened again when they are used.
            open.keys.clear();
        }
        open.keys.insert(number, opened?);
        if new_client.is_some() {
            let name = &open.token.state().name;
            self.accepted.retain(|pin| !pin.token().is_same_token(name));
        }
        Ok(())
    }

    /// Closes the sessions that have served no key and whose tokens are gone.
    fn close_gone(&mut self) {
        let is_gone =
            |open: &mut OpenToken| !open.has_served() && open.token.check_session().is_err();
        for gone in self.tokens.extract_if(.., is_gone) {
            gone.token.close();
        }
    }

    /// The library, initialised unless it is. Its lock is held.
    fn module(&mut self, config: &Config) -> Result<Arc<Module>, Error> {
        let Some(module) = &self.module else {
            let module = Module::open(&config.library, config.init_args.as_deref(), show_after)?;
            self.init_args = config.init_args.clone();
            return Ok(Arc::clone(self.module.insert(Arc::new(module))));
        };
        if config.init_args == self.init_args {
            return Ok(Arc::clone(module));
        }
        let path = module.path.display();
        let text = format!(
            "PKCS#11 library {path} runs with other initArgs already, those of another context"
        );
        Err(Error::new(Exit::Library, text).help(
            "one run can give a library one initArgs (--init-args): start another run with --context for the \
             context that needs these",
        ))
    }
}

impl OpenToken {
    fn has_served(&self) -> bool {
        self.token.is_logged_in() || !self.keys.is_empty()
    }

    /// With `proves`, who wants the key has to know the PIN, also where a login is in force.
    fn key(
        &mut self,
        config: &Config,
        pins: &mut dyn PinProvider,
        proves: bool,
    ) -> Result<OpenedKey, Error> {
        let token = &mut self.token;
        let was_logged_in = token.is_logged_in();
        let identity = token.identity(config, Some(pins))?;
        let certificate = &identity.certificate;
        let now = unix_time();
        certificate.check_end(now)?;
        let schemes = token.tls_schemes(certificate.public_key())?;
        if proves && was_logged_in {
            token.prove(&identity.key, pins)?;
        }
        let key = token.key(identity.key.clone(), pins)?;
        let schemes = token.allowed_schemes(&key, &schemes)?;
        let shown = Arc::new(OpenKey {
            chain: identity.chain(token)?,
            subject: certificate.subject.clone(),
            token: token.state().name.clone(),
            ends: certificate.validity.not_after,
            read_again: read_again(&certificate.validity, now),
            warnings: Mutex::new(warnings(certificate, &schemes)),
            schemes,
        });
        Ok(OpenedKey { key, shown })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_newer_certificate_is_looked_for_when_there_may_be_one() {
        const DAY: i64 = 24 * 3600;
        let year = Validity { not_before: 0, not_after: 365 * DAY };
        for (now, expected) in [
            // Nothing until the renewal is due, in the last 30 days.
            (0, 335 * DAY + 1),
            (334 * DAY, 335 * DAY + 1),
            (350 * DAY, 350 * DAY + READ_AGAIN),
            (365 * DAY - 100, 365 * DAY - LAST_MINUTE),
            (365 * DAY - 10, 365 * DAY - 5),
        ] {
            assert_eq!(read_again(&year, now), expected, "{now}");
        }
    }
}
