//! `renew`: a new certificate for the same key, asked for with the one that is about to expire.
//!
//! The present certificate is removed only after the new one was read back from the token and the cluster has let it
//! in. What was done is read from the token and the cluster, so that the same command goes on after an interruption.

use std::fs;
use std::sync::Arc;

use super::connection::connect;
use super::issuance::{Issuance, IssuanceOptions, IssuedCertificate, file_error, replace_file};
use super::key_options::{KeyOptions, KeySource, SelectedContext};
use super::question::confirm;
use super::session::CommandSession;
use crate::certificate::{Certificate, ValidityState, minute};
use crate::cluster_api::ClusterUser;
use crate::config::Config;
use crate::enrollment::{Applicant, of_key, sign_request};
use crate::error::{Error, Exit};
use crate::keyring::{KeyNumber, Keyring, OpenKeys as _};
use crate::printable::{PrintableLines, printable};
use crate::process::environment::TakenVariables;
use crate::process::unix_time;
use crate::protocol::Configuration;
use crate::report;
use crate::token::{Candidate, KeyPurpose};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  pkcs11-external-signer renew                # the key of the current context
  pkcs11-external-signer renew --context prod

The request is made with the present certificate, and a person has to approve it: the command to type is
printed. Left before that, the same command goes on later. The present certificate stays until the
cluster has let the new one in.")]
pub(super) struct RenewArguments {
    #[command(flatten)]
    key: KeyOptions,
    #[command(flatten)]
    issuance: IssuanceOptions,
}

pub(super) fn run(arguments: &RenewArguments, session: &mut CommandSession) -> Result<(), Error> {
    arguments.key.set_call();
    let (source, variables) = arguments.key.whole_source(false, session)?;
    let keyring = &session.keyring();
    let output = &mut session.output;
    let KeySource { configuration: map, context, .. } = source;
    let context = context.map_or_else(|| arguments.key.selected(), Ok)?;
    let number = keyring.add(Config::from_map(&mut map.clone())?, &variables)?;
    let open = keyring.open(number, None)?;
    // What is being done needn't be said.
    let _ = open.take_warnings();
    let der = open.chain.first().map(Vec::as_slice).unwrap_or_default();
    let present = Certificate::from_der(der, "the certificate")?;
    let applicant = applicant(&present)?;
    let target = context.target()?;
    let server = target.cluster.server.clone();
    let api = connect(target, number, keyring.clone())?;
    let key = KeyInUse { keyring, map, number, context };
    let (public_key, options, applicant) = (present.public_key(), &arguments.issuance, &applicant);
    let (api, duration) = (&api, options.duration);
    let issuance = Issuance { api, applicant, public_key, duration, renewed: Some(&present) };
    // An earlier call may have been interrupted before it removed what it had renewed.
    for old in key.others(&present)? {
        let found = Issuance { renewed: Some(&old), ..issuance }.find(false);
        let issued = found.ok().and_then(|(_, found)| found?.1);
        if issued.is_some_and(|it| it.certificate.der() == present.der()) {
            let known = api.whoami()?;
            check_user(&known, &present)?;
            confirm_issuer(&old, &present)?;
            key.remove(&old, &present)?;
            return output.print(&renewed(&present, &known, &server));
        }
    }
    let issued = issuance.obtain(options, || {
        sign_request(KeyPurpose::Signing, applicant, public_key, &open.schemes, |scheme, digest| {
            keyring.sign(number, scheme, digest.to_owned())
        })
    })?;
    confirm_issuer(&present, &issued.certificate)?;
    let known = key.replace(&present, &issued)?;
    output.print(&renewed(&issued.certificate, &known, &server))
}

/// Whom the next certificate is for: the same user and groups.
fn applicant(present: &Certificate) -> Result<Applicant, Error> {
    let user = present.user.clone().unwrap_or_default();
    Applicant::new(user, present.groups.clone()).map_err(|error| {
        error.help(
            "no cluster can be asked for the same once more: have whoever has issued this certificate issue the next one, \
             or ask for one with other names (`enroll`, --user, --group)",
        )
    })
}

/// What was done.
fn renewed(certificate: &Certificate, known: &ClusterUser, server: &str) -> PrintableLines {
    let expiry = minute(certificate.validity.not_after);
    let Certificate { subject, .. } = certificate;
    let id = certificate.credential_id();
    let renewed = format!("the certificate of {subject} is renewed: it expires {expiry}, {id}");
    PrintableLines::of([renewed, known.describe(server)])
}

/// Has a person confirm that a certificate goes for one of another issuer: other clusters may take the first one alone.
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

/// The key of a context, with its token, and where its certificate is: how the successor takes that place, in the end,
/// when the cluster has let it in.
struct KeyInUse<'a> {
    keyring: &'a Arc<Keyring>,
    map: Configuration,
    number: KeyNumber,
    context: SelectedContext,
}

impl KeyInUse<'_> {
    /// The other certificates of the key on the token that are still valid.
    fn others(&self, present: &Certificate) -> Result<Vec<Certificate>, Error> {
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
    fn write(&self, issued: &IssuedCertificate) -> Result<(), Error> {
        let issued = issued.clone();
        self.keyring.with_token(self.number, move |token, reference, pins| {
            let candidates = token.candidates()?;
            let public_key = Some(issued.certificate.public_key());
            let is_of_key =
                |it: &&Candidate| it.id == reference.id && it.public_key.as_ref() == public_key;
            let candidate = candidates.iter().find(is_of_key);
            let mut key = reference.clone();
            key.label = candidate.map_or_else(String::new, |it| it.label.clone());
            issued.write(token, &key, pins).map(drop)
        })
    }

    /// Removes the certificate, as long as the token has the one that stays.
    fn remove(&self, certificate: &Certificate, stays: &Certificate) -> Result<(), Error> {
        let (certificate, stays) = (certificate.clone(), stays.clone());
        self.keyring.with_token(self.number, move |token, _, _| {
            token.remove_certificate(&certificate, &stays)
        })
    }

    /// Has the cluster let in the bearer of the new certificate, as its user. `map` names it and its key.
    fn proof(&self, mut map: Configuration, new: &Certificate) -> Result<ClusterUser, Error> {
        let config = Config::from_map(&mut map)?;
        // Its token has accepted the PIN already.
        let key = self.keyring.add(config, &TakenVariables::default())?;
        let open = self.keyring.open(key, None)?;
        if open.chain.first().map(Vec::as_slice) != Some(new.der()) {
            return Err(Error::internal("another certificate is taken than the new one"));
        }
        let known = connect(self.context.target()?, key, self.keyring.clone())?.whoami()?;
        check_user(&known, new)?;
        Ok(known)
    }

    /// Has the cluster let the new certificate in, and puts it in the place of the present one.
    fn replace(
        &self,
        present: &Certificate,
        issued: &IssuedCertificate,
    ) -> Result<ClusterUser, Error> {
        let file = Config::from_map(&mut self.map.clone())?.certificate_file;
        // In a file or a slot there is room for one.
        let has_room = file.is_none()
            && self.keyring.with_token(self.number, |token, _, _| {
                Ok(!token.state().is_yubikey() && !token.state().is_piv_of_opensc())
            })?;
        if has_room {
            self.write(issued)?;
            let proof = self.proof(self.map.clone(), &issued.certificate);
            let (old, stays) = match &proof {
                Ok(_) => (present, &issued.certificate),
                Err(_) => (&issued.certificate, present),
            };
            self.remove(old, stays)?;
            return proof;
        }
        // In a file of this user's own, until it takes the place of the present one.
        let path = issued.keep(None)?;
        let mut map = self.map.clone();
        map.set("certificateFile", &path.to_string_lossy());
        let proof = self.proof(map, &issued.certificate);
        if proof.is_ok() {
            let replaced = match &file {
                Some(file) => replace_file(file, &issued.pem()?),
                None => self.write(issued),
            };
            let file = path.display();
            let stays = format!("the cluster has let the new certificate in; it stays in {file}");
            replaced.inspect_err(|_| report::note(&stays))?;
        }
        fs::remove_file(&path).map_err(|error| file_error(&path, error))?;
        proof
    }
}

/// Whether the cluster knows the bearer by the certificate's user.
fn check_user(known: &ClusterUser, certificate: &Certificate) -> Result<(), Error> {
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

    #[test]
    fn what_the_server_says_is_printed_as_text() {
        let pair = KeyPair::generate().unwrap();
        let certificate = CertificateParams::default().self_signed(&pair).unwrap();
        let certificate = Certificate::from_der(certificate.der(), "it").unwrap();
        let groups = vec!["dev\u{1b}[2J\nsecond line".to_owned()];
        let known = ClusterUser { name: "jane".to_owned(), groups };
        let printed = renewed(&certificate, &known, "https://server");
        let shown = "knows us as user \"jane\", groups dev\\u{1b}[2J\\u{a}second line\n";
        assert!(printed.as_str().ends_with(shown), "{printed:?}");
        assert_eq!(printed.as_str().lines().count(), 2);
    }
}
