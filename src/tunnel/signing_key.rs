//! A key of the keyring as rustls sees a client's key.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustls::client::ResolvesClientCert;
use rustls::pki_types::CertificateDer;
use rustls::sign::{CertifiedKey, Signer, SigningKey};
use rustls::{OtherError, SignatureAlgorithm, SignatureScheme};
use tokio::task::block_in_place;

use super::resumption::Sessions;
use base::error::Error;
use base::hash::Hash;
use base::process::locked;
use crypto::certificate::Curve;
use crypto::scheme::Scheme;
use crypto::verify::VerifiedSignature;
use keyring::{KeyNumber, OpenKey, OpenKeys};

tokio::task_local! {
    /// Of this task's handshake: rustls resumes sessions only with the same resolver.
    pub(super) static SIGNATURE: Arc<Mutex<SignatureState>>;
}

/// What became of the signature in one handshake.
#[derive(Clone, Copy, Default, PartialEq)]
pub(super) enum SignatureState {
    #[default]
    NotMade,
    /// The server takes none that this key can make.
    NoScheme,
    UnderWay,
    /// After so long.
    Made(Duration),
}

fn note(state: SignatureState) {
    let _ = SIGNATURE.try_with(|signature| *locked(signature) = state);
}

/// The certificate to show and the key to sign with: those of the token, once it is open.
pub(super) struct TokenIdentity {
    keyring: Arc<dyn OpenKeys>,
    number: KeyNumber,
    pub(super) sessions: Arc<Sessions>,
    shown: Mutex<Option<(Arc<OpenKey>, Arc<CertifiedKey>)>>,
}

impl TokenIdentity {
    pub(super) fn new(keyring: Arc<dyn OpenKeys>, number: KeyNumber) -> Self {
        Self { keyring, number, sessions: Arc::default(), shown: Mutex::default() }
    }

    /// The key if it has been opened, and nothing has gone wrong with it since.
    pub(super) fn key(&self) -> Option<Arc<OpenKey>> {
        locked(&self.shown).as_ref().map(|(key, _)| Arc::clone(key))
    }

    /// Opens the key; blocks while the token works.
    pub(super) fn open(self: &Arc<Self>) -> Result<Arc<OpenKey>, Error> {
        let key = self.keyring.open_in_time(self.number)?;
        let chain = key.chain.iter().cloned().map(CertificateDer::from);
        let signing_key = TokenKey { identity: Arc::clone(self), schemes: key.schemes.clone() };
        let certified = CertifiedKey::new(chain.collect(), Arc::new(signing_key));
        *locked(&self.shown) = Some((Arc::clone(&key), Arc::new(certified)));
        Ok(key)
    }

    fn sign(&self, scheme: Scheme, digest: Vec<u8>) -> Result<VerifiedSignature, Error> {
        let begin = Instant::now();
        note(SignatureState::UnderWay);
        // rustls waits for a signature in the midst of a step of the handshake.
        let outcome = block_in_place(|| self.keyring.sign(self.number, scheme, digest));
        match &outcome {
            Ok(_) => {
                let took = begin.elapsed();
                self.sessions.signed(took);
                note(SignatureState::Made(took));
            }
            Err(_) => {
                // The next connection opens the key again.
                *locked(&self.shown) = None;
                note(SignatureState::NotMade);
            }
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
        locked(&self.shown).as_ref().map(|(_, certified)| Arc::clone(certified))
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
                note(SignatureState::NoScheme);
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
    /// What the certificate's public key has accepted. Only here it leaves its [`VerifiedSignature`].
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, rustls::Error> {
        let digest = self.hash.and_then(|hash| hash.digest(&[message]));
        match self.identity.sign(self.scheme, digest.unwrap_or_else(|| message.to_owned())) {
            Ok(signature) => Ok(signature.into_bytes()),
            Err(error) => Err(rustls::Error::Other(OtherError(Arc::new(error)))),
        }
    }

    fn scheme(&self) -> SignatureScheme {
        self.name
    }
}

/// The error that a token gave for this failure of a handshake, if it was one.
pub(super) fn token_trouble(error: &rustls::Error) -> Option<Error> {
    match error {
        rustls::Error::Other(OtherError(error)) => error.downcast_ref().cloned(),
        _ => None,
    }
}

/// A scheme's name in TLS, if it has one, and the message's hash (RFC 8446, section 4.2.3).
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
