//! A cluster's API server: where it is, what it chooses, how long it may take, what is reported of it.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::Uri;
use rustls::pki_types::ServerName;
use tokio::time::timeout;

use super::error::{self, timed_out};
use super::route;
use super::wire::Stream;
use super::{TunnelObserver, TunnelTarget};
use base::error::Error;
use base::process::locked;

/// How long a server may take to accept a connection: as long as kubectl gives it.
const DIAL_LIMIT: Duration = Duration::from_secs(30);

pub(super) const HTTP_1_1: &[u8] = b"http/1.1";
pub(super) const HTTP_2: &[u8] = b"h2";

/// A cluster's server, for all connections to it.
pub(super) struct Server {
    pub(super) target: TunnelTarget,
    pub(super) observer: Arc<dyn TunnelObserver>,
    /// Whether it chooses HTTP/2 where it is offered both; `None` until it is asked.
    pub(super) prefers_http_2: Mutex<Option<bool>>,
}

impl Server {
    pub(super) fn new(target: TunnelTarget, observer: Arc<dyn TunnelObserver>) -> Arc<Self> {
        Arc::new(Self { target, observer, prefers_http_2: Mutex::default() })
    }

    /// What it chooses of the protocols (ALPN) that a client offers; until that is known, what all speak.
    pub(super) fn choice(&self, offer: &[Vec<u8>]) -> Option<Vec<u8>> {
        let prefers_http_2 = *locked(&self.prefers_http_2) == Some(true);
        let preferred = if prefers_http_2 { HTTP_2 } else { HTTP_1_1 };
        let find = |wanted| offer.iter().find(|protocol| *protocol == wanted);
        match offer {
            [only] => Some(only.clone()),
            _ => find(preferred).or_else(|| find(HTTP_1_1)).cloned(),
        }
    }

    /// Whether the server's choice isn't known, and nobody asks for it yet; until then it is HTTP/1.1.
    pub(super) fn is_first_to_ask(&self) -> bool {
        let mut known = locked(&self.prefers_http_2);
        let is_first = known.is_none();
        known.get_or_insert(false);
        is_first
    }

    /// The URL to dial, and the name that the server's certificate must bear.
    pub(super) fn address(&self) -> Result<(Uri, ServerName<'static>), Error> {
        let unusable = |reason: &str| self.error(error::unusable(reason));
        let cluster = &self.target.cluster;
        let url = route::server_url(cluster).map_err(unusable)?;
        let name = cluster.tls_server_name.as_deref().unwrap_or_else(|| route::host(&url));
        let name = ServerName::try_from(name.to_owned())
            .map_err(|_| unusable("its server or tls-server-name is not a name"))?;
        Ok((url, name))
    }

    /// A connection, through a proxy where there is one.
    pub(super) async fn dial(&self) -> Result<Box<dyn Stream>, Error> {
        let (url, _) = self.address()?;
        let dialled = timeout(DIAL_LIMIT, route::dial(&self.target.cluster, &url)).await;
        let late = |_| Err(timed_out("connecting", DIAL_LIMIT.as_secs()));
        dialled.unwrap_or_else(late).map_err(|error| self.error(error))
    }

    pub(super) fn concern(&self, text: &str) {
        let name = &self.target.name;
        self.observer.concern(&format!("cluster \"{name}\": {text}"));
    }

    /// Reports a connection that was made or refused.
    pub(super) fn report_connection(&self, text: &str) {
        let name = &self.target.name;
        self.observer.connection(&format!("cluster \"{name}\": {text}"));
    }

    /// The error, with the cluster's name and server.
    pub(super) fn error(&self, error: Error) -> Error {
        let TunnelTarget { name, cluster } = &self.target;
        error.about(format_args!("cluster \"{name}\" ({})", cluster.server))
    }
}
