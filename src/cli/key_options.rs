//! The options that say which key a command uses: by themselves, or with a kubeconfig's context.

use std::path::PathBuf;

use super::again::Invocation;
use super::completions::values;
use super::selection::{self, HEADING, Selection};
use crate::config::PinSource;
use crate::error::Error;
use crate::kubeconfig::{Context, Kubeconfig};
use crate::protocol::Configuration;

#[derive(Debug, Default, clap::Args)]
pub(super) struct KeyOptions {
    #[command(flatten)]
    pub(super) selection: Selection,
    /// All of it as a pkcs11: URI
    #[arg(long, value_name = "URI", help_heading = HEADING)]
    pub(super) uri: Option<String>,
    /// The certificate, for a token that holds none
    #[arg(long, value_name = "FILE", value_parser = selection::path, help_heading = HEADING, add = values::files())]
    pub(super) certificate_file: Option<String>,
    /// Where the PIN comes from: prompt, askpass, stdin, file:/path or env:NAME
    #[arg(long, value_name = "SOURCE", value_parser = selection::pin_source, help_heading = HEADING, add = values::pin_sources())]
    pub(super) pin_source: Option<String>,
    /// The kubeconfig; without it KUBECONFIG, or ~/.kube/config
    #[arg(long, value_name = "FILE", add = values::files())]
    pub(super) kubeconfig: Option<PathBuf>,
    /// The context; without it the current one
    #[arg(long, value_name = "NAME", add = values::contexts())]
    pub(super) context: Option<String>,
}

/// A key's configuration, and where it comes from.
pub(super) struct KeySource {
    pub(super) configuration: Configuration,
    /// `None` if the options name the key.
    pub(super) context: Option<SelectedContext>,
}

/// The context that `--context` names, or the current one.
pub(super) struct SelectedContext {
    pub(super) kubeconfig: Kubeconfig,
    pub(super) context: Context,
}

impl KeyOptions {
    /// For what remedies say.
    pub(super) fn invocation<'a>(&'a self, command: &'a str) -> Invocation<'a> {
        Invocation {
            command,
            selection: Some(&self.selection),
            uri: self.uri.as_deref(),
            certificate_file: self.certificate_file.as_deref(),
            pin_source: self.pin_source.as_deref(),
            kubeconfig: self.kubeconfig.as_deref(),
            context: self.context.clone(),
        }
    }

    /// Rather than have a context name it.
    pub(super) fn names_a_key(&self) -> bool {
        !self.selection.is_empty() || self.uri.is_some()
    }

    /// The key of the options or, if they name none, that of the context's user.
    ///
    /// # Errors
    /// Those of [`Self::selected`], and a context whose user isn't one of this program.
    pub(super) fn source(&self) -> Result<KeySource, Error> {
        if self.names_a_key() {
            return Ok(self.own_source());
        }
        let selected = self.selected()?;
        let configuration = selected.kubeconfig.key_of(&selected.context)?;
        Ok(KeySource {
            configuration: self.overridden(configuration),
            context: Some(selected),
        })
    }

    /// What the options say of the key.
    pub(super) fn own_source(&self) -> KeySource {
        let uri = ("uri", self.uri.as_deref());
        KeySource {
            configuration: self.overridden(self.selection.configuration([uri])),
            context: None,
        }
    }

    /// The context that is meant, with its kubeconfig.
    ///
    /// # Errors
    /// Those of [`Self::kubeconfig`], and a kubeconfig without a current context.
    pub(super) fn selected(&self) -> Result<SelectedContext, Error> {
        let kubeconfig = self.kubeconfig()?;
        let context = kubeconfig.selected_context()?;
        Ok(SelectedContext {
            kubeconfig,
            context,
        })
    }

    /// The kubeconfig, with the context that is meant as its current one.
    ///
    /// # Errors
    /// There is none, it can't be read, or it has no context of that name.
    pub(super) fn kubeconfig(&self) -> Result<Kubeconfig, Error> {
        let locations = super::locations(self.kubeconfig.as_deref());
        let mut kubeconfig = super::load(&locations.required())?;
        if let Some(name) = &self.context {
            kubeconfig.set_current_context(name)?;
        }
        Ok(kubeconfig)
    }

    fn overridden(&self, mut configuration: Configuration) -> Configuration {
        if let Some(path) = &self.certificate_file {
            configuration.set("certificateFile", path);
        }
        if let Some(source) = &self.pin_source {
            PinSource::override_in(&mut configuration, source);
        }
        configuration
    }
}
