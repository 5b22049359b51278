//! The way from an attestation certificate over its device's certificate to a root (RFC 5280, section 6). Revocation,
//! policies and name constraints are left out, since no vendor uses them here: critical extensions for them are
//! refused.

use crate::certificate::Certificate;
use crate::roots::{Anchor, Purpose, Roots};
use crate::{ChainRefusal, Refusal};

/// How many signatures are verified for one attestation at most. The longest way that Yubico has takes four.
pub(crate) const MOST_SIGNATURES: usize = 8;

/// The beginning of the names of Yubico's authorities that sign the certificates of YubiKeys' PIV applications. A
/// letter and a number follow.
const PIV_AUTHORITY: &str = "CN=Yubico PIV Attestation ";

/// A way to a root. Each certificate has signed the one before it.
pub(crate) struct Chain<'a> {
    /// The device's certificate, whose key has signed the attestation. A YubiKey has it in its slot f9.
    pub(crate) device: &'a Certificate,
    /// The certificates above the device's; the last one is the root's. Empty if the device's own certificate is
    /// trusted.
    authorities: Vec<&'a Certificate>,
    root: &'a Anchor,
}

/// Verifies that a root vouches for the attestation at `now` (seconds since 1970), over the certificates that come along
/// with it, in any order, and the intermediates at hand.
pub(crate) fn verify<'a>(
    attestation: &Certificate,
    along: &'a [Certificate],
    roots: &'a Roots,
    now: i64,
) -> Result<Chain<'a>, Refusal> {
    let chain = Chain::find(attestation, along, roots)?;
    if !chain.is_for_piv() {
        return Err(ChainRefusal::OtherApplication { certificate: chain.device.name() }.into());
    }
    check_valid(attestation, now)?;
    if attestation.basic_constraints.as_ref().is_some_and(|constraints| constraints.ca) {
        return Err(ChainRefusal::AttestationOfCa { certificate: attestation.name() }.into());
    }
    if !chain.is_of_silent_device() {
        check_issuer(chain.device, 0)?;
    }
    check_valid(chain.device, now)?;
    for (index, authority) in chain.authorities.iter().enumerate() {
        check_issuer(authority, 1 + index)?;
        check_valid(authority, now)?;
    }
    Ok(chain)
}

impl<'a> Chain<'a> {
    fn find(
        attestation: &Certificate,
        along: &'a [Certificate],
        roots: &'a Roots,
    ) -> Result<Self, Refusal> {
        // Certificates that are known come first, so that none that is sent along can take their place.
        let anchors = roots.anchors.iter().map(|anchor| &anchor.certificate);
        let candidates = anchors.chain(&roots.intermediates).chain(along).collect();
        let mut search = Search { candidates, signatures: 0 };
        let device = search.issuer_of(attestation)?;
        let mut authorities = Vec::new();
        let mut highest = device;
        loop {
            let root = roots.anchors.iter().find(|anchor| anchor.certificate.is(highest));
            if let Some(root) = root {
                return Ok(Self { device, authorities, root });
            }
            highest = search.issuer_of(highest)?;
            authorities.push(highest);
        }
    }

    /// Whether the root vouches for PIV by this way. Yubico's root for all applications has two authorities below it.
    /// The owner of a device can't insert another one with the name of the lower one.
    fn is_for_piv(&self) -> bool {
        match (self.root.purpose, self.authorities.as_slice()) {
            (Purpose::Applications, [lower, _upper, _root]) => {
                lower.subject().starts_with(PIV_AUTHORITY)
            }
            (Purpose::Applications, _) => false,
            (Purpose::Any | Purpose::PivDevices, _) => true,
        }
    }

    /// Whether the device's certificate has no basic constraints, as those of some YubiKeys (of firmware 4.3.7 and 5.2.4
    /// among others), and needs none, since the root that has signed it signs only devices' certificates.
    fn is_of_silent_device(&self) -> bool {
        self.device.basic_constraints.is_none()
            && self.authorities.len() == 1
            && self.root.purpose == Purpose::PivDevices
    }
}

struct Search<'a> {
    /// The certificates in the order in which they are tried. None is taken twice.
    candidates: Vec<&'a Certificate>,
    /// How many signatures were verified.
    signatures: usize,
}

impl<'a> Search<'a> {
    /// The first certificate that this one names as its issuer, and whose key has signed it.
    fn issuer_of(&mut self, below: &Certificate) -> Result<&'a Certificate, Refusal> {
        let (certificate, issuer) = (below.name(), below.issuer());
        let mut refusal = ChainRefusal::UnknownIssuer { certificate, issuer };
        for index in 0..self.candidates.len() {
            let candidate = self.candidates[index];
            if !below.names_as_issuer(candidate) {
                continue;
            }
            if self.signatures == MOST_SIGNATURES {
                return Err(ChainRefusal::TooManySignatures.into());
            }
            self.signatures += 1;
            if below.is_signed_by(candidate) {
                return Ok(self.candidates.remove(index));
            }
            refusal =
                ChainRefusal::WrongSignature { certificate: below.name(), issuer: below.issuer() };
        }
        Err(refusal.into())
    }
}

fn check_valid(certificate: &Certificate, now: i64) -> Result<(), Refusal> {
    match certificate.validity().concern(now) {
        Some(concern) => {
            Err(ChainRefusal::NotValid { certificate: certificate.name(), concern }.into())
        }
        None => Ok(()),
    }
}

/// Fails if the issuer may not issue certificates with so many CAs between it and the attestation.
fn check_issuer(issuer: &Certificate, between: usize) -> Result<(), Refusal> {
    let certificate = issuer.name();
    let Some(constraints) = &issuer.basic_constraints else {
        return Err(ChainRefusal::NoConstraints { certificate }.into());
    };
    if !constraints.ca {
        return Err(ChainRefusal::NoCa { certificate }.into());
    }
    if issuer.key_usage.as_ref().is_some_and(|usage| !usage.key_cert_sign()) {
        return Err(ChainRefusal::MaySignNoCertificates { certificate }.into());
    }
    match constraints.path_len_constraint {
        Some(most) if between > usize::from(most) => {
            Err(ChainRefusal::PathTooLong { certificate, most }.into())
        }
        _ => Ok(()),
    }
}
