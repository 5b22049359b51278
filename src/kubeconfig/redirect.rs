//! Clusters led through a detour, and users who show another certificate there: another address for
//! the one, a certificate of the detour's for the other, and nothing else changed.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::value::{Object, Value, duplicate, object_at, text_at};
use super::{Context, Kubeconfig};

/// Where a cluster is to be found.
#[derive(Clone, Copy)]
pub struct Detour<'a> {
    /// Host and port, such as `127.0.0.1:21234`.
    pub address: &'a str,
    /// The name in the certificate of whoever listens there.
    pub server_name: &'a str,
    pub authority_pem: &'a str,
}

/// What a user shows there.
#[derive(Clone, Copy)]
pub struct Pass<'a> {
    pub certificate_pem: &'a str,
    /// It ends up in the kubeconfig; it must be worth nothing elsewhere.
    pub key_pem: &'a str,
}

impl Kubeconfig {
    /// Lead the cluster through the detour. Contexts that it isn't for keep the old way, as a copy of
    /// the cluster under another name.
    pub fn redirect(
        &mut self,
        cluster: &str,
        detour: &Detour<'_>,
        is_for: impl Fn(&Context) -> bool,
    ) {
        let Some(entry) = self.clusters.get_mut(cluster) else {
            return;
        };
        let mut old = duplicate(entry);
        lead_cluster(entry, detour);
        let mut others = self.contexts();
        others.retain(|context| context.cluster == cluster && !is_for(context));
        if others.is_empty() {
            return;
        }
        let name = self.free_name(cluster);
        old.insert("name".to_owned(), Value::text(&*name));
        self.clusters.insert(name.clone(), old);
        for other in others {
            let entry = self.contexts.get_mut(&other.name);
            if let Some(context) = entry.and_then(|entry| object_at(entry, "context")) {
                context.insert("cluster".to_owned(), Value::text(&*name));
            }
        }
    }

    /// Have the user show this certificate, to all clusters.
    pub fn identify(&mut self, user: &str, pass: &Pass<'_>) {
        if let Some(user) = self.users.get_mut(user) {
            lead_user(user, pass);
        }
    }

    /// A name for a copy of the cluster that no cluster has yet.
    fn free_name(&self, cluster: &str) -> String {
        let name = format!("{cluster}+direct");
        if !self.clusters.contains_key(&name) {
            return name;
        }
        (2_u64..)
            .map(|count| format!("{name}+{count}"))
            .find(|name| !self.clusters.contains_key(name))
            .unwrap_or(name)
    }
}

fn lead_cluster(entry: &mut Object, detour: &Detour<'_>) {
    let Some(cluster) = object_at(entry, "cluster") else {
        return;
    };
    for key in [
        "certificate-authority",
        "insecure-skip-tls-verify",
        "proxy-url",
    ] {
        cluster.remove(key);
    }
    let server = format!(
        "https://{}{}",
        detour.address,
        path_of(text_at(cluster, "server"))
    );
    for (key, value) in [
        ("server", server),
        (
            "certificate-authority-data",
            STANDARD.encode(detour.authority_pem),
        ),
        ("tls-server-name", detour.server_name.to_owned()),
    ] {
        cluster.insert(key.to_owned(), Value::text(value));
    }
}

fn lead_user(entry: &mut Object, pass: &Pass<'_>) {
    let Some(user) = object_at(entry, "user") else {
        return;
    };
    for key in ["auth-provider", "client-certificate", "client-key"] {
        user.remove(key);
    }
    for (key, pem) in [
        ("client-certificate-data", pass.certificate_pem),
        ("client-key-data", pass.key_pem),
    ] {
        user.insert(key.to_owned(), Value::text(STANDARD.encode(pem)));
    }
}

/// The path of a server's URL, as in Rancher's `https://HOST/k8s/clusters/c-x`. client-go passes
/// over a query and a fragment.
fn path_of(server: &str) -> &str {
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

    fn detour(address: &str) -> Detour<'_> {
        Detour {
            address,
            server_name: "detour",
            authority_pem: "a",
        }
    }

    const PASS: Pass<'_> = Pass {
        certificate_pem: "b",
        key_pem: "c",
    };

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
                (
                    context.name,
                    server,
                    user["client-certificate-data"].clone(),
                )
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
        config.identify("k", &PASS);
        config.redirect("c", &detour("1"), |context| context.user == "k");
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
        let copies = config.contexts.len() - 1;
        assert_eq!(config.clusters.len(), copies);
        assert!(config.clusters.contains_key("c+direct+2"));
        assert!(!config.to_json().contains("auth-provider"));
    }

    #[test]
    fn a_cluster_that_nobody_shares_has_no_copy() {
        let mut config = config(SHARED);
        config.redirect("c", &detour("1"), |_| true);
        assert_eq!(config.clusters.len(), 2);
    }

    #[test]
    fn what_is_not_there_changes_nothing() {
        let mut config = config(SHARED);
        let before = config.to_json();
        config.redirect("none", &detour("1"), |_| true);
        config.identify("none", &PASS);
        assert_eq!(*config.to_json(), *before);
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
