//! `list`: what there is to authenticate with, as lines and as JSON, on several tokens, and what
//! is reported about libraries and tokens that don't answer.

use rcgen::ExtendedKeyUsagePurpose::ServerAuth;

use crate::fixture::*;

/// Two tokens, with something of everything.
fn store() -> Store {
    let [rsa, p256, p384] = [Kind::Rsa(2048), Kind::P256, Kind::P384];
    Store::new([
        blueprint(
            "prod",
            [
                Object::key(key(rsa), &[2]),
                Object::issued(issued(rsa, "/O=dev/O=a,b/CN=jane", 100, "clientAuth"), &[2])
                    .labelled("jane"),
                Object::key(key(p256), &[3]).always_authenticate(),
                Object::issued(issued(p256, "/CN=old", -1, "clientAuth"), &[3]).labelled("old"),
                Object::issued(
                    expiring(p384, "web", time::Duration::hours(119), ServerAuth, authority()),
                    &[1, 2],
                )
                .labelled("web"),
                Object::key(key(Kind::Ed25519), &[4]).public().labelled("lone"),
                Object::key(key(Kind::OtherRsa), &[5]).labelled("hidden"),
                Object::certificate(key(Kind::Authority), &[9]),
            ],
        ),
        blueprint("empty", []),
    ])
}

fn list(store: &Store, arguments: &[&str]) -> Invocation {
    store.with_pin(&["list"]).arguments(arguments).variable("NO_PIN", WRONG_PIN)
}

/// With names in place of what differs from run to run.
fn normalised(store: &Store, text: &str) -> String {
    let library = softhsm_library();
    let mut text = text.replace(library.to_str().unwrap(), "LIBRARY");
    for token in &store.tokens {
        let name = token.label.to_uppercase();
        text = text
            .replace(&token.serial, &format!("{name}-SERIAL"))
            .replace(&token.slot.to_string(), &format!("{name}-SLOT"));
    }
    text
}

/// The tokens in the order of their slots, which SoftHSM chooses.
fn tokens_of(document: &Value) -> Value {
    let mut tokens = document["libraries"][0]["tokens"].clone();
    let tokens_list = tokens.as_array_mut().unwrap();
    tokens_list.sort_by_key(|token| token["tokenLabel"].to_string());
    tokens
}

#[test]
fn the_list_shows_what_could_authenticate_and_why_not() {
    let store = store();
    let outcome = list(&store, &[softhsm_option(), "--token-label=prod"]).run();
    let mut shown = normalised(&store, &outcome.silently().printed());
    let outcome = list(&store, &[softhsm_option(), "--token-label=prod", "--json"]).run();
    let keys = tokens_of(&outcome.json())[0]["keys"].clone();
    for (key, name) in keys.as_array().unwrap().iter().zip(["JANE", "OLD", "", "WEB"]) {
        // It can be searched for a name in an audit log.
        if let Some(id) = key["certificate"]["credentialId"].as_str() {
            let end = key["certificate"]["expires"].as_str().unwrap();
            shown = shown.replace(id, name).replace(end, &format!("{name}-END"));
        }
    }
    assert_eq!(
        shown,
        "LIBRARY\n  \
           slotId PROD-SLOT, tokenLabel \"prod\", tokenSerial \"PROD-SERIAL\"\n    \
             objectId 2, objectLabel \"jane\", RSA-2048, user \"jane\", groups \"dev\", \"a,b\", issued by CN=test authority, expires JANE-END, JANE\n    \
             objectId 3, objectLabel \"old\", ECDSA P-256, user \"old\", issued by CN=test authority, expired OLD-END, OLD: expired\n    \
             objectId 4, objectLabel \"lone\", Ed25519: no certificate\n    \
             objectId 0x0102, objectLabel \"web\", ECDSA P-384, user \"web\", issued by CN=test authority, expires WEB-END, WEB: renewal due, not for TLS clients\n"
    );
}

#[test]
fn what_a_token_hides_is_seen_after_a_login() {
    let store = store();
    let document = |arguments: &[&str]| list(&store, arguments).run().silently().json();
    let notes = |document: &Value| -> Value {
        let tokens = tokens_of(document);
        let keys = tokens[0]["keys"].as_array().unwrap().iter();
        keys.map(|key| json!([key["objectId"], key["notes"], key["usable"]])).collect()
    };
    let shut = document(&[softhsm_option(), "--json", "--token-label=prod"]);
    assert_eq!(
        notes(&shut),
        json!([
            ["2", [], true],
            ["3", ["expired"], false],
            ["4", ["no-certificate"], false],
            ["0x0102", ["expires-soon", "not-for-clients"], false],
        ])
    );
    let source = "--pin-source=env:TOKEN_PIN";
    let open = document(&[softhsm_option(), "--json", "--token-label=prod", "--login", source]);
    assert_eq!(
        notes(&open),
        json!([
            ["2", [], true],
            ["3", ["expired", "pin-per-signature"], false],
            ["4", ["no-certificate"], false],
            ["5", ["no-certificate"], false],
            ["0x0102", ["expires-soon", "not-for-clients", "no-private-key"], false],
        ])
    );
}

#[test]
fn the_document_is_what_is_documented() {
    let store = store();
    let outcome = list(&store, &[softhsm_option(), "--json"]).run();
    let text = normalised(&store, &outcome.silently().printed());
    let document: Value =
        serde_json::from_str(&text.replace("PROD-SLOT", "1").replace("EMPTY-SLOT", "2")).unwrap();
    assert_eq!(document["apiVersion"], "pkcs11-external-signer/v1");
    let library = &document["libraries"][0];
    assert_eq!((&library["pathLib"], &library["error"]), (&json!("LIBRARY"), &Value::Null));
    let tokens = tokens_of(&document);
    let date = |field: &str| {
        let date = tokens[1]["keys"][0]["certificate"][field].clone();
        assert!(date.as_str().unwrap().ends_with('Z'), "{date}");
        date
    };
    let not_after = date("notAfter").as_str().unwrap().to_owned();
    let serial_number = tokens[1]["keys"][0]["certificate"]["serialNumber"].clone();
    assert!(serial_number.as_str().unwrap().len() >= 16, "{serial_number}");
    assert_eq!(
        tokens[0],
        json!({
            "slotId": 2, "tokenLabel": "empty", "tokenSerial": "EMPTY-SERIAL",
            "loginRequired": true, "writeProtected": false, "needsLabel": false, "needsSlotId": false, "pin": "good", "error": null,
            "caCertificates": 0, "keys": [],
        })
    );
    assert_eq!(
        tokens[1]["keys"][0],
        json!({
            "objectId": "2", "objectLabel": "jane", "kind": "RSA-2048",
            "fingerprint": tokens[1]["keys"][0]["fingerprint"],
            "certificate": {
                "subject": "O=dev, O=a\\,b, CN=jane", "user": "jane", "groups": ["dev", "a,b"],
                "issuer": "CN=test authority", "serialNumber": serial_number,
                "credentialId": tokens[1]["keys"][0]["certificate"]["credentialId"],
                "notBefore": date("notBefore"), "notAfter": date("notAfter"),
                "expires": format!("{} UTC", not_after[..16].replace('T', " ")),
            },
            "notes": [], "usable": true, "needsLabel": false,
            "uri": "pkcs11:token=prod;serial=PROD-SERIAL;id=%02?module-path=LIBRARY",
        })
    );
}

#[test]
fn no_pin_is_asked_and_no_login_made_without_login() {
    let store = store();
    let module = store.faulty_module();
    let outcome =
        list(&store, &[&module, "--json"]).suffering(&store, "").piped(format!("{PIN}\n")).run();
    outcome.silently().printed();
    assert_eq!(store.calls("C_Login"), [""; 0]);
    // A PIN of one token would cost the others a try.
    list(&store, &[&module, "--login", "--pin-source=env:TOKEN_PIN"])
        .suffering(&store, "")
        .run()
        .fails(5, &["would be sent to 2 tokens", "--token-serial", "\"prod\"", "\"empty\""]);
    assert_eq!(store.calls("C_Login"), [""; 0]);
    // And through several libraries it would be sent to the same token several times.
    list(&store, &["--login", "--pin-source=env:TOKEN_PIN"]).run().fails(2, &["--module"]);
    // A wrong one is sent once; what is seen without it is listed all the same.
    let outcome =
        list(&store, &[&module, "--login", "--pin-source=env:NO_PIN", "--token-label=prod"])
            .suffering(&store, "")
            .run();
    let shown = outcome.printed();
    assert!(shown.contains("refused the PIN from the environment variable NO_PIN"), "{shown}");
    assert!(shown.contains("jane"), "{shown}");
    assert_eq!(store.calls("C_Login"), ["0xa0"]);
}

/// Without a terminal there is no PIN: what is visible without one is listed.
#[test]
fn where_nobody_can_be_asked_each_token_says_so() {
    let store = store();
    let module = store.faulty_module();
    for input in ["", PIN] {
        let outcome = list(&store, &[&module, "--login"]).suffering(&store, "").piped(input).run();
        let shown = outcome.silently().printed();
        assert!(shown.contains("jane"), "{shown}");
        for token in ["prod", "empty"] {
            let wants = format!("token \"{token}\" (serial ");
            assert!(shown.contains(&wants), "no {wants} in\n{shown}");
        }
        assert_eq!(shown.matches("there is no terminal to ask for it").count(), 2, "{shown}");
    }
    assert_eq!(store.calls("C_Login"), [""; 0]);
}

#[test]
fn a_uri_says_where_the_pin_comes_from_and_which_library_is_meant() {
    let store = store();
    let file = store.path("pin");
    write_file(&file, PIN, 0o600);
    let named = format!("pkcs11:token=prod?module-path={}", softhsm_library().display());
    let login = |arguments: &[&str]| list(&store, &["--login"]).arguments(arguments).run();
    let sees_all = |outcome: &Outcome| {
        let shown = outcome.silently().printed();
        assert!(shown.contains("no private key"), "{shown}");
    };
    let of_uri = format!("--uri={named}&pin-source={}", file.display());
    sees_all(&login(&[&of_uri]));
    let source = "--pin-source=env:TOKEN_PIN";
    let uri = format!("--uri={named}");
    sees_all(&login(&[&uri, source]));
    let pin = format!("--uri={named}&pin-value={PIN}");
    let shown = login(&[&pin]).printed_beside(&["warning: the PIN stands on the command line"]);
    assert!(shown.contains("no private key"), "{shown}");
    // An option goes before what the URI says.
    sees_all(&login(&[&of_uri, source]));
    sees_all(&login(&[&format!("--uri={named}&pin-value={WRONG_PIN}"), source]));
    // It isn't sent to whatever libraries are found, some of which show the same token.
    for query in [format!("pin-source={}", file.display()), format!("pin-value={PIN}")] {
        let outcome = login(&[&format!("--uri=pkcs11:token=prod?{query}")]);
        outcome.fails(2, &["--login with a stored PIN needs --module"]);
    }
}

#[test]
fn a_key_that_is_not_there_is_an_error() {
    let store = store();
    let module = softhsm_option();
    let missing = |arguments: &[&str]| {
        let outcome = list(&store, arguments).run();
        assert_eq!(outcome.status.code(), Some(6), "{outcome:?}");
        let error = "error: no key or certificate with objectId \"99\"\nhelp: ";
        assert!(outcome.stderr.contains(error), "{outcome:?}");
        assert!(!outcome.shown().contains("no visible key"), "{outcome:?}");
    };
    missing(&["--object-id=99"]);
    missing(&[module, "--object-id=99"]);
    missing(&["--uri=pkcs11:id=%63"]);
    // One that is on a token is no error of the others.
    let shown = list(&store, &[module, "--object-id=2"]).run();
    let shown = shown.silently().printed();
    assert!(shown.contains("jane") && !shown.contains("no visible key"), "{shown}");
}

/// Each row's objectId and label, notes, and whether it is usable.
fn rows(store: &Store, arguments: &[&str]) -> Value {
    let keys = list(store, arguments).arguments(&[softhsm_option(), "--json"]).run().keys();
    keys.iter()
        .map(|key| json!([key["objectId"], key["objectLabel"], key["notes"], key["usable"]]))
        .collect()
}

const LOGIN: [&str; 2] = ["--login", "--pin-source=env:TOKEN_PIN"];

#[test]
fn keys_of_one_id_stand_each_with_the_certificate_of_its_label() {
    let [one, two, three] = [Kind::P256, Kind::Rsa(2048), Kind::OtherRsa].map(key);
    let twin = |key, label: &str| {
        [
            Object::key(key, &[3]).labelled(label),
            Object::public_key(key, &[3]).labelled(label),
            Object::certificate(key, &[3]).labelled(label),
        ]
    };
    let store = token_with([twin(one, "one"), twin(two, "two"), twin(three, "three")].concat());
    let expected =
        json!([["3", "one", [], true], ["3", "three", [], true], ["3", "two", [], true],]);
    assert_eq!(rows(&store, &[]), expected);
    assert_eq!(rows(&store, &LOGIN), expected);
    // One that has no certificate is a row of its own.
    let [_, _, first] = twin(one, "one");
    let [second, ..] = twin(two, "two");
    let store = token_with([Object::key(one, &[3]).labelled("one"), first, second]);
    let expected = json!([["3", "one", [], true], ["3", "two", ["no-certificate"], false],]);
    assert_eq!(rows(&store, &LOGIN), expected);
}

#[test]
fn a_certificate_of_another_key_is_not_usable() {
    for (own, other) in [
        (Kind::P256, Kind::Rsa(2048)),
        (Kind::Rsa(2048), Kind::P256),
        (Kind::Rsa(2048), Kind::OtherRsa),
        (Kind::P256, Kind::P384),
    ] {
        let certificate = Object::certificate(key(other), &[1]).labelled("jane");
        let private = Object::key(key(own), &[1]);
        let public = Object::public_key(key(own), &[1]);
        let good = json!([["1", "jane", [], true]]);
        let bad = json!([["1", "jane", ["other-key"], false]]);
        let hidden = token_with([private.clone(), certificate.clone()]);
        assert_eq!(rows(&hidden, &[]), good, "{own:?} {other:?}");
        assert_eq!(rows(&hidden, &LOGIN), bad, "{own:?} {other:?}");
        let seen = token_with([private, public, certificate]);
        assert_eq!(rows(&seen, &[]), bad, "{own:?} {other:?}");
        assert_eq!(rows(&seen, &LOGIN), bad, "{own:?} {other:?}");
        let table = list(&seen, &[softhsm_option()]).run().printed();
        assert!(table.contains(": certificate of another key\n"), "{table}");
    }
}

/// By a library that hangs, say.
#[test]
fn a_library_that_another_request_has_is_busy_and_its_token_not_missing() {
    needs_isolation!();
    let store = token_with_pair(Kind::P256);
    list(&store, &[softhsm_option()]).run().printed();
    let _held = store.hold_libraries();
    let document = list(&store, &["--json"]).run().document();
    let libraries = document["libraries"].as_array().unwrap();
    let is_softhsm = |path: &Value| path.as_str().unwrap().ends_with("/libsofthsm2.so");
    let error = &libraries.iter().find(|it| is_softhsm(&it["pathLib"])).unwrap()["error"];
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("in use by another request (process "), "{message}");
    assert!(error["help"].as_str().unwrap().contains("end the other request"), "{error}");
    assert_eq!(error["exitCode"], 5);
    for command in [&["enroll", "--user=jane", "--csr=-"][..], &["kubeconfig"]] {
        let told = ["error: the token is in use by another request", "end the other request"];
        store.command(command).run().fails(5, &told);
    }
}

/// Others use the token while somebody looks for the PIN.
#[test]
fn nobody_waits_for_the_prompt_of_another_command() {
    let store = token_with_pair(Kind::P256);
    let token = [softhsm_option(), "--token-label=test token"];
    for command in [
        &["check", "--object-id=1"][..],
        &["list", "--login"],
        &["enroll", "--user=jane", "--csr=-"],
        &["credential", "--as=jwt", "--output=raw", "--issuer=https://a.example", "--object-id=1"],
    ] {
        let mut asked = store.command(command).arguments(&token).at_terminal();
        asked.expect_prompt();
        let signed = store.sign(&Options::hash(Hash::Sha256), &sample(32)).run();
        assert_signed(&signed);
        asked.type_line(PIN).finish().0.succeeded();
    }
}

#[test]
fn a_pin_is_asked_of_a_person_for_each_token() {
    let store = store();
    let mut terminal = list(&store, &[softhsm_option(), "--login", "--json"]).at_terminal();
    for _ in &store.tokens {
        terminal.expect_prompt().type_line(PIN);
    }
    let (outcome, _) = terminal.finish();
    let keys = &tokens_of(&outcome.json())[1]["keys"];
    assert_eq!(keys.as_array().unwrap().len(), 5);
}

/// Only a search without a handle is at its end (PKCS#11, section 5.8).
#[test]
fn a_token_may_show_fewer_objects_at_once_than_it_is_asked_for() {
    let store = token_with((1..=20).map(|id| Object::public_key(key(Kind::P256), &[id])));
    let outcome = list(&store, &[&store.faulty_module(), "--json"])
        .suffering(&store, "C_FindObjects#2:count=-1")
        .run();
    let keys = tokens_of(&outcome.json())[0]["keys"].clone();
    // The module has kept one to itself.
    assert_eq!(keys.as_array().unwrap().len(), 19, "{keys}");
}

#[test]
fn libraries_are_found_and_one_that_fails_is_a_line() {
    let store = store();
    store.faulty(store.configuration());
    let registry = store.path(".config/pkcs11/modules");
    fs::create_dir_all(&registry).unwrap();
    let register = |name: &str, module: &str| {
        fs::write(registry.join(name), format!("module: {module}\n")).unwrap();
    };
    register("crashing.module", store.path("libfault_module.so").to_str().unwrap());
    register("missing.module", "/nowhere/missing.so");
    register("no-library.module", "/etc/passwd");
    let told = format!("{}\nx-init-reserved: a=b", softhsm_library().display());
    register("told.module", &told);
    let outcome = list(&store, &[]).suffering(&store, "C_GetSlotList:crash=segv").run();
    let shown = outcome.silently().printed();
    assert_contains(
        &shown,
        &[
            "crashes the process that loads it",
            "PKCS#11 library /nowhere/missing.so does not load",
            "PKCS#11 library /etc/passwd does not load",
            // SoftHSM gets what p11-kit would pass, and needs nothing.
            "does not initialise: C_Initialize: CKR_ARGUMENTS_BAD\n  help: set initArgs (--init-args) to",
            // SoftHSM itself, which p11-kit has registered or which stands in its usual place.
            "softhsm/libsofthsm2.so\n",
            "tokenLabel \"prod\"",
            "expires 20",
        ],
    );
    assert_eq!(shown.matches("tokenLabel \"prod\"").count(), 1, "{shown}");
}

/// What another library lacks is no fault of the token's, nor is it what the help is about.
#[test]
fn a_token_without_a_key_is_listed_well_beside_a_library_that_fails() {
    let store = Store::new([blueprint("new", [])]);
    let registry = store.path(".config/pkcs11/modules");
    fs::create_dir_all(&registry).unwrap();
    fs::write(registry.join("z-missing.module"), "module: /nowhere/missing.so\n").unwrap();
    let shown = list(&store, &[]).run().told(0);
    assert!(shown.contains("/nowhere/missing.so does not load"), "{shown}");
    let mut lines = shown.lines().skip_while(|line| !line.contains("tokenLabel \"new\""));
    assert!(lines.nth(1).unwrap().starts_with("  help: make one, "), "{shown}");
}

/// What is on the token, the options and the fault, the exit code and what is said.
#[test]
fn what_is_missing_or_wrong_is_told_with_the_way_out() {
    let of = |objects: Vec<Object>| token_with(objects);
    let missing = ["--module=/nowhere/missing.so"];
    let login = ["--login", "--pin-source=env:TOKEN_PIN"];
    let mut parameters = rcgen::CertificateParams::default();
    parameters.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let pem = fs::read_to_string(key(Kind::P256).private_pem()).unwrap();
    let authority = rcgen::KeyPair::from_pem(&pem).unwrap();
    let der = parameters.self_signed(&authority).unwrap().der().to_vec();
    let cas = [&[1][..], &[2]].map(|id| Object::issued(der.clone(), id));
    // Kubernetes takes the user's name from the CN.
    let nameless = Object::issued(issued(Kind::P256, "/O=dev", 100, "clientAuth"), &[1]);
    let nameless = [Object::key(key(Kind::P256), &[1]), nameless];
    let new = Store::new([blueprint("it's new", [])]);
    let made = "--token-label='it'\\''s new' --token-serial=";
    let enroll =
        "help: make one, and have a cluster issue its certificate: `pkcs11-external-signer enroll";
    let none = Store::new([]);
    let initialise =
        "is not initialised\n  help: initialise it, which erases what is on it: pkcs11-tool";
    for (store, arguments, code, says) in [
        (&none, &[][..], 0, &[initialise][..]),
        (&new, &[], 0, &[enroll, made, "docs/enroll.md"]),
        (&of(vec![]), &login, 0, &[": no visible key or certificate\n  help: make one, "]),
        // As on a token that holds the cluster's CA and nothing else.
        (&of(cas.to_vec()), &[], 0, &[": no visible key, and no certificate but those of CAs\n"]),
        (&of(nameless.to_vec()), &[], 0, &[": no user (CN)\n"]),
        (&of(nameless.to_vec()), &["--json"], 0, &["\"no-user\"", "\"usable\": false"]),
        (&new, &missing, 4, &["/nowhere/missing.so does not load"]),
        (&new, &[missing[0], "--json"], 4, &["\"exitCode\": 4"]),
        (&new, &["--module=", "--slot-id=x"], 3, &["pathLib is empty"]),
        (&new, &["--token-label=other"], 5, &["was found\nhelp: insert the token"]),
        (&new, &["--uri", "pkcs11:serial=0"], 5, &["was found\nhelp: insert the token"]),
    ] {
        let outcome = match arguments.iter().any(|it| it.starts_with("--module")) {
            true => list(store, arguments).run(),
            false => list(store, &[softhsm_option()]).arguments(arguments).run(),
        };
        assert_eq!(outcome.status.code(), Some(code), "{outcome:?}");
        let told = outcome.shown() + &outcome.stderr;
        assert_contains(&told, says);
        assert!(code != 5 || !told.contains("objectId"), "{told}");
    }
    // By other commands, too. A token that has a name can't be the blank one.
    for (name, help) in [("--slot-id=0", "initialise it"), ("--token-label=x", "insert the token")]
    {
        let check = ["check", softhsm_option(), name, "--object-id=1"];
        let checked = Invocation::new(none.directory.path()).arguments(&check).run().told(5);
        assert_contains(&checked, &[&format!("help: {help}, ")]);
    }
    let written =
        Invocation::new(new.directory.path()).arguments(&["kubeconfig", softhsm_option()]).run();
    written.fails(6, &["\"it's new\" shows no key and no certificate", made]);
    assert!(!written.stderr.contains("insert the token"), "{written:?}");
}

#[test]
fn the_state_of_a_pin_stands_with_its_token() {
    let store = token_with_pair(Kind::P256);
    let module = store.faulty_module();
    for (flag, words, usable) in [
        ("CKF_USER_PIN_LOCKED", ": PIN locked", false),
        ("CKF_USER_PIN_FINAL_TRY", ": one PIN try left", true),
        ("CKF_USER_PIN_COUNT_LOW", ": a wrong PIN was counted", true),
        ("CKF_USER_PIN_TO_BE_CHANGED", ": PIN must be changed", false),
    ] {
        let faults = format!("C_GetTokenInfo:set={flag}");
        let list = |format: &[&str]| {
            list(&store, &[&module]).arguments(format).suffering(&store, &faults).run()
        };
        let table = list(&[]).printed();
        assert!(table.contains(words), "{table}");
        assert_eq!(tokens_of(&list(&["--json"]).json())[0]["keys"][0]["usable"], usable, "{flag}");
    }
}

#[test]
fn what_goes_to_a_terminal_has_colour() {
    let store = token_with([Object::key(key(Kind::P256), &[1]).public()]);
    let script = format!("\"$SIGNER\" list {} > /dev/tty", softhsm_option());
    for (variable, is_coloured) in [("OTHER", true), ("NO_COLOR", false)] {
        let invocation = store.command(&[]).within("sh", &script).variable(variable, "1");
        let (_, screen) = invocation.at_terminal().finish();
        assert_eq!(screen.contains("\x1b[31m"), is_coloured, "{screen:?}");
    }
    assert!(!list(&store, &[softhsm_option()]).run().printed().contains('\x1b'));
}

/// What the screen has no room for is left to -v, and to whatever reads a pipe.
#[test]
fn at_a_terminal_keys_are_rows_of_a_table_and_all_is_shown_if_asked_for() {
    let store = store();
    let screen = |verbose: &str| {
        let list = format!("\"$SIGNER\" {verbose} list {}", softhsm_option());
        let script = format!("{list} --token-label=prod > /dev/tty");
        let invocation = store.command(&[]).within("sh", &script).variable("NO_COLOR", "1");
        invocation.at_terminal().finish().1
    };
    let table = screen("");
    assert_contains(
        &table,
        &["TOKEN  KEY", "prod   2 ", "dev, \"a,b\"", "expired 20", "no certificate"],
    );
    assert!(!table.contains("X509SHA256=") && !table.contains("tokenSerial"), "{table}");
    assert!(table.lines().all(|line| line.chars().count() <= 80), "{table}");
    assert_contains(&screen("-v"), &["tokenSerial", "X509SHA256="]);
}

/// No library of this machine shows the tokens of a registration that leads to a command.
#[test]
fn a_registration_that_leads_elsewhere_is_told_with_what_shows_its_tokens() {
    needs_isolation!();
    let store = store();
    let registry = store.path(".config/pkcs11/modules");
    fs::create_dir_all(&registry).unwrap();
    fs::write(registry.join("hsm.module"), "remote: |ssh hsm-host p11-kit remote /l.so\n").unwrap();
    let outcome = list(&store, &[]).run();
    let told = ["hsm.module", "p11-kit shows its tokens: `pkcs11-external-signer list --module="];
    outcome.says(&told);
    assert_contains(&outcome.shown(), &["tokenLabel \"prod\""]);
}

#[test]
fn a_key_is_advised_to_be_made_where_it_can_be_written() {
    let store = Store::new([blueprint("new", [])]);
    let listed = |faults: &str| {
        list(&store, &[&store.faulty_module()]).suffering(&store, faults).run().printed()
    };
    let enroll = "help: make one, and have a cluster issue its certificate";
    assert!(listed("").contains(enroll));
    let told = listed("C_GetTokenInfo:set=CKF_WRITE_PROTECTED");
    assert!(!told.contains(enroll), "{told}");
    assert_contains(
        &told,
        &["help: insert another token", "`pkcs11-external-signer list --module"],
    );
}
