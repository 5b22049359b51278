//! Whose word counts: Yubico's roots and its published intermediates, which are built in, and roots that are given.
//!
//! docs/decisions/0009-attestation-roots.md has the fingerprints, and where Yubico publishes the certificates.

use x509_parser::pem::Pem;

use base::error::{Error, Exit};

use crate::certificate::Certificate;

/// Of YubiKeys with firmware before 5.7.4. It has signed certificates of single YubiKeys only, some of which don't say
/// that they are CAs'.
const YUBICO_PIV_ROOT: &[u8] = include_bytes!("roots/yubico-piv-root-263751.pem");

/// Of YubiKeys with firmware 5.7.4 and later.
const YUBICO_ATTESTATION_ROOT: &[u8] = include_bytes!("roots/yubico-attestation-root-1.pem");

/// Between the latter and the certificates of single YubiKeys, which don't carry them.
const YUBICO_INTERMEDIATES: &[u8] = include_bytes!("roots/yubico-intermediates.pem");

/// Roots that are trusted, and intermediates that are at hand for a way to them, but not trusted by themselves.
#[derive(Debug)]
pub struct Roots {
    pub(crate) anchors: Vec<Anchor>,
    pub(crate) intermediates: Vec<Certificate>,
}

#[derive(Debug)]
pub(crate) struct Anchor {
    pub(crate) certificate: Certificate,
    /// What it has signed is a device's certificate, even if that doesn't say that it is a CA's.
    pub(crate) signs_only_devices: bool,
}

impl Roots {
    /// Yubico's, for PIV. An error is a bug in this program.
    pub fn yubico() -> Result<Self, Error> {
        let read = |pem| certificates(pem).map_err(Error::internal);
        Ok(Self {
            anchors: anchors(read(YUBICO_PIV_ROOT)?, true)
                .chain(anchors(read(YUBICO_ATTESTATION_ROOT)?, false))
                .collect(),
            intermediates: read(YUBICO_INTERMEDIATES)?,
        })
    }

    /// Those of a file in PEM, each of which is trusted. `source` says in messages where it comes from.
    pub fn from_pem(pem: &[u8], source: &str) -> Result<Self, Error> {
        let read = certificates(pem).map_err(|reason| {
            Error::new(Exit::Configuration, format!("{source} has no usable roots: {reason}"))
                .help("give a file with the roots' certificates in PEM")
        });
        Ok(Self { anchors: anchors(read?, false).collect(), intermediates: Vec::new() })
    }

    /// These and others.
    pub fn and(mut self, others: Self) -> Self {
        self.anchors.extend(others.anchors);
        self.intermediates.extend(others.intermediates);
        self
    }
}

fn anchors(
    certificates: Vec<Certificate>,
    signs_only_devices: bool,
) -> impl Iterator<Item = Anchor> {
    certificates.into_iter().map(move |certificate| Anchor { certificate, signs_only_devices })
}

/// The error says what is wrong.
fn certificates(pem: &[u8]) -> Result<Vec<Certificate>, String> {
    let blocks = Pem::iter_from_buffer(pem).collect::<Result<Vec<_>, _>>();
    let blocks = blocks.map_err(|error| format!("its PEM is damaged ({error})"))?;
    if blocks.is_empty() {
        return Err("it has no CERTIFICATE in PEM".to_owned());
    }
    let certificate = |block: Pem| match block.label.as_str() {
        "CERTIFICATE" => Certificate::from_der(&block.contents).map_err(|error| error.to_string()),
        _ => Err("something else than a CERTIFICATE stands in it".to_owned()),
    };
    blocks.into_iter().map(certificate).collect()
}
