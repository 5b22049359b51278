//! Where a key's certificate is, and how its successor takes its place: in the end, when the cluster has let it in.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::{fs, io};

use super::key_in_use::KeyInUse;
use crate::certificate::Certificate;
use crate::cli::issuance::{IssuedCertificate, file_error};
use crate::cluster_api::Recognition;
use crate::config::Config;
use crate::error::Error;
use crate::process::replaced_file::ReplacedFile;
use crate::report;

/// In bytes.
const LONGEST: u64 = 1 << 20;

/// Where the key's certificate is.
pub(super) enum CertificateLocation {
    /// `certificateFile`
    File(PathBuf),
    /// Beside the key, with room for others.
    Token,
    /// In a slot of a PIV card, which has one.
    Slot,
}

impl CertificateLocation {
    pub(super) fn of(key: &KeyInUse<'_>) -> Result<Self, Error> {
        if let Some(file) = Config::from_map(&mut key.map.clone())?.certificate_file {
            return Ok(Self::File(file));
        }
        let has_slots =
            key.with_token(|token, _, _| Ok(token.is_yubikey() || token.takes_no_certificates()))?;
        Ok(match has_slots {
            true => Self::Slot,
            false => Self::Token,
        })
    }

    /// Has the cluster let the new certificate in, and puts it in the place of the present one.
    pub(super) fn replace(
        &self,
        key: &KeyInUse<'_>,
        present: &Certificate,
        issued: &IssuedCertificate,
    ) -> Result<Recognition, Error> {
        match self {
            Self::File(file) => {
                let failed = |error: io::Error| file_error(file, error);
                let replaced = opened(present, file).map_err(failed)?;
                let pem = issued.pem()?;
                prove_and_replace(key, issued, || {
                    let new = replaced.write(pem.as_bytes());
                    new.and_then(|new| replaced.replace(&new)).map_err(failed)
                })
            }
            // What is in the slot is lost.
            Self::Slot => prove_and_replace(key, issued, || key.write(issued)),
            Self::Token => {
                key.write(issued)?;
                match key.proof(key.map.clone(), &issued.certificate) {
                    Ok(known) => {
                        key.remove(present, Some(&issued.certificate))?;
                        Ok(known)
                    }
                    Err(error) => {
                        key.remove(&issued.certificate, Some(present))?;
                        Err(error)
                    }
                }
            }
        }
    }
}

/// Has the cluster let the new certificate in before it takes the place of the present one: from a file of this
/// user's own, which stays until then.
fn prove_and_replace(
    key: &KeyInUse<'_>,
    issued: &IssuedCertificate,
    replace: impl FnOnce() -> Result<(), Error>,
) -> Result<Recognition, Error> {
    let path = issued.keep(None)?;
    let mut map = key.map.clone();
    map.set("certificateFile", &path.to_string_lossy());
    let proof = key.proof(map, &issued.certificate);
    if proof.is_ok() {
        let file = path.display();
        let stays = format!("the cluster has let the new certificate in; it stays in {file}");
        replace().inspect_err(|_| report::note(&stays))?;
    }
    fs::remove_file(&path).map_err(|error| file_error(&path, error))?;
    proof
}

/// The file, which still has the present certificate: whoever owns its directory could have put another there.
fn opened(present: &Certificate, path: &Path) -> io::Result<ReplacedFile> {
    let file = ReplacedFile::open(path)?;
    let mut content = Vec::new();
    if let Some(old) = &file.old {
        (&old.file).take(LONGEST).read_to_end(&mut content)?;
    }
    let source = path.display().to_string();
    match Certificate::chain_from_pem_or_der(&content, &source) {
        Ok((found, _)) if found.der() == present.der() => Ok(file),
        _ => Err(io::Error::other("another file was put there meanwhile")),
    }
}
