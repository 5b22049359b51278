//! The options that name a library, a token and an object, as the keys of a configuration do.

use std::io;

use clap::ValueHint;

use crate::config::{Uri, without_object};
use crate::kubeconfig::SELECTORS;
use crate::protocol::Configuration;

/// Under which `--help` has these options, and others that say which key is meant.
pub(super) const HEADING: &str = "Which key";

/// The path as a configuration wants it, absolute; what was typed may be relative.
pub(super) fn path(value: &str) -> Result<String, io::Error> {
    // Refused later, as an empty path.
    if value.is_empty() {
        return Ok(String::new());
    }
    let absolute = std::path::absolute(value)?;
    let not_text = |_| io::Error::other("the current directory's name is not UTF-8");
    absolute.into_os_string().into_string().map_err(not_text)
}

/// A `pinSource` with an absolute path.
pub(super) fn pin_source(value: &str) -> Result<String, io::Error> {
    match value.strip_prefix("file:") {
        Some(file) => Ok(format!("file:{}", path(file)?)),
        None => Ok(value.to_owned()),
    }
}

#[derive(Clone, Debug, Default, clap::Args)]
pub(super) struct Selection {
    /// The token's PKCS#11 library (pathLib)
    #[arg(long, value_name = "FILE", value_parser = path, help_heading = HEADING, value_hint = ValueHint::FilePath)]
    pub(super) module: Option<String>,
    /// What that library wants at its start, such as NSS's configDir='sql:/path'
    #[arg(long, value_name = "TEXT", help_heading = HEADING)]
    pub(super) init_args: Option<String>,
    /// The slot's number
    #[arg(long, value_name = "NUMBER", help_heading = HEADING)]
    pub(super) slot_id: Option<String>,
    /// The token's label
    #[arg(long, value_name = "LABEL", help_heading = HEADING)]
    pub(super) token_label: Option<String>,
    /// The token's serial number
    #[arg(long, value_name = "SERIAL", help_heading = HEADING)]
    pub(super) token_serial: Option<String>,
    /// The key's CKA_ID: 2, 0x0102 or 01:02
    #[arg(long, value_name = "ID", help_heading = HEADING)]
    pub(super) object_id: Option<String>,
    /// The certificate's label
    #[arg(long, value_name = "LABEL", help_heading = HEADING)]
    pub(super) object_label: Option<String>,
    /// All of it as a pkcs11: URI
    #[arg(long, value_name = "URI", help_heading = HEADING)]
    pub(super) uri: Option<String>,
}

impl Selection {
    /// What it says of library and token.
    pub(super) fn of_token(&self) -> Self {
        let uri = self.uri.as_deref().map(without_object);
        Self { object_id: None, object_label: None, uri, ..self.clone() }
    }

    /// As option, key of the configuration and value.
    fn pairs(&self) -> impl Iterator<Item = (&'static str, &'static str, &str)> {
        let values = [
            &self.module,
            &self.init_args,
            &self.slot_id,
            &self.token_label,
            &self.token_serial,
            &self.object_id,
            &self.object_label,
            &self.uri,
        ];
        let names = SELECTORS.into_iter().chain([("uri", "--uri")]);
        names
            .zip(values)
            .filter_map(|((key, option), value)| Some((option, key, value.as_deref()?)))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pairs().next().is_none()
    }

    pub(super) fn configuration(&self) -> Configuration {
        self.pairs().map(|(_, key, value)| (key, value)).collect()
    }

    /// As options and their values. The URI is printed anew, without a PIN that stands in it; one that can't be read is
    /// left out.
    pub(super) fn options(&self) -> impl Iterator<Item = (&'static str, String)> {
        self.pairs().filter_map(|(option, key, value)| {
            let value = match key {
                "uri" => Uri::parse(value).ok()?.to_string(),
                _ => value.to_owned(),
            };
            Some((option, value))
        })
    }

    /// As arguments for another process of this program.
    pub(super) fn arguments(&self) -> impl Iterator<Item = String> {
        // One word each: a value could begin with a hyphen.
        self.options().map(|(option, value)| format!("{option}={value}"))
    }
}
