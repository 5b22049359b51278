//! The objects on a token: how they are searched by CKA_ID and CKA_LABEL, and how their attributes are read.
//!
//! As a rule a call asks for one attribute. Asked for several, of which they don't know one, some libraries leave zeros in
//! the buffers that read like values. The exceptions are the attributes of a key that are compared with a public key
//! (`key_traits`, `belongs_to`), which are asked for together; `raw` discards all values of a call that doesn't know every
//! attribute, and asks for their lengths.

use std::iter;

use crate::kind;
use cryptoki::error::Error as CryptokiError;
use cryptoki::mechanism::MechanismType;
use cryptoki::object::{Attribute, AttributeType, KeyType, ObjectClass};
use cryptoki_sys::{CK_KEY_TYPE, CK_MECHANISM_TYPE};

use super::raw::{AttributeValues, ObjectHandle};
use super::{Token, ckr};
use config::ObjectSelector;
use crypto::certificate::{Curve, PublicKey, bits, without_leading_zeros};
use messages::error::{Error, Exit};
use messages::help::{Help, HelpPart, command};

/// CKA_EC_PARAMS of Ed25519: the curve's name (PKCS#11, section 6.3.6), or the object identifier (RFC 8410, section 3).
pub(super) const ED25519_PARAMETERS: [&[u8]; 2] =
    [b"\x13\x0cedwards25519", b"\x06\x03\x2b\x65\x70"];

/// An object, and the value of the one attribute that was asked for.
pub(super) struct ObjectValue {
    pub(super) object: ObjectHandle,
    /// Empty if the object doesn't have the attribute, or doesn't show it.
    pub(super) value: Vec<u8>,
}

/// The attributes of a private key that decide how it is used.
pub(super) struct KeyTraits {
    /// CKA_ALWAYS_AUTHENTICATE; false if the key doesn't show it.
    pub(super) always_authenticate: bool,
    /// Whether the key's type, modulus or curve differs from the public key's.
    pub(super) is_mismatch: bool,
}

impl Token {
    /// The objects of a class that fit the selector.
    pub(super) fn find(
        &self,
        class: ObjectClass,
        wanted: &ObjectSelector,
    ) -> Result<Vec<ObjectHandle>, Error> {
        let id = wanted.id.iter().map(|id| Attribute::Id(id.as_bytes().to_owned()));
        let label = wanted.label.iter().map(|label| Attribute::Label(label.as_bytes().to_owned()));
        let template: Vec<_> = iter::once(Attribute::Class(class)).chain(id).chain(label).collect();
        self.search(&template)
    }

    /// The objects that have all of these attributes.
    pub(super) fn search(&self, template: &[Attribute]) -> Result<Vec<ObjectHandle>, Error> {
        self.session.find(template).map_err(|error| self.object_failure(&error))
    }

    fn attributes(
        &self,
        object: ObjectHandle,
        kinds: &[AttributeType],
    ) -> Result<AttributeValues, Error> {
        self.session.attributes(object, kinds).map_err(|error| self.object_failure(&error))
    }

    /// The same as [`Token::find`], without objects that exist only in the session: a YubiKey's attestation certificates
    /// have the CKA_ID and the public key of the certificate that is meant.
    pub(super) fn find_stored(
        &self,
        class: ObjectClass,
        wanted: &ObjectSelector,
    ) -> Result<Vec<ObjectHandle>, Error> {
        self.unless_false(self.find(class, wanted)?, AttributeType::Token)
    }

    /// Those of the objects whose boolean attribute is true or isn't shown.
    pub(super) fn unless_false(
        &self,
        objects: Vec<ObjectHandle>,
        kind: AttributeType,
    ) -> Result<Vec<ObjectHandle>, Error> {
        let mut left = self.with_values(objects, kind)?;
        left.retain(|found| boolean(&found.value) != Some(false));
        Ok(left.into_iter().map(|found| found.object).collect())
    }

    /// The objects, each with its value of this attribute.
    pub(super) fn with_values(
        &self,
        objects: Vec<ObjectHandle>,
        kind: AttributeType,
    ) -> Result<Vec<ObjectValue>, Error> {
        let with_value = |object| Ok(ObjectValue { object, value: self.bytes(object, kind)? });
        objects.into_iter().map(with_value).collect()
    }

    /// An attribute's value; empty if the object doesn't have it or doesn't show it.
    pub(super) fn bytes(
        &self,
        object: ObjectHandle,
        kind: AttributeType,
    ) -> Result<Vec<u8>, Error> {
        let shown = self.attributes(object, &[kind])?.pop();
        Ok(shown.map(|(_, value)| value).unwrap_or_default())
    }

    /// A boolean attribute; `None` if it isn't shown, or isn't one byte.
    pub(super) fn flag(
        &self,
        object: ObjectHandle,
        kind: AttributeType,
    ) -> Result<Option<bool>, Error> {
        self.bytes(object, kind).map(|shown| boolean(&shown))
    }

    /// CKA_LABEL, as text.
    pub(super) fn label(&self, object: ObjectHandle) -> Result<String, Error> {
        let label = self.bytes(object, AttributeType::Label)?;
        Ok(String::from_utf8_lossy(&label).into_owned())
    }

    /// Reads how a private key is used, and compares what it shows with its public key: some libraries crash when a key is
    /// asked for a signature of another type.
    pub(super) fn key_traits(
        &self,
        object: ObjectHandle,
        key: &PublicKey,
    ) -> Result<KeyTraits, Error> {
        let shape = match key {
            PublicKey::Rsa { .. } => AttributeType::Modulus,
            _ => AttributeType::EcParams,
        };
        let always = AttributeType::AlwaysAuthenticate;
        let shown = self.attributes(object, &[AttributeType::KeyType, always, shape])?;
        let always_authenticate =
            shown.iter().any(|(kind, value)| *kind == always && boolean(value) == Some(true));
        Ok(KeyTraits { always_authenticate, is_mismatch: is_of(&shown, key) == Some(false) })
    }

    /// The only mechanisms that a key may be used with (CKA_ALLOWED_MECHANISMS), as far as cryptoki knows them; `None` if
    /// the key names none. A list with a zero in it counts as none: zero is CKM_RSA_PKCS_KEY_PAIR_GEN, which no key signs
    /// with.
    pub(super) fn allowed_mechanisms(&self, key: ObjectHandle) -> Option<Vec<MechanismType>> {
        let shown = self.bytes(key, AttributeType::AllowedMechanisms).ok()?;
        let (numbers, rest) = shown.as_chunks();
        let numbers: Vec<_> =
            numbers.iter().map(|number| CK_MECHANISM_TYPE::from_ne_bytes(*number)).collect();
        let is_list = !numbers.is_empty() && rest.is_empty() && !numbers.contains(&0);
        let known = |number: CK_MECHANISM_TYPE| MechanismType::try_from(number).ok();
        is_list.then(|| numbers.into_iter().filter_map(known).collect())
    }

    /// Whether a key object belongs to this public key; `None` if the object shows too little to tell.
    pub(super) fn belongs_to(
        &self,
        object: ObjectHandle,
        key: &PublicKey,
    ) -> Result<Option<bool>, Error> {
        // A private key on an elliptic curve shows its curve, but has no point.
        let kinds: &[_] = match key {
            PublicKey::Rsa { .. } => &[AttributeType::Modulus],
            _ => &[AttributeType::EcPoint, AttributeType::EcParams],
        };
        for kind in kinds {
            let shown = self.attributes(object, &[AttributeType::KeyType, *kind])?;
            if let Some(answer) = is_of(&shown, key) {
                return Ok(Some(answer));
            }
        }
        Ok(None)
    }

    /// A key's type and size, as in `RSA-2048` or `ECDSA P-256`. For a type that can't sign here it is the standard's name,
    /// and it is empty if the token doesn't show the type.
    pub(super) fn key_kind(&self, object: ObjectHandle) -> String {
        let read = |kind| self.bytes(object, kind).unwrap_or_default();
        match key_type(&read(AttributeType::KeyType)) {
            Some(KeyType::RSA) => {
                let modulus = without_leading_zeros(&read(AttributeType::Modulus));
                format!("RSA-{}", bits(&modulus))
            }
            Some(KeyType::EC) => match Curve::from_parameters(&read(AttributeType::EcParams)) {
                Some(curve) => format!("ECDSA {curve}"),
                None => "EC on another curve".to_owned(),
            },
            Some(KeyType::EC_EDWARDS) => edwards(&read(AttributeType::EcParams)).to_owned(),
            Some(other) => other.to_string().replace("CKK_", ""),
            None => String::new(),
        }
    }

    /// The only one of these that a search has found, or `None`; an error if there are several.
    pub(super) fn at_most_one<T>(
        &self,
        mut found: Vec<T>,
        what: &str,
        selector: &ObjectSelector,
    ) -> Result<Option<T>, Error> {
        let count = found.len();
        if count <= 1 {
            return Ok(found.pop());
        }
        let text = format!("{count} {what} with {selector} on token {}", self.state.name);
        let help = Help::from(
            "name one with objectId (--object-id) and objectLabel (--object-label) together, set certificateFile \
             (--certificate-file) to the certificate that is meant, or remove what is not used; ",
        );
        let help = help.and(command("list").and(HelpPart::Token)).and(" shows what there is");
        Err(Error::new(Exit::Object, text).help(help))
    }

    fn object_failure(&self, error: &CryptokiError) -> Error {
        self.failure(error, |failure| {
            let text =
                format!("reading the objects on token {} failed: {failure}", self.state.name);
            Error::new(Exit::Object, text).help(ckr::TAKE_OUT).kind(kind::CALL_FAILED)
        })
    }
}

/// A CK_BBOOL; `None` if it isn't one byte.
fn boolean(shown: &[u8]) -> Option<bool> {
    match shown {
        [value] => Some(*value != 0),
        _ => None,
    }
}

/// CKA_KEY_TYPE's value; `None` for one that has no name.
pub(super) fn key_type(shown: &[u8]) -> Option<KeyType> {
    let number = CK_KEY_TYPE::from_ne_bytes(shown.try_into().ok()?);
    KeyType::try_from(number).ok()
}

/// Whether the attributes that a key object shows are those of this public key; `None` if they are too few to tell.
fn is_of(shown: &[(AttributeType, Vec<u8>)], key: &PublicKey) -> Option<bool> {
    let answers = shown.iter().filter_map(|(kind, shown)| match (*kind, key) {
        (AttributeType::KeyType, _) => is_of_another_type(key_type(shown)?, key).then_some(false),
        (AttributeType::Modulus, PublicKey::Rsa { modulus, .. }) => {
            let shown = without_leading_zeros(shown);
            (!shown.is_empty()).then(|| shown == *modulus)
        }
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
    // `Some(false)` is less than `Some(true)`: one difference is enough.
    answers.min()
}

/// Whether the value of CKA_EC_POINT is this point, either in a DER OCTET STRING or alone.
fn holds(shown: &[u8], point: &[u8]) -> bool {
    shown.ends_with(point) && shown.len() <= point.len() + 4
}

/// Whether a key of this type can't have such a public key. A vendor's own type says nothing; and before PKCS#11 3.0, keys
/// on Edwards curves had the type CKK_EC.
fn is_of_another_type(key_type: KeyType, key: &PublicKey) -> bool {
    let types: &[_] = match key {
        PublicKey::Rsa { .. } => &[KeyType::RSA],
        PublicKey::Ecdsa { .. } => &[KeyType::EC],
        PublicKey::Ed25519(_) => &[KeyType::EC_EDWARDS, KeyType::EC],
    };
    !types.contains(&key_type) && KeyType::new_vendor_defined(*key_type).is_err()
}

fn edwards(parameters: &[u8]) -> &'static str {
    if ED25519_PARAMETERS.contains(&parameters) { "Ed25519" } else { "EdDSA on another curve" }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POINT: [u8; 32] = [7; 32];

    fn shown(kind: AttributeType, value: &[u8]) -> Vec<(AttributeType, Vec<u8>)> {
        vec![(kind, value.to_vec())]
    }

    fn of_type(key_type: CK_KEY_TYPE) -> Vec<(AttributeType, Vec<u8>)> {
        shown(AttributeType::KeyType, &key_type.to_ne_bytes())
    }

    #[test]
    fn a_key_of_another_type_is_anothers_and_a_vendors_type_may_be_any() {
        let ed25519 = PublicKey::Ed25519(POINT);
        for kind in [KeyType::EC, KeyType::EC_EDWARDS] {
            assert_eq!(is_of(&of_type(*kind), &ed25519), None, "{kind}");
        }
        assert_eq!(is_of(&of_type(*KeyType::RSA), &ed25519), Some(false));
        assert_eq!(is_of(&of_type(0x8000_0001), &ed25519), None);
        assert_eq!(is_of(&shown(AttributeType::KeyType, &[0]), &ed25519), None);
    }

    #[test]
    fn not_every_edwards_curve_is_that_of_ed25519() {
        for (parameters, kind) in [
            (&b"\x06\x03\x2b\x65\x70"[..], "Ed25519"),
            (b"\x13\x0cedwards25519", "Ed25519"),
            (b"\x06\x03\x2b\x65\x71", "EdDSA on another curve"),
            (b"\x13\x0aedwards448", "EdDSA on another curve"),
        ] {
            assert_eq!(edwards(parameters), kind);
        }
    }

    #[test]
    fn a_point_counts_with_its_octet_string_and_alone() {
        let ed25519 = PublicKey::Ed25519(POINT);
        let is_own = |value: &[u8]| is_of(&shown(AttributeType::EcPoint, value), &ed25519);
        assert_eq!(is_own(&POINT), Some(true));
        assert_eq!(is_own(&[&[0x04, 32], POINT.as_slice()].concat()), Some(true));
        assert_eq!(is_own(&[&[0; 5], POINT.as_slice()].concat()), Some(false));
        assert_eq!(is_own(&POINT[1..]), Some(false));
    }

    #[test]
    fn a_modulus_counts_with_leading_zeros_and_an_empty_one_says_nothing() {
        let key = PublicKey::Rsa { modulus: vec![0x80, 1], exponent: vec![3] };
        let is_own = |value: &[u8]| is_of(&shown(AttributeType::Modulus, value), &key);
        assert_eq!(is_own(&[0, 0, 0x80, 1]), Some(true));
        assert_eq!(is_own(&[0x80, 2]), Some(false));
        assert_eq!(is_own(&[0]), None);
    }

    #[test]
    fn one_attribute_that_differs_is_enough() {
        let mut both = shown(AttributeType::EcPoint, &POINT);
        both.extend(of_type(*KeyType::RSA));
        assert_eq!(is_of(&both, &PublicKey::Ed25519(POINT)), Some(false));
    }

    #[test]
    fn only_one_byte_is_a_boolean() {
        for (value, meaning) in [
            (&[0][..], Some(false)),
            (&[1], Some(true)),
            (&[0xff], Some(true)),
            (&[], None),
            (&[0, 1], None),
        ] {
            assert_eq!(boolean(value), meaning, "{value:?}");
        }
    }
}
