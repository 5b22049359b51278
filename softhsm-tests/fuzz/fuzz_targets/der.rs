//! Signatures and public keys as tokens and certificates have them, on any bytes: what comes out
//! are the numbers that other parsers find, and nothing is refused that they take.

#![no_main]

use crypto::certificate::{Certificate, Curve, PublicKey};
use crypto::scheme::ecdsa::to_der;
use libfuzzer_sys::fuzz_target;
use p256::pkcs8::DecodePublicKey as _;
use rsa::traits::PublicKeyParts as _;
use x509_parser::asn1_rs::{FromDer as _, Integer, Sequence};

fuzz_target!(|bytes: &[u8]| {
    let Some((kind, bytes)) = bytes.split_first() else {
        return;
    };
    match kind % 4 {
        0 => signature(Curve::P256, bytes),
        1 => signature(Curve::P384, bytes),
        2 => signature(Curve::P521, bytes),
        _ => public_key(bytes),
    }
});

fn signature(curve: Curve, signature: &[u8]) {
    let expected = match of_der(signature) {
        Some([r, s]) if is_scalar(curve, &r) && is_scalar(curve, &s) => Some(signature.to_owned()),
        _ => of_halves(curve, signature).map(|[r, s]| encoded(r, s)),
    };
    if let Some(expected) = &expected {
        assert!(of_der(expected).is_some());
    }
    assert_eq!(to_der(signature.to_owned(), curve), expected);
}

/// The integers of a SEQUENCE of two, without leading zeros; `None` for what isn't DER.
fn of_der(der: &[u8]) -> Option<[Vec<u8>; 2]> {
    let (_, sequence) = Sequence::from_der(der).ok()?;
    let (rest, r) = Integer::from_der(&sequence.content).ok()?;
    let (_, s) = Integer::from_der(rest).ok()?;
    let numbers = [r, s].map(|number| without_zeros(number.as_ref()).to_owned());
    // Nothing behind them, and no sign.
    (encoded(&numbers[0], &numbers[1]) == der).then_some(numbers)
}

/// Two halves of the same length, at most as long as a field element.
fn of_halves(curve: Curve, signature: &[u8]) -> Option<[&[u8]; 2]> {
    let (r, s) = signature.split_at(signature.len() / 2);
    let is_one = r.len() == s.len() && r.len() <= curve.field_length();
    let halves = [without_zeros(r), without_zeros(s)];
    (is_one && halves.iter().all(|half| is_scalar(curve, half))).then_some(halves)
}

/// DER of two numbers without leading zeros.
fn encoded(r: &[u8], s: &[u8]) -> Vec<u8> {
    let mut content = Vec::new();
    for number in [r, s] {
        let is_high = number.first().is_none_or(|first| *first >= 0x80);
        let zero: &[u8] = if is_high { &[0] } else { &[] };
        content.extend([2, (zero.len() + number.len()) as u8]);
        content.extend([zero, number].concat());
    }
    let length = content.len() as u8;
    let head: &[u8] = if length < 0x80 { &[0x30, length] } else { &[0x30, 0x81, length] };
    [head, &content].concat()
}

/// Above 0, and below the order of the curve (SEC 2, sections 2.4.2, 2.5.1 and 2.6.1).
fn is_scalar(curve: Curve, number: &[u8]) -> bool {
    let order: &[u8] = match curve {
        Curve::P256 => &ORDER_256,
        Curve::P384 => &ORDER_384,
        Curve::P521 => &ORDER_521,
    };
    !number.is_empty() && (number.len(), number) < (order.len(), order)
}

const ORDER_256: [u8; 32] = *b"\xff\xff\xff\xff\x00\x00\x00\x00\xff\xff\xff\xff\xff\xff\xff\xff\
    \xbc\xe6\xfa\xad\xa7\x17\x9e\x84\xf3\xb9\xca\xc2\xfc\x63\x25\x51";
const ORDER_384: [u8; 48] = *b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\
    \xff\xff\xff\xff\xff\xff\xff\xff\xc7\x63\x4d\x81\xf4\x37\x2d\xdf\
    \x58\x1a\x0d\xb2\x48\xb0\xa7\x7a\xec\xec\x19\x6a\xcc\xc5\x29\x73";
const ORDER_521: [u8; 66] = *b"\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\
    \xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\
    \xff\xfa\x51\x86\x87\x83\xbf\x2f\x96\x6b\x7f\xcc\x01\x48\xf7\x09\
    \xa5\xd0\x3b\xb5\xc9\xb8\x89\x9c\x47\xae\xbb\x6f\xb7\x1e\x91\x38\x64\x09";

fn without_zeros(number: &[u8]) -> &[u8] {
    let zeros = number.iter().take_while(|byte| **byte == 0).count();
    &number[zeros..]
}

/// A SubjectPublicKeyInfo, in a certificate that has nothing else of interest.
fn public_key(info: &[u8]) {
    let found = Certificate::from_der(&certificate(info), "it").ok();
    let found = found.as_ref().map(Certificate::public_key);
    macro_rules! compare {
        ($crate_:ident, $curve:pat) => {
            if let Ok(key) = $crate_::PublicKey::from_public_key_der(info) {
                let Some(PublicKey::Ecdsa { curve: $curve, point }) = found else {
                    panic!("{found:?}")
                };
                assert_eq!($crate_::PublicKey::from_sec1_bytes(point), Ok(key));
            }
        };
    }
    compare!(p256, Curve::P256);
    compare!(p384, Curve::P384);
    compare!(p521, Curve::P521);
    if let Ok(key) = ed25519_dalek::VerifyingKey::from_public_key_der(info) {
        assert_eq!(found, Some(&PublicKey::Ed25519(key.to_bytes())));
    }
    if let Ok(key) = rsa::PublicKey::from_public_key_der(info) {
        let number = |bytes: &[u8]| without_zeros(bytes).to_owned();
        let key =
            PublicKey::Rsa { modulus: number(&key.n_bytes()), exponent: number(&key.e_bytes()) };
        let is_of_use = (1024..=8192).contains(&key.modulus_bits());
        assert_eq!(found, Some(&key).filter(|_| is_of_use));
    }
}

fn certificate(info: &[u8]) -> Vec<u8> {
    const ALGORITHM: &[u8] = b"\x30\x0a\x06\x08\x2a\x86\x48\xce\x3d\x04\x03\x02";
    let validity = element(0x30, b"\x17\x0d260101000000Z\x17\x0d360101000000Z");
    let (version, serial): (&[u8], &[u8]) = (b"\xa0\x03\x02\x01\x02", b"\x02\x01\x01");
    let nobody: &[u8] = b"\x30\x00";
    let parts = [version, serial, ALGORITHM, nobody, &validity, nobody, info];
    let signed = element(0x30, &parts.concat());
    element(0x30, &[&signed, ALGORITHM, b"\x03\x01\x00"].concat())
}

/// One DER element, of less than 64 KiB.
fn element(tag: u8, content: &[u8]) -> Vec<u8> {
    let length = content.len();
    let head = match length {
        0..0x80 => vec![tag, length as u8],
        0x80..0x100 => vec![tag, 0x81, length as u8],
        _ => vec![tag, 0x82, (length >> 8) as u8, length as u8],
    };
    [&head, content].concat()
}
