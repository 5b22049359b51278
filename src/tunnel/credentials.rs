//! How a tunnel proves itself to its clients, and they to it: the configuration of TLS.

use std::sync::Arc;

use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig, ServerConnection};

use super::clients::Clients;
use super::server_identity::ServerIdentity;
use super::trust;
use crate::keyring::KeyNumber;

/// A server identity, and the clients that it serves.
pub(super) struct Credentials {
    pub(super) clients: Arc<Clients>,
    config: ServerConfig,
}

impl Credentials {
    /// Fails if the identity's certificate and its key don't belong together.
    pub(super) fn new(
        identity: &ServerIdentity,
        clients: Arc<Clients>,
    ) -> Result<Self, Box<dyn std::error::Error>> {
        let mut roots = RootCertStore::empty();
        roots.add(clients.authority().clone())?;
        let provider = trust::provider();
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
        let parts = identity.certificates().zip(identity.key());
        let ([_, certificate], key) = parts.ok_or("an identity lacks a certificate")?;
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_client_cert_verifier(verifier.build()?)
            .with_single_cert(vec![certificate], key)?;
        // Each connection shows its certificate.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(Self { clients, config })
    }

    /// The configuration with this protocol (ALPN) as the only choice, or with none.
    pub(super) fn speaking(&self, protocol: Option<&[u8]>) -> Arc<ServerConfig> {
        let mut config = self.config.clone();
        config.alpn_protocols = protocol.map(<[u8]>::to_owned).into_iter().collect();
        Arc::new(config)
    }

    /// The key of the user whose certificate this connection has shown, if it wasn't withdrawn.
    pub(super) fn key(&self, connection: &ServerConnection) -> Option<KeyNumber> {
        self.clients.key(connection.peer_certificates()?.first()?)
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use x509_parser::pem::Pem;

    use super::super::tests::Silent;
    use super::*;

    #[test]
    fn certificates_are_valid_by_any_clock() {
        let identity = ServerIdentity::generate(&[Ipv4Addr::LOCALHOST.into()]).unwrap();
        let clients = Clients::new(Arc::new(Silent)).unwrap();
        let client = clients.certificate(KeyNumber::default()).unwrap();
        let pems = identity.to_pem().to_owned() + &client.certificate_pem;
        let pems: Vec<_> = Pem::iter_from_buffer(pems.as_bytes()).collect();
        assert_eq!(pems.len(), 4);
        for pem in pems.into_iter().flatten().filter(|pem| pem.label == "CERTIFICATE") {
            let Pem { contents, .. } = &pem;
            let (_, certificate) = x509_parser::parse_x509_certificate(contents).unwrap();
            let validity = certificate.validity();
            assert_eq!(validity.not_before.timestamp(), 0);
            assert_eq!(validity.not_after.to_datetime().year(), 9999);
        }
    }
}
