//! By which names a recipient is known: those of its certificate, or of its key.

use std::fmt;

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use cms::cert::IssuerAndSerialNumber;
use cms::cert::x509::ext::pkix::SubjectKeyIdentifier;
use cms::cert::x509::name::Name;
use cms::cert::x509::serial_number::SerialNumber;
use der::asn1::OctetString;
use der::{Decode as _, Encode as _};
use x509_parser::extensions::ParsedExtension;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::certificate::{Certificate, PublicKey};
use crate::printable::hex;

/// The name by which a sealed file knows the key that opens it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum RecipientName {
    /// The certificate's issuer, in DER, and its serial number.
    Certificate { issuer: Vec<u8>, serial_number: Vec<u8> },
    /// The subject key identifier, which stays when the certificate is renewed.
    Key(Vec<u8>),
}

/// All names of a key, by one of which a sealed file may know it.
#[derive(Debug)]
pub struct KeyNames(Vec<RecipientName>);

impl KeyNames {
    /// Those of a certificate: issuer and serial number, the identifier in it, and that of its key.
    pub fn of(certificate: &Certificate) -> Self {
        let mut names = Self::of_key(certificate.public_key()).0;
        if let Ok((_, parsed)) = X509Certificate::from_der(certificate.der()) {
            names.extend(key_identifier(&parsed).map(|it| RecipientName::Key(it.to_owned())));
            names.push(RecipientName::Certificate {
                issuer: parsed.issuer().as_raw().to_owned(),
                serial_number: crate::certificate::without_leading_zeros(parsed.raw_serial()),
            });
        }
        Self(names)
    }

    /// That of a public key: the SHA-1 hash that certificates have for it (RFC 5280, section 4.2.1.2).
    pub fn of_key(key: &PublicKey) -> Self {
        let bits = match key {
            PublicKey::Ecdsa { point, .. } => point.clone(),
            PublicKey::Ed25519(point) => point.to_vec(),
            PublicKey::Rsa { modulus, exponent } => rsa_public_key(modulus, exponent),
        };
        let hash = digest(&SHA1_FOR_LEGACY_USE_ONLY, &bits);
        Self(vec![RecipientName::Key(hash.as_ref().to_owned())])
    }

    pub fn contains(&self, name: &RecipientName) -> bool {
        self.0.contains(name)
    }
}

/// What a certificate is named by in a new file: its key identifier, where it has one, so that it can be renewed.
pub(super) fn preferred_name(certificate: &X509Certificate<'_>) -> RecipientName {
    match key_identifier(certificate) {
        Some(identifier) => RecipientName::Key(identifier.to_owned()),
        None => RecipientName::Certificate {
            issuer: certificate.issuer().as_raw().to_owned(),
            serial_number: crate::certificate::without_leading_zeros(certificate.raw_serial()),
        },
    }
}

impl RecipientName {
    pub(super) fn of_identifier(identifier: &SubjectKeyIdentifier) -> Self {
        Self::Key(identifier.0.as_bytes().to_owned())
    }

    pub(super) fn of_certificate(named: &IssuerAndSerialNumber) -> der::Result<Self> {
        Ok(Self::Certificate {
            issuer: named.issuer.to_der()?,
            serial_number: crate::certificate::without_leading_zeros(
                named.serial_number.as_bytes(),
            ),
        })
    }

    pub(super) fn identifier(bytes: &[u8]) -> der::Result<SubjectKeyIdentifier> {
        Ok(SubjectKeyIdentifier(OctetString::new(bytes)?))
    }

    pub(super) fn issuer_and_serial(
        issuer: &[u8],
        serial_number: &[u8],
    ) -> der::Result<IssuerAndSerialNumber> {
        Ok(IssuerAndSerialNumber {
            issuer: Name::from_der(issuer)?,
            serial_number: SerialNumber::new(serial_number)?,
        })
    }
}

impl fmt::Display for RecipientName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key(identifier) => write!(f, "key identifier {}", hex(identifier)),
            Self::Certificate { issuer, serial_number } => {
                let issuer = Name::from_der(issuer);
                let issuer: Result<Name, der::Error> = issuer;
                let issuer = issuer.map_or_else(|_| "…".to_owned(), |it| it.to_string());
                let number = hex(serial_number).to_uppercase();
                write!(f, "certificate {number} of {issuer}")
            }
        }
    }
}

fn key_identifier<'a>(certificate: &'a X509Certificate<'_>) -> Option<&'a [u8]> {
    certificate.iter_extensions().find_map(|extension| match extension.parsed_extension() {
        ParsedExtension::SubjectKeyIdentifier(identifier) => Some(identifier.0),
        _ => None,
    })
}

#[derive(der::Sequence)]
struct RsaPublicKey<'a> {
    modulus: der::asn1::UintRef<'a>,
    exponent: der::asn1::UintRef<'a>,
}

/// RFC 8017, appendix A.1.1; empty for numbers that are none.
fn rsa_public_key(modulus: &[u8], exponent: &[u8]) -> Vec<u8> {
    let key = || {
        RsaPublicKey {
            modulus: der::asn1::UintRef::new(modulus)?,
            exponent: der::asn1::UintRef::new(exponent)?,
        }
        .to_der()
    };
    key().unwrap_or_default()
}
