//! By which names a recipient is known: those of its certificate, or of its key.

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use cms::cert::IssuerAndSerialNumber;
use cms::cert::x509;
use cms::cert::x509::ext::pkix::SubjectKeyIdentifier;
use cms::enveloped_data::RecipientIdentifier;
use der::asn1::{OctetString, UintRef};
use der::{Decode as _, Encode as _};

use crate::certificate::{Certificate, PublicKey};
use crate::printable::hex;

/// Those of a certificate, by one of which a sealed file may know its key. First the identifier in it, where it has one: it
/// stays when the certificate is renewed.
pub fn names(certificate: &Certificate) -> Vec<RecipientIdentifier> {
    let mut names = Vec::new();
    if let Ok(parsed) = x509::Certificate::from_der(certificate.der()) {
        let parsed = parsed.tbs_certificate();
        if let Ok(Some((_, identifier))) = parsed.get_extension() {
            names.push(RecipientIdentifier::SubjectKeyIdentifier(identifier));
        }
        names.push(RecipientIdentifier::IssuerAndSerialNumber(IssuerAndSerialNumber {
            issuer: parsed.issuer().clone(),
            serial_number: parsed.serial_number().clone(),
        }));
    }
    names.extend(name_of_key(certificate.public_key()));
    names
}

/// That of a public key: the SHA-1 hash that certificates have for it (RFC 5280, section 4.2.1.2).
pub fn name_of_key(key: &PublicKey) -> Option<RecipientIdentifier> {
    let bits = match key {
        PublicKey::Ecdsa { point, .. } => point.clone(),
        PublicKey::Ed25519(point) => point.to_vec(),
        PublicKey::Rsa { modulus, exponent } => {
            let numbers = [UintRef::new(modulus).ok()?, UintRef::new(exponent).ok()?];
            numbers.to_der().ok()?
        }
    };
    let hash = OctetString::new(digest(&SHA1_FOR_LEGACY_USE_ONLY, &bits).as_ref()).ok()?;
    Some(RecipientIdentifier::SubjectKeyIdentifier(SubjectKeyIdentifier(hash)))
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
