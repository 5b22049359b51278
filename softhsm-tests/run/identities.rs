//! As whom the command acts: as the user that it names, however it names one, with each cluster.

use super::run;
use crate::fixture::*;

const OLGA: Claims = Claims { subject: "/O=ops/CN=olga", ..JANE };

/// Two keys, two names of the one server, and users with and without a key.
struct Users {
    store: Store,
    /// With keys in the token.
    token: String,
    /// The same with keys in files.
    files: String,
}

impl Users {
    fn new() -> Self {
        let kinds = [Kind::P256, Kind::P384];
        let certificates = [JANE, OLGA].map(|claims| {
            cluster().issue(kinds[usize::from(claims.subject == OLGA.subject)], claims)
        });
        let store = token_with([
            Object::key(key(kinds[0]), &[1]),
            Object::issued(certificates[0].clone(), &[1]),
            Object::key(key(kinds[1]), &[2]),
            Object::issued(certificates[1].clone(), &[2]),
        ]);
        let file = |name: &str| {
            let path = store.path(name);
            path.to_str().unwrap().to_owned()
        };
        drop(run(&store, &["true"]));
        let mut config: Value =
            serde_json::from_slice(&fs::read(file("kubeconfig")).unwrap()).unwrap();
        let server = config["clusters"][0]["cluster"].clone();
        config["clusters"] = json!([
            {"name": "one", "cluster": server}, {"name": "two", "cluster": server},
        ]);
        let context = |name: &str, cluster: &str, user: &str| json!({"name": name, "context": {"cluster": cluster, "user": user}});
        config["contexts"] = json!([
            context("jane", "one", "jane"),
            context("olga", "two", "olga"),
            context("joe", "one", "joe"),
        ]);
        config["current-context"] = json!("olga");
        let keyed = config["users"][0]["user"].clone();
        let mut other = keyed.clone();
        other["auth-provider"]["config"]["objectId"] = json!("2");
        let joe = json!({"name": "joe", "user": {"token": "nobody"}});
        let mut write = |name: &str, [jane, olga]: [Value; 2]| {
            config["users"] =
                json!([{"name": "jane", "user": jane}, {"name": "olga", "user": olga}, joe]);
            fs::write(file(name), config.to_string()).unwrap();
            file(name)
        };
        let token = write("token", [keyed, other]);
        let in_files = [0, 1].map(|number| {
            let pem = format!(
                "-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n",
                STANDARD.encode(&certificates[number])
            );
            json!({
                "client-certificate-data": STANDARD.encode(pem),
                "client-key": key(kinds[number]).private_pem(),
            })
        });
        let files = write("files", in_files);
        Self { store, token, files }
    }

    fn run(&self, arguments: &[&str]) -> Outcome {
        run(&self.store, &[&["--kubeconfig", &self.token, "--"], arguments].concat()).run()
    }

    /// What the script prints directly, and in a run that says this.
    fn both(&self, script: &str, said: &[&str]) -> [String; 2] {
        let direct = cluster()
            .command(&self.store, &self.store.configuration(), "-c")
            .program(Path::new("/bin/bash"))
            .argument(script)
            .variable("KUBECONFIG", &self.files)
            .run();
        [direct.printed(), self.run(&["bash", "-c", script]).printed_beside(said)]
    }
}

const WHOAMI: &str = "auth whoami -o jsonpath={.status.userInfo.username}";

#[test]
fn every_combination_of_context_cluster_and_user_is_whom_kubectl_would_be() {
    let users = Users::new();
    let mut script = String::new();
    let mut expected = 0;
    for context in ["", "--context=jane", "--context=olga", "--context=joe"] {
        for cluster in ["", "--cluster=one", "--cluster=two"] {
            for user in ["", "--user=jane", "--user=olga"] {
                // Who has no key goes to the server directly, in a context of their own.
                if context == "--context=joe" && [cluster, user] != ["", ""] {
                    continue;
                }
                let options = format!("{context} {cluster} {user}");
                script += &format!(
                    "echo \"{options}: $(kubectl {options} {WHOAMI} 2>&1 | tail -n 1)\"\n"
                );
                expected += 1;
            }
        }
    }
    script += &format!(
        "kubectl config set-context low --cluster=one --user=olga >/dev/null
         kubectl --context=low {WHOAMI}
         kubectl --user=olga config set-context --current --user=jane >/dev/null; kubectl {WHOAMI}"
    );
    let [direct, within] = users.both(&script, &["has changed its kubeconfig"]);
    assert_eq!(direct.lines().count(), expected + 1, "{direct}");
    assert_eq!(direct, within);
    for name in ["jane", "olga"] {
        assert!(direct.matches(name).count() > 10, "{direct}");
    }
}

#[test]
fn helm_is_whom_its_context_names() {
    let users = Users::new();
    let script: String = [
        "helm list",
        "helm --kube-context=jane list",
        "helm list --kube-context olga",
        "helm --kube-context=joe list",
        "HELM_KUBECONTEXT=jane helm list",
        "HELM_KUBECONTEXT=jane helm --kube-context=olga list",
    ]
    .map(|command| format!("{command} 2>&1 | tail -n 1\n"))
    .concat();
    let [direct, within] = users.both(&script, &[]);
    // Neither may list releases, and the server says so by name.
    for name in ["jane", "olga"] {
        assert!(direct.matches(&format!("User \"{name}\" cannot list")).count() >= 2, "{direct}");
    }
    assert_eq!(direct, within);
}

#[test]
fn the_key_of_the_user_that_the_arguments_name_is_opened_first() {
    let users = Users::new();
    let whoami = |options: &[&str]| {
        let kubectl = [&["kubectl"], options, &WHOAMI.split(' ').collect::<Vec<_>>()].concat();
        let outcome = users.run(&kubectl);
        outcome.silently();
        outcome.printed()
    };
    assert_eq!(whoami(&[]), "olga");
    assert_eq!(whoami(&["--user", "jane"]), "jane");
    // Joe's context uses the tunnel if another user is named.
    assert_eq!(whoami(&["--context=joe", "--user=jane"]), "jane");
    let arguments = ["-v", "--kubeconfig", &users.token, "--", "kubectl", "--user=jane"];
    let whoami: Vec<_> = WHOAMI.split(' ').collect();
    let outcome = run(&users.store, &[&arguments[..], &whoami].concat()).run();
    assert!(!outcome.stderr.contains("olga"), "{outcome:?}");
}

#[test]
fn a_user_with_a_certificate_in_a_file_goes_to_the_server_directly() {
    let users = Users::new();
    let mut config: Value = serde_json::from_slice(&fs::read(&users.token).unwrap()).unwrap();
    let files: Value = serde_json::from_slice(&fs::read(&users.files).unwrap()).unwrap();
    let mut file = files["users"][0].clone();
    file["name"] = json!("file");
    config["users"].as_array_mut().unwrap().push(file);
    let context = json!({"name": "file", "context": {"cluster": "one", "user": "file"}});
    config["contexts"].as_array_mut().unwrap().push(context);
    fs::write(&users.token, config.to_string()).unwrap();
    let outcome = users.run(&["bash", "-c", &format!("kubectl --context=file {WHOAMI}")]);
    outcome.silently();
    assert_eq!(outcome.printed(), "jane");
    let outcome =
        users.run(&["bash", "-c", &format!("kubectl --cluster=one --user=file {WHOAMI}")]);
    assert_eq!(outcome.status.code(), Some(1), "{outcome:?}");
    outcome.says(&["tls: "]);
}
