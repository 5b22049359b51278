//! The commands for sealed files: `seal`, `unseal` and `kubelet-credential-provider`. What they share is here: how a
//! sealed file is read, which of its recipients is a key of the token, and how that key opens it.

pub(super) mod provider;
pub(super) mod seal;
pub(super) mod unseal;

use std::path::Path;

use clap::ValueHint;

use crate::cli::key::options::{self, HEADING, KeyOptions, Selection};
use config::Config;
use config::pin::PinProvider;
use crypto::certificate::{Certificate, CertificateChain};
use files::read_regular;
use messages::error::{Error, Exit};
use messages::help::Help;
use sealed::{Registries, SealedFile, describe, names};
use token::{KeyReference, Token};

/// The longest sealed file that is read, in bytes. A thousand recipients take a fifth of it.
const LONGEST_FILE: u64 = 1 << 20;

// The options that say with which token files are opened. Which key of it follows from the file.
#[derive(Clone, Debug, clap::Args)]
pub(in crate::cli) struct OpeningOptions {
    #[command(flatten)]
    selection: Selection,
    /// A file with the certificate, if the token has none
    #[arg(long, value_name = "FILE", value_parser = options::path, help_heading = HEADING, value_hint = ValueHint::FilePath)]
    certificate_file: Option<String>,
}

impl OpeningOptions {
    pub(in crate::cli) fn key_options(&self) -> KeyOptions {
        let Self { selection, certificate_file } = self.clone();
        KeyOptions { selection, certificate_file, ..KeyOptions::default() }
    }
}

/// Reads a sealed file.
pub(in crate::cli) fn read(path: &Path) -> Result<SealedFile, Error> {
    SealedFile::read(&content(path)?, &path.display().to_string())
}

/// Reads a regular file that is no longer than a sealed file may be.
pub(in crate::cli) fn content(path: &Path) -> Result<Vec<u8>, Error> {
    read_regular(path, LONGEST_FILE).map_err(|error| {
        let text = format!("{}: {error}", path.display());
        Error::new(Exit::Configuration, text)
            .help("name a file that is there and that you may read")
    })
}

/// Reads a node's certificate from a file in PEM or DER. The other certificates of a chain are passed over.
pub(in crate::cli) fn certificate(path: &Path) -> Result<Certificate, Error> {
    let name = path.display().to_string();
    let parsed = CertificateChain::from_pem_or_der(&content(path)?, &name);
    let unusable = |error: Error| {
        Error::new(Exit::Configuration, error.to_string())
            .help("name a node's certificate, in PEM or DER")
    };
    Ok(parsed.map_err(unusable)?.leaf)
}

/// A key of the token that opens a file.
pub(in crate::cli) struct RecipientKey {
    pub(in crate::cli) key: KeyReference,
    /// The place of the key's recipient in [`SealedFile::recipients`].
    pub(in crate::cli) recipient: usize,
}

/// Finds the first recipient that is a key of the token, by the certificates on it or by `certificateFile`. Logs in
/// only if none is visible without a login, and never without `pins`.
pub(in crate::cli) fn recipient_key(
    token: &mut Token,
    config: &Config,
    file: &SealedFile,
    pins: Option<&mut dyn PinProvider>,
) -> Result<RecipientKey, Error> {
    let selector = &config.object;
    let Some(path) = &config.certificate_file else {
        let recipient = |certificate: &Certificate| file.recipient(&names(certificate));
        // If the options name no object, any may be meant.
        let visible = |token: &Token| token.key_with_certificate(selector, recipient);
        let found = token.visible_or_hidden("the key of a sealed file", pins, visible)?;
        let found = found.ok_or_else(|| no_recipient(token, file))?;
        return Ok(RecipientKey { key: found.key, recipient: found.reason });
    };
    let certificate = certificate(path)?;
    let recipient = file.recipient(&names(&certificate));
    let recipient = recipient.ok_or_else(|| no_recipient(token, file))?;
    let key = if selector.is_given() {
        KeyReference::of_certificate(&certificate, selector, Vec::new())
    } else {
        token.key_of(certificate.public_key(), &certificate.subject, pins)?
    };
    Ok(RecipientKey { key, recipient })
}

fn no_recipient(token: &Token, file: &SealedFile) -> Error {
    let names: Vec<_> = file.recipients.iter().map(|recipient| describe(&recipient.name)).collect();
    let help = "seal the passwords to the certificate of a key of this token, or name the certificate with \
                --certificate-file if the token doesn't hold it; the file is for:";
    let text =
        format!("none of the recipients of {} is a key of token {}", file.name, token.name());
    Error::new(Exit::Object, text).help(Help::from(help).with_candidates(&names))
}

/// Opens the file with a key of the token.
pub(in crate::cli) fn open(
    token: &mut Token,
    file: &SealedFile,
    RecipientKey { key, recipient }: RecipientKey,
    pins: &mut dyn PinProvider,
) -> Result<Registries, Error> {
    let Some(recipient) = file.recipients.get(recipient) else {
        return Err(Error::internal("a recipient that isn't there"));
    };
    let private_key = token.key(key, pins)?;
    let decrypted = token.open(&private_key, &recipient.locked, pins)?;
    file.open(recipient, &decrypted)
}
