//! What the commands for sealed files share: which token opens one, and reading it.

mod opening;

use std::path::Path;

use clap::ValueHint;

pub(super) use opening::{open, recipient_key};

use super::key_options::KeyOptions;
use super::selection::{self, HEADING, Selection};
use crate::certificate::Certificate;
use crate::error::{Error, Exit};
use crate::process::read_regular;
use crate::sealed::SealedFile;

/// In bytes; a thousand recipients take a fifth of it.
const LONGEST_FILE: u64 = 1 << 20;

/// The options that say with which token files are opened. Which key of it follows from the file.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct OpeningOptions {
    #[command(flatten)]
    selection: Selection,
    /// The key's certificate, for a token that holds none
    #[arg(long, value_name = "FILE", value_parser = selection::path, help_heading = HEADING, value_hint = ValueHint::FilePath)]
    certificate_file: Option<String>,
}

impl OpeningOptions {
    pub(super) fn key_options(&self) -> KeyOptions {
        let Self { selection, certificate_file } = self.clone();
        KeyOptions { selection, certificate_file, ..KeyOptions::default() }
    }
}

/// Reads a sealed file.
pub(super) fn read(path: &Path) -> Result<SealedFile, Error> {
    SealedFile::read(&content(path)?, &path.display().to_string())
}

/// The content of a regular file, which is no longer than any sealed file.
pub(super) fn content(path: &Path) -> Result<Vec<u8>, Error> {
    let reason = match read_regular(path, LONGEST_FILE + 1) {
        Ok(bytes) if bytes.len() as u64 <= LONGEST_FILE => return Ok(bytes),
        Ok(_) => "it is longer than 1 MiB".to_owned(),
        Err(error) => error.to_string(),
    };
    let help = "name a file that is there and that you may read";
    Err(Error::new(Exit::Configuration, format!("{}: {reason}", path.display())).help(help))
}

/// A node's certificate from a file of PEM or DER; the others of a chain are passed over.
pub(super) fn certificate(path: &Path) -> Result<Certificate, Error> {
    let name = path.display().to_string();
    let parsed = Certificate::chain_from_pem_or_der(&content(path)?, &name);
    let unusable = |error: Error| {
        Error::new(Exit::Configuration, error.to_string())
            .help("name a node's certificate, in PEM or DER")
    };
    Ok(parsed.map_err(unusable)?.0)
}
