//! Roots whose attestations count: Yubico's roots and its published intermediates, which are built in, and roots that
//! are given.
//!
//! docs/decisions/0009-attestation-roots.md has the fingerprints, and where Yubico publishes the certificates.

use messages::error::{Error, Exit};

use crate::certificate::Certificate;
use crate::pem::certificates;

/// The root of YubiKeys with firmware before 5.7.4.
const YUBICO_PIV_ROOT: &[u8] = include_bytes!("roots/yubico-piv-root-263751.pem");

/// The root of YubiKeys with firmware 5.7.4 and later, and of Yubico's other devices.
const YUBICO_ATTESTATION_ROOT: &[u8] = include_bytes!("roots/yubico-attestation-root-1.pem");

/// The certificates between that root and those of single YubiKeys, which don't carry them.
const YUBICO_INTERMEDIATES: &[u8] = include_bytes!("roots/yubico-intermediates.pem");

/// Roots that are trusted, and Yubico's intermediates. Those help to find a way to a root, but are not trusted by
/// themselves.
#[derive(Debug)]
pub struct Roots {
    pub(crate) anchors: Vec<Anchor>,
    pub(crate) intermediates: Vec<Certificate>,
}

#[derive(Debug)]
pub(crate) struct Anchor {
    pub(crate) certificate: Certificate,
    pub(crate) purpose: Purpose,
}

/// What a root vouches for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Purpose {
    /// The root vouches for whatever is below it. Whoever names it answers for that.
    Any,
    /// The root vouches for YubiKeys' PIV applications, whose certificates it signs itself. Some of these don't say
    /// whether they are CAs'.
    PivDevices,
    /// The root vouches for all that Yubico makes, by an authority for each application. The others attest by rules of
    /// their own: a YubiHSM uses a template, which may be its owner's, and attests keys that were imported, too.
    Applications,
}

impl Roots {
    /// Yubico's roots, for PIV. An error is a bug in this program.
    pub fn yubico() -> Result<Self, Error> {
        let read = |pem| certificates(pem).map_err(Error::internal);
        let mut anchors = Vec::new();
        for (pem, purpose) in [
            (YUBICO_PIV_ROOT, Purpose::PivDevices),
            (YUBICO_ATTESTATION_ROOT, Purpose::Applications),
        ] {
            let read = read(pem)?.into_iter();
            anchors.extend(read.map(|certificate| Anchor { certificate, purpose }));
        }
        Ok(Self { anchors, intermediates: read(YUBICO_INTERMEDIATES)? })
    }

    /// No roots, but Yubico's intermediates. An error is a bug in this program.
    pub(crate) fn none() -> Result<Self, Error> {
        Ok(Self { anchors: Vec::new(), ..Self::yubico()? })
    }

    /// The roots of a file in PEM, each of which is trusted. Messages call the file `source`.
    pub fn from_pem(pem: &[u8], source: &str) -> Result<Self, Error> {
        let read = certificates(pem).map_err(|reason| {
            Error::new(Exit::Configuration, format!("{source} has no usable roots: {reason}"))
                .help("give a file with the roots' certificates in PEM")
        });
        let Self { anchors: known, intermediates } = Self::yubico()?;
        // One of Yubico's roots keeps its purpose, whoever names it.
        let anchor = |certificate: Certificate| {
            let same = known.iter().find(|anchor| anchor.certificate.is(&certificate));
            Anchor { purpose: same.map_or(Purpose::Any, |anchor| anchor.purpose), certificate }
        };
        Ok(Self { anchors: read?.into_iter().map(anchor).collect(), intermediates })
    }

    /// These roots and others. All have the same intermediates.
    pub fn and(mut self, others: Self) -> Self {
        self.anchors.extend(others.anchors);
        self
    }
}
