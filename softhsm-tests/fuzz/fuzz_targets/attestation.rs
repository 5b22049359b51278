//! Attestations in requests, on any bytes: as a request, as the attribute's value, and as the attestation certificate.
//! Nothing is proven but what Yubico's own certificates say, what is refused is refused in one readable line, and what
//! is read is written alike.

#![no_main]

use std::sync::LazyLock;

use attestation::bundle::Statement;
use attestation::{
    AttestationBundle, Claims, Refusal, RequestRefusal, Roots, Trust, Verdict, YubiKeyClaims,
    verify,
};
use libfuzzer_sys::fuzz_target;
use messages::printable::printable;
use x509_cert::attr::Attribute;
use x509_cert::der::asn1::{Any, ObjectIdentifier, SetOfVec};
use x509_cert::der::{Decode as _, Encode as _};
use x509_cert::request::CertReq;

/// A request for the key that a real YubiKey attests, with its attestation.
const REAL: &[u8] = include_bytes!("../seeds/attestation/request.der");
const BUNDLE: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.9.16.2.59");
/// 27 November 2026.
const NOW: i64 = 1_795_800_000;

static ROOTS: LazyLock<Roots> = LazyLock::new(|| Roots::yubico().expect("roots"));
static REAL_BUNDLE: LazyLock<AttestationBundle> = LazyLock::new(|| bundle(REAL).expect("a bundle"));

fuzz_target!(|bytes: &[u8]| {
    judge(bytes);
    if let Ok(value) = Any::from_der(bytes) {
        judge(&with_bundle(value));
    }
    let mut changed = REAL_BUNDLE.clone();
    changed.statement = Statement::YubiKey(bytes.to_vec());
    if let Ok(attribute) = changed.to_attribute() {
        let attribute = Attribute::from_der(&attribute).expect("an attribute");
        judge(&with_bundle(attribute.values.as_slice()[0].clone()));
    }
    match YubiKeyClaims::unproven(bytes) {
        Ok(claims) => assert!(claims.to_string().starts_with("YubiKey ")),
        Err(refusal) => told(&refusal),
    }
});

/// Only the real attestation is proven: nobody else has a signature below these roots.
fn judge(request: &[u8]) {
    match verify(request, Trust { roots: &ROOTS, verifier: None }, NOW) {
        Ok(Verdict::Proven(Claims::Device(claims))) => panic!("{claims}, without a verifier"),
        Ok(Verdict::Proven(Claims::YubiKey(claims))) => {
            let bundle = bundle(request).expect("a bundle");
            assert_eq!(bundle.statement, REAL_BUNDLE.statement);
            assert_eq!(claims.serial_number.0, 15_732_500);
        }
        Ok(Verdict::Unattested) => assert_eq!(bundle(request), None),
        Err(refusal) => told(&refusal),
    }
    if let Some(bundle) = bundle(request) {
        let attribute = match bundle.to_attribute() {
            // Yubico's form takes a few bytes less.
            Err(Refusal::Request(RequestRefusal::TooLong(length))) if length < 17_000 => return,
            written => written.expect("what was read"),
        };
        let attributes = SetOfVec::try_from(vec![Attribute::from_der(&attribute).expect("one")]);
        let again = AttestationBundle::in_attributes(&attributes.expect("one"));
        assert_eq!(again, Ok(Some(bundle)));
    }
}

fn bundle(request: &[u8]) -> Option<AttestationBundle> {
    let request = CertReq::from_der(request).ok()?;
    AttestationBundle::in_attributes(&request.info.attributes).ok().flatten()
}

fn with_bundle(value: Any) -> Vec<u8> {
    let mut request = CertReq::from_der(REAL).expect("a request");
    let values = SetOfVec::try_from(vec![value]).expect("one");
    let attributes = SetOfVec::try_from(vec![Attribute { oid: BUNDLE, values }]);
    request.info.attributes = attributes.expect("one");
    request.to_der().expect("a request")
}

fn told(refusal: &Refusal) {
    let text = refusal.to_string();
    assert!(!text.is_empty() && printable(&text) == text && text.len() < 1000, "{text:?}");
}
