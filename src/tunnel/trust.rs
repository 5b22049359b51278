//! Whom TLS believes: the cryptography used, and the certificates a server may show.

use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::aws_lc_rs::{default_provider, kx_group};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, RootCertStore, SignatureScheme};

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
    let roots = match &cluster.authority {
        Some(pem) => configured(pem)?,
        None => system()?,
    };
    let verifier =
        WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider))
            .build()
            .map_err(|error| error.to_string())?;
    Ok(verifier)
}

fn configured(pem: &[u8]) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let certificate = certificate
            .map_err(|error| format!("its certificate-authority is not PEM: {error}"))?;
        roots
            .add(certificate)
            .map_err(|error| format!("its certificate-authority can't be used: {error}"))?;
    }
    if roots.is_empty() {
        return Err("its certificate-authority holds no certificate".to_owned());
    }
    Ok(roots)
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
