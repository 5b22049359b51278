//! A cluster's API server: where it is, what it chooses of the protocols offered, how long it may be
//! silent, and what is reported of it.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::Uri;
use rustls::pki_types::ServerName;
use tokio::time::{Instant, sleep};

use super::address::Address;
use super::alpn::Offer;
use super::error::{UpstreamError, UpstreamFailure};
use super::proxy::Route;
use super::wire::Stream;
use super::{TunnelObserver, TunnelTarget};
use crate::error::Error;
use crate::kubeconfig::Cluster;

/// How long a server may take to accept a connection: as long as kubectl gives it.
const DIAL_LIMIT: Duration = Duration::from_secs(30);
/// How long a server may be silent in a handshake: as long as kubectl gives it for the whole.
const SILENCE_LIMIT: Duration = Duration::from_secs(10);
/// How long it may take to connect and to learn the server's choice of protocol. The command's own
/// handshake waits for it, for which kubectl gives 10 s, and then it must still be told.
const CHOICE_LIMIT: Duration = Duration::from_secs(8);
/// A wait that takes longer is reported.
const NOTICE: Duration = Duration::from_secs(5);
/// A command that gives up before this time knows why.
const SHORT: Duration = Duration::from_secs(2);

/// A cluster's server, for all connections to it.
pub(super) struct Server {
    cluster: TunnelTarget,
    pub(super) observer: Arc<dyn TunnelObserver>,
    choices: Mutex<HashMap<Offer, Option<Vec<u8>>>>,
    /// It was reported that the server is silent, and it hasn't answered since.
    is_silent: AtomicBool,
    /// The same of a command that gave up.
    is_given_up: AtomicBool,
}

/// Why there is no connection.
pub(super) enum NotConnected {
    Failed(Error),
    /// The command has gone.
    Unwanted,
}

impl From<Error> for NotConnected {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

/// Resolves when the command has gone.
pub(super) type Gone<'a> = Pin<&'a mut (dyn Future<Output = ()> + Send)>;

impl Server {
    pub(super) fn new(cluster: TunnelTarget, observer: Arc<dyn TunnelObserver>) -> Arc<Self> {
        Arc::new(Self {
            cluster,
            observer,
            choices: Mutex::default(),
            is_silent: AtomicBool::new(false),
            is_given_up: AtomicBool::new(false),
        })
    }

    pub(super) fn cluster(&self) -> &Cluster {
        &self.cluster.cluster
    }

    /// What the server is known to choose of an offer.
    pub(super) fn known_choice(&self, offer: &Offer) -> Option<Option<Vec<u8>>> {
        if offer.len() < 2 {
            return Some(offer.first().cloned());
        }
        self.choices().get(offer).cloned()
    }

    /// What it chose, by the offers.
    pub(super) fn choices(&self) -> MutexGuard<'_, HashMap<Offer, Option<Vec<u8>>>> {
        self.choices.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The address to dial, and the name that the server's certificate must bear.
    pub(super) fn address(&self) -> Result<(Address, ServerName<'static>), Error> {
        let unusable = |reason: &str| self.error(UpstreamFailure::Unusable(reason.to_owned()));
        let address = address_of(self.cluster()).map_err(unusable)?;
        let name = match &self.cluster().tls_server_name {
            Some(name) => name,
            None => address.host(),
        };
        let name = ServerName::try_from(name.to_owned())
            .map_err(|_| unusable("its server or tls-server-name is not a name"))?;
        Ok((address, name))
    }

    /// The server's host and port, as HTTP names it.
    pub(super) fn host(&self) -> String {
        let address = self.address().ok();
        address.map_or_else(String::new, |(address, _)| address.to_string())
    }

    /// A connection, through a proxy where there is one.
    pub(super) async fn dial(&self, gone: Gone<'_>) -> Result<Box<dyn Stream>, NotConnected> {
        let stream = self.answer("connecting", DIAL_LIMIT, gone, self.stream());
        Ok(stream.await??)
    }

    async fn stream(&self) -> Result<Box<dyn Stream>, Error> {
        let (address, _) = self.address()?;
        let route = Route::to(address, &self.cluster);
        let stream = async { route?.dial().await };
        stream.await.map_err(|failure| self.error(failure))
    }

    /// What `ask` learns of the server's choice, over a connection of its own.
    pub(super) async fn choice<T, F>(
        &self,
        gone: Gone<'_>,
        ask: impl FnOnce(Box<dyn Stream>) -> F + Send,
    ) -> Result<T, NotConnected>
    where
        F: Future<Output = Result<T, Error>> + Send,
    {
        let choice = async { ask(self.stream().await?).await };
        let choice = self.answer("connecting", CHOICE_LIMIT, gone, choice);
        Ok(choice.await??)
    }

    /// What the server answers in a handshake.
    pub(super) async fn next_message<T>(
        &self,
        gone: Gone<'_>,
        message: impl Future<Output = T> + Send,
    ) -> Result<T, NotConnected> {
        self.answer("the TLS handshake", SILENCE_LIMIT, gone, message).await
    }

    /// Waits for the server: `limit` at most, and not once the command has gone. Long waits are
    /// reported, once until the server answers.
    async fn answer<T>(
        &self,
        doing: &'static str,
        limit: Duration,
        gone: Gone<'_>,
        answer: impl Future<Output = T> + Send,
    ) -> Result<T, NotConnected> {
        let mut wait = Wait { server: self, begin: Some(Instant::now()) };
        let silence = async {
            sleep(NOTICE).await;
            if !self.is_silent.swap(true, Ordering::Relaxed) {
                let text = format!("no answer for {} s", NOTICE.as_secs());
                self.observer.waiting(&self.of_cluster(&text));
            }
            sleep(limit.saturating_sub(NOTICE)).await;
        };
        tokio::select! {
            biased;
            answer = answer => {
                wait.begin = None;
                self.is_silent.store(false, Ordering::Relaxed);
                self.is_given_up.store(false, Ordering::Relaxed);
                Ok(answer)
            }
            () = gone => Err(NotConnected::Unwanted),
            () = silence => {
                wait.begin = None;
                let seconds = limit.as_secs();
                Err(self.error(UpstreamFailure::TimedOut { doing, seconds }).into())
            }
        }
    }

    fn of_cluster(&self, text: &str) -> String {
        let TunnelTarget { name, cluster, .. } = &self.cluster;
        format!("cluster \"{name}\" ({}): {text}", cluster.server)
    }

    pub(super) fn tell_late(&self, text: &str) {
        let name = &self.cluster.name;
        self.observer.concern(&format!("cluster \"{name}\": {text}"));
    }

    /// Reports a connection that was made or refused.
    pub(super) fn tell_connection(&self, text: &str) {
        let name = &self.cluster.name;
        self.observer.connection(&format!("cluster \"{name}\": {text}"));
    }

    pub(super) fn error(&self, failure: UpstreamFailure) -> Error {
        UpstreamError {
            cluster: self.cluster.name.clone(),
            server: self.cluster().server.clone(),
            failure,
        }
        .into()
    }
}

/// The address of a cluster's server, or why it has none.
pub(super) fn address_of(cluster: &Cluster) -> Result<Address, &'static str> {
    const NO_URL: &str = "its server is not a URL";
    let server = &cluster.server;
    let url = match server.split_once("://") {
        None => format!("https://{server}"),
        Some(_) => server.clone(),
    };
    let url = Uri::try_from(url).map_err(|_| NO_URL)?;
    match url.scheme_str() {
        Some("https") => Address::of(&url, 443).ok_or(NO_URL),
        _ => Err("its server is not an https URL, and a certificate needs TLS"),
    }
}

/// A wait for a server. It is reported if it is given up after a while, also by the end of the run.
struct Wait<'a> {
    server: &'a Server,
    begin: Option<Instant>,
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        let waited = self.begin.map_or(Duration::ZERO, |begin| begin.elapsed());
        if waited >= SHORT && !self.server.is_given_up.swap(true, Ordering::Relaxed) {
            let seconds = waited.as_secs();
            let text = format!("no answer for {seconds} s, and the command has given up");
            self.server.observer.concern(&self.server.of_cluster(&text));
        }
    }
}
