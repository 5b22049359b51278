//! The keys of a tunnel and its clients: on P-256, in memory, and worth nothing elsewhere.
//!
//! A run of a kubeconfig with thousands of users makes as many, so they are made and used by the cryptography of TLS
//! (aws-lc-rs), which is ten times as fast at that as the p256 crate.

use aws_lc_rs::agreement::{ECDH_P256, PrivateKey};
use aws_lc_rs::encoding::{AsDer as _, EcPrivateKeyRfc5915Der, PublicKeyX509Der};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair as _};
use signature::Keypair;
use x509_cert::der::Document;
use x509_cert::der::asn1::BitString;
use x509_cert::der::oid::db::rfc5912::ECDSA_WITH_SHA_256;
use x509_cert::der::pem::{LineEnding, encode_string};
use x509_cert::spki::{
    self, AlgorithmIdentifierOwned, DynSignatureAlgorithmIdentifier, EncodePublicKey,
};

/// A private key on P-256, whose signatures are ECDSA with SHA-256.
pub(super) struct LocalKey {
    pair: EcdsaKeyPair,
    public_key: LocalPublicKey,
}

/// The public key of a [`LocalKey`]: a SubjectPublicKeyInfo.
#[derive(Clone)]
pub(super) struct LocalPublicKey(Document);

impl LocalKey {
    /// A new key.
    pub(super) fn generate() -> Result<Self, Box<dyn std::error::Error>> {
        Self::of(EcdsaKeyPair::generate(&ECDSA_P256_SHA256_ASN1_SIGNING)?)
    }

    /// The key with this secret number, 32 bytes in big-endian order. Fails if it is 0, or not below the curve's order.
    pub(super) fn from_secret(secret: &[u8]) -> Result<Self, Box<dyn std::error::Error>> {
        let public_key = PrivateKey::from_private_key(&ECDH_P256, secret)?.compute_public_key()?;
        Self::of(EcdsaKeyPair::from_private_key_and_public_key(
            &ECDSA_P256_SHA256_ASN1_SIGNING,
            secret,
            public_key.as_ref(),
        )?)
    }

    /// The first eight bytes of the public point's x coordinate, by which keys are told apart.
    pub(super) fn point_begin(&self) -> &[u8] {
        self.pair.public_key().as_ref().get(1..9).unwrap_or_default()
    }

    fn of(pair: EcdsaKeyPair) -> Result<Self, Box<dyn std::error::Error>> {
        let info: PublicKeyX509Der<'_> = pair.public_key().as_der()?;
        let public_key = LocalPublicKey(Document::try_from(info.as_ref())?);
        Ok(Self { pair, public_key })
    }

    /// Signs the message; the signature is in DER.
    pub(super) fn sign(&self, message: &[u8]) -> Result<BitString, Box<dyn std::error::Error>> {
        let signature = self.pair.sign(&SystemRandom::new(), message)?;
        Ok(BitString::from_bytes(signature.as_ref())?)
    }

    /// The private key as PKCS #8, in PEM (`BEGIN PRIVATE KEY`).
    pub(super) fn to_pkcs8_pem(&self) -> Result<String, Box<dyn std::error::Error>> {
        Ok(encode_string("PRIVATE KEY", LineEnding::LF, self.pair.to_pkcs8v1()?.as_ref())?)
    }

    /// The private key as SEC 1 (RFC 5915), in PEM (`BEGIN EC PRIVATE KEY`).
    pub(super) fn to_sec1_pem(&self) -> Result<String, Box<dyn std::error::Error>> {
        let der: EcPrivateKeyRfc5915Der<'_> = self.pair.private_key().as_der()?;
        Ok(encode_string("EC PRIVATE KEY", LineEnding::LF, der.as_ref())?)
    }
}

impl Keypair for LocalKey {
    type VerifyingKey = LocalPublicKey;

    fn verifying_key(&self) -> LocalPublicKey {
        self.public_key.clone()
    }
}

impl DynSignatureAlgorithmIdentifier for LocalKey {
    fn signature_algorithm_identifier(&self) -> spki::Result<AlgorithmIdentifierOwned> {
        Ok(AlgorithmIdentifierOwned { oid: ECDSA_WITH_SHA_256, parameters: None })
    }
}

impl EncodePublicKey for LocalPublicKey {
    fn to_public_key_der(&self) -> spki::Result<Document> {
        Ok(self.0.clone())
    }
}
