//! A cluster's API server: where it is, which protocol it chooses, and what is reported about it.

use std::sync::{Arc, Mutex};

use http::Uri;
use rustls::pki_types::ServerName;
use tokio::time::timeout;

use super::error::{self, timed_out};
use super::wire::Stream;
use super::{Trouble, TunnelObserver, TunnelTarget};
use super::{limits, route};
use messages::error::Error;
use system::clock::unix_time;
use system::locked;

pub(super) const HTTP_1_1: &[u8] = b"http/1.1";
pub(super) const HTTP_2: &[u8] = b"h2";

/// A cluster's server, shared by all connections to it.
pub(super) struct Server {
    pub(super) target: TunnelTarget,
    pub(super) observer: Arc<dyn TunnelObserver>,
    preference: Mutex<Preference>,
    last_trouble: Mutex<Option<Trouble>>,
}

/// Where a server is, and the name that it proves.
pub(super) struct ServerAddress {
    /// The URL to dial.
    url: Uri,
    /// The name that the server's certificate must bear.
    pub(super) name: ServerName<'static>,
}

/// Which protocol a server chooses if HTTP/1.1 and HTTP/2 are offered to it.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) enum Preference {
    /// Nobody has asked the server yet.
    #[default]
    Unknown,
    BeingAsked,
    Http1,
    Http2,
}

impl Server {
    pub(super) fn new(target: TunnelTarget, observer: Arc<dyn TunnelObserver>) -> Arc<Self> {
        Arc::new(Self {
            target,
            observer,
            preference: Mutex::default(),
            last_trouble: Mutex::default(),
        })
    }

    /// Which of the protocols (ALPN) that a client offers the server would choose. Until that is known, it is HTTP/1.1,
    /// which all speak.
    pub(super) fn choice(&self, offer: &[Vec<u8>]) -> Option<Vec<u8>> {
        let preferred = match *locked(&self.preference) {
            Preference::Http2 => HTTP_2,
            _ => HTTP_1_1,
        };
        let find = |wanted| offer.iter().find(|protocol| *protocol == wanted);
        match offer {
            [only] => Some(only.clone()),
            _ => find(preferred).or_else(|| find(HTTP_1_1)).cloned(),
        }
    }

    /// Whether the server's choice is unknown and nobody is asking for it. If so, the caller has to ask, and the choice is
    /// HTTP/1.1 until it has.
    pub(super) fn is_first_to_ask(&self) -> bool {
        let mut preference = locked(&self.preference);
        let is_first = *preference == Preference::Unknown;
        if is_first {
            *preference = Preference::BeingAsked;
        }
        is_first
    }

    /// Notes the server's choice, or that it is unknown: another server may be there now.
    pub(super) fn prefers(&self, preference: Preference) {
        *locked(&self.preference) = preference;
    }

    /// Where the server is.
    pub(super) fn address(&self) -> Result<ServerAddress, Error> {
        let unusable = |reason: &str| self.error(error::unusable(reason));
        let cluster = &self.target.cluster;
        let url = route::server_url(cluster).map_err(unusable)?;
        let name = cluster.tls_server_name.as_deref().unwrap_or_else(|| route::host(&url));
        let name = ServerName::try_from(name.to_owned())
            .map_err(|_| unusable("its server or tls-server-name is not a name"))?;
        Ok(ServerAddress { url, name })
    }

    /// Connects to the server, through a proxy if there is one.
    pub(super) async fn dial(&self) -> Result<Box<dyn Stream>, Error> {
        let url = self.address()?.url;
        let dialled = timeout(limits::DIAL, route::dial(&self.target.cluster, &url)).await;
        let late = |_| Err(timed_out("connecting", limits::DIAL.as_secs()));
        dialled.unwrap_or_else(late).map_err(|error| self.error(error))
    }

    pub(super) fn note_trouble(&self, error: &Error) {
        let trouble = Trouble { time: unix_time(), message: error.sentence() };
        *locked(&self.last_trouble) = Some(trouble);
    }

    pub(super) fn last_trouble(&self) -> Option<Trouble> {
        locked(&self.last_trouble).clone()
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

    /// The error, with the cluster's name and server in its text.
    pub(super) fn error(&self, error: Error) -> Error {
        let TunnelTarget { name, cluster } = &self.target;
        error.about(format_args!("cluster \"{name}\" ({})", cluster.server))
    }
}
