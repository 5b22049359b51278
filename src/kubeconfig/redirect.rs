//! Redirects clusters to a tunnel, and gives users its client certificate. Nothing else changes.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use serde_json::Value;

use super::entries::ServerUrl;
use super::{Context, EntryKind, Kubeconfig, remove, set_extension, tunnelled};

/// Where a tunnel serves a cluster.
#[derive(Clone, Copy)]
pub struct TunnelEndpoint<'a> {
    /// The host and the port, such as `127.0.0.1:21234`.
    pub address: &'a str,
    /// The name in the certificate of the tunnel.
    pub server_name: &'a str,
    pub authority_pem: &'a str,
}

impl Kubeconfig {
    /// Points the cluster at the tunnel. The contexts `others`, for which the tunnel isn't meant, get a copy of the
    /// cluster with its server.
    pub fn redirect(&mut self, cluster: &str, endpoint: &TunnelEndpoint<'_>, others: &[&Context]) {
        let Some(entry) = self.entry_mut(EntryKind::Cluster, cluster) else { return };
        let direct = entry.clone();
        point_at(entry, endpoint);
        if others.is_empty() {
            return;
        }
        let direct_name = self.free_name(EntryKind::Cluster, &format!("{cluster}+direct"));
        for other in others {
            if let Some(context) = self.entry_mut(EntryKind::Context, &other.name) {
                context["cluster"] = direct_name.as_str().into();
            }
        }
        self.set_entry(EntryKind::Cluster, &direct_name, direct);
    }

    /// Gives the user this certificate. The key is written into the kubeconfig, so it must be worth nothing elsewhere.
    pub fn identify(&mut self, user: &str, certificate_pem: &str, key_pem: &str) {
        if let Some(user) = self.entry_mut(EntryKind::User, user) {
            remove(user, &["auth-provider", "exec", "client-certificate", "client-key"]);
            user["client-certificate-data"] = STANDARD.encode(certificate_pem).into();
            user["client-key-data"] = STANDARD.encode(key_pem).into();
        }
    }

    /// The first of the names `NAME`, `NAME+2` … that no entry has.
    pub(super) fn free_name(&self, kind: EntryKind, name: &str) -> String {
        let counted = (2_u64..).map(|count| format!("{name}+{count}"));
        let mut names = std::iter::once(name.to_owned()).chain(counted);
        names.find(|name| !self.has(kind, name)).unwrap_or_default()
    }
}

/// Has a cluster's entry lead to the tunnel.
pub(super) fn point_at(cluster: &mut Value, endpoint: &TunnelEndpoint<'_>) {
    let server = cluster["server"].as_str().unwrap_or_default();
    cluster["server"] = format!("https://{}{}", endpoint.address, path_of(server)).into();
    cluster["certificate-authority-data"] = STANDARD.encode(endpoint.authority_pem).into();
    cluster["tls-server-name"] = endpoint.server_name.into();
    remove(cluster, &["certificate-authority", "insecure-skip-tls-verify", "proxy-url"]);
    if tunnelled::of(cluster).is_some() {
        set_extension(cluster, tunnelled::EXTENSION, None);
    }
}

/// The path in a server's URL, as Rancher's have one. Query and fragment are left out, as by client-go.
fn path_of(server: &str) -> &str {
    ServerUrl::of(server).rest.split(['?', '#']).next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_stays() {
        for (server, path) in [
            ("https://host:6443", ""),
            ("https://host/", "/"),
            ("https://host/k8s/clusters/c-x", "/k8s/clusters/c-x"),
            ("host/path", "/path"),
            ("https://host?a=/b", ""),
            ("https://host/a?b#c/d", "/a"),
            ("https://[::1]:6443/a", "/a"),
            ("", ""),
        ] {
            assert_eq!(path_of(server), path, "{server}");
        }
    }
}
