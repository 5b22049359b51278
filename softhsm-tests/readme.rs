//! The README's first minute, run as it stands.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::fixture::cluster::{ADMINISTRATOR, cluster};
use crate::fixture::keys::Kind;
use crate::fixture::program::PROGRAM;
use crate::fixture::softhsm::PIN;

/// The commands of the first `sh` block below a heading of the README.
fn commands(heading: &str) -> String {
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md");
    let text = fs::read_to_string(readme).unwrap();
    let (_, section) = text.split_once(&format!("\n## {heading}\n")).unwrap();
    let (_, block) = section.split_once("```sh\n").unwrap();
    block.split_once("```").unwrap().0.to_owned()
}

#[test]
fn the_first_minute_leads_from_a_token_to_a_cluster() {
    let store = cluster().token(Kind::Rsa(2048), ADMINISTRATOR);
    let invocation = cluster().command(&store, &store.configuration(), "unused");
    // A kubeconfig as an administrator hands it out: a cluster, and a context without a user.
    let path = store.directory.path().join("kubeconfig");
    let mut config: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    config["users"] = Value::Null;
    config["contexts"] = serde_json::json!([{"name": "prod", "context": {"cluster": "test"}}]);
    config["current-context"] = "prod".into();
    fs::write(&path, config.to_string()).unwrap();

    let folder = Path::new(PROGRAM).parent().unwrap().display();
    let script = format!(
        "set -ex\nPATH={folder}:$PATH\n{}",
        commands("The first minute")
    );
    assert!(script.contains(" run -- kubectl"), "{script}");
    let script_file = store.directory.path().join("first-minute");
    fs::write(&script_file, script).unwrap();
    let mut terminal = invocation
        .within("bash", &format!("bash {}", script_file.display()))
        .at_terminal();
    for _ in ["check", "run"] {
        terminal.expect_prompt().type_line(PIN);
    }
    let (outcome, _) = terminal.finish();
    let shown = outcome.printed();
    for expected in [
        "tokenLabel \"test token\"",
        "in 11 months",
        "knows us as user \"jane\"",
        "kube-system",
    ] {
        assert!(
            shown.contains(expected),
            "no {expected:?} in\n{shown}\n{}",
            outcome.stderr
        );
    }
    assert!(
        outcome
            .stderr
            .contains("context \"prod\" uses user \"jane\""),
        "{}",
        outcome.stderr
    );
}
