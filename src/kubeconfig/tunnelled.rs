//! The cluster behind a local address: what `kubeconfig --write` notes of it for the credential plugin.
//!
//! It stands in the extension that clients hand to a plugin, with the names and types of a cluster's own
//! fields (client-go, tools/clientcmd/api, types.go, Cluster.Extensions).

use serde_json::Value;

use super::decode::{self, Reason};
use super::error::KubeconfigError;
use super::json;
use super::model::{ClusterEntry, decode_base64, extension, set_extension};
use super::yaml;
use super::{Cluster, Kubeconfig};
use crate::exec_credential::LocalCluster;

/// The one extension of a cluster that reaches a plugin.
const EXTENSION: &str = "client.authentication.k8s.io/exec";

/// Whose extension it is, in its member `plugin`.
pub(super) const PLUGIN: &str = "pkcs11-external-signer";

/// The real cluster, with its name, that an extension describes: `spec.cluster.config` in
/// KUBERNETES_EXEC_INFO. Its authority is read where it is in a file.
///
/// # Errors
///
/// There is no extension, it is another program's or incomplete, or what [`super::Kubeconfig::cluster`]
/// refuses.
pub fn tunnelled(extension: &Value) -> Result<(String, Cluster), KubeconfigError> {
    let refused = |problem: &str| KubeconfigError::Extension { problem: problem.to_owned() };
    if extension.is_null() {
        return Err(refused("is missing"));
    }
    if !is_ours(extension) {
        return Err(refused("is another program's"));
    }
    // For errors that name the field and never its value.
    let node = yaml::parse(&json::text(extension)).ok().flatten();
    let node = node.ok_or_else(|| refused("is too large"))?;
    let entry: ClusterEntry = decode::from_node(&node).map_err(|error| {
        let field = error.field;
        match error.reason {
            Reason::Expected(expected) => refused(&format!("has {field} that is not {expected}")),
            Reason::Malformed(reason) => refused(&format!("has {field} with a fault: {reason}")),
        }
    })?;
    // The plugin runs wherever the client does.
    let path = entry.certificate_authority.as_deref().unwrap_or_default();
    if !path.is_empty() && !path.starts_with('/') {
        return Err(refused("has certificate-authority that is not an absolute path"));
    }
    let Some(name) = extension.get("name").and_then(Value::as_str) else {
        return Err(refused("has no name"));
    };
    let cluster = entry.resolved(name).map_err(|error| match error {
        KubeconfigError::NoServer { .. } => refused("has no server"),
        error => error,
    })?;
    Ok((name.to_owned(), cluster))
}

impl Kubeconfig {
    /// The entries that this program has written, as a client would hand them to the credential plugin.
    pub fn local_clusters(&self) -> Vec<LocalCluster> {
        let entries = self.clusters.0.values();
        let entries = entries.filter_map(|entry| entry.cluster.as_ref());
        entries
            .filter_map(|entry| {
                let authority = entry.certificate_authority_data.as_deref();
                Some(LocalCluster {
                    config: of(entry)?.clone(),
                    server: entry.server.clone().unwrap_or_default(),
                    tls_server_name: entry.tls_server_name.clone(),
                    authority: authority.and_then(decode_base64),
                    insecure: false,
                    proxy_url: None,
                })
            })
            .collect()
    }

    /// The cluster of this name as a client would hand it to the credential plugin, also of an entry that
    /// this program has not written.
    ///
    /// # Errors
    ///
    /// As [`Kubeconfig::cluster`], of the entry itself.
    pub fn handed_over(&self, name: &str) -> Result<LocalCluster, KubeconfigError> {
        let entry = self.clusters.0.get(name).and_then(|it| it.cluster.as_ref());
        let Some(entry) = entry else {
            return Err(KubeconfigError::NoCluster {
                name: name.to_owned(),
                candidates: self.cluster_names(),
            });
        };
        let Cluster { server, authority, tls_server_name, insecure, proxy_url } =
            entry.resolved(name)?;
        let config = extension(&entry.extensions, EXTENSION);
        Ok(LocalCluster {
            server,
            tls_server_name,
            authority,
            insecure,
            proxy_url,
            config: config.cloned().unwrap_or_default(),
        })
    }
}

/// The extension of a cluster entry, if this program has written it.
pub(super) fn of(cluster: &ClusterEntry) -> Option<&Value> {
    extension(&cluster.extensions, EXTENSION).filter(|it| is_ours(it))
}

/// Takes the extension out of a cluster entry, if this program has written it.
pub(super) fn forget(cluster: &mut ClusterEntry) {
    if of(cluster).is_some() {
        set_extension(&mut cluster.extensions, EXTENSION, None);
    }
}

/// Notes the real cluster in an entry, as [`tunnelled`] reads it.
pub(super) fn describe(cluster: &mut ClusterEntry, real: Value) {
    set_extension(&mut cluster.extensions, EXTENSION, Some(real));
}

/// Whether this program has written the extension.
fn is_ours(extension: &Value) -> bool {
    extension.get("plugin").and_then(Value::as_str) == Some(PLUGIN)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_cluster_is_what_the_extension_says() {
        let (name, cluster) = tunnelled(&json!({
            "plugin": PLUGIN,
            "name": "prod",
            "server": "https://jane:pin@10.0.0.1:6443/k8s",
            "certificate-authority-data": "Zm9v",
            "tls-server-name": "api",
            "proxy-url": "socks5://proxy",
            "later": [1],
        }))
        .unwrap();
        let expected = Cluster {
            server: "https://10.0.0.1:6443/k8s".into(),
            authority: Some(b"foo".to_vec()),
            tls_server_name: Some("api".into()),
            insecure: false,
            proxy_url: Some("socks5://proxy".into()),
        };
        assert_eq!((name.as_str(), cluster), ("prod", expected));
    }

    #[test]
    fn an_authority_can_be_in_a_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ca.pem");
        std::fs::write(&path, "foo").unwrap();
        let at = |path: &str| {
            tunnelled(&json!({
                "plugin": PLUGIN,
                "name": "prod",
                "server": "https://a",
                "certificate-authority": path,
            }))
            .map_err(|error| error.to_string())
        };
        let (_, cluster) = at(path.to_str().unwrap()).unwrap();
        assert_eq!(cluster.authority, Some(b"foo".to_vec()));
        assert_eq!(
            at("/nowhere/ca").unwrap_err(),
            "certificate-authority /nowhere/ca of cluster \"prod\" can't be read: \
             there is no such file"
        );
    }

    #[test]
    fn what_is_not_ours_or_incomplete_says_so() {
        let with = |member: &str, value: Value| {
            let mut extension = json!({"plugin": PLUGIN, "name": "a", "server": "https://a"});
            extension[member] = value;
            extension
        };
        for (extension, problem) in [
            (Value::Null, "is missing"),
            (json!({}), "is another program's"),
            (json!("PIN"), "is another program's"),
            (json!(["PIN"]), "is another program's"),
            (with("plugin", json!("other")), "is another program's"),
            (with("plugin", json!(5)), "is another program's"),
            (with("name", json!(5)), "has no name"),
            (with("server", Value::Null), "has no server"),
            (with("server", json!("")), "has no server"),
            (with("server", json!(5)), "has server that is not a string"),
            (
                with("insecure-skip-tls-verify", json!("PIN")),
                "has insecure-skip-tls-verify that is not a boolean",
            ),
            (
                with("certificate-authority", json!("ca.pem")),
                "has certificate-authority that is not an absolute path",
            ),
            (
                with("certificate-authority-data", json!("PIN!")),
                "has certificate-authority-data that is not base64",
            ),
        ] {
            let error = crate::error::Error::from(tunnelled(&extension).unwrap_err());
            assert_eq!(
                error.to_string(),
                format!("the cluster's extension client.authentication.k8s.io/exec {problem}")
            );
            let remedy = error.remedy().to_string();
            assert!(remedy.contains("kubeconfig --write --context NAME"), "{remedy}");
            assert_eq!(error.exit_code(), 3);
        }
    }
}
