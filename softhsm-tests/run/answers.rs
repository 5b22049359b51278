//! What a command is told by the tunnel that there is no connection for: in its own words, and with
//! nothing of ours on standard error.

use super::gate::TOOLS;
use super::trouble::{full_queue, quoted};
use super::{changed_kubeconfig, run, run_recorded};
use crate::fixture::*;

/// What people do: discovery is asked first, or not; a body is sent, or an upgrade asked for.
const COMMANDS: [&str; 6] = [
    "kubectl get pods",
    "kubectl apply -f \"$MANIFEST\"",
    "kubectl exec shell -- true",
    "kubectl logs shell",
    "kubectl get --raw /version",
    "kubectl auth whoami",
];

const MANIFEST: &str =
    "{apiVersion: v1, kind: ConfigMap, metadata: {name: big}, data: {key: value}}\n";

/// An address where nothing listens.
fn nowhere() -> String {
    format!("https://{}", free_address())
}

/// Gives the script a manifest to apply.
fn with_manifest(store: &Store, run: Invocation) -> Invocation {
    let manifest = store.path("manifest.yaml");
    fs::write(&manifest, MANIFEST).unwrap();
    run.variable("MANIFEST", manifest)
}

/// Runs this script with this server.
fn with_server(store: &Store, server: &str, script: &str) -> Outcome {
    let run = run(store, &["bash", "-c", script]);
    cluster().lead_to(store, server);
    with_manifest(store, run).run()
}

/// Demands that the command shows this text as the server's, and that we have said nothing.
#[track_caller]
fn assert_shown(outcome: &Outcome, texts: &[&str]) {
    assert_eq!(outcome.status.code(), Some(1), "{outcome:?}");
    assert!(outcome.stdout.is_empty(), "{outcome:?}");
    assert!(!outcome.stderr.contains("pkcs11-external-signer: "), "{outcome:?}");
    let shown = quoted(outcome);
    for text in texts {
        let told = shown
            .lines()
            .any(|line| line.contains("an error on the server (") && line.contains(text));
        assert!(told, "{text}: {outcome:?}");
    }
}

#[test]
fn whatever_kubectl_does_it_shows_that_the_server_is_down() {
    let store = cluster().token(Kind::P256, JANE);
    let gone = nowhere();
    let told = format!(
        "cluster \"test\" ({gone}): no connection: Connection refused (os error 111); check that the API server runs, and the network, VPN or proxy-url that leads to it"
    );
    for command in COMMANDS {
        assert_shown(&with_server(&store, &gone, command), &[&told]);
    }
}

/// An informer would otherwise list everything anew.
#[test]
fn a_watch_goes_on_by_itself_when_the_server_is_back() {
    let store = cluster().token(Kind::P256, ADMINISTRATOR);
    let mut server = Forwarder::to(cluster().entry()["server"].as_str().unwrap());
    server.stop();
    let watch = "/api/v1/namespaces/default/pods?watch=true&timeoutSeconds=2";
    let watching = run(&store, &["-v", "--", "kubectl", "get", "--raw", watch]);
    cluster().lead_to(&store, &server.url());
    let mut watching = watching.start(None);
    watching.wait_for_error("answered with 502");
    server.start();
    assert!(watching.finish().shown().contains("\"name\":\"shell\""));
}

#[test]
fn whatever_kubectl_does_it_shows_that_the_server_is_not_trusted() {
    let store = cluster().token(Kind::P256, JANE);
    let stranger = key(Kind::P256).certificate_pem();
    for command in COMMANDS {
        let run = with_manifest(&store, run(&store, &["bash", "-c", command]));
        let file = changed_kubeconfig(&store, |config| {
            config["clusters"][0]["cluster"]["certificate-authority"] = json!(stranger);
        });
        let told =
            ["certificate is not trusted", "; compare the cluster's certificate-authority-data"];
        assert_shown(&run.variable("KUBECONFIG", file).run(), &told);
    }
}

/// The handshake with kubectl is over by then, and HTTP/2 agreed upon.
#[test]
fn whatever_kubectl_does_it_shows_that_the_token_is_gone() {
    for command in COMMANDS {
        let store = cluster().token(Kind::P256, JANE);
        let run = run_recorded(&store, "C_SignInit:return=0x32", &["bash", "-c", command]);
        let told = [
            "token \"test token\"",
            "is gone",
            "C_SignInit: CKR_DEVICE_REMOVED",
            "put the token back",
        ];
        assert_shown(&with_manifest(&store, run).run(), &told);
    }
}

#[test]
fn whatever_kubectl_does_it_shows_that_the_pin_is_locked() {
    for command in COMMANDS {
        let store = cluster().token(Kind::P256, JANE);
        let faults = "C_GetTokenInfo:set=CKF_USER_PIN_LOCKED";
        let script = format!("kubectl() {{ command kubectl --context=test \"$@\"; }}; {command}");
        let run = run_recorded(&store, faults, &["bash", "-c", &script]);
        // Another context is selected, so the key is opened with the first connection.
        let file = changed_kubeconfig(&store, |config| {
            let other = json!({"name": "other", "context": {"cluster": "other", "user": "other"}});
            config["contexts"].as_array_mut().unwrap().push(other);
            config["current-context"] = json!("other");
        });
        let told = ["the PIN of token \"test token\"", "locked"];
        assert_shown(&with_manifest(&store, run).variable("KUBECONFIG", file).run(), &told);
        assert_eq!(store.calls("C_Login"), [""; 0]);
    }
}

#[test]
fn a_server_that_does_not_answer_is_told_of_before_kubectl_gives_up() {
    let store = cluster().token(Kind::P256, JANE);
    let silent = free_address();
    let listener = wait_for("the port", || TcpListener::bind(silent).ok());
    let deaf = free_address();
    let _queue = full_queue(deaf);
    thread::spawn(move || listener.incoming().collect::<Vec<_>>());
    for (address, what, limit) in [(silent, "the TLS handshake", 10), (deaf, "connecting", 30)] {
        let server = format!("https://{address}");
        let outcome = with_server(&store, &server, "kubectl get --raw /version");
        let told = format!("{what} took longer than {limit} s; check that the API server runs");
        assert_shown(&outcome, &[&told]);
    }
}

/// curl's options for who has read the kubeconfig.
const CURL: &str = "curl() { command curl -sS --cacert ca --connect-to ::$address \"$@\"; }
own='--cert certificate --key key'
";

#[test]
fn who_has_the_certificate_is_told_over_either_protocol_and_nobody_else() {
    let store = cluster().token(Kind::P256, JANE);
    let gone = nowhere();
    let told = format!("cluster \"test\" ({gone}): no connection: Connection refused");
    let script = format!(
        "{TOOLS}{CURL}
         for version in --http1.1 --http2; do
           curl $own $version -w '%{{http_version}} %{{http_code}} %{{content_type}}\\n' https://$name/x | cut -c 1-{length}
         done
         curl $own -w '%{{http_version}} %{{http_code}}\\n' -o /dev/null https://127.0.0.1/x
         for version in 1.2 1.3; do
           curl --tls-max $version https://$name/x 2>&1 | grep -c 'alert'
           curl --tls-max $version https://127.0.0.1/x 2>&1 | grep -c 'alert'
         done",
        length = told.len(),
    );
    let outcome = with_server(&store, &gone, &script);
    let printed = outcome.printed();
    let text = "text/plain; charset=utf-8";
    let expected =
        format!("{told}\n1.1 502 {text}\n{told}\n1.1 502 {text}\n1.1 502\n{}", "1\n".repeat(4));
    assert_eq!(printed, expected, "{outcome:?}");
}

#[test]
fn a_long_body_does_not_keep_the_answer_from_who_sends_it() {
    let store = cluster().token(Kind::P256, JANE);
    let script = format!(
        "{TOOLS}{CURL}
         head -c 10485760 /dev/zero >long
         until curl $own --http2 -w '%{{http_version}}' https://$name/x | grep -q '^2'; do sleep 0.1; done
         for version in --http1.1 --http2; do
           for expect in 'Expect:' 'Expect: 100-continue'; do
             curl $own $version -H \"$expect\" --data-binary @long -w '%{{http_version}} %{{http_code}}\\n' https://$name/x
           done
         done"
    );
    let outcome = run_recorded(&store, "C_SignInit:return=0x32", &["bash", "-c", &script]).run();
    let printed = outcome.printed();
    outcome.silently();
    for version in ["1.1", "2"] {
        let told = format!("put the token back and try again\n{version} 502\n");
        assert_eq!(printed.matches(&told).count(), 2, "{printed}");
    }
}
