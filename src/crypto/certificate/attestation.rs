//! What Yubico's PIV applet says of a key in its attestation certificate.

use x509_cert::der::asn1::ObjectIdentifier;
use x509_cert::der::{Decode as _, Encode as _};

use super::{Parsed, fingerprint};

/// Yubico's extensions stand below this.
const YUBICO: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.4.1.41482.3");

/// What an attestation certificate says, to be shown: each part is missing where it says nothing of it, or says it in a
/// way that isn't known. Nothing may be decided by it: that the certificate is Yubico's is for whoever has Yubico's
/// root to check, and nothing that is missing is a reason to refuse it here.
#[derive(Debug, Default, Eq, PartialEq)]
pub struct KeyAttestation {
    /// The device's.
    pub serial_number: Option<u64>,
    /// `5.7.4`.
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
        let parsed = Parsed::from_der(der).ok()?;
        let signed = parsed.tbs_certificate();
        let value = |last: u32| {
            let id = YUBICO.push_arc(last).ok()?;
            let found = signed.extensions()?.iter().find(|extension| extension.extn_id == id)?;
            Some(found.extn_value.as_bytes())
        };
        let policies = value(8).filter(|value| value.len() == 2).unwrap_or_default();
        let word = |policy: usize, from_one_on: &[&'static str]| {
            let number = usize::from(*policies.get(policy)?);
            from_one_on.get(number.checked_sub(1)?).copied()
        };
        Some(Self {
            serial_number: value(7).and_then(|value| u64::from_der(value).ok()),
            firmware: match value(3) {
                Some([major, minor, patch]) => Some(format!("{major}.{minor}.{patch}")),
                _ => None,
            },
            pin_policy: word(0, &["never", "once", "always", "once", "always"]),
            touch_policy: word(1, &["never", "always", "cached"]),
            key_fingerprint: fingerprint(&signed.subject_public_key_info().to_der().ok()?),
        })
    }
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
