//! Evidence that the key of a certificate request was made in a piece of hardware and can't leave it: what stands in the
//! request, who vouches for it, and what it says. Pure: no file, no network, no token, no clock.
//!
//! In the words of RFC 9334 the YubiKey is the attester and its attestation certificate the evidence; this is the
//! verifier.

#![forbid(unsafe_code)]

mod certificate;
mod chain;
pub mod evidence;
pub mod policy;
mod refusal;
pub mod roots;
pub mod yubikey;

pub use evidence::Evidence;
pub use policy::Policy;
pub use refusal::Refusal;
pub use roots::Roots;
pub use yubikey::YubiKeyClaims;

use der::{Decode as _, Encode as _};
use x509_cert::request::CertReq;

use certificate::Certificate;

/// What is known of where a request's key is.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Verdict {
    /// It was made in this YubiKey, which doesn't give it away.
    Proven(YubiKeyClaims),
    /// Nothing: the request has no evidence.
    NoEvidence,
}

/// Verifies the evidence in a PKCS#10 request, given in DER, at `now` (seconds since 1970). Bad evidence is an error, not
/// [`Verdict::NoEvidence`].
///
/// That whoever sent the request has the key is shown by the request's own signature, which is for the caller to check
/// (`crypto::verify::is_signed_by_its_key`). Who the YubiKey belongs to no certificate says.
pub fn verify(request: &[u8], roots: &Roots, now: i64) -> Result<Verdict, Refusal> {
    let request = CertReq::from_der(request)
        .ok()
        .filter(|parsed| parsed.to_der().is_ok_and(|again| again == request))
        .ok_or(Refusal::NoRequest)?;
    let Some(evidence) = Evidence::in_attributes(&request.info.attributes)? else {
        return Ok(Verdict::NoEvidence);
    };
    let attestation = Certificate::from_der(&evidence.attestation, yubikey::ATTESTATION)?;
    let mut along = Vec::new();
    for der in &evidence.certificates {
        along.push(Certificate::from_der(der, "a certificate that comes with the attestation")?);
    }
    if request.info.public_key.to_der().ok().as_deref() != Some(attestation.public_key_info()) {
        return Err(Refusal::OtherKey { certificate: attestation.name() });
    }
    let chain = chain::verify(&attestation, &along, roots, now)?;
    Ok(Verdict::Proven(YubiKeyClaims::proven(&attestation, chain.device)?))
}

#[cfg(test)]
mod tests;
