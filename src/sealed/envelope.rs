//! A sealed file: its recipients, and its content once the token has done its part.

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use cms::authenveloped_data::AuthEnvelopedData;
use cms::cert::IssuerAndSerialNumber;
use cms::cert::x509::certificate::{CertificateInner, Raw};
use cms::cert::x509::serial_number::SerialNumber;
use cms::content_info::ContentInfo;
use cms::enveloped_data::{
    KeyAgreeRecipientIdentifier, KeyAgreeRecipientInfo, OriginatorIdentifierOrKey,
    RecipientIdentifier, RecipientInfo,
};
use const_oid::db::rfc5911;
use der::{Any, Decode as _, Encode as _, pem};

use super::encoding::{GcmParameters, TAG_LENGTH, agreed, enveloped, transported, unwrap};
use super::registries::Registries;
use crypto::certificate::{Certificate, Curve};
use crypto::scheme::LockedSecret;
use messages::error::{Error, Exit};
use messages::printable::hex;

pub(super) const LABEL: &str = "CMS";

const SEAL_AGAIN: &str = "seal it with `pkcs11-external-signer seal`; openssl cms needs -outform PEM -aes-256-gcm, and for an \
                          RSA key -keyopt rsa_padding_mode:oaep -keyopt rsa_oaep_md:sha256, for an EC key -keyopt \
                          ecdh_kdf_md:sha256";

/// A sealed file that was read. Nothing of its content is known to be genuine until it is opened.
#[derive(Debug)]
pub struct SealedFile {
    /// For messages: its path.
    pub name: String,
    pub recipients: Vec<Recipient>,
    nonce: [u8; NONCE_LEN],
    /// With the tag.
    ciphertext: Vec<u8>,
}

#[derive(Debug)]
pub struct Recipient {
    pub name: RecipientIdentifier,
    /// The content's key, or the secret by which that is wrapped.
    pub locked: LockedSecret,
    /// Of ECDH.
    wrapped: Option<Vec<u8>>,
}

impl SealedFile {
    /// Reads a file's text; `name` is for messages.
    pub fn read(bytes: &[u8], name: &str) -> Result<Self, Error> {
        let refused = |reason| {
            Error::new(Exit::Configuration, format!("{name} is no sealed file: {reason}"))
                .help(SEAL_AGAIN)
        };
        let decoded = pem::decode_vec(bytes).ok().filter(|(label, _)| *label == LABEL);
        let (_, der) = decoded.ok_or_else(|| refused("it is not CMS in PEM"))?;
        let info = ContentInfo::from_der(&der).ok();
        let info = info.filter(|it| it.content_type == rfc5911::ID_CT_AUTH_ENVELOPED_DATA);
        let data = info.and_then(|it| it.content.decode_as::<AuthEnvelopedData>().ok());
        let data = data.ok_or_else(|| {
            refused("it is not AuthEnvelopedData, without which changes would go unnoticed")
        })?;
        let recipients = data.recip_infos.0.iter().map(Recipient::of);
        let recipients = recipients.collect::<Result<_, _>>().map_err(refused)?;
        let content = data.auth_encrypted_content_info;
        let parameters = content.content_enc_alg.parameters;
        let parameters = parameters.and_then(|it| it.decode_as::<GcmParameters>().ok());
        let nonce = parameters.and_then(|it| <[u8; NONCE_LEN]>::try_from(it.nonce.as_bytes()).ok());
        let sealed = nonce.zip(content.encrypted_content).filter(|(nonce, ciphertext)| {
            let (ciphertext, tag) = (ciphertext.as_bytes(), data.mac.as_bytes());
            // What could be written in another way could be changed without being noticed.
            tag.len() == usize::from(TAG_LENGTH)
                && enveloped(data.recip_infos, nonce, ciphertext, tag).is_ok_and(|it| it == der)
        });
        let (nonce, ciphertext) = sealed.ok_or_else(|| {
            refused("it is not plain data alone, encrypted with AES-256-GCM and a tag of 16 bytes, in DER")
        })?;
        let ciphertext = [ciphertext.as_bytes(), data.mac.as_bytes()].concat();
        Ok(Self { name: name.to_owned(), recipients, nonce, ciphertext })
    }

    /// The place of the first recipient with one of these names.
    pub fn recipient(&self, names: &[RecipientIdentifier]) -> Option<usize> {
        self.recipients.iter().position(|it| names.contains(&it.name))
    }

    /// The registries, with what the recipient's token has made of its secret. Whatever is wrong with it is the same error.
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

impl Recipient {
    fn of(info: &RecipientInfo) -> Result<Self, &'static str> {
        let recipient = match info {
            RecipientInfo::Ktri(it) => {
                let (name, encrypted) = (&it.rid, it.enc_key.as_bytes());
                let mut encodings = [Some(Any::null()), None].into_iter();
                let is_ours = encodings.any(|of_hash| {
                    transported(name.clone(), encrypted, of_hash).as_ref() == Ok(info)
                });
                let locked = LockedSecret::Oaep(encrypted.to_owned());
                is_ours.then(|| Self { name: name.clone(), locked, wrapped: None })
            }
            RecipientInfo::Kari(it) => Self::agreed(it),
            _ => None,
        };
        recipient.ok_or(
            "it has a recipient other than by OAEP with SHA-256 to an RSA key, or by ephemeral ECDH with SHA-256 and \
             AES-256 key wrap to an EC key on P-256, P-384 or P-521",
        )
    }

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
        let point = sender.public_key.as_bytes().filter(|it| it.first() == Some(&4))?.to_owned();
        let mut curves = [Curve::P256, Curve::P384, Curve::P521].into_iter();
        let curve = curves.find(|it| it.point_length() == point.len())?;
        let wrapped = key.enc_key.as_bytes().to_owned();
        let ours = agreed(name.clone(), &point, &wrapped).ok()?;
        let is_ours = matches!(&ours, RecipientInfo::Kari(ours) if ours == info);
        let locked = LockedSecret::Ecdh { curve, point };
        is_ours.then_some(Self { name, locked, wrapped: Some(wrapped) })
    }
}

/// With serial numbers of any length.
pub(super) type Parsed = CertificateInner<Raw>;

/// The names of a certificate, by one of which a sealed file may know its key. First the identifier in it, where it has one: it
/// stays when the certificate is renewed. A serial number that is too long for RFC 5280 names nothing.
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
