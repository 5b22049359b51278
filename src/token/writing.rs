//! Certificates that are written to a token and removed from it. None is overwritten: a new one is written beside the
//! others, and only the very certificate that is named is removed. (Keys are made in `generation`; on a YubiKey, making a
//! key can replace one.)

use crate::kind;
use cryptoki::error::{Error as CryptokiError, RvError};
use cryptoki::object::{Attribute, AttributeType, CertificateType, ObjectClass};

use super::key::KeyReference;
use super::raw::ObjectHandle;
use super::{Token, WRITABLE, ckr};
use config::{ObjectId, ObjectSelector};
use crypto::certificate::{Certificate, CertificateNames};
use messages::error::{Error, Exit};
use messages::help::{Help, HelpPart, command};
use system::signals::Deferral;

impl Token {
    /// Whether any object has this CKA_ID.
    pub fn is_in_use(&self, id: &ObjectId) -> Result<bool, Error> {
        let found = self.search(&[Attribute::Id(id.as_bytes().to_owned())])?;
        Ok(!found.is_empty())
    }

    /// A CKA_ID of one byte that no object has. To be called after a login ([`Token::log_in_if_required`]), since private
    /// objects count, too.
    pub fn unused_id(&self) -> Result<ObjectId, Error> {
        let all = self.with_values(self.search(&[])?, AttributeType::Id)?;
        let is_free = |id: &Vec<u8>| all.iter().all(|used| used.value != *id);
        let free = (1..=u8::MAX).map(|number| vec![number]).find(is_free);
        free.map(ObjectId::from_bytes).ok_or_else(|| {
            let text = format!("token {} has keys under every objectId of one byte", self.name());
            Error::new(Exit::Object, text).help("name a longer one with objectId (--object-id)")
        })
    }

    /// Writes the certificate of a CA, which is sent to servers along with the key's own, unless the token has it. Returns
    /// whether the token has it now: behind ykcs11 there is no room for it, as each slot holds only the certificate of its
    /// key.
    pub fn write_authority(&self, certificate: &Certificate) -> Result<bool, Error> {
        if self.state().is_yubikey() {
            return Ok(false);
        }
        match self.write_certificate(certificate, None) {
            Err(error) if error.is(&kind::CERTIFICATE_REFUSED) => Ok(false),
            outcome => outcome.map(|()| true),
        }
    }

    /// Writes a certificate (C_CreateObject) beside its key, with the key's CKA_ID and label, and reads it back. Other
    /// certificates stay. Nothing is written if the token has the certificate already, which another process may have
    /// written, or an earlier call that reported an error all the same.
    pub fn write_certificate(
        &self,
        certificate: &Certificate,
        key: Option<&KeyReference>,
    ) -> Result<(), Error> {
        let (label, id) = match key {
            Some(key) => (&key.label, key.id.as_slice()),
            None => (&certificate.subject, &[][..]),
        };
        let same = self.same_certificates(certificate)?;
        if id.is_empty() && !same.is_empty() {
            return Ok(());
        }
        let present = self.with_values(same, AttributeType::Id)?;
        if present.iter().any(|present| present.value == id) {
            return Ok(());
        }
        let object = {
            // A library that is killed while it writes may lose the whole token.
            let _deferral = Deferral::for_token();
            let made = self.session.create(&template(certificate, label, id));
            made.map_err(|error| self.certificate_failure(&error))?
        };
        log::info!("certificate: written");
        self.check_kept(object, certificate, id)
    }

    /// Reads the object back. Fails unless it is the certificate, under this CKA_ID.
    fn check_kept(
        &self,
        object: ObjectHandle,
        certificate: &Certificate,
        id: &[u8],
    ) -> Result<(), Error> {
        let kept = |attribute| {
            let kept = self.bytes(object, attribute);
            kept.map_err(|error| self.not_kept(certificate, &format!(": {error}")))
        };
        if !certificate.is_in(&kept(AttributeType::Value)?) || kept(AttributeType::Id)? != id {
            return Err(self.not_kept(certificate, ""));
        }
        Ok(())
    }

    /// The error for a certificate that the token has not kept. `why` is empty, or a colon and the call that has shown it.
    fn not_kept(&self, certificate: &Certificate, why: &str) -> Error {
        let text = format!(
            "token {} has not kept the certificate of {} as it was written{why}",
            self.name(),
            certificate.subject
        );
        Error::new(Exit::Object, text).help(
            "make room for the library's objects (on a full disk), or update it, and run the command again",
        )
    }

    /// Removes every object that is exactly this certificate (C_DestroyObject); keys stay. Nothing is removed if the token
    /// doesn't have the certificate that `stays`: another process may have removed that.
    pub fn remove_certificate(
        &self,
        certificate: &Certificate,
        stays: &Certificate,
    ) -> Result<(), Error> {
        if self.same_certificates(stays)?.is_empty() {
            return Err(self.not_kept(stays, ""));
        }
        for object in self.same_certificates(certificate)? {
            let _deferral = Deferral::for_token();
            self.session
                .destroy(object)
                .map_err(|error| self.writing_failure("removing the old certificate", &error))?;
        }
        Ok(())
    }

    /// The objects that are exactly this certificate.
    fn same_certificates(&self, certificate: &Certificate) -> Result<Vec<ObjectHandle>, Error> {
        let all = self.find_stored(ObjectClass::CERTIFICATE, &ObjectSelector::default())?;
        let mut same = self.with_values(all, AttributeType::Value)?;
        same.retain(|found| certificate.is_in(&found.value));
        Ok(same.into_iter().map(|found| found.object).collect())
    }

    /// The error for a certificate that the token didn't take. Unless the token is full or gone, it takes no certificates
    /// at all, for which each library has another return value.
    fn certificate_failure(&self, error: &CryptokiError) -> Error {
        if ckr::is_gone(error) || ckr::is_one_of(error, &[RvError::DeviceMemory, ckr::NO_HANDLE]) {
            return self.writing_failure("writing the certificate", error);
        }
        let text = format!("token {} takes no certificate: {}", self.name(), ckr::failure(error));
        Error::new(Exit::Object, text).kind(kind::CERTIFICATE_REFUSED).help(
            "write it with the token's own tool, or set certificateFile (--certificate-file) to its file",
        )
    }

    /// The error for a call that was to change the token and has failed.
    pub(super) fn writing_failure(&self, doing: &str, error: &CryptokiError) -> Error {
        let token = self.name();
        self.failure(error, |failure| {
            let text = format!("{doing} on token {token} failed: {failure}");
            let failed = |help: &str| Error::new(Exit::Object, text).help(help);
            match ckr::code(error) {
                Some(RvError::DeviceMemory) => {
                    let text = format!("{doing}: token {token} has no room left: {failure}");
                    let help = Help::from("remove what is not used any more (")
                        .and(command("list").and(HelpPart::Token).and(" --login"))
                        .and(" shows it)");
                    Error::new(Exit::Object, text).help(help)
                }
                Some(RvError::AttributeValueInvalid | RvError::KeySizeRange) => failed(
                    "the token may not make keys of this kind or size: choose another with --key",
                ),
                Some(RvError::SessionReadOnly | RvError::TokenWriteProtected) => failed(WRITABLE),
                _ => failed(
                    "check that the token is still inserted, and run the command again: it goes on; what the token \
                     refuses each time is for its own tool: docs/tokens.md#a-key-and-its-certificate",
                ),
            }
        })
    }
}

/// The attributes of a certificate that is written. An empty CKA_ID is left out.
fn template(certificate: &Certificate, label: &str, id: &[u8]) -> Vec<Attribute> {
    let mut template = vec![
        Attribute::Class(ObjectClass::CERTIFICATE),
        Attribute::CertificateType(CertificateType::X_509),
        Attribute::Token(true),
        Attribute::Label(label.as_bytes().to_owned()),
        Attribute::Value(certificate.der().to_owned()),
    ];
    if let Some(CertificateNames { subject, issuer, serial_number }) = certificate.names() {
        template.extend([
            Attribute::Subject(subject),
            Attribute::Issuer(issuer),
            Attribute::SerialNumber(serial_number),
        ]);
    }
    if !id.is_empty() {
        template.push(Attribute::Id(id.to_owned()));
    }
    template
}
