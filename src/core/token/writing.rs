//! What is written to a token and removed from it: a certificate beside its key. Nothing that is there
//! is ever overwritten.

#![forbid(unsafe_code)]

use cryptoki::error::{Error as CryptokiError, RvError};
use cryptoki::object::{Attribute, AttributeType, CertificateType, ObjectClass};

use super::ckr;
use super::error::{ObjectSummary, WritingError};
use super::object::{Objects, Query, class};
use super::public_key::FoundKey;
use super::raw::{CallResult, ObjectHandle};
use super::session::TokenSession;
use crate::certificate::Certificate;
use crate::config::ObjectId;
use crate::error::Error;
use crate::process::signals::Deferral;
use crate::process::watchdog;

/// The objects with this CKA_ID, and their classes.
pub(super) fn with_id(
    objects: Objects<'_>,
    id: &ObjectId,
) -> CallResult<Vec<(ObjectHandle, Option<ObjectClass>)>> {
    let template = [Attribute::Id(id.as_bytes().to_owned())];
    let mut found = Vec::new();
    for object in objects.session.find(&template)? {
        let shown = objects.bytes(object, AttributeType::Class)?;
        found.push((object, class(&shown)));
    }
    Ok(found)
}

/// The objects with this CKA_ID, whatever they are.
pub(super) fn objects_with_id(
    objects: Objects<'_>,
    id: &ObjectId,
) -> Result<Vec<ObjectSummary>, Error> {
    let _step = watchdog::step("looking for objects (C_FindObjects)");
    let found = with_id(objects, id).map_err(objects.failed("looking for objects"))?;
    let summaries = found.into_iter();
    Ok(summaries.map(|(object, class)| objects.summary(object, class)).collect())
}

/// The first CKA_ID that no object has.
pub(super) fn unused_id(objects: Objects<'_>) -> Result<ObjectId, Error> {
    let _step = watchdog::step("looking for a free CKA_ID (C_FindObjects)");
    let failed = objects.failed("looking for a free CKA_ID");
    let mut used = Vec::new();
    for object in objects.session.find(&[]).map_err(failed)? {
        used.push(objects.bytes(object, AttributeType::Id).map_err(failed)?);
    }
    let short = (1..=u8::MAX).map(|number| vec![number]);
    let long = (1..=u16::MAX).map(|number| number.to_be_bytes().to_vec());
    let mut free = short.chain(long).filter(|id| !used.contains(id));
    let free = free.next().map(ObjectId::from_bytes);
    free.ok_or_else(|| Error::internal("a token with every CKA_ID"))
}

/// A certificate beside its key.
pub(super) fn write_certificate(
    session: &TokenSession<'_>,
    certificate: &Certificate,
    key: &FoundKey,
) -> Result<(), Error> {
    write(session, certificate, &key.label, &key.id)
}

/// The certificate of a CA.
pub(super) fn write_authority(
    session: &TokenSession<'_>,
    certificate: &Certificate,
) -> Result<(), Error> {
    write(session, certificate, &certificate.subject, &[])
}

/// C_CreateObject, and what the token has of it afterwards. Nothing is written if it is there: by another
/// process, or by a call that ended with an error all the same.
fn write(
    session: &TokenSession<'_>,
    certificate: &Certificate,
    label: &str,
    id: &[u8],
) -> Result<(), Error> {
    let objects = session.objects();
    for present in same_certificates(objects, certificate)? {
        let failed = objects.failed("looking for the certificate");
        if id.is_empty() || objects.bytes(present, AttributeType::Id).map_err(failed)? == id {
            return Ok(());
        }
    }
    let mut template = vec![
        Attribute::Class(ObjectClass::CERTIFICATE),
        Attribute::CertificateType(CertificateType::X_509),
        Attribute::Token(true),
        Attribute::Label(label.as_bytes().to_owned()),
        Attribute::Value(certificate.der().to_owned()),
    ];
    if let Some(names) = certificate.names() {
        template.extend([
            Attribute::Subject(names.subject),
            Attribute::Issuer(names.issuer),
            Attribute::SerialNumber(names.serial_number),
        ]);
    }
    if !id.is_empty() {
        template.push(Attribute::Id(id.to_owned()));
    }
    let object = create(session, &template);
    let object = object.map_err(|error| certificate_failure(session, &error))?;
    log::info!("certificate: written");
    let kept = |attribute, value: &[u8]| Ok(objects.bytes(object, attribute)? == value);
    let is_kept = kept(AttributeType::Value, certificate.der())
        .and_then(|is_kept| Ok(is_kept && kept(AttributeType::Id, id)?));
    match is_kept {
        Ok(true) => Ok(()),
        Ok(false) => Err(not_kept(session, certificate, String::new())),
        Err(error) => {
            let failure = ckr::failure(&error);
            Err(not_kept(session, certificate, format!(": {failure}")))
        }
    }
}

fn not_kept(session: &TokenSession<'_>, certificate: &Certificate, why: String) -> Error {
    WritingError::NotKept {
        token: session.state.name.to_string(),
        what: format!("the certificate of {}", certificate.subject),
        why,
    }
    .into()
}

/// Signals wait: a library that is killed while it writes may lose the whole token.
fn create(session: &TokenSession<'_>, template: &[Attribute]) -> CallResult<ObjectHandle> {
    let _step = watchdog::step("writing the certificate (C_CreateObject)");
    let _deferral = Deferral::for_files();
    session.raw.create(template)
}

/// Removes each object with exactly this certificate; none if the token hasn't the one that is to stay, which
/// another process may have removed.
pub(super) fn remove_certificate(
    session: &TokenSession<'_>,
    certificate: &Certificate,
    stays: Option<&Certificate>,
) -> Result<(), Error> {
    if let Some(stays) = stays
        && same_certificates(session.objects(), stays)?.is_empty()
    {
        return Err(not_kept(session, stays, String::new()));
    }
    for object in same_certificates(session.objects(), certificate)? {
        let _step = watchdog::step("removing the certificate (C_DestroyObject)");
        let _deferral = Deferral::for_files();
        let removed = session.raw.destroy(object);
        let doing = "removing the old certificate";
        removed.map_err(|error| failure(session, doing, &error, Vec::new()))?;
    }
    Ok(())
}

/// The objects that are exactly this certificate.
fn same_certificates(
    objects: Objects<'_>,
    certificate: &Certificate,
) -> Result<Vec<ObjectHandle>, Error> {
    let failed = objects.failed("looking for the certificate");
    let query = Query::every(ObjectClass::CERTIFICATE);
    let mut same = Vec::new();
    for object in objects.find_stored(query).map_err(failed)? {
        let der = objects.bytes(object, AttributeType::Value);
        same.extend((der.map_err(failed)? == certificate.der()).then_some(object));
    }
    Ok(same)
}

/// A token that never takes a certificate, or the error of [`failure`].
fn certificate_failure(session: &TokenSession<'_>, error: &CryptokiError) -> Error {
    let is_refusal = match ckr::code(error) {
        Some(code) => matches!(
            code,
            RvError::FunctionNotSupported
                | RvError::AttributeTypeInvalid
                | RvError::AttributeValueInvalid
                | RvError::TemplateInconsistent
                | RvError::UserTypeInvalid
                | RvError::TokenWriteProtected
                | RvError::SessionReadOnly
        ),
        None => matches!(error, CryptokiError::NullFunctionPointer),
    };
    if !is_refusal {
        return failure(session, "writing the certificate", error, Vec::new());
    }
    WritingError::Refused { token: session.state.name.to_string(), failure: ckr::failure(error) }
        .into()
}

/// The error of a call that failed to change the token.
pub(super) fn failure(
    session: &TokenSession<'_>,
    doing: &'static str,
    error: &CryptokiError,
    left: Vec<ObjectSummary>,
) -> Error {
    let token = session.state.name.to_string();
    session.failure(error, |failure| {
        match ckr::code(error) {
            Some(RvError::DeviceMemory) => WritingError::Full { doing, token, failure, left },
            _ => WritingError::Call { doing, token, failure, left },
        }
        .into()
    })
}
