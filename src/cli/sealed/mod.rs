//! What the commands for sealed files share: reading and writing them.

#![forbid(unsafe_code)]

mod error;
mod opening;

use std::io::Read as _;
use std::path::{Path, PathBuf};

pub(super) use error::SealedCommandError;
pub(super) use opening::{FileOpener, library};

use super::again::Invocation;
use super::completions::values;
use super::selection::{self, HEADING, Selection};
use crate::config::PinSource;
use crate::protocol::Configuration;

use crate::certificate::{Certificate, CertificateError};
use crate::error::Error;
use crate::process::open_regular;
use crate::sealed::{LONGEST_FILE, SealedFile};

/// The options that say with which token files are opened. Which key of it follows from the file.
#[derive(Debug, Default, clap::Args)]
pub(super) struct OpeningOptions {
    #[command(flatten)]
    selection: Selection,
    /// All of it as a pkcs11: URI
    #[arg(long, value_name = "URI", help_heading = HEADING)]
    uri: Option<String>,
    /// The key's certificate, for a token that holds none
    #[arg(long, value_name = "FILE", value_parser = selection::path, help_heading = HEADING, add = values::files())]
    certificate_file: Option<String>,
}

/// The options that kubelet runs the provider with.
#[derive(Debug, clap::Args)]
pub(super) struct ProviderOptions {
    /// A file that `seal` has made; may be repeated
    #[arg(long, value_name = "FILE", required = true, add = values::files())]
    pub(super) sealed: Vec<PathBuf>,
    #[command(flatten)]
    pub(super) opening: OpeningOptions,
    /// Where the PIN comes from: file:/path or env:NAME
    #[arg(long, value_name = "SOURCE", value_parser = selection::pin_source, add = values::pin_sources())]
    pub(super) pin_source: Option<String>,
}

impl OpeningOptions {
    pub(super) fn is_empty(&self) -> bool {
        self.selection.is_empty() && self.uri.is_none() && self.certificate_file.is_none()
    }

    /// For what remedies say.
    pub(super) fn invocation<'a>(&'a self, pin_source: Option<&'a str>) -> Invocation<'a> {
        Invocation {
            selection: Some(&self.selection),
            uri: self.uri.as_deref(),
            certificate_file: self.certificate_file.as_deref(),
            pin_source,
            ..Invocation::default()
        }
    }

    pub(super) fn configuration(&self, pin_source: Option<&str>) -> Configuration {
        let mut map = self.selection.configuration([
            ("uri", self.uri.as_deref()),
            ("certificateFile", self.certificate_file.as_deref()),
        ]);
        if let Some(source) = pin_source {
            PinSource::override_in(&mut map, source);
        }
        map
    }

    /// As arguments for this program.
    pub(super) fn arguments(&self) -> Vec<String> {
        let selection = self.selection.arguments();
        let mut arguments: Vec<_> = selection.filter_map(|it| it.into_string().ok()).collect();
        let more = [("--uri", &self.uri), ("--certificate-file", &self.certificate_file)];
        for (option, value) in more {
            arguments.extend(value.iter().map(|value| format!("{option}={value}")));
        }
        arguments
    }
}

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
    let unreadable =
        |reason: String| SealedCommandError::Unreadable { path: path.to_owned(), reason };
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
