//! A client of a tunnel, as kubectl is one: it connects to the local address and trusts what the kubeconfig names.

use std::fmt::{self, Display, Formatter};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::alpn::HTTP_1_1;
use super::error::{ServedError, UpstreamError, UpstreamFailure};
use super::{ClientCertificate, trust};
use crate::error::Error;
use crate::exec_credential::LocalCluster;

/// How long a tunnel may take for a connection and its handshake, for which it doesn't ask the server.
const LIMIT: Duration = Duration::from_secs(10);

/// What such a client knows.
pub struct TunnelClient {
    /// The cluster, as the tunnel names it.
    cluster: String,
    server: String,
    /// What the kubeconfig has for the local address.
    url: String,
    address: SocketAddr,
    name: ServerName<'static>,
    config: Arc<ClientConfig>,
}

impl TunnelClient {
    /// A client of the tunnel at `address`, which leads to `cluster` (its name and URL). It trusts the entry's
    /// authority alone, asks for the entry's name or else for the address, and shows this certificate.
    ///
    /// # Errors
    ///
    /// One of them can't be used.
    pub fn new(
        entry: &LocalCluster,
        address: SocketAddr,
        cluster: [&str; 2],
        certificate: &ClientCertificate,
    ) -> Result<Self, Error> {
        let unusable = |what: &str, reason: &dyn Display| {
            Error::internal(format!("the local connection: {what}: {reason}"))
        };
        let mut roots = RootCertStore::empty();
        let authority = entry.authority.as_deref().unwrap_or_default();
        for trusted in CertificateDer::pem_slice_iter(authority) {
            let trusted = trusted.map_err(|error| unusable("its CA", &error))?;
            roots.add(trusted).map_err(|error| unusable("its CA", &error))?;
        }
        let chain = CertificateDer::pem_slice_iter(certificate.certificate_pem.as_bytes());
        let chain =
            chain.collect::<Result<_, _>>().map_err(|error| unusable("the certificate", &error))?;
        let key = PrivateKeyDer::from_pem_slice(certificate.key_pem.as_bytes())
            .map_err(|error| unusable("the key", &error))?;
        let mut config = ClientConfig::builder_with_provider(trust::provider())
            .with_safe_default_protocol_versions()
            .map_err(|error| unusable("TLS", &error))?
            .with_root_certificates(roots)
            .with_client_auth_cert(chain, key)
            .map_err(|error| unusable("the certificate", &error))?;
        config.alpn_protocols = vec![HTTP_1_1.to_vec()];
        let name = match &entry.tls_server_name {
            Some(name) => ServerName::try_from(name.clone())
                .map_err(|error| unusable("tls-server-name", &error))?,
            None => address.ip().into(),
        };
        let [cluster, server] = cluster.map(str::to_owned);
        Ok(Self {
            cluster,
            server,
            url: entry.server.clone(),
            address,
            name,
            config: Arc::new(config),
        })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(super) fn url(&self) -> &str {
        &self.url
    }

    pub(super) async fn connect(&self) -> Result<TlsStream<TcpStream>, Error> {
        let connection = async {
            let stream = TcpStream::connect(self.address).await?;
            let connector = TlsConnector::from(Arc::clone(&self.config));
            connector.connect(self.name.clone(), stream).await
        };
        match timeout(LIMIT, connection).await {
            Ok(made) => made.map_err(|error| self.error(&error)),
            Err(_) => Err(self.error(&format!("it took longer than {} s", LIMIT.as_secs()))),
        }
    }

    /// There is no answer of the tunnel.
    pub(super) fn error(&self, reason: &dyn Display) -> Error {
        let (address, reason) = (self.address, reason.to_string());
        ServedError::Silent { address, reason }.into()
    }

    /// A failure with the server at the other end.
    pub(super) fn upstream_error(&self, failure: UpstreamFailure) -> Error {
        UpstreamError { cluster: self.cluster.clone(), server: self.server.clone(), failure }.into()
    }
}

/// The cluster in messages.
impl Display for TunnelClient {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "cluster \"{}\" ({})", self.cluster, self.server)
    }
}
