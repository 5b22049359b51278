//! PINs that a program gives while the command runs: what holds over all connections.

use crate::fixture::*;

fn two_tokens() -> Store {
    let certificate = cluster().issue(Kind::P256, JANE);
    let objects = || Object::certified(Kind::P256, certificate.clone(), &[1]);
    Store::new(["test token", "other token"].map(|label| blueprint(label, objects())))
}

/// A run of this command, which needs no token by itself but has the context `test` for the one and
/// `other` for the other. Their PINs come from this script.
fn run(store: &Store, askpass: &str, faults: &str, command: &str) -> Outcome {
    let directory = store.directory.path();
    let program = directory.join("askpass");
    write_file(&program, format!("#!/bin/bash\n{askpass}\n"), 0o755);
    let configuration = store.faulty(store.configuration().with("pinSource", "askpass"));
    let invocation = cluster().run(store, &configuration, &["bash", "-c", command]);
    let file = directory.join("kubeconfig");
    let mut config: Value = read_json(&file);
    let configuration = configuration.with("slotId", &store.tokens[1].slot.to_string());
    let provider = json!({"name": "externalSigner", "config": configuration});
    let user = json!({"name": "other", "user": {"auth-provider": provider}});
    config["users"].as_array_mut().unwrap().push(user);
    for (name, user) in [("other", "other"), ("none", "nobody")] {
        let context = json!({"name": name, "context": {"cluster": "test", "user": user}});
        config["contexts"].as_array_mut().unwrap().push(context);
    }
    config["current-context"] = json!("none");
    fs::write(&file, config.to_string()).unwrap();
    invocation.variable("PKCS11_EXTERNAL_SIGNER_ASKPASS", program).suffering(store, faults).run()
}

#[test]
fn what_one_token_refused_is_not_sent_again_after_another_has_accepted_its_own() {
    let store = two_tokens();
    let askpass = format!("case $1 in *'\"test token\"'*) echo {WRONG_PIN};; *) echo {PIN};; esac");
    let command = "whoami() { kubectl --context $1 auth whoami; }; \
                   whoami test; whoami other && whoami test; echo went on";
    let outcome = run(&store, &askpass, "", command);
    let printed = outcome.printed();
    outcome.says(&["gave the same one again"]);
    assert!(printed.contains("jane") && printed.ends_with("went on\n"));
    assert_eq!(store.calls("C_Login"), ["0xa0", "0x0"]);
}

#[test]
fn a_login_without_a_clear_end_may_be_tried_once_more_and_not_for_ever() {
    let askpass = format!("echo {PIN}");
    let command = "for i in 1 2 3; do kubectl --context test auth whoami; done";
    let store = two_tokens();
    let outcome = run(&store, &askpass, "C_Login#1:return=0x30", command);
    let printed = outcome.printed();
    outcome.says(&["C_Login: CKR_DEVICE_ERROR"]);
    assert!(printed.contains("jane"), "{outcome:?}");
    assert_eq!(store.calls("C_Login"), ["0x30", "0x0"]);

    let store = two_tokens();
    let outcome = run(&store, &askpass, "C_Login:return=0x30", command).failed();
    outcome.says(&["gave the same one again"]);
    assert_eq!(store.calls("C_Login"), ["0x30", "0x30"]);
}

#[test]
fn a_person_has_three_tries_for_all_connections_together() {
    let store = two_tokens();
    let askpass = format!("echo >> ~/asked; echo {WRONG_PIN}-$(wc -l < ~/asked)");
    let command = "for i in 1 2 3; do kubectl --context test auth whoami; done; echo went on";
    let outcome = run(&store, &askpass, "", command);
    assert_eq!(outcome.printed(), "went on\n");
    outcome.says(&["refused the PIN from", "has accepted none"]);
    assert_eq!(store.calls("C_Login"), ["0xa0"; 3]);
    assert_eq!(fs::read_to_string(store.path("asked")).unwrap().lines().count(), 3);
}
