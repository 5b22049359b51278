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

    use rustls::pki_types::pem::PemObject as _;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer};
    use rustls::{ClientConfig, ClientConnection};
    use x509_parser::pem::Pem;

    use super::super::clients::ClientCertificate;
    use super::super::tests::Unheard;
    use super::*;

    fn credentials() -> (ServerIdentity, Credentials) {
        let identity = ServerIdentity::generate(&[Ipv4Addr::LOCALHOST.into()]).unwrap();
        let clients = Clients::new(Arc::new(Unheard)).unwrap();
        let credentials = Credentials::new(&identity, clients).unwrap();
        (identity, credentials)
    }

    fn issued(credentials: &Credentials) -> ClientCertificate {
        credentials.clients.certificate(KeyNumber::default()).unwrap()
    }

    #[test]
    fn certificates_are_valid_by_any_clock() {
        let (identity, credentials) = credentials();
        let pems = identity.to_pem().to_owned() + &issued(&credentials).certificate_pem;
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

    /// The key that a client is let in with, in a handshake by this name; `Err` for one that is refused.
    fn admitted(
        (identity, run): &(ServerIdentity, Credentials),
        shown: Option<&ClientCertificate>,
        name: &str,
    ) -> Result<Option<KeyNumber>, rustls::Error> {
        let mut roots = RootCertStore::empty();
        let authority = identity.authority_pem();
        let authority = CertificateDer::from_pem_slice(authority.as_bytes()).unwrap();
        roots.add(authority).unwrap();
        let client = ClientConfig::builder_with_provider(trust::provider())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let client = match shown {
            None => client.with_no_client_auth(),
            Some(of) => client
                .with_client_auth_cert(
                    vec![CertificateDer::from_pem_slice(of.certificate_pem.as_bytes()).unwrap()],
                    PrivateKeyDer::from_pem_slice(of.key_pem.as_bytes()).unwrap(),
                )
                .unwrap(),
        };
        let name = name.to_owned().try_into().unwrap();
        let mut client = ClientConnection::new(Arc::new(client), name).unwrap();
        let mut server = ServerConnection::new(run.speaking(None)).unwrap();
        while server.is_handshaking() {
            let mut bytes = Vec::new();
            while client.wants_write() {
                client.write_tls(&mut bytes).unwrap();
            }
            let mut rest = &*bytes;
            while !rest.is_empty() {
                server.read_tls(&mut rest).unwrap();
                server.process_new_packets()?;
            }
            let mut bytes = Vec::new();
            while server.wants_write() {
                server.write_tls(&mut bytes).unwrap();
            }
            let mut rest = &*bytes;
            while !rest.is_empty() {
                client.read_tls(&mut rest).unwrap();
                client.process_new_packets()?;
            }
        }
        Ok(run.key(&server))
    }

    #[test]
    fn only_the_certificates_of_the_run_are_let_in() {
        let run = credentials();
        let (own, other) = (issued(&run.1), issued(&credentials().1));
        for name in [run.0.server_name(), "127.0.0.1"] {
            assert_eq!(admitted(&run, Some(&own), name), Ok(Some(KeyNumber::default())));
            assert!(admitted(&run, None, name).is_err());
            assert!(admitted(&run, Some(&other), name).is_err());
        }
    }

    #[test]
    fn a_certificate_that_was_withdrawn_stands_for_no_key() {
        let key = KeyNumber::default();
        let run = credentials();
        let name = run.0.server_name();
        let before = issued(&run.1);
        assert_eq!(issued(&run.1).certificate_pem, before.certificate_pem);
        run.1.clients.withdraw(key);
        assert_eq!(admitted(&run, Some(&before), name), Ok(None));
        let after = issued(&run.1);
        assert_eq!(admitted(&run, Some(&before), name), Ok(None));
        assert_eq!(admitted(&run, Some(&after), name), Ok(Some(key)));
    }
}
