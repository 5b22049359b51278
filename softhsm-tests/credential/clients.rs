//! Each client gets in as it stands, asks for one PIN, and leaves nothing behind.

use super::{PlainUser, wrap_plugin};
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

/// Some tell the plugin nothing of the cluster; pykube-ng takes a certificate with v1beta1 alone.
#[test]
fn programs_in_python_and_javascript_get_in() {
    for (program, version) in [
        (python("pods.py"), "v1"),
        (python("pods_asyncio.py"), "v1"),
        (python("pods_kr8s.py"), "v1"),
        (python("pods_pykube.py"), "v1beta1"),
        (javascript(), "v1"),
    ] {
        let user = PlainUser::prompted(&[]);
        user.set_plugin("apiVersion", format!("client.authentication.k8s.io/{version}"));
        let [interpreter, script] = &program;
        let mut terminal =
            user.client(interpreter).arguments(&[script.to_str().unwrap()]).at_terminal();
        terminal.expect_prompt().type_line(PIN);
        let (outcome, screen) = terminal.finish();
        assert!(outcome.status.success(), "{script:?}: {outcome:?} {screen}");
        assert_eq!(outcome.stdout, b"shell\n", "{script:?}: {outcome:?}");
        assert_eq!(user.counts().0, 1, "logins of {script:?}");
        user.expect_nothing_left();
    }
}

#[test]
fn lightkube_takes_no_certificate_of_a_plugin() {
    let user = PlainUser::new(&[]);
    user.set_plugin("apiVersion", "client.authentication.k8s.io/v1beta1");
    let [interpreter, script] = python("pods_lightkube.py");
    let outcome = user.client(&interpreter).arguments(&[script.to_str().unwrap()]).run();
    assert!(!outcome.status.success(), "{outcome:?}");
    outcome.says(&["KeyError: 'token'"]);
}

/// The page says of some that they never do, whatever the first credential says of its end.
#[test]
fn which_clients_ask_for_another_credential() {
    for (program, version, asks_again) in [
        (python("pods.py"), "v1", false),
        (python("pods_asyncio.py"), "v1", false),
        (python("pods_kr8s.py"), "v1", true),
        (python("pods_pykube.py"), "v1beta1", true),
        (javascript(), "v1", true),
    ] {
        let user = PlainUser::new(&["--keep=15m"]);
        user.set_plugin("apiVersion", format!("client.authentication.k8s.io/{version}"));
        let runs = user.path("runs");
        let shorten = "s/\"expirationTimestamp\":\"[^\"]*\"/\"expirationTimestamp\":\"'$end'\"/";
        wrap_plugin(
            &user,
            &format!(
                "echo run >>'{}'; end=$(date -u -d '+1 second' +%FT%TZ); \"$SIGNER\" \"$@\" | sed '{shorten}'",
                runs.display()
            ),
        );
        let [interpreter, script] = &program;
        let arguments = [script.to_str().unwrap(), "3"];
        let outcome = user.client(interpreter).arguments(&arguments).run();
        assert_eq!(outcome.stdout, b"shell\nshell\n", "{script:?}: {outcome:?}");
        let runs = fs::read_to_string(runs).unwrap().lines().count();
        assert_eq!(runs > 1, asks_again, "{script:?}: {runs} runs");
        user.program(&["stop"]).run().printed();
    }
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
