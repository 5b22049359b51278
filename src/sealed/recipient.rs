//! By which names a recipient is known.

use cms::cert::IssuerAndSerialNumber;
use cms::cert::x509;
use cms::enveloped_data::RecipientIdentifier;
use der::Decode as _;

use base::printable::hex;
use crypto::certificate::Certificate;

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
