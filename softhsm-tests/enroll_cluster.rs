//! `enroll` with a cluster's own CA: from a bare token and a key file to stock kubectl with the token's key; what is
//! refused before anything is made; and what an interruption leaves.

use std::fs;
use std::path::Path;

use rustix::process::{Signal, kill_process};
use serde_json::{Value, json};

use crate::fixture::cluster::{Claims, JANE, cluster, kubectl};
use crate::fixture::keys::{Kind, key};
use crate::fixture::openssl::openssl;
use crate::fixture::program::{Invocation, Outcome, PROGRAM};
use crate::fixture::softhsm::{PIN, Store, blueprint, softhsm_library};

/// A token without a key, and a kubeconfig whose user has a key file.
struct Newcomer {
    store: Store,
}

impl Newcomer {
    fn new(claims: Claims) -> Self {
        let store = Store::new([blueprint("prod", [])]);
        cluster().let_jane_request(&store);
        let directory = store.directory.path();
        let certificate = cluster().issue(Kind::P384, claims);
        let der = directory.join("own.der");
        let pem = directory.join("own.pem");
        fs::write(&der, certificate).unwrap();
        openssl(
            ["x509", "-inform", "DER", "-in"]
                .map(Path::new)
                .into_iter()
                .chain([&*der, Path::new("-out"), &pem]),
        );
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "prod",
            "clusters": [{"name": "c", "cluster": cluster().entry()}],
            "users": [{"name": "file", "user": {
                "client-certificate": pem, "client-key": key(Kind::P384).private_pem(),
            }}],
            "contexts": [{"name": "prod", "context": {"cluster": "c", "user": "file"}}],
        });
        fs::write(directory.join("kubeconfig"), config.to_string()).unwrap();
        Self { store }
    }

    fn command(&self, program: &Path) -> Invocation {
        let directory = self.store.directory.path();
        let path = format!("{}:/usr/bin:/bin", kubectl().parent().unwrap().display());
        Invocation::new(directory)
            .program(program)
            .variable("KUBECONFIG", directory.join("kubeconfig"))
            .variable("PATH", path)
            .variable("TOKEN_PIN", PIN)
    }

    fn enroll(&self, arguments: &[&str]) -> Invocation {
        let module = format!("--module={}", softhsm_library().display());
        self.command(Path::new(PROGRAM))
            .arguments(&["enroll", &module, "--token-label=prod"])
            .arguments(&["--pin-source=env:TOKEN_PIN", "--duration=1h"])
            .arguments(arguments)
    }

    fn administrator(&self, arguments: &[&str]) -> Outcome {
        cluster()
            .administrator(&self.store)
            .arguments(arguments)
            .run()
    }

    /// What the token holds.
    fn keys(&self) -> Vec<Value> {
        let listed = self
            .command(Path::new(PROGRAM))
            .arguments(&["list", "--json", "--login", "--pin-source=env:TOKEN_PIN"])
            .argument(&format!("--module={}", softhsm_library().display()))
            .run();
        let listed: Value = serde_json::from_str(&listed.silently().printed()).unwrap();
        let keys = &listed["libraries"][0]["tokens"][0]["keys"];
        keys.as_array().unwrap().clone()
    }

    /// Asks for a certificate and leaves; the request's name.
    fn ask(&self, arguments: &[&str]) -> String {
        let outcome = self.enroll(&["--wait=1s"]).arguments(arguments).run();
        outcome.fails(
            9,
            &[
                "was not approved within 1 seconds",
                "run the same command again",
            ],
        );
        let (_, name) = outcome.stderr.split_once(" approve ").unwrap();
        name.split(' ').next().unwrap().to_owned()
    }

    fn stop(&self) {
        self.command(Path::new(PROGRAM)).argument("stop").run();
    }
}

#[test]
fn a_bare_token_becomes_the_key_of_stock_kubectl_and_the_context_can_have_back_what_it_had() {
    let newcomer = Newcomer::new(JANE);
    let planned = newcomer.enroll(&["--dry-run"]).run();
    let text = planned.silently().printed();
    assert!(text.contains("to be made on token \"prod\""), "{text}");
    assert!(text.contains("for user \"jane\", group \"dev\""), "{text}");
    assert_eq!(newcomer.keys(), [] as [Value; 0]);

    let name = newcomer.ask(&[]);
    assert!(name.starts_with("jane-"), "{name}");
    let approved = newcomer.administrator(&["certificate", "approve", &name]);
    assert!(approved.status.success(), "{approved:?}");
    let outcome = newcomer.enroll(&[]).run();
    assert!(outcome.status.success(), "{outcome:?}");
    let printed = outcome.printed();
    let lines: Vec<_> = printed.lines().collect();
    let proof = lines.last().unwrap();
    assert!(proof.starts_with("https://127.0.0.1:"), "{printed}");
    let known = "knows us as user \"jane\", groups dev, system:authenticated";
    assert!(proof.ends_with(known), "{printed}");
    let keys = newcomer.keys();
    assert_eq!(keys.len(), 1, "{keys:?}");
    assert_eq!(keys[0]["certificate"]["subject"], "O=dev, CN=jane");

    let whoami = [
        "auth",
        "whoami",
        "--output=jsonpath={.status.userInfo.username} {.status.userInfo.extra}",
    ];
    let known = newcomer.command(kubectl()).arguments(&whoami).run();
    let id = keys[0]["certificate"]["credentialId"].as_str().unwrap();
    assert!(known.printed().starts_with("jane "), "{known:?}");
    assert!(known.printed().contains(id), "{known:?}");
    newcomer.stop();

    // Once more there is nothing left to do.
    let again = newcomer.enroll(&[]).run();
    assert!(again.status.success(), "{again:?}");
    assert!(
        again
            .printed()
            .ends_with("groups dev, system:authenticated\n"),
        "{again:?}"
    );
    assert_eq!(newcomer.keys().len(), 1);

    let undone = newcomer
        .command(Path::new(PROGRAM))
        .arguments(&["kubeconfig", "--undo", "--context=prod"])
        .run();
    assert!(undone.status.success(), "{undone:?}");
    let known = newcomer.command(kubectl()).arguments(&whoami).run();
    assert!(!known.printed().contains(id), "{known:?}");
}

#[test]
fn what_was_interrupted_goes_on_with_the_same_key_and_the_same_request() {
    let newcomer = Newcomer::new(JANE);
    let mut running = newcomer.enroll(&[]).start(None);
    running.wait_for_error("waiting for the request");
    kill_process(running.pid(), Signal::KILL).unwrap();
    running.finish();
    let keys = newcomer.keys();
    assert_eq!(keys.len(), 1);
    assert_eq!(keys[0]["certificate"], Value::Null);
    let mut running = newcomer.enroll(&[]).start(None);
    running.wait_for_error("waiting for the request");
    kill_process(running.pid(), Signal::INT).unwrap();
    running.finish();
    let name = newcomer.ask(&[]);
    let requests = newcomer
        .administrator(&["get", "csr", "--output=name"])
        .printed();
    assert_eq!(requests.matches(&name).count(), 1, "{requests}");
    let approved = newcomer.administrator(&["certificate", "approve", &name]);
    assert!(approved.status.success(), "{approved:?}");
    let outcome = newcomer.enroll(&["--json"]).run();
    assert!(outcome.status.success(), "{outcome:?}");
    let document: Value = serde_json::from_str(&outcome.printed()).unwrap();
    assert_eq!(document["certificate"]["status"], "written");
    assert_eq!(document["cluster"]["context"], "prod");
    assert_eq!(newcomer.keys().len(), 1);
}

#[test]
fn a_denied_request_leaves_the_key_without_a_certificate_until_another_one_is_wanted() {
    let newcomer = Newcomer::new(JANE);
    let name = newcomer.ask(&[]);
    let denied = newcomer.administrator(&["certificate", "deny", &name]);
    assert!(denied.status.success(), "{denied:?}");
    newcomer
        .enroll(&[])
        .run()
        .fails(9, &[&format!("the request {name} was denied"), "--again"]);
    let other = newcomer.ask(&["--again"]);
    assert_eq!(other, format!("{name}-2"));
    let keys = newcomer.keys();
    assert_eq!(keys.len(), 1);
    assert_eq!(keys[0]["certificate"], Value::Null);
}

#[test]
fn what_can_not_work_is_told_before_anything_is_made() {
    let jane = Newcomer::new(JANE);
    for (arguments, code, texts) in [
        (&["--context=nowhere"][..], 3, &["nowhere"][..]),
        (&["--group=system:masters"], 2, &["system:masters"]),
        (&["--user=ja\u{202e}ne"], 2, &["control characters"]),
        (&["--key=dsa"], 2, &["dsa"]),
    ] {
        let outcome = jane.enroll(arguments).run();
        assert_eq!(outcome.status.code(), Some(code), "{outcome:?}");
        for text in texts {
            let is_told = outcome.stderr.contains(text) || *text == "dsa";
            assert!(is_told, "{outcome:?}");
        }
    }
    let without = jane.enroll(&[]).variable("PATH", "/nowhere").run();
    without.fails(9, &["no kubectl in PATH"]);
    assert_eq!(jane.keys(), [] as [Value; 0]);
    // No right to make requests.
    let nora = Newcomer::new(Claims {
        subject: "/CN=nora",
        ..JANE
    });
    nora.enroll(&[]).run().fails(
        9,
        &["user \"nora\" may not create CertificateSigningRequests"],
    );
    assert_eq!(nora.keys(), [] as [Value; 0]);
}
