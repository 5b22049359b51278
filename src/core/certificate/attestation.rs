//! What Yubico's PIV applet says of a key in its attestation certificate.

#![forbid(unsafe_code)]

use sha2::{Digest as _, Sha256};
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::printable::hex;

/// Yubico's extensions stand below this.
const YUBICO: &str = "1.3.6.1.4.1.41482.3.";

/// What an attestation certificate says; each part is missing where it says nothing of it. That the
/// certificate is Yubico's is for whoever has Yubico's root to check.
#[derive(Debug, Default, Eq, PartialEq)]
pub struct KeyAttestation {
    /// The device's.
    pub serial_number: Option<u64>,
    pub firmware: Option<String>,
    /// `never`, `once` or `always`.
    pub pin_policy: Option<&'static str>,
    /// `never`, `always` or `cached`.
    pub touch_policy: Option<&'static str>,
    /// SHA-256 of the key's SubjectPublicKeyInfo, in hexadecimal digits.
    pub key_fingerprint: String,
}

impl KeyAttestation {
    /// Reads a certificate; `None` for what is none.
    pub fn from_der(der: &[u8]) -> Option<Self> {
        let (_, certificate) = X509Certificate::from_der(der).ok()?;
        let value = |last: &str| {
            let id = format!("{YUBICO}{last}");
            let mut all = certificate.extensions().iter();
            let found = all.find(|extension| extension.oid.to_id_string() == id);
            found.map(|extension| extension.value)
        };
        let policies = match value("8") {
            Some([pin, touch]) => (pin_policy(*pin), touch_policy(*touch)),
            _ => (None, None),
        };
        Some(Self {
            serial_number: value("7").and_then(integer),
            firmware: match value("3") {
                Some([major, minor, patch]) => Some(format!("{major}.{minor}.{patch}")),
                _ => None,
            },
            pin_policy: policies.0,
            touch_policy: policies.1,
            key_fingerprint: hex(&Sha256::digest(certificate.public_key().raw)),
        })
    }
}

fn pin_policy(number: u8) -> Option<&'static str> {
    match number {
        1 => Some("never"),
        2 | 4 => Some("once"),
        3 | 5 => Some("always"),
        _ => None,
    }
}

fn touch_policy(number: u8) -> Option<&'static str> {
    match number {
        1 => Some("never"),
        2 => Some("always"),
        3 => Some("cached"),
        _ => None,
    }
}

/// A positive INTEGER of DER.
fn integer(der: &[u8]) -> Option<u64> {
    let [0x02, length, digits @ ..] = der else {
        return None;
    };
    let is_number = digits.len() == usize::from(*length) && digits.first()? & 0x80 == 0;
    let digits = digits.strip_prefix(&[0]).unwrap_or(digits);
    let fold = |number, digit: &u8| number << 8 | u64::from(*digit);
    (is_number && digits.len() <= 8).then(|| digits.iter().fold(0, fold))
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, CustomExtension, KeyPair};

    use super::*;

    fn certificate(extensions: &[(u64, &[u8])]) -> Vec<u8> {
        let mut parameters = CertificateParams::default();
        parameters.custom_extensions = extensions
            .iter()
            .map(|(last, value)| {
                let id = [1, 3, 6, 1, 4, 1, 41482, 3, *last];
                CustomExtension::from_oid_content(&id, value.to_vec())
            })
            .collect();
        let key = KeyPair::generate().unwrap();
        parameters.self_signed(&key).unwrap().der().to_vec()
    }

    #[test]
    fn yubicos_extensions_are_read() {
        let parsed = KeyAttestation::from_der(&certificate(&[
            (3, &[5, 4, 3]),
            (7, &[2, 4, 0, 0xf2, 0x35, 0xb0]),
            (8, &[2, 3]),
        ]));
        let parsed = parsed.unwrap();
        assert_eq!(parsed.firmware.as_deref(), Some("5.4.3"));
        assert_eq!(parsed.serial_number, Some(15_873_456));
        assert_eq!((parsed.pin_policy, parsed.touch_policy), (Some("once"), Some("cached")));
        assert_eq!(parsed.key_fingerprint.len(), 64);
    }

    #[test]
    fn what_is_malformed_or_missing_says_nothing() {
        for extensions in [
            &[][..],
            &[(3, &[5, 4][..]), (7, &[2, 2, 1]), (8, &[9, 9])],
            &[(3, &[]), (7, &[2, 1, 0x80]), (8, &[2])],
        ] {
            let parsed = KeyAttestation::from_der(&certificate(extensions)).unwrap();
            let nothing = KeyAttestation {
                key_fingerprint: parsed.key_fingerprint.clone(),
                ..KeyAttestation::default()
            };
            assert_eq!(parsed, nothing);
        }
        assert_eq!(KeyAttestation::from_der(b"no certificate"), None);
    }
}
