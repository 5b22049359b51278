//! A certificate request (PKCS #10, RFC 2986) that a key on a token signs.

use std::collections::HashSet;
use std::mem;

use const_oid::db::{rfc4519, rfc5912, rfc8410};
use sha2::{Digest as _, Sha256};
use x509_cert::attr::{Attribute, AttributeTypeAndValue, Attributes};
use x509_cert::der::asn1::{Any, BitString, ObjectIdentifier, OctetString, SetOfVec};
use x509_cert::der::oid::AssociatedOid as _;
use x509_cert::der::pem::{LineEnding, encode_string};
use x509_cert::der::{Decode as _, DecodePem as _, Encode as _, EncodePem as _, Tag};
use x509_cert::ext::Extension;
use x509_cert::ext::pkix::{KeyUsage, KeyUsages};
use x509_cert::name::{Name, RdnSequence, RelativeDistinguishedName};
use x509_cert::request::{CertReq, CertReqInfo, ExtensionReq, Version};
use x509_cert::spki::AlgorithmIdentifierOwned;

use attestation::AttestationBundle;
use crypto::certificate::{CertificationRequest, Curve, PublicKey};
use crypto::scheme::{Scheme, pss};
use crypto::verify::VerifiedSignature;
use messages::error::{Error, Exit};
use messages::printable::{hex, is_harmful};
use protocol::hash::Hash;
use token::KeyPurpose;

/// Groups with this prefix are the cluster's own. The signer refuses `system:masters`, and the API server adds the
/// others itself.
pub const RESERVED: &str = "system:";

/// The user and the groups for which the API server is to take the bearer: the common name and the organizations of a
/// certificate's subject.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Applicant {
    user: String,
    groups: Vec<String>,
}

impl Applicant {
    /// Refuses names that are empty or have control characters, and groups that are the cluster's own.
    pub fn new(user: String, mut groups: Vec<String>) -> Result<Self, Error> {
        let names = groups.iter().map(|group| ("group", group));
        for (what, name) in [("user", &user)].into_iter().chain(names) {
            let reason = match name.as_str() {
                name if name.trim().is_empty() => "it is empty",
                name if name.chars().any(is_harmful) => "it has control characters",
                _ => continue,
            };
            let text = format!("the {what}'s name can't be used: {reason}");
            return Err(Error::new(Exit::Request, text)
                .help("give the name as the cluster knows it, with --user and --group"));
        }
        if let Some(group) = groups.iter().find(|group| group.starts_with(RESERVED)) {
            let text = format!("the group {group} is the cluster's own");
            return Err(Error::new(Exit::Request, text).help(
                "leave it out: have a role bound to the user or to a group of your own instead",
            ));
        }
        let mut seen = HashSet::new();
        groups.retain(|group| seen.insert(group.clone()));
        Ok(Self { user, groups })
    }

    /// The user's name.
    pub fn user(&self) -> &str {
        &self.user
    }

    /// The same applicant, also in these groups.
    #[must_use]
    pub fn also_in(&self, groups: &[String]) -> Self {
        let mut all = self.groups.clone();
        all.extend(groups.iter().filter(|group| !self.groups.contains(group)).cloned());
        Self { user: self.user.clone(), groups: all }
    }

    /// The groups that the user is in, without repetitions.
    pub fn groups(&self) -> &[String] {
        &self.groups
    }
}

/// Makes a request for this applicant, in PEM. `sign` signs it: it gets one of the `schemes`, which are those that the
/// key can make, and the digest, or for Ed25519 and ML-DSA the whole message. The request says whether the key is for sealed
/// files, for a CA that copies that into the certificate: OpenSC goes by the certificate. An `attestation` of where the
/// key is goes into the request, too.
pub fn sign_request(
    purpose: KeyPurpose,
    attestation: Option<&AttestationBundle>,
    applicant: &Applicant,
    public_key: &PublicKey,
    schemes: &[Scheme],
    sign: impl FnOnce(Scheme, &[u8]) -> Result<VerifiedSignature, Error>,
) -> Result<String, Error> {
    let info = CertReqInfo {
        version: Version::V1,
        subject: subject(applicant).map_err(unencodable)?,
        public_key: public_key.info().map_err(unencodable)?,
        attributes: attributes(purpose, attestation, public_key)?,
    };
    let message = info.to_der().map_err(unencodable)?;
    let RequestSignature { scheme, hash, algorithm } = RequestSignature::of(public_key, schemes)
        .map_err(unencodable)?
        .ok_or_else(|| Error::internal("a key that is too small for a signature"))?;
    let digest = match hash {
        Some(hash) => hash
            .digest(&[&message])
            .ok_or_else(|| Error::internal("a hash that is only handed in"))?,
        None => message,
    };
    let signature = sign(scheme, &digest)?.into_bytes();
    let request = CertReq {
        info,
        algorithm,
        signature: BitString::from_bytes(&signature).map_err(unencodable)?,
    };
    request.to_pem(LineEnding::LF).map_err(unencodable)
}

/// Whether a request in PEM asks for the same as one of this applicant with this attestation would. A device makes a
/// different statement about a key each time, so what counts is whether there is one, of which kind, and what vouches
/// for it.
pub fn asks_for(pem: &str, applicant: &Applicant, attestation: Option<&AttestationBundle>) -> bool {
    let (Ok(request), Ok(whole)) = (CertificationRequest::from_pem(pem), CertReq::from_pem(pem))
    else {
        return false;
    };
    let Ok(present) = AttestationBundle::in_attributes(&whole.info.attributes) else {
        return false;
    };
    let vouching = |bundle: &AttestationBundle| {
        (mem::discriminant(&bundle.statement), bundle.certificates.clone())
    };
    request.user.as_deref() == Some(applicant.user())
        && request.groups == applicant.groups()
        && present.as_ref().map(vouching) == attestation.map(vouching)
}

/// The SHA-256 of a public key, by which two people compare it. It is that of the SubjectPublicKeyInfo, as `openssl
/// pkey -pubin -outform DER | sha256sum` prints it.
pub fn fingerprint(public_key: &PublicKey) -> Result<String, Error> {
    let info = public_key.info().and_then(|info| info.to_der());
    Ok(hex(&Sha256::digest(info.map_err(unencodable)?)))
}

/// A certificate followed by those of its CAs, in PEM.
pub fn certificates_pem(certificate: &[u8], chain: &[Vec<u8>]) -> Result<String, Error> {
    let mut text = String::new();
    for der in [certificate].into_iter().chain(chain.iter().map(Vec::as_slice)) {
        let pem = encode_string("CERTIFICATE", LineEnding::LF, der);
        text += &pem.map_err(|error| Error::internal(format!("PEM: {error}")))?;
    }
    Ok(text)
}

pub(super) fn unencodable(error: der::Error) -> Error {
    Error::internal(format!("the request's DER: {error}"))
}

/// The subject of a request, such as `/O=dev/O=ops/CN=jane`. Each name is a set of its own, as API servers read it.
fn subject(applicant: &Applicant) -> der::Result<Name> {
    let groups = applicant.groups().iter().map(|group| (rfc4519::O, group.as_str()));
    let mut names = RdnSequence::default();
    for (oid, text) in groups.chain([(rfc4519::CN, applicant.user())]) {
        let value = Any::new(Tag::Utf8String, text.as_bytes())?;
        let mut name = RelativeDistinguishedName::default();
        name.insert(AttributeTypeAndValue { oid, value })?;
        names.push(name);
    }
    Ok(Name::hazmat_from_rdn_sequence(names))
}

/// What the request says besides the user and the key.
fn attributes(
    purpose: KeyPurpose,
    attestation: Option<&AttestationBundle>,
    public_key: &PublicKey,
) -> Result<Attributes, Error> {
    let mut attributes = Vec::new();
    if purpose == KeyPurpose::Unsealing {
        attributes.push(unsealing(public_key).map_err(unencodable)?);
    }
    if let Some(attestation) = attestation {
        let der = attestation.to_attribute().map_err(|refusal| {
            Error::new(Exit::Object, format!("the attestation can't be sent: {refusal}"))
                .help("leave it out with --no-attestation")
        })?;
        attributes.push(Attribute::from_der(&der).map_err(unencodable)?);
    }
    SetOfVec::try_from(attributes).map_err(unencodable)
}

/// The key usage of a certificate for such a key, as an extensionRequest (RFC 2985, section 5.4.2).
fn unsealing(public_key: &PublicKey) -> der::Result<Attribute> {
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
    Attribute::try_from(request)
}

/// How a key signs a request.
struct RequestSignature {
    scheme: Scheme,
    /// The hash of the request that is signed; `None` if the request itself is signed.
    hash: Option<Hash>,
    /// The name of the algorithm in the request.
    algorithm: AlgorithmIdentifierOwned,
}

impl RequestSignature {
    /// How such a key signs a request; `None` for a key that can't.
    fn of(key: &PublicKey, schemes: &[Scheme]) -> der::Result<Option<Self>> {
        match key {
            PublicKey::Ecdsa { curve, .. } => Ok(Some(Self::ecdsa(*curve))),
            PublicKey::Ed25519(_) => {
                let algorithm = named(rfc8410::ID_ED_25519, None);
                Ok(Some(Self { scheme: Scheme::Ed25519, hash: None, algorithm }))
            }
            PublicKey::MlDsa { set, .. } => {
                let scheme = Scheme::MlDsa { set: *set };
                Ok(Some(Self { scheme, hash: None, algorithm: named(set.oid(), None) }))
            }
            PublicKey::Rsa { .. } => Self::rsa(key, schemes),
        }
    }

    fn ecdsa(curve: Curve) -> Self {
        let (hash, oid) = match curve {
            Curve::P256 => (Hash::Sha256, rfc5912::ECDSA_WITH_SHA_256),
            Curve::P384 => (Hash::Sha384, rfc5912::ECDSA_WITH_SHA_384),
            Curve::P521 => (Hash::Sha512, rfc5912::ECDSA_WITH_SHA_512),
        };
        Self { scheme: Scheme::Ecdsa { curve }, hash: Some(hash), algorithm: named(oid, None) }
    }

    /// Chooses PKCS #1 v1.5, which every CA takes and almost every token makes, or RSA-PSS if only that is among the
    /// schemes.
    fn rsa(key: &PublicKey, schemes: &[Scheme]) -> der::Result<Option<Self>> {
        let hash = Hash::Sha256;
        let pss = Scheme::RsaPss { hash, salt: hash.length() };
        let Some(pkcs1) = Scheme::rsa_pkcs1(hash, key) else { return Ok(None) };
        let (scheme, algorithm) = if schemes.contains(&pss) && !schemes.contains(&pkcs1) {
            let parameters = Any::from_der(pss::WITH_SHA_256)?;
            (pss, named(rfc5912::ID_RSASSA_PSS, Some(parameters)))
        } else {
            (pkcs1, named(rfc5912::SHA_256_WITH_RSA_ENCRYPTION, Some(Any::null())))
        };
        Ok(Some(Self { scheme, hash: Some(hash), algorithm }))
    }
}

fn named(oid: ObjectIdentifier, parameters: Option<Any>) -> AlgorithmIdentifierOwned {
    AlgorithmIdentifierOwned { oid, parameters }
}

#[cfg(test)]
mod tests {
    use p256::ecdsa::signature::hazmat::PrehashSigner as _;
    use p256::ecdsa::{DerSignature, SigningKey};
    use x509_parser::certification_request::X509CertificationRequest;
    use x509_parser::pem::Pem;
    use x509_parser::prelude::FromDer as _;

    use attestation::bundle::Statement;

    use super::*;
    use crypto::verify::verify;

    #[test]
    fn a_request_names_the_user_and_each_group() {
        let groups = vec!["dev".to_owned(), "ops, night".to_owned()];
        let jane = Applicant::new("jane".to_owned(), groups).unwrap();
        let pair = SigningKey::from_slice(&[7; 32]).unwrap();
        let key = PublicKey::Ecdsa {
            curve: Curve::P256,
            point: pair.verifying_key().to_sec1_point(false).as_bytes().to_vec(),
        };
        let schemes = &Scheme::of_tls(&key);
        let request =
            sign_request(KeyPurpose::Signing, None, &jane, &key, schemes, |scheme, digest| {
                let signature: DerSignature = pair.sign_prehash(digest).unwrap();
                let signature = signature.as_bytes().to_vec();
                Ok(verify(&key, &scheme, digest, signature).unwrap())
            });
        let request = request.unwrap();
        let pem = Pem::iter_from_buffer(request.as_bytes()).next();
        let pem = pem.unwrap().unwrap();
        assert_eq!(pem.label, "CERTIFICATE REQUEST");
        let (_, parsed) = X509CertificationRequest::from_der(&pem.contents).unwrap();
        let info = &parsed.certification_request_info;
        assert_eq!(info.subject.to_string(), "O=dev, O=ops, night, CN=jane");
        let expected = hex(&Sha256::digest(info.subject_pki.raw));
        assert_eq!(fingerprint(&key).unwrap(), expected);
        assert!(asks_for(&request, &jane, None));
        let fewer = applicant("jane", &["dev"]).unwrap();
        assert!(!asks_for(&request, &fewer, None));
        let statement = Statement::YubiKey(Vec::new());
        let attested = AttestationBundle { statement, certificates: Vec::new() };
        assert!(!asks_for(&request, &jane, Some(&attested)));
    }

    fn applicant(user: &str, groups: &[&str]) -> Result<Applicant, Error> {
        let groups = groups.iter().map(ToString::to_string).collect();
        Applicant::new(user.to_owned(), groups)
    }

    #[test]
    fn a_name_is_neither_empty_nor_hidden_in_control_characters() {
        for (user, groups) in [
            ("", &[][..]),
            (" ", &[]),
            ("ja\nne", &[]),
            ("jane\u{202e}", &[]),
            ("jane", &[""]),
            ("jane", &["dev\u{7}"]),
        ] {
            let error = applicant(user, groups).unwrap_err();
            assert!(error.to_string().contains("'s name can't be used: "), "{error}");
        }
    }

    #[test]
    fn the_clusters_own_groups_are_refused_and_a_group_is_asked_for_once() {
        let error = applicant("jane", &["dev", "system:masters"]).unwrap_err();
        assert!(error.to_string().contains("system:masters"), "{error}");
        let jane = applicant("jane", &["dev", "ops", "dev"]).unwrap();
        assert_eq!(jane.groups(), ["dev", "ops"]);
    }
}
