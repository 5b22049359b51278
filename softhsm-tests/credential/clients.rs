//! Each client gets in as it stands, asks for one PIN, and leaves nothing behind.

use super::PlainUser;
use crate::fixture::*;

/// Runs the client at a terminal; what it printed.
#[track_caller]
fn printed(user: &PlainUser, program: &Path, arguments: &[&str]) -> String {
    let outcome = user.client(program).arguments(arguments).at_terminal().finish_with_pin();
    let printed = outcome.printed();
    assert_eq!(user.counts().0, 1, "logins");
    user.expect_nothing_left();
    printed
}

const PODS: [&str; 4] = ["get", "pods", "-o", "name"];

#[test]
fn stock_kubectl_gets_in() {
    let user = PlainUser::prompted(&[]);
    assert_eq!(printed(&user, kubectl(), &PODS), "pod/shell\n");
    assert_eq!(user.counts(), (1, 1));
}

/// Debian 12 has kubectl 1.20, which knows v1alpha1 and v1beta1.
#[test]
fn the_distributions_kubectl_gets_in_with_an_older_version_of_the_interface() {
    let user = PlainUser::prompted(&[]);
    user.set_plugin("apiVersion", "client.authentication.k8s.io/v1beta1");
    assert_eq!(printed(&user, distribution_kubectl(), &PODS), "pod/shell\n");
}

#[test]
fn helm_gets_in() {
    let user = PlainUser::prompted(&[]);
    assert_eq!(printed(&user, &kubectl().with_file_name("helm"), &["list", "--short"]), "");
}

#[test]
fn a_go_program_on_client_go_gets_in() {
    let user = PlainUser::prompted(&[]);
    let pods = ["get", "/api/v1/namespaces/default/pods"];
    let pods = printed(&user, cluster().client_go(), &pods);
    assert!(pods.contains(r#""name":"shell""#), "{pods}");
}

#[test]
fn a_python_program_gets_in() {
    let user = PlainUser::prompted(&[]);
    let [interpreter, script] = python();
    assert_eq!(printed(&user, &interpreter, &[script.to_str().unwrap()]), "shell\n");
}

/// Its client tells the plugin nothing of the cluster.
#[test]
fn a_javascript_program_gets_in() {
    let user = PlainUser::prompted(&[]);
    let [_, script] = javascript();
    assert_eq!(printed(&user, Path::new("node"), &[script.to_str().unwrap()]), "shell\n");
}

/// Python does so from 3.13 on.
#[test]
fn the_certificate_of_the_local_address_passes_where_rules_are_strict() {
    let user = PlainUser::new(&["--keep=15m"]);
    user.kubectl(&PODS).run().printed();
    let script = format!(
        "cd; kubectl config view --minify --raw -o json | sed -n 's/.*\"certificate-authority-data\": \"\\(.*\\)\".*/\\1/p' | head -n 1 | base64 -d >ca
         timeout 600 openssl s_client -connect {} -servername {} -CAfile ca -x509_strict </dev/null 2>&1 | grep 'Verify return code' | sort -u",
        user.address(),
        user.request()["spec"]["cluster"]["tls-server-name"].as_str().unwrap()
    );
    let printed = user.shell(&script).run().printed();
    assert!(printed.contains("Verify return code: 0 (ok)"), "{printed}");
    assert_eq!(printed.lines().count(), 1, "{printed}");
}
