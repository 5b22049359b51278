//! A key pair made by the token (C_GenerateKeyPair), and what the token says of it afterwards.

use cryptoki::error::{Error as CryptokiError, RvError};
use cryptoki::mechanism::{Mechanism, MechanismType};
use cryptoki::object::{Attribute, AttributeType, KeyType, ObjectClass};

use super::key::{KeyReference, ShownKey, no_public_key};
use super::object::{ED25519_PARAMETERS, parameter_set};
use super::raw::{KeyPair, ObjectHandle};
use super::yubikey::SlotOptions;
use super::{Token, ckr};
use config::ObjectId;
use crypto::certificate::{Curve, MlDsaSet};
use messages::error::{Error, Exit};
use system::limits;
use system::signals::Deferral;

/// The exponent 65537, which every token takes.
const PUBLIC_EXPONENT: [u8; 3] = [1, 0, 1];

/// What an RSA key that signs may not do: some libraries would let it decrypt, too.
static SIGNING_ONLY: [Attribute; 2] = [Attribute::Decrypt(false), Attribute::Unwrap(false)];

/// What an RSA key that opens sealed files may do.
static DECRYPTING: [Attribute; 1] = [Attribute::Decrypt(true)];

/// What a key on an elliptic curve that opens sealed files may do.
static DERIVING: [Attribute; 1] = [Attribute::Derive(true)];

/// The attributes that together say that a private key has never been outside its token.
const PROMISES: [(AttributeType, &str); 3] = [
    (AttributeType::Local, "it was made on the token (CKA_LOCAL)"),
    (AttributeType::AlwaysSensitive, "it was always sensitive (CKA_ALWAYS_SENSITIVE)"),
    (AttributeType::NeverExtractable, "it was never extractable (CKA_NEVER_EXTRACTABLE)"),
];

/// Which key is made: its type, and its curve, length or parameter set.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum KeyKind {
    #[default]
    EcP256,
    EcP384,
    Ed25519,
    MlDsa44,
    MlDsa65,
    MlDsa87,
    Rsa2048,
    Rsa3072,
    Rsa4096,
}

impl KeyKind {
    /// All kinds, the usual one first.
    pub const ALL: [Self; 9] = [
        Self::EcP256,
        Self::EcP384,
        Self::Ed25519,
        Self::MlDsa44,
        Self::MlDsa65,
        Self::MlDsa87,
        Self::Rsa2048,
        Self::Rsa3072,
        Self::Rsa4096,
    ];

    /// The name of the kind, as `--key` takes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::EcP256 => "ec-p256",
            Self::EcP384 => "ec-p384",
            Self::Ed25519 => "ed25519",
            Self::MlDsa44 => "ml-dsa-44",
            Self::MlDsa65 => "ml-dsa-65",
            Self::MlDsa87 => "ml-dsa-87",
            Self::Rsa2048 => "rsa-2048",
            Self::Rsa3072 => "rsa-3072",
            Self::Rsa4096 => "rsa-4096",
        }
    }

    /// The kind with this [name](Self::name).
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// How a public key of this kind is displayed: the text of its `Display`.
    pub fn description(self) -> &'static str {
        match self {
            Self::EcP256 => "ECDSA P-256",
            Self::EcP384 => "ECDSA P-384",
            Self::Ed25519 => "Ed25519",
            Self::MlDsa44 => "ML-DSA-44",
            Self::MlDsa65 => "ML-DSA-65",
            Self::MlDsa87 => "ML-DSA-87",
            Self::Rsa2048 => "RSA-2048",
            Self::Rsa3072 => "RSA-3072",
            Self::Rsa4096 => "RSA-4096",
        }
    }

    /// Whether such a key can open sealed files; an Ed25519 or ML-DSA key only signs.
    pub fn can_unseal(self) -> bool {
        !matches!(self, Self::Ed25519 | Self::MlDsa44 | Self::MlDsa65 | Self::MlDsa87)
    }

    /// The mechanisms that a token needs in order to make such a key and to use it. An RSA key can sign and decrypt in
    /// several ways.
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
            (Self::MlDsa44 | Self::MlDsa65 | Self::MlDsa87, _) => {
                &[MechanismType::ML_DSA_KEY_PAIR_GEN, MechanismType::ML_DSA]
            }
            (Self::Rsa2048 | Self::Rsa3072 | Self::Rsa4096, _) => {
                &[MechanismType::RSA_PKCS_KEY_PAIR_GEN]
            }
        }
    }

    /// The attributes that say which key it is.
    fn shape(self) -> KeyShape {
        match self {
            Self::EcP256 => KeyShape::on_curve(KeyType::EC, Curve::P256.parameters()),
            Self::EcP384 => KeyShape::on_curve(KeyType::EC, Curve::P384.parameters()),
            Self::Ed25519 => KeyShape::on_curve(KeyType::EC_EDWARDS, ED25519_PARAMETERS[0]),
            Self::MlDsa44 => KeyShape::ml_dsa(MlDsaSet::MlDsa44),
            Self::MlDsa65 => KeyShape::ml_dsa(MlDsaSet::MlDsa65),
            Self::MlDsa87 => KeyShape::ml_dsa(MlDsaSet::MlDsa87),
            Self::Rsa2048 => KeyShape::rsa(2048),
            Self::Rsa3072 => KeyShape::rsa(3072),
            Self::Rsa4096 => KeyShape::rsa(4096),
        }
    }
}

/// The part of a template that says which key is to be made.
struct KeyShape {
    /// CKA_KEY_TYPE.
    key_type: KeyType,
    /// The curve, length or parameter set, as the public key's template has it.
    attributes: Vec<Attribute>,
}

impl KeyShape {
    fn rsa(bits: u64) -> Self {
        let exponent = Attribute::PublicExponent(PUBLIC_EXPONENT.to_vec());
        let attributes = vec![Attribute::ModulusBits(bits.into()), exponent];
        Self { key_type: KeyType::RSA, attributes }
    }

    fn ml_dsa(set: MlDsaSet) -> Self {
        let attributes = vec![Attribute::ParameterSet(parameter_set(set).into())];
        Self { key_type: KeyType::ML_DSA, attributes }
    }

    fn on_curve(key_type: KeyType, parameters: &[u8]) -> Self {
        Self { key_type, attributes: vec![Attribute::EcParams(parameters.to_owned())] }
    }

    fn mechanism(&self) -> Mechanism<'static> {
        match self.key_type {
            KeyType::RSA => Mechanism::RsaPkcsKeyPairGen,
            KeyType::EC_EDWARDS => Mechanism::EccEdwardsKeyPairGen,
            KeyType::ML_DSA => Mechanism::MlDsaKeyPairGen,
            _ => Mechanism::EccKeyPairGen,
        }
    }

    /// What the private key may do besides signing, and what it may not.
    fn uses(&self, purpose: KeyPurpose) -> &'static [Attribute] {
        match (self.key_type, purpose) {
            (KeyType::RSA, KeyPurpose::Signing) => &SIGNING_ONLY,
            (KeyType::RSA, KeyPurpose::Unsealing) => &DECRYPTING,
            (KeyType::EC, KeyPurpose::Unsealing) => &DERIVING,
            _ => &[],
        }
    }
}

/// What a new key is for.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum KeyPurpose {
    /// The key signs for TLS clients.
    #[default]
    Signing,
    /// The key opens sealed files. It signs, too: the request for its certificate.
    Unsealing,
}

/// A key that is to be made.
pub struct NewKey<'a> {
    pub kind: KeyKind,
    pub purpose: KeyPurpose,
    /// CKA_ID.
    pub id: &'a ObjectId,
    /// CKA_LABEL.
    pub label: &'a str,
}

/// A key that the token has made, as it shows it afterwards.
pub struct GeneratedKey {
    pub key: KeyReference,
    /// What the token doesn't confirm about the key, as in `it was made on the token (CKA_LOCAL)`.
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
        if self.is_in_use(new.id)? && !(options.replaces && self.state().is_yubikey()) {
            return Err(id_in_use(new.id, &self.name()));
        }
        let made = self.make_pair(new, options);
        let made = made.map_err(|error| self.generation_failure(options, &error))?;
        log::info!("key: made, {}", new.kind.description());
        let public_key = self.public_key(made.public)?;
        let public_key = public_key
            .ok_or_else(|| no_public_key(format_args!("objectId \"{}\"", new.id), &self.name()))?;
        let mut unconfirmed = Vec::new();
        for (kind, promise) in PROMISES {
            if self.flag(made.private, kind)? != Some(true) {
                unconfirmed.push(promise);
            }
        }
        let key = self.named(ShownKey { object: made.private, public_key })?;
        Ok(GeneratedKey { key, unconfirmed })
    }

    /// The error for a key that could not be made.
    fn generation_failure(&self, options: SlotOptions, error: &CryptokiError) -> Error {
        let is_unknown = ckr::code(error) == Some(RvError::AttributeTypeInvalid);
        if !self.state().is_yubikey() || !is_unknown || options.policies().is_empty() {
            return self.writing_failure("making the key", error);
        }
        let text = format!(
            "the library of token {} knows no PIN and touch policies: {}",
            self.name(),
            ckr::failure(error)
        );
        Error::new(Exit::Object, text)
            .help("update the library (ykcs11 2.3 or later), or leave the policies out")
    }

    /// C_GenerateKeyPair; if the library may take another template, it is called again with that. Signals wait meanwhile: a
    /// library that is killed while it writes may lose the whole token.
    fn make_pair(
        &self,
        new: &NewKey<'_>,
        options: SlotOptions,
    ) -> Result<KeyPair<ObjectHandle>, CryptokiError> {
        let text = format!("the token {} makes the key", self.name());
        let _notice = self.module.waiting(limits::GENERATION_NOTICE, &text);
        let _deferral = Deferral::for_token();
        let shape = new.kind.shape();
        let error = match self.make_pair_of(&shape, shape.uses(new.purpose), new, options) {
            Err(error) if may_take_another(&error) => error,
            outcome => return outcome,
        };
        match shape.key_type {
            // The standard allows two encodings of the curve, and there are libraries that take only the one or only the
            // other.
            KeyType::EC_EDWARDS => {
                let shape = KeyShape::on_curve(KeyType::EC_EDWARDS, ED25519_PARAMETERS[1]);
                self.make_pair_of(&shape, &[], new, options)
            }
            // tpm2-pkcs11 can't make a key that signs and doesn't decrypt.
            KeyType::RSA if new.purpose == KeyPurpose::Signing => {
                self.make_pair_of(&shape, &[], new, options)
            }
            _ => Err(error),
        }
    }

    /// C_GenerateKeyPair for keys of this shape, with a private key that may do what `uses` says.
    fn make_pair_of(
        &self,
        shape: &KeyShape,
        uses: &[Attribute],
        new: &NewKey<'_>,
        options: SlotOptions,
    ) -> Result<KeyPair<ObjectHandle>, CryptokiError> {
        let mut templates = templates(new, shape);
        let private = &mut templates.private;
        private.extend_from_slice(uses);
        if self.state().is_yubikey() {
            // ykcs11 2.2 refuses the attribute; its keys never leave the card, and do everything.
            let refused =
                [Attribute::Extractable(false), Attribute::Decrypt(true), Attribute::Derive(true)];
            private.retain(|attribute| !refused.contains(attribute));
            private.extend(options.policies());
        }
        self.session.generate_key_pair(&shape.mechanism(), &templates)
    }
}

/// The error for a new key whose CKA_ID other objects have already.
pub fn id_in_use(id: &ObjectId, token: &str) -> Error {
    Error::new(Exit::Object, format!("objectId \"{id}\" is in use on token {token}")).help(
        "name another one with objectId (--object-id) (a YubiKey: another slot with --slot), or leave it out",
    )
}

/// The templates of a new key pair. The private key never leaves the token, and signs.
fn templates(new: &NewKey<'_>, shape: &KeyShape) -> KeyPair<Vec<Attribute>> {
    let names = [
        Attribute::Token(true),
        Attribute::KeyType(shape.key_type),
        Attribute::Id(new.id.as_bytes().to_owned()),
        Attribute::Label(new.label.as_bytes().to_owned()),
    ];
    let mut public = vec![Attribute::Class(ObjectClass::PUBLIC_KEY), Attribute::Verify(true)];
    public.extend(names.clone());
    public.extend_from_slice(&shape.attributes);
    let mut private = vec![
        Attribute::Class(ObjectClass::PRIVATE_KEY),
        Attribute::Private(true),
        Attribute::Sensitive(true),
        Attribute::Extractable(false),
        Attribute::Sign(true),
    ];
    private.extend(names);
    KeyPair { public, private }
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
        let KeyPair { public, private } = templates(&new, &new.kind.shape());
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
