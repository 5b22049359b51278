//! By which names a recipient is known: those of its certificate, or of its key.

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use cms::cert::IssuerAndSerialNumber;
use cms::cert::x509::ext::pkix::SubjectKeyIdentifier;
use cms::cert::x509::name::Name;
use cms::cert::x509::serial_number::SerialNumber;
use cms::enveloped_data::RecipientIdentifier;
use der::asn1::{OctetString, UintRef};
use der::{Decode as _, Encode as _};
use x509_parser::extensions::ParsedExtension;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::certificate::{Certificate, PublicKey, without_leading_zeros};
use crate::printable::hex;

/// All names of a key, by one of which a sealed file may know it.
#[derive(Debug)]
pub struct KeyNames(Vec<RecipientIdentifier>);

impl KeyNames {
    /// Those of a certificate: the identifier in it, issuer and serial number, and the identifier of its key.
    pub fn of(certificate: &Certificate) -> Self {
        let mut names = names(certificate);
        names.extend(Self::of_key(certificate.public_key()).0);
        Self(names)
    }

    /// That of a public key: the SHA-1 hash that certificates have for it (RFC 5280, section 4.2.1.2).
    pub fn of_key(key: &PublicKey) -> Self {
        let bits = match key {
            PublicKey::Ecdsa { point, .. } => point.clone(),
            PublicKey::Ed25519(point) => point.to_vec(),
            PublicKey::Rsa { modulus, exponent } => {
                let numbers = [modulus, exponent].map(|it| UintRef::new(it));
                let key: der::Result<Vec<_>> = numbers.into_iter().collect();
                key.and_then(|it| it.to_der()).unwrap_or_default()
            }
        };
        let hash = digest(&SHA1_FOR_LEGACY_USE_ONLY, &bits);
        Self(key_identifier(hash.as_ref()).into_iter().collect())
    }

    pub fn contains(&self, name: &RecipientIdentifier) -> bool {
        self.0.contains(name)
    }
}

/// The names in a certificate. First the key identifier, where it has one: it stays when the certificate is renewed.
pub(super) fn names(certificate: &Certificate) -> Vec<RecipientIdentifier> {
    let Ok((_, parsed)) = X509Certificate::from_der(certificate.der()) else {
        return Vec::new();
    };
    let identifier = parsed.iter_extensions().find_map(|it| match it.parsed_extension() {
        ParsedExtension::SubjectKeyIdentifier(identifier) => key_identifier(identifier.0),
        _ => None,
    });
    let numbered = || -> der::Result<_> {
        Ok(RecipientIdentifier::IssuerAndSerialNumber(IssuerAndSerialNumber {
            issuer: Name::from_der(parsed.issuer().as_raw())?,
            serial_number: SerialNumber::new(&without_leading_zeros(parsed.raw_serial()))?,
        }))
    };
    identifier.into_iter().chain(numbered()).collect()
}

fn key_identifier(bytes: &[u8]) -> Option<RecipientIdentifier> {
    let bytes = OctetString::new(bytes).ok()?;
    Some(RecipientIdentifier::SubjectKeyIdentifier(SubjectKeyIdentifier(bytes)))
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
