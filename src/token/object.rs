//! Certificates and keys on the token: searched by CKA_ID and CKA_LABEL, read attribute by
//! attribute.
//!
//! One attribute a call, after the module has said that it has it: asked for several at once,
//! or for one they don't know, modules leave zeros that read like answers. CKA_KEY_TYPE, which no
//! key is without, goes along with another one.

#![forbid(unsafe_code)]

use cryptoki::error::Error as CryptokiError;
use cryptoki::object::{Attribute, AttributeType, KeyType, ObjectClass, ObjectHandle};

use super::raw::Session;
use crate::certificate::{Certificate, PublicKey};
use crate::config::{ObjectId, ObjectSelector};
use crate::error::ObjectSummary;
use crate::process::watchdog;

type Result<T> = std::result::Result<T, CryptokiError>;

/// What the objects of a search have in common.
#[derive(Clone, Copy)]
pub(super) struct Query<'a> {
    pub(super) class: ObjectClass,
    pub(super) id: Option<&'a [u8]>,
    pub(super) label: Option<&'a str>,
}

impl<'a> Query<'a> {
    pub(super) fn new(class: ObjectClass, selector: &'a ObjectSelector) -> Self {
        Self {
            class,
            id: selector.id.as_ref().map(ObjectId::as_bytes),
            label: selector.label.as_deref(),
        }
    }
}

/// All that fit (C_FindObjects).
pub(super) fn find(session: &Session, query: Query<'_>) -> Result<Vec<ObjectHandle>> {
    let mut template = vec![Attribute::Class(query.class)];
    if let Some(id) = query.id {
        template.push(Attribute::Id(id.to_owned()));
    }
    if let Some(label) = query.label {
        template.push(Attribute::Label(label.as_bytes().to_owned()));
    }
    session.find(&template)
}

/// The certificates of this subject (DER of the Name).
pub(super) fn find_certificate_of(session: &Session, subject: &[u8]) -> Result<Vec<ObjectHandle>> {
    session.find(&[
        Attribute::Class(ObjectClass::CERTIFICATE),
        Attribute::Subject(subject.to_owned()),
    ])
}

/// One attribute; `None` where the object doesn't have it or doesn't show it.
pub(super) fn attribute(
    session: &Session,
    object: ObjectHandle,
    kind: AttributeType,
) -> Result<Option<Attribute>> {
    watchdog::renew();
    Ok(session.attributes(object, &[kind])?.pop())
}

/// A boolean attribute; `None` where the module doesn't say, or says it in other than one byte.
pub(super) fn flag(
    session: &Session,
    object: ObjectHandle,
    kind: AttributeType,
) -> Result<Option<bool>> {
    match attribute(session, object, kind) {
        Ok(Some(
            Attribute::Token(value)
            | Attribute::Private(value)
            | Attribute::Sign(value)
            | Attribute::AlwaysAuthenticate(value),
        )) => Ok(Some(value)),
        Err(error @ CryptokiError::Pkcs11(..)) => Err(error),
        Ok(_) | Err(_) => Ok(None),
    }
}

/// A byte string, such as CKA_ID, CKA_VALUE or CKA_MODULUS; empty where there is none.
pub(super) fn bytes(
    session: &Session,
    object: ObjectHandle,
    kind: AttributeType,
) -> Result<Vec<u8>> {
    Ok(match attribute(session, object, kind)? {
        Some(
            Attribute::Id(bytes)
            | Attribute::Label(bytes)
            | Attribute::Value(bytes)
            | Attribute::Modulus(bytes)
            | Attribute::EcParams(bytes)
            | Attribute::EcPoint(bytes),
        ) => bytes,
        _ => Vec::new(),
    })
}

/// Without the objects that live in the session alone: a YubiKey's attestation certificates
/// share CKA_ID and public key with the certificate that is meant.
pub(super) fn without_session_objects(
    session: &Session,
    objects: Vec<ObjectHandle>,
) -> Result<Vec<ObjectHandle>> {
    affirming(session, objects, AttributeType::Token)
}

/// Without the keys that say they can't sign.
pub(super) fn able_to_sign(
    session: &Session,
    objects: Vec<ObjectHandle>,
) -> Result<Vec<ObjectHandle>> {
    affirming(session, objects, AttributeType::Sign)
}

/// The objects that don't deny an attribute; what a module doesn't say counts as a yes.
fn affirming(
    session: &Session,
    objects: Vec<ObjectHandle>,
    kind: AttributeType,
) -> Result<Vec<ObjectHandle>> {
    let mut left = Vec::with_capacity(objects.len());
    for object in objects {
        if flag(session, object, kind)? != Some(false) {
            left.push(object);
        }
    }
    Ok(left)
}

/// What a private key says of itself, as far as it does.
#[derive(Default)]
pub(super) struct Traits {
    pub(super) key_type: Option<KeyType>,
    pub(super) always_authenticate: Option<bool>,
}

/// CKA_KEY_TYPE and CKA_ALWAYS_AUTHENTICATE.
pub(super) fn traits(session: &Session, object: ObjectHandle) -> Result<Traits> {
    watchdog::renew();
    let kinds = [AttributeType::KeyType, AttributeType::AlwaysAuthenticate];
    let shown = match session.attributes(object, &kinds) {
        Err(error @ CryptokiError::Pkcs11(..)) => return Err(error),
        shown => shown.unwrap_or_default(),
    };
    let mut traits = Traits::default();
    for attribute in shown {
        match attribute {
            Attribute::KeyType(kind) => traits.key_type = Some(kind),
            Attribute::AlwaysAuthenticate(yes) => traits.always_authenticate = Some(yes),
            _ => {}
        }
    }
    Ok(traits)
}

/// Whether no key of this type has such a public key. A vendor's own type says nothing, and before
/// PKCS#11 3.0 there was none but CKK_EC for Edwards curves.
pub(super) fn is_of_another_type(key_type: KeyType, key: &PublicKey) -> bool {
    let types: &[_] = match key {
        PublicKey::Rsa { .. } => &[KeyType::RSA],
        PublicKey::Ecdsa { .. } => &[KeyType::EC],
        PublicKey::Ed25519(_) => &[KeyType::EC_EDWARDS, KeyType::EC],
    };
    !types.contains(&key_type) && KeyType::new_vendor_defined(*key_type).is_err()
}

/// Whether a key object has this public key; `None` where the object doesn't show it and could
/// have it by its type.
pub(super) fn belongs_to(
    session: &Session,
    object: ObjectHandle,
    key: &PublicKey,
) -> Result<Option<bool>> {
    let (kind, expected) = match key {
        PublicKey::Rsa { modulus, .. } => (AttributeType::Modulus, modulus.as_slice()),
        PublicKey::Ecdsa { point, .. } => (AttributeType::EcPoint, point.as_slice()),
        PublicKey::Ed25519(point) => (AttributeType::EcPoint, point.as_slice()),
    };
    watchdog::renew();
    let mut by_type = None;
    for attribute in session.attributes(object, &[AttributeType::KeyType, kind])? {
        match attribute {
            Attribute::Modulus(shown) => {
                let equal = without_leading_zeros(&shown) == without_leading_zeros(expected);
                return Ok(Some(equal));
            }
            // A DER OCTET STRING around the point, or the point alone: modules do either.
            Attribute::EcPoint(shown) => {
                let equal = shown.ends_with(expected) && shown.len() <= expected.len() + 4;
                return Ok(Some(equal));
            }
            Attribute::KeyType(key_type) if is_of_another_type(key_type, key) => {
                by_type = Some(false);
            }
            _ => {}
        }
    }
    Ok(by_type)
}

fn without_leading_zeros(number: &[u8]) -> &[u8] {
    let zeros = number.iter().take_while(|byte| **byte == 0).count();
    number.get(zeros..).unwrap_or_default()
}

/// Every object of a class that stays on the token, for a message; what can't be read is left out.
pub(super) fn summaries(session: &Session, class: ObjectClass) -> Vec<ObjectSummary> {
    let every = Query {
        class,
        id: None,
        label: None,
    };
    let objects = find(session, every)
        .and_then(|objects| without_session_objects(session, objects))
        .unwrap_or_default();
    let mut summaries: Vec<_> = objects
        .into_iter()
        .map(|object| summary(session, object, class))
        .collect();
    // Short ids first, so that 2 stands before 10.
    summaries.sort_by_cached_key(|summary| (summary.id.len(), summary.id.clone()));
    summaries
}

/// One object as the configuration can name it.
pub(super) fn summary(
    session: &Session,
    object: ObjectHandle,
    class: ObjectClass,
) -> ObjectSummary {
    let id = bytes(session, object, AttributeType::Id).unwrap_or_default();
    let label = bytes(session, object, AttributeType::Label).unwrap_or_default();
    ObjectSummary {
        id: if id.is_empty() {
            String::new()
        } else {
            ObjectId::from_bytes(id).to_string()
        },
        label: String::from_utf8_lossy(&label).into_owned(),
        what: match class {
            ObjectClass::CERTIFICATE => certificate_words(session, object),
            _ => key_words(session, object),
        },
    }
}

fn certificate_words(session: &Session, object: ObjectHandle) -> String {
    let der = bytes(session, object, AttributeType::Value).unwrap_or_default();
    match Certificate::from_der(der, "the object") {
        Ok(certificate) => {
            let authority = if certificate.is_ca() {
                "CA certificate"
            } else {
                "certificate"
            };
            format!(
                "{authority} of {} ({})",
                certificate.subject(),
                certificate.public_key()
            )
        }
        Err(_) => "an unreadable certificate".to_owned(),
    }
}

fn key_words(session: &Session, object: ObjectHandle) -> String {
    match attribute(session, object, AttributeType::KeyType) {
        Ok(Some(Attribute::KeyType(kind))) => {
            format!("private key, {}", kind.to_string().replace("CKK_", ""))
        }
        _ => "private key".to_owned(),
    }
}
