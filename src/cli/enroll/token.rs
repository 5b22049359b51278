//! What is done with the token: its keys, a new one, the signature of a request, a certificate.

use super::EnrollArguments;
use super::document::{CertificateStatus, EnrollmentDocument};
use super::file::IssuedFile;
use crate::certificate::{Certificate, day};
use crate::cli::question::confirm;
use crate::config::{Config, Filter, ObjectId, PinSource, TokenSelector};
use crate::enrollment::{
    Applicant, Csr, EnrolledKey, EnrollmentError, NextStep, install, of_key, sign_request,
};
use crate::error::Error;
use crate::library::LockReports;
use crate::pin_entry::Sources;
use crate::pipeline::{KeyReference, Library, Pipeline};
use crate::process::unix_time;
use crate::report;
use crate::token::{Candidate, FoundKey, GeneratedKey, KeyKind, NewKey, Token, WritingError};

/// The token that a key is enrolled on, with a session in which it can be changed.
pub(super) struct EnrollmentToken<'l> {
    token: Token<'l>,
    config: Config,
    pins: Sources,
}

impl<'l> EnrollmentToken<'l> {
    /// # Errors
    /// Those of [`Library::token_to_write`].
    pub(super) fn open(
        library: &'l Library,
        filter: Filter,
        selector: TokenSelector,
        mut pins: Sources,
    ) -> Result<Self, Error> {
        let trusted = filter.library;
        let trusted = trusted.ok_or_else(|| Error::internal("a token without a library"))?;
        let token = library.token_to_write(&selector, Some(&mut pins), &mut LockReports)?;
        Ok(Self {
            token,
            config: Config {
                library: trusted,
                init_args: filter.init_args,
                token: selector,
                object: filter.object,
                certificate_file: None,
                pin: PinSource::Prompt,
                keep: None,
            },
            pins,
        })
    }

    pub(super) fn name(&self) -> &crate::config::TokenName {
        &self.token.state().name
    }

    /// The CKA_ID that the options name.
    pub(super) fn id(&self) -> Option<&ObjectId> {
        self.config.object.id.as_ref()
    }

    /// The label that the options name.
    pub(super) fn label(&self) -> Option<&str> {
        self.config.object.label.as_deref()
    }

    /// The keys and certificates on the token, after a login. The prompt says that the PIN is wanted for
    /// `what`.
    ///
    /// # Errors
    /// Those of the login; what can't be read.
    pub(super) fn candidates(&mut self, what: &str) -> Result<Vec<Candidate>, Error> {
        self.token.reveal(what, &mut self.pins)?;
        self.token.candidates()
    }

    /// A key that was found, with its public key.
    ///
    /// # Errors
    /// The token shows no public key of it.
    pub(super) fn key(&mut self, key: &EnrolledKey) -> Result<FoundKey, Error> {
        self.token.bare_key(&key.selector(), Some(&mut self.pins))
    }

    /// The key of a certificate. A private key is there with it.
    ///
    /// # Errors
    /// There is none, or a public key alone.
    pub(super) fn key_of(
        &mut self,
        certificate: &Certificate,
        words: &str,
    ) -> Result<FoundKey, Error> {
        let public_key = certificate.public_key();
        let pins = &mut self.pins;
        let found = self.token.key_of(public_key, words, Some(pins))?;
        let reference = KeyReference::of_key(found.clone());
        let observer = &mut ();
        let config = &self.config;
        let mut pipeline = Pipeline { config, observer };
        pipeline.key(&mut self.token, reference, pins)?;
        Ok(found)
    }

    /// The CKA_ID for a new key of this kind: this one, or a free one.
    ///
    /// # Errors
    /// The token can't make such a key, or an object has the CKA_ID.
    pub(super) fn free_id(&self, id: Option<ObjectId>, kind: KeyKind) -> Result<ObjectId, Error> {
        self.token.check_generation(kind)?;
        let Some(id) = id else {
            return self.token.unused_id();
        };
        let present = self.token.objects_with_id(&id)?;
        if present.is_empty() {
            return Ok(id);
        }
        Err(WritingError::IdInUse {
            id: id.to_string(),
            token: self.token.name(),
            present,
        }
        .into())
    }

    /// # Errors
    /// Those of [`Token::generate`].
    pub(super) fn make_key(
        &self,
        kind: KeyKind,
        id: &ObjectId,
        label: &str,
    ) -> Result<GeneratedKey, Error> {
        self.token.generate(&NewKey { kind, id, label })
    }

    /// # Errors
    /// Those of the key and signature stages.
    pub(super) fn sign_request(
        &mut self,
        applicant: &Applicant,
        key: &FoundKey,
    ) -> Result<Csr, Error> {
        let (token, pins) = (&mut self.token, &mut self.pins);
        let observer = &mut ();
        let config = &self.config;
        let mut pipeline = Pipeline { config, observer };
        let open = pipeline.key(token, KeyReference::of_key(key.clone()), pins)?;
        sign_request(applicant, &key.public_key, |scheme, digest| {
            pipeline.sign(token, &open, scheme, digest, pins)
        })
    }

    /// Why nothing is left to do for this key.
    pub(super) fn already_enrolled(&self, candidates: &[Candidate], key: &EnrolledKey) -> Error {
        let own = candidates.iter().filter(|it| EnrolledKey::of(it) == *key);
        let certificates = own.filter_map(|it| it.certificate.as_ref()?.as_ref().ok());
        let newest = certificates.max_by_key(|it| it.validity.not_after);
        EnrollmentError::AlreadyEnrolled {
            key: key.selector().to_string(),
            user: newest.and_then(|it| it.user.clone()).unwrap_or_default(),
            until: newest.map_or_else(String::new, |it| day(it.validity.not_after)),
        }
        .into()
    }

    /// Writes the certificate beside its key, or to a file if the token takes none; then removes those that
    /// it replaces.
    ///
    /// # Errors
    /// There is another one, and it isn't to be replaced; the token fails.
    pub(super) fn install(
        &self,
        arguments: &EnrollArguments,
        issued: &IssuedFile,
        key: &FoundKey,
        candidates: &[Candidate],
        document: &mut EnrollmentDocument,
    ) -> Result<(), Error> {
        let certificate = &issued.certificate;
        let enrolled = EnrolledKey::from(key);
        let (replaces, now) = (arguments.replace, unix_time());
        let next = install(candidates, &enrolled, certificate, replaces, now)?;
        let NextStep::Install { replaced } = next else {
            document.set_certificate(certificate, CertificateStatus::Present);
            return Ok(());
        };
        if arguments.dry_run {
            document.set_certificate(certificate, CertificateStatus::Planned);
            document.set_replaced(replaced);
            return Ok(());
        }
        let old = of_key(candidates, certificate.public_key());
        if !replaced.is_empty() {
            confirm(&self.replacement(&enrolled, &old))?;
        }
        match self.token.write_certificate(certificate, key) {
            Ok(()) => document.set_certificate(certificate, CertificateStatus::Written),
            Err(error) => match error.downcast_ref() {
                Some(WritingError::Refused { .. }) => {
                    let file = arguments.key_options.certificate_file.as_deref();
                    let path = issued.keep(file)?;
                    report::note(&format!("{error}; it stays in {}", path.display()));
                    issued.advise(key, &path);
                    document.set_certificate(certificate, CertificateStatus::InFile(path));
                    return Ok(());
                }
                _ => return Err(error),
            },
        }
        // The new one was read back.
        for old in old.iter().filter(|it| replaced.contains(&it.serial_number)) {
            self.token.remove_certificate(old)?;
        }
        document.set_replaced(replaced);
        Ok(())
    }

    /// What is asked for a yes.
    fn replacement(&self, key: &EnrolledKey, old: &[&Certificate]) -> String {
        let old = old.iter().map(|it| {
            let until = day(it.validity.not_after);
            format!(
                "{}, serial number {}, until {until}",
                it.subject, it.serial_number
            )
        });
        let old: Vec<_> = old.collect();
        format!(
            "Replace the certificate of the key with {} on token {} ({})",
            key.selector(),
            self.token.name(),
            old.join("; ")
        )
    }
}
