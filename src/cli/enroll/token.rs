//! What is done with the token: its keys, a new one, the signature of a request, a certificate.

use std::path::Path;

use super::EnrollArguments;
use super::document::{CertificateStatus, EnrollmentDocument};
use super::file::IssuedFile;
use super::piv::PivOptions;
use crate::certificate::{Certificate, day};
use crate::cli::question::confirm;
use crate::config::{Config, Filter, ObjectId, PinSource, TokenName, TokenSelector};
use crate::enrollment::{
    Applicant, Csr, EnrolledKey, EnrollmentError, Installation, install, lone_public_keys, of_key,
    sign_request_for,
};
use crate::error::Error;
use crate::library::LockReports;
use crate::pin_entry::Sources;
use crate::pipeline::{KeyReference, Library, Pipeline};
use crate::printable::shell_word;
use crate::process::{lock, unix_time};
use crate::report;
use crate::token::{
    AcceptedPin, Candidate, FoundKey, GeneratedKey, KeyKind, KeyPurpose, NewKey, ObjectError,
    PivSlot, Token, WritingError,
};

/// The token that a key is enrolled on, with a session in which it can be changed.
pub(super) struct EnrollmentToken<'l> {
    token: Token<'l>,
    config: Config,
    pins: Sources,
    /// For what only a person gives.
    officer: Sources,
    piv: PivOptions,
    purpose: KeyPurpose,
    /// The CKA_ID of the configuration is that of the slot that a YubiKey has for this.
    is_usual: bool,
    has_warned: bool,
}

impl<'l> EnrollmentToken<'l> {
    /// # Errors
    /// Those of [`Library::token_to_write`].
    pub(super) fn open(
        library: &'l Library,
        filter: Filter,
        selector: TokenSelector,
        [mut pins, officer]: [Sources; 2],
        piv: &PivOptions,
        purpose: KeyPurpose,
    ) -> Result<Self, Error> {
        let trusted = filter.library;
        let trusted = trusted.ok_or_else(|| Error::internal("a token without a library"))?;
        let token = library.token_to_write(&selector, Some(&mut pins), &mut LockReports)?;
        let mut object = filter.object;
        let is_usual = match (token.is_yubikey(), piv.given()) {
            (false, Some(option)) => {
                let token = token.name();
                return Err(WritingError::NotAYubikey { option, token }.into());
            }
            (true, _) if piv.slot.is_some() || !object.is_given() => {
                let usual = match purpose {
                    KeyPurpose::Signing => PivSlot::AUTHENTICATION,
                    KeyPurpose::Unsealing => PivSlot::KEY_MANAGEMENT,
                };
                object.id = Some(piv.slot.unwrap_or(usual).id());
                piv.slot.is_none()
            }
            _ => false,
        };
        Ok(Self {
            token,
            officer,
            piv: piv.clone(),
            purpose,
            is_usual,
            has_warned: false,
            config: Config {
                library: trusted,
                init_args: filter.init_args,
                token: selector,
                object,
                certificate_file: None,
                pin: PinSource::Prompt,
                keep: None,
            },
            pins,
        })
    }

    pub(super) fn name(&self) -> &TokenName {
        &self.token.state().name
    }

    /// Locks the library again, after a wait in which others could use it.
    ///
    /// # Errors
    /// Others keep it.
    pub(super) fn lock(&self, library: &Library) -> Result<(), Error> {
        let trusted = &self.config.library;
        library.lock.acquire(trusted, lock::LIMIT, &mut LockReports)
    }

    /// The end, and the PIN for the next session.
    pub(super) fn close(self) -> Option<AcceptedPin> {
        self.token.close_keeping_pin()
    }

    /// The CKA_ID that the options name.
    pub(super) fn id(&self) -> Option<&ObjectId> {
        self.config.object.id.as_ref()
    }

    /// Whether that is where this token has a user's key, and not named by an option.
    pub(super) fn has_usual_id(&self) -> bool {
        self.is_usual
    }

    /// Whether the token names its keys by itself.
    pub(super) fn names_keys(&self) -> bool {
        self.token.is_yubikey()
    }

    /// Refuses, before a PIN is asked for, a key that this token can't make.
    ///
    /// # Errors
    /// [`WritingError::NotAYubikey`] if a key is to be destroyed, [`WritingError::NoGenerationOnPiv`] unless
    /// OpenSC shows something of the key.
    pub(super) fn check_wish(
        &self,
        arguments: &EnrollArguments,
        applicant: &Applicant,
    ) -> Result<(), Error> {
        if arguments.replace && !self.token.is_yubikey() {
            let option = "--replace without --certificate";
            let token = self.token.name();
            return Err(WritingError::NotAYubikey { option, token }.into());
        }
        if !self.token.takes_no_certificates() {
            return Ok(());
        }
        let label = self.label().unwrap_or_else(|| applicant.user());
        let is_meant = |it: &Candidate| match self.id() {
            Some(id) => it.id == id.as_bytes(),
            None => it.label == label,
        };
        if self.token.candidates()?.iter().any(is_meant) {
            return Ok(());
        }
        let kind = arguments.key.unwrap_or_default();
        Ok(self.token.check_card(kind, self.id())?)
    }

    /// Logs in as the one who may write. The prompt says that it is wanted for `what`.
    fn log_in_to_write(&mut self, what: &str) -> Result<(), Error> {
        let (pins, officer) = (&mut self.pins, &mut self.officer);
        self.token.reveal_to_write(what, pins, officer)?;
        if let Some(warning) = self.token.default_key_warning()
            && !self.has_warned
        {
            self.has_warned = true;
            report::warning(&warning);
        }
        Ok(())
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
        let selector = key.selector();
        let found = self.token.bare_key(&selector, Some(&mut self.pins));
        found.map_err(|error| match error.downcast_ref() {
            Some(ObjectError::NoPublicKey { .. }) => EnrollmentError::LonePrivateKey {
                key: selector.to_string(),
                token: self.token.name(),
                removal: self.removal("privkey", key),
            }
            .into(),
            _ => error,
        })
    }

    /// Tells of public keys that a killed call may have left. Nothing but a person removes them.
    pub(super) fn mention_lone_public_keys(&self, candidates: &[Candidate], label: &str) {
        for key in lone_public_keys(candidates, label) {
            let text = format!(
                "the public key with {} has no private key on token {}, as a killed call can leave it; it \
                 stays, and if nothing uses it, this removes it:",
                key.selector(),
                self.token.name()
            );
            report::steps(&text, &[self.removal("pubkey", &key)]);
        }
    }

    fn removal(&self, kind: &str, key: &EnrolledKey) -> String {
        removal(self.config.library.path(), self.name(), kind, key)
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
        self.token.check_card(kind, id.as_ref())?;
        self.token.check_generation(kind, self.purpose)?;
        let Some(id) = id else {
            return self.token.unused_id();
        };
        let present = self.token.objects_with_id(&id)?;
        if present.is_empty() {
            return Ok(id);
        }
        Err(WritingError::IdInUse { id: id.to_string(), token: self.token.name(), present }.into())
    }

    /// # Errors
    /// Those of [`Token::generate_in_slot`] and of a login.
    pub(super) fn make_key(
        &mut self,
        kind: KeyKind,
        id: &ObjectId,
        label: &str,
        replaces: bool,
    ) -> Result<GeneratedKey, Error> {
        let slot = PivSlot::of_id(id).filter(|_| self.token.is_yubikey());
        let place = slot.map_or_else(String::new, |slot| format!(" in slot {}", slot.name()));
        self.log_in_to_write(&format!("for a new key{place}"))?;
        let options = self.piv.of_new_key(replaces);
        let new = NewKey { kind, purpose: self.purpose, id, label };
        self.token.generate_in_slot(&new, options)
    }

    /// Has a person say that the key under this CKA_ID is to be lost, if there is anything.
    ///
    /// # Errors
    /// There is no terminal, or the answer is another one.
    pub(super) fn confirm_loss(
        &self,
        id: &ObjectId,
        candidates: &[Candidate],
    ) -> Result<(), Error> {
        if self.token.objects_with_id(id)?.is_empty() {
            return Ok(());
        }
        let own = candidates.iter().find(|it| it.id == id.as_bytes());
        let key = own.and_then(|it| Some(format!("{} key", it.key.as_ref()?.kind)));
        let certificate = own.and_then(|it| it.certificate.as_ref()?.as_ref().ok());
        let certificate =
            certificate.map(|it| format!(", which has a certificate of {}", it.subject));
        let question = format!(
            "Destroy the {} in slot {} of token {}{}",
            key.as_deref().unwrap_or("key"),
            PivSlot::of_id(id).map_or_else(String::new, PivSlot::name),
            self.token.name(),
            certificate.unwrap_or_default()
        );
        Ok(confirm(&question)?)
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
        sign_request_for(self.purpose, applicant, &key.public_key, |scheme, digest| {
            pipeline.sign(token, &open, scheme, digest, pins)
        })
    }

    /// Why nothing is left to do for this key.
    pub(super) fn already_enrolled(candidates: &[Candidate], key: &FoundKey) -> Error {
        // By the public key: ykcs11 labels the certificate and its key differently.
        let own = of_key(candidates, &key.public_key);
        let newest = own.into_iter().max_by_key(|it| it.validity.not_after);
        EnrollmentError::AlreadyEnrolled {
            key: EnrolledKey::from(key).selector().to_string(),
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
        &mut self,
        arguments: &EnrollArguments,
        issued: &IssuedFile,
        key: &FoundKey,
        candidates: &[Candidate],
        document: &mut EnrollmentDocument,
    ) -> Result<(), Error> {
        let certificate = &issued.certificate;
        if self.token.takes_no_certificates() {
            if arguments.dry_run {
                let given = arguments.key_options.certificate_file.as_ref();
                let place = given.map_or_else(|| issued.own_place(), |it| Ok(it.into()))?;
                document.set_certificate(certificate, CertificateStatus::Planned);
                document.set_file(place);
                return Ok(());
            }
            let token = self.token.name();
            let reason = format!("OpenSC writes nothing to a PIV card such as token {token}");
            return keep_in_file(arguments, issued, key, &reason, document);
        }
        let enrolled = EnrolledKey::from(key);
        let (replaces, now) = (arguments.replace, unix_time());
        let Installation { is_there, replaced } =
            install(candidates, &enrolled, certificate, replaces, now)?;
        let status = match (is_there, arguments.dry_run) {
            (true, _) => CertificateStatus::Present,
            (false, true) => CertificateStatus::Planned,
            (false, false) => CertificateStatus::Written,
        };
        document.set_certificate(certificate, status);
        document.set_replaced(&replaced);
        if arguments.dry_run {
            return Ok(());
        }
        let mut old = of_key(candidates, certificate.public_key());
        old.retain(|it| it.der() != certificate.der());
        if !replaced.is_empty() {
            confirm(&self.replacement(&enrolled, &old))?;
        }
        if !(is_there && replaced.is_empty()) {
            self.log_in_to_write(&format!("to write the certificate of {}", certificate.subject))?;
        }
        // First, so that they are there where the certificate is.
        let intermediates = issued.intermediates();
        let mut holds_all = true;
        for intermediate in &intermediates {
            holds_all &= self.token.write_authority(intermediate)?;
        }
        if !is_there && let Err(error) = self.token.write_certificate(certificate, key) {
            return match error.downcast_ref() {
                Some(WritingError::Refused { .. }) => {
                    let reason = error.to_string();
                    keep_in_file(arguments, issued, key, &reason, document)
                }
                _ => Err(error),
            };
        }
        // The new one is there and was read.
        for old in old.iter().filter(|it| replaced.contains(&it.serial_number)) {
            self.token.remove_certificate(old, Some(certificate))?;
        }
        if holds_all {
            document.set_intermediates(&intermediates);
            return Ok(());
        }
        let path = issued.keep(arguments.key_options.certificate_file.as_deref())?;
        report::note(&format!(
            "token {} has no room for the certificates of CAs, which a server may need: the certificate is \
             in {}, too, with those above it; give the file to `kubeconfig` with --certificate-file",
            self.token.name(),
            path.display()
        ));
        document.set_file(path);
        Ok(())
    }

    /// What is asked for a yes.
    fn replacement(&self, key: &EnrolledKey, old: &[&Certificate]) -> String {
        let old = old.iter().map(|it| {
            let until = day(it.validity.not_after);
            format!("{}, serial number {}, until {until}", it.subject, it.serial_number)
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

/// The command that removes an object of this type, as pkcs11-tool calls it.
pub(in crate::cli) fn removal(
    library: &Path,
    token: &TokenName,
    kind: &str,
    key: &EnrolledKey,
) -> String {
    let object = match &key.id {
        Some(id) => {
            let digits = id.as_bytes().iter().map(|byte| format!("{byte:02x}"));
            format!("--id {}", digits.collect::<String>())
        }
        None => format!("--label {}", shell_word(&key.label)),
    };
    format!(
        "pkcs11-tool --module {} --token-label {} --login --delete-object --type {kind} {object}",
        shell_word(&library.to_string_lossy()),
        shell_word(&token.label),
    )
}

/// The certificate becomes a file, with what writes it to the token otherwise.
fn keep_in_file(
    arguments: &EnrollArguments,
    issued: &IssuedFile,
    key: &FoundKey,
    reason: &str,
    document: &mut EnrollmentDocument,
) -> Result<(), Error> {
    let path = issued.keep(arguments.key_options.certificate_file.as_deref())?;
    report::note(&format!("{reason}; it stays in {}", path.display()));
    issued.advise(&key.id, &path);
    document.set_certificate(&issued.certificate, CertificateStatus::InFile(path));
    Ok(())
}
