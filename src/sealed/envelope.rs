//! A sealed file: its recipients, and its content once the token has done its part.

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use cms::authenveloped_data::AuthEnvelopedData;
use cms::cert::IssuerAndSerialNumber;
use cms::cert::x509::certificate::{CertificateInner, Raw};
use cms::cert::x509::serial_number::SerialNumber;
use cms::content_info::ContentInfo;
use cms::enveloped_data::{
    KeyAgreeRecipientIdentifier, KeyAgreeRecipientInfo, KeyTransRecipientInfo,
    OriginatorIdentifierOrKey, RecipientIdentifier, RecipientInfo,
};
use const_oid::db::rfc5911;
use der::{Any, Decode as _, Encode as _, pem};

use super::encoding::{GcmParameters, TAG_LENGTH, agreed, enveloped, transported, unwrap};
use super::registries::Registries;
use crypto::certificate::{Certificate, Curve};
use crypto::scheme::LockedSecret;
use messages::error::{Error, Exit};
use messages::help::{Help, command};
use messages::printable::hex;

pub(super) const LABEL: &str = "CMS";

/// The help that says how to seal a file so that it can be read here.
fn how_to_seal() -> Help {
    Help::from("seal it with ").and(command("seal")).and(
        "; openssl cms needs -outform PEM -aes-256-gcm, and for an RSA key -keyopt rsa_padding_mode:oaep -keyopt \
         rsa_oaep_md:sha256, for an EC key -keyopt ecdh_kdf_md:sha256",
    )
}

/// A sealed file that was read. Nothing of its content is known to be genuine until it is opened.
#[derive(Debug)]
pub struct SealedFile {
    /// The path of the file, for messages.
    pub name: String,
    pub recipients: Vec<Recipient>,
    nonce: [u8; NONCE_LEN],
    /// The encrypted content, followed by AES-GCM's tag.
    ciphertext: Vec<u8>,
}

/// One of the keys to which a file is sealed.
#[derive(Debug)]
pub struct Recipient {
    /// The name by which the file knows the certificate of the key.
    pub name: RecipientIdentifier,
    /// The content's key, or the secret by which that is wrapped.
    pub locked: LockedSecret,
    /// The content's key, wrapped by ECDH's secret; `None` if the locked secret is that key itself.
    wrapped: Option<Vec<u8>>,
}

impl SealedFile {
    /// Reads the text of a file; messages call it `name`.
    pub fn read(bytes: &[u8], name: &str) -> Result<Self, Error> {
        let refused = |reason| {
            Error::new(Exit::Configuration, format!("{name} is no sealed file: {reason}"))
                .help(how_to_seal())
        };
        let decoded = pem::decode_vec(bytes).ok().filter(|(label, _)| *label == LABEL);
        let (_, der) = decoded.ok_or_else(|| refused("it is not CMS in PEM"))?;
        let data = ContentInfo::from_der(&der)
            .ok()
            .filter(|info| info.content_type == rfc5911::ID_CT_AUTH_ENVELOPED_DATA)
            .and_then(|info| info.content.decode_as::<AuthEnvelopedData>().ok());
        let data = data.ok_or_else(|| {
            refused("it is not AuthEnvelopedData, without which changes would go unnoticed")
        })?;
        let recipients = data.recip_infos.0.iter().map(Recipient::of);
        let recipients = recipients.collect::<Result<_, _>>().map_err(refused)?;
        let content = data.auth_encrypted_content_info;
        let nonce = content.content_enc_alg.parameters.as_ref().and_then(nonce_of);
        let sealed = nonce.zip(content.encrypted_content).filter(|(nonce, ciphertext)| {
            let tag = data.mac.as_bytes();
            // If something could be written in another way, it could be changed without being noticed.
            tag.len() == usize::from(TAG_LENGTH)
                && enveloped(data.recip_infos, nonce, ciphertext.as_bytes(), tag)
                    .is_ok_and(|only_form| only_form == der)
        });
        let (nonce, ciphertext) = sealed.ok_or_else(|| {
            refused("it is not plain data alone, encrypted with AES-256-GCM and a tag of 16 bytes, in DER")
        })?;
        let ciphertext = [ciphertext.as_bytes(), data.mac.as_bytes()].concat();
        Ok(Self { name: name.to_owned(), recipients, nonce, ciphertext })
    }

    /// The place of the first recipient with one of these names.
    pub fn recipient(&self, names: &[RecipientIdentifier]) -> Option<usize> {
        self.recipients.iter().position(|recipient| names.contains(&recipient.name))
    }

    /// Opens the file's content. `decrypted` is what the recipient's token has made of its secret. Whatever is wrong
    /// with it, the error is the same.
    pub fn open(&self, recipient: &Recipient, decrypted: &[u8]) -> Result<Registries, Error> {
        let content = self.content(recipient, decrypted).ok_or_else(|| {
            Error::new(
                Exit::Configuration,
                format!("{} is damaged, or was sealed to another key", self.name),
            )
            .help("copy the file again from where it was sealed, or seal it again")
        })?;
        Registries::from_config(&content, &format!("what is sealed in {}", self.name))
    }

    /// The content; `None` if the secret opens nothing.
    fn content(&self, recipient: &Recipient, decrypted: &[u8]) -> Option<Vec<u8>> {
        let key = match &recipient.wrapped {
            None => decrypted.to_owned(),
            Some(wrapped) => unwrap(decrypted, wrapped)?,
        };
        let key = LessSafeKey::new(UnboundKey::new(&AES_256_GCM, &key).ok()?);
        let nonce = Nonce::assume_unique_for_key(self.nonce);
        let mut content = self.ciphertext.clone();
        let length = key.open_in_place(nonce, Aad::empty(), &mut content).ok()?.len();
        content.truncate(length);
        Some(content)
    }
}

/// The nonce in the parameters of AES-GCM.
fn nonce_of(parameters: &Any) -> Option<[u8; NONCE_LEN]> {
    let parameters: GcmParameters = parameters.decode_as().ok()?;
    parameters.nonce.as_bytes().try_into().ok()
}

impl Recipient {
    /// Reads a recipient of a file. An error for one that no file made here has.
    fn of(info: &RecipientInfo) -> Result<Self, &'static str> {
        let recipient = match info {
            RecipientInfo::Ktri(transport) => Self::transported(transport),
            RecipientInfo::Kari(agreement) => Self::agreed(agreement),
            _ => None,
        };
        recipient.ok_or(
            "it has a recipient other than by OAEP with SHA-256 to an RSA key, or by ephemeral ECDH with SHA-256 and \
             AES-256 key wrap to an EC key on P-256, P-384 or P-521",
        )
    }

    /// Reads a recipient with an RSA key.
    fn transported(info: &KeyTransRecipientInfo) -> Option<Self> {
        let name = &info.rid;
        let encrypted = info.enc_key.as_bytes();
        let is_ours = [Some(Any::null()), None].into_iter().any(|of_hash| {
            let ours = transported(name.clone(), encrypted, of_hash);
            matches!(&ours, Ok(RecipientInfo::Ktri(ours)) if ours == info)
        });
        let locked = LockedSecret::Oaep(encrypted.to_owned());
        is_ours.then(|| Self { name: name.clone(), locked, wrapped: None })
    }

    /// Reads a recipient with an EC key.
    fn agreed(info: &KeyAgreeRecipientInfo) -> Option<Self> {
        let OriginatorIdentifierOrKey::OriginatorKey(sender) = &info.originator else {
            return None;
        };
        let [key] = info.recipient_enc_keys.as_slice() else { return None };
        let name = match key.rid.clone() {
            KeyAgreeRecipientIdentifier::IssuerAndSerialNumber(named) => {
                RecipientIdentifier::IssuerAndSerialNumber(named)
            }
            KeyAgreeRecipientIdentifier::RKeyId(named) => {
                RecipientIdentifier::SubjectKeyIdentifier(named.subject_key_identifier)
            }
        };
        let point = sender.public_key.as_bytes()?;
        let point = Some(point).filter(|point| point.first() == Some(&4))?.to_owned();
        let mut curves = [Curve::P256, Curve::P384, Curve::P521].into_iter();
        let curve = curves.find(|curve| curve.point_length() == point.len())?;
        let wrapped = key.enc_key.as_bytes().to_owned();
        let ours = agreed(name.clone(), &point, &wrapped).ok()?;
        let is_ours = matches!(&ours, RecipientInfo::Kari(ours) if ours == info);
        let locked = LockedSecret::Ecdh { curve, point };
        is_ours.then_some(Self { name, locked, wrapped: Some(wrapped) })
    }
}

/// A parsed certificate, with a serial number of any length.
pub(super) type Parsed = CertificateInner<Raw>;

/// The names of a certificate. A sealed file may know its key by any of them. The identifier in the certificate comes
/// first, if there is one, since it stays when the certificate is renewed. A serial number that is too long for RFC
/// 5280 names nothing.
pub fn names(certificate: &Certificate) -> Vec<RecipientIdentifier> {
    let mut names = Vec::new();
    if let Ok(parsed) = Parsed::from_der(certificate.der()) {
        let parsed = parsed.tbs_certificate();
        if let Ok(Some((_, identifier))) = parsed.get_extension() {
            names.push(RecipientIdentifier::SubjectKeyIdentifier(identifier));
        }
        let number = parsed.serial_number().to_der();
        if let Ok(serial_number) = number.and_then(|der| SerialNumber::from_der(&der)) {
            let issuer = parsed.issuer().clone();
            names.push(RecipientIdentifier::IssuerAndSerialNumber(IssuerAndSerialNumber {
                issuer,
                serial_number,
            }));
        }
    }
    names
}

/// A recipient's name for messages.
pub fn describe(name: &RecipientIdentifier) -> String {
    match name {
        RecipientIdentifier::SubjectKeyIdentifier(identifier) => {
            format!("key identifier {}", hex(identifier.0.as_bytes()))
        }
        RecipientIdentifier::IssuerAndSerialNumber(named) => {
            let number = hex(named.serial_number.as_bytes()).to_uppercase();
            format!("certificate {number} of {}", named.issuer)
        }
    }
}
