//! A request for a certificate (PKCS#10, RFC 2986): for whom, and for which key.

use sha2::{Digest as _, Sha256};
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::der_parser::{Oid, oid};
use x509_parser::pem::Pem;
use x509_parser::prelude::FromDer as _;

use super::{PublicKey, name};
use crate::hash::Hash;
use crate::printable::hex;

/// What signature algorithms are called (RFC 3279, RFC 5758, RFC 8410). Of RSA, PKCS #1 v1.5.
const ALGORITHMS: [(Oid<'_>, Hash); 8] = [
    (oid!(1.2.840.113549.1.1.11), Hash::Sha256),
    (oid!(1.2.840.113549.1.1.12), Hash::Sha384),
    (oid!(1.2.840.113549.1.1.13), Hash::Sha512),
    (oid!(1.2.840.10045.4.3.1), Hash::Sha224),
    (oid!(1.2.840.10045.4.3.2), Hash::Sha256),
    (oid!(1.2.840.10045.4.3.3), Hash::Sha384),
    (oid!(1.2.840.10045.4.3.4), Hash::Sha512),
    // Ed25519 hashes by itself.
    (oid!(1.3.101.112), Hash::Sha512),
];

/// Texts are as they stand in it, not yet fit for a terminal.
#[derive(Debug)]
pub struct CertificationRequest {
    pub public_key: PublicKey,
    /// SHA-256 of the public key (SubjectPublicKeyInfo), by which people compare keys.
    pub fingerprint: String,
    pub subject: String,
    /// Who the API server would take the bearer for: the subject's common name.
    pub user: Option<String>,
    /// The groups that the API server would add: the subject's organizations.
    pub groups: Vec<String>,
    /// Whether the subject says no more than one user and groups.
    pub is_plain: bool,
    /// Whether extensions are asked for, such as alternative names.
    pub wants_extensions: bool,
    /// What its own key has signed, in DER.
    pub signed: Vec<u8>,
    pub signature: Vec<u8>,
    /// `None` where the algorithm is none that the API server's signer takes.
    pub hash: Option<Hash>,
}

impl CertificationRequest {
    /// Parses the first request in a PEM text.
    ///
    /// # Errors
    ///
    /// It holds none, or its key is not one that TLS clients sign with; the text says so of an `it`.
    pub fn from_pem(pem: &str) -> Result<Self, String> {
        let block = Pem::iter_from_buffer(pem.as_bytes())
            .flatten()
            .find(|it| {
                matches!(
                    it.label.as_str(),
                    "CERTIFICATE REQUEST" | "NEW CERTIFICATE REQUEST"
                )
            })
            .ok_or("it holds no CERTIFICATE REQUEST")?;
        let (rest, parsed) = X509CertificationRequest::from_der(&block.contents)
            .map_err(|error| format!("its DER does not parse ({error})"))?;
        if !rest.is_empty() {
            return Err("something follows it".to_owned());
        }
        let info = &parsed.certification_request_info;
        let public_key = PublicKey::from_info(&info.subject_pki)
            .map_err(|algorithm| format!("its key is {algorithm}"))?;
        let user = name::user(&info.subject);
        let groups = name::groups(&info.subject);
        let attributes = info.subject.iter_attributes().count();
        let algorithm = &parsed.signature_algorithm.algorithm;
        let known = ALGORITHMS.into_iter().find(|(oid, _)| oid == algorithm);
        Ok(Self {
            public_key,
            fingerprint: fingerprint(info.subject_pki.raw),
            subject: name::text(&info.subject),
            is_plain: attributes == groups.len() + usize::from(user.is_some()),
            user,
            groups,
            wants_extensions: info.iter_attributes().next().is_some(),
            signed: info.raw.to_vec(),
            signature: parsed.signature_value.data.to_vec(),
            hash: known.map(|(_, hash)| hash),
        })
    }
}

/// SHA-256 of a public key's SubjectPublicKeyInfo in DER, in hexadecimal digits: what
/// `openssl pkey -pubin -outform DER | sha256sum` prints.
pub fn fingerprint(info: &[u8]) -> String {
    hex(&Sha256::digest(info))
}
