//! Signatures of every kind that the protocol can ask for, judged by openssl.

mod refused;

use cryptoki::mechanism::MechanismType;

use crate::fixture::*;

/// Demands an answer whose signature openssl accepts, and silence on standard error.
#[track_caller]
fn assert_signs(store: &Store, kind: Kind, options: &Options, scheme: Scheme, input: &[u8]) {
    let signature = store.sign(options, input).run().silently().signature();
    assert_verifies(key(kind), scheme, input, &signature);
}

/// With digests shorter and longer than the curve's order.
#[test]
fn ecdsa_on_three_curves() {
    for kind in [Kind::P256, Kind::P384, Kind::P521] {
        let store = token_with_pair(kind);
        for hash in [Hash::Sha1, Hash::Sha256, Hash::Sha384, Hash::Sha512] {
            assert_signs(&store, kind, &Options::hash(hash), Scheme::Ecdsa, &sample(hash.length()));
        }
    }
}

/// r and s have leading zeros in about one signature of 128: openssl refuses them if they are
/// not encoded as DER has it.
#[test]
fn many_signatures_in_a_row_are_der() {
    let store = token_with_pair(Kind::P256);
    for index in 0..40 {
        let digest = sample(32 + index)[index..].to_owned();
        assert_signs(&store, Kind::P256, &Options::hash(Hash::Sha256), Scheme::Ecdsa, &digest);
    }
}

/// Messages as TLS has them: 130 bytes in TLS 1.3, a whole transcript in TLS 1.2.
#[test]
fn ed25519_over_messages_that_are_not_hashed() {
    let store = token_with_pair(Kind::Ed25519);
    for length in [1, 64, 130, 146, 4096] {
        let message = sample(length);
        assert_signs(&store, Kind::Ed25519, &Options::not_hashed(), Scheme::Ed25519, &message);
    }
}

/// What a token does without: nothing, and the mechanism that pads.
const PSS: [&[MechanismType]; 2] = [&[], &[MechanismType::RSA_PKCS_PSS]];
const PKCS1: [&[MechanismType]; 2] = [&[], &[MechanismType::RSA_PKCS]];

/// With DigestInfo for a hash, without for TLS 1.0's pair of hashes.
#[test]
fn pkcs1_with_every_hash() {
    for kind in [1024, 2048, 3072, 4096, 8192].map(Kind::Rsa) {
        for mechanisms in PKCS1 {
            let store = token_withholding(mechanisms, kind);
            for hash in Hash::OF_PSS.into_iter().chain([Hash::Md5Sha1, Hash::Sha1]) {
                let (options, digest) = (Options::hash(hash), sample(hash.length()));
                assert_signs(&store, kind, &options, Scheme::Pkcs1(hash), &digest);
            }
        }
    }
}

/// With a salt as long as the hash, as long as possible, and of 20 bytes. Of 1025 bits, the encoded
/// message is one byte shorter than the modulus.
#[test]
fn pss_with_every_hash_and_salt() {
    for bits in [1024_u32, 1025, 2048, 3072, 4096, 8192] {
        let kind = Kind::Rsa(bits);
        // emLen of RFC 8017, section 9.1.1, for a modulus of this many bits.
        let encoded = (bits as usize - 1).div_ceil(8);
        for mechanisms in PSS {
            let store = token_withholding(mechanisms, kind);
            for hash in Hash::OF_PSS {
                let longest = encoded - hash.length() - 2;
                for (asked, salt) in [(-1, hash.length()), (0, longest), (20, 20)] {
                    let (options, digest) = (Options::pss(hash, asked), sample(hash.length()));
                    if salt > longest {
                        store.sign(&options, &digest).run().fails(2, &["SaltLength"]);
                    } else {
                        assert_signs(&store, kind, &options, Scheme::Pss { hash, salt }, &digest);
                    }
                }
            }
        }
    }
}

#[test]
fn salts_are_not_repeated() {
    for mechanisms in PSS {
        let store = token_withholding(mechanisms, Kind::Rsa(2048));
        let sign = || store.sign(&Options::pss(Hash::Sha256, -1), &sample(32)).run().signature();
        assert_ne!(sign(), sign(), "without {mechanisms:?}");
    }
}

#[test]
fn a_token_with_no_way_to_sign_is_named() {
    for (padded, name, options) in [
        (MechanismType::RSA_PKCS, "CKM_RSA_PKCS", Options::hash(Hash::Sha256)),
        (MechanismType::RSA_PKCS_PSS, "CKM_RSA_PKCS_PSS", Options::pss(Hash::Sha256, -1)),
    ] {
        let store = token_withholding(&[padded, MechanismType::RSA_X_509], Kind::Rsa(2048));
        let outcome = store.sign(&options, &sample(32)).run();
        outcome.fails(8, &["test token", name, "CKM_RSA_X_509"]);
        assert_eq!(name.ends_with("PSS"), !outcome.stderr.contains("a key of another kind"));
    }
}
