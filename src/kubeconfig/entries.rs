//! What the entries of a kubeconfig say, as far as a connection to the cluster needs it.

use super::error::KubeconfigError;
use super::file::{self, Failure};
use super::schema::base64;
use super::value::{Object, Value, text_at};
use super::{Entries, Kubeconfig};
use crate::protocol::Configuration;

/// The provider whose users are ours.
pub(super) const EXTERNAL_SIGNER: &str = "externalSigner";

/// Which user goes to which cluster; either name can be one that isn't there.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Context {
    pub name: String,
    pub cluster: String,
    pub user: String,
}

/// How to reach a cluster and know its server.
#[derive(Clone, Debug, Eq, PartialEq)]
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

/// What a user's `auth-provider` is.
pub enum Provider {
    /// There is none, or no such user.
    None,
    ExternalSigner(Configuration),
    /// Another one, by its name.
    Other(String),
}

impl Kubeconfig {
    /// The clusters' names, in their order.
    pub fn cluster_names(&self) -> Vec<String> {
        self.clusters.keys().cloned().collect()
    }

    /// The users' names, in their order.
    pub fn user_names(&self) -> Vec<String> {
        self.users.keys().cloned().collect()
    }

    /// In the order of their names.
    pub fn contexts(&self) -> Vec<Context> {
        self.contexts
            .iter()
            .map(|(name, entry)| {
                let of = |key| content(entry, "context").map_or("", |it| text_at(it, key));
                Context {
                    name: name.clone(),
                    cluster: of("cluster").to_owned(),
                    user: of("user").to_owned(),
                }
            })
            .collect()
    }

    /// The cluster of this name, its authority read from the file where it is in one.
    ///
    /// Errors: there is none, it has no server, its authority can't be read, or it has one and is
    /// not to be verified, which client-go refuses as well.
    pub fn cluster(&self, name: &str) -> Result<Cluster, KubeconfigError> {
        let entry = self
            .clusters
            .get(name)
            .ok_or_else(|| KubeconfigError::NoCluster {
                name: name.to_owned(),
                candidates: self.clusters.keys().cloned().collect(),
            })?;
        let cluster = content(entry, "cluster").ok_or_else(|| no_server(name))?;
        let text = |key| Some(text_at(cluster, key).to_owned()).filter(|text| !text.is_empty());
        let insecure = matches!(
            cluster.get("insecure-skip-tls-verify"),
            Some(Value::Flag(true))
        );
        let authority = authority(cluster, name)?;
        if insecure && authority.is_some() {
            return Err(KubeconfigError::InsecureAuthority {
                cluster: name.to_owned(),
            });
        }
        Ok(Cluster {
            server: without_user(&text("server").ok_or_else(|| no_server(name))?),
            authority,
            tls_server_name: text("tls-server-name"),
            insecure,
            proxy_url: text("proxy-url"),
        })
    }

    /// Whether the user has a client certificate, or a plugin that may hand one out.
    pub fn may_show_certificate(&self, user: &str) -> bool {
        const FIELDS: [&str; 4] = [
            "auth-provider",
            "client-certificate",
            "client-certificate-data",
            "exec",
        ];
        user_entry(&self.users, user).is_some_and(|user| {
            let given = FIELDS.iter().filter_map(|field| user.get(*field));
            given.into_iter().any(|value| !matches!(value, Value::Null))
        })
    }

    pub fn provider(&self, user: &str) -> Provider {
        let provider = user_entry(&self.users, user)
            .and_then(|user| user.get("auth-provider"))
            .and_then(Value::as_object);
        let Some(provider) = provider else {
            return Provider::None;
        };
        let name = text_at(provider, "name");
        if name != EXTERNAL_SIGNER {
            return Provider::Other(name.to_owned());
        }
        let config = provider.get("config").and_then(Value::as_object);
        Provider::ExternalSigner(
            config
                .into_iter()
                .flatten()
                .filter_map(|(key, value)| Some((key.as_str(), value.as_text()?)))
                .collect(),
        )
    }
}

/// What an element of a list holds beside its name.
fn content<'a>(entry: &'a Object, kind: &str) -> Option<&'a Object> {
    entry.get(kind).and_then(Value::as_object)
}

fn user_entry<'a>(users: &'a Entries, name: &str) -> Option<&'a Object> {
    users.get(name).and_then(|entry| content(entry, "user"))
}

fn authority(cluster: &Object, name: &str) -> Result<Option<Vec<u8>>, KubeconfigError> {
    let data = text_at(cluster, "certificate-authority-data");
    // Whoever checked the types has decoded it once.
    if let Some(pem) = base64(data).filter(|pem| !pem.is_empty()) {
        return Ok(Some(pem.to_vec()));
    }
    let path = text_at(cluster, "certificate-authority");
    if path.is_empty() {
        return Ok(None);
    }
    match file::read(path.as_ref()) {
        Ok(pem) => Ok(Some(pem.to_vec())),
        Err(failure) => Err(KubeconfigError::Authority {
            cluster: name.to_owned(),
            path: path.into(),
            reason: match failure {
                Failure::Missing => "there is no such file".to_owned(),
                Failure::Other(reason) => reason,
            },
        }),
    }
}

/// A password in a URL would end up in messages, and none is sent to the server.
fn without_user(server: &str) -> String {
    let start = server.find("://").map_or(0, |at| at + "://".len());
    let (scheme, rest) = server.split_at(start);
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let host = authority.rsplit_once('@').map_or(authority, |(_, it)| it);
    format!("{scheme}{host}{path}")
}

fn no_server(cluster: &str) -> KubeconfigError {
    KubeconfigError::NoServer {
        cluster: cluster.to_owned(),
    }
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
            (
                "c",
                "cluster \"c\" has both a certificate authority and insecure-skip-tls-verify",
            ),
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
        let slot = |user| match config.provider(user) {
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
