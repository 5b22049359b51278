//! How a key is found on a token: the key that is meant by its names or its public key, and then its private key, after a
//! login if the token wants one.

use std::fmt::Display;

use cryptoki::object::{AttributeType, KeyType, ObjectClass};
use cryptoki::session::UserType;

use super::Token;
use super::object::{ED25519_PARAMETERS, key_type, ml_dsa_set};
use super::raw::ObjectHandle;
use crate::kind;
use config::ObjectSelector;
use config::pin::NO_PIN;
use config::pin::PinProvider;
use crypto::certificate::{Certificate, Curve, PublicKey, without_leading_zeros};
use messages::error::{Error, Exit};
use messages::help::{Help, HelpPart, command};

/// A reference to a key on a token: its names, and the public key that its signatures are verified with. That is its
/// certificate's or, for a key without a certificate, the one that the token shows. The private key may not be visible yet;
/// [`Token::key`] finds it.
#[derive(Clone, Debug)]
pub struct KeyReference {
    pub public_key: PublicKey,
    /// The names by which the key was chosen. For a key without a certificate: its CKA_ID, or its label if it has no
    /// CKA_ID.
    pub selector: ObjectSelector,
    /// CKA_ID of the certificate or public key on the token. If it is empty, the selector names the private key itself;
    /// where several keys fit that, the label decides.
    pub id: Vec<u8>,
    /// CKA_LABEL, for a key without a certificate; empty otherwise.
    pub label: String,
    /// The subject of the key's certificate.
    subject: Option<String>,
    user: Option<String>,
}

impl KeyReference {
    /// The key of a certificate, under the CKA_ID that is given or else named by the selector.
    pub fn of_certificate(
        certificate: &Certificate,
        selector: &ObjectSelector,
        id: Vec<u8>,
    ) -> Self {
        Self {
            public_key: certificate.public_key().clone(),
            selector: selector.clone(),
            id,
            label: String::new(),
            subject: Some(certificate.subject.clone()),
            user: certificate.user.clone(),
        }
    }

    /// Selects the objects that belong to the key: those with its CKA_ID.
    pub(super) fn neighbours(&self) -> ObjectSelector {
        if self.id.is_empty() { self.selector.clone() } else { ObjectSelector::of(&self.id, None) }
    }

    /// What messages call the key: `the key with objectId "2" (CN=jane)`, with the key's kind in the brackets if it has no
    /// certificate.
    pub fn describe(&self) -> String {
        let holder = self.subject.clone().unwrap_or_else(|| self.public_key.to_string());
        format!("the key with {} ({holder})", self.selector)
    }

    /// What prompts call the key: `jane`, or `objectId "2"` if it has no certificate.
    pub(super) fn holder(&self) -> String {
        self.user.clone().unwrap_or_else(|| self.selector.to_string())
    }

    pub(super) fn mismatch(&self) -> Error {
        let certificate = match &self.subject {
            Some(subject) => format!("the certificate of {subject}"),
            None => format!("the public key with {}", self.selector),
        };
        mismatch(&certificate, &self.describe())
    }
}

pub(super) fn mismatch(certificate: &str, key: &str) -> Error {
    Error::new(Exit::Object, format!("{certificate} does not belong to {key}"))
        .help("install the certificate that was issued for this key, or name the key that it was issued for")
}

pub(super) fn no_public_key(selector: impl Display, token: &str) -> Error {
    let text = format!("token {token} shows no public key beside the private key with {selector}");
    Error::new(Exit::Object, text)
        .help("write the public key or the certificate to the token under the private key's CKA_ID")
}

/// A private key that was found on the token. It is valid as long as the session is.
pub struct PrivateKey {
    pub reference: KeyReference,
    /// CKA_ALWAYS_AUTHENTICATE, if the token says so.
    pub always_authenticate: bool,
    pub(super) object: ObjectHandle,
}

/// A key object, and its public key, which the token shows in this object or in another one beside it.
pub(super) struct ShownKey {
    pub(super) object: ObjectHandle,
    pub(super) public_key: PublicKey,
}

impl Token {
    /// Finds the one key that the selector names by a public key that the token shows, whether or not it has a certificate.
    /// Logs in only if no key is visible without a login, and only if there are `pins`.
    pub fn bare_key(
        &mut self,
        selector: &ObjectSelector,
        pins: Option<&mut dyn PinProvider>,
    ) -> Result<KeyReference, Error> {
        let find =
            |token: &Self| token.at_most_one(token.public_keys(selector)?, "public keys", selector);
        let found = self.visible_or_hidden(&selector.to_string(), pins, find)?;
        let missing = || {
            let private = self.find(ObjectClass::PRIVATE_KEY, selector);
            if private.is_ok_and(|found| !found.is_empty()) {
                no_public_key(selector, &self.name())
            } else {
                self.no_key(&selector.to_string(), &selector.misspelling())
            }
        };
        self.named(found.ok_or_else(missing)?)
    }

    /// Finds the key that has the public key of `holder`. Logs in only if the key isn't visible without a login, and only
    /// if there are `pins`.
    pub fn key_of(
        &mut self,
        public_key: &PublicKey,
        holder: &str,
        pins: Option<&mut dyn PinProvider>,
    ) -> Result<KeyReference, Error> {
        let find = |token: &Self| {
            let mut found = token.public_keys(&ObjectSelector::default())?.into_iter();
            Ok(found.find(|found| found.public_key == *public_key))
        };
        let found = self.visible_or_hidden(holder, pins, find)?;
        let missing = || self.no_key(&format!("the public key of {holder}"), "");
        self.named(found.ok_or_else(missing)?)
    }

    /// What `find` finds without a login or, if that is nothing, after a login for this purpose. Without `pins` there is no
    /// login.
    pub fn visible_or_hidden<T>(
        &mut self,
        purpose: &str,
        pins: Option<&mut dyn PinProvider>,
        find: impl Fn(&Self) -> Result<Option<T>, Error>,
    ) -> Result<Option<T>, Error> {
        let found = find(self)?;
        let Some(pins) = pins.filter(|_| found.is_none() && self.may_hide_objects()) else {
            return Ok(found);
        };
        self.log_in_if_required(purpose, pins)?;
        find(self)
    }

    /// Finds the private key of this reference, after a login if the token requires one for that.
    pub fn key(
        &mut self,
        reference: KeyReference,
        pins: &mut dyn PinProvider,
    ) -> Result<PrivateKey, Error> {
        let name = reference.describe();
        // This is only needed while objects may be hidden: a key that is visible before a login needs none.
        let public = self.may_hide_objects().then(|| self.public_private_key(&reference));
        let object = match public.flatten() {
            Some(object) => object,
            None => {
                self.log_in_if_required(&reference.holder(), pins)?;
                self.find_key(&reference, pins)?
            }
        };
        let traits = self.key_traits(object, &reference.public_key)?;
        if traits.is_mismatch {
            return Err(reference.mismatch());
        }
        log::info!("{name}: found");
        let always_authenticate = traits.always_authenticate;
        log::debug!("key: PIN for every signature: {always_authenticate}");
        Ok(PrivateKey { reference, always_authenticate, object })
    }

    /// Looks for the private key. If there is none, it looks again after a login, even if the token says that it requires
    /// none.
    fn find_key(
        &mut self,
        reference: &KeyReference,
        pins: &mut dyn PinProvider,
    ) -> Result<ObjectHandle, Error> {
        let missing = match self.private_key(reference) {
            Err(error) if !self.is_logged_in() && error.is(&kind::NO_KEY) => error,
            outcome => return outcome,
        };
        match self.authenticate(UserType::User, &reference.holder(), pins) {
            Ok(()) => self.private_key(reference),
            Err(error) if error.is(&NO_PIN) || error.is(&kind::PIN_NOT_SET) => Err(missing),
            Err(error) => Err(error),
        }
    }

    fn private_key(&self, reference: &KeyReference) -> Result<ObjectHandle, Error> {
        let selector = &reference.selector;
        let mut found = self.private_keys(reference)?;
        if found.is_empty() {
            found = self.private_keys_elsewhere(&reference.public_key)?;
        }
        let found = self.at_most_one(found, "private keys", selector)?;
        found.ok_or_else(|| self.no_key(&selector.to_string(), &selector.misspelling()))
    }

    /// The private keys with the names of any object that shows this public key: some tools write a certificate under
    /// another CKA_ID than its key's.
    fn private_keys_elsewhere(&self, key: &PublicKey) -> Result<Vec<ObjectHandle>, Error> {
        for class in [ObjectClass::PUBLIC_KEY, ObjectClass::PRIVATE_KEY] {
            for object in self.find_stored(class, &ObjectSelector::default())? {
                if self.belongs_to(object, key)? != Some(true) {
                    continue;
                }
                let shown = ShownKey { object, public_key: key.clone() };
                let found = self.private_keys(&self.named(shown)?)?;
                if !found.is_empty() {
                    return Ok(found);
                }
            }
        }
        Ok(Vec::new())
    }

    /// The error for a private key that isn't there; `hint` is appended to the help.
    fn no_key(&self, wanted: &str, hint: &str) -> Error {
        let text = format!("no private key with {wanted} on token {}", self.state.name);
        let help = Help::from("check that this is the token and the key was made on it (")
            .and(command("list").and(HelpPart::Token).and(" --login"))
            .and(format!(
                "); if it wants no login but hides keys all the same, set pinSource (--pin-source){hint}"
            ));
        Error::new(Exit::Object, text).kind(kind::NO_KEY).help(help)
    }

    /// The private key of this reference if it needs no login: the only one, with CKA_PRIVATE false, such as a PIV card's
    /// card authentication key.
    pub(super) fn public_private_key(&self, reference: &KeyReference) -> Option<ObjectHandle> {
        let [only] = self.private_keys(reference).ok()?[..] else { return None };
        let is_private = self.flag(only, AttributeType::Private);
        matches!(is_private, Ok(Some(false))).then_some(only)
    }

    /// The private keys with the reference's CKA_ID, or with the selector's names if it has none. Of several, those that
    /// can be the certificate's, and of these the ones with the configured label.
    fn private_keys(&self, reference: &KeyReference) -> Result<Vec<ObjectHandle>, Error> {
        let mut found = self.find(ObjectClass::PRIVATE_KEY, &reference.neighbours())?;
        for kind in [AttributeType::Token, AttributeType::Sign] {
            if found.len() > 1 {
                found = self.unless_false(found, kind)?;
            }
        }
        if found.len() > 1 { self.most_likely(found, reference) } else { Ok(found) }
    }

    /// Returns those of the private keys that can be the reference's, and of these the ones with its label. If none can
    /// be, all are returned, so that the error says that the key is another certificate's.
    fn most_likely(
        &self,
        keys: Vec<ObjectHandle>,
        reference: &KeyReference,
    ) -> Result<Vec<ObjectHandle>, Error> {
        let label = reference.selector.label.as_deref();
        let mut possible = Vec::new();
        let mut labelled = Vec::new();
        for object in &keys {
            if self.belongs_to(*object, &reference.public_key)? != Some(false) {
                possible.push(*object);
                if label == Some(self.label(*object)?.as_str()) {
                    labelled.push(*object);
                }
            }
        }
        let fewer = [labelled, possible].into_iter().find(|keys| !keys.is_empty());
        Ok(fewer.unwrap_or(keys))
    }

    /// Whether the token shows public keys with these names, and none of them is this one.
    pub(super) fn contradicts(
        &self,
        selector: &ObjectSelector,
        key: &PublicKey,
    ) -> Result<bool, Error> {
        let found = self.find(ObjectClass::PUBLIC_KEY, selector)?.into_iter();
        let answers: Vec<_> =
            found.map(|object| self.belongs_to(object, key)).collect::<Result<_, _>>()?;
        Ok(answers.contains(&Some(false)) && !answers.contains(&Some(true)))
    }

    /// The keys that the selector names and whose public key can be read, from the public key object or, for RSA, from the
    /// private key. Each public key comes once.
    fn public_keys(&self, selector: &ObjectSelector) -> Result<Vec<ShownKey>, Error> {
        let mut found: Vec<ShownKey> = Vec::new();
        for class in [ObjectClass::PUBLIC_KEY, ObjectClass::PRIVATE_KEY] {
            for object in self.find_stored(class, selector)? {
                let Some(public_key) = self.public_key(object)? else { continue };
                if found.iter().all(|known| known.public_key != public_key) {
                    found.push(ShownKey { object, public_key });
                }
            }
        }
        Ok(found)
    }

    /// The reference to a key without a certificate, by the names of this object of it.
    pub(super) fn named(&self, shown: ShownKey) -> Result<KeyReference, Error> {
        let ShownKey { object, public_key } = shown;
        let id = self.bytes(object, AttributeType::Id)?;
        let label = self.label(object)?;
        let selector = ObjectSelector::of(&id, id.is_empty().then_some(&*label));
        Ok(KeyReference { public_key, selector, id, label, subject: None, user: None })
    }

    /// The public key that a key object shows; `None` if it shows none, or one of a type that TLS clients don't sign with.
    pub(super) fn public_key(&self, object: ObjectHandle) -> Result<Option<PublicKey>, Error> {
        let bytes = |kind| self.bytes(object, kind);
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
            // CKA_VALUE of a private key is the secret.
            Some(KeyType::ML_DSA) if self.is_public_key(object)? => {
                let set = ml_dsa_set(&bytes(AttributeType::ParameterSet)?);
                let value = bytes(AttributeType::Value)?;
                set.and_then(|set| PublicKey::of_ml_dsa(set, &value))
            }
            _ => None,
        })
    }
}

/// The public key with these values of CKA_EC_PARAMS and CKA_EC_POINT. The point is in a DER OCTET STRING; some libraries
/// give it alone.
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
    let mut whole =
        points.filter(|point| point.len() == curve.point_length() && point.first() == Some(&4));
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
