//! A key of the keyring as rustls sees a client's key.

use std::cell::RefCell;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustls::client::ResolvesClientCert;
use rustls::pki_types::CertificateDer;
use rustls::sign::{CertifiedKey, Signer, SigningKey};
use rustls::{OtherError, SignatureAlgorithm, SignatureScheme};
use sha2::{Digest as _, Sha256, Sha384, Sha512};

use super::resumption::Sessions;
use crate::certificate::Curve;
use crate::error::Error;
use crate::hash::Hash;
use crate::keyring::{KeyNumber, Keyring, OpenKey};
use crate::scheme::Scheme;
use crate::verify::VerifiedSignature;

thread_local! {
    /// Of the handshake that this thread makes a step of. rustls resumes sessions only with the same
    /// resolver, so there can't be one for each handshake.
    static RECORD: RefCell<Option<Record>> = const { RefCell::new(None) };
}

/// What became of the key in one handshake.
#[derive(Clone, Default)]
pub(super) struct Record {
    /// The server asked for a client certificate.
    pub(super) is_asked: bool,
    /// It takes no signature that this key can make.
    pub(super) is_out_of_schemes: bool,
    /// How long the signature took, if one was made.
    pub(super) signature: Option<Duration>,
}

impl Record {
    /// Makes a step of the handshake, and notes what it did with the key.
    pub(super) fn of_step<T>(&mut self, step: impl FnOnce() -> T) -> T {
        RECORD.set(Some(self.clone()));
        let outcome = step();
        if let Some(record) = RECORD.take() {
            *self = record;
        }
        outcome
    }

    fn note(change: impl FnOnce(&mut Self)) {
        RECORD.with_borrow_mut(|record| record.as_mut().map(change));
    }
}

/// The certificate to show and the key to sign with: those of the token, once it is open.
pub(super) struct TokenIdentity {
    keyring: Arc<Keyring>,
    number: KeyNumber,
    sessions: Arc<Sessions>,
    shown: Mutex<Option<Shown>>,
}

struct Shown {
    key: Arc<OpenKey>,
    certified: Arc<CertifiedKey>,
}

impl TokenIdentity {
    pub(super) fn new(keyring: Arc<Keyring>, number: KeyNumber, sessions: Arc<Sessions>) -> Self {
        Self { keyring, number, sessions, shown: Mutex::default() }
    }

    /// The key if it has been opened, and nothing has gone wrong with it since.
    pub(super) fn key(&self) -> Option<Arc<OpenKey>> {
        let shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        shown.as_ref().map(|shown| Arc::clone(&shown.key))
    }

    /// Opens the key; blocks while the token works.
    pub(super) fn open(self: &Arc<Self>) -> Result<Arc<OpenKey>, Error> {
        let key = self.keyring.open_in_time(self.number)?;
        let chain = key.chain.iter().cloned().map(CertificateDer::from);
        let signing_key = TokenKey { identity: Arc::clone(self), schemes: key.schemes.clone() };
        let certified = CertifiedKey::new(chain.collect(), Arc::new(signing_key));
        *self.shown.lock().unwrap_or_else(PoisonError::into_inner) =
            Some(Shown { key: Arc::clone(&key), certified: Arc::new(certified) });
        Ok(key)
    }

    fn sign(&self, scheme: Scheme, digest: Vec<u8>) -> Result<VerifiedSignature, Error> {
        let begin = Instant::now();
        let signing = self.sessions.signing();
        let outcome = self.keyring.sign(self.number, scheme, digest);
        match &outcome {
            Ok(_) => {
                let took = begin.elapsed();
                signing.took(took);
                Record::note(|record| record.signature = Some(took));
            }
            // The next connection opens the key again.
            Err(_) => *self.shown.lock().unwrap_or_else(PoisonError::into_inner) = None,
        }
        outcome
    }
}

impl fmt::Debug for TokenIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenIdentity").finish_non_exhaustive()
    }
}

impl ResolvesClientCert for TokenIdentity {
    /// The one certificate, for any issuers that the server names.
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Record::note(|record| record.is_asked = true);
        let shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        shown.as_ref().map(|shown| Arc::clone(&shown.certified))
    }

    fn has_certs(&self) -> bool {
        true
    }
}

#[derive(Debug)]
struct TokenKey {
    identity: Arc<TokenIdentity>,
    schemes: Vec<Scheme>,
}

impl SigningKey for TokenKey {
    fn choose_scheme(&self, offered: &[SignatureScheme]) -> Option<Box<dyn Signer>> {
        let mut signers = self.schemes.iter().filter_map(|scheme| {
            let (name, hash) = in_tls(*scheme)?;
            Some(TokenSigner { identity: Arc::clone(&self.identity), scheme: *scheme, name, hash })
        });
        match signers.find(|signer| offered.contains(&signer.name)) {
            Some(signer) => Some(Box::new(signer)),
            None => {
                Record::note(|record| record.is_out_of_schemes = true);
                None
            }
        }
    }

    fn algorithm(&self) -> SignatureAlgorithm {
        match self.schemes.first() {
            Some(Scheme::Ecdsa { .. }) => SignatureAlgorithm::ECDSA,
            Some(Scheme::Ed25519) => SignatureAlgorithm::ED25519,
            Some(Scheme::RsaPkcs1 { .. } | Scheme::RsaPss { .. }) | None => SignatureAlgorithm::RSA,
        }
    }
}

#[derive(Debug)]
struct TokenSigner {
    identity: Arc<TokenIdentity>,
    scheme: Scheme,
    name: SignatureScheme,
    /// Of the message; Ed25519 signs the message itself.
    hash: Option<Hash>,
}

impl Signer for TokenSigner {
    /// A signature that the certificate's public key has accepted. Here alone it is taken out of
    /// its [`VerifiedSignature`].
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, rustls::Error> {
        let digest = match self.hash {
            Some(Hash::Sha256) => Sha256::digest(message).to_vec(),
            Some(Hash::Sha384) => Sha384::digest(message).to_vec(),
            Some(Hash::Sha512) => Sha512::digest(message).to_vec(),
            Some(Hash::Md5Sha1 | Hash::Sha1 | Hash::Sha224) | None => message.to_owned(),
        };
        match self.identity.sign(self.scheme, digest) {
            Ok(signature) => Ok(signature.into_bytes()),
            Err(error) => {
                let trouble = TokenTrouble(Mutex::new(Some(error)));
                Err(rustls::Error::Other(OtherError(Arc::new(trouble))))
            }
        }
    }

    fn scheme(&self) -> SignatureScheme {
        self.name
    }
}

/// The reason for a missing signature, passed through rustls.
#[derive(Debug)]
struct TokenTrouble(Mutex<Option<Error>>);

impl fmt::Display for TokenTrouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the token made no signature")
    }
}

impl std::error::Error for TokenTrouble {}

/// The error that a token gave for this failure of a handshake, if it was one.
pub(super) fn token_trouble(error: &rustls::Error) -> Option<Error> {
    let rustls::Error::Other(OtherError(error)) = error else {
        return None;
    };
    let trouble = error.downcast_ref::<TokenTrouble>()?;
    trouble.0.lock().unwrap_or_else(PoisonError::into_inner).take()
}

/// The name of a scheme in TLS (RFC 8446, section 4.2.3), if it has one, and the hash of the message
/// that is signed.
fn in_tls(scheme: Scheme) -> Option<(SignatureScheme, Option<Hash>)> {
    use Hash::{Sha256, Sha384, Sha512};

    let (name, hash) = match scheme {
        Scheme::Ed25519 => return Some((SignatureScheme::ED25519, None)),
        Scheme::Ecdsa { curve } => match curve {
            Curve::P256 => (SignatureScheme::ECDSA_NISTP256_SHA256, Sha256),
            Curve::P384 => (SignatureScheme::ECDSA_NISTP384_SHA384, Sha384),
            Curve::P521 => (SignatureScheme::ECDSA_NISTP521_SHA512, Sha512),
        },
        Scheme::RsaPkcs1 { hash: Sha256 } => (SignatureScheme::RSA_PKCS1_SHA256, Sha256),
        Scheme::RsaPkcs1 { hash: Sha384 } => (SignatureScheme::RSA_PKCS1_SHA384, Sha384),
        Scheme::RsaPkcs1 { hash: Sha512 } => (SignatureScheme::RSA_PKCS1_SHA512, Sha512),
        Scheme::RsaPss { hash: Sha256, .. } => (SignatureScheme::RSA_PSS_SHA256, Sha256),
        Scheme::RsaPss { hash: Sha384, .. } => (SignatureScheme::RSA_PSS_SHA384, Sha384),
        Scheme::RsaPss { hash: Sha512, .. } => (SignatureScheme::RSA_PSS_SHA512, Sha512),
        Scheme::RsaPkcs1 { .. } | Scheme::RsaPss { .. } => return None,
    };
    Some((name, Some(hash)))
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::thread;

    use super::*;

    /// Handshakes with one key are made in several threads at once.
    #[test]
    fn each_handshake_has_a_record_of_its_own() {
        let step = Barrier::new(2);
        let is_refused = |is_out_of_schemes| {
            let mut record = Record::default();
            record.of_step(|| {
                step.wait();
                Record::note(|record| record.is_out_of_schemes |= is_out_of_schemes);
                step.wait();
            });
            record.is_out_of_schemes
        };
        thread::scope(|scope| {
            let refused = scope.spawn(|| is_refused(true));
            assert!(!is_refused(false));
            assert!(refused.join().unwrap());
        });
    }
}
