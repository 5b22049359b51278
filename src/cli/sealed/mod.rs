//! What the commands for sealed files share: reading and writing them.

#![forbid(unsafe_code)]

mod error;

use std::io::Read as _;
use std::path::Path;

pub(super) use error::SealedCommandError;

use crate::certificate::{Certificate, CertificateError};
use crate::error::Error;
use crate::process::open_regular;
use crate::sealed::{LONGEST_FILE, SealedFile};

/// Reads a sealed file.
///
/// # Errors
/// It can't be read, or is none.
pub(super) fn read(path: &Path) -> Result<SealedFile, Error> {
    let bytes = content(path)?;
    Ok(SealedFile::read(&bytes, &path.display().to_string())?)
}

/// The content of a regular file.
///
/// # Errors
/// It can't be read, or is longer than any sealed file.
pub(super) fn content(path: &Path) -> Result<Vec<u8>, SealedCommandError> {
    let unreadable = |reason: String| SealedCommandError::Unreadable {
        path: path.to_owned(),
        reason,
    };
    let (file, _) = open_regular(path).map_err(|error| unreadable(error.to_string()))?;
    let mut bytes = Vec::new();
    file.take(LONGEST_FILE + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| unreadable(error.to_string()))?;
    match bytes.len() as u64 > LONGEST_FILE {
        true => Err(unreadable("it is longer than 1 MiB".to_owned())),
        false => Ok(bytes),
    }
}

/// A node's certificate from a file of PEM or DER; the others of a chain are passed over.
///
/// # Errors
/// The file can't be read, or holds no usable certificate.
pub(super) fn certificate(path: &Path) -> Result<Certificate, Error> {
    let bytes = content(path)?;
    let parsed = Certificate::chain_from_pem_or_der(&bytes, "");
    let (certificate, _) = parsed.map_err(|error| match error {
        CertificateError::Unusable { reason, .. } => Error::from(SealedCommandError::Unreadable {
            path: path.to_owned(),
            reason: format!("no usable X.509 certificate: {reason}"),
        }),
        other => other.into(),
    })?;
    Ok(certificate)
}
