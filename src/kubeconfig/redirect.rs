//! Clusters pointed at a tunnel, and users given its client certificate; nothing else changes.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use serde_json::Value;

use super::{Context, EntryKind, Kubeconfig, remove, tunnelled};

/// Where a tunnel serves a cluster.
#[derive(Clone, Copy)]
pub struct TunnelEndpoint<'a> {
    /// Host and port, such as `127.0.0.1:21234`.
    pub address: &'a str,
    /// The name in the certificate of the tunnel.
    pub server_name: &'a str,
    pub authority_pem: &'a str,
}

/// The certificate and key that a user shows to the tunnel.
#[derive(Clone, Copy)]
pub struct ClientIdentity<'a> {
    pub certificate_pem: &'a str,
    /// It ends up in the kubeconfig; it must be worth nothing elsewhere.
    pub key_pem: &'a str,
}

impl Kubeconfig {
    /// Points the cluster at the tunnel. Contexts that it isn't for keep the server, in a copy of
    /// the cluster under another name.
    pub fn redirect(
        &mut self,
        cluster: &str,
        endpoint: &TunnelEndpoint<'_>,
        is_for: impl Fn(&Context) -> bool,
    ) {
        let mut others = self.contexts();
        others.retain(|context| context.cluster == cluster && !is_for(context));
        let Some(entry) = self.entry_mut(EntryKind::Cluster, cluster) else {
            return;
        };
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

    /// Gives the user this certificate, for all clusters.
    pub fn identify(&mut self, user: &str, identity: &ClientIdentity<'_>) {
        if let Some(user) = self.entry_mut(EntryKind::User, user) {
            remove(user, &["auth-provider", "exec", "client-certificate", "client-key"]);
            user["client-certificate-data"] = STANDARD.encode(identity.certificate_pem).into();
            user["client-key-data"] = STANDARD.encode(identity.key_pem).into();
        }
    }

    /// The first of `NAME`, `NAME+2` … that no entry has.
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
    tunnelled::forget(cluster);
}

/// The path of a server's URL, as in Rancher's `https://HOST/k8s/clusters/c-x`. client-go passes
/// over a query and a fragment.
pub(super) fn path_of(server: &str) -> &str {
    let after_scheme = server.split_once("://").map_or(server, |(_, rest)| rest);
    let end = after_scheme.find(['?', '#']).unwrap_or(after_scheme.len());
    let (address, _) = after_scheme.split_at(end);
    let start = address.find('/').unwrap_or(address.len());
    address.split_at(start).1
}

#[cfg(test)]
mod tests {
    use serde_json::{Value as Json, json};

    use super::super::tests::config;
    use super::*;

    fn endpoint(address: &str) -> TunnelEndpoint<'_> {
        TunnelEndpoint { address, server_name: "tunnel", authority_pem: "a" }
    }

    const IDENTITY: ClientIdentity<'_> = ClientIdentity { certificate_pem: "b", key_pem: "c" };

    /// Each context's server, and its user's certificate.
    fn destinations(config: &Kubeconfig) -> Vec<(String, String, Json)> {
        let json: Json = serde_json::from_str(&config.to_json()).unwrap();
        let of = |list: &str, kind: &str, name: &str| {
            let entries = json[list].as_array().unwrap().iter();
            let mut found = entries.filter(|entry| entry["name"] == name);
            let entry = found.next().map(|entry| entry[kind].clone());
            assert!(found.next().is_none(), "{list} has {name} twice");
            entry.unwrap_or_default()
        };
        config
            .contexts()
            .into_iter()
            .map(|context| {
                let cluster = of("clusters", "cluster", &context.cluster);
                let server = cluster["server"].as_str().unwrap_or_default().to_owned();
                let user = of("users", "user", &context.user);
                (context.name, server, user["client-certificate-data"].clone())
            })
            .collect()
    }

    const SHARED: &str = "
clusters: [{name: c, cluster: {server: 'https://c'}}, {name: c+direct, cluster: {server: 'https://x'}}]
users: [{name: j}, {name: k, user: {auth-provider: {name: externalSigner}}}, {name: l}]
contexts:
- {name: c-j, context: {cluster: c, user: j}}
- {name: c-j2, context: {cluster: c, user: j}}
- {name: c-k, context: {cluster: c, user: k}}
- {name: x-l, context: {cluster: c+direct, user: l}}
";

    #[test]
    fn a_shared_cluster_stays_for_the_others() {
        let mut config = config(SHARED);
        config.identify("k", &IDENTITY);
        config.redirect("c", &endpoint("1"), |context| context.user == "k");
        let row = |name: &str, server: &str, certificate: Json| {
            (name.to_owned(), server.to_owned(), certificate)
        };
        let expected = [
            row("c-j", "https://c", Json::Null),
            row("c-j2", "https://c", Json::Null),
            row("c-k", "https://1", json!("Yg==")),
            row("x-l", "https://x", Json::Null),
        ];
        assert_eq!(destinations(&config), expected);
        assert_eq!(config.names(EntryKind::Cluster), ["c", "c+direct", "c+direct+2"]);
        assert!(!config.to_json().contains("auth-provider"));
    }

    #[test]
    fn a_cluster_that_is_not_shared_has_no_copy() {
        let mut config = config(SHARED);
        config.redirect("c", &endpoint("1"), |_| true);
        assert_eq!(config.names(EntryKind::Cluster).len(), 2);
    }

    #[test]
    fn what_was_written_for_the_plugin_goes() {
        let mut config = config(
            "clusters:\n- name: c\n  cluster:\n    server: https://127.0.0.1:20000/k8s\n    \
             extensions:\n    - name: client.authentication.k8s.io/exec\n      extension: \
             {plugin: pkcs11-external-signer, name: r, server: 'https://r/k8s'}\n    \
             - {name: other}\n\
             users: [{name: j, user: {exec: {command: pkcs11-external-signer, args: [credential]}}}]\n\
             contexts: [{name: c, context: {cluster: c, user: j}}]",
        );
        config.identify("j", &IDENTITY);
        config.redirect("c", &endpoint("1"), |_| true);
        let expected = [("c".to_owned(), "https://1/k8s".to_owned(), json!("Yg=="))];
        assert_eq!(destinations(&config), expected);
        let json = config.to_json();
        assert!(!json.contains("exec") && json.contains("other"), "{json}");
    }

    #[test]
    fn what_is_not_there_changes_nothing() {
        let mut config = config(SHARED);
        let before = config.to_json();
        config.redirect("none", &endpoint("1"), |_| true);
        config.identify("none", &IDENTITY);
        assert_eq!(config.to_json(), before);
    }

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
