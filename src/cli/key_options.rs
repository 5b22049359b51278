//! The options that say which key a command uses: by themselves, or with a kubeconfig's context.

use std::path::PathBuf;

use clap::ValueHint;

use super::again::Invocation;
use super::completions;
use super::key_choice::{Search, key_configuration, token_configuration};
use super::listing::ListQuery;
use super::selection::{self, HEADING, Selection};
use crate::config::PinSource;
use crate::error::{Error, Kind};
use crate::kubeconfig::{Context, Kubeconfig};
use crate::protocol::Configuration;
use crate::tunnel::TunnelTarget;

#[derive(Debug, Default, clap::Args)]
pub(super) struct KeyOptions {
    #[command(flatten)]
    pub(super) selection: Selection,
    /// All of it as a pkcs11: URI
    #[arg(long, value_name = "URI", help_heading = HEADING)]
    pub(super) uri: Option<String>,
    /// The certificate, for a token that holds none
    #[arg(long, value_name = "FILE", value_parser = selection::path, help_heading = HEADING, value_hint = ValueHint::FilePath)]
    pub(super) certificate_file: Option<String>,
    /// Where the PIN comes from: prompt, askpass, stdin, file:/path or env:NAME
    #[arg(long, value_name = "SOURCE", value_parser = selection::pin_source, help_heading = HEADING)]
    pub(super) pin_source: Option<String>,
    /// The kubeconfig; without it KUBECONFIG, or ~/.kube/config
    #[arg(long, value_name = "FILE")]
    pub(super) kubeconfig: Option<PathBuf>,
    /// The context; without it the current one
    #[arg(long, value_name = "NAME", add = completions::contexts())]
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

impl SelectedContext {
    /// The context's cluster.
    pub(super) fn target(&self) -> Result<TunnelTarget, Error> {
        let name = &self.context.cluster;
        Ok(TunnelTarget::new(name.clone(), self.kubeconfig.cluster(name)?))
    }
}

impl KeyOptions {
    /// For what remedies say.
    pub(super) fn invocation(&self) -> Invocation<'_> {
        Invocation {
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
    pub(super) fn source(&self) -> Result<KeySource, Error> {
        if self.names_a_key() {
            return Ok(self.options_source());
        }
        self.source_of_context()
    }

    /// The key of the context's user.
    pub(super) fn source_of_context(&self) -> Result<KeySource, Error> {
        let selected = self.selected()?;
        let configuration = selected.kubeconfig.key_of(&selected.context)?;
        Ok(KeySource { configuration: self.overridden(configuration), context: Some(selected) })
    }

    /// [`Self::source`]; where nothing names a key, what is to be [completed](Self::complete), and why the
    /// current context names none.
    pub(super) fn source_if_any(&self) -> Result<(KeySource, Option<Error>), Error> {
        let is_named = self.context.is_some() || self.kubeconfig.is_some();
        match self.source() {
            Ok(source) => Ok((source, None)),
            Err(error) if error.is(Kind::NoContextKey) && !is_named => {
                Ok((self.options_source(), Some(error)))
            }
            Err(error) => Err(error),
        }
    }

    /// What the options say of the key.
    pub(super) fn options_source(&self) -> KeySource {
        let uri = ("uri", self.uri.as_deref());
        KeySource {
            configuration: self.overridden(self.selection.configuration([uri])),
            context: None,
        }
    }

    /// The selected context, with its kubeconfig.
    pub(super) fn selected(&self) -> Result<SelectedContext, Error> {
        let kubeconfig = self.kubeconfig()?;
        let context = kubeconfig.selected_context()?;
        Ok(SelectedContext { kubeconfig, context })
    }

    /// The kubeconfig, with the selected context as its current one.
    pub(super) fn kubeconfig(&self) -> Result<Kubeconfig, Error> {
        let locations = super::locations(self.kubeconfig.as_deref());
        let mut kubeconfig = super::load(&locations.required())?;
        if let Some(name) = &self.context {
            kubeconfig.set_current_context(name)?;
        }
        Ok(kubeconfig)
    }

    /// What there is of what the options name, without a login.
    pub(super) fn query(&self, verbosity: u8) -> ListQuery<'_> {
        ListQuery { selection: &self.selection, uri: self.uri.as_deref(), login: None, verbosity }
    }

    /// Adds what the options don't say of library, token and key, if there is only one or a person picks
    /// one. Returns the URI of the key, or `None` if nothing was missing.
    pub(super) fn complete(
        &self,
        map: &mut Configuration,
        verbosity: u8,
    ) -> Result<Option<String>, Error> {
        let query = self.query(verbosity);
        let named = query.filter()?;
        let is_whole = named.library.is_some() && named.token.is_given() && named.object.is_given();
        if is_whole {
            return Ok(None);
        }
        let has_certificate = self.certificate_file.is_some();
        let search = Search { query, wanted: named.object, has_certificate };
        let mut opened = None;
        let listing = search.look(&mut opened);
        if let Some(library) = opened {
            library.close();
        }
        let listing = listing?;
        // If there is only one key, its use says what is wrong with it.
        let mut keys = listing.keys();
        let only_key = keys.next().filter(|_| keys.next().is_none());
        let chosen = search.choose(&listing).or_else(|error| match error.is(Kind::NoUsableKey) {
            true => only_key.ok_or(error),
            false => Err(error),
        });
        let (config, uri) = match (chosen, listing.only_token()) {
            (Ok(chosen @ (_, _, key)), _) => {
                (key_configuration(None, chosen, None), key.uri.clone())
            }
            // The token may hide the key.
            (Err(error), Some((library, token))) if error.is(Kind::NoneFits) => {
                (token_configuration(library, token), format!("token {}", token.name()))
            }
            (Err(error), _) => return Err(error),
        };
        for (key, value) in config.pairs() {
            if key != "pathExec" && !map.has(key) {
                map.set(key, value);
            }
        }
        Ok(Some(uri))
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
