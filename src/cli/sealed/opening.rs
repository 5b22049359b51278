//! Opening a sealed file: which of its recipients is a key of the token, and what that key makes of it.

use std::time::Duration;

use super::error::SealedCommandError;
use crate::certificate::{Certificate, ValidityState};
use crate::config::{Config, ObjectId, ObjectSelector};
use crate::error::Error;
use crate::library;
use crate::pin::PinProvider;
use crate::pipeline::{KeyReference, Library, Pipeline, StageObserver};
use crate::process::unix_time;
use crate::report;
use crate::sealed::{KeyLock, KeyNames, Recipient, Registries, SealedFile};
use crate::token::{LockedSecret, Token};

/// AES-256.
const CONTENT_KEY_LENGTH: usize = 32;

/// A key of the token that opens a file.
pub(in crate::cli) struct OwnKey {
    reference: KeyReference,
    /// If it is known.
    pub(in crate::cli) certificate: Option<Certificate>,
    /// The place of the recipient in the file.
    pub(in crate::cli) recipient: usize,
}

impl OwnKey {
    /// For messages.
    pub(in crate::cli) fn describe(&self) -> String {
        self.reference.describe()
    }
}

/// A token that sealed files are opened with.
pub(in crate::cli) struct FileOpener<'a, 'm> {
    pub(in crate::cli) token: Token<'m>,
    pub(in crate::cli) pipeline: Pipeline<'a>,
}

impl<'a, 'm> FileOpener<'a, 'm> {
    /// Finds the token of the library.
    ///
    /// # Errors
    /// It isn't there, or there are several.
    pub(in crate::cli) fn new(
        library: &'m Library,
        config: &'a Config,
        pins: Option<&mut dyn PinProvider>,
        observer: &'a mut dyn StageObserver,
    ) -> Result<Self, Error> {
        Ok(Self {
            token: library.token(&config.token, pins, observer)?,
            pipeline: Pipeline { config, observer },
        })
    }

    /// The first recipient that is a key of the token, by the certificates and public keys on it or by
    /// `certificateFile`. Logs in only if none is visible without, and not without `pins`.
    ///
    /// # Errors
    /// None is, or the token can't be read; the errors of a login.
    pub(in crate::cli) fn own_key(
        &mut self,
        file: &SealedFile,
        pins: Option<&mut dyn PinProvider>,
    ) -> Result<OwnKey, Error> {
        if let Some(path) = &self.pipeline.config.certificate_file {
            let certificate = super::certificate(path)?;
            let names = KeyNames::of(&certificate);
            let recipient = place(file, &names).ok_or_else(|| self.no_recipient(file))?;
            let selector = &self.pipeline.config.object;
            let reference = match selector.is_given() {
                true => KeyReference::of_certificate(&certificate, selector, None),
                false => {
                    let words = certificate.subject.clone();
                    let key = certificate.public_key();
                    self.pipeline.key_of(&mut self.token, key, &words, pins)?
                }
            };
            return Ok(OwnKey { reference, certificate: Some(certificate), recipient });
        }
        if let Some(found) = self.visible(file)? {
            return Ok(found);
        }
        if let Some(pins) =
            pins.filter(|_| self.token.state().login_required && !self.token.is_logged_in())
        {
            self.token.reveal("the key of a sealed file", pins)?;
            if let Some(found) = self.visible(file)? {
                return Ok(found);
            }
        }
        Err(self.no_recipient(file))
    }

    fn visible(&self, file: &SealedFile) -> Result<Option<OwnKey>, Error> {
        let selector = &self.pipeline.config.object;
        for candidate in self.token.candidates()? {
            let Some(Ok(certificate)) = candidate.certificate else {
                continue;
            };
            let object = named(candidate.id.clone(), candidate.label);
            if !fits(selector, &object) {
                continue;
            }
            if let Some(recipient) = place(file, &KeyNames::of(&certificate)) {
                return Ok(Some(OwnKey {
                    reference: KeyReference::of_certificate(
                        &certificate,
                        &object,
                        Some(candidate.id),
                    ),
                    certificate: Some(certificate),
                    recipient,
                }));
            }
        }
        for key in self.token.public_keys()? {
            if !fits(selector, &named(key.id.clone(), key.label.clone())) {
                continue;
            }
            if let Some(recipient) = place(file, &KeyNames::of_key(&key.public_key)) {
                return Ok(Some(OwnKey {
                    reference: KeyReference::of_key(key),
                    certificate: None,
                    recipient,
                }));
            }
        }
        Ok(None)
    }

    fn no_recipient(&self, file: &SealedFile) -> Error {
        SealedCommandError::NoRecipient {
            file: file.name.clone(),
            token: self.token.name(),
            recipients: file.envelope.recipients.iter().map(|it| it.name.to_string()).collect(),
        }
        .into()
    }

    /// Opens the file with its own key.
    ///
    /// # Errors
    /// Those of a login, the token's refusal, and a file that doesn't fit what the key makes of it.
    pub(in crate::cli) fn open(
        &mut self,
        file: &SealedFile,
        own: OwnKey,
        pins: &mut dyn PinProvider,
    ) -> Result<Registries, Error> {
        let recipients = &file.envelope.recipients;
        let recipient = recipients
            .get(own.recipient)
            .ok_or_else(|| Error::internal("a recipient that isn't there"))?;
        if let Some(certificate) = &own.certificate
            && certificate.validity.at(unix_time()) == ValidityState::Expired
        {
            report::warning(&format!(
                "the certificate of {} has expired; its key opens {} all the same",
                certificate.subject, file.name
            ));
        }
        let key = self.pipeline.key(&mut self.token, own.reference, pins)?;
        let locked = locked(recipient);
        let unlocked = self.pipeline.open(&mut self.token, &key, &locked, pins)?;
        Ok(file.open(&recipient.lock, &unlocked)?)
    }
}

/// Opens the library for as long as kubelet waits, without a word about waiting.
///
/// # Errors
/// Those of [`library::open`].
pub(in crate::cli) fn library(config: &Config, patience: Duration) -> Result<Library, Error> {
    library::open(&config.library, config.init_args.as_ref(), patience, &mut ())
}

fn place(file: &SealedFile, names: &KeyNames) -> Option<usize> {
    let mut recipients = file.envelope.recipients.iter();
    recipients.position(|it| names.contains(&it.name))
}

fn locked(recipient: &Recipient) -> LockedSecret<'_> {
    match &recipient.lock {
        KeyLock::Oaep { hash, mask_hash, ciphertext } => LockedSecret::Oaep {
            hash: *hash,
            mask_hash: *mask_hash,
            ciphertext,
            length: CONTENT_KEY_LENGTH,
        },
        KeyLock::Ecdh { curve, point, .. } => LockedSecret::Ecdh { curve: *curve, point },
    }
}

fn named(id: Vec<u8>, label: String) -> ObjectSelector {
    let has_id = !id.is_empty();
    ObjectSelector {
        id: has_id.then(|| ObjectId::from_bytes(id)),
        label: (!label.is_empty()).then_some(label),
    }
}

/// Whether an object is the one that the options name; any is, if they name none.
fn fits(wanted: &ObjectSelector, object: &ObjectSelector) -> bool {
    let has_id = wanted.id.as_ref().is_none_or(|id| object.id.as_ref() == Some(id));
    let has_label = wanted.label.as_ref().is_none_or(|label| object.label.as_ref() == Some(label));
    has_id && has_label
}
