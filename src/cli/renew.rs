//! `renew`: a new certificate for the same key, asked for with the one that is about to expire.
//!
//! The present certificate is removed only after the new one was read back from the token and the cluster has let it
//! in. What was done is read from the token and the cluster, so that the same command goes on after an interruption.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::connection::connect;
use super::issuance::{
    EarlierRequest, Issuance, IssuanceOptions, IssuedCertificate, attestation_from_file,
    file_error, replace_file,
};
use super::key::choice::WholeSource;
use super::key::options::{KeyOptions, KeySource, SelectedContext};
use super::question::confirm;
use super::session::{CommandSession, StartingSession, Step};
use crate::enrollment::{Applicant, KeyAttestation, of_key, sign_request};
use attestation::AttestationBundle;
use cluster_api::{ClusterUser, TokenConnection};
use config::Config;
use crypto::certificate::{Certificate, ValidityState, minute};
use keyring::{KeyNumber, Keyring, OpenKey, OpenKeys as _};
use messages::error::{Error, Exit};
use messages::printable::printable;
use messages::report;
use protocol::Configuration;
use system::clock::unix_time;
use system::environment::TakenVariables;
use token::{Candidate, KeyPurpose};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  pkcs11-external-signer renew                # the key of the current context
  pkcs11-external-signer renew --context prod

The request is sent with the present certificate, and somebody has to approve it: send an approver the command that is printed. You can leave, and continue later with the same command. The present certificate stays until the cluster has accepted the new one.")]
pub(super) struct RenewArguments {
    #[command(flatten)]
    key: KeyOptions,
    /// Don't put a YubiKey's attestation (serial number, firmware, policies) into the request
    #[arg(long, hide_short_help = true)]
    no_attestation: bool,
    /// Put the attestation in this file into the request: what `ykman piv keys attest` writes, then what `ykman piv
    /// certificates export f9` does; for a TPM see docs/tpm.md
    #[arg(long, value_name = "FILE", conflicts_with = "no_attestation", hide_short_help = true)]
    attestation: Option<PathBuf>,
    #[command(flatten)]
    issuance: IssuanceOptions,
}

pub(super) fn run(arguments: &RenewArguments, start: StartingSession<'_>) -> Result<(), Error> {
    arguments.key.set_call();
    let WholeSource { source, variables, session } = arguments.key.whole_source(false, start)?;
    let renewal = Renewal::prepare(arguments, source, &variables, session)?;
    if renewal.finish_earlier(session)? {
        return Ok(());
    }
    renewal.renew(arguments, session)
}

/// A certificate that is to be renewed, with its key, which is open, and the cluster that accepts it.
struct Renewal {
    key: KeyInUse,
    open: Arc<OpenKey>,
    present: Certificate,
    applicant: Applicant,
    /// How long the new certificate is to be valid; `None` leaves that to the signer.
    duration: Option<Duration>,
    api: TokenConnection,
    /// The URL of the cluster's API server, for messages.
    server: String,
}

impl Renewal {
    /// Opens the key of this source. The cluster isn't asked yet.
    fn prepare(
        arguments: &RenewArguments,
        source: KeySource,
        variables: &TakenVariables,
        session: &CommandSession,
    ) -> Result<Self, Error> {
        let keyring = session.keyring();
        let context = match source.context {
            Some(context) => context,
            None => arguments.key.selected()?,
        };
        let configuration = source.configuration;
        let number = keyring.add(Config::from_map(&mut configuration.clone())?, variables)?;
        let open = keyring.open(number, None)?;
        // The warnings say that the certificate expires soon, which is about to be mended.
        let _ = open.take_warnings();
        let der =
            open.chain.first().ok_or_else(|| Error::internal("a key without a certificate"))?;
        let present = Certificate::from_der(der, "the certificate")?;
        let applicant = applicant(&present)?;
        let target = context.target()?;
        let server = target.cluster.server.clone();
        let api = connect(target, number, keyring.clone())?;
        let key = KeyInUse { keyring, configuration, number, context };
        let duration = arguments.issuance.duration;
        Ok(Self { key, open, present, applicant, duration, api, server })
    }

    /// What is asked for, with this attestation of the key.
    fn issuance<'a>(&'a self, attestation: Option<&'a AttestationBundle>) -> Issuance<'a> {
        Issuance {
            api: &self.api,
            applicant: &self.applicant,
            public_key: self.present.public_key(),
            duration: self.duration,
            renewed: Some(&self.present),
            attestation,
        }
    }

    /// Removes the certificate that the present one was issued to replace, if an earlier call was interrupted before it
    /// did that. Returns whether one was removed.
    fn finish_earlier(&self, session: &mut CommandSession) -> Result<bool, Error> {
        let Self { key, present, .. } = self;
        let Some(old) = key.renewed_before(present, &self.issuance(None))? else {
            return Ok(false);
        };
        let known = self.api.whoami()?;
        check_user(&known, present)?;
        confirm_issuer(&old, present)?;
        key.remove(&old, present)?;
        show_renewed(present, &known, &self.server, session)?;
        Ok(true)
    }

    /// Has a new certificate issued, and puts it in the place of the present one.
    fn renew(&self, arguments: &RenewArguments, session: &mut CommandSession) -> Result<(), Error> {
        let attestation = self.attestation(arguments)?;
        if let Some(known) = &attestation {
            session.output.step(&Step { title: "attestation", text: known.disclosure() })?;
        }
        let bundle = attestation.map(|known| known.bundle);
        let sign = || self.sign_request(bundle.as_ref());
        let issuance = self.issuance(bundle.as_ref());
        let issued = issuance.obtain(&arguments.issuance, &mut session.output, sign)?;
        confirm_issuer(&self.present, &issued.certificate)?;
        let known = self.key.replace(&self.present, &issued)?;
        show_renewed(&issued.certificate, &known, &self.server, session)
    }

    /// What the request says of where the key was made.
    fn attestation(&self, arguments: &RenewArguments) -> Result<Option<KeyAttestation>, Error> {
        match &arguments.attestation {
            Some(file) => attestation_from_file(file, self.present.public_key()).map(Some),
            None if arguments.no_attestation => Ok(None),
            None => self.key.attestation(),
        }
    }

    /// The request for the new certificate, signed with the key, in PEM.
    fn sign_request(&self, attestation: Option<&AttestationBundle>) -> Result<String, Error> {
        let KeyInUse { keyring, number, .. } = &self.key;
        sign_request(
            KeyPurpose::Signing,
            attestation,
            &self.applicant,
            self.present.public_key(),
            &self.open.schemes,
            |scheme, digest| keyring.sign(*number, scheme, digest.to_owned()),
        )
    }
}

/// The user and groups that the next certificate is for, which are those of the present one.
fn applicant(present: &Certificate) -> Result<Applicant, Error> {
    let user = present.user.clone().unwrap_or_default();
    Applicant::new(user, present.groups.clone()).map_err(|error| {
        error.help(
            "no cluster can issue such a certificate: have whoever issued this one issue the next one, \
             or ask for one with other names (`enroll`, --user, --group)",
        )
    })
}

/// Shows the new certificate, and which user the cluster at `server` sees by it.
fn show_renewed(
    certificate: &Certificate,
    known: &ClusterUser,
    server: &str,
    session: &mut CommandSession,
) -> Result<(), Error> {
    let text = format!(
        "of {}, expires {}, {}",
        certificate.subject,
        minute(certificate.validity.not_after),
        certificate.credential_id()
    );
    session.output.step(&Step { title: "certificate", text })?;
    session.output.step(&Step { title: "cluster", text: known.describe(server) })
}

/// Has a person confirm that a certificate is replaced by one of another issuer: other clusters may accept only the
/// first one.
fn confirm_issuer(old: &Certificate, new: &Certificate) -> Result<(), Error> {
    if old.issuer_text == new.issuer_text {
        return Ok(());
    }
    let until = minute(old.validity.not_after);
    let what = format!(
        "the certificate of {} that {} has issued (serial number {}, until {until})",
        old.subject, old.issuer_text, old.serial_number
    );
    let question = format!("Replace {what} by one of {}", new.issuer_text);
    confirm(&what, &printable(&question))
}

/// A context's key on its token, and the place of its certificate, which the next certificate takes once the cluster has
/// let its bearer in.
struct KeyInUse {
    keyring: Arc<Keyring>,
    configuration: Configuration,
    number: KeyNumber,
    context: SelectedContext,
}

impl KeyInUse {
    /// Finds the certificate that the present one was issued to replace, if it is still on the token: an earlier call
    /// may have been interrupted before it removed what it had renewed.
    fn renewed_before(
        &self,
        present: &Certificate,
        issuance: &Issuance<'_>,
    ) -> Result<Option<Certificate>, Error> {
        for old in self.others(present)? {
            let earlier = Issuance { renewed: Some(&old), ..*issuance };
            // An earlier request that was denied or has failed doesn't keep another one from being made.
            if let Ok(EarlierRequest::Issued(_, issued)) = earlier.find(false)
                && issued.certificate.der() == present.der()
            {
                return Ok(Some(old));
            }
        }
        Ok(None)
    }

    /// The other certificates of the key on the token that are still valid.
    fn others(&self, present: &Certificate) -> Result<Vec<Certificate>, Error> {
        let present = present.clone();
        let now = unix_time();
        self.keyring.with_token(self.number, move |token, _, _| {
            let candidates = token.candidates()?;
            let mut others = of_key(&candidates, present.public_key());
            others.retain(|other| {
                other.der() != present.der() && other.validity.at(now) != ValidityState::Expired
            });
            Ok(others.into_iter().cloned().collect())
        })
    }

    /// What the token says of where the key was made.
    fn attestation(&self) -> Result<Option<KeyAttestation>, Error> {
        self.keyring.with_token(self.number, |token, reference, _| {
            Ok(KeyAttestation::of(token, &reference.selector))
        })
    }

    /// Writes the certificate beside the key, and as many of its CAs' certificates as the token has room for.
    fn write(&self, issued: &IssuedCertificate) -> Result<(), Error> {
        let issued = issued.clone();
        self.keyring.with_token(self.number, move |token, reference, pins| {
            let candidates = token.candidates()?;
            let public_key = Some(issued.certificate.public_key());
            let is_key = |candidate: &&Candidate| {
                candidate.id == reference.id && candidate.public_key.as_ref() == public_key
            };
            let label = candidates.iter().find(is_key).map(|candidate| candidate.label.clone());
            let mut key = reference.clone();
            key.label = label.unwrap_or_default();
            issued.write(token, &key, pins).map(drop)
        })
    }

    /// Removes the certificate, provided that the token has the one that stays.
    fn remove(&self, certificate: &Certificate, stays: &Certificate) -> Result<(), Error> {
        let certificate = certificate.clone();
        let stays = stays.clone();
        self.keyring.with_token(self.number, move |token, _, _| {
            token.remove_certificate(&certificate, &stays)
        })
    }

    /// Fails unless the cluster lets in the bearer of the new certificate, as its user. `configuration` names the
    /// certificate and its key.
    fn proof(
        &self,
        mut configuration: Configuration,
        new: &Certificate,
    ) -> Result<ClusterUser, Error> {
        let config = Config::from_map(&mut configuration)?;
        // The token has accepted the key's PIN already.
        let key = self.keyring.add(config, &TakenVariables::default())?;
        let open = self.keyring.open(key, None)?;
        if open.chain.first().map(Vec::as_slice) != Some(new.der()) {
            return Err(Error::internal("another certificate is taken than the new one"));
        }
        let known = connect(self.context.target()?, key, self.keyring.clone())?.whoami()?;
        check_user(&known, new)?;
        Ok(known)
    }

    /// Puts the new certificate in the place of the present one, once the cluster has let it in.
    fn replace(
        &self,
        present: &Certificate,
        issued: &IssuedCertificate,
    ) -> Result<ClusterUser, Error> {
        let file = Config::from_map(&mut self.configuration.clone())?.certificate_file;
        if file.is_none() && self.has_room()? {
            self.replace_beside(present, issued)
        } else {
            self.replace_after_proof(file.as_deref(), issued)
        }
    }

    /// Whether the token has room for a second certificate of the key. A slot of a PIV card holds only one.
    fn has_room(&self) -> Result<bool, Error> {
        self.keyring.with_token(self.number, |token, _, _| {
            Ok(!token.state().is_yubikey() && !token.state().is_piv_of_opensc())
        })
    }

    /// Writes the new certificate beside the present one, and removes one of the two: the new one if the cluster doesn't
    /// let it in.
    fn replace_beside(
        &self,
        present: &Certificate,
        issued: &IssuedCertificate,
    ) -> Result<ClusterUser, Error> {
        self.write(issued)?;
        match self.proof(self.configuration.clone(), &issued.certificate) {
            Ok(known) => {
                self.remove(present, &issued.certificate)?;
                Ok(known)
            }
            Err(refused) => {
                if let Err(error) = self.remove(&issued.certificate, present) {
                    report::warning(&format!(
                        "the new certificate, which the cluster has not let in, stays on the token: {error}"
                    ));
                }
                Err(refused)
            }
        }
    }

    /// Keeps the new certificate in a file of this user's until the cluster has let it in. Then puts it in the place of
    /// the present one: in `file`, or on the token.
    fn replace_after_proof(
        &self,
        file: Option<&Path>,
        issued: &IssuedCertificate,
    ) -> Result<ClusterUser, Error> {
        let kept = issued.keep(None)?;
        let mut configuration = self.configuration.clone();
        configuration.set("certificateFile", &kept.to_string_lossy());
        let proof = self.proof(configuration, &issued.certificate);
        if proof.is_ok() {
            let replaced = match file {
                Some(file) => replace_file(file, &issued.pem()?),
                None => self.write(issued),
            };
            replaced.inspect_err(|_| {
                report::note(&format!(
                    "the cluster has let the new certificate in; it stays in {}",
                    kept.display()
                ));
            })?;
        }
        match (fs::remove_file(&kept), proof) {
            (Err(error), Ok(_)) => Err(file_error(&kept, error)),
            (Err(error), Err(refused)) => {
                report::warning(&format!(
                    "the new certificate, which the cluster has not let in, stays in {}: {error}",
                    kept.display()
                ));
                Err(refused)
            }
            (Ok(()), proof) => proof,
        }
    }
}

/// Fails unless the cluster knows the bearer of the certificate as its user.
fn check_user(known: &ClusterUser, certificate: &Certificate) -> Result<(), Error> {
    match certificate.user.as_deref() {
        Some(user) if known.name != user => {
            let text = format!("the cluster knows us as \"{}\", not as \"{user}\"", known.name);
            Err(Error::new(Exit::Cluster, text).help(
                "nothing was removed; have the administrators check how the API server authenticates client \
                 certificates",
            ))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, KeyPair};

    use super::*;

    #[test]
    fn who_can_not_be_asked_for_is_told_with_what_can_be_done() {
        let pair = KeyPair::generate().unwrap();
        let mut parameters = CertificateParams::default();
        parameters.distinguished_name.push(DnType::CommonName, "jane");
        parameters.distinguished_name.push(DnType::OrganizationName, "");
        let certificate = parameters.self_signed(&pair).unwrap();
        let certificate = Certificate::from_der(certificate.der(), "it").unwrap();
        let error = applicant(&certificate).unwrap_err();
        assert_eq!(error.to_string(), "the group's name can't be used: it is empty");
        let remedy = error.remedy().to_string();
        assert!(remedy.contains("issue the next one"), "{remedy}");
    }
}
