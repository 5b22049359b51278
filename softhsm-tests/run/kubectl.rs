//! What kubectl does passes through the tunnel.

use cryptoki::mechanism::MechanismType;

use super::run;
use crate::fixture::*;

#[test]
fn every_kind_of_key_is_let_in_under_its_name() {
    for kind in [Kind::Rsa(2048), Kind::P256, Kind::P384, Kind::P521, Kind::Ed25519] {
        let store = cluster().token(kind, JANE);
        let outcome = run(&store, &["kubectl", "auth", "whoami"]).run();
        let printed = outcome.printed();
        assert!(printed.contains("jane"), "{kind:?}: {printed}");
        assert!(printed.contains("[dev system:authenticated]"), "{printed}");
        outcome.silently();
    }
}

#[test]
fn objects_are_created_listed_watched_and_deleted() {
    let store = cluster().token(Kind::P256, ADMINISTRATOR);
    let kubectl = |arguments: &[&str]| {
        run(&store, &[&["--", "kubectl", "-n", "tunnelled"], arguments].concat())
    };
    let made = kubectl(&["create", "namespace", "tunnelled"]).run();
    assert_eq!(made.printed(), "namespace/tunnelled created\n");
    let manifest = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: piped}\ndata: {key: value}\n";
    let applied = kubectl(&["apply", "-f", "-"]).piped(manifest).run();
    assert_eq!(applied.printed(), "configmap/piped created\n");
    let got = kubectl(&["get", "configmap", "piped", "-o", "jsonpath={.data.key}"]).run();
    assert_eq!(got.printed(), "value");

    let mut watching = kubectl(&["get", "configmaps", "-w", "-o", "name"]).start(None);
    // Those that are there come first.
    while watching.line() != "configmap/piped" {}
    let seen = kubectl(&["create", "configmap", "seen"]).run();
    assert_eq!(seen.printed(), "configmap/seen created\n");
    while watching.line() != "configmap/seen" {}
    kill_process(watching.pid(), Signal::INT).unwrap();
    // kubectl's own code for an interrupt.
    assert_eq!(watching.finish().status.code(), Some(1));

    let deleted = kubectl(&["delete", "configmap", "piped", "seen"]).run();
    assert_eq!(deleted.printed().lines().count(), 2);
}

#[test]
fn another_client_go_program_passes_too() {
    let store = cluster().token(Kind::Rsa(2048), JANE);
    for version in ["1.2", "1.3"] {
        let outcome = run(&store, &["client-go", "--tls-max", version, "whoami"]).run();
        assert_eq!(outcome.printed(), "user: jane\ngroups: dev system:authenticated\n");
    }
}

#[test]
fn a_key_without_pss_is_held_to_tls_1_2() {
    let objects = Object::certified(Kind::Rsa(2048), cluster().issue(Kind::Rsa(2048), JANE), &[1]);
    let store = Store::withholding(
        &[MechanismType::RSA_PKCS_PSS, MechanismType::RSA_X_509],
        [blueprint("test token", objects)],
    );
    let outcome = run(&store, &["-v", "kubectl", "auth", "whoami"]).run();
    let printed = outcome.printed_beside(&["connected, TLS 1.2", "can serve TLS 1.2 only"]);
    assert!(printed.contains("jane"), "{outcome:?}");
}

#[test]
fn kubectl_finds_it_as_a_plugin() {
    let store = cluster().token(Kind::P256, ADMINISTRATOR);
    let plugins = store.path("plugins");
    fs::create_dir(&plugins).unwrap();
    symlink(PROGRAM, plugins.join("kubectl-pkcs11")).unwrap();
    let script = "PATH=$PLUGINS:$PATH; kubectl pkcs11 run -- kubectl get namespace default -o name";
    let outcome = run(&store, &[]).variable("PLUGINS", &plugins).within("sh", script).run();
    assert_eq!(outcome.printed(), "namespace/default\n");
    outcome.silently();
}
