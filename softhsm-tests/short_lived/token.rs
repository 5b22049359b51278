//! `credential --as token`: tokens of service accounts, asked for with the key.

use std::fs::Permissions;

use super::parts;
use super::plugin::{self, Holder};
use crate::fixture::*;

/// A service account of this name in `default`, which may read config maps there, and whose tokens jane may ask for.
pub(super) fn account(holder: &Holder, name: &str) {
    let role = |name: &str, rule: &Value| {
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
            "metadata": {"name": name, "namespace": "default"}, "rules": [rule],
        })
    };
    let binding = |name: &str, subject: &Value| {
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": {"name": name, "namespace": "default"}, "subjects": [subject],
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
        })
    };
    let asks = format!("{name}-asks");
    let of_kind = |kind: &str| {
        let metadata = json!({"name": name, "namespace": "default"});
        json!({"apiVersion": "v1", "kind": kind, "metadata": metadata})
    };
    holder.apply(&[
        of_kind("ServiceAccount"),
        of_kind("ConfigMap"),
        of_kind("Secret"),
        role(name, &json!({"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]})),
        binding(name, &json!({"kind": "ServiceAccount", "name": name, "namespace": "default"})),
        role(
            &asks,
            &json!({
                "apiGroups": [""], "resources": ["serviceaccounts/token"], "resourceNames": [name],
                "verbs": ["create"],
            }),
        ),
        binding(&asks, &json!({"kind": "User", "name": "jane"})),
    ]);
    let asked = format!("serviceaccounts/{name}");
    holder.cluster.wait_for_right(&["create", &asked, "--subresource=token", "--as=jane"]);
}

fn option(name: &str) -> String {
    format!("--service-account=default/{name}")
}

#[test]
fn kubectl_acts_as_the_account_and_no_more() {
    let holder = Holder::new(Kind::P256, JANE);
    account(&holder, "lister");
    let plugin = ["--as=token", &option("lister")];
    for (version, client) in
        [("v1", kubectl()), ("v1beta1", kubectl()), ("v1beta1", distribution_kubectl())]
    {
        let version = format!("client.authentication.k8s.io/{version}");
        let listed = holder
            .kubectl_with(&version, &plugin)
            .program(client)
            .arguments(&["get", "configmaps", "-n", "default", "-o", "name"])
            .run();
        assert!(listed.silently().printed().contains("configmap/"), "{listed:?}");
    }
    let refused = holder.kubectl(&plugin).arguments(&["get", "pods", "-n", "default"]).run();
    assert!(!refused.status.success());
    assert!(refused.stderr.contains("system:serviceaccount:default:lister"), "{refused:?}");
    // Each command: a PIN, and a signature for the handshake.
    assert_eq!(holder.store.calls("C_Login").len(), 4);
    assert_eq!(holder.store.calls("C_Sign").len(), 4);
}

/// Beside a user of the tunnel with the same key.
#[test]
fn a_run_leaves_a_user_who_acts_as_the_account() {
    let holder = Holder::new(Kind::P256, JANE);
    account(&holder, "runner");
    let store = &holder.store;
    let jane = store.configuration_with_pin_source();
    let whoami = "--output=jsonpath={.status.userInfo.username}";
    let whoami = ["--context=deploy", "--", "kubectl", "auth", "whoami", whoami];
    let run = cluster().run(store, &jane, &whoami);
    let check = cluster().command(store, &jane, "check");
    let [path, pin] = ["kubeconfig", "pin"].map(|name| store.path(name));
    fs::write(&pin, PIN).unwrap();
    fs::set_permissions(&pin, Permissions::from_mode(0o600)).unwrap();
    let (module, pin) = (store.faulty_module(), format!("--pin-source=file:{}", pin.display()));
    let key = ["credential", &module, "--token-label=test token", "--object-id=1"];
    let kind = ["--as=token", &option("runner"), &pin];
    let deploy = plugin::user("client.authentication.k8s.io/v1", &[&key[..], &kind].concat());
    let mut config: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let context = json!({"name": "deploy", "context": {"cluster": "test", "user": "deploy"}});
    config["contexts"].as_array_mut().unwrap().push(context);
    let deploy = json!({"name": "deploy", "user": deploy});
    config["users"].as_array_mut().unwrap().push(deploy);
    fs::write(&path, config.to_string()).unwrap();
    let who = run.suffering(store, "").run();
    assert_eq!(who.printed(), "system:serviceaccount:default:runner", "{who:?}");
    // The key that it names can be looked at; the local address is for users of the tunnel.
    check.argument("--context=deploy").suffering(store, "").run().told(0);
}

#[test]
fn the_account_lives_as_long_as_was_asked_for_and_as_the_server_says() {
    let holder = Holder::new(Kind::Rsa(2048), JANE);
    account(&holder, "timed");
    let arguments = ["credential", "--as=token", &option("timed"), "--output=raw"];
    let token = |more: &[&str]| {
        let outcome = holder.program(&[&arguments, more].concat()).run();
        let (_, claims, ..) = parts(outcome.silently().printed().trim());
        claims
    };
    let life = |claims: &Value| claims["exp"].as_i64().unwrap() - claims["iat"].as_i64().unwrap();
    let claims = token(&[]);
    assert_eq!(life(&claims), 600);
    assert_eq!(claims["sub"], "system:serviceaccount:default:timed");
    let claims = token(&["--duration=20m", "--audience=vault"]);
    assert_eq!(life(&claims), 1200);
    assert_eq!(claims["aud"], json!(["vault"]));
}

#[test]
fn a_kubeconfig_for_another_machine_works_there() {
    let holder = Holder::new(Kind::P256, JANE);
    account(&holder, "remote");
    let option = option("remote");
    let made = holder.program(&["credential", "--as=token", &option, "--output=kubeconfig"]);
    let file = holder.store.path("elsewhere");
    fs::write(&file, made.run().silently().printed()).unwrap();
    let listed = Invocation::new(holder.store.directory.path())
        .program(kubectl())
        .variable("KUBECONFIG", &file)
        .arguments(&["get", "configmaps", "-n", "default", "-o", "name"])
        .run();
    assert!(listed.printed().contains("configmap/"));
}

#[test]
fn what_can_not_be_had_is_told_with_the_remedy() {
    let holder = Holder::new(Kind::P256, JANE);
    account(&holder, "known");
    let known = option("known");
    let plugin =
        |more: &[&str]| holder.program(&[&["credential", "--as=token"], more].concat()).run();
    // Before a PIN.
    let missing = plugin(&[]);
    assert_eq!(missing.status.code(), Some(2), "{missing:?}");
    assert!(missing.stderr.contains("--service-account"), "{missing:?}");
    plugin(&[&known, "--duration=5m"])
        .fails_in_one_line(2, &["for less than 10 minutes", "--duration"]);
    let malformed = plugin(&["--service-account=known"]);
    assert_eq!(malformed.status.code(), Some(2));
    assert!(malformed.stderr.contains("NAMESPACE/NAME"), "{malformed:?}");
    // By the server.
    let unknown = option("unknown");
    plugin(&[&unknown]).fails_in_one_line(9, &["service account default/unknown", "RBAC"]);
    assert_eq!(holder.store.calls("C_Login").len(), 1);
    // Through kubectl: one line of ours.
    let shown = holder.kubectl(&["--as=token", &unknown]).arguments(&["get", "configmaps"]).run();
    assert!(!shown.status.success());
    assert!(shown.stderr.contains("pkcs11-external-signer: error: "), "{shown:?}");
    assert!(shown.stderr.contains("failed with exit code 9"), "{shown:?}");
}
