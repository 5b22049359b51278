//! The cryptography of TLS, and which certificates of a server are trusted.

use std::sync::Arc;
use std::time::Duration;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::aws_lc_rs::{default_provider, kx_group};
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature,
};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, RootCertStore, SignatureScheme};
use x509_parser::prelude::{ASN1Time, FromDer as _, X509Certificate};

use kubeconfig::Cluster;

/// The cryptography for connections within this machine.
pub(super) fn provider() -> Arc<CryptoProvider> {
    Arc::new(default_provider())
}

/// The cryptography for connections to a server. As with kubectl, key exchanges that a quantum computer can't break come
/// first.
pub(super) fn server_provider() -> Arc<CryptoProvider> {
    let mut provider = default_provider();
    provider.kx_groups =
        vec![kx_group::X25519MLKEM768, kx_group::X25519, kx_group::SECP256R1, kx_group::SECP384R1];
    Arc::new(provider)
}

/// Decides whether the certificate that a cluster's server shows is trusted.
#[derive(Debug)]
pub(super) struct ServerVerifier {
    algorithms: WebPkiSupportedAlgorithms,
    /// `None` for `insecure-skip-tls-verify`: any certificate is accepted.
    issuers: Option<Arc<WebPkiServerVerifier>>,
    /// The certificates of `certificate-authority`. As Go does, each of them is also accepted as the server's own
    /// certificate, whether or not it is a CA's, if it has the server's name and is valid now.
    authorities: Vec<CertificateDer<'static>>,
}

impl ServerVerifier {
    pub(super) fn new(cluster: &Cluster, provider: &Arc<CryptoProvider>) -> Result<Self, String> {
        let algorithms = provider.signature_verification_algorithms;
        if cluster.insecure {
            return Ok(Self { algorithms, issuers: None, authorities: Vec::new() });
        }
        let authorities = cluster.authority.as_ref().map(|pem| configured(pem)).transpose()?;
        let mut roots = match &authorities {
            Some(_) => RootCertStore::empty(),
            None => system()?,
        };
        let authorities = authorities.unwrap_or_default();
        for certificate in &authorities {
            let added = roots.add(certificate.clone());
            added.map_err(|error| format!("its certificate-authority can't be used: {error}"))?;
        }
        let issuers =
            WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider));
        let issuers = Some(issuers.build().map_err(|error| error.to_string())?);
        Ok(Self { algorithms, issuers, authorities })
    }
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

/// The certificates that this machine trusts.
pub(super) fn system() -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    // Some certificates have algorithms that are too old to be checked; they are left out.
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        let reason = found.errors.first().map_or_else(String::new, |error| format!(" ({error})"));
        return Err(format!(
            "it has no certificate-authority, and this machine has no trusted certificates{reason}"
        ));
    }
    Ok(roots)
}

impl ServerCertVerifier for ServerVerifier {
    fn verify_server_cert(
        &self,
        shown: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        match &self.issuers {
            None => Ok(ServerCertVerified::assertion()),
            Some(_) if self.authorities.contains(shown) => verify_itself(shown, name, now),
            Some(issuers) => issuers.verify_server_cert(shown, intermediates, name, ocsp, now),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signed, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

/// Checks the name, the validity and the purpose of a server's certificate that is trusted itself.
fn verify_itself(
    shown: &CertificateDer<'_>,
    name: &ServerName<'_>,
    now: UnixTime,
) -> Result<ServerCertVerified, rustls::Error> {
    let (_, parsed) =
        X509Certificate::from_der(shown).map_err(|_| CertificateError::BadEncoding)?;
    let time = |time: ASN1Time| {
        let seconds = u64::try_from(time.timestamp()).unwrap_or_default();
        UnixTime::since_unix_epoch(Duration::from_secs(seconds))
    };
    let not_before = time(parsed.validity().not_before);
    let not_after = time(parsed.validity().not_after);
    let time = now;
    if now < not_before {
        return Err(CertificateError::NotValidYetContext { time, not_before }.into());
    }
    if now > not_after {
        return Err(CertificateError::ExpiredContext { time, not_after }.into());
    }
    match parsed.extended_key_usage() {
        Ok(None) => {}
        Ok(Some(usage)) if usage.value.server_auth || usage.value.any => {}
        _ => return Err(CertificateError::InvalidPurpose.into()),
    }
    verify_server_name(&ParsedCertificate::try_from(shown)?, name)?;
    Ok(ServerCertVerified::assertion())
}
