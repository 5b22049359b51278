//! Clients that live longer than the credential: `kubectl proxy`, which asks the plugin again, and its connections.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

use super::certificate::{approve_requests, requester_at};
use super::plugin::Holder;
use super::structured::Trusted;
use super::token::account;
use super::with_key;
use crate::fixture::*;

const ISSUER: &str = "https://keys.example/lena";

/// A client in front of which others stand.
struct LongLived<'a> {
    holder: &'a Holder,
    proxy: Running,
    server: String,
}

impl<'a> LongLived<'a> {
    fn start(holder: &'a Holder, plugin: &[&str]) -> Self {
        let proxy = holder.kubectl(plugin).arguments(&["proxy", "--port=0"]);
        let mut proxy = proxy.start(None);
        let line = proxy.line();
        let (_, address) = line.rsplit_once(' ').unwrap();
        Self { holder, server: format!("--server=http://{address}"), proxy }
    }

    /// A new credential, which one signature made and two requests had, after so many signatures. One that
    /// ends between them, where the machine is busy, is no answer.
    fn shared_credential(&self, mut before: usize) -> String {
        wait_for("a credential for two requests", || {
            let credential = self.credential();
            let is_shared = self.credential() == credential;
            let made = signatures(self.holder) - before;
            before += made;
            (is_shared && made == 1).then_some(credential)
        })
    }

    fn through(&self, arguments: &[&str]) -> Invocation {
        Invocation::new(self.holder.store.directory.path())
            .program(kubectl())
            .arguments(&["--kubeconfig=/dev/null", &self.server])
            .arguments(arguments)
    }

    /// The id of the credential by which the API server knows the client.
    fn credential(&self) -> String {
        // It may take a connection that it has just closed for the sake of another certificate.
        let asked = wait_for("an answer", || {
            let asked = self.through(&["auth", "whoami", "-o", "json"]).run();
            Some(asked).filter(|it| !it.stderr.contains("use of closed network connection"))
        });
        let review = asked.json();
        let id =
            &review["status"]["userInfo"]["extra"]["authentication.kubernetes.io/credential-id"];
        id[0].as_str().unwrap().to_owned()
    }

    /// A watch on the config map, which has been told what is there.
    fn watch(&self, name: &str) -> Running {
        let output = "jsonpath={.data.at}{\"\\n\"}";
        let get = ["get", "configmap", name, "-n", "default", "-w", "-o", output];
        let mut watching = self.through(&get).start(None);
        assert_eq!(watching.line(), "start");
        watching
    }

    /// The local ports of the client's connections to API servers.
    fn connections(&self) -> BTreeSet<String> {
        let process = format!("/proc/{}", self.proxy.pid().as_raw_nonzero());
        let open = open_files(self.proxy.pid()).into_iter().map(|it| it.display().to_string());
        let open: BTreeSet<_> = open.collect();
        let entry = self.holder.entry();
        let (_, port) = entry["server"].as_str().unwrap().rsplit_once(':').unwrap();
        let remote = format!(":{:04X}", port.parse::<u16>().unwrap());
        let table = fs::read_to_string(format!("{process}/net/tcp")).unwrap();
        table
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>())
            .filter(|it| it[2].ends_with(&remote) && open.contains(&format!("socket:[{}]", it[9])))
            .map(|it| it[1].to_owned())
            .collect()
    }

    fn end(self) {
        kill_process(self.proxy.pid(), Signal::INT).unwrap();
        self.proxy.finish();
    }
}

/// Changes the config map, and has those who watch it told.
fn change(holder: &Holder, name: &str, at: &str) {
    let data = json!({"data": {"at": at}}).to_string();
    let patch = ["patch", "configmap", name, "-n", "default", "-p", &data];
    holder.administrator().arguments(&patch).run().printed();
}

/// How often the key has signed, with a PIN each time.
fn signatures(holder: &Holder) -> usize {
    let count = holder.store.calls("C_Sign").len();
    assert_eq!(holder.store.calls("C_Login").len(), count);
    count
}

/// Demands that a bearer of tokens gets another one when the first has ended, `life` after it was made, over
/// the same connection, and that a watch isn't interrupted. The key has signed so often before.
fn outlives_its_token(holder: &Holder, name: &str, plugin: &[&str], life: Duration, before: usize) {
    change(holder, name, "start");
    let client = LongLived::start(holder, plugin);
    let first = client.shared_credential(before);
    let mut watching = client.watch(name);
    let connections = client.connections();
    assert_eq!(connections.len(), 1, "{connections:?}");
    let made = signatures(holder);

    // The last one was made before this.
    thread::sleep(life + Duration::from_secs(1));
    // What was begun goes on, and nobody asks for the sake of it.
    change(holder, name, "afterwards");
    assert_eq!(watching.line(), "afterwards");
    assert_eq!(signatures(holder), made);

    assert_ne!(client.shared_credential(made), first);
    assert_eq!(client.connections(), connections);
    change(holder, name, "renewed");
    assert_eq!(watching.line(), "renewed");
    kill_process(watching.pid(), Signal::INT).unwrap();
    watching.finish();
    client.end();
}

/// The user may read this config map.
fn reader(holder: &Holder, user: &str, name: &str) {
    let metadata = json!({"name": name, "namespace": "default"});
    holder.apply(&[
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": metadata,
            "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "watch"]}],
        }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": metadata,
            "subjects": [{"kind": "User", "name": user}],
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
        }),
    ]);
}

#[test]
fn a_jwt_is_renewed_and_the_connection_stays() {
    let holder = Holder::with(token_with_pair(Kind::P256));
    reader(&holder, "hw:lena", "lena");
    let trusted = Trusted::new([(ISSUER, "1")], |id| with_key(&holder.store, id, &["jwks"]));
    let plugin = ["--as=jwt", "--issuer", ISSUER, "--audience=test"];
    let raw = [&["credential", "--output=raw"], &plugin[..]].concat();
    trusted.wait(holder.program(&raw).run().printed().trim());
    let plugin = [&plugin[..], &["--duration=20s"]].concat();
    outlives_its_token(&holder, "lena", &plugin, Duration::from_secs(20), 1);
}

#[test]
#[ignore = "takes ten minutes"]
fn an_accounts_token_is_renewed_and_the_connection_stays() {
    let holder = Holder::new(Kind::P256, JANE);
    account(&holder, "lasting");
    reader(&holder, "system:serviceaccount:default:lasting", "lasting-reads");
    let plugin = ["--as=token", "--service-account=default/lasting"];
    outlives_its_token(&holder, "lasting-reads", &plugin, Duration::from_secs(600), 0);
}

/// client-go closes all connections of another certificate.
#[test]
fn a_certificate_is_renewed_and_connections_are_made_anew() {
    let holder = requester_at(hasty_cluster(), Kind::P256, "/CN=lena");
    reader(&holder, "lena", "lena");
    change(&holder, "lena", "start");
    let client = LongLived::start(&holder, &["--as=certificate"]);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        // Each of them is approved while the client waits.
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                approve_requests(&holder, "lena");
            }
        });
        let _over = Over(&is_over);
        let first = client.shared_credential(0);
        let mut watching = client.watch("lena");
        let connections = client.connections();
        assert_eq!(connections.len(), 1, "{connections:?}");
        let made = signatures(&holder);

        // The signer has cut ten minutes to one, and the last one was made before this.
        thread::sleep(Duration::from_secs(61));
        change(&holder, "lena", "afterwards");
        assert_eq!(watching.line(), "afterwards");
        assert_eq!(signatures(&holder), made);

        assert_ne!(client.shared_credential(made), first);
        assert!(client.connections().is_disjoint(&connections));
        // Its client begins it again.
        watching.finish();
        let get = ["get", "configmap", "lena", "-n", "default", "-o", "name"];
        assert_eq!(client.through(&get).run().printed(), "configmap/lena\n");
    });
    client.end();
}
