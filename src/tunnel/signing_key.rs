//! A key of the keyring, in the form in which rustls uses a client's key.
//!
//! If a server asks for a certificate, and the client has none or can't make a signature that the server takes, rustls goes
//! on without one, as an anonymous client. Many servers let anonymous clients in, kube-apiserver among them. So here there
//! is always a certificate and a signer; if no signature can be made, the handshake fails with the reason.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustls::client::ResolvesClientCert;
use rustls::pki_types::CertificateDer;
use rustls::sign::{CertifiedKey, Signer, SigningKey, SingleCertAndKey};
use rustls::{OtherError, PeerIncompatible, SignatureAlgorithm, SignatureScheme};
use tokio::task::block_in_place;

use super::resumption::Sessions;
use crypto::certificate::{Curve, MlDsaSet};
use crypto::scheme::Scheme;
use crypto::verify::VerifiedSignature;
use keyring::{KeyNumber, OpenKey, OpenKeys};
use messages::error::Error;
use protocol::hash::Hash;
use system::locked;

tokio::task_local! {
    /// What became of the signature in this task's handshake. The resolver can't hold this: rustls resumes a session only
    /// if all its handshakes have one resolver.
    pub(super) static SIGNATURE: Arc<Mutex<SignatureState>>;
}

/// What became of the signature in one handshake.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) enum SignatureState {
    /// The server has asked for no certificate, and so for no signature. It may have resumed a session instead.
    #[default]
    NotAsked,
    /// The server has asked for a certificate, and there is no signature. A handshake that ends so has authenticated
    /// nobody.
    Missing,
    /// The server takes no signature that this key can make.
    NoScheme,
    UnderWay,
    /// A signature was made, which took so long.
    Made(Duration),
}

/// Notes what became of the signature in this task's handshake.
fn note(state: SignatureState) {
    let _ = SIGNATURE.try_with(|signature| *locked(signature) = state);
}

/// A key with the certificate that is shown for it, and the TLS sessions that its signatures have begun.
pub(super) struct TokenIdentity {
    keyring: Arc<dyn OpenKeys>,
    number: KeyNumber,
    pub(super) key: Arc<OpenKey>,
    pub(super) sessions: Arc<Sessions>,
    /// Whether a signature has failed since the key was opened.
    has_failed: AtomicBool,
}

impl TokenIdentity {
    pub(super) fn new(
        keyring: Arc<dyn OpenKeys>,
        number: KeyNumber,
        key: Arc<OpenKey>,
    ) -> Arc<Self> {
        let has_failed = AtomicBool::new(false);
        Arc::new(Self { keyring, number, key, sessions: Arc::default(), has_failed })
    }

    /// Shows the one certificate, whichever issuers a server names.
    pub(super) fn resolver(self: &Arc<Self>) -> Arc<dyn ResolvesClientCert> {
        let chain = self.key.chain.iter().cloned().map(CertificateDer::from).collect();
        let key = Arc::new(TokenKey { identity: Arc::clone(self) });
        Arc::new(SingleCertAndKey::from(CertifiedKey::new(chain, key)))
    }

    /// Whether the key has to be opened again.
    pub(super) fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Relaxed)
    }

    /// To be called when the key was opened again and has the same certificate as before.
    pub(super) fn is_open_again(&self) {
        self.has_failed.store(false, Ordering::Relaxed);
    }

    fn sign(&self, scheme: Scheme, digest: Vec<u8>) -> Result<VerifiedSignature, Error> {
        let begin = Instant::now();
        note(SignatureState::UnderWay);
        // rustls calls this in the middle of a handshake, and waits for the signature.
        let outcome = block_in_place(|| self.keyring.sign(self.number, scheme, digest));
        match &outcome {
            Ok(_) => {
                let took = begin.elapsed();
                self.sessions.signed(took);
                note(SignatureState::Made(took));
            }
            Err(_) => {
                // The next connection opens the key again.
                self.has_failed.store(true, Ordering::Relaxed);
                note(SignatureState::Missing);
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

#[derive(Debug)]
struct TokenKey {
    identity: Arc<TokenIdentity>,
}

impl SigningKey for TokenKey {
    /// Called only if a server wants a certificate. If there is no scheme that both sides know, the signer is one that
    /// fails.
    fn choose_scheme(&self, offered: &[SignatureScheme]) -> Option<Box<dyn Signer>> {
        let mut signers = self.identity.key.schemes.iter().filter_map(|scheme| {
            let (name, hash) = in_tls(*scheme)?;
            Some(TokenSigner { identity: Arc::clone(&self.identity), scheme: *scheme, name, hash })
        });
        match signers.find(|signer| offered.contains(&signer.name)) {
            Some(signer) => {
                note(SignatureState::Missing);
                Some(Box::new(signer))
            }
            None => {
                note(SignatureState::NoScheme);
                Some(Box::new(NoSigner))
            }
        }
    }

    fn algorithm(&self) -> SignatureAlgorithm {
        match self.identity.key.schemes.first() {
            Some(Scheme::Ecdsa { .. }) => SignatureAlgorithm::ECDSA,
            Some(Scheme::Ed25519) => SignatureAlgorithm::ED25519,
            // Only TLS 1.2 asks, which has no number for it.
            Some(Scheme::MlDsa { .. }) => SignatureAlgorithm::Unknown(0),
            Some(Scheme::RsaPkcs1 { .. } | Scheme::RsaPss { .. }) | None => SignatureAlgorithm::RSA,
        }
    }
}

/// The signer for a server that takes no signature that the key can make. It fails.
#[derive(Debug)]
struct NoSigner;

impl Signer for NoSigner {
    fn sign(&self, _: &[u8]) -> Result<Vec<u8>, rustls::Error> {
        Err(PeerIncompatible::NoSignatureSchemesInCommon.into())
    }

    /// Any scheme will do: it is never sent.
    fn scheme(&self) -> SignatureScheme {
        SignatureScheme::Unknown(0)
    }
}

#[derive(Debug)]
struct TokenSigner {
    identity: Arc<TokenIdentity>,
    scheme: Scheme,
    name: SignatureScheme,
    /// The hash of the message that is signed; `None` for Ed25519 and ML-DSA, which sign the message itself.
    hash: Option<Hash>,
}

impl Signer for TokenSigner {
    /// Returns a signature that the certificate's public key has accepted. Only here are its bytes taken out of the
    /// [`VerifiedSignature`].
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

/// The token's error behind this failure of a handshake, if there is one.
pub(super) fn token_trouble(error: &rustls::Error) -> Option<Error> {
    match error {
        rustls::Error::Other(OtherError(error)) => error.downcast_ref().cloned(),
        _ => None,
    }
}

/// A scheme's name in TLS, if it has one, and the message's hash (RFC 8446, section 4.2.3; draft-ietf-tls-mldsa).
fn in_tls(scheme: Scheme) -> Option<(SignatureScheme, Option<Hash>)> {
    use Hash::{Sha256, Sha384, Sha512};

    let (name, hash) = match scheme {
        Scheme::Ed25519 => return Some((SignatureScheme::ED25519, None)),
        Scheme::MlDsa { set } => {
            let name = match set {
                MlDsaSet::MlDsa44 => SignatureScheme::ML_DSA_44,
                MlDsaSet::MlDsa65 => SignatureScheme::ML_DSA_65,
                MlDsaSet::MlDsa87 => SignatureScheme::ML_DSA_87,
            };
            return Some((name, None));
        }
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
