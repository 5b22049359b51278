//! The request's file and that of an issued certificate.

use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use crate::certificate::Certificate;
use crate::cli::issuance::Issued;
use crate::cli::new_file::{self, NewFileError};
use crate::config::ObjectId;
use crate::enrollment::{EnrollmentError, certificates_pem, fingerprint, intermediates};
use crate::error::Error;
use crate::printable::shell_word;
use crate::process::signals::Deferral;
use crate::process::{data_file, open_regular};
use crate::report;
use crate::token::PivSlot;

/// In bytes.
const LONGEST: u64 = 1 << 20;

const REQUEST: &str = "-----BEGIN CERTIFICATE REQUEST-----";

/// Where the request goes.
pub(super) enum CsrTarget<'a> {
    Output,
    File(&'a Path),
}

impl<'a> CsrTarget<'a> {
    /// Checks before anything is made that the request can be written. One that is there is replaced, any
    /// other file is not.
    ///
    /// # Errors
    /// [`EnrollmentError::File`]
    pub(super) fn check(path: &'a Path) -> Result<Self, EnrollmentError> {
        if path == Path::new("-") {
            return Ok(Self::Output);
        }
        let refused = |reason: &str| {
            Err(EnrollmentError::File { path: path.to_owned(), reason: reason.to_owned() })
        };
        if !parent(path).is_dir() {
            return refused("its directory is not there");
        }
        match read(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Ok(content) if content.starts_with(REQUEST.as_bytes()) => {}
            Ok(_) => return refused("it is there, and is no certificate request"),
            Err(error) => return refused(&error.to_string()),
        }
        Ok(Self::File(path))
    }

    pub(super) fn path(&self) -> Option<&Path> {
        match self {
            Self::Output => None,
            Self::File(path) => Some(path),
        }
    }

    /// # Errors
    /// It can't be written.
    pub(super) fn write(&self, pem: &str) -> Result<(), NewFileError> {
        self.path().map_or(Ok(()), |path| replace(path, pem))
    }
}

/// A certificate that a CA has issued, and those above it.
pub(in crate::cli) struct IssuedFile {
    pub(super) certificate: Certificate,
    chain: Vec<Vec<u8>>,
    /// For messages.
    words: String,
}

impl IssuedFile {
    /// # Errors
    /// It can't be read, or holds no certificate.
    pub(super) fn read(path: &Path) -> Result<Self, Error> {
        let bytes = read(path).map_err(|error| unusable(path, &error))?;
        let source = path.display().to_string();
        let (certificate, chain) = Certificate::chain_from_pem_or_der(&bytes, &source)?;
        Ok(Self { certificate, chain, words: format!("the certificate in {}", path.display()) })
    }

    /// What a cluster has answered a request with.
    pub(in crate::cli) fn of_cluster(issued: &Issued) -> Self {
        Self {
            certificate: issued.certificate.clone(),
            chain: issued.chain.clone(),
            words: format!("the certificate of the request {}", issued.name),
        }
    }

    /// For messages.
    pub(super) fn words(&self) -> &str {
        &self.words
    }

    /// The certificates of the CAs between it and the root.
    pub(super) fn intermediates(&self) -> Vec<Certificate> {
        intermediates(&self.certificate, &self.chain)
    }

    /// Keeps it in a file with those above it: this one, or [`IssuedFile::own_place`].
    ///
    /// # Errors
    /// It can't be written.
    pub(in crate::cli) fn keep(&self, path: Option<&str>) -> Result<PathBuf, Error> {
        let pem = certificates_pem(self.certificate.der(), &self.chain)?;
        if let Some(path) = path.map(Path::new) {
            replace(path, &pem)?;
            return Ok(path.to_owned());
        }
        let place = self.own_place()?;
        data_file::create(&self.own_name()?, pem.as_bytes())
            .map_err(|reason| EnrollmentError::File { path: place.clone(), reason })?;
        Ok(place)
    }

    /// A file of its own under the user's data.
    ///
    /// # Errors
    /// The user has no home.
    pub(super) fn own_place(&self) -> Result<PathBuf, Error> {
        let name = self.own_name()?;
        let place = data_file::path(&name);
        Ok(place.ok_or_else(|| EnrollmentError::File {
            path: name.into(),
            reason: "the user has no home".to_owned(),
        })?)
    }

    fn own_name(&self) -> Result<String, Error> {
        let key = fingerprint(self.certificate.public_key())?;
        let key = key.get(..16).unwrap_or_default();
        let serial = &self.certificate.serial_number;
        Ok(format!("certificate-{key}-{serial}.pem"))
    }

    /// Says which commands put it on a PIV card, beside the key with this CKA_ID. No other kind of token is known
    /// to take none.
    pub(in crate::cli) fn advise(&self, id: &[u8], path: &Path) {
        let Some(slot) = PivSlot::of_id(&ObjectId::from_bytes(id.to_owned())) else {
            return;
        };
        let slot = slot.name();
        let text = path.display().to_string();
        let file = shell_word(&text);
        report::steps(
            "on a PIV card, one of these writes it to the card, with the management key:",
            &[
                format!("ykman piv certificates import {slot} {file}"),
                format!("yubico-piv-tool -a import-certificate -s {slot} -i {file}"),
            ],
        );
    }
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let (file, _) = open_regular(path)?;
    file.take(LONGEST).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// Writes the file in one step, for everybody to read.
fn replace(path: &Path, text: &str) -> Result<(), NewFileError> {
    let _deferral = Deferral::for_files();
    new_file::write(path, text, 0o644)
}

fn unusable(path: &Path, error: &io::Error) -> EnrollmentError {
    EnrollmentError::File { path: path.to_owned(), reason: error.to_string() }
}
