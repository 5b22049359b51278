//! A stock kubectl whose credential plugin is `credential --as …`, and the real API server.

use crate::fixture::*;

/// The entry of a user for whom kubectl runs the program with these arguments.
pub(crate) fn user(version: &str, arguments: &[&str]) -> Value {
    let exec = json!({
        "apiVersion": version,
        "command": PROGRAM,
        "args": arguments,
        "interactiveMode": "IfAvailable",
        "provideClusterInfo": true,
    });
    json!({ "exec": exec })
}

/// Somebody with a key, whose certificate the cluster's authority has issued.
pub(super) struct Holder {
    pub(super) store: Store,
    pub(super) cluster: &'static Cluster,
}

impl Holder {
    pub(super) fn new(kind: Kind, claims: Claims) -> Self {
        Self::with(cluster().token(kind, claims))
    }

    pub(super) fn with(store: Store) -> Self {
        Self::at(cluster(), store)
    }

    pub(super) fn at(cluster: &'static Cluster, store: Store) -> Self {
        Self { store, cluster }
    }

    /// kubectl with a user of which the plugin is run with these arguments.
    pub(super) fn kubectl(&self, plugin: &[&str]) -> Invocation {
        self.kubectl_with("client.authentication.k8s.io/v1", plugin)
    }

    pub(super) fn kubectl_with(&self, version: &str, plugin: &[&str]) -> Invocation {
        let own = [
            "credential",
            &self.store.faulty_module(),
            "--token-label=test token",
            "--object-id=1",
            "--pin-source=env:TOKEN_PIN",
        ];
        let path = self.write(&user(version, &[&own, plugin].concat()));
        self.surroundings()
            .program(kubectl())
            .variable("KUBECONFIG", path)
            .suffering(&self.store, "")
    }

    /// The program itself, with this key and the cluster.
    pub(super) fn program(&self, arguments: &[&str]) -> Invocation {
        let path = self.write(&json!({"token": "unused"}));
        super::with_key(&self.store, "1", arguments).variable("KUBECONFIG", path)
    }

    /// Writes a kubeconfig with this user.
    fn write(&self, user: &Value) -> PathBuf {
        self.store.file("kubeconfig", kubeconfig("test", &self.entry(), user).to_string(), 0o600)
    }

    fn surroundings(&self) -> Invocation {
        self.store.with_pin(&[])
    }

    /// Has the administrator make these objects.
    pub(super) fn apply(&self, objects: &[Value]) {
        let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
        let applied = self.administrator().arguments(&["apply", "-f", "-"]).piped(list.to_string());
        applied.run().printed();
    }

    /// The cluster's entry in a kubeconfig.
    pub(super) fn entry(&self) -> Value {
        self.cluster.entry()
    }

    /// kubectl of the administrator.
    pub(super) fn administrator(&self) -> Invocation {
        self.cluster.administrator(&self.store)
    }
}
