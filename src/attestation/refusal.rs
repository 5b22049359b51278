//! Why an attestation doesn't count: every reason that there is. Each is shown as a line that is fit for a terminal, and says
//! what is wrong with what. Certificates are named by their subjects.

use std::fmt::{self, Display};

use const_oid::ObjectIdentifier;

use crate::{bundle, chain};
use messages::printable::printable;

/// Why an attestation doesn't count.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Refusal {
    /// A verifier has refused it, or can't be asked.
    ByVerifier {
        verifier: String,
        reason: String,
    },
    Certificate(CertificateRefusal),
    Chain(ChainRefusal),
    Claim(ClaimRefusal),
    /// The attestation is of this type, which isn't a YubiKey's, and no verifier is named.
    NoVerifier(ObjectIdentifier),
    Request(RequestRefusal),
}

/// What is wrong with the request, or with the attestation in it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum RequestRefusal {
    /// How many attestations there are.
    Attestations(usize),
    AttributeTwice,
    NoAttestation,
    NoRequest,
    NotDer,
    OtherKey {
        certificate: String,
    },
    /// The length in bytes.
    TooLong(usize),
    /// How many certificates there are.
    TooManyCertificates(usize),
    /// How many values the attribute has.
    Values(usize),
}

/// What is wrong with a certificate by itself.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum CertificateRefusal {
    ExtensionTwice { certificate: String, extension: ObjectIdentifier },
    UnknownCriticalExtension { certificate: String, extension: ObjectIdentifier },
    UnreadableCertificate(String),
    UnreadableExtension { certificate: String, extension: &'static str },
}

/// Why no way leads from the attestation to a root.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum ChainRefusal {
    AttestationOfCa {
        certificate: String,
    },
    MaySignNoCertificates {
        certificate: String,
    },
    NoCa {
        certificate: String,
    },
    NoConstraints {
        certificate: String,
    },
    /// The certificate isn't valid at the time; `concern` says why.
    NotValid {
        certificate: String,
        concern: String,
    },
    OtherApplication {
        certificate: String,
    },
    PathTooLong {
        certificate: String,
        most: u8,
    },
    TooManySignatures,
    UnknownIssuer {
        certificate: String,
        issuer: String,
    },
    WrongSignature {
        certificate: String,
        issuer: String,
    },
}

/// What is wrong with what a YubiKey says.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum ClaimRefusal {
    /// `length` and `expected` are in bytes.
    ClaimLength {
        claim: &'static str,
        length: usize,
        expected: usize,
    },
    MissingClaim(&'static str),
    NoPivAttestation {
        certificate: String,
    },
    OtherFirmware {
        attestation: String,
        device: String,
    },
    SerialNumber,
    UnknownPinPolicy(u8),
    UnknownSlot {
        certificate: String,
    },
    UnknownTouchPolicy(u8),
}

impl Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ByVerifier { verifier, reason } => {
                write!(f, "{}: {}", printable(verifier), printable(reason))
            }
            Self::Certificate(refusal) => refusal.fmt(f),
            Self::Chain(refusal) => refusal.fmt(f),
            Self::Claim(refusal) => refusal.fmt(f),
            Self::NoVerifier(kind) => write!(
                f,
                "the request's attestation is of the type {kind}, which a verifier judges, and none is named (docs/policy.md)"
            ),
            Self::Request(refusal) => refusal.fmt(f),
        }
    }
}

impl Display for RequestRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Attestations(count) => {
                write!(f, "the request has {count} attestations, and one is wanted")
            }
            Self::AttributeTwice => f.write_str("the request has the attestation attribute twice"),
            Self::NoAttestation => {
                f.write_str("the request has the certificate of a device, and no attestation by it")
            }
            Self::NoRequest => f.write_str("this is not one PKCS#10 request in DER's only form"),
            Self::NotDer => f.write_str(
                "the request's attestation does not parse, or is not in DER's only form",
            ),
            Self::OtherKey { certificate } => {
                write!(f, "{certificate} is about another key than the request's")
            }
            Self::TooLong(length) => {
                let most = bundle::MOST_BYTES;
                write!(f, "the request's attestation has {length} bytes, and {most} are the most")
            }
            Self::TooManyCertificates(count) => {
                let most = bundle::MOST_CERTIFICATES;
                write!(
                    f,
                    "{count} certificates come with the request's attestation, and {most} are the most"
                )
            }
            Self::Values(count) => {
                write!(f, "the request's attestation attribute has {count} values instead of one")
            }
        }
    }
}

impl Display for CertificateRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ExtensionTwice { certificate, extension } => {
                write!(f, "{certificate} has the extension {extension} twice")
            }
            Self::UnknownCriticalExtension { certificate, extension } => {
                let unknown = "a critical extension that is not known here";
                write!(f, "{certificate} has {unknown}: {extension}")
            }
            Self::UnreadableCertificate(reason) => f.write_str(reason),
            Self::UnreadableExtension { certificate, extension } => {
                write!(f, "{certificate}: its {extension} can't be read")
            }
        }
    }
}

impl Display for ChainRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AttestationOfCa { certificate } => {
                write!(f, "{certificate} is a CA's, so it attests no key of a slot")
            }
            Self::MaySignNoCertificates { certificate } => {
                write!(f, "{certificate} has issued another, which its key usage does not allow")
            }
            Self::NoCa { certificate } => {
                write!(f, "{certificate} has issued another, and is no CA (CA:FALSE)")
            }
            Self::NoConstraints { certificate } => {
                let silent = "doesn't say that it is a CA (no basic constraints)";
                write!(f, "{certificate} has issued another, and {silent}")
            }
            Self::NotValid { certificate, concern } => write!(f, "{certificate}: {concern}"),
            Self::OtherApplication { certificate } => {
                let other = "but not by its authority for YubiKeys' PIV application";
                write!(f, "{certificate} was issued below Yubico's root, {other}")
            }
            Self::PathTooLong { certificate, most } => {
                let allowed = "CAs between it and an attestation";
                write!(f, "{certificate} allows {most} {allowed}, and there are more")
            }
            Self::TooManySignatures => {
                let most = chain::MOST_SIGNATURES;
                write!(
                    f,
                    "no way of at most {most} signatures leads from the attestation to a root"
                )
            }
            Self::UnknownIssuer { certificate, issuer } => {
                let missing = "neither a root that is trusted nor among the certificates with it";
                write!(f, "{certificate} was issued by {issuer}, which is {missing}")
            }
            Self::WrongSignature { certificate, issuer } => {
                write!(f, "{certificate} names {issuer} as its issuer, whose key has not signed it")
            }
        }
    }
}

impl Display for ClaimRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ClaimLength { claim, length, expected } => {
                let found = if *length == 1 { "byte" } else { "bytes" };
                write!(f, "the attestation's {claim} has {length} {found} instead of {expected}")
            }
            Self::MissingClaim(claim) => write!(f, "the attestation does not say the {claim}"),
            Self::NoPivAttestation { certificate } => {
                write!(f, "{certificate} is no attestation of a YubiKey's PIV application")
            }
            Self::OtherFirmware { attestation, device } => write!(
                f,
                "the attestation says firmware {attestation}, and the device's certificate {device}"
            ),
            Self::SerialNumber => f.write_str(
                "the attestation's serial number is not a number of up to 32 bits in DER's only form",
            ),
            Self::UnknownPinPolicy(number) => {
                write!(f, "the attestation's PIN policy has an unknown number: {number}")
            }
            Self::UnknownSlot { certificate } => {
                write!(f, "{certificate} names a slot that holds no keys of users")
            }
            Self::UnknownTouchPolicy(number) => {
                write!(f, "the attestation's touch policy has an unknown number: {number}")
            }
        }
    }
}

impl From<CertificateRefusal> for Refusal {
    fn from(refusal: CertificateRefusal) -> Self {
        Self::Certificate(refusal)
    }
}

impl From<ChainRefusal> for Refusal {
    fn from(refusal: ChainRefusal) -> Self {
        Self::Chain(refusal)
    }
}

impl From<ClaimRefusal> for Refusal {
    fn from(refusal: ClaimRefusal) -> Self {
        Self::Claim(refusal)
    }
}

impl From<RequestRefusal> for Refusal {
    fn from(refusal: RequestRefusal) -> Self {
        Self::Request(refusal)
    }
}

impl std::error::Error for Refusal {}
