//! `kubeconfig --external-signer`: from a key on a token to a kubeconfig that works, with nothing else in it
//! changed. What stock clients need is in `kubeconfig_plugin`.

use std::fs;
use std::os::unix::fs::{chown, symlink};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::thread;

use rustix::process::{Signal, kill_process};
use serde_json::Value;

use crate::fixture::cluster::{ADMINISTRATOR, cluster};
use crate::fixture::keys::{Kind, issued, key};
use crate::fixture::program::{Invocation, Outcome, PROGRAM};
use crate::fixture::softhsm::{
    Object, PIN, Store, blueprint, softhsm_library, softhsm_option, token_with,
};
use crate::fixture::wait::wait_until;

fn kubeconfig(store: &Store, arguments: &[&str]) -> Invocation {
    store
        .command(&["kubeconfig", "--external-signer"])
        .argument(softhsm_option())
        .arguments(arguments)
}

/// A token with the key and certificate of this user.
fn token_of(subject: &str) -> Store {
    token_with(Object::certified(Kind::P256, issued(Kind::P256, subject, 100, "clientAuth"), &[2]))
}

fn two_keys() -> Store {
    let pair =
        |kind, id: u8, user| Object::certified(kind, issued(kind, user, 100, "clientAuth"), &[id]);
    Store::new([
        blueprint("one", pair(Kind::P256, 1, "/CN=jane")),
        blueprint("two", pair(Kind::Rsa(2048), 2, "/CN=hans")),
    ])
}

/// The entry that is expected of the P-256 key with objectId 2.
fn entry(store: &Store, subject: &str, user: &str, margin: &str) -> String {
    let token = &store.tokens[0];
    let der = {
        let outcome = store.command(&["list", "--json"]).argument(softhsm_option()).run();
        let document: Value = serde_json::from_str(&outcome.printed()).unwrap();
        document["libraries"][0]["tokens"][0]["keys"][0]["certificate"]["notAfter"].clone()
    };
    let (until, _) = der.as_str().unwrap().split_once('T').unwrap();
    let lines = [
        format!("- name: {user}"),
        "  user:".to_owned(),
        "    auth-provider:".to_owned(),
        "      name: externalSigner".to_owned(),
        "      config:".to_owned(),
        format!("        pathExec: {PROGRAM}"),
        format!("        pathLib: {}", softhsm_library().display()),
        format!("        tokenSerial: \"{}\"   # token \"{}\"", token.serial, token.label),
        format!("        objectId: \"2\"   # ECDSA P-256, {subject}, until {until}"),
    ];
    lines.map(|line| format!("{margin}{line}\n")).concat()
}

fn with_file(store: &Store, text: &str) -> PathBuf {
    let path = store.path("config");
    fs::write(&path, text).unwrap();
    path
}

fn write(store: &Store, path: &Path, arguments: &[&str]) -> Outcome {
    kubeconfig(store, &["--write"]).arguments(arguments).variable("KUBECONFIG", path).run()
}

/// The names of what is in a directory beside these.
fn others(directory: &Path, known: &[&str]) -> Vec<String> {
    fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with("config") && !known.contains(&name.as_str()))
        .collect()
}

#[test]
fn the_only_usable_key_is_printed_for_pasting() {
    let store = token_of("/O=dev/CN=jane");
    let outcome = kubeconfig(&store, &[]).run();
    let expected = format!("users:\n{}", entry(&store, "O=dev, CN=jane", "jane", ""));
    assert_eq!(outcome.silently().printed(), expected);
    let named = kubeconfig(&store, &["--user=admin", "--pin-source=file:/run/pin"]).run();
    let text = named.printed();
    assert!(text.starts_with("users:\n- name: admin\n"), "{text}");
    assert!(text.ends_with("        pinSource: \"file:/run/pin\"\n"), "{text}");
}

#[test]
fn what_was_written_serves_client_go_and_stock_kubectl() {
    let store = cluster().token(Kind::Rsa(2048), ADMINISTRATOR);
    let start = cluster().command(&store, &store.configuration(), "kubeconfig");
    let path = store.path("kubeconfig");
    let written: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    let cluster_entry = written["clusters"][0].to_string();
    let before = format!(
        "# our cluster\nclusters: [{cluster_entry}]\ncontexts:\n- context:\n    cluster: test # mind\n  \
         name: test\ncurrent-context: test\nunknown: {{a: 1}}\n"
    );
    fs::write(&path, &before).unwrap();
    let outcome = start
        .arguments(&["--external-signer", "--write", "--context=test"])
        .argument("--pin-source=env:TOKEN_PIN")
        .argument(softhsm_option())
        .run();
    assert_eq!(outcome.printed(), "\n".repeat(0));
    outcome.says(&["context \"test\" uses user \"jane\""]);
    let after = fs::read_to_string(&path).unwrap();
    let kept = before.replace("# mind\n", "# mind\n    user: jane\n");
    assert!(after.starts_with(&kept), "{after}");
    // The tests' own invocations write the file; these two take it as it is.
    let as_it_is = |invocation: Invocation| {
        fs::write(&path, &after).unwrap();
        invocation.run().printed()
    };
    let nothing = store.configuration();
    let client = cluster().client(&store, &nothing).argument("whoami");
    assert!(as_it_is(client).contains("jane"));
    let kubectl = cluster().run(&store, &nothing, &["--", "kubectl", "auth", "whoami"]);
    assert!(as_it_is(kubectl).contains("jane"));
}

/// Every order of what makes a cluster, a context and a user, with and without what they name: no
/// `users`, `users: null`, `user: ""`, `user: {}` and the like are kubectl's own.
#[test]
fn what_kubectl_wrote_is_written_on() {
    let store = token_of("/CN=jane");
    let path = store.path("config");
    let kubectl = |arguments: &[&str]| {
        let run = cluster().administrator(&store).variable("KUBECONFIG", &path);
        run.arguments(arguments).run().printed()
    };
    let steps: &[&[&[&str]]] = &[
        &[&[], &["set-cluster", "prod", "--server=https://127.0.0.1:1"]],
        &[
            &["set-context", "prod"],
            &["set-context", "prod", "--cluster=prod"],
            &["set-context", "prod", "--cluster=prod", "--user=jane"],
            &["set-context", "prod", "--namespace=default"],
        ],
        &[
            &[],
            &["set-credentials", "jane"],
            &["set-credentials", "other", "--token=t"],
            &["unset", "users"],
        ],
    ];
    let mut made = 0;
    for order in [[0, 1, 2], [2, 1, 0]] {
        for number in 0..2 * 4 * 4 {
            let chosen = [steps[0][number % 2], steps[1][number / 2 % 4], steps[2][number / 8]];
            let _ = fs::remove_file(&path);
            for step in order.map(|place| chosen[place]).into_iter().filter(|it| !it.is_empty()) {
                kubectl(&[&["config"], step].concat());
            }
            let before = fs::read_to_string(&path).unwrap();
            let outcome = write(&store, &path, &["--context=prod"]);
            assert_eq!(outcome.status.code(), Some(0), "{before}{}", outcome.stderr);
            let after = fs::read_to_string(&path).unwrap();
            let view = kubectl(&["config", "view", "--raw", "--output=json"]);
            let view: Value = serde_json::from_str(&view).unwrap();
            let context = &view["contexts"][0];
            assert_eq!(context["context"]["user"], "jane", "{before}\n{after}");
            let mut users = view["users"].as_array().unwrap().iter();
            let jane = users.find(|user| user["name"] == "jane").unwrap();
            let provider = &jane["user"]["auth-provider"];
            assert_eq!(provider["config"]["objectId"], "2", "{before}\n{after}");
            // Our own reader gets as far as the token.
            let checked = store
                .command(&["check", "--context=prod", "--no-login"])
                .variable("KUBECONFIG", &path)
                .run();
            assert!(checked.told(0).contains("user \"jane\""), "{after}");
            made += 1;
        }
    }
    assert_eq!(made, 64);
}

/// kubectl reads each of these as an empty file.
#[test]
fn a_file_that_says_nothing_is_written_as_a_new_one() {
    let store = token_of("/CN=jane");
    let path = store.path("config");
    for text in [None, Some(""), Some("null\n"), Some("---\n"), Some("# mine\n---\nnull\n...\n")] {
        match text {
            Some(text) => fs::write(&path, text).unwrap(),
            None => assert!(!path.exists()),
        }
        let outcome = write(&store, &path, &[]);
        assert_eq!(outcome.status.code(), Some(0), "{text:?}: {}", outcome.stderr);
        let kubectl = cluster().administrator(&store).variable("KUBECONFIG", &path);
        let view = kubectl.arguments(&["config", "view", "--output=json"]);
        let view: Value = serde_json::from_str(&view.run().printed()).unwrap();
        assert_eq!(view["users"][0]["name"], "jane", "{text:?}");
        fs::remove_file(&path).unwrap();
    }
}

#[test]
fn of_several_keys_one_is_picked_at_the_terminal_or_named() {
    let store = two_keys();
    kubeconfig(&store, &[])
        .run()
        .fails(6, &["2 keys can be meant", "pkcs11:token=one;", ";id=%02?module-path="]);
    let mut terminal = kubeconfig(&store, &[]).at_terminal();
    terminal.expect("Which key?").expect("CN=hans").expect("Its number (1 to 2): ");
    terminal.type_line("3").expect("Its number (1 to 2): ");
    let shown = {
        terminal.type_line("1");
        let (outcome, shown) = terminal.finish();
        let printed = outcome.printed();
        assert!(printed.contains("name: jane") || printed.contains("name: hans"), "{printed}");
        let first = if shown.find("CN=jane") < shown.find("CN=hans") { "jane" } else { "hans" };
        assert!(printed.contains(&format!("name: {first}\n")), "{printed}\n{shown}");
        shown
    };
    assert!(shown.contains("token \"one\""), "{shown}");
    let mut terminal = kubeconfig(&store, &[]).at_terminal();
    terminal.expect("Its number").type_line("");
    terminal.finish().0.fails(6, &["2 keys can be meant"]);
    for arguments in [["--object-id=2"], ["--token-label=two"], ["--uri=pkcs11:token=two"]] {
        let printed = kubeconfig(&store, &arguments).run().printed();
        assert!(printed.contains("name: hans"), "{printed}");
    }
}

#[test]
fn a_key_that_can_not_be_used_is_not_chosen_but_can_be_named() {
    let store = token_with(Object::certified(
        Kind::P256,
        issued(Kind::P256, "/CN=jane", -1, "clientAuth"),
        &[2],
    ));
    kubeconfig(&store, &[])
        .run()
        .fails(6, &["no key that can be used was found", "expired", "CN=jane"]);
    let printed = kubeconfig(&store, &["--object-id=2"]).run().printed();
    assert!(printed.contains("name: jane"), "{printed}");
    let empty = token_with([]);
    let module = format!("list --module={} --login", softhsm_library().display());
    kubeconfig(&empty, &[]).run().fails(6, &[&module]);
}

#[test]
fn a_key_that_is_not_there_is_told_with_those_that_are() {
    let store = two_keys();
    for (arguments, selector) in [
        (&["--object-id=99"][..], "objectId \"99\""),
        (&["--uri=pkcs11:object=none"], "objectLabel \"none\""),
        (&["--object-id=1", "--object-label=none"], "objectId \"1\" and objectLabel \"none\""),
    ] {
        kubeconfig(&store, arguments).run().fails(
            6,
            &[
                &format!("no key or certificate with {selector}\n"),
                "name one of those that are there",
                "CN=jane, ECDSA P-256",
                "object 2 on token \"two\"",
            ],
        );
    }
    kubeconfig(&token_with([]), &["--object-id=99"])
        .run()
        .fails(6, &["no key or certificate with objectId \"99\"", "insert the token"]);
}

#[test]
fn a_certificate_file_is_looked_at_and_names_the_user() {
    let own = key(Kind::Rsa(2048));
    let store = token_with([Object::key(own, &[2]), Object::public_key(own, &[2])]);
    let directory = store.directory.path();
    let file = |name: &str, der: Vec<u8>| {
        let path = directory.join(name);
        fs::write(&path, der).unwrap();
        format!("--certificate-file={}", path.display())
    };
    let valid = file("valid.der", issued(Kind::Rsa(2048), "/O=dev/CN=jane", 100, "clientAuth"));
    // By the library in this process, and by one that each library's own process has looked at.
    let found = Invocation::new(directory).arguments(&[
        "kubeconfig",
        "--external-signer",
        "--token-label=test token",
    ]);
    for invocation in [kubeconfig(&store, &[]), found] {
        let printed = invocation.argument(&valid).run().silently().printed();
        assert!(printed.starts_with("users:\n- name: jane\n"), "{printed}");
        assert!(printed.contains("# RSA-2048, O=dev, CN=jane, until 2"), "{printed}");
        let written = valid.split_once('=').unwrap().1;
        assert!(printed.contains(&format!("certificateFile: {written}\n")), "{printed}");
    }
    let expired = file("expired.der", issued(Kind::Rsa(2048), "/CN=jane", -1, "clientAuth"));
    let outcome = kubeconfig(&store, &[&expired]).run();
    outcome.says(&["the certificate of CN=jane: it expired"]);
    let foreign = file("foreign.der", issued(Kind::OtherRsa, "/CN=jane", 100, "clientAuth"));
    let private = format!("--certificate-file={}", own.private_pem().display());
    for (option, code, fragment) in [
        (foreign.as_str(), 6, "does not belong to the key with objectId \"2\""),
        ("--certificate-file=/nowhere.pem", 6, "certificateFile /nowhere.pem: "),
        (
            private.as_str(),
            6,
            "no usable X.509 certificate: it holds a PRIVATE KEY and no CERTIFICATE\n\
             help: --certificate-file must name a readable file with one certificate",
        ),
        ("--certificate-file=relative.pem", 6, "/relative.pem: No such"),
    ] {
        kubeconfig(&store, &[option]).run().fails(code, &[fragment]);
        let path = directory.join("config");
        write(&store, &path, &[option]).fails(code, &[fragment]);
        assert!(!path.exists());
    }
}

#[test]
fn a_user_is_never_without_a_name() {
    let store = token_of("/CN=jane");
    for arguments in [&["--user="][..], &["--user=", "--write"]] {
        let outcome = kubeconfig(&store, arguments).run();
        outcome.fails(3, &["would have no name", "--user"]);
    }
    // Neither the certificate nor the label says one.
    let nameless = token_with([
        Object::key(key(Kind::P256), &[2]),
        Object::issued(issued(Kind::P256, "/O=dev", 100, "clientAuth"), &[2]).labelled(""),
    ]);
    let outcome = kubeconfig(&nameless, &["--object-id=2"]).run();
    outcome.fails(3, &["would have no name", "--user"]);
    let named = kubeconfig(&nameless, &["--object-id=2", "--user=dev"]).run();
    assert!(named.printed().contains("- name: dev\n"));
}

#[test]
fn the_program_is_called_by_the_name_that_path_has_for_it() {
    let store = token_of("/CN=jane");
    let directory = store.directory.path();
    let places = ["store", "krew", "bin"].map(|name| directory.join(name));
    let [versioned, krew, bin] = &places;
    for place in &places {
        fs::create_dir(place).unwrap();
    }
    let program = versioned.join("pkcs11-external-signer");
    fs::copy(PROGRAM, &program).unwrap();
    let printed = |folders: &[&PathBuf]| {
        let invocation = kubeconfig(&store, &[]).program(&program);
        let path = std::env::join_paths(folders).unwrap();
        invocation.variable("PATH", path).run().printed()
    };
    let expects = |printed: &str, path: &Path| {
        let line = format!("pathExec: {}\n", path.display());
        assert!(printed.contains(&line), "no {line} in {printed}");
    };
    // As kubectl's plugin manager installs it: the store's folder has the version in its name.
    let link = krew.join("kubectl-pkcs11");
    symlink(&program, &link).unwrap();
    expects(&printed(&[krew]), &link);
    let own = bin.join("pkcs11-external-signer");
    symlink(&program, &own).unwrap();
    expects(&printed(&[krew, bin]), &own);
    expects(&printed(&[]), &program);
}

#[test]
fn everything_else_in_the_file_stays_as_it_is() {
    let store = token_of("/CN=jane");
    let before = "# mine\napiVersion: v1\nkind: Config\nx-unknown: [1, 'two']\nusers:\n\
                  # the build's\n- name: ci\n  user:\n    token: abc # secret\n# end of users\n\
                  contexts:\n- context: {cluster: k, user: ci}\n  name: main\n";
    let path = with_file(&store, before);
    let outcome = write(&store, &path, &["--context=main"]);
    let expected = before
        .replace("# secret\n", &format!("# secret\n{}", entry(&store, "CN=jane", "jane", "")))
        .replace("user: ci}", "user: jane}");
    assert_eq!(fs::read_to_string(&path).unwrap(), expected, "{}", outcome.stderr);
    let [backup] = &others(store.directory.path(), &["config"])[..] else { panic!("not one copy") };
    let copy = fs::read_to_string(store.path(backup)).unwrap();
    assert_eq!(copy, before);
    outcome.says(&[backup]);
    // Once more changes nothing, and makes no copy.
    let again = write(&store, &path, &["--context=main"]);
    again.says(&["is there"]);
    assert_eq!(fs::read_to_string(&path).unwrap(), expected);
    assert_eq!(others(store.directory.path(), &["config"]).len(), 1);
}

#[test]
fn a_user_of_the_same_name_is_not_replaced_unasked() {
    let store = token_of("/CN=jane");
    let before = "users:\n- name: jane\n  user:\n    client-key: /k\n    as: root\n";
    let path = with_file(&store, before);
    write(&store, &path, &[]).fails(3, &["has a user \"jane\" with other credentials", "--user"]);
    assert_eq!(fs::read_to_string(&path).unwrap(), before);
    let outcome = write(&store, &path, &["--user=jane"]);
    outcome.says(&["user \"jane\" had client-key"]);
    let after = fs::read_to_string(&path).unwrap();
    assert!(after.contains("    as: root\n") && !after.contains("client-key"), "{after}");
}

#[test]
fn only_what_is_not_there_is_written_and_left_to_do() {
    let store = token_of("/CN=jane");
    let contexts = "contexts:\n- context: {cluster: k, user: 'jane'}\n  name: main\n\
                    - context: {cluster: k, user: ci}\n  name: other\ncurrent-context: main\n";
    let path = with_file(&store, contexts);
    let outcome = write(&store, &path, &[]);
    outcome.says(&["context \"main\", the current one, uses user \"jane\""]);
    let before = fs::read_to_string(&path).unwrap();
    let outcome = write(&store, &path, &["--context=main"]);
    outcome.says(&["user \"jane\" is there already"]);
    assert_eq!(fs::read_to_string(&path).unwrap(), before);
    let outcome = write(&store, &path, &["--context=other"]);
    outcome.says(&["context \"other\" written; what"]);
    assert_eq!(fs::read_to_string(&path).unwrap(), before.replace("user: ci", "user: jane"));
}

#[test]
fn a_comment_that_goes_is_named_by_its_line() {
    let store = token_of("/CN=jane");
    let kept = "users:\n- name: jane # mine\n  # about it\n  x-note: sib\n  user:\n    \
                as: root # once\n";
    let path = with_file(&store, &format!("{kept}    token: t # old\n"));
    let outcome = write(&store, &path, &["--user=jane"]);
    outcome.says(&["user \"jane\" had token, a comment in line 7, which the copy still has"]);
    let after = fs::read_to_string(&path).unwrap();
    assert!(after.starts_with(kept), "{after}");
}

#[test]
fn a_file_of_a_context_has_to_be_there() {
    let store = token_of("/CN=jane");
    let path = store.path("config");
    let option = format!("--kubeconfig={}", path.display());
    kubeconfig(&store, &["--write", "--context=main", &option])
        .run()
        .fails(3, &[&format!("there is no kubeconfig {}", path.display())]);
    assert_eq!(others(store.directory.path(), &[]), [""; 0]);
}

/// A kubeconfig whose user jane has this configuration, each line at the margin.
fn with_config(store: &Store, config: &str) -> PathBuf {
    let lines: String = config.lines().map(|line| format!("        {line}\n")).collect();
    with_file(
        store,
        &format!(
            "users:\n- name: jane\n  user:\n    auth-provider:\n      \
             name: externalSigner\n      config:\n{lines}"
        ),
    )
}

/// What is no selector of the key: an own program, where the PIN comes from, a certificate file
/// and what only its owner knows.
const KEPT: &str = "pathExec: /bin/sh # our own\npinSource: file:/run/secrets/pin\n\
                    certificateFile: /etc/k8s/jane.pem\nx-note: mine # truly\n";

#[test]
fn an_entry_of_the_same_key_keeps_what_else_it_says() {
    let store = token_of("/CN=jane");
    let library = softhsm_library().display();
    let token = &store.tokens[0];
    let serial = &token.serial;
    let path = with_config(
        &store,
        &format!("{KEPT}pathLib: {library}\ntokenSerial: \"{serial}\"\nobjectId: 0x02\n"),
    );
    let before = fs::read_to_string(&path).unwrap().replace("0x02", "\"2\"");
    fs::write(&path, &before).unwrap();
    let outcome = write(&store, &path, &[]);
    outcome.says(&["is there already"]);
    assert_eq!(fs::read_to_string(&path).unwrap(), before);
    for selectors in [
        format!("slotId: {}\npathLib: {library}\nobjectId: \"0x02\"", token.slot),
        "tokenLabel: test token\nobjectLabel: issued certificate".to_owned(),
        format!("uri: 'pkcs11:serial={serial};id=%02'"),
    ] {
        let path = with_config(&store, &format!("{selectors}\n{KEPT}"));
        let outcome = write(&store, &path, &[]);
        assert!(outcome.status.success(), "{}", outcome.stderr);
        let lost = if selectors.starts_with("uri") {
            "user \"jane\" had uri, which"
        } else {
            "user \"jane\" written"
        };
        outcome.says(&[lost]);
        let after = fs::read_to_string(&path).unwrap();
        let selected = format!("        tokenSerial: \"{serial}\"   # token \"test token\"\n");
        assert!(after.contains(&selected), "{after}");
        for line in KEPT.lines() {
            assert!(after.contains(&format!("        {line}\n")), "no {line} in {after}");
        }
        for replaced in ["slotId", "tokenLabel", "objectLabel", "uri"] {
            assert!(!after.contains(replaced), "{after}");
        }
    }
}

/// Another library's token can have the same label.
#[test]
fn a_pin_source_of_another_librarys_token_is_not_kept() {
    let store = token_of("/O=dev/CN=jane");
    let other =
        "pathLib: /usr/lib/other.so\ntokenLabel: test token\nobjectId: \"2\"\npinSource: prompt";
    let path = with_config(&store, other);
    let outcome = write(&store, &path, &[]);
    outcome.fails(3, &["has a user \"jane\"", "--user jane to replace"]);
}

#[test]
fn a_token_that_was_not_seen_whole_is_named_where_no_key_is_found() {
    let store = token_with([]);
    let outcome = kubeconfig(&store, &["--login"]).run();
    assert_eq!(outcome.status.code(), Some(6), "{outcome:?}");
    outcome.says(&["warning: not everything was seen: token \"test token\""]);
}

#[test]
fn the_options_go_before_what_an_entry_says_of_the_pin() {
    let store = token_of("/CN=jane");
    let selectors = "tokenLabel: test token\nobjectId: \"2\"\n";
    let path = with_config(&store, &format!("{selectors}pin: {PIN}\n"));
    // What is there is nothing that this program has written.
    write(&store, &path, &[]);
    let after = fs::read_to_string(&path).unwrap();
    assert!(after.contains(&format!("        pin: {PIN}\n")), "{after}");
    let outcome = write(&store, &path, &["--pin-source=askpass"]);
    outcome.says(&["user \"jane\" had pin, which"]);
    let after = fs::read_to_string(&path).unwrap();
    assert!(after.contains("pinSource: \"askpass\"\n"), "{after}");
    assert!(!after.contains(PIN), "{after}");
    let uri = "uri: 'pkcs11:token=test%20token;id=%02?pin-source=/run/pin'";
    let path = with_config(&store, uri);
    write(&store, &path, &[]);
    let after = fs::read_to_string(&path).unwrap();
    assert!(after.contains("pinSource: \"file:/run/pin\"\n"), "{after}");
}

#[test]
fn what_belongs_to_another_key_goes_with_it_and_is_named() {
    let store = two_keys();
    let path = with_config(
        &store,
        &format!("{KEPT}tokenLabel: two\nobjectId: \"2\"\npathLib: /gone.so\n"),
    );
    let before = fs::read_to_string(&path).unwrap();
    write(&store, &path, &["--object-id=1"]).fails(3, &["with other credentials"]);
    assert_eq!(fs::read_to_string(&path).unwrap(), before);
    let outcome = write(&store, &path, &["--object-id=1", "--user=jane"]);
    outcome.says(&["user \"jane\" had certificateFile, pinSource, which the copy still has"]);
    let after = fs::read_to_string(&path).unwrap();
    assert!(after.contains("x-note") && after.contains("/bin/sh"), "{after}");
    for gone in ["pinSource", "certificateFile", "tokenLabel", "/gone.so"] {
        assert!(!after.contains(gone), "{after}");
    }
}

#[test]
fn each_entry_is_written_into_the_file_it_stands_in() {
    let store = token_of("/CN=jane");
    let directory = store.directory.path();
    let [first, second, real] =
        ["config-1", "config-2", "config-real"].map(|name| directory.join(name));
    fs::write(&first, "contexts: [{name: main, context: {user: old}}]\n").unwrap();
    fs::write(&real, "users: [{name: jane}]\n").unwrap();
    symlink("config-real", &second).unwrap();
    let list = std::env::join_paths([&first, &second]).unwrap();
    let outcome = write(&store, Path::new(&list), &["--context=main"]);
    assert!(outcome.status.success(), "{}", outcome.stderr);
    let text = |path: &Path| fs::read_to_string(path).unwrap();
    assert_eq!(text(&first), "contexts: [{name: main, context: {user: jane}}]\n");
    assert!(text(&real).contains("externalSigner"));
    assert!(second.is_symlink());
    // A new user goes where kubectl puts one: into the first file that is there.
    let outcome = write(&store, Path::new(&list), &["--user=new"]);
    assert!(
        text(&first).contains("name\":\"new\"") || text(&first).contains("name: new"),
        "{}",
        outcome.stderr
    );
    let fresh = directory.join("fresh/config");
    let outcome = write(&store, &fresh, &[]);
    outcome.says(&[&format!("{}: user \"jane\" written, in a new file", fresh.display())]);
    // No context is current there, so kubectl has none to change.
    for next in [
        "kubectl config set-context NAME --cluster=CLUSTER --user=jane",
        "kubectl config use-context NAME",
    ] {
        outcome.says(&[next]);
    }
    assert!(text(&fresh).starts_with("apiVersion: v1\nkind: Config\nusers:\n- name: jane\n"));
}

#[test]
fn a_file_that_can_not_be_written_is_left_alone() {
    let store = token_of("/CN=jane");
    let refused = |path: &Path, arguments: &[&str], fragments: &[&str]| {
        let before = fs::read(path).ok();
        write(&store, path, arguments).fails(3, fragments);
        assert_eq!(fs::read(path).ok(), before);
    };
    refused(Path::new("/sys/config"), &[], &["kubeconfig /sys/config can't be written", "--write"]);
    let path = with_file(&store, "users:\n- &a {name: b}\nx: *a\ncontexts: [{name: main}]\n");
    refused(&path, &["--context=other"], &["no context \"other\"", "main"]);
    refused(&path, &["--context=main"], &["can't be edited", "paste what it prints"]);
    let lock = store.path("config.lock");
    fs::write(&lock, "").unwrap();
    refused(&path, &[], &["another program is writing it", "config.lock"]);
    fs::remove_file(lock).unwrap();
    fs::write(&path, "users: [").unwrap();
    refused(&path, &[], &["line 1"]);
    assert_eq!(others(store.directory.path(), &["config"]), [""; 0]);
}

/// While it waits for another program's lock it has one itself.
#[test]
fn what_is_no_file_is_not_written() {
    let store = token_of("/CN=jane");
    let directory = store.directory.path();
    rustix::fs::mkfifoat(rustix::fs::CWD, directory.join("fifo"), 0o600.into()).unwrap();
    fs::write(directory.join("config"), "").unwrap();
    for (files, named) in [
        ("<(cat config)", "/dev/fd/"),
        ("fifo", "fifo"),
        ("/dev/null", "/dev/null"),
        ("/dev/stdin", "/dev/stdin"),
        ("config:fifo", "fifo"),
    ] {
        let script = format!(
            "cd \"$HOME\" && KUBECONFIG={files} \"$SIGNER\" kubeconfig --external-signer --write --module={}",
            softhsm_library().display()
        );
        let before = others(directory, &[]);
        let outcome = Invocation::new(directory).within("bash", &script).run();
        let told = format!("kubeconfig {named}");
        outcome.fails(3, &[&told, "can't be written: it is not a regular file", "without --write"]);
        assert_eq!(others(directory, &[]), before, "{files}");
        assert_eq!(fs::read_to_string(directory.join("config")).unwrap(), "");
    }
}

#[test]
fn an_interruption_leaves_the_files_alone_and_no_lock_behind() {
    let store = token_of("/CN=jane");
    let directory = store.directory.path();
    let [first, second] = ["config-1", "config-2"].map(|name| directory.join(name));
    let texts = ["contexts: [{name: main}]\n", "users: [{name: jane}]\n"];
    fs::write(&first, texts[0]).unwrap();
    fs::write(&second, texts[1]).unwrap();
    fs::write(directory.join("config-1.lock"), "").unwrap();
    let own = directory.join("config-2.lock");
    let list = std::env::join_paths([&first, &second]).unwrap();
    for signals in [
        &[Signal::INT][..],
        &[Signal::TERM],
        &[Signal::HUP],
        // From the terminal, and from the parent process, which passes on what it gets.
        &[Signal::INT, Signal::INT, Signal::TERM],
    ] {
        let running = kubeconfig(&store, &["--write", "--context=main"])
            .variable("KUBECONFIG", &list)
            .start(None);
        wait_until("it has a lock of its own", || own.exists());
        for signal in signals {
            kill_process(running.pid(), *signal).unwrap();
        }
        let outcome = running.finish();
        // Of several at the same moment, any may be seen first.
        let ended_by = outcome.status.signal();
        assert!(signals.iter().any(|it| Some(it.as_raw()) == ended_by), "{outcome:?}");
        assert_eq!(outcome.stderr.matches("interrupted by").count(), 1);
        let known = ["config-1", "config-2", "config-1.lock"];
        assert_eq!(others(directory, &known), [""; 0], "{signals:?}");
        assert_eq!(fs::read_to_string(&first).unwrap(), texts[0]);
        assert_eq!(fs::read_to_string(&second).unwrap(), texts[1]);
    }
}

#[test]
fn interruptions_at_any_moment_leave_the_old_file_or_the_new_one_and_nothing_else() {
    let store = token_of("/CN=jane");
    let path = with_file(&store, "users: []\n");
    let took = write(&store, &path, &[]).took;
    let new = fs::read_to_string(&path).unwrap();
    let moments = (0..80).flat_map(|moment| [(moment, Signal::INT), (moment, Signal::KILL)]);
    for (moment, signal) in moments {
        for name in others(store.directory.path(), &["config"]) {
            fs::remove_file(store.path(name)).unwrap();
        }
        fs::write(&path, "users: []\n").unwrap();
        let running = kubeconfig(&store, &["--write"]).variable("KUBECONFIG", &path).start(None);
        thread::sleep(took * moment / 80);
        kill_process(running.pid(), signal).unwrap();
        running.finish();
        let left = others(store.directory.path(), &["config"]);
        let copies: Vec<_> = left.iter().filter(|it| it.starts_with("config.backup-")).collect();
        let is_old = fs::read_to_string(&path).unwrap() == "users: []\n";
        if !is_old {
            assert_eq!(fs::read_to_string(&path).unwrap(), new);
            assert_eq!(copies.len(), 1, "{left:?}");
            let copy = store.path(copies[0]);
            assert_eq!(fs::read_to_string(copy).unwrap(), "users: []\n");
        }
        // Nothing can be tidied up after SIGKILL.
        if signal == Signal::INT {
            assert_eq!(left.len(), usize::from(!is_old), "{left:?}");
        }
    }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "nobody else is here")]
fn what_can_not_be_replaced_as_it_was_is_left_alone() {
    let store = token_of("/CN=jane");
    let place = store.path("place");
    fs::create_dir(&place).unwrap();
    let file = place.join("config");
    fs::write(&file, "users: []\n").unwrap();
    let refused = |invocation: Invocation, fragments: &[&str]| {
        let outcome = invocation.variable("KUBECONFIG", &file).run();
        outcome.fails(3, &["paste what it prints"]).fails(3, fragments);
        assert_eq!(fs::read_to_string(&file).unwrap(), "users: []\n");
        assert_eq!(fs::read_dir(&place).unwrap().count(), 1);
    };
    let write = || kubeconfig(&store, &["--write"]);
    let read_only = format!(
        "mount --bind {0} $machine{0} && mount -o remount,bind,ro $machine{0}",
        place.display()
    );
    refused(write().with_etc(&read_only), &["config can't be written", "Read-only file system"]);
    // Of a group that its owner isn't in.
    chown(&file, None, Some(12345)).unwrap();
    let mortal = ["--bounding-set=-chown".to_owned()];
    refused(write().through("setpriv", &mortal), &["the group of the file can't be kept"]);
}

#[test]
fn writers_at_the_same_time_lose_nothing() {
    let store = token_of("/CN=jane");
    let path = with_file(&store, "users: []\n");
    let names: Vec<String> = (0..12).map(|number| format!("user-{number}")).collect();
    thread::scope(|scope| {
        for name in &names {
            let (store, path) = (&store, &path);
            scope.spawn(move || {
                let outcome = write(store, path, &[&format!("--user={name}")]);
                assert!(outcome.status.success(), "{}", outcome.stderr);
            });
        }
    });
    let text = fs::read_to_string(&path).unwrap();
    for name in &names {
        assert!(text.contains(&format!("- name: {name}\n")), "{text}");
    }
}

#[test]
fn a_pin_is_never_written() {
    let store = token_of("/CN=jane");
    let uri = format!("--uri=pkcs11:token=test%20token?pin-value={PIN}");
    let text = kubeconfig(&store, &[&uri]).run();
    let text = text.printed_beside(&["warning: the PIN stands on the command line"]);
    assert!(!text.contains("pin"), "{text}");
    let uri = "--uri=pkcs11:token=test%20token;id=%02?pin-source=/run/pin";
    let text = kubeconfig(&store, &[uri]).run().printed();
    assert!(text.ends_with("        pinSource: \"file:/run/pin\"\n"), "{text}");
    kubeconfig(&store, &[uri, "--pin-source=prompt"])
        .run()
        .fails(3, &["uri has another pin-source than pinSource"]);
    kubeconfig(&store, &["--uri=pkcs11:?pin-source=4711"])
        .run()
        .fails(3, &["pinSource is none of"]);
    kubeconfig(&store, &["--pin-source=4711"]).run().fails(3, &["pinSource is none of"]);
}
