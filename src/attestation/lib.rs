//! Attestations: what shows that the key of a certificate request was made in a piece of hardware and can't leave it, who
//! vouches for it, and what it says. Pure: no file, no network, no token, no clock, no process.
//!
//! In the words of RFC 9334 the device is the attester, its attestation the evidence, and this crate the verifier. Evidence
//! that it can't read itself it hands to an [`ExternalVerifier`], a program of the administrator's, and checks the answer.

#![forbid(unsafe_code)]

pub mod bundle;
mod certificate;
mod chain;
mod claims;
pub mod external_verifier;
mod pem;
pub mod policy;
mod refusal;
pub mod roots;
pub mod yubikey;

pub use bundle::AttestationBundle;
pub use claims::Claims;
pub use external_verifier::{DeviceClaims, ExternalVerifier};
pub use policy::Policy;
pub use refusal::{CertificateRefusal, ChainRefusal, ClaimRefusal, Refusal, RequestRefusal};
pub use roots::Roots;
pub use yubikey::YubiKeyClaims;

use der::{Decode as _, Encode as _};
use x509_cert::request::CertReq;

use bundle::Statement;
use certificate::Certificate;

/// What is known of where a request's key is.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Verdict {
    /// The key is in this device, which doesn't give it away.
    Proven(Claims),
    /// Nothing is known: the request has no attestation.
    Unattested,
}

/// Who is trusted to say where a key is.
#[derive(Clone, Copy)]
pub struct Trust<'a> {
    /// The roots of the certificates of YubiKeys.
    pub roots: &'a Roots,
    /// The program that judges the attestations of all other devices; without one, they are refused.
    pub verifier: Option<&'a dyn ExternalVerifier>,
}

/// Verifies the attestation in a PKCS#10 request, given in DER, at `now` (seconds since 1970). A bad attestation is an error,
/// not [`Verdict::Unattested`].
///
/// That whoever sent the request has the key is shown by the request's own signature, which is for the caller to check
/// (`crypto::verify::is_signed_by_its_key`). No attestation says who owns the device.
pub fn verify(request: &[u8], trust: Trust<'_>, now: i64) -> Result<Verdict, Refusal> {
    let request = CertReq::from_der(request)
        .ok()
        .filter(|parsed| parsed.to_der().is_ok_and(|again| again == request))
        .ok_or(RequestRefusal::NoRequest)?;
    let Some(bundle) = AttestationBundle::in_attributes(&request.info.attributes)? else {
        return Ok(Verdict::Unattested);
    };
    let key = request.info.public_key.to_der().map_err(|_| RequestRefusal::NoRequest)?;
    let AttestationBundle { statement, certificates } = &bundle;
    Ok(Verdict::Proven(match statement {
        Statement::YubiKey(attestation) => {
            Claims::YubiKey(verify_yubikey(attestation, certificates, &key, trust.roots, now)?)
        }
        Statement::Other(statement) => {
            let verifier = trust.verifier.ok_or(Refusal::NoVerifier(statement.kind))?;
            Claims::Device(external_verifier::judge(verifier, statement, certificates, &key)?)
        }
    }))
}

/// What a YubiKey's attestation proves of this key (SubjectPublicKeyInfo in DER).
fn verify_yubikey(
    attestation: &[u8],
    certificates: &[Vec<u8>],
    public_key_info: &[u8],
    roots: &Roots,
    now: i64,
) -> Result<YubiKeyClaims, Refusal> {
    let attestation = Certificate::from_der(attestation, yubikey::ATTESTATION)?;
    let mut along = Vec::new();
    for der in certificates {
        along.push(Certificate::from_der(der, "a certificate that comes with the attestation")?);
    }
    if public_key_info != attestation.public_key_info() {
        return Err(RequestRefusal::OtherKey { certificate: attestation.name() }.into());
    }
    let chain = chain::verify(&attestation, &along, roots, now)?;
    YubiKeyClaims::proven(&attestation, chain.device)
}

#[cfg(test)]
mod tests;
