//! Where a private key is, and the public key that its signatures are verified with: the
//! certificate's, or what the token shows of a key that has no certificate.

use crate::certificate::{Certificate, PublicKey};
use crate::config::{ObjectId, ObjectSelector};
use crate::error::Error;
use crate::pin::PinProvider;
use crate::token::{FoundKey, ObjectError, PrivateKey, Token, WantedKey};

/// A reference to a key that may not be open yet.
#[derive(Clone)]
pub struct KeyReference {
    public_key: PublicKey,
    selector: ObjectSelector,
    /// CKA_ID of the certificate or of the public key on the token; empty where it has none.
    id: Option<Vec<u8>>,
    /// The subject of its certificate.
    subject: Option<String>,
}

impl KeyReference {
    /// The key of a certificate: under its CKA_ID, or named by the selector.
    pub fn of_certificate(
        certificate: &Certificate,
        selector: &ObjectSelector,
        id: Option<Vec<u8>>,
    ) -> Self {
        Self {
            public_key: certificate.public_key().clone(),
            selector: selector.clone(),
            id,
            subject: Some(certificate.subject.clone()),
        }
    }

    /// A key whose public key the token shows.
    pub fn of_key(found: FoundKey) -> Self {
        Self {
            selector: found.selector(),
            public_key: found.public_key,
            id: Some(found.id),
            subject: None,
        }
    }

    pub fn public_key(&self) -> &PublicKey {
        &self.public_key
    }

    /// CKA_ID, if it is known and not empty.
    pub fn id(&self) -> Option<&[u8]> {
        self.id.as_deref().filter(|id| !id.is_empty())
    }

    /// The objects that stand beside the key: those with its CKA_ID.
    pub(super) fn neighbours(&self) -> ObjectSelector {
        match self.id() {
            Some(id) => {
                ObjectSelector { id: Some(ObjectId::from_bytes(id.to_owned())), label: None }
            }
            None => self.selector.clone(),
        }
    }

    pub(super) fn mismatch(&self) -> Error {
        ObjectError::Mismatch {
            certificate: match &self.subject {
                Some(subject) => format!("the certificate of {subject}"),
                None => format!("the public key with {}", self.selector),
            },
            key: self.describe(),
        }
        .into()
    }

    pub(super) fn private_key(
        &self,
        token: &mut Token<'_>,
        pins: &mut dyn PinProvider,
    ) -> Result<PrivateKey, Error> {
        let wanted = WantedKey {
            selector: &self.selector,
            id: self.id.as_deref(),
            public_key: &self.public_key,
        };
        let key = token.private_key(&wanted, self.describe(), pins)?;
        if key.traits.is_anothers {
            return Err(self.mismatch());
        }
        Ok(key)
    }

    /// The key for messages: `the key with objectId "2" (CN=jane)`, or with its kind where it has no
    /// certificate.
    pub fn describe(&self) -> String {
        let selector = &self.selector;
        match &self.subject {
            Some(subject) => format!("the key with {selector} ({subject})"),
            None => format!("the key with {selector} ({})", self.public_key),
        }
    }
}
