//! The entries of a kubeconfig, as far as a connection to the cluster needs them.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::error::{absent, error, no_current_context, other_user};
use super::load::read;
use super::shape::decode_base64;
use super::tunnelled::{self, tunnelled};
use super::{EntryKind, Kubeconfig, exec, name_of, text};
use messages::error::Error;
use protocol::Configuration;

/// The provider of users that this program serves.
pub(super) const EXTERNAL_SIGNER: &str = "externalSigner";

/// A context: the names of a cluster and of a user. Either may name an entry that doesn't exist.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Context {
    pub name: String,
    pub cluster: String,
    pub user: String,
}

/// How to reach a cluster and know its server.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Cluster {
    /// The server's URL, which is never empty and has no user or password. It may lack a scheme, as kubectl allows.
    pub server: String,
    /// The certificates of the cluster's CAs, in PEM. `certificate-authority-data` wins over the file.
    pub authority: Option<Vec<u8>>,
    pub tls_server_name: Option<String>,
    /// Whether the server isn't verified. Such an entry never has an `authority`.
    pub insecure: bool,
    /// The URL of the proxy: http, https or socks5.
    pub proxy_url: Option<String>,
}

/// A cluster, with its name for messages.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct NamedCluster {
    pub name: String,
    pub cluster: Cluster,
}

impl Context {
    /// Reads the context from an element of the list of contexts.
    fn of_element(element: &Value) -> Self {
        let member = |key| text(&element["context"], key).unwrap_or_default().to_owned();
        Self { name: name_of(element).to_owned(), cluster: member("cluster"), user: member("user") }
    }
}

impl Cluster {
    /// A text with all that the entry says of the cluster. The cluster's local address follows from it.
    pub fn identity(&self) -> String {
        let Self { server, authority, tls_server_name, insecure, proxy_url } = self;
        format!("{server} {authority:?} {tls_server_name:?} {insecure} {proxy_url:?}")
    }

    /// Reads the cluster of this name from its entry.
    pub(super) fn of_entry(entry: &Value, name: &str) -> Result<Self, Error> {
        let insecure = entry["insecure-skip-tls-verify"] == true;
        let authority = authority(entry, name)?;
        if insecure && authority.is_some() {
            return Err(error(
                format!(
                    "cluster \"{name}\" has both a certificate authority and insecure-skip-tls-verify"
                ),
                "take insecure-skip-tls-verify out of that cluster to have its server verified",
            ));
        }
        let server = text(entry, "server").ok_or_else(|| {
            let text = format!("cluster \"{name}\" has no server");
            error(text, "set server of that cluster, as https://HOST:PORT")
        })?;
        Ok(Self {
            server: without_user(server),
            authority,
            tls_server_name: text(entry, "tls-server-name").map(str::to_owned),
            insecure,
            proxy_url: text(entry, "proxy-url").map(str::to_owned),
        })
    }
}

/// What authenticates a user, as far as it concerns this program.
pub enum Provider {
    /// The user has neither an `auth-provider` nor this program as a plugin for the tunnel, or doesn't exist.
    None,
    /// The user's `auth-provider` or plugin is this program, with this configuration.
    ExternalSigner(Configuration),
    /// The user has another `auth-provider`, of this name.
    Other(String),
}

impl Kubeconfig {
    /// All contexts, in the order of their names.
    pub fn contexts(&self) -> Vec<Context> {
        let mut contexts: Vec<_> =
            self.elements(EntryKind::Context).map(Context::of_element).collect();
        contexts.sort_by(|one, other| one.name.cmp(&other.name));
        contexts
    }

    /// The context of this name.
    pub fn context(&self, name: &str) -> Result<Context, Error> {
        let found = self.element(EntryKind::Context, name);
        found.map(Context::of_element).ok_or_else(|| absent("context", name))
    }

    /// The namespace of the context of this name; `None` if that is left to clients.
    pub fn namespace(&self, context: &str) -> Option<&str> {
        text(self.entry(EntryKind::Context, context), "namespace")
    }

    /// The current context.
    pub fn selected_context(&self) -> Result<Context, Error> {
        self.context(self.current_context().ok_or_else(no_current_context)?)
    }

    /// The cluster of this name. If its authority is in a file, that is read. An entry that `kubeconfig --write` made
    /// for the credential plugin leads to the real cluster, with its name.
    pub fn cluster(&self, name: &str) -> Result<NamedCluster, Error> {
        let entry = self.cluster_entry(name)?;
        match tunnelled::of(entry) {
            Some(real) => tunnelled(real),
            None => {
                let cluster = Cluster::of_entry(entry, name)?;
                Ok(NamedCluster { name: name.to_owned(), cluster })
            }
        }
    }

    /// The content of the cluster's entry.
    pub(super) fn cluster_entry(&self, name: &str) -> Result<&Value, Error> {
        if !self.has(EntryKind::Cluster, name) {
            return Err(absent("cluster", name));
        }
        Ok(self.entry(EntryKind::Cluster, name))
    }

    /// What authenticates the user: its `auth-provider`, or this program as its `exec` plugin.
    pub fn provider(&self, user: &str) -> Result<Provider, Error> {
        let entry = self.entry(EntryKind::User, user);
        let exec = &entry["exec"];
        let provider = &entry["auth-provider"];
        let name = provider["name"].as_str().unwrap_or_default();
        let is_plugin = exec::is_ours(exec);
        if !provider.is_null() && (is_plugin || name == EXTERNAL_SIGNER && !exec.is_null()) {
            return Err(error(
                format!("user \"{user}\" has both exec and auth-provider"),
                "take one of them out; kubectl refuses such a user",
            ));
        }
        if is_plugin {
            return exec::configuration(exec, user).map(Provider::ExternalSigner);
        }
        if provider.is_null() {
            return Ok(Provider::None);
        }
        if name != EXTERNAL_SIGNER {
            return Ok(Provider::Other(name.to_owned()));
        }
        let config = provider["config"].as_object().into_iter().flatten();
        let pairs = config.map(|(key, value)| (key.as_str(), value.as_str().unwrap_or_default()));
        Ok(Provider::ExternalSigner(pairs.collect()))
    }

    /// The configuration of the key that the context's user has. The user may also have it for a short-lived
    /// credential.
    pub fn key_of(&self, context: &Context) -> Result<Configuration, Error> {
        let user = &context.user;
        let exec = &self.entry(EntryKind::User, user)["exec"];
        match self.provider(user)? {
            Provider::ExternalSigner(configuration) => Ok(configuration),
            Provider::None if exec::names_key(exec) => exec::configuration(exec, user),
            _ => Err(other_user(user, &context.name)),
        }
    }
}

/// The certificates, in PEM, by which a cluster's server is verified. If the entry names a file, that is read.
fn authority(cluster: &Value, name: &str) -> Result<Option<Vec<u8>>, Error> {
    let data = text(cluster, "certificate-authority-data").and_then(decode_base64);
    if let Some(pem) = data.filter(|pem| !pem.is_empty()) {
        return Ok(Some(pem));
    }
    let Some(path) = text(cluster, "certificate-authority") else { return Ok(None) };
    match read(path.as_ref()) {
        Ok(file) => Ok(Some(file.content)),
        Err(reason) => Err(error(
            format!("certificate-authority {path} of cluster \"{name}\" can't be read: {reason}"),
            "correct certificate-authority of that cluster; a relative path starts from the directory of the \
             kubeconfig it stands in",
        )),
    }
}

/// The URL without a user and a password, which would end up in messages. Neither is ever sent to the server.
pub(super) fn without_user(server: &str) -> String {
    let ServerUrl { scheme, host, rest } = ServerUrl::of(server);
    format!("{scheme}{host}{rest}")
}

/// The parts of a URL that kubectl takes for a server's. A user and a password are left out.
pub(super) struct ServerUrl<'a> {
    /// The scheme with `://`; empty if there is none.
    pub(super) scheme: &'a str,
    /// Host and port.
    pub(super) host: &'a str,
    /// Path, query and fragment.
    pub(super) rest: &'a str,
}

impl<'a> ServerUrl<'a> {
    pub(super) fn of(server: &'a str) -> Self {
        let (scheme, behind) = server.split_at(server.find("://").map_or(0, |at| at + "://".len()));
        let end = behind.find(['/', '?', '#']).unwrap_or(behind.len());
        let (authority, rest) = behind.split_at(end);
        let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
        Self { scheme, host, rest }
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
        let cluster = |name| match config.cluster(name) {
            Ok(found) => Ok(found.cluster),
            Err(error) => Err(error.to_string()),
        };
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
                 No such file or directory (os error 2)",
            ),
            ("g", "the kubeconfig has no cluster \"g\""),
        ] {
            assert_eq!(cluster(name).unwrap_err(), error);
        }
    }

    #[test]
    fn a_server_has_no_password() {
        for (server, expected) in [
            ("https://jane:pin@host:6443/a@b", "https://host:6443/a@b"),
            ("https://j@ne:pin@[::1]?c=@d", "https://[::1]?c=@d"),
            ("jane:pin@host", "host"),
            ("https://host/a@b", "https://host/a@b"),
            ("https://host#a@b", "https://host#a@b"),
        ] {
            assert_eq!(without_user(server), expected);
        }
    }

    #[test]
    fn a_provider_is_ours_by_its_name() {
        let config = config(
            "users:\n\
             - {name: a, user: {auth-provider: {name: externalSigner, config: {slotId: '0'}}}}\n\
             - {name: b, user: {auth-provider: {name: oidc, config: {slotId: '0'}}}}\n\
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
