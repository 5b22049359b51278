//! The command's side: a port on 127.0.0.1 for each cluster, which only the command can use.
//!
//! Every process of the machine can connect to a port. What the command has and others don't is in
//! its private kubeconfig: a client certificate for each user who has a key, and a server name that
//! nobody can guess. Whose key is meant is what the certificate says, as with kubectl and keys in
//! files. A key is opened, and a connection made with it, only after the certificate was shown.
//!
//! TLS makes the server choose a protocol before it sees the client's certificate, and the choice
//! is the API server's to make. So the first connection that asks for the name, and offers several
//! protocols, makes us ask the API server, without a key. One that doesn't ask for the name (a client
//! that sends no names for an address) makes us do nothing before its certificate, and speaks
//! HTTP/1.1. One that asks for it and shows no certificate (the user has a token, say) is led to the
//! server without a key. A certificate that bears the name is never shown to who doesn't know it.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::{Ipv4Addr, TcpListener as StdListener};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use p256::SecretKey;
use p256::pkcs8::{DecodePrivateKey as _, LineEnding};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, SanType, date_time_ymd,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::{
    Acceptor, ClientHello, NoServerSessionStorage, ResolvesServerCert, WebPkiClientVerifier,
};
use rustls::sign::CertifiedKey;
use rustls::{RootCertStore, ServerConfig};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};
use tokio_rustls::LazyConfigAcceptor;
use tokio_rustls::server::TlsStream;

use super::error::UpstreamFailure;
use super::relay::relay;
use super::upstream::{Connection, HTTP_1_1, Offer, Server, Stop, Upstream};
use super::wire::Wire;
use super::{preparation, trust};
use crate::keyring::{KeyNumber, Keyring};
use crate::kubeconfig::{ClientIdentity, TunnelEndpoint};
use crate::process::RunError;
use crate::process::fnv_1a;

/// A connection that is silent for longer is not the command's.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(10);

/// How long a command that sends no more may still be waiting for an answer.
const HALF_CLOSED: Duration = Duration::from_secs(1);

/// Connections that haven't proven yet that they are the command's, at all ports together. Each can
/// hold as much memory as a long greeting takes.
const UNPROVEN: usize = 256;

/// With no descriptor left, one may become free.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_millis(50);

/// Below the ports that systems give to outgoing connections, where few services are.
const FIRST_PORT: u16 = 20_000;
const PORTS: u64 = 12_000;
const ATTEMPTS: u64 = 8;

/// What the command and the tunnel know each other by; made in memory, for one run.
pub(super) struct Credentials {
    authority: String,
    server_name: String,
    /// For each user, in PEM.
    certificates: Vec<String>,
    key: String,
    /// Whose certificate (in DER) stands for which key.
    users: Arc<HashMap<Vec<u8>, KeyNumber>>,
    /// For connections that ask for the server name.
    named: Arc<ServerConfig>,
    /// For connections that don't.
    plain: Arc<ServerConfig>,
}

impl Credentials {
    /// With a certificate for each of the keys.
    pub(super) fn new(keys: &[KeyNumber]) -> Result<Self, RunError> {
        let mut random = [0; 16];
        getrandom::fill(&mut random).map_err(|error| preparation(&error))?;
        let label: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
        Self::issued(format!("{label}.run.invalid"), keys).map_err(|error| preparation(&error))
    }

    fn issued(server_name: String, keys: &[KeyNumber]) -> Result<Self, Box<dyn std::error::Error>> {
        let mut params = params("pkcs11-external-signer run");
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let authority = CertifiedIssuer::self_signed(params, key_pair()?)?;

        let named = SanType::DnsName(server_name.as_str().try_into()?);
        let address = SanType::IpAddress(Ipv4Addr::LOCALHOST.into());
        let named = server_config(&authority, vec![named, address.clone()], Demand::Optional)?;
        let plain = server_config(&authority, vec![address], Demand::Required)?;

        let mut params = self::params("command");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let key = key_pair()?;
        // Each with a serial number of its own; the key says no more than that it is the command's.
        let mut certificates = Vec::with_capacity(keys.len());
        let mut users = HashMap::with_capacity(keys.len());
        for number in keys {
            let certificate = params.signed_by(&key, &authority)?;
            users.insert(certificate.der().to_vec(), *number);
            certificates.push(certificate.pem());
        }
        Ok(Self {
            certificates,
            users: Arc::new(users),
            key: sec1_pem(&key)?,
            authority: authority.pem(),
            server_name,
            named: Arc::new(named),
            plain: Arc::new(plain),
        })
    }

    /// What a kubeconfig has to say for the port at this address.
    pub(super) fn endpoint<'a>(&'a self, address: &'a str) -> TunnelEndpoint<'a> {
        TunnelEndpoint {
            address,
            server_name: &self.server_name,
            authority_pem: &self.authority,
        }
    }

    /// What each user shows there, in the order of the keys.
    pub(super) fn identities(&self) -> impl Iterator<Item = ClientIdentity<'_>> {
        self.certificates
            .iter()
            .map(|certificate_pem| ClientIdentity {
                certificate_pem,
                key_pem: &self.key,
            })
    }
}

/// Whether a client must show a certificate. One that it shows must be of this run.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Demand {
    Optional,
    Required,
}

fn key_pair() -> Result<KeyPair, rcgen::Error> {
    KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)
}

/// As SEC 1 has it (`BEGIN EC PRIVATE KEY`): some clients read no PKCS #8, such as fabric8's for Java.
fn sec1_pem(key: &KeyPair) -> Result<String, Box<dyn std::error::Error>> {
    let key = SecretKey::from_pkcs8_der(key.serialized_der())?;
    Ok(key.to_sec1_pem(LineEnding::LF)?.to_string())
}

/// Valid whatever a clock says: it is the keys that end with the run.
fn params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.not_before = date_time_ymd(1970, 1, 1);
    params.not_after = date_time_ymd(9999, 12, 31);
    params
}

fn server_config(
    authority: &CertifiedIssuer<'_, KeyPair>,
    names: Vec<SanType>,
    demand: Demand,
) -> Result<ServerConfig, Box<dyn std::error::Error>> {
    let mut params = params("tunnel");
    params.subject_alt_names = names;
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let key = key_pair()?;
    let certificate = CertificateDer::from(params.signed_by(&key, authority)?);
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));

    let mut roots = RootCertStore::empty();
    roots.add(authority.der().clone())?;
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

/// A port that is the same in every run against this server, if it is free: kubectl keeps what it
/// learns of a cluster in a directory named after the address.
pub(super) fn bind(server: &str) -> io::Result<StdListener> {
    let hash = fnv_1a(server);
    let preferred = (0..ATTEMPTS).map(|attempt| {
        let place = hash.wrapping_add(attempt) % PORTS;
        FIRST_PORT + u16::try_from(place).unwrap_or_default()
    });
    let mut outcome = Err(io::Error::other("no port was tried"));
    for port in preferred.chain([0]) {
        outcome = StdListener::bind((Ipv4Addr::LOCALHOST, port));
        if outcome.is_ok() {
            break;
        }
    }
    let listener = outcome?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

type CommandStream = TlsStream<Wire<TcpStream>>;

/// A port, and the server it leads to.
pub(super) struct Listener {
    socket: TcpListener,
    gate: Arc<Gate>,
    unproven: Arc<Unproven>,
    shortage: Arc<Shortage>,
}

/// Of descriptors, for all ports of a run.
pub(super) struct Shortage {
    pub(super) ports: usize,
    pub(super) is_told: AtomicBool,
}

/// What decides about a connection.
struct Gate {
    server: Arc<Server>,
    keyring: Arc<Keyring>,
    /// By the key to show; without one for who shows no certificate.
    upstreams: Mutex<HashMap<Option<KeyNumber>, Arc<Upstream>>>,
    server_name: String,
    users: Arc<HashMap<Vec<u8>, KeyNumber>>,
    named: Arc<ServerConfig>,
    plain: Arc<ServerConfig>,
    /// Ends a handshake with the alert "access denied".
    refusal: Arc<ServerConfig>,
}

impl Listener {
    pub(super) fn new(
        socket: TcpListener,
        server: Arc<Server>,
        keyring: &Arc<Keyring>,
        credentials: &Credentials,
        unproven: &Arc<Unproven>,
        shortage: &Arc<Shortage>,
    ) -> Self {
        let mut refusal = ServerConfig::clone(&credentials.plain);
        refusal.cert_resolver = Arc::new(NoCertificate);
        Self {
            socket,
            gate: Arc::new(Gate {
                server,
                keyring: Arc::clone(keyring),
                upstreams: Mutex::default(),
                server_name: credentials.server_name.clone(),
                users: Arc::clone(&credentials.users),
                named: Arc::clone(&credentials.named),
                plain: Arc::clone(&credentials.plain),
                refusal: Arc::new(refusal),
            }),
            unproven: Arc::clone(unproven),
            shortage: Arc::clone(shortage),
        }
    }

    /// Accepts connections for ever, each in a task of its own.
    pub(super) async fn serve(self) {
        loop {
            match self.socket.accept().await {
                Ok((connection, _)) => {
                    let gate = Arc::clone(&self.gate);
                    let place = Place::new(&self.unproven);
                    let number = place.number;
                    let task = tokio::spawn(async move { gate.serve(connection, place).await });
                    if self.unproven.add(number, task.abort_handle()) {
                        let reason = "too many that are not let in yet: the oldest makes room";
                        self.gate.server.refused(reason);
                    }
                }
                Err(reason) => {
                    let ports = self.shortage.ports;
                    let error = RunError::Accept { reason, ports };
                    if error.is_shortage() && !self.shortage.is_told.swap(true, Ordering::Relaxed) {
                        self.gate.server.tell(&error.into());
                    }
                    sleep(PAUSE_AFTER_FAILURE).await;
                }
            }
        }
    }
}

/// The tasks of connections that haven't proven yet that they are the command's, by age.
#[derive(Default)]
pub(super) struct Unproven(Mutex<Tasks>);

#[derive(Default)]
struct Tasks {
    last: u64,
    unproven: BTreeMap<u64, AbortHandle>,
}

impl Unproven {
    fn tasks(&self) -> MutexGuard<'_, Tasks> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a task; whether the oldest one was ended for it.
    fn add(&self, number: u64, task: AbortHandle) -> bool {
        let mut tasks = self.tasks();
        tasks.unproven.insert(number, task);
        if tasks.unproven.len() <= UNPROVEN {
            return false;
        }
        let oldest = tasks.unproven.pop_first();
        drop(tasks);
        if let Some((_, task)) = &oldest {
            task.abort();
        }
        oldest.is_some()
    }
}

/// A connection's place among the unproven.
struct Place {
    unproven: Arc<Unproven>,
    number: u64,
}

impl Place {
    fn new(unproven: &Arc<Unproven>) -> Self {
        let mut tasks = unproven.tasks();
        tasks.last += 1;
        Self {
            unproven: Arc::clone(unproven),
            number: tasks.last,
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.unproven.tasks().unproven.remove(&self.number);
    }
}

impl Gate {
    async fn serve(&self, connection: TcpStream, place: Place) {
        self.server.asked();
        // Boxed: making a connection takes room that need not be held as long as it lasts.
        let admitted = Box::pin(self.admit(connection, place)).await;
        let Some((command, server, upstream)) = admitted else {
            return;
        };
        let broken = relay(command, server.stream).await;
        if let Some(error) = upstream.explain(&broken) {
            self.server.tell(&error);
        }
    }

    /// The two ends of a connection that may be joined; who was refused, and why, has been told.
    async fn admit(
        &self,
        connection: TcpStream,
        place: Place,
    ) -> Option<(CommandStream, Connection, Arc<Upstream>)> {
        let _ = connection.set_nodelay(true);
        let hello = LazyConfigAcceptor::new(Acceptor::default(), Wire::new(connection));
        let mut hello = match in_time(hello).await {
            Ok(hello) => hello,
            Err(error) => return self.refuse(&error),
        };
        let mut offer = offered(&hello.client_hello());
        let is_named = hello.client_hello().server_name() == Some(self.server_name.as_str());
        let mut place = Some(place);
        let (config, protocol) = if is_named {
            drop(place.take());
            let choice = self.upstream(None);
            let choice = choice.choice(offer, pin!(hello.io.end())).await;
            match choice {
                Ok(protocol) => (&self.named, protocol),
                Err(Stop::Gone) => return None,
                Err(Stop::Failed(error)) => {
                    self.server.tell(&error);
                    let _ = in_time(hello.into_stream(Arc::clone(&self.refusal))).await;
                    return None;
                }
            }
        } else {
            offer.retain(|protocol| protocol == HTTP_1_1);
            (&self.plain, offer.pop())
        };
        let config = speaking(config, protocol.as_deref());
        let mut command = match in_time(hello.into_stream(config)).await {
            Ok(command) => command,
            Err(error) if is_named && is_of_another(&error) => {
                let error = self.server.error(UpstreamFailure::OwnCertificate);
                self.server.tell(&error);
                return None;
            }
            Err(error) => return self.refuse(&error),
        };
        drop(place);
        let upstream = self.upstream(self.key(&command));
        let connection = upstream.connect(protocol);
        let connection = tokio::select! {
            biased;
            connection = connection => connection.ok()?,
            () = gone(command.get_mut().0) => return None,
        };
        match connection {
            Ok(server) => {
                upstream.connected(&server);
                Some((command, server, upstream))
            }
            Err(error) => {
                self.server.tell(&error);
                None
            }
        }
    }

    /// The key of the user whose certificate was shown, if one was.
    fn key(&self, command: &CommandStream) -> Option<KeyNumber> {
        let shown = command.get_ref().1.peer_certificates()?.first()?;
        self.users.get(&**shown).copied()
    }

    fn upstream(&self, key: Option<KeyNumber>) -> Arc<Upstream> {
        let mut upstreams = self
            .upstreams
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let upstream = upstreams.entry(key).or_insert_with(|| {
            let server = Arc::clone(&self.server);
            Arc::new(Upstream::new(server, &self.keyring, key))
        });
        Arc::clone(upstream)
    }

    fn refuse<T>(&self, error: &io::Error) -> Option<T> {
        self.server.refused(&error.to_string());
        None
    }
}

/// Waits until the command has gone.
async fn gone(connection: &mut Wire<TcpStream>) {
    connection.end().await;
    sleep(HALF_CLOSED).await;
}

/// Whether a handshake failed since the client has a certificate that isn't of this run.
fn is_of_another(error: &io::Error) -> bool {
    let tls = error.get_ref().and_then(|error| error.downcast_ref());
    matches!(tls, Some(rustls::Error::InvalidCertificate(_)))
}

async fn in_time<T>(handshake: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    timeout(HANDSHAKE_LIMIT, handshake)
        .await
        .unwrap_or_else(|_| Err(io::Error::other("it was silent for too long")))
}

fn offered(hello: &ClientHello<'_>) -> Offer {
    hello
        .alpn()
        .map(|protocols| protocols.map(<[u8]>::to_owned).collect())
        .unwrap_or_default()
}

/// With this protocol as the only choice, or with none.
fn speaking(config: &ServerConfig, protocol: Option<&[u8]>) -> Arc<ServerConfig> {
    let mut config = config.clone();
    config.alpn_protocols = protocol.map(<[u8]>::to_owned).into_iter().collect();
    Arc::new(config)
}

#[derive(Debug)]
struct NoCertificate;

impl ResolvesServerCert for NoCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        None
    }
}

#[cfg(test)]
mod tests {
    use x509_parser::pem::Pem;

    use super::*;

    #[test]
    fn certificates_are_valid_whatever_a_clock_says() {
        let credentials = Credentials::new(&[KeyNumber::default()]).unwrap();
        for pem in [&credentials.authority, &credentials.certificates[0]] {
            let (_, pem) = x509_parser::pem::parse_x509_pem(pem.as_bytes()).unwrap();
            let Pem { contents, .. } = &pem;
            let (_, certificate) = x509_parser::parse_x509_certificate(contents).unwrap();
            let validity = certificate.validity();
            assert_eq!(validity.not_before.timestamp(), 0);
            assert_eq!(validity.not_after.to_datetime().year(), 9999);
        }
    }

    #[test]
    fn a_server_has_the_same_port_in_each_run_and_another_when_it_is_taken() {
        let port = |server: &str| bind(server).unwrap();
        let first = port("https://one.example:6443");
        let address = first.local_addr().unwrap();
        // In each release, too, and whatever it was built with.
        let preferred = 24_239..24_239 + u16::try_from(ATTEMPTS).unwrap();
        assert!(preferred.contains(&address.port()), "{address}");
        assert!(address.ip().is_loopback());
        let second = port("https://one.example:6443").local_addr().unwrap();
        assert_ne!(second, address);
        drop(first);
        let again = port("https://one.example:6443").local_addr().unwrap();
        assert_eq!(again, address);
    }
}
