//! Certificates, on any bytes: what is taken for one is one by itself, its names can't pass for
//! others, and whatever its key, a signature of zeros is not accepted.

#![no_main]

use libfuzzer_sys::fuzz_target;
use pkcs11_external_signer::certificate::{Certificate, PublicKey, ValidityState, issuer_of};
use pkcs11_external_signer::scheme::Scheme;
use pkcs11_external_signer::verify::verify;
use x509_parser::prelude::{FromDer as _, X509Certificate, X509Name};

fuzz_target!(|bytes: &[u8]| {
    let Ok((certificate, chain)) = Certificate::chain_from_pem_or_der(bytes, "it") else {
        return;
    };
    let der = certificate.der();
    for above in &chain {
        let _ = issuer_of(above);
    }
    assert_eq!(issuer_of(der), certificate.issuer);
    // Cut off behind its end, and nowhere else.
    let again = Certificate::from_der(der, "it").expect("what was read");
    assert_eq!(format!("{again:?}"), format!("{certificate:?}"));
    let padded = [der, &[0; 9]].concat();
    let padded = Certificate::from_der(&padded, "it").expect("with zeros behind it");
    assert_eq!(padded.der(), der);
    assert!(Certificate::from_der(&[der, &[1]].concat(), "it").is_err());

    let (rest, parsed) = X509Certificate::from_der(der).expect("a certificate");
    assert!(rest.is_empty());
    assert_escaped(&certificate.subject, parsed.subject());
    assert_escaped(&certificate.issuer_text, parsed.issuer());
    assert_who(&certificate, &parsed);
    assert_dated(&certificate);
    assert_not_fooled(certificate.public_key());
});

/// As many attributes in the text as there are, each with the value that it has.
fn assert_escaped(text: &str, name: &X509Name<'_>) {
    let mut attributes = name.iter_attributes();
    if text.is_empty() {
        assert!(attributes.next().is_none());
        return;
    }
    let mut value = String::new();
    let mut is_value = false;
    let mut check = |value: &str| {
        let attribute = attributes.next().expect("an attribute");
        match attribute.as_str() {
            Ok(text) => assert_eq!(value, text),
            Err(_) => assert!(value.starts_with('#'), "{value}"),
        }
    };
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' => value.extend(characters.next()),
            ',' | '+' if is_value => {
                if character == '+' {
                    assert_eq!(value.pop(), Some(' '), "{text}");
                }
                check(&value);
                assert_eq!(characters.next(), Some(' '), "{text}");
                value.clear();
                is_value = false;
            }
            '=' if !is_value => {
                value.clear();
                is_value = true;
            }
            other => value.push(other),
        }
    }
    check(&value);
    assert!(attributes.next().is_none(), "{text}");
}

/// User and groups are the subject's names and organizations, as a server reads them.
fn assert_who(certificate: &Certificate, parsed: &X509Certificate<'_>) {
    let subject = parsed.subject();
    let names = subject.iter_common_name().filter_map(|it| it.as_str().ok());
    assert_eq!(certificate.user.as_deref(), names.last());
    let organizations = subject.iter_organization();
    let organizations: Vec<_> = organizations.filter_map(|it| it.as_str().ok()).collect();
    assert_eq!(certificate.groups, organizations);
}

fn assert_dated(certificate: &Certificate) {
    let validity = certificate.validity;
    for now in [
        0,
        validity.not_before,
        validity.not_after,
        i64::MAX,
        i64::MIN,
    ] {
        let is_expired = validity.at(now) == ValidityState::Expired;
        assert_eq!(is_expired, validity.expiry(now).ends_with(" ago"));
        // A server takes one that is to be renewed.
        let is_valid = matches!(
            validity.at(now),
            ValidityState::Valid | ValidityState::RenewalDue
        );
        let is_fine = is_valid && certificate.is_for_clients;
        assert_eq!(is_fine, certificate.concerns(now).is_empty());
    }
}

fn assert_not_fooled(key: &PublicKey) {
    let schemes = Scheme::of_tls(key);
    assert!(!schemes.is_empty(), "{key}");
    if let PublicKey::Rsa { modulus, .. } = key {
        assert!((1024..=8192).contains(&key.modulus_bits()));
        assert_eq!(key.modulus_length(), modulus.len());
    }
    let length = key.modulus_length().max(64);
    for scheme in schemes.iter().take(1) {
        let digest = vec![7; scheme.digest_length()];
        assert!(verify(key, scheme, &digest, vec![0; length]).is_none());
    }
}
