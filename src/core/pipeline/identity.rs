//! The third stage: the certificate, and how to find its key.

use std::io::Read as _;
use std::path::Path;

use super::reference::KeyReference;
use crate::certificate::{Certificate, CertificateError};
use crate::config::ObjectSelector;
use crate::error::Error;
use crate::pin::PinProvider;
use crate::process::open_regular;
use crate::token::{ObjectError, Token};

/// In bytes.
const LONGEST_CERTIFICATE_FILE: u64 = 1 << 20;

/// A certificate, and a reference to its key.
pub struct Identity {
    pub certificate: Certificate,
    /// The certificates that follow the first one in `certificateFile`, in DER.
    file_chain: Vec<Vec<u8>>,
    key: KeyReference,
}

impl Identity {
    /// Finds the certificate on the token, or reads `certificate_file`, which must not contradict
    /// a public key that the token shows.
    pub(super) fn find(
        token: &mut Token<'_>,
        selector: &ObjectSelector,
        certificate_file: Option<&Path>,
        pins: Option<&mut dyn PinProvider>,
    ) -> Result<Self, Error> {
        let Some(path) = certificate_file else {
            let found = token.certificate(selector, pins)?;
            let subject = &found.certificate.subject;
            log::info!("certificate of {subject}, with {selector}");
            let key = KeyReference::of_certificate(&found.certificate, selector, Some(found.id));
            return Ok(Self { certificate: found.certificate, file_chain: Vec::new(), key });
        };
        let (certificate, file_chain) = read_certificates(path)?;
        if token.contradicts(selector, certificate.public_key())? {
            return Err(ObjectError::Mismatch {
                certificate: format!("the certificate in {}", path.display()),
                key: format!("the key with {selector} on token {}", token.name()),
            }
            .into());
        }
        let key = KeyReference::of_certificate(&certificate, selector, None);
        Ok(Self { certificate, file_chain, key })
    }

    /// Looks at the public keys under the certificate's CKA_ID.
    ///
    /// # Errors
    /// [`ObjectError::Mismatch`] if none of them is the certificate's.
    pub fn check_public_key(&self, token: &Token<'_>) -> Result<(), Error> {
        if token.contradicts(&self.key.neighbours(), self.certificate.public_key())? {
            return Err(self.key.mismatch());
        }
        Ok(())
    }

    /// Where its key is, for [`Pipeline::key`](super::Pipeline::key).
    pub fn key(&self) -> &KeyReference {
        &self.key
    }

    /// [`Identity::key`], where the certificate isn't needed any more.
    pub fn into_key(self) -> KeyReference {
        self.key
    }

    /// The certificate and its issuers from `certificateFile` or the token, in DER. Issuers from
    /// the token don't include the root, which a server must have anyway.
    ///
    /// # Errors
    /// If the issuers can't be read from the token.
    pub fn chain(&self, token: &Token<'_>) -> Result<Vec<Vec<u8>>, Error> {
        let mut chain = vec![self.certificate.der().to_owned()];
        if self.file_chain.is_empty() {
            chain.extend(token.issuers(&self.certificate)?);
        } else {
            chain.extend(self.file_chain.iter().cloned());
        }
        Ok(chain)
    }
}

/// The certificate in a file of PEM or DER that is not a CA's, and the DER of the others, beginning with its
/// issuer.
///
/// # Errors
/// [`ObjectError::CertificateFile`], and a certificate whose key is of no use.
pub fn read_certificates(path: &Path) -> Result<(Certificate, Vec<Vec<u8>>), Error> {
    let failure = |reason: std::io::Error| {
        Error::from(ObjectError::CertificateFile {
            path: path.to_owned(),
            reason: reason.to_string(),
        })
    };
    let mut bytes = Vec::new();
    let (file, _) = open_regular(path).map_err(failure)?;
    file.take(LONGEST_CERTIFICATE_FILE).read_to_end(&mut bytes).map_err(failure)?;
    Certificate::chain_from_pem_or_der(&bytes, "").map_err(|error| match error {
        CertificateError::Unusable { reason, .. } => ObjectError::CertificateFile {
            path: path.to_owned(),
            reason: format!("no usable X.509 certificate: {reason}"),
        }
        .into(),
        other => other.into(),
    })
}
