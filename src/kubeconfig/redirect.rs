//! A kubeconfig whose contexts lead through a tunnel.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Map, Value};

use super::{Kubeconfig, List, text};

/// Where a tunnel begins, and what a client has to show and to trust there; PEM.
pub struct Detour<'a> {
    /// `127.0.0.1:21234`
    pub address: &'a str,
    pub server_name: &'a str,
    pub authority_pem: &'a str,
    pub certificate_pem: &'a str,
    pub key_pem: &'a str,
}

/// What leads to the server itself, and nowhere else.
const OF_THE_SERVER: [&str; 3] = [
    "certificate-authority",
    "insecure-skip-tls-verify",
    "proxy-url",
];

/// What the tunnel's certificate stands for.
const OF_THE_KEY: [&str; 3] = ["auth-provider", "client-certificate", "client-key"];

impl Kubeconfig {
    /// Leads every context of this cluster and this user through the detour, which then needs
    /// nothing but what stands in this kubeconfig. Contexts of the same cluster with other users
    /// stay as they are; all else of the entries does, too.
    pub fn redirect(&mut self, cluster: &str, user: &str, detour: &Detour<'_>) {
        let name = self.own_cluster(cluster, user);
        if let Some(entry) = self.entry_mut(List::Clusters, &name) {
            let path = text(entry.get("server")).map_or("", path_of);
            let server = format!("https://{}{path}", detour.address);
            for key in OF_THE_SERVER {
                entry.remove(key);
            }
            set(entry, "server", server);
            set(entry, "tls-server-name", detour.server_name);
            let authority = BASE64_STANDARD.encode(detour.authority_pem);
            set(entry, "certificate-authority-data", authority);
        }
        if let Some(entry) = self.entry_mut(List::Users, user) {
            for key in OF_THE_KEY {
                entry.remove(key);
            }
            let certificate = BASE64_STANDARD.encode(detour.certificate_pem);
            set(entry, "client-certificate-data", certificate);
            set(
                entry,
                "client-key-data",
                BASE64_STANDARD.encode(detour.key_pem),
            );
        }
    }

    /// The name of an entry that only this pair uses: the cluster's own, or that of a copy, to
    /// which the pair's contexts are pointed.
    fn own_cluster(&mut self, cluster: &str, user: &str) -> String {
        let is_shared = self
            .contexts()
            .iter()
            .any(|context| context.cluster == cluster && context.user != user);
        let Some(entry) = self.entry(List::Clusters, cluster).filter(|_| is_shared) else {
            return cluster.to_owned();
        };
        let entry = entry.clone();
        let mut copy = format!("{cluster}-{user}");
        while self.entry(List::Clusters, &copy).is_some() {
            copy.push_str("-run");
        }
        if let Some(Value::Array(clusters)) = self.0.get_mut("clusters") {
            clusters.push(serde_json::json!({"name": copy, "cluster": entry}));
        }
        for context in self.entries_mut(List::Contexts) {
            if context.get("cluster").is_some_and(|name| name == cluster)
                && context.get("user").is_some_and(|name| name == user)
            {
                set(context, "cluster", copy.as_str());
            }
        }
        copy
    }

    fn entry_mut(&mut self, list: List, name: &str) -> Option<&mut Map<String, Value>> {
        let (list, item) = list.keys();
        self.0
            .get_mut(list)?
            .as_array_mut()?
            .iter_mut()
            .find(|entry| text(entry.get("name")).unwrap_or_default() == name)?
            .get_mut(item)?
            .as_object_mut()
    }
}

fn set(entry: &mut Map<String, Value>, key: &str, value: impl Into<Value>) {
    entry.insert(key.to_owned(), value.into());
}

/// What follows host and port in a URL: some servers hold several clusters.
fn path_of(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    rest.find('/')
        .and_then(|place| rest.get(place..))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::load::parse;
    use super::*;

    const DETOUR: Detour<'_> = Detour {
        address: "127.0.0.1:21234",
        server_name: "name.invalid",
        authority_pem: "A",
        certificate_pem: "C",
        key_pem: "K",
    };

    fn redirected(yaml: &str, cluster: &str, user: &str) -> Value {
        let mut config = parse(yaml.as_bytes(), "test".as_ref()).unwrap();
        config.redirect(cluster, user, &DETOUR);
        serde_json::from_str(&config.to_json()).unwrap()
    }

    #[test]
    fn what_leads_to_the_server_is_replaced_and_all_else_stays() {
        let result = redirected(
            "clusters:\n\
             - name: prod\n  cluster:\n    server: https://rancher.example:8443/k8s/clusters/c-1\n    \
               certificate-authority: /ca.pem\n    proxy-url: http://proxy\n    \
               disable-compression: true\n    extensions: [{name: x, extension: {y: z}}]\n\
             users:\n\
             - name: jane\n  user:\n    auth-provider: {name: externalSigner, config: {pin: \"1234\"}}\n    \
               client-key: /key.pem\n    as: admin\n\
             contexts:\n- name: prod\n  context: {cluster: prod, user: jane, namespace: web}\n\
             preferences: {colors: true}\n",
            "prod",
            "jane",
        );
        assert_eq!(
            result["clusters"],
            json!([{"name": "prod", "cluster": {
                "server": "https://127.0.0.1:21234/k8s/clusters/c-1",
                "tls-server-name": "name.invalid",
                "certificate-authority-data": "QQ==",
                "disable-compression": true,
                "extensions": [{"name": "x", "extension": {"y": "z"}}],
            }}])
        );
        assert_eq!(
            result["users"],
            json!([{"name": "jane", "user": {
                "client-certificate-data": "Qw==", "client-key-data": "Sw==", "as": "admin",
            }}])
        );
        assert_eq!(
            result["contexts"],
            json!([{"name": "prod", "context": {"cluster": "prod", "user": "jane", "namespace": "web"}}])
        );
        assert_eq!(result["preferences"], json!({"colors": true}));
    }

    #[test]
    fn another_users_way_to_the_same_cluster_stays() {
        let result = redirected(
            "clusters:\n- name: prod\n  cluster: {server: \"https://a:6443\"}\n\
             - name: prod-jane\n  cluster: {server: \"https://b\"}\n\
             users:\n- name: jane\n  user: {}\n- name: joe\n  user: {token: t}\n\
             contexts:\n\
             - name: one\n  context: {cluster: prod, user: jane}\n\
             - name: two\n  context: {cluster: prod, user: joe}\n",
            "prod",
            "jane",
        );
        assert_eq!(
            result["clusters"][0]["cluster"],
            json!({"server": "https://a:6443"})
        );
        assert_eq!(
            result["clusters"][1]["cluster"],
            json!({"server": "https://b"})
        );
        assert_eq!(result["clusters"][2]["name"], "prod-jane-run");
        assert_eq!(
            result["clusters"][2]["cluster"]["server"],
            "https://127.0.0.1:21234"
        );
        assert_eq!(result["contexts"][0]["context"]["cluster"], "prod-jane-run");
        assert_eq!(result["contexts"][1]["context"]["cluster"], "prod");
        assert_eq!(result["users"][1]["user"], json!({"token": "t"}));
    }
}
