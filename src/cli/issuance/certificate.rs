//! A certificate that was issued, and where it is kept: beside its key on the token, or in a file.

use std::path::{Path, PathBuf};

use super::files::{LONGEST, file_error, replace_file};
use crate::enrollment::{certificates_pem, fingerprint, intermediates};
use ::files::{data_file, read_regular};
use config::pin::PinProvider;
use crypto::certificate::{Certificate, CertificateChain};
use messages::error::Error;
use pin_entry::ask;
use token::{KeyReference, Token};

/// A certificate that a CA has issued, with the certificates of its CAs.
#[derive(Clone)]
pub(in crate::cli) struct IssuedCertificate {
    pub(in crate::cli) certificate: Certificate,
    /// The certificates of the CAs, in DER.
    pub(in crate::cli) chain: Vec<Vec<u8>>,
    /// Where the certificate comes from, in a sentence: `the certificate in FILE`.
    pub(in crate::cli) origin: String,
}

impl IssuedCertificate {
    pub(in crate::cli) fn from_file(path: &Path) -> Result<Self, Error> {
        let bytes = read_regular(path, LONGEST).map_err(|error| file_error(path, error))?;
        let source = path.display().to_string();
        let CertificateChain { leaf: certificate, issuers: chain } =
            CertificateChain::from_pem_or_der(&bytes, &source)?;
        Ok(Self { certificate, chain, origin: format!("the certificate in {source}") })
    }

    pub(in crate::cli) fn pem(&self) -> Result<String, Error> {
        certificates_pem(self.certificate.der(), &self.chain)
    }

    /// Writes the certificate beside its key, with those of its CAs, after the login that the token wants for that.
    /// Returns whether there was room for all of them.
    pub(in crate::cli) fn write(
        &self,
        token: &mut Token,
        key: &KeyReference,
        pins: &mut dyn PinProvider,
    ) -> Result<bool, Error> {
        let what = format!("to write the certificate of {}", self.certificate.subject);
        token.log_in_to_write(&what, pins, &ask)?;
        // The CAs' certificates come first, so that they are there as soon as this one is.
        let mut holds_all = true;
        for authority in intermediates(&self.certificate, &self.chain) {
            holds_all &= token.write_authority(&authority)?;
        }
        token.write_certificate(&self.certificate, Some(key))?;
        Ok(holds_all)
    }

    /// Writes the certificate to this file, or to one of its own among the user's data. Returns the file's path.
    pub(in crate::cli) fn keep(&self, path: Option<&Path>) -> Result<PathBuf, Error> {
        let pem = self.pem()?;
        if let Some(path) = path {
            replace_file(path, &pem)?;
            return Ok(path.to_owned());
        }
        let key = fingerprint(self.certificate.public_key())?;
        let key = key.get(..16).unwrap_or_default();
        let name = format!("certificate-{key}-{}.pem", self.certificate.serial_number);
        let path =
            data_file::path(&name).ok_or_else(|| file_error(&name, "the user has no home"))?;
        data_file::create(&name, pem.as_bytes()).map_err(|reason| file_error(&path, reason))?;
        Ok(path)
    }
}
