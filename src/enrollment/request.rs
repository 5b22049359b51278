//! A certificate request (PKCS #10, RFC 2986) that a key on a token signs.

use sha2::{Digest as _, Sha256};
use x509_cert::attr::{Attribute, AttributeTypeAndValue, Attributes};
use x509_cert::der::asn1::{
    Any, AnyRef, BitString, ObjectIdentifier, OctetString, SetOfVec, UintRef,
};
use x509_cert::der::oid::AssociatedOid as _;
use x509_cert::der::pem::{LineEnding, encode_string};
use x509_cert::der::{Encode as _, EncodePem as _, Tag};
use x509_cert::ext::Extension;
use x509_cert::ext::pkix::{KeyUsage, KeyUsages};
use x509_cert::name::{Name, RdnSequence, RelativeDistinguishedName};
use x509_cert::request::{CertReq, CertReqInfo, ExtensionReq, Version};
use x509_cert::spki::{AlgorithmIdentifierOwned, SubjectPublicKeyInfoOwned};

use super::applicant::Applicant;
use crate::certificate::{Curve, PublicKey};
use crate::error::Error;
use crate::hash::Hash;
use crate::printable::hex;
use crate::scheme::Scheme;
use crate::token::KeyPurpose;
use crate::verify::VerifiedSignature;

const COMMON_NAME: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.3");
const ORGANIZATION: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.10");
const EC_PUBLIC_KEY: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.2.1");
const ED25519: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.101.112");
const RSA: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.1");
const SHA256_WITH_RSA: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.11");
const ECDSA_WITH_SHA256: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.4.3.2");
const ECDSA_WITH_SHA384: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.4.3.3");
const ECDSA_WITH_SHA512: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.4.3.4");

/// A signed certificate request.
#[derive(Debug)]
pub struct Csr {
    pem: String,
}

impl Csr {
    /// RFC 7468, section 7.
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// [`Csr::pem`], owned.
    pub fn into_pem(self) -> String {
        self.pem
    }
}

/// Makes a request for this user and these groups, and has it signed: `sign` gets the scheme and the
/// digest, or for Ed25519 the whole message.
///
/// # Errors
/// Those of `sign`; a key too small for the signature.
pub fn sign_request(
    applicant: &Applicant,
    public_key: &PublicKey,
    sign: impl FnOnce(Scheme, &[u8]) -> Result<VerifiedSignature, Error>,
) -> Result<Csr, Error> {
    sign_request_for(KeyPurpose::Signing, applicant, public_key, sign)
}

/// The same of a key for this purpose. Of one for sealed files the request says so, for a CA that copies that into the
/// certificate: OpenSC goes by the latter.
///
/// # Errors
/// Those of [`sign_request`].
pub fn sign_request_for(
    purpose: KeyPurpose,
    applicant: &Applicant,
    public_key: &PublicKey,
    sign: impl FnOnce(Scheme, &[u8]) -> Result<VerifiedSignature, Error>,
) -> Result<Csr, Error> {
    let info = CertReqInfo {
        version: Version::V1,
        subject: subject(applicant).map_err(unencodable)?,
        public_key: public_key_info(public_key).map_err(unencodable)?,
        attributes: match purpose {
            KeyPurpose::Signing => SetOfVec::new(),
            KeyPurpose::Unsealing => unsealing(public_key).map_err(unencodable)?,
        },
    };
    let message = info.to_der().map_err(unencodable)?;
    let (scheme, hash, algorithm) = signature_algorithm(public_key)
        .ok_or_else(|| Error::internal("a key that is too small for a signature"))?;
    let digest = match hash {
        Some(hash) => hash.digest(&[&message]).unwrap_or_default(),
        None => message,
    };
    let signature = sign(scheme, &digest)?.into_bytes();
    let request = CertReq {
        info,
        algorithm,
        signature: BitString::from_bytes(&signature).map_err(unencodable)?,
    };
    let pem = request.to_pem(LineEnding::LF).map_err(unencodable)?;
    Ok(Csr { pem })
}

/// The SHA-256 of a public key (of its SubjectPublicKeyInfo, as `openssl pkey -pubin -outform DER |
/// sha256sum` has it), by which two people compare a key.
///
/// # Errors
/// None that a key of a token has.
pub fn fingerprint(public_key: &PublicKey) -> Result<String, Error> {
    let info = public_key_info(public_key).and_then(|info| info.to_der());
    Ok(hex(&Sha256::digest(info.map_err(unencodable)?)))
}

/// A certificate and those above it, in PEM.
///
/// # Errors
/// None that DER of a certificate gives.
pub fn certificates_pem(certificate: &[u8], chain: &[Vec<u8>]) -> Result<String, Error> {
    let mut text = String::new();
    for der in [certificate].into_iter().chain(chain.iter().map(Vec::as_slice)) {
        let pem = encode_string("CERTIFICATE", LineEnding::LF, der);
        text += &pem.map_err(|error| Error::internal(format!("PEM: {error}")))?;
    }
    Ok(text)
}

fn unencodable(error: der::Error) -> Error {
    Error::internal(format!("the request's DER: {error}"))
}

/// As `/O=dev/O=ops/CN=jane`: one name in each set, as API servers read it.
fn subject(applicant: &Applicant) -> der::Result<Name> {
    let groups = applicant.groups().iter().map(|group| (ORGANIZATION, group.as_str()));
    let mut names = RdnSequence::default();
    for (oid, text) in groups.chain([(COMMON_NAME, applicant.user())]) {
        let value = Any::new(Tag::Utf8String, text.as_bytes())?;
        let mut name = RelativeDistinguishedName::default();
        name.insert(AttributeTypeAndValue { oid, value })?;
        names.push(name);
    }
    Ok(Name::hazmat_from_rdn_sequence(names))
}

/// The key usage of a certificate for such a key, as an extensionRequest (RFC 2985, section 5.4.2).
fn unsealing(public_key: &PublicKey) -> der::Result<Attributes> {
    let opens = match public_key {
        PublicKey::Rsa { .. } => KeyUsages::KeyEncipherment,
        _ => KeyUsages::KeyAgreement,
    };
    let usage = KeyUsage(KeyUsages::DigitalSignature | opens);
    let extension = Extension {
        extn_id: KeyUsage::OID,
        critical: true,
        extn_value: OctetString::new(usage.to_der()?)?,
    };
    let request = ExtensionReq(vec![extension]);
    SetOfVec::try_from(vec![Attribute::try_from(request)?])
}

fn public_key_info(key: &PublicKey) -> der::Result<SubjectPublicKeyInfoOwned> {
    let (oid, parameters, bits) = match key {
        PublicKey::Ecdsa { curve, point } => (EC_PUBLIC_KEY, Some(named(*curve)?), point.clone()),
        PublicKey::Ed25519(point) => (ED25519, None, point.to_vec()),
        PublicKey::Rsa { modulus, exponent } => {
            let mut numbers = UintRef::new(modulus)?.to_der()?;
            numbers.extend(UintRef::new(exponent)?.to_der()?);
            let key = AnyRef::new(Tag::Sequence, &numbers)?.to_der()?;
            (RSA, Some(Any::null()), key)
        }
    };
    Ok(SubjectPublicKeyInfoOwned {
        algorithm: AlgorithmIdentifierOwned { oid, parameters },
        subject_public_key: BitString::from_bytes(&bits)?,
    })
}

/// The object identifier of a curve.
fn named(curve: Curve) -> der::Result<Any> {
    // Without its tag and length.
    let oid = curve.parameters().get(2..).unwrap_or_default();
    Any::new(Tag::ObjectIdentifier, oid)
}

/// How such a key signs a request, what is hashed with what, and its name. RSA signs with PKCS #1 v1.5,
/// which every CA takes and almost every token makes.
fn signature_algorithm(
    key: &PublicKey,
) -> Option<(Scheme, Option<Hash>, AlgorithmIdentifierOwned)> {
    let (scheme, hash, oid, parameters) = match key {
        PublicKey::Ecdsa { curve, .. } => {
            let (hash, oid) = match curve {
                Curve::P256 => (Hash::Sha256, ECDSA_WITH_SHA256),
                Curve::P384 => (Hash::Sha384, ECDSA_WITH_SHA384),
                Curve::P521 => (Hash::Sha512, ECDSA_WITH_SHA512),
            };
            (Scheme::Ecdsa { curve: *curve }, Some(hash), oid, None)
        }
        PublicKey::Ed25519(_) => (Scheme::Ed25519, None, ED25519, None),
        PublicKey::Rsa { .. } => {
            let hash = Hash::Sha256;
            let scheme = Scheme::rsa_pkcs1(hash, key)?;
            (scheme, Some(hash), SHA256_WITH_RSA, Some(Any::null()))
        }
    };
    let algorithm = AlgorithmIdentifierOwned { oid, parameters };
    Some((scheme, hash, algorithm))
}

#[cfg(test)]
mod tests {
    use p256::ecdsa::signature::hazmat::PrehashSigner as _;
    use p256::ecdsa::{DerSignature, SigningKey};
    use x509_parser::certification_request::X509CertificationRequest;
    use x509_parser::pem::Pem;
    use x509_parser::prelude::FromDer as _;

    use super::*;
    use crate::verify::verify;

    #[test]
    fn a_request_names_the_user_and_each_group() {
        let groups = vec!["dev".to_owned(), "ops, night".to_owned()];
        let jane = Applicant::new("jane".to_owned(), groups).unwrap();
        let pair = SigningKey::from_slice(&[7; 32]).unwrap();
        let key = PublicKey::Ecdsa {
            curve: Curve::P256,
            point: pair.verifying_key().to_sec1_point(false).as_bytes().to_vec(),
        };
        let request = sign_request(&jane, &key, |scheme, digest| {
            let signature: DerSignature = pair.sign_prehash(digest).unwrap();
            let signature = signature.as_bytes().to_vec();
            Ok(verify(&key, &scheme, digest, signature).unwrap())
        });
        let request = request.unwrap();
        let pem = Pem::iter_from_buffer(request.pem().as_bytes()).next();
        let pem = pem.unwrap().unwrap();
        assert_eq!(pem.label, "CERTIFICATE REQUEST");
        let (_, parsed) = X509CertificationRequest::from_der(&pem.contents).unwrap();
        let info = &parsed.certification_request_info;
        assert_eq!(info.subject.to_string(), "O=dev, O=ops, night, CN=jane");
        let own = hex(&Sha256::digest(info.subject_pki.raw));
        assert_eq!(fingerprint(&key).unwrap(), own);
    }
}
