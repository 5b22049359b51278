//! How a tunnel and its clients prove themselves to each other: the configurations of TLS.

use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::PrivateKeyDer;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig, ServerConnection};

use super::clients::Clients;
use super::server_identity::ServerIdentity;
use super::{preparation, trust};
use crate::keyring::KeyNumber;
use crate::process::RunError;

/// A server identity, and the clients that it serves.
pub(super) struct Credentials {
    pub(super) server_name: String,
    pub(super) clients: Arc<Clients>,
    /// Serves connections that ask for the server name.
    pub(super) named: Arc<ServerConfig>,
    /// Serves connections that don't.
    pub(super) plain: Arc<ServerConfig>,
    /// Serves connections that ask for the name, where it is a secret: with or without a certificate.
    pub(super) trusted: Option<Arc<ServerConfig>>,
}

impl Credentials {
    /// # Errors
    ///
    /// The identity's certificates and its key don't belong together.
    pub(super) fn new(identity: &ServerIdentity, clients: Arc<Clients>) -> Result<Self, RunError> {
        Self::configured(identity, clients).map_err(|error| preparation(&*error))
    }

    fn configured(
        identity: &ServerIdentity,
        clients: Arc<Clients>,
    ) -> Result<Self, Box<dyn std::error::Error>> {
        let parts = identity.certificates().zip(identity.key());
        let ([_, named, plain], key) = parts.ok_or("an identity lacks a certificate")?;
        let authority = clients.authority();
        let config =
            |certificate, demand| server_config(authority, certificate, key.clone_key(), demand);
        let trusted = match identity.is_secret() {
            true => Some(Arc::new(config(named.clone(), Demand::Optional)?)),
            false => None,
        };
        let named = config(named, Demand::Required)?;
        let plain = config(plain, Demand::Required)?;
        Ok(Self {
            server_name: identity.server_name().to_owned(),
            clients,
            named: Arc::new(named),
            plain: Arc::new(plain),
            trusted,
        })
    }

    /// The key of the user whose certificate this connection has shown, if one was shown that wasn't
    /// withdrawn.
    pub(super) fn key(&self, connection: &ServerConnection) -> Option<KeyNumber> {
        self.clients.key(connection.peer_certificates()?.first()?)
    }
}

/// Whether a client must show a certificate. One that it shows must be one of ours.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Demand {
    Optional,
    Required,
}

fn server_config(
    client_authority: &CertificateDer<'static>,
    certificate: CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
    demand: Demand,
) -> Result<ServerConfig, Box<dyn std::error::Error>> {
    let mut roots = RootCertStore::empty();
    roots.add(client_authority.clone())?;
    let provider = trust::provider();
    let verifier =
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
    let verifier = match demand {
        Demand::Optional => verifier.allow_unauthenticated().build()?,
        Demand::Required => verifier.build()?,
    };
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_client_cert_verifier(verifier)
        .with_single_cert(vec![certificate], key)?;
    // Each connection shows its certificate.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(config)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use rustls::pki_types::pem::PemObject as _;
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
        assert_eq!(pems.len(), 5);
        for pem in pems.into_iter().flatten().filter(|pem| pem.label == "CERTIFICATE") {
            let Pem { contents, .. } = &pem;
            let (_, certificate) = x509_parser::parse_x509_certificate(contents).unwrap();
            let validity = certificate.validity();
            assert_eq!(validity.not_before.timestamp(), 0);
            assert_eq!(validity.not_after.to_datetime().year(), 9999);
        }
    }

    /// The key that a client is let in with, in a handshake with this configuration; `Err` for one
    /// that is refused.
    fn admitted(
        (identity, run): &(ServerIdentity, Credentials),
        config: &Arc<ServerConfig>,
        shown: Option<&ClientCertificate>,
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
        let name = Ipv4Addr::LOCALHOST.into();
        let mut client = ClientConnection::new(Arc::new(client), name).unwrap();
        let mut server = ServerConnection::new(Arc::clone(config)).unwrap();
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
        let key = KeyNumber::default();
        let run = credentials();
        let (own, other) = (issued(&run.1), issued(&credentials().1));
        for (config, without) in [
            (&run.1.plain, None),
            (&run.1.named, None),
            (run.1.trusted.as_ref().unwrap(), Some(None)),
        ] {
            assert_eq!(admitted(&run, config, Some(&own)), Ok(Some(key)));
            assert_eq!(admitted(&run, config, None).ok(), without);
            assert!(admitted(&run, config, Some(&other)).is_err());
        }
    }

    #[test]
    fn nobody_is_let_in_by_a_name_that_was_in_a_file() {
        let kept = ServerIdentity::from_pem(credentials().0.to_pem().to_owned()).unwrap();
        let clients = Clients::new(Arc::new(Unheard)).unwrap();
        assert!(Credentials::new(&kept, clients).unwrap().trusted.is_none());
    }

    #[test]
    fn a_certificate_that_was_withdrawn_stands_for_no_key() {
        let key = KeyNumber::default();
        let run = credentials();
        let before = issued(&run.1);
        assert_eq!(issued(&run.1).certificate_pem, before.certificate_pem);
        run.1.clients.withdraw(key);
        assert_eq!(admitted(&run, &run.1.named, Some(&before)), Ok(None));
        let after = issued(&run.1);
        assert_eq!(admitted(&run, &run.1.named, Some(&before)), Ok(None));
        assert_eq!(admitted(&run, &run.1.named, Some(&after)), Ok(Some(key)));
    }
}
