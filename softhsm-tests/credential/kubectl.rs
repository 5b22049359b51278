//! What kubectl does, with no prefix: streams, standard input, watches, and many at once.

use super::{ANSWER, ASK, PlainUser};
use crate::fixture::*;

#[test]
fn exec_hands_on_streams_and_exit_code() {
    let user = PlainUser::new(&[]);
    let command = ["exec", "-i", "shell", "--", "sh", "-c", "cat; echo told >&2; exit 7"];
    // More than what buffers on the way could hold. kubectl may lose its end, as in run::streaming.
    let bytes = sample(4 << 20);
    wait_until("all that cat was given", || {
        let outcome = user.kubectl(&command).piped(&bytes).run();
        assert_eq!(outcome.status.code(), Some(7), "{}", outcome.stderr);
        assert!(bytes.starts_with(&outcome.stdout), "{} bytes", outcome.stdout.len());
        assert!(outcome.stderr.starts_with("told\n"), "{}", outcome.stderr);
        outcome.stdout.len() == bytes.len()
    });
    user.expect_nothing_left();
}

/// A watch sees what is made at its beginning and at its end.
fn watch(time: Duration) {
    let user = PlainUser::new(&[]);
    let namespace = user.context();
    let made = user.kubectl(&["create", "namespace", &namespace]).run();
    made.printed();
    let create = |name: &str| {
        let made = user.kubectl(&["-n", &namespace, "create", "configmap", name]).run();
        assert_eq!(made.printed(), format!("configmap/{name} created\n"));
    };
    let arguments = ["-n", &namespace, "get", "configmaps", "-w", "-o", "name"];
    let mut watching = user.kubectl(&arguments).start(None);
    create("first");
    while watching.line() != "configmap/first" {}
    let began = Instant::now();
    thread::sleep(time);
    create("last");
    assert_eq!(watching.line(), "configmap/last", "after {:?}", began.elapsed());
    kill_process(watching.pid(), Signal::INT).unwrap();
    watching.finish();
    user.expect_nothing_left();
}

#[test]
fn a_watch_of_a_minute_sees_what_changes_at_its_end() {
    watch(Duration::from_secs(60));
}

/// A client asks for a credential every five minutes.
#[test]
#[ignore = "takes ten minutes"]
fn a_watch_of_ten_minutes_sees_what_changes_at_its_end() {
    watch(Duration::from_secs(600));
}

#[test]
fn a_hundred_kubectls_at_once() {
    for keep in ["--keep=command", "--keep=terminal"] {
        let user = PlainUser::new(&[keep]);
        let outcome =
            user.shell(&format!("for i in $(seq 100); do {ASK} & done; wait")).run().succeeded();
        assert_eq!(outcome.shown(), ANSWER.repeat(100), "{keep}");
        // On a busy machine one may wait for another for longer than a second, and says so.
        let is_wait = |line: &&str| line.starts_with("pkcs11-external-signer: waiting for ");
        let said = outcome.stderr.lines().filter(|line| !is_wait(line));
        assert_eq!(said.collect::<Vec<_>>(), [""; 0], "{keep}");
        user.expect_nothing_left();
    }
}

/// kubectl may be told which plugins it runs; what `kubeconfig --write` prints for that list lets ours through.
#[test]
fn kubectl_runs_the_plugin_by_the_printed_line_of_its_list() {
    let user = PlainUser::new(&[]);
    let module = user.store.faulty_module();
    let copy = user.path("copy");
    fs::copy(user.kubeconfig(), &copy).unwrap();
    let write = ["kubeconfig", "--write", "--context", &user.context(), &module];
    let written = user.program(&write).variable("KUBECONFIG", &copy).run().succeeded().shown();
    let line = written.lines().find(|line| line.contains("- command: ")).unwrap().to_owned();
    let kuberc = user.path("kuberc");
    let kubectl = |allowed: &str| {
        let text = format!(
            "apiVersion: kubectl.config.k8s.io/v1\nkind: Preference\n\
             credentialPluginPolicy: Allowlist\ncredentialPluginAllowlist:\n{allowed}\n"
        );
        fs::write(&kuberc, text).unwrap();
        let folder = Path::new(PROGRAM).parent().unwrap().display();
        user.kubectl(&["get", "namespace", "default", "-o", "name"])
            .variable("PATH", format!("{folder}:/usr/bin:/bin"))
            .variable("KUBERC", &kuberc)
            .run()
    };
    assert_eq!(kubectl(&line).printed(), ANSWER);
    kubectl("  - command: another-plugin").failed().says(&["allowlist"]);
    user.expect_nothing_left();
}
