//! `kubeconfig`: the key that is found, and the user that is printed for it. What stock clients need is in
//! `kubeconfig_plugin`.

use crate::fixture::*;

fn kubeconfig(store: &Store, arguments: &[&str]) -> Invocation {
    store
        .command(&["kubeconfig", "--external-signer"])
        .argument(softhsm_option())
        .arguments(arguments)
}

fn two_keys() -> Store {
    let pair =
        |kind, id: u8, user| Object::certified(kind, issued(kind, user, 100, "clientAuth"), &[id]);
    Store::new([
        blueprint("one", pair(Kind::P256, 1, "/CN=jane")),
        blueprint("two", pair(Kind::Rsa(2048), 2, "/CN=hans")),
    ])
}

#[test]
fn the_only_usable_key_is_printed_for_pasting() {
    let store = token_of("/O=dev/CN=jane", 100, 2);
    let outcome = kubeconfig(&store, &[]).run();
    let expected = format!(
        "users:\n- name: jane\n  user:\n    auth-provider:\n      name: externalSigner\n      config:\n        \
         objectId: \"2\"\n        pathExec: {PROGRAM}\n        pathLib: {}\n        tokenSerial: ",
        softhsm_library().display(),
    );
    let printed = outcome.silently().printed();
    assert!(printed.starts_with(&expected), "{printed}");
    let serial = &store.tokens[0].serial;
    assert_eq!(printed[expected.len()..].trim().trim_matches('"'), serial);
    let text = kubeconfig(&store, &["--user=admin", "--pin-source=file:/run/pin"]).run().printed();
    assert!(text.starts_with("users:\n- name: admin\n"), "{text}");
    assert!(text.contains("        pinSource: file:/run/pin\n"), "{text}");
    for refused in ["--write", "--context=main"] {
        assert_eq!(kubeconfig(&store, &[refused]).run().status.code(), Some(2));
    }
}

#[test]
fn of_several_keys_one_is_picked_at_the_terminal_or_named() {
    let store = two_keys();
    kubeconfig(&store, &[])
        .run()
        .fails(6, &["2 keys match", "pkcs11:token=one;", ";id=%02?module-path="]);
    let mut terminal = kubeconfig(&store, &[]).at_terminal();
    terminal.expect("Which key?").expect("CN=hans").expect("Its number (1 to 2): ");
    terminal.type_line("3").expect("Its number (1 to 2): ");
    let shown = {
        let (outcome, shown) = terminal.type_line("1").finish();
        let printed = outcome.printed();
        assert!(printed.contains("name: jane") || printed.contains("name: hans"), "{printed}");
        let first = if shown.find("CN=jane") < shown.find("CN=hans") { "jane" } else { "hans" };
        assert!(printed.contains(&format!("name: {first}\n")), "{printed}\n{shown}");
        shown
    };
    assert!(shown.contains("token \"one\""), "{shown}");
    let mut terminal = kubeconfig(&store, &[]).at_terminal();
    terminal.expect("Its number").type_line("").finish().0.fails(6, &["2 keys match"]);
    for arguments in [["--object-id=2"], ["--token-label=two"], ["--uri=pkcs11:token=two"]] {
        let printed = kubeconfig(&store, &arguments).run().printed();
        assert!(printed.contains("name: hans"), "{printed}");
    }
}

#[test]
fn a_key_that_can_not_be_used_is_not_chosen_but_can_be_named() {
    let store = token_of("/CN=jane", -1, 2);
    kubeconfig(&store, &[]).run().fails(6, &["no usable key was found", "expired", "CN=jane"]);
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
        let written = valid.split_once('=').unwrap().1;
        assert!(printed.contains(&format!("certificateFile: {written}\n")), "{printed}");
    }
    let expired = file("expired.der", issued(Kind::Rsa(2048), "/CN=jane", -1, "clientAuth"));
    kubeconfig(&store, &[&expired]).run().says(&["the certificate of CN=jane: it expired"]);
    let foreign = file("foreign.der", issued(Kind::OtherRsa, "/CN=jane", 100, "clientAuth"));
    let private = format!("--certificate-file={}", own.private_pem().display());
    for (option, code, fragment) in [
        (foreign.as_str(), 6, "does not belong to the key with objectId \"2\""),
        ("--certificate-file=/nowhere.pem", 6, "certificateFile /nowhere.pem: "),
        (
            private.as_str(),
            6,
            "is not a usable X.509 certificate: it has no CERTIFICATE in PEM, and is no DER\n",
        ),
        ("--certificate-file=relative.pem", 6, "/relative.pem: No such"),
    ] {
        kubeconfig(&store, &[option]).run().fails(code, &[fragment]);
    }
    // As a CA on Windows gives it out.
    let bundle = directory.join("jane.p7b");
    let mut openssl = tool("openssl", "openssl");
    openssl.args(["crl2pkcs7", "-nocrl", "-certfile"]).arg(own.certificate_pem());
    assert!(openssl.arg("-out").arg(&bundle).status().unwrap().success());
    let option = format!("--certificate-file={}", bundle.display());
    kubeconfig(&store, &[&option]).run().fails(6, &["`openssl pkcs7 -print_certs -in FILE`"]);
}

#[test]
fn a_user_is_never_without_a_name() {
    let store = token_of("/CN=jane", 100, 2);
    kubeconfig(&store, &["--user="]).run().fails(3, &["would have no name", "--user"]);
    // Neither the certificate nor the label says one.
    let nameless = token_with([
        Object::key(key(Kind::P256), &[2]),
        Object::issued(issued(Kind::P256, "/O=dev", 100, "clientAuth"), &[2]).labelled(""),
    ]);
    kubeconfig(&nameless, &["--object-id=2"]).run().fails(3, &["would have no name", "--user"]);
    let named = kubeconfig(&nameless, &["--object-id=2", "--user=dev"]).run();
    assert!(named.printed().contains("- name: dev\n"));
}

#[test]
fn the_program_is_called_by_the_name_that_path_has_for_it() {
    let store = token_of("/CN=jane", 100, 2);
    let directory = store.directory.path();
    let places = ["store", "krew", "bin"].map(|name| directory.join(name));
    let [versioned, krew, bin] = &places;
    for place in &places {
        fs::create_dir(place).unwrap();
    }
    let program = copy_of_program(versioned);
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
    // As an installer's link, which leads to the version of today.
    let current = directory.join("current");
    symlink(versioned, &current).unwrap();
    let started = current.join("pkcs11-external-signer");
    for (typed, path) in [(&started, ""), (&own, "")] {
        let invocation = kubeconfig(&store, &[]).program(typed).variable("PATH", path);
        expects(&invocation.run().printed(), typed);
    }
}

#[test]
fn a_token_that_was_not_seen_whole_is_named_where_no_key_is_found() {
    let store = token_with([]);
    let outcome = kubeconfig(&store, &["--login"]).run();
    assert_eq!(outcome.status.code(), Some(6), "{outcome:?}");
    outcome.says(&["warning: not everything was seen: token \"test token\""]);
}

#[test]
fn a_pin_is_never_written() {
    let store = token_of("/CN=jane", 100, 2);
    let uri = format!("--uri=pkcs11:token=test%20token?pin-value={PIN}");
    let text = kubeconfig(&store, &[&uri]).run();
    let text = text.printed_beside(&["warning: the PIN stands on the command line"]);
    assert!(!text.contains("pin"), "{text}");
    let uri = "--uri=pkcs11:token=test%20token;id=%02?pin-source=/run/pin";
    let text = kubeconfig(&store, &[uri]).run().printed();
    assert!(text.contains("        pinSource: file:/run/pin\n"), "{text}");
    kubeconfig(&store, &[uri, "--pin-source=prompt"])
        .run()
        .fails(3, &["uri has another pin-source than pinSource"]);
    kubeconfig(&store, &["--uri=pkcs11:?pin-source=4711"]).run().fails(3, &["pinSource must be"]);
    kubeconfig(&store, &["--pin-source=4711"]).run().fails(3, &["pinSource must be"]);
}
