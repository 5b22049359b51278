//! A request for a certificate (PKCS#10, RFC 2986): the user and the key that it is for.

use sha2::{Digest as _, Sha256};
use x509_cert::der::asn1::ObjectIdentifier;
use x509_cert::der::oid::db::{rfc5912, rfc8410};
use x509_cert::der::pem::LineEnding;
use x509_cert::der::{DecodePem as _, Encode as _, EncodePem as _};
use x509_cert::request::CertReq;
use x509_cert::spki::AlgorithmIdentifierOwned;

use super::name::Subject;
use super::{MlDsaSet, PublicKey};
use crate::scheme::{Scheme, pss};
use messages::printable::hex;
use protocol::hash::Hash;

/// The signature algorithms over a digest (RFC 3279, RFC 5758) and their hashes. Those of RSA are PKCS #1 v1.5.
const ALGORITHMS: [(ObjectIdentifier, Hash); 7] = [
    (rfc5912::SHA_256_WITH_RSA_ENCRYPTION, Hash::Sha256),
    (rfc5912::SHA_384_WITH_RSA_ENCRYPTION, Hash::Sha384),
    (rfc5912::SHA_512_WITH_RSA_ENCRYPTION, Hash::Sha512),
    (rfc5912::ECDSA_WITH_SHA_224, Hash::Sha224),
    (rfc5912::ECDSA_WITH_SHA_256, Hash::Sha256),
    (rfc5912::ECDSA_WITH_SHA_384, Hash::Sha384),
    (rfc5912::ECDSA_WITH_SHA_512, Hash::Sha512),
];

const NOT_CANONICAL: &str =
    "it is not one CERTIFICATE REQUEST in canonical PEM and DER, with nothing else in the text";

/// A request for a certificate. Its texts are not yet fit for a terminal.
#[derive(Debug)]
pub struct CertificationRequest {
    pub public_key: PublicKey,
    /// The SHA-256 of the public key (SubjectPublicKeyInfo), by which people compare keys.
    pub fingerprint: String,
    pub subject: String,
    /// The user for whom the API server would take the bearer: the subject's common name.
    pub user: Option<String>,
    /// The groups that the API server would add: the subject's organizations.
    pub groups: Vec<String>,
    /// Whether the subject says nothing but one user and groups.
    pub is_plain: bool,
    /// The types of the request's attributes, such as an extension request or an attestation of the key.
    pub attributes: Vec<ObjectIdentifier>,
    /// The whole request in DER.
    pub der: Vec<u8>,
    /// The part that the request's own key has signed, in DER.
    pub signed: Vec<u8>,
    pub signature: Vec<u8>,
    /// The algorithm of the signature; `None` for one that the API server's signer doesn't take.
    pub algorithm: Option<SignatureAlgorithm>,
}

/// How a request is signed.
#[derive(Clone, Copy, Debug)]
pub struct SignatureAlgorithm {
    pub scheme: Scheme,
    /// The hash of what is signed; `None` for Ed25519 and ML-DSA, which sign the request itself.
    pub hash: Option<Hash>,
}

impl SignatureAlgorithm {
    /// The algorithm of this name, for a key of this kind.
    fn of(name: &AlgorithmIdentifierOwned, key: &PublicKey) -> Option<Self> {
        let is_pss = || {
            let parameters = name.parameters.as_ref();
            let parameters = parameters.and_then(|parameters| parameters.to_der().ok());
            name.oid == rfc5912::ID_RSASSA_PSS && parameters.as_deref() == Some(pss::WITH_SHA_256)
        };
        if is_pss() {
            let hash = Hash::Sha256;
            let scheme = Scheme::RsaPss { hash, salt: hash.length() };
            return Some(Self { scheme, hash: Some(hash) });
        }
        let of_message = match key {
            PublicKey::Ed25519(_) if name.oid == rfc8410::ID_ED_25519 => Some(Scheme::Ed25519),
            PublicKey::MlDsa { set, .. } if MlDsaSet::from_oid(name.oid) == Some(*set) => {
                Some(Scheme::MlDsa { set: *set })
            }
            _ => None,
        };
        if let Some(scheme) = of_message {
            return Some(Self { scheme, hash: None });
        }
        let (_, hash) = ALGORITHMS.into_iter().find(|(oid, _)| *oid == name.oid)?;
        let scheme = match key {
            PublicKey::Ed25519(_) | PublicKey::MlDsa { .. } => return None,
            PublicKey::Ecdsa { curve, .. } => Scheme::Ecdsa { curve: *curve },
            PublicKey::Rsa { .. } => Scheme::RsaPkcs1 { hash },
        };
        Some(Self { scheme, hash: Some(hash) })
    }
}

impl CertificationRequest {
    /// Parses a PEM text that is one request and nothing else, in the only form that it has. A text with a second
    /// block, or DER that parsers read differently, could show another request to an approver.
    pub fn from_pem(pem: &str) -> Result<Self, String> {
        let parsed = CertReq::from_pem(pem).ok();
        let is_canonical =
            |parsed: &CertReq| parsed.to_pem(LineEnding::LF).is_ok_and(|again| again == pem);
        let parsed = parsed.filter(is_canonical).ok_or(NOT_CANONICAL)?;
        let info = &parsed.info;
        let public_key = PublicKey::from_info(&info.public_key)
            .map_err(|algorithm| format!("its key is {algorithm}"))?;
        let subject = Subject::of(&info.subject)?;
        Ok(Self {
            algorithm: SignatureAlgorithm::of(&parsed.algorithm, &public_key),
            public_key,
            fingerprint: fingerprint(&info.public_key.to_der().map_err(|_| NOT_CANONICAL)?),
            is_plain: info.subject.iter().count()
                == subject.groups.len() + usize::from(subject.user.is_some()),
            subject: subject.text,
            user: subject.user,
            groups: subject.groups,
            attributes: info.attributes.iter().map(|attribute| attribute.oid).collect(),
            der: parsed.to_der().map_err(|_| NOT_CANONICAL)?,
            signed: info.to_der().map_err(|_| NOT_CANONICAL)?,
            signature: parsed.signature.as_bytes().unwrap_or_default().to_vec(),
        })
    }
}

/// The SHA-256 in hexadecimal digits. For a public key's SubjectPublicKeyInfo in DER, it is what `openssl pkey -pubin
/// -outform DER | sha256sum` prints.
pub fn fingerprint(der: &[u8]) -> String {
    hex(&Sha256::digest(der))
}
