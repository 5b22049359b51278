//! The room for the key behind every door: find the key the configuration names, log in if the
//! token asks, sign, verify.
//!
//! It knows nothing of environment variables, kubeconfigs or terminals; a PIN reaches it through
//! [`PinProvider`]. What can be refused without a PIN is refused before one is asked.

#![forbid(unsafe_code)]

use std::fs::OpenOptions;
use std::io::Read as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::Instant;

use crate::certificate::{Certificate, CertificateError};
use crate::config::{ObjectId, ObjectSelector};
use crate::error::Error;
use crate::pin::PinProvider;
use crate::protocol::SignRequest;
use crate::scheme::{Scheme, ecdsa, requested};
use crate::token::{ObjectError, SigningError};
use crate::token::{PrivateKey, Token, WantedKey};
use crate::verify::{VerifiedSignature, verify};

/// A certificate file longer than this holds something else.
const LONGEST_CERTIFICATE_FILE: u64 = 1 << 20;

/// A reference to a key: its certificate, and how to find it on the token.
pub struct Identity {
    pub certificate: Certificate,
    /// The certificates that follow the first one in `certificateFile`, in DER.
    file_chain: Vec<Vec<u8>>,
    selector: ObjectSelector,
    /// CKA_ID of the certificate on the token; empty where it has none.
    id: Option<Vec<u8>>,
}

impl Identity {
    /// The certificate on the token, or the one in `certificate_file`, which must not contradict
    /// a public key that the token shows. Without `pins` only what is seen without a login.
    pub fn find(
        token: &mut Token<'_>,
        selector: ObjectSelector,
        certificate_file: Option<&Path>,
        pins: Option<&mut dyn PinProvider>,
    ) -> Result<Self, Error> {
        let Some(path) = certificate_file else {
            let found = token.certificate(&selector, pins)?;
            let subject = found.certificate.subject();
            log::info!("certificate of {subject}, with {selector}");
            return Ok(Self {
                certificate: found.certificate,
                file_chain: Vec::new(),
                selector,
                id: Some(found.id),
            });
        };
        let (certificate, file_chain) = read_certificates(path)?;
        if token.contradicts(&selector, certificate.public_key())? {
            return Err(ObjectError::Mismatch {
                certificate: format!("the certificate in {}", path.display()),
                key: format!("the key with {selector} on token {}", token.name()),
            }
            .into());
        }
        Ok(Self {
            certificate,
            file_chain,
            selector,
            id: None,
        })
    }

    /// An error if the token shows a public key, under the certificate's CKA_ID, that isn't the
    /// certificate's.
    pub fn check_public_key(&self, token: &Token<'_>) -> Result<(), Error> {
        let of_certificate = self.id.clone().filter(|id| !id.is_empty());
        let selector = match of_certificate {
            Some(id) => ObjectSelector {
                id: Some(ObjectId::from_bytes(id)),
                label: None,
            },
            None => self.selector.clone(),
        };
        if token.contradicts(&selector, self.certificate.public_key())? {
            return Err(self.mismatch());
        }
        Ok(())
    }

    fn mismatch(&self) -> Error {
        ObjectError::Mismatch {
            certificate: format!("the certificate of {}", self.certificate.subject()),
            key: self.words(),
        }
        .into()
    }

    /// The certificate and those above it that `certificateFile` or the token holds, in DER; the
    /// root is left out, which a server has to have anyway.
    pub fn chain(&self, token: &Token<'_>) -> Result<Vec<Vec<u8>>, Error> {
        let mut chain = vec![self.certificate.der().to_owned()];
        if self.file_chain.is_empty() {
            chain.extend(token.issuers(&self.certificate)?);
        } else {
            chain.extend(self.file_chain.iter().cloned());
        }
        Ok(chain)
    }

    /// A signature that the certificate's public key has accepted. The certificate decides what
    /// kind of key this is; the scheme is settled before the token is asked for anything.
    pub fn sign(
        &self,
        token: &mut Token<'_>,
        request: &SignRequest,
        pins: &mut dyn PinProvider,
    ) -> Result<VerifiedSignature, Error> {
        let scheme = requested(&request.options, self.certificate.public_key())?;
        token.check_mechanism(&scheme)?;
        let key = self.key(token, pins)?;
        self.sign_with(token, &key, scheme, &request.digest, pins)
    }

    /// The private key, after a login where the token requires one; an error for one that
    /// can't be the certificate's.
    pub fn key(
        &self,
        token: &mut Token<'_>,
        pins: &mut dyn PinProvider,
    ) -> Result<PrivateKey, Error> {
        let key = token.private_key(&self.wanted(), self.words(), pins)?;
        if key.is_anothers() {
            return Err(self.mismatch());
        }
        Ok(key)
    }

    fn wanted(&self) -> WantedKey<'_> {
        WantedKey {
            selector: &self.selector,
            id: self.id.as_deref(),
            public_key: self.certificate.public_key(),
        }
    }

    /// Whether the key is there without a login on a token that requires one for others.
    pub fn wants_no_login(&self, token: &Token<'_>) -> bool {
        token.wants_no_login(&self.wanted())
    }

    /// [`Identity::sign`] with a key that was looked up before. For Ed25519 the digest is the
    /// whole message.
    pub fn sign_with(
        &self,
        token: &mut Token<'_>,
        key: &PrivateKey,
        scheme: Scheme,
        digest: &[u8],
        pins: &mut dyn PinProvider,
    ) -> Result<VerifiedSignature, Error> {
        let public_key = self.certificate.public_key();
        let started = Instant::now();
        let raw = token.sign(key, &scheme, digest, public_key, pins)?;
        log::info!("signature: {scheme}, {} ms", started.elapsed().as_millis());
        let signature = match scheme {
            Scheme::Ecdsa { curve } => {
                let length = raw.len();
                ecdsa::to_der(raw, curve).ok_or_else(|| SigningError::Malformed {
                    scheme: scheme.to_string(),
                    length,
                })?
            }
            Scheme::Ed25519 | Scheme::RsaPkcs1 { .. } | Scheme::RsaPss { .. } => raw,
        };
        verify(public_key, &scheme, digest, signature).ok_or_else(|| {
            if token.disowns(key, public_key) {
                self.mismatch()
            } else {
                SigningError::Invalid {
                    key: self.words(),
                    scheme: scheme.to_string(),
                }
                .into()
            }
        })
    }

    /// For messages: the key, by its selector and its certificate's subject.
    pub fn words(&self) -> String {
        format!(
            "the key with {} ({})",
            self.selector,
            self.certificate.subject()
        )
    }
}

fn read_certificates(path: &Path) -> Result<(Certificate, Vec<Vec<u8>>), Error> {
    let failure = |reason: std::io::Error| {
        Error::from(ObjectError::CertificateFile {
            path: path.to_owned(),
            reason: reason.to_string(),
        })
    };
    let mut bytes = Vec::new();
    // O_NONBLOCK: a FIFO must not hold up whoever waits for the token.
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(rustix::fs::OFlags::NONBLOCK.bits() as i32)
        .open(path)
        .map_err(failure)?;
    if !file.metadata().map_err(failure)?.is_file() {
        return Err(failure(std::io::Error::other("it is not a regular file")));
    }
    file.take(LONGEST_CERTIFICATE_FILE)
        .read_to_end(&mut bytes)
        .map_err(failure)?;
    Certificate::chain_from_pem_or_der(&bytes, "").map_err(|error| match error {
        CertificateError::Unusable { reason, .. } => ObjectError::CertificateFile {
            path: path.to_owned(),
            reason: format!("no usable X.509 certificate: {reason}"),
        }
        .into(),
        other => other.into(),
    })
}
