//! The certificate that was issued: beside its key on the token, or in a file.

use std::path::{Path, PathBuf};

use super::plan::{InstallPlan, OtherCertificate};
use super::token::Enrollment;
use crate::cli::issuance::IssuedCertificate;
use crate::cli::question::confirm;
use crate::cli::session::Step;
use crate::enrollment::{
    Installation, for_another, in_groups, installation, intermediates, of_key,
};
use crypto::certificate::{Certificate, minute};
use messages::error::{Error, Exit};
use messages::help::{Help, HelpPart, command};
use messages::printable::printable;
use messages::report;
use system::clock::unix_time;
use token::{KeyReference, kind};

/// Where an issued certificate is to be: beside its key on the token, in a file, or in both.
struct Placement {
    /// Why the certificate is written to a file: the token doesn't take it, or has no room for the certificates of its CAs.
    why_in_file: Option<String>,
    /// Whether the token has the certificate already.
    is_there: bool,
    /// The certificates on the token that the new one takes the place of.
    replaced: Vec<Certificate>,
}

impl Placement {
    /// The certificate goes only into a file, for this reason.
    fn in_file(reason: String) -> Self {
        Self { why_in_file: Some(reason), is_there: false, replaced: Vec::new() }
    }
}

impl Enrollment<'_> {
    /// Stores an issued certificate beside its key, if the token has the private key. Fails if the certificate is for
    /// somebody else than the key's label says.
    pub(super) fn install_issued(
        &mut self,
        issued: &IssuedCertificate,
        plan: &InstallPlan,
    ) -> Result<(), Error> {
        let user = issued.certificate.user.as_deref().unwrap_or_default();
        let public_key = issued.certificate.public_key();
        let key = self.token.key_of(public_key, &issued.origin, Some(&mut self.pins))?;
        self.token.key(key.clone(), &mut self.pins)?;
        // The label says for whom the key was made.
        let is_labelled = self.config.object.label.is_none() && !self.token.state().is_yubikey();
        if plan.user.is_none() && key.label != user && is_labelled {
            let label = format!("\"{}\", as the key is labelled", key.label);
            return Err(for_another(&format!("user \"{user}\""), &label));
        }
        self.install(issued, &key, plan.other).map(drop)
    }

    /// Writes the certificate beside its key, then removes those that it replaces. Returns the file that holds the
    /// certificate instead, if the token doesn't take it or has no room for those of its CAs.
    pub(super) fn install(
        &mut self,
        issued: &IssuedCertificate,
        key: &KeyReference,
        other: OtherCertificate,
    ) -> Result<Option<PathBuf>, Error> {
        // Other processes could use the token until now.
        self.look_again()?;
        let certificate = &issued.certificate;
        let mut placement = self.placement(certificate, other)?;
        if !placement.replaced.is_empty() {
            let what = replacement(&self.token.name(), key, &placement.replaced);
            confirm(&what, &printable(&format!("Replace {what}")))?;
        }
        if placement.why_in_file.is_none() && !placement.is_there {
            self.write(issued, key, &mut placement)?;
        }
        let Placement { why_in_file, is_there, replaced } = placement;
        let file = match why_in_file {
            Some(reason) => Some(self.keep_in_file(issued, &reason)?),
            None => {
                self.note_on_token(issued, is_there);
                None
            }
        };
        // The new one is written, and was read back.
        for old in &replaced {
            self.token.remove_certificate(old, certificate)?;
            let number = &old.serial_number;
            let text = format!("the certificate with serial number {number}");
            self.steps.push(Step { title: "removed", text });
        }
        Ok(file)
    }

    /// Writes the certificate and its chain to the file that the options or the configuration name, or to a new one.
    fn keep_in_file(&mut self, issued: &IssuedCertificate, reason: &str) -> Result<PathBuf, Error> {
        let in_use = self.config.certificate_file.as_deref();
        let path = issued.keep(self.named_file().or(in_use))?;
        let location = format!("in {}", path.display());
        report::note(&format!("{reason}; the issued one is {location}, with those above it"));
        self.steps.push(describe(&issued.certificate, &location));
        Ok(path)
    }

    /// Notes that the certificate is beside its key; those of its CAs are there, too, unless the token had the certificate
    /// already.
    fn note_on_token(&mut self, issued: &IssuedCertificate, was_there: bool) {
        let certificate = &issued.certificate;
        self.steps.push(describe(certificate, "beside the key"));
        if was_there {
            return;
        }
        for authority in intermediates(certificate, &issued.chain) {
            let text = format!("of the CA {}, on the token, too", authority.subject);
            self.steps.push(Step { title: "certificate", text });
        }
    }

    /// The file that the options name for the certificate.
    fn named_file(&self) -> Option<&Path> {
        self.plan.options.certificate_file.as_deref().map(Path::new)
    }

    /// Decides whether the certificate is to be on the token or in a file. What only writing it shows comes later.
    fn placement(
        &self,
        certificate: &Certificate,
        other: OtherCertificate,
    ) -> Result<Placement, Error> {
        if self.config.certificate_file.is_some() {
            return Ok(Placement::in_file("the context has its certificate in a file".to_owned()));
        }
        if self.token.state().is_piv_of_opensc() {
            let token = self.token.name();
            let reason = format!("OpenSC writes nothing to a PIV card such as token {token}");
            return Ok(Placement::in_file(reason));
        }
        let replaces = other == OtherCertificate::IsReplaced;
        match installation(&self.candidates, certificate, replaces, unix_time()) {
            Ok(Installation { is_there, replaced }) => {
                let replaced = replaced.into_iter().cloned().collect();
                Ok(Placement { why_in_file: None, is_there, replaced })
            }
            Err(error) if other == OtherCertificate::SendsToFile => {
                Ok(Placement::in_file(error.to_string()))
            }
            Err(error) => Err(error),
        }
    }

    /// Writes the certificate beside its key, or notes why it is to be in a file.
    fn write(
        &mut self,
        issued: &IssuedCertificate,
        key: &KeyReference,
        placement: &mut Placement,
    ) -> Result<(), Error> {
        match issued.write(&mut self.token, key, &mut self.pins) {
            Ok(true) => {}
            Ok(false) => {
                placement.why_in_file = Some(format!(
                    "token {} has no room for the certificates of CAs, which a server may need",
                    self.token.name()
                ));
            }
            Err(error) => {
                // A file that the options name takes the certificate, whatever the token says of it.
                let may_be_kept = self.named_file().is_some() && error.exits_with(Exit::Object);
                if !may_be_kept && !error.is(&kind::CERTIFICATE_REFUSED) {
                    return Err(error);
                }
                *placement = Placement::in_file(error.to_string());
            }
        }
        Ok(())
    }

    /// Describes the newest certificate of the key, if it is for this user. Otherwise an error says why nothing is left
    /// to do for the key.
    pub(super) fn installed(&self, key: &KeyReference, user: Option<&str>) -> Result<Step, Error> {
        // The certificates are found by the public key, since ykcs11 labels a certificate and its key differently.
        let certificates = of_key(&self.candidates, &key.public_key).into_iter();
        let newest = certificates.max_by_key(|certificate| certificate.validity.not_after);
        let certified_user = newest.and_then(|certificate| certificate.user.as_deref());
        if let Some(newest) = newest
            && user.is_some()
            && certified_user == user
        {
            return Ok(describe(newest, "beside the key"));
        }
        let end = newest.map(|certificate| minute(certificate.validity.not_after));
        let text = format!(
            "the key with {} has a certificate for user \"{}\" that is valid until {}",
            key.selector,
            certified_user.unwrap_or_default(),
            end.unwrap_or_default()
        );
        let help = Help::from("use it as it is, or have it renewed with ")
            .and(command("renew").and(HelpPart::Key))
            .and(
                "; for another request for this key name the key with --object-id, for another key a free --object-id",
            );
        Err(Error::new(Exit::Object, text).help(help))
    }
}

/// Describes the certificates that are replaced, for the question whether they may be.
fn replacement(token: &str, key: &KeyReference, replaced: &[Certificate]) -> String {
    let described: Vec<_> = replaced
        .iter()
        .map(|old| {
            let until = minute(old.validity.not_after);
            format!("{}, serial number {}, until {until}", old.subject, old.serial_number)
        })
        .collect();
    let key = &key.selector;
    format!("the certificate of the key with {key} on token {token} ({})", described.join("; "))
}

/// Describes a certificate and where it is, in one line.
fn describe(certificate: &Certificate, location: &str) -> Step {
    let user = certificate.user.as_deref().unwrap_or_default();
    let text = format!(
        "user {user:?}, {}, expires {}, issued by {}, {location}",
        in_groups(&certificate.groups),
        minute(certificate.validity.not_after),
        certificate.issuer_text
    );
    Step { title: "certificate", text }
}
