//! `credential --as certificate`: requested with the key, approved by the documents' script, signed by
//! kube-controller-manager's signer.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::plugin::Holder;
use super::refuses;
use crate::fixture::clients::distribution_kubectl;
use crate::fixture::cluster::{ADMINISTRATOR, Claims, Cluster, JANE, cluster, kubectl};
use crate::fixture::keys::{Kind, key};
use crate::fixture::openssl::{Issue, issue, openssl};
use crate::fixture::program::{Invocation, Outcome};
use crate::fixture::softhsm::{Object, token_with};

/// Somebody who may request certificates, and the hardware's certificate as a file.
fn requester(kind: Kind, subject: &'static str) -> (Holder, PathBuf) {
    requester_at(cluster(), kind, subject)
}

pub(super) fn requester_at(
    cluster: &'static Cluster,
    kind: Kind,
    subject: &'static str,
) -> (Holder, PathBuf) {
    let der = cluster.issue(kind, Claims { subject, ..JANE });
    let store = token_with([
        Object::key(key(kind), &[1]),
        Object::issued(der.clone(), &[1]),
    ]);
    let path = store.directory.path().join("hardware");
    fs::write(path.with_extension("der"), der).unwrap();
    let [from, to] = ["der", "pem"].map(|it| path.with_extension(it).display().to_string());
    openssl(["x509", "-inform", "DER", "-in", &from, "-out", &to]);
    let holder = Holder::at(cluster, store);
    let (_, name) = subject.rsplit_once("CN=").unwrap();
    allow_requests(&holder, name);
    (holder, path.with_extension("pem"))
}

/// This user may request certificates.
pub(super) fn allow_requests(holder: &Holder, name: &str) {
    let metadata = json!({ "name": name });
    holder.apply(&[
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": metadata,
            "rules": [{
                "apiGroups": ["certificates.k8s.io"], "resources": ["certificatesigningrequests"],
                "verbs": ["create", "get", "delete"],
            }],
        }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": metadata,
            "subjects": [{"kind": "User", "name": name}],
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
        }),
    ]);
}

/// The requests of this user.
fn requests(holder: &Holder, user: &str) -> Vec<Value> {
    let get = ["get", "certificatesigningrequests", "-o", "json"];
    let printed = holder.administrator().arguments(&get).run().printed();
    let list: Value = serde_json::from_str(&printed).unwrap();
    let requests = list["items"].as_array().unwrap().iter();
    requests
        .filter(|it| it["spec"]["username"] == user)
        .cloned()
        .collect()
}

/// Runs the script of docs/short-lived.md on this user's next request; its verdict.
pub(super) fn judge(holder: &Holder, user: &str, hardware: &Path) -> String {
    let began = Instant::now();
    let name = loop {
        let undecided = |it: &&Value| it["status"]["conditions"].is_null();
        let found = requests(holder, user);
        if let Some(request) = found.iter().find(undecided) {
            break request["metadata"]["name"].as_str().unwrap().to_owned();
        }
        assert!(
            began.elapsed() < Duration::from_secs(30),
            "no request of {user}"
        );
        thread::sleep(Duration::from_millis(100));
    };
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/short-lived.md");
    let guide = fs::read_to_string(guide).unwrap();
    let (_, script) = guide.split_once("```sh\n#!/bin/sh\n").unwrap();
    let (script, _) = script.split_once("```").unwrap();
    let folder = kubectl().parent().unwrap().display();
    let script = format!("PATH={folder}:$PATH\n{script}");
    let judged = holder
        .administrator()
        .program(Path::new("sh"))
        .arguments(&[
            "-c",
            &script,
            "approve-request",
            &name,
            hardware.to_str().unwrap(),
        ])
        .run();
    judged.silently().printed().trim().to_owned()
}

/// While the invocation runs, the script judges its request.
fn judged(
    holder: &Holder,
    user: &str,
    hardware: &Path,
    invocation: Invocation,
) -> (String, Outcome) {
    let running = invocation.start(None);
    let verdict = judge(holder, user, hardware);
    (verdict, running.finish())
}

#[test]
fn kubectl_is_who_the_hardware_is() {
    for (kind, subject, user) in [
        (Kind::P256, "/O=dev/O=ops/CN=carol", "carol"),
        (Kind::Rsa(2048), "/CN=dave", "dave"),
    ] {
        let (holder, hardware) = requester(kind, subject);
        let whoami = holder
            .kubectl(&["--as=certificate"])
            .arguments(&["auth", "whoami", "-o", "json"]);
        let (verdict, outcome) = judged(&holder, user, &hardware, whoami);
        assert_eq!(verdict, "Approved");
        let said = outcome.printed();
        let review: Value = serde_json::from_str(&said).unwrap();
        let told = &review["status"]["userInfo"];
        assert_eq!(told["username"], user);
        let groups: Vec<_> = told["groups"].as_array().unwrap().iter().collect();
        let is_group = |name: &str| groups.iter().any(|it| **it == name);
        assert_eq!(
            (is_group("dev"), is_group("ops")),
            (user == "carol", user == "carol")
        );
        // The certificate is another one than the hardware's.
        let request = requests(&holder, user).remove(0);
        assert_eq!(request["spec"]["expirationSeconds"], 600);
        let id = "authentication.kubernetes.io/credential-id";
        assert_ne!(told["extra"][id], request["spec"]["extra"][id]);
        assert_eq!(holder.store.calls("C_Login").len(), 1);
        assert_eq!(holder.store.calls("C_Sign").len(), 1);
    }
}

#[test]
fn an_older_kubectl_is_who_the_hardware_is() {
    let (holder, hardware) = requester(Kind::P256, "/CN=gina");
    let nodes = holder
        .kubectl_with(
            "client.authentication.k8s.io/v1beta1",
            &["--as=certificate"],
        )
        .program(distribution_kubectl())
        .arguments(&["get", "nodes"]);
    let (verdict, outcome) = judged(&holder, "gina", &hardware, nodes);
    assert_eq!(verdict, "Approved");
    // It knows no whoami, but is told who is forbidden.
    assert!(
        outcome.stderr.contains("User \"gina\" cannot list"),
        "{outcome:?}"
    );
}

#[test]
fn a_kubeconfig_has_the_certificate_until_it_ends() {
    let (holder, hardware) = requester(Kind::P256, "/CN=erin");
    let out = holder.store.directory.path().join("elsewhere");
    let option = format!("--out={}", out.display());
    let made = holder.program(&[
        "credential",
        "--as=certificate",
        "--output=kubeconfig",
        "--duration=20m",
        &option,
    ]);
    let (_, outcome) = judged(&holder, "erin", &hardware, made);
    assert_eq!(outcome.printed(), "");
    assert!(
        outcome
            .stderr
            .contains("waiting for the CertificateSigningRequest credential-")
    );
    let whoami = Invocation::new(holder.store.directory.path())
        .program(kubectl())
        .variable("KUBECONFIG", &out)
        .arguments(&[
            "auth",
            "whoami",
            "-o",
            "jsonpath={.status.userInfo.username}",
        ])
        .run();
    assert_eq!(whoami.printed(), "erin");
}

#[test]
fn a_request_without_the_hardware_is_denied() {
    let (holder, hardware) = requester(Kind::P256, "/CN=frank");
    // The same name, with a key in a file.
    let directory = holder.store.directory.path();
    let software = key(Kind::P384).private_pem();
    let authority = cluster().authority();
    let [pem, _] = issue(
        directory,
        "software",
        &Issue {
            key: &software,
            subject: "/CN=frank",
            extensions: "extendedKeyUsage=clientAuth\n",
            days: 1,
            issuer: [&authority[0], &authority[1]],
        },
    );
    let request = directory.join("software.csr");
    use base64::Engine as _;
    let encoded = base64::engine::general_purpose::STANDARD.encode(fs::read(request).unwrap());
    let object = json!({
        "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
        "metadata": {"name": "frank-without-hardware"},
        "spec": {
            "request": encoded, "signerName": "kubernetes.io/kube-apiserver-client",
            "expirationSeconds": 600, "usages": ["client auth"],
        },
    });
    let options = [
        (
            "--server",
            cluster().entry()["server"].as_str().unwrap().to_owned(),
        ),
        (
            "--certificate-authority",
            authority[0].display().to_string(),
        ),
        ("--client-certificate", pem.display().to_string()),
        ("--client-key", software.display().to_string()),
    ];
    let options = options.map(|(name, value)| format!("{name}={value}"));
    let made = Invocation::new(directory)
        .program(kubectl())
        .arguments(&options.each_ref().map(String::as_str))
        .arguments(&["create", "--validate=false", "-f", "-"])
        .piped(object.to_string())
        .run();
    made.printed();
    assert_eq!(judge(&holder, "frank", &hardware), "Denied");
    // And one by other hardware than the approver knows.
    let other = key(Kind::Rsa(2048)).certificate_pem();
    let asked = holder.program(&["credential", "--as=certificate"]);
    let (verdict, outcome) = judged(&holder, "frank", &other, asked);
    assert_eq!(verdict, "Denied");
    assert_eq!(outcome.status.code(), Some(9), "{outcome:?}");
    assert!(outcome.stdout.is_empty());
    for text in [
        "was denied: ComparedWithHardware: ",
        "; ask who approves requests",
    ] {
        assert!(outcome.stderr.contains(text), "{outcome:?}");
    }
}

#[test]
fn what_is_not_approved_or_can_not_be_is_told() {
    let (holder, _) = requester(Kind::P256, "/CN=grace");
    let certificate = |holder: &Holder, more: &[&str]| {
        let arguments = [&["credential", "--as=certificate"], more].concat();
        holder.program(&arguments).run()
    };
    let slow = certificate(&holder, &["--wait=1s"]);
    assert_eq!(slow.status.code(), Some(9), "{slow:?}");
    assert!(
        slow.stderr
            .contains("was not approved within 1 s; have an approver run"),
        "{slow:?}"
    );
    assert_eq!(requests(&holder, "grace"), Vec::<Value>::new());
    let short = certificate(&holder, &["--duration=5m"]);
    refuses(&short, 2, &["lives 10 minutes at least"]);
    let administrator = Holder::new(Kind::P256, ADMINISTRATOR);
    refuses(
        &certificate(&administrator, &[]),
        9,
        &["group system:masters", "use --as token"],
    );
    // Somebody without the right.
    let jane = Holder::new(
        Kind::P384,
        Claims {
            subject: "/CN=mallory",
            ..JANE
        },
    );
    refuses(
        &certificate(&jane, &[]),
        9,
        &["certificatesigningrequests", "(RBAC)"],
    );
}
