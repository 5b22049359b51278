//! A certificate of a chain, which is read strictly: it has DER's only form, and each extension once.

use const_oid::db::{rfc5280, rfc5912};
use const_oid::{AssociatedOid, ObjectIdentifier};
use der::asn1::{Any, Null};
use der::{Decode, Encode as _};
use x509_cert::certificate::{CertificateInner, Raw, TbsCertificateInner};
use x509_cert::ext::Extension;
use x509_cert::ext::pkix::{BasicConstraints, KeyUsage};
use x509_cert::spki::AlgorithmIdentifierOwned;

use crypto::certificate::{Certificate as Readable, PublicKey, Validity};
use crypto::scheme::Scheme;
use crypto::verify::verify;
use messages::printable::{excerpt, printable};
use protocol::hash::Hash;

use crate::{CertificateRefusal, Refusal};

/// The extensions that may be critical, since they are heeded here.
const HEEDED: [ObjectIdentifier; 2] = [rfc5280::ID_CE_BASIC_CONSTRAINTS, rfc5280::ID_CE_KEY_USAGE];

/// The algorithms with which vendors sign their certificates (RFC 4055, RFC 5758). Those of RSA are PKCS #1 v1.5.
const ALGORITHMS: [(ObjectIdentifier, Hash); 6] = [
    (rfc5912::SHA_256_WITH_RSA_ENCRYPTION, Hash::Sha256),
    (rfc5912::SHA_384_WITH_RSA_ENCRYPTION, Hash::Sha384),
    (rfc5912::SHA_512_WITH_RSA_ENCRYPTION, Hash::Sha512),
    (rfc5912::ECDSA_WITH_SHA_256, Hash::Sha256),
    (rfc5912::ECDSA_WITH_SHA_384, Hash::Sha384),
    (rfc5912::ECDSA_WITH_SHA_512, Hash::Sha512),
];

#[derive(Debug)]
pub(crate) struct Certificate {
    readable: Readable,
    parsed: CertificateInner<Raw>,
    /// The TBSCertificate in DER, exactly as it is in the certificate: what the issuer has signed.
    signed: Vec<u8>,
    public_key_info: Vec<u8>,
    pub(crate) basic_constraints: Option<BasicConstraints>,
    pub(crate) key_usage: Option<KeyUsage>,
}

impl Certificate {
    /// Reads one certificate, which nothing may follow. Messages call it `source`.
    pub(crate) fn from_der(der: &[u8], source: &str) -> Result<Self, Refusal> {
        let unreadable = |reason: &dyn ToString| {
            CertificateRefusal::UnreadableCertificate(printable(&reason.to_string()).into_owned())
        };
        let readable = Readable::from_der(der, source).map_err(|error| unreadable(&error))?;
        // Only tokens may add zeros behind it.
        if readable.der() != der {
            return Err(unreadable(&format!("something follows {source}")).into());
        }
        let undecodable = |error: der::Error| unreadable(&format!("{source}: {error}"));
        let parsed = CertificateInner::<Raw>::from_der(der).map_err(undecodable)?;
        let parts = Vec::<Any>::from_der(der).map_err(undecodable)?;
        let [signed, _algorithm, _signature] = parts.as_slice() else {
            return Err(unreadable(&format!("{source} has not the parts of one")).into());
        };
        let public_key_info = parsed.tbs_certificate().subject_public_key_info().to_der();
        let mut certificate = Self {
            readable,
            signed: signed.to_der().map_err(undecodable)?,
            public_key_info: public_key_info.map_err(undecodable)?,
            parsed,
            basic_constraints: None,
            key_usage: None,
        };
        certificate.check_extensions()?;
        certificate.basic_constraints = certificate.decoded("basic constraints")?;
        certificate.key_usage = certificate.decoded("key usage")?;
        Ok(certificate)
    }

    fn check_extensions(&self) -> Result<(), Refusal> {
        let extensions = self.extensions();
        for (index, extension) in extensions.iter().enumerate() {
            let id = extension.extn_id;
            if extensions[..index].iter().any(|before| before.extn_id == id) {
                return Err(CertificateRefusal::ExtensionTwice {
                    certificate: self.name(),
                    extension: id,
                }
                .into());
            }
            if extension.critical && !HEEDED.contains(&id) {
                let certificate = self.name();
                return Err(CertificateRefusal::UnknownCriticalExtension {
                    certificate,
                    extension: id,
                }
                .into());
            }
        }
        Ok(())
    }

    fn decoded<'a, T: AssociatedOid + Decode<'a>>(
        &'a self,
        extension: &'static str,
    ) -> Result<Option<T>, Refusal> {
        let value = self.extension(T::OID).map(T::from_der).transpose();
        value.map_err(|_| {
            CertificateRefusal::UnreadableExtension { certificate: self.name(), extension }.into()
        })
    }

    fn tbs(&self) -> &TbsCertificateInner<Raw> {
        self.parsed.tbs_certificate()
    }

    fn extensions(&self) -> &[Extension] {
        self.tbs().extensions().map_or(&[], |extensions| extensions.as_slice())
    }

    /// The content of the extension's OCTET STRING.
    pub(crate) fn extension(&self, id: ObjectIdentifier) -> Option<&[u8]> {
        let found = self.extensions().iter().find(|extension| extension.extn_id == id);
        found.map(|extension| extension.extn_value.as_bytes())
    }

    pub(crate) fn der(&self) -> &[u8] {
        self.readable.der()
    }

    /// What messages call the certificate. The text is fit for a terminal.
    pub(crate) fn name(&self) -> String {
        format!("the certificate of {}", short(self.subject()))
    }

    /// The subject as text, which may hold anything.
    pub(crate) fn subject(&self) -> &str {
        &self.readable.subject
    }

    /// What messages call the issuer. The text is fit for a terminal.
    pub(crate) fn issuer(&self) -> String {
        short(&self.readable.issuer_text)
    }

    pub(crate) fn validity(&self) -> Validity {
        self.readable.validity
    }

    /// The public key's SubjectPublicKeyInfo in DER.
    pub(crate) fn public_key_info(&self) -> &[u8] {
        &self.public_key_info
    }

    /// The SHA-256 of the whole certificate, in hexadecimal digits.
    #[cfg(test)]
    pub(crate) fn fingerprint(&self) -> String {
        crypto::certificate::fingerprint(self.readable.der())
    }

    pub(crate) fn is(&self, other: &Self) -> bool {
        self.readable.der() == other.readable.der()
    }

    /// Whether the certificate names `issuer` as its issuer. The name alone proves nothing.
    pub(crate) fn names_as_issuer(&self, issuer: &Self) -> bool {
        self.tbs().issuer() == issuer.tbs().subject()
    }

    /// Whether the key of `issuer` has signed the certificate.
    pub(crate) fn is_signed_by(&self, issuer: &Self) -> bool {
        let algorithm = self.parsed.signature_algorithm();
        let key = issuer.readable.public_key();
        // The signed part names the algorithm once more (RFC 5280, section 4.1.1.2).
        let (Some((scheme, hash)), true) =
            (signature_algorithm(algorithm, key), self.tbs().signature() == algorithm)
        else {
            return false;
        };
        let signature = self.parsed.signature().as_bytes().map(<[u8]>::to_vec);
        let digest = hash.digest(&[&self.signed]);
        let verified = signature.zip(digest);
        verified
            .is_some_and(|(signature, digest)| verify(key, &scheme, &digest, signature).is_some())
    }
}

/// The scheme and the hash that the algorithm stands for with this key; `None` if it isn't one of [`ALGORITHMS`], or is
/// for another kind of key.
fn signature_algorithm(name: &AlgorithmIdentifierOwned, key: &PublicKey) -> Option<(Scheme, Hash)> {
    let (_, hash) = ALGORITHMS.into_iter().find(|(oid, _)| *oid == name.oid)?;
    let is_null = name.parameters.as_ref().map(|parameters| parameters.decode_as::<Null>().is_ok());
    match (key, is_null) {
        (PublicKey::Rsa { .. }, Some(true)) => Some((Scheme::RsaPkcs1 { hash }, hash)),
        (PublicKey::Ecdsa { curve, .. }, None) => Some((Scheme::Ecdsa { curve: *curve }, hash)),
        _ => None,
    }
}

fn short(name: &str) -> String {
    printable(&excerpt(name)).into_owned()
}
