//! Where an attestation stands in a PKCS#10 request: written in one form, read in Yubico's own, too.
//!
//! Ours is the attribute id-aa-attestation of draft-ietf-lamps-csr-attestation-28 (June 2026), section 4:
//!
//! ```text
//! AttestationBundle ::= SEQUENCE {
//!    attestations SEQUENCE SIZE (1..MAX) OF AttestationStatement,
//!    certs SEQUENCE SIZE (1..MAX) OF LimitedCertChoices OPTIONAL }
//! AttestationStatement ::= SEQUENCE { type OBJECT IDENTIFIER, stmt ANY DEFINED BY type }
//! ```
//!
//! At most one attribute with exactly one value. The draft defines no types of statements, and nobody has registered one
//! for a YubiKey's: here it is the identifier that Yubico gives the same certificate in extensions of requests. Other types
//! are passed on as they are, to an [`ExternalVerifier`](crate::ExternalVerifier).

use const_oid::ObjectIdentifier;
use const_oid::db::rfc5912;
use der::asn1::{Any, SetOfVec};
use der::{Decode as _, Encode as _, Sequence, Tag, Tagged as _};
use x509_cert::attr::{Attribute, Attributes};
use x509_cert::request::ExtensionReq;

use crate::certificate::Certificate;
use crate::pem::{blocks as pem_blocks, certificate_of};
use crate::{Refusal, RequestRefusal, YubiKeyClaims};
use messages::error::{Error, Exit};

/// The type id-aa-attestation.
const ATTESTATION_BUNDLE: ObjectIdentifier =
    ObjectIdentifier::new_unwrap("1.2.840.113549.1.9.16.2.59");

/// A YubiKey's attestation certificate: the type of a statement, and of an extension in Yubico's form.
const YUBIKEY_ATTESTATION: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.4.1.41482.3.1");
/// The type that older releases of yubico-piv-tool use for the extension. In a certificate it means something else.
const YUBIKEY_ATTESTATION_OF_OLD: ObjectIdentifier =
    ObjectIdentifier::new_unwrap("1.3.6.1.4.1.41482.3.11");
/// The type of the extension with the device's certificate, in Yubico's form.
const YUBIKEY_DEVICE: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.4.1.41482.3.2");

/// The label in PEM of a statement that isn't a YubiKey's: an AttestationStatement in DER.
const STATEMENT_LABEL: &str = "ATTESTATION STATEMENT";

/// The most bytes of an attribute's value.
pub(crate) const MOST_BYTES: usize = 16 * 1024;

/// The most certificates that come with an attestation.
pub(crate) const MOST_CERTIFICATES: usize = 8;

/// What a device says of a key, as a request carries it. It is known to be short enough, and to have few enough
/// certificates; nothing else of it was checked.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct AttestationBundle {
    pub statement: Statement,
    /// The device's certificate and those between it and a root, in DER and in any order.
    pub certificates: Vec<Vec<u8>>,
}

/// A device's statement about a key.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Statement {
    /// A YubiKey's attestation certificate, in DER.
    YubiKey(Vec<u8>),
    /// A statement that only an [`ExternalVerifier`](crate::ExternalVerifier) can read.
    Other(OtherStatement),
}

/// A statement of a type that this crate doesn't know.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct OtherStatement {
    pub kind: ObjectIdentifier,
    /// The statement in DER. The type defines its structure.
    pub der: Vec<u8>,
}

/// The draft's AttestationBundle.
#[derive(Sequence)]
struct BundleSequence {
    attestations: Vec<StatementSequence>,
    /// The draft's CertificateChoices, of which only `certificate` is taken. That one has no tag of its own.
    certs: Option<Vec<Any>>,
}

/// The draft's AttestationStatement.
#[derive(Sequence)]
struct StatementSequence {
    kind: ObjectIdentifier,
    statement: Any,
}

/// Whether this is the type of the attribute that holds an attestation and nothing else.
pub fn is_attestation(attribute: &ObjectIdentifier) -> bool {
    *attribute == ATTESTATION_BUNDLE
}

impl AttestationBundle {
    /// Makes the bundle of a YubiKey's chain, which begins with the attestation certificate; `None` if the chain is
    /// empty.
    pub fn of_chain(chain: &[Vec<u8>]) -> Option<Self> {
        let (attestation, certificates) = chain.split_first()?;
        let statement = Statement::YubiKey(attestation.clone());
        Some(Self { statement, certificates: certificates.to_vec() })
    }

    /// Reads a bundle from a file in PEM. It has the attestation of a key (SubjectPublicKeyInfo in DER), the device's
    /// certificate, and those between that and a root, in any order. A YubiKey's attestation is a certificate. Any
    /// other one is an `ATTESTATION STATEMENT`, of which this crate doesn't know which key it is about. Messages call
    /// the file `source`.
    pub fn from_pem(pem: &[u8], source: &str, public_key_info: &[u8]) -> Result<Self, Error> {
        Self::among(pem, public_key_info).map_err(|reason| {
            let text = format!("{source} has no attestation of the key: {reason}");
            Error::new(Exit::Object, text).help(
                "give what `ykman piv keys attest SLOT -` prints for the key's slot, and behind it what `ykman piv \
                 certificates export f9 -` prints; of another device an ATTESTATION STATEMENT (docs/tpm.md)",
            )
        })
    }

    fn among(pem: &[u8], public_key_info: &[u8]) -> Result<Self, String> {
        let (statements, certificates): (Vec<_>, Vec<_>) =
            pem_blocks(pem)?.into_iter().partition(|block| block.label == STATEMENT_LABEL);
        let certificates =
            certificates.into_iter().map(certificate_of).collect::<Result<_, _>>()?;
        match statements.as_slice() {
            [] => Self::of_yubikey(certificates, public_key_info),
            [statement] => Self::of_other(&statement.contents, &certificates),
            several => Err(format!("it has {} attestations, and one is wanted", several.len())),
        }
    }

    fn of_yubikey(certificates: Vec<Certificate>, public_key_info: &[u8]) -> Result<Self, String> {
        let (attestations, others): (Vec<_>, Vec<_>) =
            certificates.into_iter().partition(YubiKeyClaims::are_in);
        let [attestation] = attestations.as_slice() else {
            return Err(format!("it has {} attestations, and one is wanted", attestations.len()));
        };
        if attestation.public_key_info() != public_key_info {
            let refusal = RequestRefusal::OtherKey { certificate: attestation.name() };
            return Err(refusal.to_string());
        }
        let statement = Statement::YubiKey(attestation.der().to_vec());
        Ok(Self { statement, certificates: ders(&others) })
    }

    fn of_other(statement: &[u8], certificates: &[Certificate]) -> Result<Self, String> {
        let statement = StatementSequence::from_der(statement)
            .map_err(|_| "its ATTESTATION STATEMENT is no SEQUENCE of a type and a statement")?;
        match statement.known().map_err(|refusal| refusal.to_string())? {
            Statement::YubiKey(_) => {
                Err("a YubiKey's attestation is given as a CERTIFICATE".into())
            }
            other => Ok(Self { statement: other, certificates: ders(certificates) }),
        }
    }

    /// Whether a YubiKey's attestation lacks the certificate of the device that has signed it, as its subject says.
    pub fn lacks_device(&self) -> bool {
        let Statement::YubiKey(attestation) = &self.statement else { return false };
        let read = |der: &Vec<u8>| Certificate::from_der(der, "a certificate").ok();
        read(attestation).is_none_or(|attestation| {
            let mut others = self.certificates.iter().filter_map(read);
            !others.any(|device| attestation.names_as_issuer(&device))
        })
    }

    /// The bundle as a PKCS#10 attribute, in DER. An error if it would not be read again.
    pub fn to_attribute(&self) -> Result<Vec<u8>, Refusal> {
        let certificates = self.certificates.iter().map(|der| certificate(der));
        let certificates = certificates.collect::<Result<Vec<_>, _>>()?;
        let bundle = BundleSequence {
            attestations: vec![StatementSequence::of(&self.statement)?],
            certs: Some(certificates).filter(|certificates| !certificates.is_empty()),
        };
        let value = bundle.to_der().and_then(|der| Any::from_der(&der)).map_err(not_der)?;
        Self::from_bundle(&value)?;
        let values = SetOfVec::try_from(vec![value]).map_err(not_der)?;
        Attribute { oid: ATTESTATION_BUNDLE, values }.to_der().map_err(not_der)
    }

    /// Reads the bundle among a request's attributes; `None` if there is none.
    pub fn in_attributes(attributes: &Attributes) -> Result<Option<Self>, Refusal> {
        let with = |id| attributes.iter().filter(move |attribute| attribute.oid == id);
        let mut all = match with(ATTESTATION_BUNDLE).collect::<Vec<_>>().as_slice() {
            [] => Vec::new(),
            [attribute] => vec![Self::from_attribute(attribute)?],
            _ => return Err(RequestRefusal::AttributeTwice.into()),
        };
        for attribute in with(rfc5912::ID_EXTENSION_REQ) {
            for value in attribute.values.iter() {
                all.extend(Self::from_extensions(value)?);
            }
        }
        if all.len() > 1 {
            return Err(RequestRefusal::Attestations(all.len()).into());
        }
        Ok(all.pop())
    }

    fn from_attribute(attribute: &Attribute) -> Result<Self, Refusal> {
        match attribute.values.as_slice() {
            [value] => Self::from_bundle(value),
            values => Err(RequestRefusal::Values(values.len()).into()),
        }
    }

    fn from_bundle(value: &Any) -> Result<Self, Refusal> {
        check_length(value)?;
        let bundle: BundleSequence = value.decode_as().map_err(not_der)?;
        let [statement] = bundle.attestations.as_slice() else {
            return Err(RequestRefusal::Attestations(bundle.attestations.len()).into());
        };
        let statement = statement.known()?;
        match bundle.certs.as_deref() {
            Some([]) => Err(RequestRefusal::NotDer.into()),
            Some(certificates) => Self::of(statement, certificates),
            None => Self::of(statement, &[]),
        }
    }

    fn of(statement: Statement, certificates: &[Any]) -> Result<Self, Refusal> {
        if certificates.len() > MOST_CERTIFICATES {
            return Err(RequestRefusal::TooManyCertificates(certificates.len()).into());
        }
        let certificates = certificates.iter().map(certificate_der);
        Ok(Self { statement, certificates: certificates.collect::<Result<_, _>>()? })
    }

    /// Reads Yubico's form: extensions that are asked for (RFC 2985, section 5.4.2), each with a certificate in DER.
    fn from_extensions(value: &Any) -> Result<Option<Self>, Refusal> {
        let ExtensionReq(extensions) = value.decode_as().map_err(not_der)?;
        let (mut attestations, mut devices) = (Vec::new(), Vec::new());
        for extension in extensions {
            let certificates = match extension.extn_id {
                YUBIKEY_ATTESTATION | YUBIKEY_ATTESTATION_OF_OLD => &mut attestations,
                YUBIKEY_DEVICE => &mut devices,
                _ => continue,
            };
            certificates.push(Any::from_der(extension.extn_value.as_bytes()).map_err(not_der)?);
        }
        match attestations.as_slice() {
            [] if devices.is_empty() => Ok(None),
            [] => Err(RequestRefusal::NoAttestation.into()),
            [attestation] => {
                check_length(value)?;
                Self::of(Statement::YubiKey(certificate_der(attestation)?), &devices).map(Some)
            }
            several => Err(RequestRefusal::Attestations(several.len()).into()),
        }
    }
}

impl StatementSequence {
    fn of(statement: &Statement) -> Result<Self, Refusal> {
        Ok(match statement {
            Statement::YubiKey(der) => {
                Self { kind: YUBIKEY_ATTESTATION, statement: certificate(der)? }
            }
            Statement::Other(OtherStatement { kind, der }) => {
                Self { kind: *kind, statement: Any::from_der(der).map_err(not_der)? }
            }
        })
    }

    fn known(&self) -> Result<Statement, Refusal> {
        if self.kind == YUBIKEY_ATTESTATION {
            return certificate_der(&self.statement).map(Statement::YubiKey);
        }
        let der = self.statement.to_der().map_err(not_der)?;
        Ok(Statement::Other(OtherStatement { kind: self.kind, der }))
    }
}

fn ders(certificates: &[Certificate]) -> Vec<Vec<u8>> {
    certificates.iter().map(|certificate| certificate.der().to_vec()).collect()
}

fn check_length(value: &Any) -> Result<(), Refusal> {
    let length = value.value().len();
    if length > MOST_BYTES { Err(RequestRefusal::TooLong(length).into()) } else { Ok(()) }
}

/// Checks that this looks like a certificate, which is to be written.
fn certificate(der: &[u8]) -> Result<Any, Refusal> {
    let certificate = Any::from_der(der).map_err(not_der)?;
    certificate_der(&certificate)?;
    Ok(certificate)
}

/// The DER of what looks like a certificate.
fn certificate_der(certificate: &Any) -> Result<Vec<u8>, Refusal> {
    if certificate.tag() != Tag::Sequence {
        return Err(RequestRefusal::NotDer.into());
    }
    certificate.to_der().map_err(not_der)
}

fn not_der(_: der::Error) -> Refusal {
    RequestRefusal::NotDer.into()
}
