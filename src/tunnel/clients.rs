//! The clients of the tunnels: a client certificate for the user of each key, and the connections that are made with it.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustls::pki_types::CertificateDer;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig};
use serde::{Deserialize, Serialize};
use tokio::task::AbortHandle;
use x509_cert::der::oid::db::rfc5280::ID_KP_CLIENT_AUTH;
use x509_cert::der::pem::LineEnding;
use x509_cert::der::{Encode as _, EncodePem as _};
use x509_cert::ext::pkix::ExtendedKeyUsage;

use super::issued::CertificateWithKey;
use super::server_identity::ServerIdentity;
use super::trust;
use keyring::KeyNumber;
use messages::error::Error;
use messages::printable::hex;
use system::clock::time_since_boot;
use system::{locked, shortage};

/// A client certificate and its key, in PEM. They are good only for the tunnels that they were made for.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct ClientCertificate {
    pub certificate_pem: String,
    pub key_pem: String,
}

/// How a key is used: the connections of the clients with its certificate.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct KeyUsage {
    /// How many connections are open.
    pub open: usize,
    /// How many connections were made in all.
    pub made: usize,
    /// When a connection has ended last, in [`time_since_boot`].
    pub last_end: Option<Duration>,
}

/// The users of the tunnels of one process, and the CA that issues their certificates.
pub struct Clients {
    authority: CertificateWithKey,
    pub(super) config: ServerConfig,
    users: Mutex<Users>,
}

/// The users, each with the key that its connections are made with.
#[derive(Default)]
struct Users {
    by_key: HashMap<KeyNumber, User>,
    /// Which key a certificate in DER stands for.
    keys: HashMap<Vec<u8>, KeyNumber>,
}

struct User {
    der: Vec<u8>,
    certificate: ClientCertificate,
    /// The tasks of the user's connections, by their numbers.
    connections: HashMap<u64, AbortHandle>,
    usage: KeyUsage,
}

impl Clients {
    /// The clients of tunnels with this identity. Fails if its certificate and its key don't belong together.
    pub(super) fn new(identity: &ServerIdentity) -> Result<Arc<Self>, Box<dyn std::error::Error>> {
        let key = identity.key_of_clients_authority()?;
        // The CA's name is its own, so that a certificate of another tunnel's CA is one of an unknown CA, and not one with
        // a wrong signature.
        let name = format!("pkcs11-external-signer clients {}", hex(key.point_begin()));
        let authority = CertificateWithKey::authority(&name, key, |_| Ok(()))?;
        let mut roots = RootCertStore::empty();
        roots.add(authority.certificate.to_der()?.into())?;
        let provider = trust::provider();
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_client_cert_verifier(verifier.build()?)
            .with_single_cert(vec![identity.certificate.clone()], identity.key.clone_key())?;
        // No sessions: on each connection, the client has to show its certificate.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(Arc::new(Self { authority, config, users: Mutex::default() }))
    }

    /// The certificate of the user with this key: the same one until it is withdrawn.
    pub fn certificate(&self, key: KeyNumber) -> Result<ClientCertificate, Error> {
        let Users { by_key, keys } = &mut *locked(&self.users);
        let user = match by_key.entry(key) {
            Entry::Occupied(user) => user.into_mut(),
            Entry::Vacant(place) => {
                let user = place.insert(self.issue().map_err(shortage)?);
                keys.insert(user.der.clone(), key);
                user
            }
        };
        Ok(user.certificate.clone())
    }

    fn issue(&self) -> Result<User, Box<dyn std::error::Error>> {
        let issued = CertificateWithKey::new("command", &self.authority, |builder| {
            builder.add_extension(&ExtendedKeyUsage(vec![ID_KP_CLIENT_AUTH]))
        })?;
        // In SEC 1 (`BEGIN EC PRIVATE KEY`): fabric8's client for Java, for one, reads no PKCS #8.
        Ok(User {
            der: issued.certificate.to_der()?,
            certificate: ClientCertificate {
                certificate_pem: issued.certificate.to_pem(LineEnding::LF)?,
                key_pem: issued.key.to_sec1_pem()?,
            },
            connections: HashMap::new(),
            usage: KeyUsage::default(),
        })
    }

    /// Counts a connection on which the client has shown this certificate, until the result is dropped. The connection's
    /// task is ended when the certificate is withdrawn. `None` if it was withdrawn already, or issued by an earlier
    /// process.
    pub(super) fn connected(
        self: &Arc<Self>,
        shown: &CertificateDer<'_>,
        number: u64,
        task: AbortHandle,
    ) -> Option<ClientConnection> {
        let Users { by_key, keys } = &mut *locked(&self.users);
        let key = *keys.get(shown.as_ref())?;
        let user = by_key.get_mut(&key)?;
        user.connections.insert(number, task);
        user.usage.made += 1;
        Some(ClientConnection { clients: Arc::clone(self), key, number })
    }

    /// The connections of the user with this key; none if there is no such user.
    pub fn usage(&self, key: KeyNumber) -> KeyUsage {
        let users = locked(&self.users);
        let usage = |user: &User| KeyUsage { open: user.connections.len(), ..user.usage };
        users.by_key.get(&key).map(usage).unwrap_or_default()
    }

    /// From now on, refuses the certificate of the user with this key. Ends the connections that were made with it.
    pub(super) fn withdraw(&self, key: KeyNumber) {
        let mut users = locked(&self.users);
        let Some(user) = users.by_key.remove(&key) else { return };
        users.keys.remove(&user.der);
        for task in user.connections.values() {
            task.abort();
        }
    }
}

/// A connection with a key, which counts until this is dropped.
pub(super) struct ClientConnection {
    clients: Arc<Clients>,
    pub(super) key: KeyNumber,
    number: u64,
}

impl Drop for ClientConnection {
    fn drop(&mut self) {
        let mut users = locked(&self.clients.users);
        // If the user isn't there, the certificate was withdrawn.
        if let Some(user) = users.by_key.get_mut(&self.key)
            && user.connections.remove(&self.number).is_some()
        {
            user.usage.last_end = Some(time_since_boot());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::net::Ipv4Addr;

    use rustls::pki_types::pem::PemObject as _;
    use tokio::runtime::Builder;
    use tokio::spawn;
    use x509_parser::pem::Pem;

    use super::*;

    fn identity() -> ServerIdentity {
        ServerIdentity::generate(&[Ipv4Addr::LOCALHOST.into()]).unwrap()
    }

    #[test]
    fn connections_are_counted_until_they_end_and_end_with_the_certificate() {
        let clients = Clients::new(&identity()).unwrap();
        let key = KeyNumber::default();
        let certificate = || {
            let pem = clients.certificate(key).unwrap().certificate_pem;
            CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()
        };
        let mut shown = certificate();
        let runtime = Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let connect = |shown: &CertificateDer<'_>, number| {
                let task = spawn(pending::<()>());
                let connection = clients.connected(shown, number, task.abort_handle());
                (task, connection)
            };
            let (_first, first) = connect(&shown, 1);
            let (second_task, second) = connect(&shown, 2);
            assert_eq!(clients.usage(key).open, 2);
            assert_eq!(clients.usage(key).last_end, None);
            let before = time_since_boot();
            drop(first);
            let KeyUsage { open, made, last_end } = clients.usage(key);
            assert_eq!((open, made), (1, 2));
            assert!(last_end.is_some_and(|end| end >= before));
            clients.withdraw(key);
            assert!(second_task.await.unwrap_err().is_cancelled());
            assert!(connect(&shown, 3).1.is_none());
            // What was withdrawn is not counted for the next certificate.
            shown = certificate();
            drop(second);
            assert_eq!(clients.usage(key), KeyUsage::default());
            drop(connect(&shown, 2).1);
            assert_eq!((clients.usage(key).open, clients.usage(key).made), (0, 1));
        });
    }

    #[test]
    fn certificates_are_valid_by_any_clock() {
        let identity = identity();
        let clients = Clients::new(&identity).unwrap();
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
