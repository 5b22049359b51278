//! Whom TLS believes: the cryptography used, and the certificates a server may show.

use std::sync::Arc;
use std::time::Duration;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::aws_lc_rs::{default_provider, kx_group};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, RootCertStore, SignatureScheme};
use x509_parser::prelude::{ASN1Time, FromDer as _, X509Certificate};

use super::p521::Secp521r1;
use crate::kubeconfig::Cluster;

/// For the hop inside this machine.
pub(super) fn provider() -> Arc<CryptoProvider> {
    Arc::new(default_provider())
}

/// For the way to the server: with the exchange first that also a quantum computer can't undo, as
/// kubectl has it.
pub(super) fn far_provider() -> Arc<CryptoProvider> {
    let mut provider = default_provider();
    provider.kx_groups = vec![
        kx_group::X25519MLKEM768,
        kx_group::X25519,
        kx_group::SECP256R1,
        kx_group::SECP384R1,
        &Secp521r1,
    ];
    Arc::new(provider)
}

/// Who decides about the certificate of a cluster's server; the error is a text for people.
pub(super) fn verifier(
    cluster: &Cluster,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ServerCertVerifier>, String> {
    if cluster.insecure {
        return Ok(Arc::new(Anybody(Arc::clone(provider))));
    }
    let below = |roots| {
        WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider))
            .build()
            .map_err(|error| error.to_string())
    };
    let Some(pem) = &cluster.authority else {
        return Ok(below(system()?)?);
    };
    let configured = configured(pem)?;
    let mut roots = RootCertStore::empty();
    for certificate in &configured {
        roots
            .add(certificate.clone())
            .map_err(|error| format!("its certificate-authority can't be used: {error}"))?;
    }
    Ok(Arc::new(Configured {
        below: below(roots)?,
        certificates: configured,
    }))
}

fn configured(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let certificates = CertificateDer::pem_slice_iter(pem)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| format!("its certificate-authority is not PEM: {error}"))?;
    if certificates.is_empty() {
        return Err("its certificate-authority holds no certificate".to_owned());
    }
    Ok(certificates)
}

/// What this machine trusts.
pub(super) fn system() -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    // Some of them are too old for anybody to check.
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        let reason = found
            .errors
            .first()
            .map_or_else(String::new, |error| format!(" ({error})"));
        return Err(format!(
            "it has no certificate-authority, and this machine has no trusted certificates{reason}"
        ));
    }
    Ok(roots)
}

/// `certificate-authority`: what its certificates have issued, and they themselves. The latter is
/// Go's rule: a server may show one of them, a CA's or not, under its name and while it is valid.
#[derive(Debug)]
struct Configured {
    certificates: Vec<CertificateDer<'static>>,
    below: Arc<WebPkiServerVerifier>,
}

impl ServerCertVerifier for Configured {
    fn verify_server_cert(
        &self,
        shown: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        if !self.certificates.contains(shown) {
            return self
                .below
                .verify_server_cert(shown, intermediates, name, ocsp, now);
        }
        let (_, parsed) =
            X509Certificate::from_der(shown).map_err(|_| CertificateError::BadEncoding)?;
        let time = |time: ASN1Time| {
            let seconds = u64::try_from(time.timestamp()).unwrap_or_default();
            UnixTime::since_unix_epoch(Duration::from_secs(seconds))
        };
        let not_before = time(parsed.validity().not_before);
        let not_after = time(parsed.validity().not_after);
        if now < not_before {
            return Err(CertificateError::NotValidYetContext {
                time: now,
                not_before,
            }
            .into());
        }
        if now > not_after {
            return Err(CertificateError::ExpiredContext {
                time: now,
                not_after,
            }
            .into());
        }
        match parsed.extended_key_usage() {
            Ok(None) => {}
            Ok(Some(usage)) if usage.value.server_auth || usage.value.any => {}
            _ => return Err(CertificateError::InvalidPurpose.into()),
        }
        verify_server_name(&ParsedCertificate::try_from(shown)?, name)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.below
            .verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.below
            .verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.below.supported_verify_schemes()
    }
}

/// `insecure-skip-tls-verify`: any certificate, whoever it is from.
#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
