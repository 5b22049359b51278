//! From a configuration to a verified signature, in stages. Each takes what the one before it made:
//!
//! | stage | function | result |
//! |---|---|---|
//! | library | [`Library::open`] | the module, initialised, and the lock on it |
//! | token | [`Library::token`] | a session ([`Token`]) |
//! | identity | [`Pipeline::identity`] | the certificate, and how to find its key ([`Identity`]) |
//! | or | [`Pipeline::bare_key`], [`Pipeline::key_of`] | a key without a certificate ([`KeyReference`]) |
//! | scheme | [`Pipeline::scheme`], [`Pipeline::tls_schemes`] | what key and token can compute |
//! | key | [`Pipeline::key`] | the private key, after a login if one is needed ([`SigningKey`]) |
//! | signature | [`Pipeline::sign`] | a [`VerifiedSignature`] |
//!
//! A request of the external signer protocol, a run, `check` and `list` drive these same stages.
//! What can be refused without a PIN is refused before the key stage, which asks for one. An
//! [`StageObserver`] receives what each stage has found.
//!
//! A command that signs something else, such as a CSR or a JWT, drives all stages and encodes the
//! signature itself; its key needs no certificate. One that decrypts drives library, token, identity and key, and adds two stages
//! of its own in place of scheme and signature.
//!
//! Nothing here knows environment variables, kubeconfigs or terminals; a PIN comes from a
//! [`PinProvider`].

#![forbid(unsafe_code)]

mod identity;
mod library;
mod reference;

use std::time::Instant;

pub use identity::{Identity, read_certificates};
pub use library::{Library, LibraryLock};
pub use reference::KeyReference;

use crate::certificate::PublicKey;
use crate::config::Config;
use crate::error::Error;
use crate::pin::PinProvider;
use crate::protocol::SignerOptions;
use crate::scheme::{Scheme, ecdsa, requested};
use crate::token::{LockedSecret, PrivateKey, SigningError, Token};
use crate::verify::{VerifiedSignature, verify};

/// Receives what the stages find, each when it has succeeded. `()` is the observer that does nothing.
pub trait StageObserver {
    /// Another process, with this number if it is known, has had the library for a while.
    fn waiting(&mut self, _holder: Option<u32>) {}
    /// The library can't be locked, for this reason; it is used all the same.
    fn unlocked(&mut self, _reason: &str) {}
    fn library(&mut self, _library: &Library) {}
    fn token(&mut self, _token: &Token<'_>) {}
    /// The token has accepted a PIN, in the identity stage or the key stage.
    fn logged_in(&mut self, _token: &Token<'_>) {}
    fn identity(&mut self, _identity: &Identity) {}
    /// The TLS schemes that the token has mechanisms for, and those it lacks.
    fn tls_schemes(&mut self, _offered: &[Scheme], _missing: &[Scheme]) {}
    fn key(&mut self, _token: &Token<'_>, _key: &SigningKey) {}
    fn signature(&mut self, _scheme: Scheme) {}
}

impl StageObserver for () {}

/// A private key that can sign while its token is open, and what its signatures are verified with.
pub struct SigningKey {
    pub reference: KeyReference,
    private_key: PrivateKey,
}

impl SigningKey {
    /// CKA_ALWAYS_AUTHENTICATE, if the token says so.
    pub fn wants_pin_each_time(&self) -> bool {
        self.private_key.traits.always_authenticate
    }
}

/// The stages after the token, for one configured key.
pub struct Pipeline<'a> {
    pub config: &'a Config,
    pub observer: &'a mut dyn StageObserver,
}

impl Pipeline<'_> {
    /// Finds the certificate, on the token or in `certificateFile`. Without `pins` it looks only
    /// at what the token shows without a login.
    ///
    /// # Errors
    /// [`ObjectError`](crate::token::ObjectError) if there isn't exactly one that fits, or if the
    /// token shows another public key; the errors of a login.
    pub fn identity(
        &mut self,
        token: &mut Token<'_>,
        pins: Option<&mut dyn PinProvider>,
    ) -> Result<Identity, Error> {
        let config = self.config;
        let file = config.certificate_file.as_deref();
        let identity =
            self.with_login(token, |token| Identity::find(token, &config.object, file, pins))?;
        self.observer.identity(&identity);
        Ok(identity)
    }

    /// Finds the configured key by its public key on the token; no certificate is looked at. Without
    /// `pins` it looks only at what the token shows without a login.
    ///
    /// # Errors
    /// [`ObjectError`](crate::token::ObjectError) if there isn't exactly one that fits, or if the
    /// token shows no public key of it; the errors of a login.
    pub fn bare_key(
        &mut self,
        token: &mut Token<'_>,
        pins: Option<&mut dyn PinProvider>,
    ) -> Result<KeyReference, Error> {
        let selector = &self.config.object;
        let found = self.with_login(token, |token| token.bare_key(selector, pins))?;
        Ok(KeyReference::of_key(found))
    }

    /// Finds the key that has this public key: that of a certificate or of a CSR. `words` says whose
    /// it is.
    ///
    /// # Errors
    /// [`ObjectError::NoKey`](crate::token::ObjectError::NoKey) if the token shows none; the errors of
    /// a login.
    pub fn key_of(
        &mut self,
        token: &mut Token<'_>,
        public_key: &PublicKey,
        words: &str,
        pins: Option<&mut dyn PinProvider>,
    ) -> Result<KeyReference, Error> {
        let found = self.with_login(token, |token| token.key_of(public_key, words, pins))?;
        Ok(KeyReference::of_key(found))
    }

    /// The scheme that a client's options mean for this key.
    ///
    /// # Errors
    /// If the options contradict the key, or the token lacks the mechanism.
    pub fn scheme(
        &mut self,
        token: &Token<'_>,
        public_key: &PublicKey,
        options: &SignerOptions,
    ) -> Result<Scheme, Error> {
        let scheme = requested(options, public_key)?;
        token.check_mechanism(&scheme)?;
        Ok(scheme)
    }

    /// The schemes of TLS that key and token can make, those that TLS prefers first.
    ///
    /// # Errors
    /// If the token lacks the mechanisms of all of them.
    pub fn tls_schemes(
        &mut self,
        token: &Token<'_>,
        public_key: &PublicKey,
    ) -> Result<Vec<Scheme>, Error> {
        let (mut offered, mut missing, mut refusal) = (Vec::new(), Vec::new(), None);
        for scheme in Scheme::of_tls(public_key) {
            match token.check_mechanism(&scheme) {
                Ok(()) => offered.push(scheme),
                Err(error) => {
                    missing.push(scheme);
                    refusal.get_or_insert(error);
                }
            }
        }
        match refusal {
            Some(error) if offered.is_empty() => Err(error),
            _ => {
                self.observer.tls_schemes(&offered, &missing);
                Ok(offered)
            }
        }
    }

    /// Finds the private key, after a login if the token requires one for it.
    ///
    /// # Errors
    /// The errors of a login; [`ObjectError`](crate::token::ObjectError) if there isn't exactly one
    /// key that fits, or if it can't be the public key's.
    pub fn key(
        &mut self,
        token: &mut Token<'_>,
        reference: KeyReference,
        pins: &mut dyn PinProvider,
    ) -> Result<SigningKey, Error> {
        let private_key = self.with_login(token, |token| reference.private_key(token, pins))?;
        let key = SigningKey { reference, private_key };
        self.observer.key(token, &key);
        Ok(key)
    }

    /// Signs and verifies. For Ed25519 the digest is the whole message.
    ///
    /// # Errors
    /// [`SigningError`] if the token refuses or the public key doesn't accept the
    /// signature; the errors of a login for a key that wants the PIN each time.
    pub fn sign(
        &mut self,
        token: &mut Token<'_>,
        key: &SigningKey,
        scheme: Scheme,
        digest: &[u8],
        pins: &mut dyn PinProvider,
    ) -> Result<VerifiedSignature, Error> {
        let reference = &key.reference;
        let public_key = reference.public_key();
        let started = Instant::now();
        let raw = token.sign(&key.private_key, &scheme, digest, public_key, pins)?;
        log::info!("signature: {scheme}, {} ms", started.elapsed().as_millis());
        let signature = match scheme {
            Scheme::Ecdsa { curve } => {
                let length = raw.len();
                ecdsa::to_der(raw, curve)
                    .ok_or_else(|| SigningError::Malformed { scheme: scheme.to_string(), length })?
            }
            Scheme::Ed25519 | Scheme::RsaPkcs1 { .. } | Scheme::RsaPss { .. } => raw,
        };
        let Some(signature) = verify(public_key, &scheme, digest, signature) else {
            if token.disowns(&key.private_key, public_key) {
                return Err(reference.mismatch());
            }
            return Err(SigningError::Invalid {
                key: reference.describe(),
                scheme: scheme.to_string(),
            }
            .into());
        };
        self.observer.signature(scheme);
        Ok(signature)
    }

    /// Opens what was sealed to the key: the message, or ECDH's shared secret.
    ///
    /// # Errors
    /// [`OpeningError`](crate::token::OpeningError) if the key isn't for it, or the token refuses; the errors of a
    /// login for a key that wants the PIN each time.
    pub fn open(
        &mut self,
        token: &mut Token<'_>,
        key: &SigningKey,
        locked: &LockedSecret<'_>,
        pins: &mut dyn PinProvider,
    ) -> Result<Vec<u8>, Error> {
        let public_key = key.reference.public_key();
        token.open(&key.private_key, locked, public_key, pins)
    }

    /// Tells the observer of a login that the step has made, if it made one.
    fn with_login<'m, T>(
        &mut self,
        token: &mut Token<'m>,
        step: impl FnOnce(&mut Token<'m>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let was_logged_in = token.is_logged_in();
        let outcome = step(token);
        if token.is_logged_in() && !was_logged_in {
            self.observer.logged_in(token);
        }
        outcome
    }
}
