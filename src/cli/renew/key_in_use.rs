//! The key of a context, with its token: what is read and written there, and the proof that a certificate of it works.

use std::sync::Arc;

use crate::certificate::{Certificate, ValidityState};
use crate::cli::issuance::{IssuedCertificate, prove};
use crate::cli::key_options::SelectedContext;
use crate::cluster_api::Recognition;
use crate::config::Config;
use crate::enrollment::of_key;
use crate::error::Error;
use crate::keyring::{KeyNumber, Keyring};
use crate::library::note_wait;
use crate::pin::PinProvider;
use crate::process::environment::TakenVariables;
use crate::process::unix_time;
use crate::protocol::Configuration;
use crate::token::{FoundKey, KeyReference, Token};

pub(super) struct KeyInUse<'a> {
    pub(super) keyring: &'a Arc<Keyring>,
    pub(super) map: Configuration,
    pub(super) number: KeyNumber,
    pub(super) context: SelectedContext,
}

impl KeyInUse<'_> {
    /// [`Keyring::with_token`] of this key.
    pub(super) fn with_token<T: Send + 'static>(
        &self,
        work: impl FnMut(&mut Token<'_>, &KeyReference, &mut dyn PinProvider) -> Result<T, Error>
        + Send
        + 'static,
    ) -> Result<T, Error> {
        self.keyring.with_token(self.number, Box::new(note_wait), work)
    }

    /// The other certificates of the key on the token that are still valid.
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

    /// Writes the certificate beside the key, and those of the CAs that the token has room for.
    pub(super) fn write(&self, issued: &IssuedCertificate) -> Result<(), Error> {
        let issued = issued.clone();
        self.with_token(move |token, reference, pins| {
            let id = reference.id().unwrap_or_default().to_owned();
            let candidates = token.candidates()?;
            let own = candidates.iter().find(|it| it.id == id);
            let label = own.map_or_else(String::new, |it| it.label.clone());
            let key = FoundKey { id, label, public_key: reference.public_key().clone() };
            issued.write(token, &key, pins).map(drop)
        })
    }

    /// Removes the certificate, as long as the token has the one that stays.
    pub(super) fn remove(
        &self,
        certificate: &Certificate,
        stays: Option<&Certificate>,
    ) -> Result<(), Error> {
        let (certificate, stays) = (certificate.clone(), stays.cloned());
        self.with_token(move |token, _, _| token.remove_certificate(&certificate, stays.as_ref()))
    }

    /// Has the cluster let in the bearer of the new certificate, as its user. `map` names it and its key.
    pub(super) fn proof(
        &self,
        mut map: Configuration,
        new: &Certificate,
    ) -> Result<Recognition, Error> {
        let config = Config::from_map(&mut map)?;
        // Its token has accepted the PIN already.
        let key = self.keyring.add(config, &TakenVariables::default())?;
        let open = self.keyring.open(key, Box::new(note_wait))?;
        if open.chain.first().map(Vec::as_slice) != Some(new.der()) {
            return Err(Error::internal("another certificate is taken than the new one"));
        }
        prove(&self.context, key, self.keyring, Some(new))
    }
}
