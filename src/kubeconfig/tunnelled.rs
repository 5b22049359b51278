//! The cluster behind a local address: what `kubeconfig --write` notes of it for the credential plugin.
//!
//! It stands in the extension that clients hand to a plugin, with the names and types of a cluster's own
//! fields (client-go, tools/clientcmd/api, types.go, Cluster.Extensions).

use serde_json::Value;

use super::error::{error, write_command};
use super::{Cluster, EntryKind, Kubeconfig, NamedCluster, extension, name_of, shape, text};
use crate::exec_credential::ExecRequest;
use messages::error::Error;
use messages::help::Help;

/// The extension of a cluster that clients pass on to a plugin.
pub(super) const EXTENSION: &str = "client.authentication.k8s.io/exec";

/// The member `plugin` of an extension that is this program's.
pub(super) const PLUGIN: &str = "pkcs11-external-signer";

/// Reads the real cluster from an extension, which is `spec.cluster.config` in KUBERNETES_EXEC_INFO. If its authority
/// is in a file, that is read.
pub fn tunnelled(extension: &Value) -> Result<NamedCluster, Error> {
    if extension["plugin"] != PLUGIN {
        return Err(not_ours(extension));
    }
    if let Some(misfit) = shape::CLUSTER.misfit(extension) {
        return Err(refused(&format!("can't be used: {misfit}")));
    }
    // The plugin runs wherever the client does.
    if text(extension, "certificate-authority").is_some_and(|path| !path.starts_with('/')) {
        return Err(refused("has certificate-authority that is not an absolute path"));
    }
    let Some(name) = extension["name"].as_str() else { return Err(refused("has no name")) };
    if text(extension, "server").is_none() {
        return Err(refused("has no server"));
    }
    let cluster = Cluster::of_entry(extension, name)?;
    Ok(NamedCluster { name: name.to_owned(), cluster })
}

/// The error of an extension that can't be used.
fn refused(problem: &str) -> Error {
    error(format!("the cluster's extension {EXTENSION} {problem}"), write_again())
}

/// The error of an extension that is missing, or another program's.
fn not_ours(extension: &Value) -> Error {
    let error = refused("is missing, or another program's");
    if !extension.is_null() {
        return error;
    }
    error.help(write_again().and(
        "; where the client leaves the extension out, add --kubeconfig FILE with the client's kubeconfig",
    ))
}

fn write_again() -> Help {
    Help::from("have the context's entries written with ").and(write_command())
}

/// A cluster as a client meets it.
pub struct LocalCluster {
    pub cluster: Cluster,
    /// What clients hand to a plugin; null if there is none.
    pub extension: Value,
}

impl LocalCluster {
    /// The cluster of a client's request, `spec.cluster` in KUBERNETES_EXEC_INFO.
    pub fn requested(entry: &Value) -> Result<Self, Error> {
        if let Some(misfit) = shape::CLUSTER.misfit(entry) {
            return Err(ExecRequest::error(&format!("spec.cluster: {misfit}")));
        }
        let cluster = Cluster::of_entry(entry, "spec.cluster")?;
        Ok(Self { cluster, extension: entry["config"].clone() })
    }
}

impl Kubeconfig {
    /// The clusters at a local address that this program has written.
    pub fn local_clusters(&self) -> Result<Vec<LocalCluster>, Error> {
        self.elements(EntryKind::Cluster)
            .filter(|element| of(&element["cluster"]).is_some())
            .map(|element| self.local_cluster(name_of(element)))
            .collect()
    }

    /// The cluster of this name, also of an entry that this program has not written.
    pub fn local_cluster(&self, name: &str) -> Result<LocalCluster, Error> {
        let entry = self.cluster_entry(name)?;
        let cluster = Cluster::of_entry(entry, name)?;
        Ok(LocalCluster { cluster, extension: extension(entry, EXTENSION).clone() })
    }
}

/// The extension of a cluster entry, if this program has written it.
pub(super) fn of(cluster: &Value) -> Option<&Value> {
    Some(extension(cluster, EXTENSION)).filter(|extension| extension["plugin"] == PLUGIN)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_cluster_is_what_the_extension_says() {
        let found = tunnelled(&json!({
            "plugin": PLUGIN,
            "name": "prod",
            "server": "https://jane:pin@10.0.0.1:6443/k8s",
            "certificate-authority-data": "Zm9v",
            "tls-server-name": "api",
            "proxy-url": "socks5://proxy",
            "later": [1],
        }))
        .unwrap();
        let cluster = Cluster {
            server: "https://10.0.0.1:6443/k8s".into(),
            authority: Some(b"foo".to_vec()),
            tls_server_name: Some("api".into()),
            insecure: false,
            proxy_url: Some("socks5://proxy".into()),
        };
        assert_eq!(found, NamedCluster { name: "prod".to_owned(), cluster });
    }

    #[test]
    fn what_is_not_ours_or_incomplete_says_so() {
        let with = |member: &str, value: Value| {
            let mut extension = json!({"plugin": PLUGIN, "name": "a", "server": "https://a"});
            extension[member] = value;
            extension
        };
        for (extension, problem) in [
            (Value::Null, "is missing, or another program's"),
            (json!(["PIN"]), "is missing, or another program's"),
            (with("plugin", json!("other")), "is missing, or another program's"),
            (with("plugin", json!(5)), "is missing, or another program's"),
            (with("name", json!(5)), "has no name"),
            (with("server", Value::Null), "has no server"),
            (with("server", json!("")), "has no server"),
            (with("server", json!(5)), "can't be used: server is not a string"),
            (
                with("insecure-skip-tls-verify", json!("PIN")),
                "can't be used: insecure-skip-tls-verify is not a boolean",
            ),
            (
                with("certificate-authority", json!("ca.pem")),
                "has certificate-authority that is not an absolute path",
            ),
            (
                with("certificate-authority-data", json!("PIN!")),
                "can't be used: certificate-authority-data is not base64",
            ),
        ] {
            let error = tunnelled(&extension).unwrap_err();
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
