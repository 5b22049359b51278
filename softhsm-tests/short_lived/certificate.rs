//! `credential --as certificate`: requested with the key, approved by `approve`, signed by
//! kube-controller-manager's signer.

use time::OffsetDateTime;

use super::plugin::Holder;
use crate::fixture::*;

/// Somebody who may request certificates.
fn requester(kind: Kind, subject: &'static str) -> Holder {
    requester_at(cluster(), kind, subject)
}

pub(super) fn requester_at(cluster: &'static Cluster, kind: Kind, subject: &'static str) -> Holder {
    let der = cluster.issue(kind, Claims { subject, ..JANE });
    let store = token_with([Object::key(key(kind), &[1]), Object::issued(der, &[1])]);
    let holder = Holder::at(cluster, store);
    let (_, name) = subject.rsplit_once("CN=").unwrap();
    allow_requests(&holder, name);
    holder
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
    holder.cluster.wait_for_right(&["create", "certificatesigningrequests", "--as", name]);
}

/// The requests of this user.
fn requests(holder: &Holder, user: &str) -> Vec<Value> {
    let get = ["get", "certificatesigningrequests", "-o", "json"];
    let list = holder.administrator().arguments(&get).run().json();
    let requests = list["items"].as_array().unwrap().iter();
    requests.filter(|it| it["spec"]["username"] == user).cloned().collect()
}

/// This user's next request.
fn next(holder: &Holder, user: &str) -> Value {
    let is_undecided = |it: &Value| it["status"]["conditions"].is_null();
    wait_for(&format!("a request of {user}"), || {
        requests(holder, user).into_iter().find(is_undecided)
    })
}

/// The same by its name.
fn next_request(holder: &Holder, user: &str) -> String {
    next(holder, user)["metadata"]["name"].as_str().unwrap().to_owned()
}

/// The administrator approves what this user has requested so far.
pub(super) fn approve_requests(holder: &Holder, user: &str) {
    let requests = requests(holder, user);
    for request in requests.iter().filter(|it| it["status"]["conditions"].is_null()) {
        let name = request["metadata"]["name"].as_str().unwrap();
        holder.administrator().arguments(&["certificate", "approve", name]).run().printed();
    }
}

/// The administrator approves this user's next request.
pub(super) fn approve_next(holder: &Holder, user: &str) {
    let name = next_request(holder, user);
    let folder = kubectl().parent().unwrap().display();
    let mut terminal = holder
        .administrator()
        .program(Path::new(PROGRAM))
        .variable("PATH", format!("{folder}:/usr/bin:/bin"))
        .arguments(&["approve", &name])
        .at_terminal();
    let outcome = terminal.expect("Type yes: ").type_line("yes").finish().0;
    assert_eq!(outcome.printed(), format!("{name} approved\n"));
}

/// While the invocation runs, its request is approved.
fn approved(holder: &Holder, user: &str, invocation: Invocation) -> Outcome {
    let running = invocation.start(None);
    approve_next(holder, user);
    running.finish()
}

#[test]
fn kubectl_is_who_the_hardware_is() {
    for (kind, subject, user) in
        [(Kind::P256, "/O=dev/O=ops/CN=carol", "carol"), (Kind::Rsa(2048), "/CN=dave", "dave")]
    {
        let holder = requester(kind, subject);
        let whoami =
            holder.kubectl(&["--as=certificate"]).arguments(&["auth", "whoami", "-o", "json"]);
        let said = approved(&holder, user, whoami).printed();
        let review: Value = serde_json::from_str(&said).unwrap();
        let told = &review["status"]["userInfo"];
        assert_eq!(told["username"], user);
        let groups: Vec<_> = told["groups"].as_array().unwrap().iter().collect();
        let is_group = |name: &str| groups.iter().any(|it| **it == name);
        assert_eq!((is_group("dev"), is_group("ops")), (user == "carol", user == "carol"));
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
fn a_kubeconfig_has_the_certificate_until_it_ends() {
    let holder = requester(Kind::P256, "/CN=ivan");
    let out = holder.store.path("elsewhere");
    let option = format!("--out={}", out.display());
    let made = holder.program(&[
        "credential",
        "--as=certificate",
        "--output=kubeconfig",
        "--duration=20m",
        &option,
    ]);
    let outcome = approved(&holder, "ivan", made);
    assert_eq!(outcome.printed(), "");
    assert!(outcome.stderr.contains("waiting for the CertificateSigningRequest credential-"));
    let whoami = Invocation::new(holder.store.directory.path())
        .program(kubectl())
        .variable("KUBECONFIG", &out)
        .arguments(&["auth", "whoami", "-o", "jsonpath={.status.userInfo.username}"])
        .run();
    assert_eq!(whoami.printed(), "ivan");
}

/// Answers this user's next request with a certificate for a day, with text before and behind it; the certificate as PEM.
fn answer_next(holder: &Holder, user: &str) -> String {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    let mut request = next(holder, user);
    // It begins when it is issued, which is later than when the command began.
    let asked = OffsetDateTime::now_utc().unix_timestamp();
    wait_until("the next second", || OffsetDateTime::now_utc().unix_timestamp() > asked);
    let at = |name: &str| holder.store.path(name);
    let csr = STANDARD.decode(request["spec"]["request"].as_str().unwrap());
    fs::write(at("csr"), csr.unwrap()).unwrap();
    let [ca, key] = cluster().authority();
    let pem = certify(&at("csr"), [&ca, &key], 1, "extendedKeyUsage=clientAuth\n", &[]);
    let certificate = fs::read_to_string(pem).unwrap();
    let answer = format!("above\n{certificate}\u{1b}]0;behind\u{7}\n");
    request["status"] = json!({"certificate": STANDARD.encode(answer)});
    let name = request["metadata"]["name"].as_str().unwrap();
    let path = format!("/apis/certificates.k8s.io/v1/certificatesigningrequests/{name}/status");
    let answered = holder.administrator().arguments(&["replace", "--raw", &path, "-f", "-"]);
    answered.piped(request.to_string()).run().printed();
    certificate
}

/// A signer may put text there, and a proxy anything.
#[test]
fn what_stands_behind_the_certificate_is_not_handed_out() {
    let holder = requester(Kind::P256, "/CN=judy");
    let arguments = ["credential", "--as=certificate", "--output=raw", "--duration=24h"];
    let running = holder.program(&arguments).start(None);
    let certificate = answer_next(&holder, "judy");
    let outcome = running.finish().succeeded();
    let printed = outcome.shown();
    let (begin, end) = printed.split_at(certificate.len());
    assert_eq!(begin, certificate);
    assert!(end.starts_with("-----BEGIN PRIVATE KEY-----\n"), "{end}");
    assert!(!outcome.stderr.contains("time than was asked for"), "{outcome:?}");
}

/// Nobody can take it back.
#[test]
fn a_certificate_that_lives_much_longer_than_was_asked_for_is_not_handed_out() {
    let holder = requester(Kind::P256, "/CN=peggy");
    let running = holder.program(&["credential", "--as=certificate", "--output=raw"]).start(None);
    answer_next(&holder, "peggy");
    let outcome = running.finish();
    assert_eq!(outcome.status.code(), Some(9), "{outcome:?}");
    assert!(outcome.stdout.is_empty(), "{outcome:?}");
    outcome
        .says(&["lives much longer than was asked for, until 20", "ask for that with --duration"]);
}

#[test]
fn who_is_denied_is_told_so() {
    let holder = requester(Kind::P256, "/CN=frank");
    let running = holder.program(&["credential", "--as=certificate"]).start(None);
    let deny = ["certificate", "deny", &next_request(&holder, "frank")];
    holder.administrator().arguments(&deny).run().printed();
    let outcome = running.finish();
    assert_eq!(outcome.status.code(), Some(9), "{outcome:?}");
    assert!(outcome.stdout.is_empty());
    for text in ["was denied: KubectlDeny", "; ask who approves requests"] {
        assert!(outcome.stderr.contains(text), "{outcome:?}");
    }
}

#[test]
fn what_is_not_approved_or_can_not_be_is_told() {
    let holder = requester(Kind::P256, "/CN=grace");
    let certificate = |holder: &Holder, more: &[&str]| {
        holder.program(&[&["credential", "--as=certificate"], more].concat()).run()
    };
    let slow = certificate(&holder, &["--wait=1s"]);
    assert_eq!(slow.status.code(), Some(9), "{slow:?}");
    assert!(slow.stderr.contains("was not approved within 1 s; have another person"), "{slow:?}");
    assert_eq!(requests(&holder, "grace"), Vec::<Value>::new());
    for (duration, said) in
        [("5m", "for less than 10 minutes"), ("25h", "a certificate can't be revoked")]
    {
        let outcome = certificate(&holder, &[&format!("--duration={duration}")]);
        outcome.fails_in_one_line(2, &[said]);
    }
    let administrator = Holder::new(Kind::P256, ADMINISTRATOR);
    certificate(&administrator, &[])
        .fails_in_one_line(9, &["group system:masters", "use --as token"]);
    // Somebody without the right.
    let jane = Holder::new(Kind::P384, Claims { subject: "/CN=mallory", ..JANE });
    certificate(&jane, &[]).fails_in_one_line(9, &["certificatesigningrequests", "(RBAC)"]);
}
