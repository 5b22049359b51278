//! A key pair made by the token (C_GenerateKeyPair), and what the token says of it afterwards.

use cryptoki::error::{Error as CryptokiError, RvError};
use cryptoki::mechanism::{Mechanism, MechanismType};
use cryptoki::object::{Attribute, AttributeType, KeyType, ObjectClass};

use super::key::{KeyReference, no_public_key};
use super::object::ED25519_PARAMETERS;
use super::raw::ObjectHandle;
use super::yubikey::SlotOptions;
use super::{Token, ckr};
use config::ObjectId;
use crypto::certificate::Curve;
use messages::error::{Error, Exit};
use system::limits;
use system::signals::Deferral;

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

    /// Its name for `--key`, and as a public key's `Display` has it.
    fn names(self) -> [&'static str; 2] {
        match self {
            Self::EcP256 => ["ec-p256", "ECDSA P-256"],
            Self::EcP384 => ["ec-p384", "ECDSA P-384"],
            Self::Ed25519 => ["ed25519", "Ed25519"],
            Self::Rsa2048 => ["rsa-2048", "RSA-2048"],
            Self::Rsa3072 => ["rsa-3072", "RSA-3072"],
            Self::Rsa4096 => ["rsa-4096", "RSA-4096"],
        }
    }

    /// As `--key` takes it.
    pub fn name(self) -> &'static str {
        self.names()[0]
    }

    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// As a public key's `Display` has it.
    pub fn description(self) -> &'static str {
        self.names()[1]
    }

    /// What the token needs to make the key and to use it; RSA keys sign and decrypt in several ways.
    fn mechanisms(self, purpose: KeyPurpose) -> &'static [MechanismType] {
        match (self, purpose) {
            (Self::EcP256 | Self::EcP384, KeyPurpose::Signing) => {
                &[MechanismType::ECC_KEY_PAIR_GEN, MechanismType::ECDSA]
            }
            (Self::EcP256 | Self::EcP384, KeyPurpose::Unsealing) => &[
                MechanismType::ECC_KEY_PAIR_GEN,
                MechanismType::ECDSA,
                MechanismType::ECDH1_DERIVE,
            ],
            (Self::Ed25519, _) => &[MechanismType::ECC_EDWARDS_KEY_PAIR_GEN, MechanismType::EDDSA],
            (Self::Rsa2048 | Self::Rsa3072 | Self::Rsa4096, _) => {
                &[MechanismType::RSA_PKCS_KEY_PAIR_GEN]
            }
        }
    }

    /// CKA_KEY_TYPE, and the attributes that say which of that type.
    fn shape(self) -> (KeyType, Vec<Attribute>) {
        let rsa = |bits: u64| {
            let exponent = Attribute::PublicExponent(PUBLIC_EXPONENT.to_vec());
            (KeyType::RSA, vec![Attribute::ModulusBits(bits.into()), exponent])
        };
        match self {
            Self::EcP256 => (KeyType::EC, on_curve(Curve::P256.parameters())),
            Self::EcP384 => (KeyType::EC, on_curve(Curve::P384.parameters())),
            Self::Ed25519 => (KeyType::EC_EDWARDS, on_curve(ED25519_PARAMETERS[0])),
            Self::Rsa2048 => rsa(2048),
            Self::Rsa3072 => rsa(3072),
            Self::Rsa4096 => rsa(4096),
        }
    }
}

fn on_curve(parameters: &[u8]) -> Vec<Attribute> {
    vec![Attribute::EcParams(parameters.to_owned())]
}

#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum KeyPurpose {
    /// Clients of TLS.
    #[default]
    Signing,
    /// Sealed files. The key signs, too: the request for its certificate.
    Unsealing,
}

pub struct NewKey<'a> {
    pub kind: KeyKind,
    pub purpose: KeyPurpose,
    pub id: &'a ObjectId,
    /// CKA_LABEL.
    pub label: &'a str,
}

pub struct GeneratedKey {
    pub key: KeyReference,
    /// What the token doesn't confirm of it, as in `it was made on the token (CKA_LOCAL)`.
    pub unconfirmed: Vec<&'static str>,
}

impl Token {
    /// Checks that the token can make such a key and use it (C_GetMechanismList).
    pub fn check_generation(&self, kind: KeyKind, purpose: KeyPurpose) -> Result<(), Error> {
        let mut wanted = kind.mechanisms(purpose).iter();
        let Some(missing) = wanted.find(|mechanism| !self.offers(**mechanism)) else {
            return Ok(());
        };
        let token = self.name();
        let text = format!("token {token} makes no {} key: it offers no {missing}", kind.name());
        Err(Error::new(Exit::Object, text).help(
            "choose another kind with --key, or make the key with the token's own tool: \
             docs/tokens.md#a-key-and-its-certificate",
        ))
    }

    /// Makes a key pair (C_GenerateKeyPair) under a CKA_ID that no object has, or in a YubiKey's slot that may be
    /// overwritten, and reads it back. Private objects have to be visible: [`Token::log_in_to_write`].
    pub fn generate(&self, new: &NewKey<'_>, options: SlotOptions) -> Result<GeneratedKey, Error> {
        self.check_generation(new.kind, new.purpose)?;
        let is_yubikey = self.state().is_yubikey();
        if self.is_in_use(new.id)? && !(options.replaces && is_yubikey) {
            return Err(id_in_use(new.id, &self.name()));
        }
        let made = self.make_pair(new, options).map_err(|error| {
            let is_unknown = ckr::code(&error) == Some(RvError::AttributeTypeInvalid);
            if is_yubikey && is_unknown && !options.policies().is_empty() {
                let (token, failure) = (self.name(), ckr::failure(&error));
                let text = format!(
                    "the library of token {token} knows no PIN and touch policies: {failure}"
                );
                return Error::new(Exit::Object, text)
                    .help("update the library (ykcs11 2.3 or later), or leave the policies out");
            }
            self.writing_failure("making the key", &error)
        });
        let (public, private) = made?;
        log::info!("key: made, {}", new.kind.description());
        let public_key = self.public_key(public)?;
        let public_key = public_key
            .ok_or_else(|| no_public_key(format_args!("objectId \"{}\"", new.id), &self.name()))?;
        let mut unconfirmed = Vec::new();
        for (kind, promise) in PROMISES {
            let shown = self.flag(private, kind)?;
            if shown != Some(true) {
                unconfirmed.push(promise);
            }
        }
        let key = self.named(private, public_key)?;
        Ok(GeneratedKey { key, unconfirmed })
    }

    /// C_GenerateKeyPair. Signals wait: a library that is killed while it writes may lose the whole token.
    fn make_pair(
        &self,
        new: &NewKey<'_>,
        options: SlotOptions,
    ) -> Result<(ObjectHandle, ObjectHandle), CryptokiError> {
        let text = format!("the token {} makes the key", self.name());
        let _notice = self.module.waiting(limits::GENERATION_NOTICE, &text);
        let _deferral = Deferral::for_token();
        let (key_type, shape) = new.kind.shape();
        let (mechanism, to_open, to_sign): (_, &[_], &[_]) = match key_type {
            KeyType::RSA => {
                (Mechanism::RsaPkcsKeyPairGen, &[Attribute::Decrypt(true)], &SIGNING_ONLY)
            }
            KeyType::EC_EDWARDS => (Mechanism::EccEdwardsKeyPairGen, &[], &[]),
            _ => (Mechanism::EccKeyPairGen, &[Attribute::Derive(true)], &[]),
        };
        let generate = |shape: &[Attribute], uses: &[Attribute]| {
            let (public, mut private) = templates(new, key_type, shape);
            private.extend_from_slice(uses);
            if self.state().is_yubikey() {
                // ykcs11 2.2 refuses the attribute; its keys never leave the card, and do everything.
                let refused = [
                    Attribute::Extractable(false),
                    Attribute::Decrypt(true),
                    Attribute::Derive(true),
                ];
                private.retain(|attribute| !refused.contains(attribute));
                private.extend(options.policies());
            }
            self.session.generate_key_pair(&mechanism, &public, &private)
        };
        let opens = new.purpose == KeyPurpose::Unsealing;
        let made = generate(&shape, if opens { to_open } else { to_sign });
        match (made, key_type) {
            // The standard allows both, and each has libraries that take it alone.
            (Err(error), KeyType::EC_EDWARDS) if may_take_another(&error) => {
                generate(&on_curve(ED25519_PARAMETERS[1]), &[])
            }
            // tpm2-pkcs11 can't make a key that signs and doesn't decrypt.
            (Err(error), KeyType::RSA) if may_take_another(&error) && !opens => {
                generate(&shape, &[])
            }
            (made, _) => made,
        }
    }
}

/// The error of a key that would be made beside other objects.
pub fn id_in_use(id: &ObjectId, token: &str) -> Error {
    Error::new(Exit::Object, format!("objectId \"{id}\" is in use on token {token}")).help(
        "name another one with objectId (--object-id) (a YubiKey: another slot with --slot), or leave it out",
    )
}

/// For the public and the private key. The latter never leaves the token, and signs.
fn templates(
    new: &NewKey<'_>,
    key_type: KeyType,
    shape: &[Attribute],
) -> (Vec<Attribute>, Vec<Attribute>) {
    let names = [
        Attribute::Token(true),
        Attribute::KeyType(key_type),
        Attribute::Id(new.id.as_bytes().to_owned()),
        Attribute::Label(new.label.as_bytes().to_owned()),
    ];
    let mut public = vec![Attribute::Class(ObjectClass::PUBLIC_KEY), Attribute::Verify(true)];
    public.extend(names.clone());
    public.extend_from_slice(shape);
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
fn may_take_another(error: &CryptokiError) -> bool {
    let codes = [
        RvError::AttributeTypeInvalid,
        RvError::AttributeValueInvalid,
        RvError::CurveNotSupported,
        RvError::DomainParamsInvalid,
        RvError::GeneralError,
        RvError::TemplateInconsistent,
    ];
    ckr::is_one_of(error, &codes)
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
    fn a_private_key_stays_on_the_token_and_signs() {
        let new = NewKey {
            kind: KeyKind::EcP256,
            purpose: KeyPurpose::Signing,
            id: &ObjectId::from_bytes(vec![7]),
            label: "jane",
        };
        let (public, private) = templates(&new, KeyType::EC, &[]);
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
