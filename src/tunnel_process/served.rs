//! What the tunnel process serves now: keys, in their token processes, and clusters, at their addresses.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::net::SocketAddr;
use std::process::Stdio;
use std::sync::Arc;

use super::VERSION;
use super::environment::Environment;
use super::identity::identity;
use super::lifetime::ServedKey;
use super::message::{ClusterStatus, RegisteredCluster, Registration, StatusDocument};
use super::repeated::{CallDigest, KnownCall, KnownCalls};
use super::service::Service;
use super::token_process::{self, TokenProcess};
use config::Config;
use keyring::{KeyNumber, OpenKey, stopped};
use kubeconfig::{Cluster, write_command};
use messages::error::{DOCUMENT_VERSION, Error};
use messages::help::{Help, command};
use system::clock::time_since_boot;
use system::shortage;
use tunnel::{KeyUsage, TunnelObserver, TunnelTarget, Tunnels, tunnel_error};

/// What the tunnel process serves. Its threads look at it and change it one at a time.
#[derive(Default)]
pub(super) struct Served {
    /// The tunnels; made for the first cluster.
    pub(super) tunnels: Option<Tunnels>,
    /// The certificate, in PEM, that local clients trust; set when the tunnels are made.
    authority: Option<String>,
    clusters: BTreeMap<SocketAddr, RegisteredCluster>,
    /// The keys by their numbers. A key that is closed stays here; all are taken out when the process ends.
    pub(super) keys: BTreeMap<KeyNumber, ServedKey>,
    /// The plugin's calls that were answered.
    pub(super) calls: KnownCalls,
    /// How many clients are connected.
    pub(super) clients: usize,
    /// Whether the process is to end.
    pub(super) is_stopping: bool,
}

/// A key, and the token process that has its library.
pub(super) struct KeyInProcess {
    pub(super) number: KeyNumber,
    pub(super) process: Arc<TokenProcess>,
    /// Whether the process was started just now, for this key.
    pub(super) is_new_process: bool,
}

impl Served {
    /// Whether this process can serve the client, or has to make way for another one.
    pub(super) fn can_serve(&self, registration: &Registration) -> bool {
        let authorities = self.authority.as_ref().zip(registration.authority.as_ref());
        !self.is_stopping && authorities.is_none_or(|(served, wanted)| served == wanted)
    }

    /// The call of this digest, if it was answered and can be answered again without opening anything.
    pub(super) fn answerable(&mut self, digest: &CallDigest) -> Option<KnownCall> {
        let known = self.calls.find(digest)?;
        let usage = usage(self.tunnels.as_ref(), known.key);
        let can_serve = self.can_serve(&known.registration);
        let key = self.keys.get_mut(&known.key)?;
        let is_open = key.open.is_some() && !key.is_lost() && key.admits_clients(usage);
        Some(known).filter(|_| can_serve && is_open)
    }

    /// Closes the keys that nothing keeps open any more. If there is no key and no client left, the process is to end.
    pub(super) fn tidy(&mut self) {
        let tunnels = self.tunnels.as_ref();
        let in_process = self.keys.iter_mut().filter(|(_, key)| key.process.is_some());
        let unused = in_process.filter_map(|(number, key)| {
            let is_kept = key.is_kept(usage(tunnels, *number));
            (!is_kept).then_some(*number)
        });
        for number in unused.collect::<Vec<_>>() {
            self.close_key(number);
        }
        let holds_keys = self.keys.values().any(|key| key.process.is_some());
        self.is_stopping |= self.clients == 0 && !holds_keys;
    }

    /// Closes the key. Its clients' certificate is worth nothing any more, even if the key is opened again.
    fn close_key(&mut self, number: KeyNumber) {
        if let Some(tunnels) = &self.tunnels {
            tunnels.withdraw(number);
        }
        if let Some(key) = self.keys.get_mut(&number) {
            key.close(number);
        }
    }

    /// Finds or adds the key with this configuration, and finds or starts a token process for it.
    pub(super) fn key_in_process(
        &mut self,
        configuration: &[(String, String)],
        config: &Config,
        environment: &Environment,
    ) -> Result<KeyInProcess, Error> {
        let name = token_process::name(config, environment);
        let mut known = self.keys.iter().filter(|(_, key)| key.is_for(&name, configuration));
        let known = known.next().map(|(number, _)| *number);
        let number = known.unwrap_or(KeyNumber { library: 0, key: self.keys.len() });
        let running = self.running_process(&name, number);
        let key = self.keys.entry(number).or_insert_with(|| ServedKey {
            configuration: configuration.to_vec(),
            name,
            last_use: time_since_boot(),
            ..ServedKey::default()
        });
        if key.is_lost() {
            key.open = None;
        }
        let is_new_process = running.is_none();
        // Other processes of the same library stay, for their keys.
        let process = match running {
            Some(process) => process,
            None => new_process(config, environment.clone())?,
        };
        key.process = Some(Arc::clone(&process));
        Ok(KeyInProcess { number, process, is_new_process })
    }

    /// The token process of this name that is running: that of the key, or else another one's.
    fn running_process(&self, name: &OsStr, number: KeyNumber) -> Option<Arc<TokenProcess>> {
        let own = self.keys.get(&number).into_iter();
        own.chain(self.keys.values())
            .filter_map(|key| key.process.as_ref())
            .find(|process| process.name == name && !process.has_ended())
            .cloned()
    }

    /// Keeps warnings for the next client of the key, since this one can't show them.
    pub(super) fn keep_warnings(&mut self, number: KeyNumber, warnings: Vec<String>) {
        if let Some(key) = self.keys.get_mut(&number) {
            key.untold_warnings.extend(warnings);
        }
    }

    /// The key, and how its certificate is used.
    pub(super) fn used_key(
        &mut self,
        number: KeyNumber,
    ) -> Result<(&mut ServedKey, KeyUsage), Error> {
        let usage = usage(self.tunnels.as_ref(), number);
        let key = self.keys.get_mut(&number);
        let key = key.ok_or_else(stopped)?;
        Ok((key, usage))
    }

    /// The key as it was opened, and the process in which it is open.
    pub(super) fn open_key(
        &self,
        number: KeyNumber,
    ) -> Result<(Arc<TokenProcess>, Arc<OpenKey>), Error> {
        let key = self.keys.get(&number).ok_or_else(stopped)?;
        let open = key.process.clone().zip(key.open.clone());
        open.ok_or_else(|| Error::internal("the key was closed"))
    }

    /// Serves the cluster at its address, unless it is served there already. The tunnels get their keys from `service`.
    pub(super) fn serve_cluster(
        &mut self,
        cluster: &RegisteredCluster,
        service: &Arc<Service>,
    ) -> Result<(), Error> {
        if let Some(served) = self.clusters.get(&cluster.address) {
            // A cluster is never exchanged for another one, to which clients that run would get then.
            return if served.cluster == cluster.cluster {
                Ok(())
            } else {
                Err(leads_elsewhere(cluster, served))
            };
        }
        let tunnels = match &mut self.tunnels {
            Some(tunnels) => tunnels,
            None => {
                let identity = identity()?;
                self.authority = Some(identity.authority_pem().to_owned());
                let observer: Arc<dyn TunnelObserver> = Arc::clone(service) as _;
                self.tunnels.insert(Tunnels::start(&identity, Arc::clone(service) as _, &observer)?)
            }
        };
        let target = TunnelTarget {
            name: cluster.name.clone(),
            cluster: Cluster { proxy_url: cluster.proxy_url.clone(), ..cluster.cluster.clone() },
        };
        tunnels.listen(target, Some(cluster.address))?;
        self.clusters.insert(cluster.address, cluster.clone());
        Ok(())
    }

    /// What `status` shows.
    pub(super) fn status(&self) -> StatusDocument {
        let tunnels = self.tunnels.as_ref();
        let keys = self.keys.iter().filter(|(_, key)| !key.is_lost());
        let open = keys.filter_map(|(number, key)| key.status(usage(tunnels, *number)));
        let clusters = self.clusters.values().map(|served| ClusterStatus {
            name: served.name.clone(),
            server: served.cluster.server.clone(),
            address: served.address,
            last_trouble: tunnels.and_then(|tunnels| tunnels.last_trouble(served.address)),
        });
        StatusDocument {
            api_version: DOCUMENT_VERSION.to_owned(),
            pid: std::process::id(),
            version: VERSION.to_owned(),
            keys: open.collect(),
            clusters: clusters.collect(),
        }
    }
}

/// Starts a new token process for the library, which serves no key yet.
pub(super) fn new_process(
    config: &Config,
    environment: Environment,
) -> Result<Arc<TokenProcess>, Error> {
    let name = token_process::name(config, &environment);
    let started = TokenProcess::start(name, config, Stdio::null(), environment);
    Ok(Arc::new(started.map_err(shortage)?))
}

/// The error for a cluster at whose address another one is served.
fn leads_elsewhere(cluster: &RegisteredCluster, served: &RegisteredCluster) -> Error {
    tunnel_error(
        format!(
            "{} leads to cluster \"{}\" ({}) already, whose server, CA, tls-server-name or proxy-url is another \
             than that of \"{}\"",
            cluster.address, served.name, served.cluster.server, cluster.name
        ),
        Help::from("give one of them another address: ")
            .and(write_command())
            .and("; or end what is served with ")
            .and(command("stop")),
    )
}

fn usage(tunnels: Option<&Tunnels>, key: KeyNumber) -> KeyUsage {
    tunnels.map_or_else(KeyUsage::default, |tunnels| tunnels.clients.usage(key))
}

#[cfg(test)]
mod tests {
    use super::*;
    use kubeconfig::local_address;
    use tunnel::ServerIdentity;

    #[test]
    fn a_key_that_is_closed_has_another_certificate_when_it_is_opened_again() {
        let service = Arc::new(Service::default());
        let identity = ServerIdentity::generate(&[local_address().into()]).unwrap();
        let observer: Arc<dyn TunnelObserver> = Arc::clone(&service) as _;
        let tunnels = Tunnels::start(&identity, Arc::clone(&service) as _, &observer).unwrap();
        let mut served = Served { tunnels: Some(tunnels), ..Served::default() };
        let number = KeyNumber::default();
        served.keys.insert(number, ServedKey::default());
        let certificate = |served: &Served| {
            let tunnels = served.tunnels.as_ref().unwrap();
            tunnels.clients.certificate(number).unwrap().certificate_pem
        };
        let former = certificate(&served);
        assert_eq!(certificate(&served), former);
        served.close_key(number);
        assert_ne!(certificate(&served), former);
    }
}
