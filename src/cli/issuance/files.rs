//! Files that hold a certificate or a request: how they are read and written.

use std::path::Path;

use crate::cli::session::write_public_file;
use crate::enrollment::KeyAttestation;
use ::files::read_regular;
use crypto::certificate::PublicKey;
use messages::error::{Error, Exit};
use system::signals::Deferral;

/// The most bytes of a file with a certificate or a request.
pub(in crate::cli) const LONGEST: u64 = 1 << 20;

/// Writes a file that everybody may read, in one step. If there is one already, its owner and mode stay.
pub(in crate::cli) fn replace_file(path: &Path, text: &str) -> Result<(), Error> {
    let _deferral = Deferral::for_files();
    write_public_file(path, text)
}

pub(in crate::cli) fn file_error(path: impl AsRef<Path>, reason: impl ToString) -> Error {
    let text = format!("{}: {}", path.as_ref().display(), reason.to_string());
    Error::new(Exit::Object, text).help("name a file that can be used")
}

/// Reads from this file what says where the key was made.
pub(in crate::cli) fn attestation_from_file(
    path: &Path,
    key: &PublicKey,
) -> Result<KeyAttestation, Error> {
    let pem = read_regular(path, LONGEST).map_err(|error| file_error(path, error))?;
    KeyAttestation::from_pem(&pem, &path.display().to_string(), key)
}
