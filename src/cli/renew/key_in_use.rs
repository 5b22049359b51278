//! The key of a context, with its token, and where its certificate is: how the successor takes that place, in the end,
//! when the cluster has let it in.

use std::fs;
use std::sync::Arc;

use crate::certificate::{Certificate, ValidityState};
use crate::cli::connection::connect;
use crate::cli::issuance::{IssuedCertificate, file_error, replace_file};
use crate::cli::key_options::SelectedContext;
use crate::cluster_api::ClusterUser;
use crate::config::Config;
use crate::enrollment::of_key;
use crate::error::{Error, Exit};
use crate::keyring::{KeyNumber, Keyring};
use crate::process::environment::TakenVariables;
use crate::process::unix_time;
use crate::protocol::Configuration;
use crate::report;

pub(super) struct KeyInUse<'a> {
    pub(super) keyring: &'a Arc<Keyring>,
    pub(super) map: Configuration,
    pub(super) number: KeyNumber,
    pub(super) context: SelectedContext,
}

impl KeyInUse<'_> {
    /// The other certificates of the key on the token that are still valid.
    pub(super) fn others(&self, present: &Certificate) -> Result<Vec<Certificate>, Error> {
        let (present, now) = (present.clone(), unix_time());
        self.keyring.with_token(self.number, move |token, _, _| {
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
        self.keyring.with_token(self.number, move |token, reference, pins| {
            let candidates = token.candidates()?;
            let candidate = candidates.iter().find(|it| it.id == reference.id);
            let mut key = reference.clone();
            key.label = candidate.map_or_else(String::new, |it| it.label.clone());
            issued.write(token, &key, pins).map(drop)
        })
    }

    /// Removes the certificate, as long as the token has the one that stays.
    pub(super) fn remove(
        &self,
        certificate: &Certificate,
        stays: &Certificate,
    ) -> Result<(), Error> {
        let (certificate, stays) = (certificate.clone(), stays.clone());
        self.keyring.with_token(self.number, move |token, _, _| {
            token.remove_certificate(&certificate, &stays)
        })
    }

    /// Has the cluster let in the bearer of the new certificate, as its user. `map` names it and its key.
    pub(super) fn proof(
        &self,
        mut map: Configuration,
        new: &Certificate,
    ) -> Result<ClusterUser, Error> {
        let config = Config::from_map(&mut map)?;
        // Its token has accepted the PIN already.
        let key = self.keyring.add(config, &TakenVariables::default())?;
        let open = self.keyring.open(key, None)?;
        if open.chain.first().map(Vec::as_slice) != Some(new.der()) {
            return Err(Error::internal("another certificate is taken than the new one"));
        }
        let known = connect(self.context.target()?, key, self.keyring)?.whoami()?;
        check_user(&known, new)?;
        Ok(known)
    }

    /// Has the cluster let the new certificate in, and puts it in the place of the present one.
    pub(super) fn replace(
        &self,
        present: &Certificate,
        issued: &IssuedCertificate,
    ) -> Result<ClusterUser, Error> {
        let file = Config::from_map(&mut self.map.clone())?.certificate_file;
        if let Some(file) = file {
            return self.prove_and_replace(issued, || replace_file(&file, &issued.pem()?));
        }
        let has_slots = self.keyring.with_token(self.number, |token, _, _| {
            Ok(token.state().is_yubikey() || token.state().is_piv_of_opensc())
        })?;
        if has_slots {
            // What is in the slot is lost.
            return self.prove_and_replace(issued, || self.write(issued));
        }
        self.write(issued)?;
        let proof = self.proof(self.map.clone(), &issued.certificate);
        let (old, stays) = match &proof {
            Ok(_) => (present, &issued.certificate),
            Err(_) => (&issued.certificate, present),
        };
        self.remove(old, stays)?;
        proof
    }

    /// Has the cluster let the new certificate in before it takes the place of the present one: from a file of this
    /// user's own, which stays until then.
    fn prove_and_replace(
        &self,
        issued: &IssuedCertificate,
        replace: impl FnOnce() -> Result<(), Error>,
    ) -> Result<ClusterUser, Error> {
        let path = issued.keep(None)?;
        let mut map = self.map.clone();
        map.set("certificateFile", &path.to_string_lossy());
        let proof = self.proof(map, &issued.certificate);
        if proof.is_ok() {
            let file = path.display();
            let stays = format!("the cluster has let the new certificate in; it stays in {file}");
            replace().inspect_err(|_| report::note(&stays))?;
        }
        fs::remove_file(&path).map_err(|error| file_error(&path, error))?;
        proof
    }
}

/// Whether the cluster knows the bearer by the certificate's user.
pub(super) fn check_user(known: &ClusterUser, certificate: &Certificate) -> Result<(), Error> {
    match certificate.user.as_deref() {
        Some(user) if known.name != user => {
            let text = format!("the cluster knows us as \"{}\", and not as \"{user}\"", known.name);
            Err(Error::new(Exit::Cluster, text).help(
                "nothing was removed; have the administrators look at how the API server authenticates client \
                 certificates",
            ))
        }
        _ => Ok(()),
    }
}
