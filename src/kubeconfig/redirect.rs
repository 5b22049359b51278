//! Contexts led through a detour: another address for the cluster, another certificate for the
//! user, and nothing else changed.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::Kubeconfig;
use super::value::{Object, Value, duplicate, object_at, text_at};

/// Where the redirected contexts go, and what both ends show each other there.
#[derive(Clone, Copy)]
pub struct Detour<'a> {
    /// Host and port, such as `127.0.0.1:21234`.
    pub address: &'a str,
    /// The name in the certificate of whoever listens there.
    pub server_name: &'a str,
    pub authority_pem: &'a str,
    pub certificate_pem: &'a str,
    /// It ends up in the kubeconfig; it must be worth nothing elsewhere.
    pub key_pem: &'a str,
}

impl Kubeconfig {
    /// Lead every context with this cluster and user through the detour.
    ///
    /// The user is changed for all its contexts. The cluster is changed in place unless a context
    /// with another user has it too: then that one keeps it, and these get a copy.
    pub fn redirect(&mut self, cluster: &str, user: &str, detour: &Detour<'_>) {
        let Some(mut entry) = self.clusters.get(cluster).map(duplicate) else {
            return;
        };
        if let Some(user) = self.users.get_mut(user) {
            lead_user(user, detour);
        }
        lead_cluster(&mut entry, detour);
        let shared = self
            .contexts()
            .iter()
            .any(|context| context.cluster == cluster && context.user != user);
        let name = if shared {
            self.free_name(cluster, user)
        } else {
            cluster.to_owned()
        };
        entry.insert("name".to_owned(), Value::text(&*name));
        self.clusters.insert(name.clone(), entry);
        if shared {
            for entry in self.contexts.values_mut() {
                let Some(context) = object_at(entry, "context") else {
                    continue;
                };
                if text_at(context, "cluster") == cluster && text_at(context, "user") == user {
                    context.insert("cluster".to_owned(), Value::text(&*name));
                }
            }
        }
    }

    /// A name for a copy of the cluster that no cluster has yet.
    fn free_name(&self, cluster: &str, user: &str) -> String {
        let name = format!("{cluster}+{user}");
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

fn lead_user(entry: &mut Object, detour: &Detour<'_>) {
    let Some(user) = object_at(entry, "user") else {
        return;
    };
    for key in ["auth-provider", "client-certificate", "client-key"] {
        user.remove(key);
    }
    for (key, pem) in [
        ("client-certificate-data", detour.certificate_pem),
        ("client-key-data", detour.key_pem),
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
            certificate_pem: "b",
            key_pem: "c",
        }
    }

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
clusters: [{name: c, cluster: {server: 'https://c'}}, {name: c+j, cluster: {server: 'https://x'}}]
users: [{name: j}, {name: k, user: {auth-provider: {name: externalSigner}}}, {name: l}]
contexts:
- {name: c-j, context: {cluster: c, user: j}}
- {name: c-j2, context: {cluster: c, user: j}}
- {name: c-k, context: {cluster: c, user: k}}
- {name: x-l, context: {cluster: c+j, user: l}}
";

    #[test]
    fn a_shared_cluster_stays_for_the_others() {
        let mut config = config(SHARED);
        config.redirect("c", "j", &detour("1"));
        let row = |name: &str, server: &str, certificate: Json| {
            (name.to_owned(), server.to_owned(), certificate)
        };
        let expected = [
            row("c-j", "https://1", json!("Yg==")),
            row("c-j2", "https://1", json!("Yg==")),
            row("c-k", "https://c", Json::Null),
            row("x-l", "https://x", Json::Null),
        ];
        assert_eq!(destinations(&config), expected);
        // Now nobody else has it.
        config.redirect("c", "k", &detour("2"));
        assert_eq!(
            destinations(&config)[2],
            row("c-k", "https://2", json!("Yg=="))
        );
        assert_eq!(destinations(&config)[..2], expected[..2]);
        assert!(!config.to_json().contains("auth-provider"));
    }

    #[test]
    fn what_is_not_there_changes_nothing() {
        let mut config = config(SHARED);
        let before = config.to_json();
        config.redirect("none", "j", &detour("1"));
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
