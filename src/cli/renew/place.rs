//! Where a key's certificate is, and how its successor takes its place: in the end, when the cluster has let it in.

use std::fs;
use std::path::{Path, PathBuf};

use super::key_in_use::KeyInUse;
use crate::certificate::Certificate;
use crate::cli::enroll::IssuedFile;
use crate::cli::issuance::Issued;
use crate::cluster_api::Recognition;
use crate::config::Config;
use crate::enrollment::certificates_pem;
use crate::error::Error;
use crate::report;
use crate::token::ObjectError;

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
            Self::File(file) => replace_file(key, file, issued),
            Self::Token => replace_on_token(key, present, issued),
            Self::Slot => replace_in_slot(key, issued),
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
            key.remove(present)?;
            Ok(known)
        }
        Err(error) => {
            key.remove(&issued.certificate)?;
            Err(error)
        }
    }
}

/// To write there is to lose the present certificate: the cluster has to let the new one in before,
/// from a file, which stays until the card has it.
fn replace_in_slot(key: &KeyInUse<'_>, issued: &Issued) -> Result<Recognition, Error> {
    let kept = IssuedFile::of_cluster(issued);
    let path = kept.keep(None)?;
    let discard = || fs::remove_file(&path).map_err(|error| failed(&path, &error));
    let mut map = key.map.clone();
    map.set("certificateFile", &path.to_string_lossy());
    let known = match key.proof(map, &issued.certificate) {
        Ok(known) => known,
        Err(error) => {
            discard()?;
            return Err(error);
        }
    };
    let own = key.found()?;
    let id = own.id.clone();
    if let Err(error) = key.write(issued, own) {
        let file = path.display();
        report::note(&format!(
            "the cluster has let the new certificate in; it stays in {file}"
        ));
        kept.advise(&id, &path);
        return Err(error);
    }
    discard()?;
    Ok(known)
}

/// The new file stands beside the present one until the cluster has let its certificate in.
fn replace_file(key: &KeyInUse<'_>, file: &Path, issued: &Issued) -> Result<Recognition, Error> {
    let failed = |error| failed(file, &error);
    let file = fs::canonicalize(file).map_err(failed)?;
    let mut new = file.clone().into_os_string();
    new.push(".renewed");
    let new = PathBuf::from(new);
    let text = certificates_pem(issued.certificate.der(), &issued.chain)?;
    fs::write(&new, text).map_err(failed)?;
    fs::File::open(&new)
        .and_then(|new| new.sync_all())
        .map_err(failed)?;
    let mut map = key.map.clone();
    map.set("certificateFile", &new.to_string_lossy());
    match key.proof(map, &issued.certificate) {
        Ok(known) => {
            fs::rename(&new, &file).map_err(failed)?;
            Ok(known)
        }
        Err(error) => {
            fs::remove_file(&new).map_err(failed)?;
            Err(error)
        }
    }
}

fn failed(path: &Path, error: &std::io::Error) -> Error {
    ObjectError::CertificateFile {
        path: path.to_owned(),
        reason: error.to_string(),
    }
    .into()
}
