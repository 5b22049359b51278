//! Where a key's certificate is, and how its successor takes its place: in the end, when the cluster has let it in.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::{fs, io};

use super::key_in_use::KeyInUse;
use crate::certificate::Certificate;
use crate::cli::enroll::IssuedFile;
use crate::cli::issuance::Issued;
use crate::cluster_api::Recognition;
use crate::config::Config;
use crate::enrollment::certificates_pem;
use crate::error::Error;
use crate::process::replaced_file::ReplacedFile;
use crate::report;
use crate::token::ObjectError;

/// In bytes.
const LONGEST: u64 = 1 << 20;

/// Where the key's certificate is.
pub(super) enum CertificatePlace {
    /// `certificateFile`
    File(PathBuf),
    /// Beside the key, with room for others.
    Token,
    /// In a slot of a PIV card, which has one.
    Slot,
}

impl CertificatePlace {
    /// # Errors
    /// The key can't be opened.
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

    /// What would be done with the certificate, in words.
    pub(super) fn plan(&self) -> String {
        match self {
            Self::File(file) => {
                format!("put the new certificate in the place of {}", file.display())
            }
            Self::Token => {
                "write the new certificate to the token, and then remove the present one".to_owned()
            }
            Self::Slot => {
                "write the new certificate in the place of the present one, once the cluster has let it in"
                    .to_owned()
            }
        }
    }

    /// Has the cluster let the new certificate in, and puts it in the place of the present one.
    ///
    /// # Errors
    /// It can't be written; the cluster doesn't let it in.
    pub(super) fn replace(
        &self,
        key: &KeyInUse<'_>,
        present: &Certificate,
        issued: &Issued,
    ) -> Result<Recognition, Error> {
        match self {
            Self::File(file) => {
                let failed = |error: io::Error| failed(file, &error);
                let place = place_of(present, file).map_err(failed)?;
                let text = certificates_pem(issued.certificate.der(), &issued.chain)?;
                prove_and_replace(key, issued, |_, _| {
                    let new = place.write(text.as_bytes());
                    new.and_then(|new| place.replace(&new)).map_err(failed)
                })
            }
            Self::Token => replace_on_token(key, present, issued),
            // What is in the slot is lost.
            Self::Slot => prove_and_replace(key, issued, |kept, path| {
                let own = key.found()?;
                let id = own.id.clone();
                key.write(issued, own).inspect_err(|_| kept.advise(&id, path))
            }),
        }
    }
}

/// Writes the new certificate beside its key, has the cluster let it in, and removes the present
/// one. A new one that isn't let in is removed again.
fn replace_on_token(
    key: &KeyInUse<'_>,
    present: &Certificate,
    issued: &Issued,
) -> Result<Recognition, Error> {
    key.write(issued, key.found()?)?;
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

/// Has the cluster let the new certificate in before it takes the place of the present one: from a file of this
/// user's own, which stays until then.
fn prove_and_replace(
    key: &KeyInUse<'_>,
    issued: &Issued,
    replace: impl FnOnce(&IssuedFile, &Path) -> Result<(), Error>,
) -> Result<Recognition, Error> {
    let kept = IssuedFile::of_cluster(issued);
    let path = kept.keep(None)?;
    let mut map = key.map.clone();
    map.set("certificateFile", &path.to_string_lossy());
    let proof = key.proof(map, &issued.certificate);
    if proof.is_ok() {
        let file = path.display();
        let stays = format!("the cluster has let the new certificate in; it stays in {file}");
        replace(&kept, &path).inspect_err(|_| report::note(&stays))?;
    }
    fs::remove_file(&path).map_err(|error| failed(&path, &error))?;
    proof
}

/// The file, which still has the present certificate: whoever owns its directory could have put another there.
fn place_of(present: &Certificate, path: &Path) -> io::Result<ReplacedFile> {
    let place = ReplacedFile::open(path)?;
    let mut content = Vec::new();
    if let Some(old) = &place.old {
        (&old.file).take(LONGEST).read_to_end(&mut content)?;
    }
    let source = path.display().to_string();
    match Certificate::chain_from_pem_or_der(&content, &source) {
        Ok((found, _)) if found.der() == present.der() => Ok(place),
        _ => Err(io::Error::other("another file was put there meanwhile")),
    }
}

fn failed(path: &Path, error: &io::Error) -> Error {
    ObjectError::CertificateFile { path: path.to_owned(), reason: error.to_string() }.into()
}
