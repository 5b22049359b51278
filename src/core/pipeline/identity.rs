//! The third stage: the certificate, and how to find its key.

use std::io::Read as _;
use std::path::Path;

use crate::certificate::{Certificate, CertificateError};
use crate::config::{ObjectId, ObjectSelector};
use crate::error::Error;
use crate::pin::PinProvider;
use crate::process::open_regular;
use crate::token::{ObjectError, PrivateKey, Token, WantedKey};

/// In bytes.
const LONGEST_CERTIFICATE_FILE: u64 = 1 << 20;

/// A reference to a key that may not be open yet.
pub struct Identity {
    pub certificate: Certificate,
    /// The certificates that follow the first one in `certificateFile`, in DER.
    file_chain: Vec<Vec<u8>>,
    selector: ObjectSelector,
    /// CKA_ID of the certificate on the token; empty where it has none.
    id: Option<Vec<u8>>,
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
            return Ok(Self {
                certificate: found.certificate,
                file_chain: Vec::new(),
                selector: selector.clone(),
                id: Some(found.id),
            });
        };
        let (certificate, file_chain) = read_certificates(path)?;
        if token.contradicts(selector, certificate.public_key())? {
            return Err(ObjectError::Mismatch {
                certificate: format!("the certificate in {}", path.display()),
                key: format!("the key with {selector} on token {}", token.name()),
            }
            .into());
        }
        Ok(Self {
            certificate,
            file_chain,
            selector: selector.clone(),
            id: None,
        })
    }

    /// Looks at the public keys under the certificate's CKA_ID.
    ///
    /// # Errors
    /// [`ObjectError::Mismatch`] if none of them is the certificate's.
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

    pub(super) fn mismatch(&self) -> Error {
        ObjectError::Mismatch {
            certificate: format!("the certificate of {}", self.certificate.subject),
            key: self.describe(),
        }
        .into()
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

    pub(super) fn private_key(
        &self,
        token: &mut Token<'_>,
        pins: &mut dyn PinProvider,
    ) -> Result<PrivateKey, Error> {
        let wanted = WantedKey {
            selector: &self.selector,
            id: self.id.as_deref(),
            public_key: self.certificate.public_key(),
        };
        let key = token.private_key(&wanted, self.describe(), pins)?;
        if key.traits.is_anothers {
            return Err(self.mismatch());
        }
        Ok(key)
    }

    /// The key for messages: `the key with objectId "2" (CN=jane)`.
    pub fn describe(&self) -> String {
        format!(
            "the key with {} ({})",
            self.selector, self.certificate.subject
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
    let (file, _) = open_regular(path).map_err(failure)?;
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
