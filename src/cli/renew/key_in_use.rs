//! The key of a context, with its token and its cluster: what is read and written there, and whom the cluster
//! takes a certificate's bearer for.

use std::sync::Arc;

use crate::certificate::{Certificate, ValidityState};
use crate::cli::issuance::{IssuanceError, Issued};
use crate::cli::key_options::SelectedContext;
use crate::cluster_api::{Recognition, whoami};
use crate::config::Config;
use crate::enrollment::{intermediates, of_key};
use crate::error::Error;
use crate::keyring::{KeyNumber, Keyring};
use crate::library::LockReports;
use crate::pin::PinProvider;
use crate::pin_entry::Sources;
use crate::pipeline::KeyReference;
use crate::process::environment::TakenVariables;
use crate::process::unix_time;
use crate::protocol::Configuration;
use crate::report;
use crate::token::{FoundKey, Token};
use crate::tunnel::{TunnelObserver, TunnelTarget};

pub(super) struct KeyInUse<'a> {
    pub(super) keyring: &'a Arc<Keyring>,
    pub(super) map: Configuration,
    pub(super) number: KeyNumber,
    pub(super) observer: Arc<dyn TunnelObserver>,
    pub(super) cluster: SelectedContext,
}

impl KeyInUse<'_> {
    /// [`Keyring::with_token`] of this key.
    ///
    /// # Errors
    /// Those of that and of `work`.
    pub(super) fn with_token<T: Send + 'static>(
        &self,
        work: impl FnMut(&mut Token<'_>, &KeyReference, &mut dyn PinProvider) -> Result<T, Error>
        + Send
        + 'static,
    ) -> Result<T, Error> {
        self.keyring.with_token(self.number, Box::new(LockReports), work)
    }

    /// # Errors
    /// The cluster's entry can't be used.
    pub(super) fn target(&self) -> Result<TunnelTarget, Error> {
        let name = &self.cluster.context.cluster;
        Ok(TunnelTarget {
            name: name.clone(),
            cluster: self.cluster.kubeconfig.cluster(name)?,
            heeds_environment: true,
        })
    }

    /// The other certificates of the key on the token that are still valid.
    ///
    /// # Errors
    /// They can't be read.
    pub(super) fn others(&self, present: &Certificate) -> Result<Vec<Certificate>, Error> {
        let (present, now) = (present.clone(), unix_time());
        self.with_token(move |token, _, _| {
            let candidates = token.candidates()?;
            let mut others = of_key(&candidates, present.public_key());
            others.retain(|it| {
                it.der() != present.der() && it.validity.at(now) != ValidityState::Expired
            });
            Ok(others.into_iter().cloned().collect())
        })
    }

    /// The key as the token has it.
    ///
    /// # Errors
    /// It can't be read.
    pub(super) fn found(&self) -> Result<FoundKey, Error> {
        self.with_token(|token, reference, _| {
            let id = reference.id().unwrap_or_default().to_owned();
            let candidates = token.candidates()?;
            let own = candidates.iter().find(|it| it.id == id);
            Ok(FoundKey {
                label: own.map_or_else(String::new, |it| it.label.clone()),
                public_key: reference.public_key().clone(),
                id,
            })
        })
    }

    /// Writes the certificate beside the key, after the login that the token wants for that, and those of the
    /// CAs that it has room for.
    ///
    /// # Errors
    /// Those of the login; the token doesn't take it.
    pub(super) fn write(&self, issued: &Issued, key: FoundKey) -> Result<(), Error> {
        let certificate = issued.certificate.clone();
        let authorities = intermediates(&certificate, &issued.chain);
        let pin = Config::from_map(&mut self.map.clone())?.pin;
        let mut officer = Sources::of_person(&pin);
        self.with_token(move |token, _, pins| {
            let what = format!("to write the certificate of {}", certificate.subject);
            token.reveal_to_write(&what, pins, &mut officer)?;
            if let Some(warning) = token.default_key_warning() {
                report::warning(&warning);
            }
            // First, so that they are there where the certificate is.
            for authority in &authorities {
                token.write_authority(authority)?;
            }
            token.write_certificate(&certificate, &key)
        })
    }

    /// # Errors
    /// The token doesn't remove it, or hasn't the one that stays.
    pub(super) fn remove(
        &self,
        certificate: &Certificate,
        stays: Option<&Certificate>,
    ) -> Result<(), Error> {
        let (certificate, stays) = (certificate.clone(), stays.cloned());
        self.with_token(move |token, _, _| token.remove_certificate(&certificate, stays.as_ref()))
    }

    /// Asks the cluster, with the new certificate, for whom it takes us. `map` names it and its key.
    ///
    /// # Errors
    /// The key can't be used, or the cluster doesn't let it in, or as another user.
    pub(super) fn proof(
        &self,
        mut map: Configuration,
        new: &Certificate,
    ) -> Result<Recognition, Error> {
        let config = Config::from_map(&mut map)?;
        // Its token has accepted the PIN already.
        let key = self.keyring.add(config, &TakenVariables::default())?;
        let open = self.keyring.open(key, Box::new(LockReports))?;
        if open.chain.first().map(Vec::as_slice) != Some(new.der()) {
            return Err(Error::internal("another certificate is taken than the new one"));
        }
        let known = whoami(self.target()?, key, self.keyring, &self.observer)?;
        check_user(&known, new)?;
        Ok(known)
    }
}

/// # Errors
/// [`IssuanceError::KnownAsAnother`]
pub(super) fn check_user(known: &Recognition, certificate: &Certificate) -> Result<(), Error> {
    match (known, certificate.user.as_deref()) {
        (Recognition::User(known), Some(user)) if known.name != user => {
            Err(IssuanceError::KnownAsAnother {
                known: format!("\"{}\"", known.name),
                expected: format!("\"{user}\""),
            }
            .into())
        }
        _ => Ok(()),
    }
}
