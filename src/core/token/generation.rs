//! A key pair made by the token (C_GenerateKeyPair), and what the token says of it afterwards.

#![forbid(unsafe_code)]

use std::time::Duration;

use cryptoki::error::RvError;
use cryptoki::mechanism::{Mechanism, MechanismType};
use cryptoki::object::{Attribute, AttributeType, KeyType, ObjectClass};

use super::ckr;
use super::error::{ObjectError, ObjectSummary, WritingError};
use super::object::Objects;
use super::public_key::{self, ED25519_PARAMETERS, FoundKey};
use super::raw::ObjectHandle;
use super::session::TokenSession;
use super::writing;
use super::yubikey::{SlotOptions, is_yubikey};
use crate::certificate::{Curve, PublicKey};
use crate::config::ObjectId;
use crate::error::Error;
use crate::process::signals::Deferral;
use crate::process::watchdog;

/// A card takes so long for RSA-4096.
const LIMIT: Duration = Duration::from_secs(300);
/// After that, a person is told why nothing happens.
const NOTICE_DELAY: Duration = Duration::from_secs(2);

/// 65537, which every token takes.
const PUBLIC_EXPONENT: [u8; 3] = [1, 0, 1];

/// Of an RSA key, which some libraries would let decrypt, too.
const SIGNING_ONLY: [Attribute; 2] = [Attribute::Decrypt(false), Attribute::Unwrap(false)];

/// What is true of a private key that has never been outside of its token.
const PROMISES: [(AttributeType, &str); 3] = [
    (AttributeType::Local, "it was made on the token (CKA_LOCAL)"),
    (AttributeType::AlwaysSensitive, "it was always sensitive (CKA_ALWAYS_SENSITIVE)"),
    (AttributeType::NeverExtractable, "it was never extractable (CKA_NEVER_EXTRACTABLE)"),
];

const OPENS_RSA: (AttributeType, &str) =
    (AttributeType::Decrypt, "it opens sealed files (CKA_DECRYPT)");
const OPENS_EC: (AttributeType, &str) =
    (AttributeType::Derive, "it opens sealed files (CKA_DERIVE)");

/// A kind of key that a token can make.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum KeyKind {
    #[default]
    EcP256,
    EcP384,
    Ed25519,
    Rsa2048,
    Rsa3072,
    Rsa4096,
}

impl KeyKind {
    pub const ALL: [Self; 6] =
        [Self::EcP256, Self::EcP384, Self::Ed25519, Self::Rsa2048, Self::Rsa3072, Self::Rsa4096];

    /// As `--key` takes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::EcP256 => "ec-p256",
            Self::EcP384 => "ec-p384",
            Self::Ed25519 => "ed25519",
            Self::Rsa2048 => "rsa-2048",
            Self::Rsa3072 => "rsa-3072",
            Self::Rsa4096 => "rsa-4096",
        }
    }

    /// The kind of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// The kind of this key; `None` for one that isn't made here.
    pub fn of(key: &PublicKey) -> Option<Self> {
        let words = key.to_string();
        Self::ALL.into_iter().find(|kind| kind.words() == words)
    }

    /// As a public key's `Display` has it.
    pub fn words(self) -> &'static str {
        match self {
            Self::EcP256 => "ECDSA P-256",
            Self::EcP384 => "ECDSA P-384",
            Self::Ed25519 => "Ed25519",
            Self::Rsa2048 => "RSA-2048",
            Self::Rsa3072 => "RSA-3072",
            Self::Rsa4096 => "RSA-4096",
        }
    }

    /// As `ykman` and `yubico-piv-tool` call it, and as `piv-tool` numbers it.
    pub(super) fn on_piv_cards(self) -> (&'static str, &'static str) {
        match self {
            Self::EcP256 => ("ECCP256", "11"),
            Self::EcP384 => ("ECCP384", "14"),
            Self::Ed25519 => ("ED25519", "E0"),
            Self::Rsa2048 => ("RSA2048", "07"),
            Self::Rsa3072 => ("RSA3072", "05"),
            Self::Rsa4096 => ("RSA4096", "16"),
        }
    }

    fn modulus_bits(self) -> Option<u32> {
        match self {
            Self::Rsa2048 => Some(2048),
            Self::Rsa3072 => Some(3072),
            Self::Rsa4096 => Some(4096),
            Self::EcP256 | Self::EcP384 | Self::Ed25519 => None,
        }
    }

    /// What the token has to offer: to make the key, to sign with it, and to open what was sealed to it. RSA keys
    /// sign and open in several ways.
    fn mechanisms(self, purpose: KeyPurpose) -> &'static [(MechanismType, &'static str)] {
        const EC: &[(MechanismType, &str)] = &[
            (MechanismType::ECC_KEY_PAIR_GEN, "CKM_EC_KEY_PAIR_GEN"),
            (MechanismType::ECDSA, "CKM_ECDSA"),
            (MechanismType::ECDH1_DERIVE, "CKM_ECDH1_DERIVE"),
        ];
        match self {
            Self::EcP256 | Self::EcP384 => match purpose {
                KeyPurpose::Signing => EC.split_last().map_or(EC, |(_, signing)| signing),
                KeyPurpose::Unsealing => EC,
            },
            Self::Ed25519 => &[
                (MechanismType::ECC_EDWARDS_KEY_PAIR_GEN, "CKM_EC_EDWARDS_KEY_PAIR_GEN"),
                (MechanismType::EDDSA, "CKM_EDDSA"),
            ],
            Self::Rsa2048 | Self::Rsa3072 | Self::Rsa4096 => {
                &[(MechanismType::RSA_PKCS_KEY_PAIR_GEN, "CKM_RSA_PKCS_KEY_PAIR_GEN")]
            }
        }
    }
}

/// What a key is made for.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum KeyPurpose {
    /// Clients of TLS.
    #[default]
    Signing,
    /// Sealed files. The key signs, too: the request for its certificate.
    Unsealing,
}

impl KeyPurpose {
    pub const ALL: [Self; 2] = [Self::Signing, Self::Unsealing];

    /// As `--for` takes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Signing => "signing",
            Self::Unsealing => "unsealing",
        }
    }

    /// The purpose of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|purpose| purpose.name() == name)
    }
}

/// A key pair to be made.
pub struct NewKey<'a> {
    pub kind: KeyKind,
    pub purpose: KeyPurpose,
    pub id: &'a ObjectId,
    /// CKA_LABEL.
    pub label: &'a str,
}

/// A key pair that was made.
pub struct GeneratedKey {
    pub key: FoundKey,
    /// What the token doesn't confirm of it, as in `it was made on the token (CKA_LOCAL)`.
    pub unconfirmed: Vec<&'static str>,
}

/// Whether the token can make such a key and use it; one that doesn't say what it offers is tried.
pub(super) fn check(
    kind: KeyKind,
    purpose: KeyPurpose,
    token: &str,
    offered: Option<&[MechanismType]>,
) -> Result<(), WritingError> {
    let Some(offered) = offered else {
        return Ok(());
    };
    let mut wanted = kind.mechanisms(purpose).iter();
    match wanted.find(|(mechanism, _)| !offered.contains(mechanism)) {
        None => Ok(()),
        Some((_, wanted)) => {
            Err(WritingError::NoGeneration { token: token.to_owned(), kind: kind.name(), wanted })
        }
    }
}

/// Makes the pair under a CKA_ID that no object has, or in a YubiKey's slot that may be overwritten.
pub(super) fn generate(
    session: &TokenSession<'_>,
    new: &NewKey<'_>,
    options: SlotOptions,
) -> Result<GeneratedKey, Error> {
    let objects = session.objects();
    let present = writing::objects_with_id(objects, new.id)?;
    let is_yubikey = is_yubikey(&session.state);
    if !(present.is_empty() || options.replaces && is_yubikey) {
        return Err(WritingError::IdInUse {
            id: new.id.to_string(),
            token: objects.token.to_string(),
            present,
        }
        .into());
    }
    let (public, private) = match make(session, new, options) {
        Ok(pair) => pair,
        Err(error) if is_yubikey => {
            let is_unknown = ckr::code(&error) == Some(RvError::AttributeTypeInvalid);
            if is_unknown && !options.policies().is_empty() {
                let token = objects.token.to_string();
                let failure = ckr::failure(&error);
                return Err(WritingError::NoPolicies { token, failure }.into());
            }
            // To remove an object there is to remove the slot's certificate.
            let left = Vec::new();
            return Err(writing::failure(session, "making the key", &error, left));
        }
        Err(error) => {
            let left = clear(session, new.id);
            return Err(writing::failure(session, "making the key", &error, left));
        }
    };
    log::info!("key: made, {}", new.kind.words());
    let failed = objects.failed("reading the new key");
    let public_key = public_key::read(objects, public).map_err(failed)?;
    let Some(public_key) = public_key else {
        return Err(ObjectError::NoPublicKey {
            selector: format!("objectId \"{}\"", new.id),
            token: objects.token.to_string(),
        }
        .into());
    };
    let opens = match (new.purpose, &public_key) {
        (KeyPurpose::Unsealing, PublicKey::Rsa { .. }) => Some(OPENS_RSA),
        // Yubico's library says so of none of its keys.
        (KeyPurpose::Unsealing, _) if !is_yubikey => Some(OPENS_EC),
        _ => None,
    };
    let key = FoundKey {
        id: objects.bytes(private, AttributeType::Id).map_err(failed)?,
        label: objects.label(private).map_err(failed)?,
        public_key,
    };
    Ok(GeneratedKey {
        key,
        unconfirmed: unconfirmed(objects, private, PROMISES.into_iter().chain(opens))?,
    })
}

/// C_GenerateKeyPair. Signals wait: a library that is killed while it writes may lose the whole token.
fn make(
    session: &TokenSession<'_>,
    new: &NewKey<'_>,
    options: SlotOptions,
) -> Result<(ObjectHandle, ObjectHandle), cryptoki::error::Error> {
    let text = format!("the token {} makes the key", session.state.name);
    let _notice = session.module.waiting(NOTICE_DELAY, &text);
    let _step = watchdog::step_within("making the key (C_GenerateKeyPair)", LIMIT);
    let _deferral = Deferral::for_files();
    let raw = &session.raw;
    let opens = new.purpose == KeyPurpose::Unsealing;
    let generate = |key_type, mechanism, shape: Vec<Attribute>, limits: &[Attribute]| {
        let (public, mut private) = templates(new, key_type, shape);
        private.extend_from_slice(limits);
        if is_yubikey(&session.state) {
            // ykcs11 2.2 refuses the attribute; its keys never leave the card.
            private.retain(|it| *it != Attribute::Extractable(false));
            // Its keys do everything.
            private.retain(|it| !matches!(it, Attribute::Decrypt(true) | Attribute::Derive(true)));
            private.extend(options.policies());
        }
        raw.generate_key_pair(&mechanism, &public, &private)
    };
    let use_of_ec = match opens {
        true => &[Attribute::Derive(true)][..],
        false => &[],
    };
    let on_curve = |curve: Curve| {
        let shape = vec![Attribute::EcParams(curve.parameters().to_owned())];
        generate(KeyType::EC, Mechanism::EccKeyPairGen, shape, use_of_ec)
    };
    match new.kind {
        KeyKind::EcP256 => on_curve(Curve::P256),
        KeyKind::EcP384 => on_curve(Curve::P384),
        KeyKind::Ed25519 => {
            let named = |parameters: &[u8]| {
                let shape = vec![Attribute::EcParams(parameters.to_owned())];
                let mechanism = Mechanism::EccEdwardsKeyPairGen;
                generate(KeyType::EC_EDWARDS, mechanism, shape, &[])
            };
            // The standard allows both, and each has libraries that take it alone.
            let [name, oid] = ED25519_PARAMETERS;
            named(name).or_else(|error| match refuses_template(&error) {
                true => named(oid),
                false => Err(error),
            })
        }
        KeyKind::Rsa2048 | KeyKind::Rsa3072 | KeyKind::Rsa4096 => {
            let bits = new.kind.modulus_bits().unwrap_or_default();
            let shape = [
                Attribute::ModulusBits(u64::from(bits).into()),
                Attribute::PublicExponent(PUBLIC_EXPONENT.to_vec()),
            ];
            let limited = |limits: &[Attribute]| {
                let mechanism = Mechanism::RsaPkcsKeyPairGen;
                generate(KeyType::RSA, mechanism, shape.to_vec(), limits)
            };
            if opens {
                return limited(&[Attribute::Decrypt(true)]);
            }
            // tpm2-pkcs11 can't make a key that signs and doesn't decrypt.
            limited(&SIGNING_ONLY).or_else(|error| match refuses_template(&error) {
                true => limited(&[]),
                false => Err(error),
            })
        }
    }
}

/// For the public and the private key. The latter never leaves the token, and signs.
fn templates(
    new: &NewKey<'_>,
    key_type: KeyType,
    shape: Vec<Attribute>,
) -> (Vec<Attribute>, Vec<Attribute>) {
    let names = [
        Attribute::Token(true),
        Attribute::KeyType(key_type),
        Attribute::Id(new.id.as_bytes().to_owned()),
        Attribute::Label(new.label.as_bytes().to_owned()),
    ];
    let mut public = vec![Attribute::Class(ObjectClass::PUBLIC_KEY), Attribute::Verify(true)];
    public.extend(names.clone());
    public.extend(shape);
    let mut private = vec![
        Attribute::Class(ObjectClass::PRIVATE_KEY),
        Attribute::Private(true),
        Attribute::Sensitive(true),
        Attribute::Extractable(false),
        Attribute::Sign(true),
    ];
    private.extend(names);
    (public, private)
}

/// Whether the library may take another template. Any other failure may have made a key.
fn refuses_template(error: &cryptoki::error::Error) -> bool {
    matches!(
        ckr::code(error),
        Some(
            RvError::AttributeTypeInvalid
                | RvError::AttributeValueInvalid
                | RvError::CurveNotSupported
                | RvError::DomainParamsInvalid
                | RvError::GeneralError
                | RvError::TemplateInconsistent
        )
    )
}

/// After a failure: removes one half of a pair. A whole pair stays, to be found by the next call. Gives
/// what is left and can't be removed.
fn clear(session: &TokenSession<'_>, id: &ObjectId) -> Vec<ObjectSummary> {
    let objects = session.objects();
    let made = writing::with_id(objects, id).unwrap_or_default();
    let has = |wanted| made.iter().any(|(_, class)| *class == Some(wanted));
    if has(ObjectClass::PUBLIC_KEY) && has(ObjectClass::PRIVATE_KEY) {
        return Vec::new();
    }
    let mut left = Vec::new();
    for (object, class) in made {
        if session.raw.destroy(object).is_err() {
            left.push(objects.summary(object, class));
        }
    }
    left
}

/// What the token doesn't confirm of the private key.
fn unconfirmed(
    objects: Objects<'_>,
    private: ObjectHandle,
    promises: impl IntoIterator<Item = (AttributeType, &'static str)>,
) -> Result<Vec<&'static str>, Error> {
    let mut unconfirmed = Vec::new();
    for (kind, promise) in promises {
        let shown = objects.flag(private, kind);
        let shown = shown.map_err(objects.failed("reading the new key"))?;
        unconfirmed.extend((shown != Some(true)).then_some(promise));
    }
    Ok(unconfirmed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_known_by_its_name() {
        for kind in KeyKind::ALL {
            assert_eq!(KeyKind::named(kind.name()), Some(kind));
        }
        assert_eq!(KeyKind::named("rsa-1024"), None);
    }

    #[test]
    fn a_token_without_the_mechanism_says_which() {
        let signing = KeyPurpose::Signing;
        let offered = [MechanismType::ECC_KEY_PAIR_GEN, MechanismType::ECDSA];
        check(KeyKind::EcP384, signing, "t", Some(&offered)).unwrap();
        check(KeyKind::Rsa2048, signing, "t", None).unwrap();
        for (kind, text) in [
            (KeyKind::Rsa2048, "CKM_RSA_PKCS_KEY_PAIR_GEN"),
            (KeyKind::Ed25519, "CKM_EC_EDWARDS_KEY_PAIR_GEN"),
        ] {
            let error = check(kind, signing, "t", Some(&offered)).unwrap_err().to_string();
            assert!(error.ends_with(text), "{error}");
        }
        check(KeyKind::EcP256, signing, "t", Some(&offered[..1])).unwrap_err();
    }

    #[test]
    fn a_private_key_stays_on_the_token_and_signs() {
        let new = NewKey {
            kind: KeyKind::EcP256,
            purpose: KeyPurpose::Signing,
            id: &ObjectId::from_bytes(vec![7]),
            label: "jane",
        };
        let (public, private) = templates(&new, KeyType::EC, Vec::new());
        for wanted in [
            Attribute::Sensitive(true),
            Attribute::Extractable(false),
            Attribute::Private(true),
            Attribute::Sign(true),
        ] {
            assert!(private.contains(&wanted), "{wanted:?}");
        }
        for template in [public, private] {
            assert!(template.contains(&Attribute::Token(true)));
            assert!(template.contains(&Attribute::Id(vec![7])));
            assert!(template.contains(&Attribute::Label(b"jane".to_vec())));
        }
    }
}
