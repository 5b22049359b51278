//! The attestation certificate of a key: the token's own word for where it was made.
//!
//! ykcs11 shows it before any login, as a certificate that exists in the session alone, under the CKA_ID
//! of its key. The one above it is stored on the card.

#![forbid(unsafe_code)]

use cryptoki::object::{AttributeType, ObjectClass};

use super::certificate;
use super::error::ObjectError;
use super::object::{Objects, Query};
use crate::certificate::Certificate;
use crate::config::ObjectSelector;
use crate::error::Error;
use crate::process::watchdog;

/// The certificates in DER, from that of the key upwards.
pub(super) fn chain(
    objects: Objects<'_>,
    selector: &ObjectSelector,
) -> Result<Vec<Vec<u8>>, Error> {
    let _step = watchdog::step("reading the attestation (C_FindObjects)");
    let failed = objects.failed("reading the attestation");
    let id = match &selector.id {
        Some(id) => id.as_bytes().to_owned(),
        None => labelled(objects, selector)?,
    };
    let query = Query { class: ObjectClass::CERTIFICATE, id: Some(&id), label: None };
    for object in objects.find(query).map_err(failed)? {
        let is_stored = objects.flag(object, AttributeType::Token).map_err(failed)?;
        if is_stored != Some(false) {
            continue;
        }
        let der = objects.bytes(object, AttributeType::Value).map_err(failed)?;
        let certificate = Certificate::from_der(&der, "the attestation")?;
        let mut chain = vec![certificate.der().to_owned()];
        chain.extend(certificate::issuers(objects, &certificate)?);
        return Ok(chain);
    }
    Err(ObjectError::NoAttestation {
        selector: selector.to_string(),
        token: objects.token.to_string(),
    }
    .into())
}

/// CKA_ID of the certificate or key with this label; empty if there is none.
fn labelled(objects: Objects<'_>, selector: &ObjectSelector) -> Result<Vec<u8>, Error> {
    let failed = objects.failed("looking for the key");
    for class in [ObjectClass::CERTIFICATE, ObjectClass::PUBLIC_KEY] {
        let found = objects.find(Query::new(class, selector)).map_err(failed)?;
        if let Some(object) = found.first() {
            return objects.bytes(*object, AttributeType::Id).map_err(failed);
        }
    }
    Ok(Vec::new())
}
