//! The private key of a certificate, and the public keys beside it.

#![forbid(unsafe_code)]

use cryptoki::error::Error as CryptokiError;
use cryptoki::object::{AttributeType, ObjectClass};

use super::error::ObjectError;
use super::object::{Objects, Query};
use super::raw::ObjectHandle;
use crate::certificate::PublicKey;
use crate::config::ObjectSelector;
use crate::error::Error;
use crate::process::watchdog;

/// Names the private key of a certificate.
pub struct WantedKey<'a> {
    pub selector: &'a ObjectSelector,
    /// CKA_ID of the certificate on the token, which leads to its key; the label decides if that is
    /// empty or several keys have it. Without one the selector names the key itself.
    pub id: Option<&'a [u8]>,
    /// The certificate's.
    pub public_key: &'a PublicKey,
}

/// Finds the one private key that fits.
pub(super) fn find(objects: Objects<'_>, wanted: &WantedKey<'_>) -> Result<ObjectHandle, Error> {
    let class = ObjectClass::PRIVATE_KEY;
    let selector = wanted.selector;
    let found = candidates(objects, wanted).map_err(objects.failed("looking for the key"))?;
    match found.as_slice() {
        [only] => Ok(*only),
        [] => Err(ObjectError::NoKey {
            selector: selector.to_string(),
            token: objects.token.to_string(),
            present: objects.summaries(class, selector),
        }
        .into()),
        several => Err(objects.several("private keys", selector, several, class)),
    }
}

/// Finds the one private key that can be used without a login because its CKA_PRIVATE is false, like a
/// PIV card's card authentication key.
pub(super) fn find_public(objects: Objects<'_>, wanted: &WantedKey<'_>) -> Option<ObjectHandle> {
    let [only] = candidates(objects, wanted).ok()?[..] else {
        return None;
    };
    let is_private = objects.flag(only, AttributeType::Private);
    matches!(is_private, Ok(Some(false))).then_some(only)
}

/// The private keys under the certificate's CKA_ID, or under the label if it has none. Of several,
/// those that can be the certificate's.
fn candidates(
    objects: Objects<'_>,
    wanted: &WantedKey<'_>,
) -> Result<Vec<ObjectHandle>, CryptokiError> {
    let _step = watchdog::step("looking for the key (C_FindObjects)");
    let every = Query::every(ObjectClass::PRIVATE_KEY);
    let label = wanted.selector.label.as_deref();
    let query = match wanted.id {
        None => Query::new(ObjectClass::PRIVATE_KEY, wanted.selector),
        Some([]) => Query { label, ..every },
        id => Query { id, ..every },
    };
    let mut found = objects.find(query)?;
    for kind in [AttributeType::Token, AttributeType::Sign] {
        if found.len() > 1 {
            found = objects.unless_false(found, kind)?;
        }
    }
    if found.len() > 1 {
        let mut possible = Vec::new();
        for object in &found {
            let is_own = objects.belongs_to(*object, wanted.public_key)?;
            possible.extend((is_own != Some(false)).then_some(*object));
        }
        // If none is left, the error says that the key is another certificate's.
        if !possible.is_empty() {
            found = possible;
        }
    }
    if found.len() > 1 {
        found = labelled(objects, query, found, label, wanted.public_key)?;
    }
    Ok(found)
}

/// Chooses among several by CKA_LABEL: that of the configuration, or that of the certificate's
/// public key, which distinguishes keys on one curve.
fn labelled(
    objects: Objects<'_>,
    query: Query<'_>,
    found: Vec<ObjectHandle>,
    label: Option<&str>,
    key: &PublicKey,
) -> Result<Vec<ObjectHandle>, CryptokiError> {
    let mut labelled = Vec::with_capacity(found.len());
    for object in found {
        labelled.push((object, objects.bytes(object, AttributeType::Label)?));
    }
    if let Some(label) = label.map(str::as_bytes)
        && labelled.iter().any(|(_, own)| own == label)
    {
        labelled.retain(|(_, own)| own == label);
    }
    if labelled.len() > 1 {
        let class = ObjectClass::PUBLIC_KEY;
        let mut labels = Vec::new();
        for object in objects.find(Query { class, ..query })? {
            if objects.belongs_to(object, key)? == Some(true) {
                labels.push(objects.bytes(object, AttributeType::Label)?);
            }
        }
        let mut own = labelled.iter().filter(|(_, own)| labels.contains(own));
        if let (Some((only, _)), None) = (own.next(), own.next()) {
            return Ok(vec![*only]);
        }
    }
    Ok(labelled.into_iter().map(|(object, _)| object).collect())
}

/// Whether the token shows a public key, under this selector, that isn't the certificate's, and
/// none that is.
pub(super) fn contradicts(
    objects: Objects<'_>,
    selector: &ObjectSelector,
    key: &PublicKey,
) -> Result<bool, Error> {
    let _step = watchdog::step("reading the public key (C_FindObjects)");
    let failed = objects.failed("reading the public key");
    let query = Query::new(ObjectClass::PUBLIC_KEY, selector);
    let mut is_contradicted = false;
    for object in objects.find(query).map_err(failed)? {
        match objects.belongs_to(object, key).map_err(failed)? {
            Some(true) => return Ok(false),
            Some(false) => is_contradicted = true,
            None => {}
        }
    }
    Ok(is_contradicted)
}
