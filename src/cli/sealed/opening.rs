//! Opening a sealed file: which of its recipients is a key of the token, and what that key makes of it.

use crate::certificate::{Certificate, ValidityState};
use crate::config::{Config, ObjectId, ObjectSelector};
use crate::error::{Error, Exit, Help};
use crate::hash::Hash;
use crate::library::Library;
use crate::pin::PinProvider;
use crate::process::unix_time;
use crate::report;
use crate::sealed::{EncryptedKey, KeyNames, Registries, SealedFile, describe};
use crate::token::{KeyReference, LockedSecret, Token};

/// AES-256.
const CONTENT_KEY_LENGTH: usize = 32;

/// A key of the token that opens a file.
pub(in crate::cli) struct RecipientKey {
    reference: KeyReference,
    /// If it is known.
    certificate: Option<Certificate>,
    /// Which recipient of the file it is.
    pub(in crate::cli) recipient: usize,
}

impl RecipientKey {
    /// For messages.
    pub(in crate::cli) fn describe(&self) -> String {
        self.reference.describe()
    }

    /// That its certificate has expired, which keeps it from nothing.
    pub(in crate::cli) fn expired(&self) -> Option<String> {
        let expired = |it: &&Certificate| it.validity.at(unix_time()) == ValidityState::Expired;
        let certificate = self.certificate.as_ref().filter(expired)?;
        let subject = &certificate.subject;
        Some(format!(
            "the certificate of {subject} has expired; its key opens the file all the same"
        ))
    }
}

/// A token that sealed files are opened with.
pub(in crate::cli) struct FileOpener<'a> {
    pub(in crate::cli) token: Token,
    config: &'a Config,
}

impl<'a> FileOpener<'a> {
    /// With the token that the configuration names.
    pub(in crate::cli) fn new(library: &Library, config: &'a Config) -> Result<Self, Error> {
        Ok(Self { token: library.token(&config.token)?, config })
    }

    /// The first recipient that is a key of the token, by the certificates and public keys on it or by
    /// `certificateFile`. Logs in only if none is visible without, and not without `pins`.
    pub(in crate::cli) fn recipient_key(
        &mut self,
        file: &SealedFile,
        pins: Option<&mut dyn PinProvider>,
    ) -> Result<RecipientKey, Error> {
        if let Some(path) = &self.config.certificate_file {
            let certificate = super::certificate(path)?;
            let recipient = recipient(file, &KeyNames::of(&certificate));
            let recipient = recipient.ok_or_else(|| self.no_recipient(file))?;
            let selector = &self.config.object;
            let reference = match selector.is_given() {
                true => KeyReference::of_certificate(&certificate, selector, None),
                false => {
                    let (key, subject) = (certificate.public_key(), &certificate.subject);
                    KeyReference::of_key(self.token.key_of(key, subject, pins)?)
                }
            };
            return Ok(RecipientKey { reference, certificate: Some(certificate), recipient });
        }
        if let Some(found) = self.visible(file)? {
            return Ok(found);
        }
        let hides = self.token.state().login_required && !self.token.is_logged_in();
        if let Some(pins) = pins.filter(|_| hides) {
            self.token.log_in_if_required("the key of a sealed file", pins)?;
            if let Some(found) = self.visible(file)? {
                return Ok(found);
            }
        }
        Err(self.no_recipient(file))
    }

    fn visible(&self, file: &SealedFile) -> Result<Option<RecipientKey>, Error> {
        let selector = &self.config.object;
        for candidate in self.token.candidates()? {
            let object = named(&candidate.id, &candidate.label);
            let Some(Ok(certificate)) = candidate.certificate.filter(|_| fits(selector, &object))
            else {
                continue;
            };
            if let Some(recipient) = recipient(file, &KeyNames::of(&certificate)) {
                let id = Some(candidate.id);
                let reference = KeyReference::of_certificate(&certificate, &object, id);
                return Ok(Some(RecipientKey {
                    reference,
                    certificate: Some(certificate),
                    recipient,
                }));
            }
        }
        for key in self.token.public_keys()? {
            let is_meant = fits(selector, &named(&key.id, &key.label));
            let recipient = recipient(file, &KeyNames::of_key(&key.public_key));
            if let Some(recipient) = recipient.filter(|_| is_meant) {
                let reference = KeyReference::of_key(key);
                return Ok(Some(RecipientKey { reference, certificate: None, recipient }));
            }
        }
        Ok(None)
    }

    fn no_recipient(&self, file: &SealedFile) -> Error {
        let (name, token) = (&file.name, self.token.name());
        let names: Vec<_> = file.recipients.iter().map(|it| describe(&it.name)).collect();
        let help = "seal the passwords to the certificate of a key of this token, or name that certificate with \
                    --certificate-file; the file is for:";
        Error::new(
            Exit::Object,
            format!("none of the recipients of {name} is a key of token {token}"),
        )
        .help(Help::from(help).with_candidates(&names))
    }

    /// Opens the file with its own key.
    pub(in crate::cli) fn open(
        &mut self,
        file: &SealedFile,
        recipient_key: RecipientKey,
        pins: &mut dyn PinProvider,
    ) -> Result<Registries, Error> {
        let recipient = file.recipients.get(recipient_key.recipient);
        let encrypted =
            &recipient.ok_or_else(|| Error::internal("a recipient that isn't there"))?.key;
        let locked = match encrypted {
            EncryptedKey::RsaOaep(ciphertext) => LockedSecret::Oaep {
                hash: Hash::Sha256,
                mask_hash: Hash::Sha256,
                ciphertext,
                length: CONTENT_KEY_LENGTH,
            },
            EncryptedKey::Ecdh { curve, point, .. } => LockedSecret::Ecdh { curve: *curve, point },
        };
        if let Some(warning) = recipient_key.expired() {
            report::warning(&warning);
        }
        let key = self.token.key(recipient_key.reference, pins)?;
        let decrypted = self.token.open(&key, &locked, pins)?;
        file.open(encrypted, &decrypted)
    }
}

fn recipient(file: &SealedFile, names: &KeyNames) -> Option<usize> {
    file.recipients.iter().position(|it| names.contains(&it.name))
}

fn named(id: &[u8], label: &str) -> ObjectSelector {
    ObjectSelector {
        id: (!id.is_empty()).then(|| ObjectId::from_bytes(id.to_owned())),
        label: (!label.is_empty()).then(|| label.to_owned()),
    }
}

/// Whether an object is the one that the options name; any is, if they name none.
fn fits(wanted: &ObjectSelector, object: &ObjectSelector) -> bool {
    (wanted.id.is_none() || wanted.id == object.id)
        && (wanted.label.is_none() || wanted.label == object.label)
}
