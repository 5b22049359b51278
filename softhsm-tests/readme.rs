//! The README's first minute, run as it stands.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::fixture::cluster::{ADMINISTRATOR, cluster};
use crate::fixture::keys::Kind;
use crate::fixture::program::PROGRAM;
use crate::fixture::softhsm::{PIN, Store};

/// The commands of the first `sh` block below a heading of the README.
fn commands(heading: &str) -> String {
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md");
    let text = fs::read_to_string(readme).unwrap();
    let (_, section) = text.split_once(&format!("\n## {heading}\n")).unwrap();
    let (_, block) = section.split_once("```sh\n").unwrap();
    block.split_once("```").unwrap().0.to_owned()
}

/// A kubeconfig as `kubectl config` makes it: a cluster, a context without a user, and the context
/// that is the current one.
fn made_by_kubectl(store: &Store, current: Option<&str>) {
    let path = store.directory.path().join("kubeconfig");
    let mut config: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    let entry = config["clusters"][0]["cluster"].take();
    fs::remove_file(&path).unwrap();
    let text = |key: &str| entry[key].as_str().unwrap().to_owned();
    let kubectl = |arguments: &[&str]| {
        let run = cluster().administrator(store).variable("KUBECONFIG", &path);
        run.argument("config").arguments(arguments).run().printed();
    };
    let server = format!("--server={}", text("server"));
    let authority = format!("--certificate-authority={}", text("certificate-authority"));
    kubectl(&["set-cluster", "prod", &server, &authority]);
    kubectl(&["set-context", "prod", "--cluster=prod"]);
    if let Some(current) = current {
        kubectl(&["set-credentials", "somebody", "--token=unused"]);
        kubectl(&["set-context", current, "--cluster=prod", "--user=somebody"]);
        kubectl(&["use-context", current]);
    }
}

#[test]
fn the_first_minute_leads_from_a_token_to_a_cluster() {
    for current in [None, Some("other"), Some("prod")] {
        first_minute(current);
    }
}

fn first_minute(current: Option<&str>) {
    let store = cluster().token(Kind::Rsa(2048), ADMINISTRATOR);
    let invocation = cluster().command(&store, &store.configuration(), "unused");
    made_by_kubectl(&store, current);
    let folder = Path::new(PROGRAM).parent().unwrap().display();
    let commands = commands("The first minute");
    let script = format!("set -ex\nPATH={folder}:$PATH\n{commands}");
    let script_file = store.directory.path().join("first-minute");
    fs::write(&script_file, script).unwrap();
    let mut terminal = invocation
        .within("bash", &format!("bash {}", script_file.display()))
        .at_terminal();
    for _ in ["check", "run"] {
        terminal.expect_prompt().type_line(PIN);
    }
    let (outcome, _) = terminal.finish();
    let shown = outcome.printed_beside(&["what was there is in", "uses user \"jane\"; next:"]);
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
    // What is to be typed next is what the README types next.
    let lines: Vec<_> = commands.lines().collect();
    let next = lines[lines.len() - 2].split('#').next().unwrap().trim_end();
    let told = format!("context \"prod\" uses user \"jane\"; next:\n  {next}\n  kubectl ");
    assert!(outcome.stderr.contains(&told), "{}", outcome.stderr);
}
