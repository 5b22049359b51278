//! Certificates, on any bytes: what is taken for one is one by itself, its names can't pass for others, and whatever
//! its key, a signature of zeros is not accepted. Of these and of requests, Go reads the same user and groups.

#![no_main]

use crypto::certificate::{
    Certificate, CertificateChain, CertificationRequest, PublicKey, ValidityState, issuer_of,
};
use crypto::scheme::Scheme;
use crypto::verify::verify;
use libfuzzer_sys::fuzz_target;
use pkcs11_external_signer_fuzz::go::{assert_certificate, assert_request};
use x509_cert::certificate::{CertificateInner, Raw};
use x509_cert::der::pem::{LineEnding, encode_string};
use x509_cert::der::{Decode as _, Encode as _, Tag, Tagged as _};
use x509_cert::name::Name;
use x509_cert::request::CertReq;

/// A request for nobody, to which a Name is given.
const REQUEST: &[u8] = include_bytes!("../seeds/certificate/request.der");

fuzz_target!(|bytes: &[u8]| {
    request(bytes);
    let mut named = CertReq::from_der(REQUEST).expect("a request");
    if let Ok(name) = Name::from_der(bytes) {
        named.info.subject = name;
        request(&named.to_der().expect("a request"));
    }
    let Ok(CertificateChain { leaf: certificate, issuers }) =
        CertificateChain::from_pem_or_der(bytes, "it")
    else {
        return;
    };
    let der = certificate.der();
    for above in &issuers {
        let _ = issuer_of(above);
    }
    // Cut off behind its end, and nowhere else.
    let again = Certificate::from_der(der, "it").expect("what was read");
    assert_eq!(format!("{again:?}"), format!("{certificate:?}"));
    let padded = [der, &[0; 9]].concat();
    let padded = Certificate::from_der(&padded, "it").expect("with zeros behind it");
    assert_eq!(padded.der(), der);
    assert!(Certificate::from_der(&[der, &[1]].concat(), "it").is_err());

    let parsed = CertificateInner::<Raw>::from_der(der).expect("a certificate");
    let signed = parsed.tbs_certificate();
    assert_escaped(&certificate.subject, signed.subject());
    assert_escaped(&certificate.issuer_text, signed.issuer());
    assert_certificate(&certificate);
    assert_dated(&certificate);
    assert_not_fooled(certificate.public_key());
});

fn request(der: &[u8]) {
    let Ok(pem) = encode_string("CERTIFICATE REQUEST", LineEnding::LF, der) else {
        return;
    };
    if let Ok(asked) = CertificationRequest::from_pem(&pem) {
        assert_request(&pem, &asked);
    }
}

/// As many attributes in the text as there are, each with the value that it has.
fn assert_escaped(text: &str, name: &Name) {
    let mut attributes = name.iter();
    if text.is_empty() {
        assert!(attributes.next().is_none());
        return;
    }
    let mut value = String::new();
    let mut is_value = false;
    let mut check = |value: &str| {
        let attribute = attributes.next().expect("an attribute");
        let bytes = attribute.value.value();
        match attribute.value.tag() {
            Tag::Utf8String if str::from_utf8(bytes).is_ok() => {
                assert_eq!(value.as_bytes(), bytes);
            }
            Tag::OctetString => assert!(value.starts_with('#'), "{value}"),
            _ => {}
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

fn assert_dated(certificate: &Certificate) {
    let validity = certificate.validity;
    for now in [0, validity.not_before, validity.not_after, i64::MAX, i64::MIN] {
        let is_expired = validity.at(now) == ValidityState::Expired;
        assert_eq!(
            is_expired,
            validity.concern(now).is_some_and(|it| it.starts_with("it expired"))
        );
        // A server takes one that is to be renewed.
        let is_valid = matches!(validity.at(now), ValidityState::Valid | ValidityState::RenewalDue);
        let is_taken = certificate.is_for_clients && certificate.objections.is_empty();
        let is_fine = is_valid && is_taken;
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
