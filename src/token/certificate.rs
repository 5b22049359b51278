//! The certificate that a selector names, on the token or in a file, its issuers and attestation.

use std::path::Path;

use cryptoki::object::{Attribute, AttributeType, ObjectClass};

use super::Token;
use super::key::{KeyReference, mismatch};
use super::object::ObjectValue;
use crate::kind;
use config::pin::NO_PIN;
use config::pin::PinProvider;
use config::{Config, ObjectId, ObjectSelector};
use crypto::certificate::{
    Certificate, CertificateChain, best_per_key, issuer_among, issuer_of, minute,
};
use files::read_regular;
use messages::error::{Error, Exit, PROGRAM};
use messages::help::{Help, HelpPart};
use system::clock::unix_time;

/// The most certificates above the first one.
const LONGEST_CHAIN: usize = 8;

/// The longest file of certificates, in bytes.
const LONGEST_CERTIFICATE_FILE: u64 = 1 << 20;

/// A certificate, and a reference to its key.
pub struct Identity {
    pub certificate: Certificate,
    /// The certificates that follow the first one in `certificateFile`, in DER.
    file_chain: Vec<Vec<u8>>,
    /// Where its key is, for [`Token::key`].
    pub key: KeyReference,
}

impl Identity {
    /// Fails if there are public keys under the certificate's CKA_ID, and none is the certificate's.
    pub fn check_public_key(&self, token: &Token) -> Result<(), Error> {
        let public_key = self.certificate.public_key();
        if token.contradicts(&self.key.neighbours(), public_key)? {
            return Err(self.key.mismatch());
        }
        Ok(())
    }

    /// The certificate and its issuers from `certificateFile` or the token, in DER. Issuers from
    /// the token don't include the root, which a server must have anyway.
    pub fn chain(&self, token: &Token) -> Result<Vec<Vec<u8>>, Error> {
        let mut chain = vec![self.certificate.der().to_owned()];
        if self.file_chain.is_empty() {
            chain.extend(token.issuers(&self.certificate)?);
        } else {
            chain.extend(self.file_chain.iter().cloned());
        }
        Ok(chain)
    }
}

/// A key whose certificate was wanted.
pub struct WantedKey<T> {
    pub key: KeyReference,
    /// What the certificate is wanted for.
    pub reason: T,
}

/// Reads the certificates of the file that `certificateFile` names.
pub fn read_certificates(path: &Path) -> Result<CertificateChain, Error> {
    let source = format!("certificateFile {}", path.display());
    let bytes = read_regular(path, LONGEST_CERTIFICATE_FILE).map_err(|error| {
        Error::new(Exit::Object, format!("{source}: {error}")).help(
            "certificateFile (--certificate-file) must name a readable file with one certificate, PEM or DER",
        )
    })?;
    CertificateChain::from_pem_or_der(&bytes, &source)
}

impl Token {
    /// Finds the configured certificate, on the token or in `certificateFile`, which must not contradict a
    /// public key that the token shows. Without `pins` there is no login.
    pub fn identity(
        &mut self,
        config: &Config,
        pins: Option<&mut dyn PinProvider>,
    ) -> Result<Identity, Error> {
        let selector = &config.object;
        let Some(path) = &config.certificate_file else { return self.certificate(selector, pins) };
        let CertificateChain { leaf: certificate, issuers: file_chain } = read_certificates(path)?;
        if self.contradicts(selector, certificate.public_key())? {
            let key = format!("the key with {selector} on token {}", self.name());
            return Err(mismatch(&format!("the certificate in {}", path.display()), &key));
        }
        let key = KeyReference::of_certificate(&certificate, selector, Vec::new());
        Ok(Identity { certificate, file_chain, key })
    }

    /// Finds the one certificate that fits: session objects are passed over, and CA certificates as
    /// long as another one is left. Logs in only if none is visible without, and not without `pins`.
    fn certificate(
        &mut self,
        selector: &ObjectSelector,
        pins: Option<&mut dyn PinProvider>,
    ) -> Result<Identity, Error> {
        let find = |token: &Self| token.visible_certificate(selector);
        let found = match self.visible_or_hidden(&selector.to_string(), pins, find) {
            Err(error) if error.is(&NO_PIN) => None,
            found => found?,
        };
        if let Some(identity) = found {
            log::info!("certificate of {}, with {selector}", identity.certificate.subject);
            return Ok(identity);
        }
        Err(self.no_certificate(selector))
    }

    /// The error for a certificate that isn't visible: it may be a private object, or it may not be there.
    fn no_certificate(&self, selector: &ObjectSelector) -> Error {
        let (kind, why) = if self.may_hide_objects() {
            (
                kind::CERTIFICATE_UNSEEN,
                " without a login, and there is no terminal to ask for the PIN and no pinSource",
            )
        } else {
            (kind::NO_CERTIFICATE, "")
        };
        let text = format!("no certificate with {selector} on token {}{why}", self.name());
        let help = Help::from(format!("correct the name (`{PROGRAM} list"))
            .and(HelpPart::Token)
            .and(format!(
                "` shows what there is), write the certificate beside the key (`{PROGRAM} enroll"
            ))
            .and(HelpPart::Token)
            .and(" --certificate=FILE`), or set certificateFile (--certificate-file)")
            .and(selector.misspelling());
        Error::new(Exit::Object, text).kind(kind).help(help)
    }

    /// The key of the first certificate that fits and that is `wanted`.
    pub fn key_with_certificate<T>(
        &self,
        selector: &ObjectSelector,
        wanted: impl Fn(&Certificate) -> Option<T>,
    ) -> Result<Option<WantedKey<T>>, Error> {
        let stored = self.find_stored(ObjectClass::CERTIFICATE, selector)?;
        for ObjectValue { object, value: der } in self.with_values(stored, AttributeType::Value)? {
            let Ok(certificate) = Certificate::from_der(&der, "it") else { continue };
            let Some(reason) = wanted(&certificate) else { continue };
            let id = self.bytes(object, AttributeType::Id)?;
            let label = self.label(object)?;
            let named = ObjectSelector::of(&id, Some(&*label).filter(|label| !label.is_empty()));
            let key = KeyReference::of_certificate(&certificate, &named, id);
            return Ok(Some(WantedKey { key, reason }));
        }
        Ok(None)
    }

    /// The attestation certificate of a key, by which the token says where it was made, and the certificates above it,
    /// in DER. ykcs11 shows it before any login, as a certificate that exists in the session alone, under the
    /// CKA_ID of its key. The one above it is stored on the card.
    pub fn attestation(&self, selector: &ObjectSelector) -> Result<Vec<Vec<u8>>, Error> {
        let mut id = selector.id.clone();
        for class in [ObjectClass::CERTIFICATE, ObjectClass::PUBLIC_KEY] {
            if id.is_none()
                && let Some(labelled) = self.find(class, selector)?.first()
            {
                id = Some(ObjectId::from_bytes(self.bytes(*labelled, AttributeType::Id)?));
            }
        }
        let id = id.unwrap_or_else(|| ObjectId::from_bytes(Vec::new()));
        let beside = ObjectSelector { id: Some(id), label: None };
        for object in self.find(ObjectClass::CERTIFICATE, &beside)? {
            if self.flag(object, AttributeType::Token)? == Some(false) {
                let der = self.bytes(object, AttributeType::Value)?;
                let certificate = Certificate::from_der(&der, "the attestation")?;
                let mut chain = vec![certificate.der().to_owned()];
                chain.extend(self.issuers(&certificate)?);
                return Ok(chain);
            }
        }
        let text = format!("no attestation of the key with {selector} on token {}", self.name());
        Err(Error::new(Exit::Object, text).help(
            "name Yubico's library with --module (libykcs11.so) and a key that was not imported: no other attests keys",
        ))
    }

    /// The one certificate that fits among those that can be seen; `None` if there is none.
    fn visible_certificate(&self, selector: &ObjectSelector) -> Result<Option<Identity>, Error> {
        let stored = self.find_stored(ObjectClass::CERTIFICATE, selector)?;
        let stored = self.with_values(stored, AttributeType::Value)?;
        let mut found = Vec::with_capacity(stored.len());
        for ObjectValue { object, value: der } in &stored {
            match Certificate::from_der(der, &format!("the certificate with {selector}")) {
                Ok(certificate) => found.push((*object, certificate)),
                // Among several, one that can't be read is no candidate.
                Err(_) if stored.len() > 1 => {}
                Err(error) => return Err(error),
            }
        }
        let certificates: Vec<_> = found.iter().map(|(_, certificate)| certificate).collect();
        let best = best_per_key(&certificates, unix_time());
        let Some(index) = self.at_most_one(best, "certificates", selector)? else {
            return Ok(None);
        };
        let count = found.len();
        let (object, certificate) = found.swap_remove(index);
        if count > 1 {
            log::info!(
                "{count} certificates with {selector}: the one valid until {} is taken, serial number {}",
                minute(certificate.validity.not_after),
                certificate.serial_number,
            );
        }
        let id = match &selector.id {
            Some(id) => id.as_bytes().to_owned(),
            None => self.bytes(object, AttributeType::Id)?,
        };
        let key = KeyReference::of_certificate(&certificate, selector, id);
        Ok(Some(Identity { certificate, file_chain: Vec::new(), key }))
    }

    /// The certificates above this one on the token, in DER, without the root.
    fn issuers(&self, certificate: &Certificate) -> Result<Vec<Vec<u8>>, Error> {
        let mut chain: Vec<Vec<u8>> = Vec::new();
        while chain.len() < LONGEST_CHAIN {
            let last = chain.last().map_or_else(|| certificate.der(), Vec::as_slice);
            let Some(subject) = issuer_of(last) else { break };
            let template =
                [Attribute::Class(ObjectClass::CERTIFICATE), Attribute::Subject(subject)];
            let found = self.with_values(self.search(&template)?, AttributeType::Value)?;
            let found: Vec<_> = found.into_iter().map(|found| found.value).collect();
            let Some(issuer) = issuer_among(&found, last) else { break };
            chain.push(issuer.clone());
        }
        Ok(chain)
    }
}
