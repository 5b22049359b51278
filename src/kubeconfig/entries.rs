//! What the entries of a kubeconfig say, as far as a connection to the cluster needs it.

use serde::{Deserialize, Serialize};

use super::error::KubeconfigError;
use super::exec;
use super::file::{self, ReadFailure};
use super::model::{ClusterEntry, Kubeconfig, UserEntry, decode_base64};
use super::tunnelled::{self, tunnelled};
use crate::exec_credential::LocalCluster;
use crate::protocol::Configuration;

/// The provider whose users are ours.
pub(super) const EXTERNAL_SIGNER: &str = "externalSigner";

/// A context: which cluster is used as which user. Either name can be one that isn't there.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Context {
    pub name: String,
    pub cluster: String,
    pub user: String,
}

/// How to reach a cluster and know its server.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Cluster {
    /// A URL, never empty, and without a user and a password; kubectl takes one without a scheme too.
    pub server: String,
    /// PEM. `certificate-authority-data` wins over the file.
    pub authority: Option<Vec<u8>>,
    pub tls_server_name: Option<String>,
    /// The server isn't to be verified; never together with `authority`.
    pub insecure: bool,
    /// A URL: http, https or socks5.
    pub proxy_url: Option<String>,
}

impl Cluster {
    /// All of it as a text, from which its local address follows.
    pub fn identity(&self) -> String {
        let Self { server, authority, tls_server_name, insecure, proxy_url } = self;
        format!("{server} {authority:?} {tls_server_name:?} {insecure} {proxy_url:?}")
    }
}

/// A cluster that a client has handed to its credential plugin, as the client sees it.
impl From<&LocalCluster> for Cluster {
    fn from(handed: &LocalCluster) -> Self {
        let authority = handed.authority.clone();
        Self {
            server: handed.server.clone(),
            authority: authority.filter(|_| !handed.insecure),
            tls_server_name: handed.tls_server_name.clone(),
            insecure: handed.insecure,
            proxy_url: handed.proxy_url.clone(),
        }
    }
}

/// What authenticates a user.
pub enum Provider {
    /// Neither an `auth-provider` nor this program for the tunnel, or there is no such user.
    None,
    /// This program, in whichever form.
    ExternalSigner(Configuration),
    /// Another `auth-provider`, by its name.
    Other(String),
}

impl Kubeconfig {
    /// The clusters' names, in their order.
    pub fn cluster_names(&self) -> Vec<String> {
        self.clusters.names()
    }

    /// The users' names, in their order.
    pub fn user_names(&self) -> Vec<String> {
        self.users.names()
    }

    /// In the order of their names.
    pub fn contexts(&self) -> Vec<Context> {
        let entries = self.contexts.0.iter();
        entries
            .map(|(name, entry)| {
                let entry = entry.context.clone().unwrap_or_default();
                Context {
                    name: name.clone(),
                    cluster: entry.cluster.unwrap_or_default(),
                    user: entry.user.unwrap_or_default(),
                }
            })
            .collect()
    }

    /// The context of this name.
    ///
    /// # Errors
    ///
    /// There is none.
    pub fn context(&self, name: &str) -> Result<Context, KubeconfigError> {
        self.contexts().into_iter().find(|context| context.name == name).ok_or_else(|| {
            KubeconfigError::NoContext { name: name.to_owned(), candidates: self.contexts.names() }
        })
    }

    /// The current context.
    ///
    /// # Errors
    ///
    /// None is set, or there is none of that name.
    pub fn selected_context(&self) -> Result<Context, KubeconfigError> {
        match self.current_context() {
            Some(name) => self.context(name),
            None => Err(KubeconfigError::NoCurrentContext { candidates: self.contexts.names() }),
        }
    }

    /// The cluster of this name, as [`Kubeconfig::real_cluster`] gives it.
    ///
    /// # Errors
    ///
    /// Those of [`Kubeconfig::real_cluster`].
    pub fn cluster(&self, name: &str) -> Result<Cluster, KubeconfigError> {
        self.real_cluster(name).map(|(_, cluster)| cluster)
    }

    /// The cluster of this name, its authority read from the file where it is in one; of an entry
    /// that `kubeconfig --write` made for the credential plugin, the real cluster and its name.
    ///
    /// # Errors
    ///
    /// There is none, it has no server, its authority can't be read, or it has one and is not to be
    /// verified, which client-go refuses as well.
    pub fn real_cluster(&self, name: &str) -> Result<(String, Cluster), KubeconfigError> {
        let of_entry = |cluster: &ClusterEntry| Ok((name.to_owned(), cluster.resolved(name)?));
        let entry = self.clusters.0.get(name);
        let entry = entry.ok_or_else(|| KubeconfigError::NoCluster {
            name: name.to_owned(),
            candidates: self.clusters.names(),
        })?;
        let Some(cluster) = &entry.cluster else {
            return of_entry(&ClusterEntry::default());
        };
        match tunnelled::of(cluster) {
            Some(real) => tunnelled(real),
            None => of_entry(cluster),
        }
    }

    /// Whether the user has a client certificate, or a plugin that may provide one.
    pub fn may_show_certificate(&self, user: &str) -> bool {
        self.user(user).is_some_and(|user| {
            user.auth_provider.is_some()
                || user.client_certificate.is_some()
                || user.client_certificate_data.is_some()
                || user.exec.is_some()
        })
    }

    /// Who authenticates the user of this name: its `auth-provider`, or this program as its `exec`
    /// plugin.
    ///
    /// # Errors
    ///
    /// It has both, of which one is this program, or the plugin's arguments can't be understood.
    pub fn provider(&self, user: &str) -> Result<Provider, KubeconfigError> {
        let entry = self.user(user);
        let plugin = entry.and_then(|it| it.exec.as_ref());
        let ours = plugin.filter(|exec| exec::is_ours(exec));
        let provider = entry.and_then(|it| it.auth_provider.as_ref());
        let name = provider.map(|it| it.name.as_deref().unwrap_or_default());
        match (name, ours) {
            (Some(_), Some(_)) => Err(both(user)),
            (Some(EXTERNAL_SIGNER), None) if plugin.is_some() => Err(both(user)),
            (Some(EXTERNAL_SIGNER), None) => {
                let config = provider.and_then(|it| it.config.as_ref());
                let config = config.into_iter().flatten();
                let pairs = config.map(|(key, it)| (key.as_str(), it.0.as_str()));
                Ok(Provider::ExternalSigner(pairs.collect()))
            }
            (Some(name), None) => Ok(Provider::Other(name.to_owned())),
            (None, Some(exec)) => exec::configuration(exec, user).map(Provider::ExternalSigner),
            (None, None) => Ok(Provider::None),
        }
    }

    /// The configuration of the key that the context's user has, also for something that lives minutes.
    ///
    /// # Errors
    ///
    /// Those of [`Kubeconfig::provider`]; another provider, or none.
    pub fn key_of(&self, context: &Context) -> Result<Configuration, KubeconfigError> {
        let (name, user) = (&context.name, &context.user);
        let plugin = self.user(user).and_then(|it| it.exec.as_ref());
        match (self.provider(user)?, plugin) {
            (Provider::ExternalSigner(configuration), _) => Ok(configuration),
            (Provider::None, Some(exec)) if exec::names_key(exec) => {
                exec::configuration(exec, user)
            }
            _ => Err(KubeconfigError::NotExternalSigner {
                context: name.clone(),
                user: user.clone(),
            }),
        }
    }

    pub(super) fn user(&self, name: &str) -> Option<&UserEntry> {
        self.users.0.get(name)?.user.as_ref()
    }
}

impl ClusterEntry {
    /// What a connection needs, for the cluster of this name.
    pub(super) fn resolved(&self, name: &str) -> Result<Cluster, KubeconfigError> {
        let insecure = self.insecure_skip_tls_verify == Some(true);
        let authority = authority(self, name)?;
        if insecure && authority.is_some() {
            return Err(KubeconfigError::InsecureAuthority { cluster: name.to_owned() });
        }
        let server = given(&self.server)
            .ok_or_else(|| KubeconfigError::NoServer { cluster: name.to_owned() })?;
        Ok(Cluster {
            server: without_user(server),
            authority,
            tls_server_name: given(&self.tls_server_name).map(str::to_owned),
            insecure,
            proxy_url: given(&self.proxy_url).map(str::to_owned),
        })
    }
}

/// A text that isn't empty, which is the same as none for kubectl.
fn given(text: &Option<String>) -> Option<&str> {
    text.as_deref().filter(|text| !text.is_empty())
}

fn authority(cluster: &ClusterEntry, name: &str) -> Result<Option<Vec<u8>>, KubeconfigError> {
    let data = given(&cluster.certificate_authority_data).and_then(decode_base64);
    if let Some(pem) = data.filter(|pem| !pem.is_empty()) {
        return Ok(Some(pem));
    }
    let Some(path) = given(&cluster.certificate_authority) else {
        return Ok(None);
    };
    match file::read(path.as_ref()) {
        Ok(content) => Ok(Some(content.bytes)),
        Err(failure) => Err(KubeconfigError::Authority {
            cluster: name.to_owned(),
            path: path.into(),
            reason: match failure {
                ReadFailure::Missing => "there is no such file".to_owned(),
                ReadFailure::Other(reason) => reason,
            },
        }),
    }
}

fn both(user: &str) -> KubeconfigError {
    KubeconfigError::PluginBesideProvider { user: user.to_owned() }
}

/// A password in a URL would end up in messages, and none is sent to the server.
pub(super) fn without_user(server: &str) -> String {
    let start = server.find("://").map_or(0, |at| at + "://".len());
    let (scheme, rest) = server.split_at(start);
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let host = authority.rsplit_once('@').map_or(authority, |(_, it)| it);
    format!("{scheme}{host}{path}")
}

#[cfg(test)]
mod tests {
    use super::super::tests::config;
    use super::*;

    #[test]
    fn a_cluster_is_what_a_connection_needs() {
        let config = config(
            "clusters:\n\
             - {name: a, cluster: {server: 'https://a', certificate-authority-data: Zm9v, \
               certificate-authority: /nowhere, tls-server-name: b, proxy-url: 'socks5://c'}}\n\
             - {name: b, cluster: {server: b, insecure-skip-tls-verify: true, proxy-url: ''}}\n\
             - {name: c, cluster: {server: c, insecure-skip-tls-verify: true, \
               certificate-authority-data: Zm9v}}\n\
             - {name: d, cluster: {tls-server-name: d}}\n\
             - {name: e}\n\
             - {name: f, cluster: {server: f, certificate-authority: /nowhere/ca}}\n",
        );
        let cluster = |name| config.cluster(name).map_err(|error| error.to_string());
        assert_eq!(
            cluster("a").unwrap(),
            Cluster {
                server: "https://a".into(),
                authority: Some(b"foo".to_vec()),
                tls_server_name: Some("b".into()),
                insecure: false,
                proxy_url: Some("socks5://c".into()),
            }
        );
        assert_eq!(
            cluster("b").unwrap(),
            Cluster {
                server: "b".into(),
                authority: None,
                tls_server_name: None,
                insecure: true,
                proxy_url: None,
            }
        );
        for (name, error) in [
            ("c", "cluster \"c\" has both a certificate authority and insecure-skip-tls-verify"),
            ("d", "cluster \"d\" has no server"),
            ("e", "cluster \"e\" has no server"),
            (
                "f",
                "certificate-authority /nowhere/ca of cluster \"f\" can't be read: \
                 there is no such file",
            ),
            ("g", "the kubeconfig has no cluster \"g\""),
        ] {
            assert_eq!(cluster(name).unwrap_err(), error);
        }
    }

    #[test]
    fn a_local_address_leads_to_the_real_cluster() {
        let config = config(
            "clusters:\n\
             - name: a\n  cluster:\n    server: https://127.0.0.1:21234\n    extensions:\n    \
               - name: client.authentication.k8s.io/exec\n      extension: {plugin: \
               pkcs11-external-signer, name: real, server: 'https://real', \
               insecure-skip-tls-verify: true}\n\
             - name: b\n  cluster:\n    server: https://b\n    extensions:\n    \
               - name: client.authentication.k8s.io/exec\n      extension: {audience: b}\n",
        );
        let real = config.cluster("a").unwrap();
        assert_eq!((real.server.as_str(), real.insecure), ("https://real", true));
        assert_eq!(config.cluster("b").unwrap().server, "https://b");
    }

    #[test]
    fn a_server_has_no_password() {
        for (server, told) in [
            ("https://jane:pin@host:6443/a@b", "https://host:6443/a@b"),
            ("https://j@ne:pin@[::1]?c=@d", "https://[::1]?c=@d"),
            ("jane:pin@host", "host"),
            ("https://host/a@b", "https://host/a@b"),
            ("https://host#a@b", "https://host#a@b"),
        ] {
            assert_eq!(without_user(server), told);
        }
    }

    #[test]
    fn a_provider_is_ours_by_its_name() {
        let config = config(
            "users:\n\
             - {name: a, user: {auth-provider: {name: externalSigner, config: {slotId: 0}}}}\n\
             - {name: b, user: {auth-provider: {name: oidc, config: {slotId: 0}}}}\n\
             - {name: c, user: {auth-provider: {name: externalSigner, config: null}}}\n\
             - {name: d, user: {auth-provider: null}}\n\
             - {name: e}\n",
        );
        let slot = |user| match config.provider(user).unwrap() {
            Provider::ExternalSigner(mut configuration) => {
                Ok(configuration.take("slotId").map(|slot| slot.to_string()))
            }
            Provider::Other(name) => Err(name),
            Provider::None => Err("none".into()),
        };
        assert_eq!(slot("a"), Ok(Some("0".into())));
        assert_eq!(slot("b"), Err("oidc".into()));
        assert_eq!(slot("c"), Ok(None));
        for user in ["d", "e", "f"] {
            assert_eq!(slot(user), Err("none".into()));
        }
    }
}
