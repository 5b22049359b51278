//! The command's side: a port on 127.0.0.1 that only the command can use.
//!
//! Every process of the machine can connect to the port. What the command has and others don't is
//! in its private kubeconfig: a client certificate, and a server name that nobody can guess. The
//! server's choice of a protocol has to be known before the command's certificate is seen, since
//! TLS sends the one before the other. So a connection that asks for the name is taken to the
//! server first, and proves itself then; one that doesn't (a client that sends no names for an
//! address) proves itself first, and speaks HTTP/1.1. Neither a dial nor a signature is to be had
//! without the one or the other. A certificate that bears the name is never shown to who doesn't
//! know it.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io;
use std::net::{Ipv4Addr, TcpListener as StdListener};
use std::sync::Arc;
use std::time::Duration;

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
use tokio::time::{sleep, timeout};
use tokio_rustls::LazyConfigAcceptor;
use tokio_rustls::server::{StartHandshake, TlsStream};
use zeroize::Zeroizing;

use super::relay::relay;
use super::upstream::{ServerStream, Upstream};
use super::wire::Wire;
use super::{preparation, trust};
use crate::error::RunError;
use crate::kubeconfig::Detour;

/// A connection that is silent for longer is not the command's.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(10);

/// With no descriptor left, one may become free.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_millis(50);

/// Below the ports that systems give to outgoing connections, where few services are.
const FIRST_PORT: u16 = 20_000;
const PORTS: u64 = 12_000;
const ATTEMPTS: u64 = 8;

const HTTP_1_1: &[u8] = b"http/1.1";

/// What the command and the tunnel know each other by; made in memory, for one run.
pub(super) struct Credentials {
    authority: String,
    server_name: String,
    certificate: String,
    key: Zeroizing<String>,
    /// For connections that ask for the server name.
    named: Arc<ServerConfig>,
    /// For connections that don't.
    plain: Arc<ServerConfig>,
}

impl Credentials {
    pub(super) fn new() -> Result<Self, RunError> {
        let mut random = [0; 16];
        getrandom::fill(&mut random).map_err(|error| preparation(&error))?;
        let label: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
        Self::issued(format!("{label}.run.invalid")).map_err(|error| preparation(&error))
    }

    fn issued(server_name: String) -> Result<Self, Box<dyn std::error::Error>> {
        let mut params = params("pkcs11-external-signer run");
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let authority = CertifiedIssuer::self_signed(params, key_pair()?)?;

        let named = SanType::DnsName(server_name.as_str().try_into()?);
        let address = SanType::IpAddress(Ipv4Addr::LOCALHOST.into());
        let named = server_config(&authority, vec![named, address.clone()])?;
        let plain = server_config(&authority, vec![address])?;

        let mut params = self::params("command");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let key = key_pair()?;
        Ok(Self {
            certificate: params.signed_by(&key, &authority)?.pem(),
            key: Zeroizing::new(key.serialize_pem()),
            authority: authority.pem(),
            server_name,
            named: Arc::new(named),
            plain: Arc::new(plain),
        })
    }

    /// What a kubeconfig has to say for the port at this address.
    pub(super) fn detour<'a>(&'a self, address: &'a str) -> Detour<'a> {
        Detour {
            address,
            server_name: &self.server_name,
            authority_pem: &self.authority,
            certificate_pem: &self.certificate,
            key_pem: &self.key,
        }
    }
}

fn key_pair() -> Result<KeyPair, rcgen::Error> {
    KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)
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
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
            .build()?;
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
pub(super) fn bind(server: &str) -> Result<StdListener, RunError> {
    let mut hasher = DefaultHasher::new();
    server.hash(&mut hasher);
    let preferred = (0..ATTEMPTS).map(|attempt| {
        let place = hasher.finish().wrapping_add(attempt) % PORTS;
        FIRST_PORT + u16::try_from(place).unwrap_or_default()
    });
    let mut outcome = Err(io::Error::other("no port was tried"));
    for port in preferred.chain([0]) {
        outcome = StdListener::bind((Ipv4Addr::LOCALHOST, port));
        if outcome.is_ok() {
            break;
        }
    }
    outcome
        .and_then(|listener| {
            listener.set_nonblocking(true)?;
            Ok(listener)
        })
        .map_err(|error| RunError::Listener {
            reason: error.to_string(),
        })
}

type Hello = StartHandshake<Wire<TcpStream>>;
type CommandStream = TlsStream<Wire<TcpStream>>;

/// A port, and the server it leads to.
pub(super) struct Listener {
    socket: TcpListener,
    gate: Arc<Gate>,
}

/// What decides about a connection.
struct Gate {
    upstream: Upstream,
    server_name: String,
    named: Arc<ServerConfig>,
    plain: Arc<ServerConfig>,
    /// Ends a handshake with the alert "access denied".
    refusal: Arc<ServerConfig>,
}

impl Listener {
    pub(super) fn new(socket: TcpListener, upstream: Upstream, credentials: &Credentials) -> Self {
        let mut refusal = ServerConfig::clone(&credentials.plain);
        refusal.cert_resolver = Arc::new(NoCertificate);
        Self {
            socket,
            gate: Arc::new(Gate {
                upstream,
                server_name: credentials.server_name.clone(),
                named: Arc::clone(&credentials.named),
                plain: Arc::clone(&credentials.plain),
                refusal: Arc::new(refusal),
            }),
        }
    }

    /// Accepts connections for ever, each in a task of its own.
    pub(super) async fn serve(self) {
        loop {
            match self.socket.accept().await {
                Ok((connection, _)) => {
                    let gate = Arc::clone(&self.gate);
                    tokio::spawn(async move { gate.serve(connection).await });
                }
                Err(_) => sleep(PAUSE_AFTER_FAILURE).await,
            }
        }
    }
}

impl Gate {
    async fn serve(&self, connection: TcpStream) {
        // Boxed: making a connection takes room that need not be held as long as it lasts.
        let Some((command, server)) = Box::pin(self.admit(connection)).await else {
            return;
        };
        if let Err(broken) = relay(command, server).await
            && let Some(error) = self.upstream.explain(&broken)
        {
            self.upstream.tell(&error);
        }
    }

    /// The two ends of a connection that may be joined; who was refused, and why, has been told.
    async fn admit(&self, connection: TcpStream) -> Option<(CommandStream, ServerStream)> {
        let _ = connection.set_nodelay(true);
        let hello = LazyConfigAcceptor::new(Acceptor::default(), Wire::new(connection));
        let hello = match in_time(hello).await {
            Ok(hello) => hello,
            Err(error) => return self.refuse(&error),
        };
        let (command, server) =
            if hello.client_hello().server_name() == Some(self.server_name.as_str()) {
                self.admit_named(hello).await?
            } else {
                self.admit_unnamed(hello).await?
            };
        self.upstream.connected(&server);
        Some((command, server))
    }

    /// To the server first, which chooses among the protocols that the command offers.
    async fn admit_named(&self, hello: Hello) -> Option<(CommandStream, ServerStream)> {
        let server = match self.upstream.connect(offered(&hello.client_hello())).await {
            Ok(server) => server,
            Err(error) => {
                self.upstream.tell(&error);
                let _ = in_time(hello.into_stream(Arc::clone(&self.refusal))).await;
                return None;
            }
        };
        let config = speaking(&self.named, server.get_ref().1.alpn_protocol());
        match in_time(hello.into_stream(config)).await {
            Ok(command) => Some((command, server)),
            Err(error) => self.refuse(&error),
        }
    }

    /// The certificate first.
    async fn admit_unnamed(&self, hello: Hello) -> Option<(CommandStream, ServerStream)> {
        let mut offered = offered(&hello.client_hello());
        offered.retain(|protocol| protocol == HTTP_1_1);
        let config = speaking(&self.plain, offered.first().map(Vec::as_slice));
        let command = match in_time(hello.into_stream(config)).await {
            Ok(command) => command,
            Err(error) => return self.refuse(&error),
        };
        match self.upstream.connect(offered).await {
            Ok(server) => Some((command, server)),
            Err(error) => {
                self.upstream.tell(&error);
                None
            }
        }
    }

    fn refuse<T>(&self, error: &io::Error) -> Option<T> {
        self.upstream.refused(&error.to_string());
        None
    }
}

async fn in_time<T>(handshake: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    timeout(HANDSHAKE_LIMIT, handshake)
        .await
        .unwrap_or_else(|_| Err(io::Error::other("it was silent for too long")))
}

fn offered(hello: &ClientHello<'_>) -> Vec<Vec<u8>> {
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
        let credentials = Credentials::new().unwrap();
        for pem in [&credentials.authority, &credentials.certificate] {
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
        assert!(address.ip().is_loopback());
        let second = port("https://one.example:6443").local_addr().unwrap();
        assert_ne!(second, address);
        drop(first);
        let again = port("https://one.example:6443").local_addr().unwrap();
        assert_eq!(again, address);
    }
}
