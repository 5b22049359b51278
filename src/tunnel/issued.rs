//! Certificates by which a tunnel and its clients know each other. They are issued in memory.

use std::str::FromStr as _;
use std::time::Duration;

use signature::Keypair as _;
use x509_cert::builder::{self, Builder as _, CertificateBuilder, profile::BuilderProfile};
use x509_cert::certificate::{Certificate, TbsCertificate};
use x509_cert::der;
use x509_cert::der::asn1::UtcTime;
use x509_cert::ext::pkix::{
    AuthorityKeyIdentifier, BasicConstraints, KeyUsage, KeyUsages, SubjectKeyIdentifier,
};
use x509_cert::ext::{Extension, ToExtension as _};
use x509_cert::name::Name;
use x509_cert::serial_number::SerialNumber;
use x509_cert::spki::{SubjectPublicKeyInfoOwned, SubjectPublicKeyInfoRef};
use x509_cert::time::{Time, Validity};

use super::local_key::LocalKey;

/// A certificate and its key, on P-256.
pub(super) struct CertificateWithKey {
    pub(super) certificate: Certificate,
    pub(super) key: LocalKey,
}

impl CertificateWithKey {
    /// A CA with this key, which may not issue other CAs. `extend` says what it is good for.
    pub(super) fn authority(
        name: &str,
        key: LocalKey,
        extend: impl FnOnce(&mut CertificateBuilder<Names>) -> der::Result<()>,
    ) -> Result<Self, Box<dyn std::error::Error>> {
        Self::with_key(name, key, None, |builder| {
            builder.add_extension(&BasicConstraints { ca: true, path_len_constraint: Some(0) })?;
            builder.add_extension(&KeyUsage(KeyUsages::KeyCertSign.into()))?;
            extend(builder)
        })
    }

    /// A certificate with a new key, issued by this authority. `extend` says what it is good for.
    pub(super) fn new(
        name: &str,
        authority: &Self,
        extend: impl FnOnce(&mut CertificateBuilder<Names>) -> der::Result<()>,
    ) -> Result<Self, Box<dyn std::error::Error>> {
        Self::with_key(name, LocalKey::generate()?, Some(authority), extend)
    }

    /// A certificate that is valid at any time: it ends with whatever it was made for. Without an `authority` it is
    /// self-signed.
    fn with_key(
        name: &str,
        key: LocalKey,
        authority: Option<&Self>,
        extend: impl FnOnce(&mut CertificateBuilder<Names>) -> der::Result<()>,
    ) -> Result<Self, Box<dyn std::error::Error>> {
        let subject = Name::from_str(&format!("CN={name}"))?;
        let names = Names {
            issuer: authority
                .map_or(&subject, |authority| authority.certificate.tbs_certificate().subject())
                .clone(),
            subject,
        };
        let mut serial = [0; 16];
        getrandom::fill(&mut serial)?;
        let serial = SerialNumber::new(&serial)?;
        let begin = UtcTime::from_unix_duration(Duration::ZERO)?;
        let validity = Validity::new(begin.into(), Time::INFINITY);
        let public_key = SubjectPublicKeyInfoOwned::from_key(&key.verifying_key())?;
        let mut builder = CertificateBuilder::new(names, serial, validity, public_key)?;
        extend(&mut builder)?;
        let signer = authority.map_or(&key, |authority| &authority.key);
        let signature = signer.sign(&builder.finalize(signer)?)?;
        let certificate = builder.assemble(signature, signer)?;
        Ok(Self { certificate, key })
    }
}

/// The subject of a certificate, and its issuer.
pub(super) struct Names {
    issuer: Name,
    subject: Name,
}

impl BuilderProfile for Names {
    fn get_issuer(&self, _: &Name) -> Name {
        self.issuer.clone()
    }

    fn get_subject(&self) -> Name {
        self.subject.clone()
    }

    /// The key identifiers: from 3.13 on, Python refuses a server whose certificate lacks them.
    fn build_extensions(
        &self,
        key: SubjectPublicKeyInfoRef<'_>,
        issuers_key: SubjectPublicKeyInfoRef<'_>,
        _: &TbsCertificate,
    ) -> builder::Result<Vec<Extension>> {
        Ok(vec![
            SubjectKeyIdentifier::try_from(key)?.to_extension(&self.subject, &[])?,
            AuthorityKeyIdentifier::try_from(issuers_key)?.to_extension(&self.subject, &[])?,
        ])
    }
}
