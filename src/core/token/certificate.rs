//! The certificate that a selector names, and its issuers.

#![forbid(unsafe_code)]

use cryptoki::object::{Attribute, AttributeType, ObjectClass};

use super::error::ObjectError;
use super::object::{Objects, Query};
use super::raw::ObjectHandle;
use crate::certificate::{Certificate, day, issuer_among, issuer_of, meant};
use crate::config::ObjectSelector;
use crate::error::Error;
use crate::process::{unix_time, watchdog};

/// Certificates above the first one.
const LONGEST_CHAIN: usize = 8;

/// A certificate on the token, and the CKA_ID that it shares with its key (may be empty).
pub struct FoundCertificate {
    pub certificate: Certificate,
    pub id: Vec<u8>,
}

/// Finds the one certificate that fits among those that can be seen; `None` if there is none.
pub(super) fn find(
    objects: Objects<'_>,
    selector: &ObjectSelector,
) -> Result<Option<FoundCertificate>, Error> {
    let failed = objects.failed("reading the certificates");
    let query = Query::new(ObjectClass::CERTIFICATE, selector);
    let stored = objects.find_stored(query).map_err(failed)?;
    let mut found = Vec::with_capacity(stored.len());
    for object in &stored {
        match read(objects, *object, selector) {
            Ok(certificate) => found.push((*object, certificate)),
            // Among several, one that can't be read is no candidate.
            Err(_) if stored.len() > 1 => {}
            Err(error) => return Err(error),
        }
    }
    let certificates: Vec<_> = found.iter().map(|(_, certificate)| certificate).collect();
    let meant = meant(&certificates, unix_time());
    let [place] = meant[..] else {
        let several = meant.iter().filter_map(|place| Some(found.get(*place)?.0));
        let several: Vec<_> = several.collect();
        if several.is_empty() {
            return Ok(None);
        }
        let class = ObjectClass::CERTIFICATE;
        return Err(objects.several("certificates", selector, &several, class));
    };
    let others = found.len() - 1;
    let (object, certificate) = found.swap_remove(place);
    if others > 0 {
        log::info!(
            "{} certificates with {selector}: the one valid until {} is taken, serial number {}",
            others + 1,
            day(certificate.validity.not_after),
            certificate.serial_number,
        );
    }
    let id = match &selector.id {
        Some(id) => id.as_bytes().to_owned(),
        None => objects.bytes(object, AttributeType::Id).map_err(failed)?,
    };
    Ok(Some(FoundCertificate { certificate, id }))
}

fn read(
    objects: Objects<'_>,
    object: ObjectHandle,
    selector: &ObjectSelector,
) -> Result<Certificate, Error> {
    let der = objects.bytes(object, AttributeType::Value);
    let der = der.map_err(objects.failed("reading the certificate"))?;
    let source = format!("the certificate with {selector}");
    Ok(Certificate::from_der(&der, &source)?)
}

/// Why [`find`] has found none. `is_unsearched`: there may be one that is hidden without a login.
pub(super) fn missing(
    objects: Objects<'_>,
    selector: &ObjectSelector,
    is_unsearched: bool,
) -> ObjectError {
    let query = Query::new(ObjectClass::CERTIFICATE, selector);
    let matching = objects.find(query).unwrap_or_default();
    let all = matching.len();
    // None was left of the stored ones, so they couldn't be read.
    let stored = objects.unless_false(matching, AttributeType::Token).ok();
    ObjectError::NoCertificate {
        selector: selector.to_string(),
        token: objects.token.to_string(),
        passed_over: stored.as_ref().map_or(0, |stored| all - stored.len()),
        unreadable: stored.map_or(0, |stored| stored.len()),
        is_unsearched,
        present: objects.summaries(ObjectClass::CERTIFICATE, selector),
    }
}

/// The certificates on the token that lead from this one towards its root, in DER, found by
/// CKA_SUBJECT; without the root.
pub(super) fn issuers(
    objects: Objects<'_>,
    certificate: &Certificate,
) -> Result<Vec<Vec<u8>>, Error> {
    let _step = watchdog::step("reading the issuers' certificates (C_FindObjects)");
    let failed = objects.failed("reading the issuer's certificate");
    let mut chain: Vec<Vec<u8>> = Vec::new();
    while chain.len() < LONGEST_CHAIN {
        let last = chain.last().map_or_else(|| certificate.der(), Vec::as_slice);
        let Some(subject) = issuer_of(last) else {
            break;
        };
        let template = [Attribute::Class(ObjectClass::CERTIFICATE), Attribute::Subject(subject)];
        let found = objects.session.find(&template).map_err(failed)?;
        let found = found.iter().map(|it| objects.bytes(*it, AttributeType::Value));
        let found: Vec<_> = found.collect::<Result<_, _>>().map_err(failed)?;
        let Some(issuer) = issuer_among(&found, last) else {
            break;
        };
        chain.push(issuer.clone());
    }
    Ok(chain)
}
