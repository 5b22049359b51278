//! The commands of docs/tokens.md, run as they stand.

use std::fs;
use std::path::Path;

use crate::fixture::cluster::cluster;
use crate::fixture::openssl::openssl;
use crate::fixture::program::{Invocation, Outcome, PROGRAM};
use crate::fixture::softhsm::{PIN, Store, softhsm_library, token_with};

/// The `sh` blocks below a heading.
pub(super) fn blocks(heading: &str) -> Vec<String> {
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/tokens.md");
    let text = fs::read_to_string(guide).unwrap();
    let (_, section) = text.split_once(&format!("\n## {heading}\n")).unwrap();
    let section = section.split("\n## ").next().unwrap();
    let blocks = section.split("```sh\n").skip(1);
    blocks
        .map(|block| block.split("```").next().unwrap().to_owned())
        .collect()
}

/// A block in this store's directory; tools that ask for the PIN get it from the environment.
pub(super) fn follow(store: &Store, block: &str) -> Invocation {
    let directory = store.directory.path();
    let program = Path::new(PROGRAM).parent().unwrap().display();
    let block = block.replace("--login", "--login --pin env:TOKEN_PIN");
    let script = format!(
        "set -eu\ncd {}\nPATH=$PATH:{program}\n{block}",
        directory.display()
    );
    Invocation::new(directory)
        .within("bash", &script)
        .variable("GNUTLS_PIN", PIN)
        .variable("TOKEN_PIN", PIN)
}

/// The cluster's CA issues jane.pem for jane.csr, and makes her an administrator.
pub(super) fn issue(store: &Store) {
    let at = |name: &str| store.directory.path().join(name);
    let [authority, authority_key] = cluster().authority();
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    let command = [
        "x509",
        "-req",
        "-days",
        "30",
        "-subj",
        "/O=system:masters/CN=jane",
    ];
    let files = [
        ("-in", at("jane.csr")),
        ("-CA", authority),
        ("-CAkey", authority_key),
        ("-CAserial", at("jane.srl")),
        ("-out", at("jane.pem")),
    ];
    let mut arguments: Vec<String> = command.map(str::to_owned).into();
    arguments.push("-CAcreateserial".to_owned());
    for (option, file) in files {
        arguments.extend([option.to_owned(), text(&file)]);
    }
    openssl(arguments);
}

/// Demands a kubeconfig's user that names this object.
#[track_caller]
pub(super) fn assert_names(outcome: &Outcome, object: &str) {
    let printed = outcome.printed();
    let named = format!("objectId: \"{object}\"");
    assert!(printed.contains(&named), "no {named} in\n{printed}");
    assert!(printed.contains("CN=jane"), "{printed}");
}

#[test]
fn a_key_is_made_and_certified_with_its_module() {
    let store = token_with([]);
    let [make, certify] = &blocks("A key and its certificate")[..] else {
        panic!("another number of blocks")
    };
    let run = |block| {
        let invocation = follow(&store, block).variable("module", softhsm_library());
        invocation.variable("token", "test token").run()
    };
    run(make).printed();
    issue(&store);
    assert_names(&run(certify), "16");
    let configuration = store.configuration_with_pin_source().with("objectId", "16");
    let get = ["--", "kubectl", "get", "namespace", "default", "-o", "name"];
    let outcome = cluster().run(&store, &configuration, &get).run();
    assert_eq!(outcome.printed(), "namespace/default\n");
}
