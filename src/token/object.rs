//! Certificates and keys on the token: searched by CKA_ID and CKA_LABEL, read attribute by
//! attribute.
//!
//! One attribute a call, after the module has said that it has it: asked for several at once,
//! or for one they don't know, modules leave zeros that read like answers. CKA_KEY_TYPE, which no
//! key is without, goes along with another one.

#![forbid(unsafe_code)]

use cryptoki::error::Error as CryptokiError;
use cryptoki::object::{Attribute, AttributeType, KeyType, ObjectClass};
use cryptoki_sys::CK_KEY_TYPE;

use super::error::ObjectSummary;
use super::raw::{ObjectHandle, Session};
use crate::certificate::{Certificate, Curve, PublicKey, day};
use crate::config::{ObjectId, ObjectSelector};
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
pub(super) fn find(session: &Session<'_>, query: Query<'_>) -> Result<Vec<ObjectHandle>> {
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
pub(super) fn find_certificate_of(
    session: &Session<'_>,
    subject: &[u8],
) -> Result<Vec<ObjectHandle>> {
    session.find(&[
        Attribute::Class(ObjectClass::CERTIFICATE),
        Attribute::Subject(subject.to_owned()),
    ])
}

/// One attribute; `None` where the object doesn't have it or doesn't show it.
fn attribute(
    session: &Session<'_>,
    object: ObjectHandle,
    kind: AttributeType,
) -> Result<Option<Vec<u8>>> {
    watchdog::renew();
    let shown = session.attributes(object, &[kind])?.pop();
    Ok(shown.map(|(_, value)| value))
}

/// CKA_KEY_TYPE; `None` for one that isn't shown or has no name.
pub(super) fn key_type(session: &Session<'_>, object: ObjectHandle) -> Option<KeyType> {
    let shown = attribute(session, object, AttributeType::KeyType).ok()??;
    named_key_type(&shown)
}

fn named_key_type(shown: &[u8]) -> Option<KeyType> {
    let number = CK_KEY_TYPE::from_ne_bytes(shown.try_into().ok()?);
    KeyType::try_from(number).ok()
}

/// A CK_BBOOL; `None` for other than one byte.
fn boolean(shown: &[u8]) -> Option<bool> {
    match shown {
        [value] => Some(*value != 0),
        _ => None,
    }
}

/// A boolean attribute; `None` where the module doesn't say, or says it in other than one byte.
pub(super) fn flag(
    session: &Session<'_>,
    object: ObjectHandle,
    kind: AttributeType,
) -> Result<Option<bool>> {
    let shown = attribute(session, object, kind)?;
    Ok(shown.as_deref().and_then(boolean))
}

/// A byte string, such as CKA_ID, CKA_VALUE or CKA_MODULUS; empty where there is none.
pub(super) fn bytes(
    session: &Session<'_>,
    object: ObjectHandle,
    kind: AttributeType,
) -> Result<Vec<u8>> {
    attribute(session, object, kind).map(Option::unwrap_or_default)
}

/// Without the objects that live in the session alone: a YubiKey's attestation certificates
/// share CKA_ID and public key with the certificate that is meant.
pub(super) fn without_session_objects(
    session: &Session<'_>,
    objects: Vec<ObjectHandle>,
) -> Result<Vec<ObjectHandle>> {
    affirming(session, objects, AttributeType::Token)
}

/// Without the keys that say they can't sign.
pub(super) fn able_to_sign(
    session: &Session<'_>,
    objects: Vec<ObjectHandle>,
) -> Result<Vec<ObjectHandle>> {
    affirming(session, objects, AttributeType::Sign)
}

/// The objects that don't deny an attribute; what a module doesn't say counts as a yes.
fn affirming(
    session: &Session<'_>,
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
    pub(super) always_authenticate: Option<bool>,
    /// It can't be the public key's.
    pub(super) is_anothers: bool,
}

/// CKA_ALWAYS_AUTHENTICATE, and whose key it is by its type and its modulus or curve.
pub(super) fn traits(
    session: &Session<'_>,
    object: ObjectHandle,
    key: &PublicKey,
) -> Result<Traits> {
    watchdog::renew();
    let telling = match key {
        PublicKey::Rsa { .. } => AttributeType::Modulus,
        PublicKey::Ecdsa { .. } | PublicKey::Ed25519(_) => AttributeType::EcParams,
    };
    let asks = AttributeType::AlwaysAuthenticate;
    let shown = session.attributes(object, &[AttributeType::KeyType, asks, telling])?;
    let always_authenticate = shown.iter().find(|(kind, _)| *kind == asks);
    let always_authenticate = always_authenticate.and_then(|(_, value)| boolean(value));
    Ok(Traits {
        always_authenticate,
        is_anothers: is_of(&shown, key) == Some(false),
    })
}

/// Whether a key object has this public key; `None` where the object doesn't show it and could
/// have it by its type and curve.
pub(super) fn belongs_to(
    session: &Session<'_>,
    object: ObjectHandle,
    key: &PublicKey,
) -> Result<Option<bool>> {
    // A private key of an elliptic curve has no point, but a curve.
    let telling: &[_] = match key {
        PublicKey::Rsa { .. } => &[AttributeType::Modulus],
        PublicKey::Ecdsa { .. } | PublicKey::Ed25519(_) => {
            &[AttributeType::EcPoint, AttributeType::EcParams]
        }
    };
    for kind in telling {
        watchdog::renew();
        let shown = session.attributes(object, &[AttributeType::KeyType, *kind])?;
        let answer = is_of(&shown, key);
        if answer.is_some() {
            return Ok(answer);
        }
    }
    Ok(None)
}

/// The objects that don't show another public key than this one.
pub(super) fn possible(
    session: &Session<'_>,
    objects: &[ObjectHandle],
    key: &PublicKey,
) -> Result<Vec<ObjectHandle>> {
    let mut left = Vec::with_capacity(objects.len());
    for object in objects {
        if belongs_to(session, *object, key)? != Some(false) {
            left.push(*object);
        }
    }
    Ok(left)
}

/// CKA_LABEL of each object that shows this public key, among the public keys of a search.
pub(super) fn labels_of(
    session: &Session<'_>,
    query: Query<'_>,
    key: &PublicKey,
) -> Result<Vec<Vec<u8>>> {
    let class = ObjectClass::PUBLIC_KEY;
    let mut labels = Vec::new();
    for object in find(session, Query { class, ..query })? {
        if belongs_to(session, object, key)? == Some(true) {
            labels.push(bytes(session, object, AttributeType::Label)?);
        }
    }
    Ok(labels)
}

/// Whether what a key object shows is this public key's; `None` where it could be.
fn is_of(shown: &[(AttributeType, Vec<u8>)], key: &PublicKey) -> Option<bool> {
    let answers = shown.iter().filter_map(|(kind, shown)| match (*kind, key) {
        (AttributeType::KeyType, _) => {
            is_of_another_type(named_key_type(shown)?, key).then_some(false)
        }
        (AttributeType::Modulus, PublicKey::Rsa { modulus, .. }) => {
            let shown = without_leading_zeros(shown);
            (!shown.is_empty()).then(|| shown == without_leading_zeros(modulus))
        }
        // A DER OCTET STRING around the point, or the point alone: modules do either.
        (AttributeType::EcPoint, PublicKey::Ecdsa { point, .. }) => Some(holds(shown, point)),
        (AttributeType::EcPoint, PublicKey::Ed25519(point)) => Some(holds(shown, point)),
        (AttributeType::EcParams, PublicKey::Ecdsa { curve, .. }) => {
            (Curve::from_parameters(shown)? != *curve).then_some(false)
        }
        (AttributeType::EcParams, PublicKey::Ed25519(_)) => {
            Curve::from_parameters(shown).map(|_| false)
        }
        _ => None,
    });
    // One no is enough.
    answers.min()
}

fn holds(shown: &[u8], point: &[u8]) -> bool {
    shown.ends_with(point) && shown.len() <= point.len() + 4
}

/// Whether no key of this type has such a public key. A vendor's own type says nothing, and before
/// PKCS#11 3.0 there was none but CKK_EC for Edwards curves.
fn is_of_another_type(key_type: KeyType, key: &PublicKey) -> bool {
    let types: &[_] = match key {
        PublicKey::Rsa { .. } => &[KeyType::RSA],
        PublicKey::Ecdsa { .. } => &[KeyType::EC],
        PublicKey::Ed25519(_) => &[KeyType::EC_EDWARDS, KeyType::EC],
    };
    !types.contains(&key_type) && KeyType::new_vendor_defined(*key_type).is_err()
}

fn without_leading_zeros(number: &[u8]) -> &[u8] {
    let zeros = number.iter().take_while(|byte| **byte == 0).count();
    number.get(zeros..).unwrap_or_default()
}

/// Every object of a class that stays on the token, for a message, those first that are near to what
/// was named; what can't be read is left out.
pub(super) fn summaries(
    session: &Session<'_>,
    class: ObjectClass,
    named: &ObjectSelector,
) -> Vec<ObjectSummary> {
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
    let id = named.id.as_ref().map(ToString::to_string);
    let label = named.label.as_ref().map(|label| label.to_lowercase());
    summaries.sort_by_cached_key(|summary| {
        let own = summary.label.to_lowercase();
        let is_alike = label
            .as_ref()
            .is_some_and(|label| own.contains(label) || !own.is_empty() && label.contains(&own));
        let is_near = is_alike || id.as_ref() == Some(&summary.id);
        (!is_near, summary.id.len(), summary.id.clone())
    });
    summaries
}

/// One object as the configuration can name it.
pub(super) fn summary(
    session: &Session<'_>,
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

fn certificate_words(session: &Session<'_>, object: ObjectHandle) -> String {
    let der = bytes(session, object, AttributeType::Value).unwrap_or_default();
    match Certificate::from_der(der, "the object") {
        Ok(certificate) => {
            let authority = if certificate.is_ca() {
                "CA certificate"
            } else {
                "certificate"
            };
            let validity = certificate.validity();
            format!(
                "{authority} of {} ({}), valid from {} to {}, serial number {}",
                certificate.subject(),
                certificate.public_key(),
                day(validity.not_before),
                day(validity.not_after),
                certificate.serial_number(),
            )
        }
        Err(_) => "an unreadable certificate".to_owned(),
    }
}

fn key_words(session: &Session<'_>, object: ObjectHandle) -> String {
    match key_type(session, object) {
        Some(kind) => format!("private key, {}", kind.to_string().replace("CKK_", "")),
        None => "private key".to_owned(),
    }
}
