//! The public keys that a token shows: of keys that have no certificate, or whose certificate is
//! elsewhere.

#![forbid(unsafe_code)]

use cryptoki::object::{AttributeType, KeyType, ObjectClass};

use super::error::ObjectError;
use super::object::{Objects, Query, key_type};
use super::raw::{CallResult, ObjectHandle};
use crate::certificate::{Curve, PublicKey, without_leading_zeros};
use crate::config::{ObjectId, ObjectSelector};
use crate::error::Error;
use crate::process::watchdog;

/// CKA_EC_PARAMS of Ed25519: the curve's name (PKCS#11, section 6.3.6), or the object identifier (RFC 8410, section 3).
pub(super) const ED25519_PARAMETERS: [&[u8]; 2] =
    [b"\x13\x0cedwards25519", b"\x06\x03\x2b\x65\x70"];

/// A key on the token, and its public key.
#[derive(Clone, Debug)]
pub struct FoundKey {
    /// CKA_ID; empty if there is none.
    pub id: Vec<u8>,
    /// CKA_LABEL.
    pub label: String,
    pub public_key: PublicKey,
}

impl FoundKey {
    /// What names it: its CKA_ID, or its label if it has none.
    pub fn selector(&self) -> ObjectSelector {
        let has_id = !self.id.is_empty();
        ObjectSelector {
            id: has_id.then(|| ObjectId::from_bytes(self.id.clone())),
            label: (!has_id).then(|| self.label.clone()),
        }
    }
}

/// The one key under the selector; `None` if no public key is seen there.
pub(super) fn find(
    objects: Objects<'_>,
    selector: &ObjectSelector,
) -> Result<Option<FoundKey>, Error> {
    let mut found = visible(objects, selector)?;
    match (found.pop(), found.is_empty()) {
        (None, _) => Ok(None),
        (Some((_, only)), true) => Ok(Some(only)),
        (Some(last), false) => {
            found.push(last);
            let found: Vec<_> = found.into_iter().map(|(object, _)| object).collect();
            let class = ObjectClass::PUBLIC_KEY;
            Err(objects.several("public keys", selector, &found, class))
        }
    }
}

/// The key with this public key; `None` if it isn't seen.
pub(super) fn find_same(
    objects: Objects<'_>,
    public_key: &PublicKey,
) -> Result<Option<FoundKey>, Error> {
    let found = visible(objects, &ObjectSelector::default())?;
    let mut same = found.into_iter().map(|(_, found)| found);
    Ok(same.find(|found| found.public_key == *public_key))
}

/// All keys whose public key is seen.
pub(super) fn every(objects: Objects<'_>) -> Result<Vec<FoundKey>, Error> {
    let found = visible(objects, &ObjectSelector::default())?;
    Ok(found.into_iter().map(|(_, found)| found).collect())
}

/// Why [`find`] has found none.
pub(super) fn missing(objects: Objects<'_>, selector: &ObjectSelector) -> Error {
    let class = ObjectClass::PRIVATE_KEY;
    let token = objects.token.to_string();
    let words = selector.to_string();
    let is_there = objects.find(Query::new(class, selector));
    match is_there.is_ok_and(|found| !found.is_empty()) {
        true => ObjectError::NoPublicKey { selector: words, token },
        false => ObjectError::NoKey {
            selector: words,
            token,
            present: objects.summaries(class, selector),
        },
    }
    .into()
}

/// The keys under the selector whose public key can be read: from the public key object, or from the
/// private key, which shows it if it is an RSA key. Each public key once.
fn visible(
    objects: Objects<'_>,
    selector: &ObjectSelector,
) -> Result<Vec<(ObjectHandle, FoundKey)>, Error> {
    let _step = watchdog::step("reading the public keys (C_FindObjects)");
    let failed = objects.failed("reading the public keys");
    let mut found: Vec<(ObjectHandle, FoundKey)> = Vec::new();
    for class in [ObjectClass::PUBLIC_KEY, ObjectClass::PRIVATE_KEY] {
        let query = Query::new(class, selector);
        for object in objects.find_stored(query).map_err(failed)? {
            let Some(public_key) = read(objects, object).map_err(failed)? else {
                continue;
            };
            if found.iter().any(|(_, it)| it.public_key == public_key) {
                continue;
            }
            let id = objects.bytes(object, AttributeType::Id).map_err(failed)?;
            let label = objects.label(object).map_err(failed)?;
            let key = FoundKey { id, label, public_key };
            found.push((object, key));
        }
    }
    Ok(found)
}

/// The public key that a key object shows; `None` if it shows none, or none that TLS clients sign with.
pub(super) fn read(objects: Objects<'_>, object: ObjectHandle) -> CallResult<Option<PublicKey>> {
    let bytes = |kind| objects.bytes(object, kind);
    Ok(match key_type(&bytes(AttributeType::KeyType)?) {
        Some(KeyType::RSA) => {
            let modulus = without_leading_zeros(&bytes(AttributeType::Modulus)?);
            let exponent = without_leading_zeros(&bytes(AttributeType::PublicExponent)?);
            PublicKey::of_rsa(modulus, exponent)
        }
        Some(KeyType::EC | KeyType::EC_EDWARDS) => {
            let parameters = bytes(AttributeType::EcParams)?;
            of_curve(&parameters, &bytes(AttributeType::EcPoint)?)
        }
        _ => None,
    })
}

/// From CKA_EC_PARAMS and CKA_EC_POINT, which is a DER OCTET STRING, or the point alone, as some
/// libraries have it.
fn of_curve(parameters: &[u8], point: &[u8]) -> Option<PublicKey> {
    let unwrapped = match point {
        [0x04, length, rest @ ..] if rest.len() == usize::from(*length) => rest,
        [0x04, 0x81, length, rest @ ..] if rest.len() == usize::from(*length) => rest,
        _ => point,
    };
    if ED25519_PARAMETERS.contains(&parameters) {
        return unwrapped.try_into().ok().map(PublicKey::Ed25519);
    }
    let curve = Curve::from_parameters(parameters)?;
    let points = [unwrapped, point].into_iter();
    let mut whole = points.filter(|it| it.len() == curve.point_length() && it.first() == Some(&4));
    let point = whole.next()?.to_owned();
    Some(PublicKey::Ecdsa { curve, point })
}

#[cfg(test)]
mod tests {
    use super::*;

    const P256: &[u8] = b"\x06\x08\x2a\x86\x48\xce\x3d\x03\x01\x07";
    const P521: &[u8] = b"\x06\x05\x2b\x81\x04\x00\x23";

    fn point(coordinate: usize) -> Vec<u8> {
        let mut point = vec![7; 2 * coordinate + 1];
        point[0] = 4;
        point
    }

    #[test]
    fn a_point_is_read_from_its_octet_string_or_alone() {
        for (parameters, curve, coordinate, header) in
            [(P256, Curve::P256, 32, &[0x04, 65][..]), (P521, Curve::P521, 66, &[0x04, 0x81, 133])]
        {
            let point = point(coordinate);
            let wrapped = [header, &point].concat();
            let expected = PublicKey::Ecdsa { curve, point };
            assert_eq!(of_curve(parameters, &wrapped), Some(expected.clone()));
            let PublicKey::Ecdsa { point, .. } = &expected else { unreachable!() };
            assert_eq!(of_curve(parameters, point), Some(expected.clone()));
        }
    }

    #[test]
    fn a_point_that_looks_like_an_octet_string_is_a_point() {
        // X begins with the length of what follows.
        let mut point = point(32);
        point[1] = 63;
        let read = of_curve(P256, &point);
        let curve = Curve::P256;
        assert_eq!(read, Some(PublicKey::Ecdsa { curve, point }));
    }

    #[test]
    fn ed25519_is_known_by_name_and_by_object_identifier() {
        let wrapped = [&[0x04, 32][..], &[9; 32]].concat();
        for parameters in ED25519_PARAMETERS {
            for point in [&wrapped[..], &[9; 32]] {
                let expected = PublicKey::Ed25519([9; 32]);
                assert_eq!(of_curve(parameters, point), Some(expected));
            }
        }
    }

    #[test]
    fn what_is_no_point_of_the_curve_is_no_key() {
        let compressed = [&[2][..], &[7; 32]].concat();
        for point in [&[][..], &[4], &compressed, &point(48)] {
            assert_eq!(of_curve(P256, point), None, "{point:?}");
        }
        assert_eq!(of_curve(&[], &point(32)), None);
        assert_eq!(of_curve(ED25519_PARAMETERS[0], &[9; 57]), None);
    }
}
