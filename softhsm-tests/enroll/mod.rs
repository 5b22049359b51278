//! `enroll`: from a bare token to a certificate that openssl has issued, and back onto it.

mod interrupted;

use crypto::certificate::CertificationRequest;
use crypto::verify::is_signed_by_its_key;
use cryptoki::mechanism::MechanismType;

use crate::fixture::*;
use crate::run::trouble::below_an_intermediate;

/// `enroll` on the store's first token.
pub(crate) fn enroll(store: &Store, arguments: &[&str]) -> Invocation {
    enroll_through(store, softhsm_option(), arguments)
}

/// The same with the PIN from elsewhere.
fn enroll_with(store: &Store, pin_source: &str, arguments: &[&str]) -> Invocation {
    enroll_from(store, softhsm_option(), pin_source, arguments)
}

/// The same through another library.
pub(crate) fn enroll_through(store: &Store, module: &str, arguments: &[&str]) -> Invocation {
    enroll_from(store, module, "env:TOKEN_PIN", arguments)
}

fn enroll_from(store: &Store, module: &str, pin_source: &str, arguments: &[&str]) -> Invocation {
    let source = format!("--pin-source={pin_source}");
    store.with_pin(&["enroll", module, &source, &slot_option(store)]).arguments(arguments)
}

fn slot_option(store: &Store) -> String {
    format!("--slot-id={}", store.tokens[0].slot)
}

pub(crate) fn at(store: &Store, name: &str) -> String {
    store.path(name).to_str().unwrap().to_owned()
}

/// The subject of a request whose signature openssl accepts.
pub(crate) fn subject_of(request: &str) -> String {
    let arguments = ["req", "-verify", "-in", request, "-noout", "-subject", "-nameopt", "oneline"];
    let told = printed(tool("openssl", "openssl").args(arguments));
    told.lines().last().unwrap_or_default().to_owned()
}

/// What a CA does with a request.
pub(crate) fn issue(request: &str, days: i32, usage: &str) -> String {
    issue_by(authority(), request, days, usage)
}

/// What an intermediate CA does with it: its own certificate follows the one that it issues.
pub(crate) fn issue_with_chain(request: &str) -> String {
    let workshop = tempfile::tempdir().unwrap();
    let (file, intermediate_key) = (workshop.path().join("ca"), key(Kind::P384).private_pem());
    let is_ca = "basicConstraints=critical,CA:TRUE";
    let [intermediate, _] = crate::fixture::issue(
        &file,
        &intermediate_key,
        "/CN=intermediate",
        is_ca,
        30,
        &authority(),
    );
    let own = issue_by([intermediate.clone(), intermediate_key], request, 30, "clientAuth");
    let chain = [&own, intermediate.to_str().unwrap()].map(|it| fs::read(it).unwrap());
    fs::write(&own, chain.concat()).unwrap();
    own
}

fn issue_by([issuer, issuer_key]: [PathBuf; 2], request: &str, days: i32, usage: &str) -> String {
    let usage = format!("extendedKeyUsage={usage}\n");
    let certificate = certify(request.as_ref(), [issuer.as_path(), &issuer_key], days, &usage, &[]);
    certificate.into_os_string().into_string().unwrap()
}

/// What `list --login` shows of the first token.
pub(crate) fn keys_of(store: &Store) -> Vec<Value> {
    let list = ["list", "--json", "--login", "--pin-source=env:TOKEN_PIN", softhsm_option()];
    store.with_pin(&list).argument(&slot_option(store)).run().keys()
}

/// How many private keys, public keys and certificates the first token has, as another program sees it.
pub(crate) fn objects_of(store: &Store) -> [usize; 3] {
    let listed = pkcs11_tool(store, &["--list-objects"]);
    ["Private Key", "Public Key", "Certificate"]
        .map(|class| listed.matches(&format!("{class} Object")).count())
}

/// The certificate that a client is given for objectId 1.
#[track_caller]
fn certificate_of(store: &Store) -> Vec<u8> {
    store.ask(&certificate_request(&store.configuration_with_pin_source())).run().certificate()
}

/// A signature with the key that has this id.
#[track_caller]
pub(crate) fn assert_signs(store: &Store, id: &str) {
    let check = ["check", "--pin-source=env:TOKEN_PIN", "--object-id", id, softhsm_option()];
    let checked = store.with_pin(&check).argument(&slot_option(store)).run().told(0);
    assert!(checked.contains("signed and verified"), "{checked}");
}

#[test]
fn a_bare_token_gets_a_key_and_its_certificate_in_two_calls() {
    let store = token_with([]);
    let csr = at(&store, "jane.csr");
    let request = ["--user=jane", "--group=dev", "--group=ops", "--csr", &csr];
    let made = enroll(&store, &request).run();
    let text = made.silently().printed();
    let made_key = step_of(&text, "key");
    assert!(made_key.starts_with("ECDSA P-256, made on token \"test token\" ("), "{text}");
    assert!(made_key.ends_with("), objectId 1, label \"jane\""), "{text}");
    let asked = format!("in {csr}, for user \"jane\", groups \"dev\", \"ops\"");
    assert_eq!(step_of(&text, "request"), asked);
    assert_eq!(subject_of(&csr), "subject=O = dev, O = ops, CN = jane");
    let fingerprint = keys_of(&store)[0]["fingerprint"].as_str().unwrap().to_owned();
    let shown = text.lines().find_map(|line| line.trim().strip_prefix("SHA-256 "));
    assert_eq!(shown.map(|digits| digits.replace(' ', "")), Some(fingerprint));

    // The same call again: the same key.
    let again = enroll(&store, &request).run().silently().printed();
    assert!(step_of(&again, "key").starts_with("ECDSA P-256, on token "), "{again}");
    assert_eq!(keys_of(&store).len(), 1);

    let certificate = issue(&csr, 30, "clientAuth");
    let install = ["--certificate", certificate.as_str()];
    let text = enroll(&store, &install).run().silently().printed();
    let installed = step_of(&text, "certificate");
    assert!(installed.starts_with("user \"jane\", groups \"dev\", \"ops\", expires 20"), "{text}");
    assert!(installed.ends_with(", beside the key"), "{text}");
    assert_signs(&store, "1");

    // And nothing is left to do.
    enroll(&store, &install).run().silently().printed();
    assert_eq!(objects_of(&store), [1, 1, 1]);
    let outcome = enroll(&store, &request).run();
    outcome.fails(6, &["objectId \"1\" has a certificate for user \"jane\""]);
    assert_eq!(keys_of(&store).len(), 1);
}

#[test]
fn each_kind_of_key_is_made_and_signs_its_request_and_for_tls() {
    let store = token_with([]);
    for (number, kind) in
        (1..).zip(["ec-p256", "ec-p384", "ed25519", "rsa-2048", "rsa-3072", "rsa-4096"])
    {
        let csr = at(&store, &format!("{kind}.csr"));
        let user = format!("--user={kind}");
        enroll(&store, &[&user, "--key", kind, "--csr", &csr]).run().silently().printed();
        assert_eq!(subject_of(&csr), format!("subject=CN = {kind}"));
        let certificate = issue(&csr, 30, "clientAuth");
        enroll(&store, &["--certificate", &certificate]).run().silently().printed();
        assert_signs(&store, &number.to_string());
    }
}

#[test]
fn the_request_alone_is_printed_for_a_pipe() {
    let store = token_with([]);
    let text = enroll(&store, &["--user=jane", "--csr", "-"]).run().silently().printed();
    assert!(text.starts_with("-----BEGIN CERTIFICATE REQUEST-----\n"), "{text}");
    let csr = at(&store, "jane.csr");
    fs::write(&csr, text).unwrap();
    assert_eq!(subject_of(&csr), "subject=CN = jane");
}

#[test]
fn an_existing_key_is_taken_up_and_no_object_is_written_over() {
    let p256 = key(Kind::P256);
    let store = token_with([
        Object::key(p256, &[2]).labelled("old"),
        Object::public_key(p256, &[2]).labelled("old"),
        Object::certificate(key(Kind::P384), &[3]),
        Object::public_key(key(Kind::P521), &[4]),
        Object::key(key(Kind::Rsa(2048)), &[5]).not_for_signing(),
    ]);
    let csr = at(&store, "jane.csr");
    let with =
        |options: &[&str]| enroll(&store, &["--user=jane", "--csr", &csr]).arguments(options).run();
    for (id, reason) in
        [("3", "there is no key"), ("4", "there is no private key"), ("5", "CKA_SIGN")]
    {
        with(&["--object-id", id]).fails(6, &["can't be taken up", reason]);
    }
    let other = with(&["--object-id=2", "--key=rsa-2048"]);
    other.fails(6, &["objectId \"2\" is ECDSA P-256, not RSA-2048"]);
    assert_eq!(keys_of(&store).len(), 4);

    let printed = with(&["--object-id=2"]).printed();
    let taken_up = step_of(&printed, "key");
    assert!(taken_up.contains(", on token ") && taken_up.ends_with("label \"old\""), "{printed}");
    let certificate = issue(&csr, 30, "clientAuth");
    // The label is another than the name.
    let install = ["--certificate", certificate.as_str()];
    enroll(&store, &install).run().fails(6, &["is for user \"jane\", not for \"old\""]);
    enroll(&store, &install).argument("--user=jane").run().silently().printed();
    assert_signs(&store, "2");
    // Another key gets the first free id.
    let printed = enroll(&store, &["--user=joe", "--csr", &at(&store, "joe.csr")]).run().printed();
    let made = step_of(&printed, "key");
    assert!(
        made.contains(", made on token ") && made.ends_with("objectId 1, label \"joe\""),
        "{made}"
    );
}

#[test]
fn what_can_be_refused_is_refused_before_a_key_is_made() {
    let store = token_with([]);
    let csr = at(&store, "jane.csr");
    let other = at(&store, "other");
    fs::write(&other, "a file of mine\n").unwrap();
    let nowhere = at(&store, "nowhere/jane.csr");
    for (options, code, told) in [
        (&["--user=", "--csr", &csr][..], 2, "the user's name can't be used: it is empty"),
        (&["--user=ja\u{7}ne", "--csr", &csr], 2, "it has control characters"),
        (&["--user=jane", "--group=", "--csr", &csr], 2, "the group's name"),
        (&["--user=jane", "--group=system:masters", "--csr", &csr], 2, "the cluster's own"),
        (&["--csr", &csr], 2, "--csr needs --user"),
        (&["--user=jane", "--csr", &nowhere], 6, "its directory is not there"),
        (&["--user=jane", "--csr", &other], 6, "is no certificate request"),
        (&["--certificate", &nowhere], 6, "No such file"),
        (&["--certificate", &other], 6, "no CERTIFICATE in PEM"),
    ] {
        enroll(&store, options).run().fails(code, &[told]);
    }
    let unknown = enroll(&store, &["--user=jane", "--csr", &csr, "--key=dsa"]).run();
    assert_eq!(unknown.status.code(), Some(2));
    assert!(unknown.stderr.contains("[possible values: ec-p256, "), "{unknown:?}");
    assert!(keys_of(&store).is_empty() && !Path::new(&csr).exists());
    assert_eq!(fs::read_to_string(&other).unwrap(), "a file of mine\n");
}

#[test]
fn a_token_that_cannot_make_such_a_key_says_so() {
    use cryptoki::mechanism::MechanismType;
    let store = token_withholding(&[MechanismType::ECC_KEY_PAIR_GEN], Kind::P256);
    let csr = at(&store, "jane.csr");
    let outcome = enroll(&store, &["--user=jane", "--csr", &csr]).run();
    outcome.fails(6, &["makes no ec-p256 key: it offers no CKM_EC_KEY_PAIR_GEN", "--key"]);
    assert_eq!(keys_of(&store).len(), 1);
    enroll(&store, &["--user=jane", "--csr", &csr, "--key=rsa-2048"]).run().silently().printed();
    // A key that could open nothing.
    let store = token_withholding(&[MechanismType::ECDH1_DERIVE], Kind::P256);
    enroll(&store, &["--user=node", "--csr", &csr, "--for=unsealing"])
        .run()
        .fails(6, &["makes no ec-p256 key: it offers no CKM_ECDH1_DERIVE", "--key"]);
    assert_eq!(keys_of(&store).len(), 1);
}

#[test]
fn a_certificate_that_is_not_the_one_asked_for_is_not_written() {
    let store = token_with([]);
    let csr = at(&store, "jane.csr");
    enroll(&store, &["--user=jane", "--csr", &csr]).run().silently();
    let foreign = key(Kind::P384).certificate_pem();
    let foreign = foreign.to_str().unwrap();
    let install =
        |file: &str, more: &[&str]| enroll(&store, &["--certificate", file]).arguments(more).run();
    install(foreign, &[]).fails(6, &["no private key with the public key of the certificate in"]);
    let good = issue(&csr, 30, "clientAuth");
    install(&good, &["--user=joe"]).fails(6, &["is for user \"jane\", not for \"joe\""]);
    let server = issue(&csr, 30, "serverAuth");
    install(&server, &[]).fails(6, &["does not allow TLS clients (clientAuth)"]);
    let expired = issue(&csr, -1, "clientAuth");
    install(&expired, &[]).fails(6, &["it expired"]);
    let [ca, _]: [PathBuf; 2] = authority();
    install(ca.to_str().unwrap(), &[]).fails(6, &["the certificate of a CA"]);
    assert!(keys_of(&store)[0]["certificate"].is_null());
}

#[test]
fn a_certificate_of_a_signer_whose_clock_is_ahead_is_waited_for() {
    let pair = key(Kind::P384);
    let objects = [Object::key(pair, &[1]), Object::public_key(pair, &[1])];
    let store = token_with(objects.map(|it| it.labelled("jane")));
    let [file, later] = [("soon.der", 3), ("later.der", 600)].map(|(name, seconds)| {
        let left = time::Duration::seconds(seconds);
        let file = at(&store, name);
        fs::write(&file, beginning(Kind::P384, "jane", left, authority())).unwrap();
        file
    });
    let refused = enroll(&store, &["--certificate", &later]).run();
    refused.fails(6, &["is valid from 20", " on, and here it is 20", "run the same command again"]);
    let written = enroll(&store, &["--certificate", &file]).run();
    assert!(written.printed().contains("beside the key"), "{written:?}");
    assert_eq!(keys_of(&store)[0]["certificate"]["user"], "jane");
}

#[test]
fn a_valid_certificate_is_replaced_after_a_typed_yes_alone() {
    let store = token_with([]);
    let csr = at(&store, "jane.csr");
    enroll(&store, &["--user=jane", "--csr", &csr]).run().silently();
    let first = issue(&csr, 30, "clientAuth");
    enroll(&store, &["--certificate", &first]).run().silently();
    let serial = || keys_of(&store)[0]["certificate"]["serialNumber"].as_str().unwrap().to_owned();
    let old = serial();
    let second = issue(&csr, 60, "clientAuth");
    let install = ["--certificate", second.as_str()];
    enroll(&store, &install).run().fails(6, &["has another certificate already", "--replace"]);
    let replace = || enroll(&store, &install).argument("--replace");
    replace().run().fails(7, &["no terminal", "objectId \"1\""]);

    let mut terminal = replace().at_terminal();
    terminal.expect("with objectId \"1\" on token \"test token\"");
    terminal.expect("Type yes").type_line("y").finish().0.fails(7, &["was not confirmed"]);
    assert_eq!(serial(), old);

    let outcome = replace().at_terminal().expect("Type yes").type_line("yes").finish().0;
    let text = outcome.silently().printed();
    assert_eq!(step_of(&text, "removed"), format!("the certificate with serial number {old}"));
    assert_eq!(keys_of(&store).len(), 1);
    assert_ne!(serial(), old);
    assert_signs(&store, "1");
}

#[test]
fn of_several_tokens_one_is_named_or_picked() {
    let store = Store::new([blueprint("first", []), blueprint("second", [])]);
    let csr = at(&store, "jane.csr");
    let request =
        ["enroll", softhsm_option(), "--pin-source=env:TOKEN_PIN", "--user=jane", "--csr", &csr];
    let enroll = || store.with_pin(&request);
    let outcome = enroll().run();
    let told = [
        "2 tokens match",
        "--token-label=first --token-serial=",
        "--token-label=second --token-serial=",
    ];
    outcome.fails(5, &told);
    // With a library each, where none is named.
    let outcome = store.command(&["enroll", "--user=jane", "--csr=-"]).run();
    let first = "libsofthsm2.so --token-label=first";
    outcome.fails(5, &["2 tokens match", "--module=/", first]);
    let mut terminal = enroll().at_terminal();
    terminal.expect("Which token?").expect("1 to 2").type_line("2");
    let (outcome, screen) = terminal.finish();
    let is_second = |line: &&str| line.trim_start().starts_with('2');
    let line = screen.lines().find(is_second).unwrap();
    let label = ["first", "second"].into_iter().find(|it| line.contains(it));
    let made = format!("made on token \"{}\"", label.unwrap());
    let picked = outcome.printed();
    assert!(picked.contains(&made), "{picked}\n{screen}");
    let outcome = enroll().argument("--token-label=third").run();
    outcome.fails(5, &["no token with tokenLabel \"third\""]);
}

#[test]
fn the_token_that_shows_the_certificates_key_is_meant() {
    let store = Store::new(["first", "second", "third"].map(|name| blueprint(name, [])));
    let run = |arguments: &[&str]| {
        store.with_pin(&["enroll", "--pin-source=env:TOKEN_PIN"]).arguments(arguments).run()
    };
    let csr = at(&store, "jane.csr");
    run(&["--token-label=second", "--user=jane", "--csr", &csr]).printed();
    let certificate = issue(&csr, 30, "clientAuth");
    // By the public key before it is written, and by the certificate afterwards.
    for _ in 0..2 {
        let installed = run(&["--certificate", &certificate]).silently().printed();
        assert!(step_of(&installed, "certificate").starts_with("user \"jane\""), "{installed}");
    }
    let other = key(Kind::P384).certificate_pem();
    let other = run(&["--certificate", other.to_str().unwrap()]);
    other.fails(5, &["3 tokens match"]);
}

#[test]
fn what_the_token_does_not_confirm_of_the_key_is_told() {
    let store = token_with([]);
    let csr = at(&store, "jane.csr");
    // The attributes that are read of a new key, from the first one on.
    let zero = "C_GetAttributeValue:zero";
    let outcome = enroll_through(&store, &store.faulty_module(), &["--user=jane", "--csr", &csr])
        .suffering(&store, zero)
        .run();
    // No public key can be read of one that says nothing; the key is there all the same.
    assert_eq!(outcome.status.code(), Some(6), "{outcome:?}");
    assert_eq!(keys_of(&store).len(), 1);
    enroll(&store, &["--user=jane", "--csr", &csr]).run().silently().printed();
    assert_eq!(keys_of(&store).len(), 1);
}

#[test]
fn a_token_that_takes_no_certificate_leaves_it_in_a_file() {
    let store = token_with([]);
    let csr = at(&store, "jane.csr");
    enroll(&store, &["--user=jane", "--csr", &csr]).run().silently();
    let certificate = issue(&csr, 30, "clientAuth");
    let kept = at(&store, "kept.pem");
    let install = ["--certificate", certificate.as_str(), "--certificate-file", &kept];
    // Whatever the token calls it, as OpenSC does of an OpenPGP card, and if it is full.
    for (code, told) in [
        ("0x54", "takes no certificate: C_CreateObject: CKR_FUNCTION_NOT_SUPPORTED"),
        ("0xa2", "takes no certificate: C_CreateObject: CKR_PIN_LEN_RANGE"),
        ("0x31", "has no room left: C_CreateObject: CKR_DEVICE_MEMORY"),
    ] {
        let outcome = enroll_through(&store, &store.faulty_module(), &install)
            .suffering(&store, &format!("C_CreateObject:return={code}"))
            .run();
        let text = outcome.printed();
        assert!(text.ends_with(&format!(", in {kept}\n")), "{text}");
        assert!(outcome.stderr.contains(told), "{outcome:?}");
        let [one, other] = [&kept, &certificate].map(|path| fs::read_to_string(path).unwrap());
        assert_eq!(one, other);
        fs::remove_file(&kept).unwrap();
    }
}

#[test]
fn a_token_that_is_not_initialised_or_read_only_is_told_with_its_library() {
    let store = Store::new([]);
    let library = softhsm_library().canonicalize().unwrap();
    let library = library.display();
    let module = format!("--module={library}");
    let request = ["enroll", &module, "--user=jane", "--csr=-"];
    let enroll = Invocation::new(store.directory.path()).arguments(&request);
    enroll.run().fails(
        5,
        &[
            "not initialised",
            "help: initialise it",
            &format!("pkcs11-tool --module {library} --slot 0 --init-token"),
        ],
    );
    // No token but a YubiKey is meant where an option is for those.
    for option in ["--slot=9a", "--touch-policy=always"] {
        let outcome = Invocation::new(store.directory.path()).arguments(&request);
        let outcome = outcome.argument(option).run();
        let name = option.split('=').next().unwrap();
        outcome.fails(5, &[&format!("no YubiKey was found, and {name} is for YubiKeys")]);
        assert!(!outcome.stderr.contains("--init-token"), "{outcome:?}");
    }
    let store = token_with([]);
    let outcome = enroll_through(&store, &store.faulty_module(), &["--user=jane", "--csr=-"])
        .suffering(&store, "C_OpenSession:return=0xe2")
        .run();
    let told = "can't be written to: C_OpenSession: CKR_TOKEN_WRITE_PROTECTED";
    outcome.fails(5, &["token \"test token\"", told, "name another token"]);
    // NSS says so later, and an OpenPGP card behind OpenSC wants its administrator.
    for (code, told, help) in [
        ("0xb5", "CKR_SESSION_READ_ONLY", "--init-args, without flags=readOnly"),
        ("0x101", "CKR_USER_NOT_LOGGED_IN", "its own tool: docs/tokens.md#a-key-and-its"),
    ] {
        let fault = format!("C_GenerateKeyPair:return={code}");
        let outcome = enroll_through(&store, &store.faulty_module(), &["--user=jane", "--csr=-"])
            .suffering(&store, &fault)
            .run();
        outcome.fails(6, &[told, help]);
    }
}

/// A token with jane's key, the CA's answer in a file: her certificate, an intermediate and the root.
fn with_chain() -> (Store, String) {
    let p256 = key(Kind::P256);
    let store = token_with([
        Object::key(p256, &[1]).labelled("jane"),
        Object::public_key(p256, &[1]).labelled("jane"),
    ]);
    let [[own, _], [intermediate, _]] = below_an_intermediate();
    let [root, _] = cluster().authority();
    let root = fs::read(root).unwrap();
    let file = at(&store, "chain.pem");
    fs::write(&file, [own, intermediate, root].concat()).unwrap();
    (store, file)
}

#[test]
fn an_intermediate_certificate_is_written_once_and_reaches_the_server() {
    let (store, chain) = with_chain();
    let install = ["--certificate", chain.as_str()];
    let text = enroll(&store, &install).run().silently().printed();
    assert_eq!(step_of(&text, "certificate"), "of the CA CN=intermediate, on the token, too");
    enroll(&store, &install).run().silently().printed();
    assert_eq!(objects_of(&store), [1, 1, 2]);
    let configuration = store.configuration_with_pin_source();
    let known = cluster().run(&store, &configuration, &["kubectl", "auth", "whoami"]).run();
    assert!(known.printed().contains("jane"), "{known:?}");
}

#[test]
fn a_token_that_takes_no_ca_certificate_leaves_the_chain_in_a_file() {
    let (store, chain) = with_chain();
    let kept = at(&store, "kept.pem");
    let install = ["--certificate", &chain, "--certificate-file", &kept];
    // CKR_ATTRIBUTE_VALUE_INVALID
    let outcome = enroll_through(&store, &store.faulty_module(), &install)
        .suffering(&store, "C_CreateObject#1:return=0x13")
        .run();
    let text = outcome.printed();
    assert!(text.ends_with(&format!(", in {kept}\n")), "{text}");
    assert!(outcome.stderr.contains("has no room for the certificates of CAs"), "{outcome:?}");
    assert_eq!(objects_of(&store), [1, 1, 1]);
    let with_file = store.configuration_with_pin_source().with("certificateFile", &kept);
    let known = cluster().run(&store, &with_file, &["kubectl", "auth", "whoami"]).run();
    assert!(known.printed().contains("jane"), "{known:?}");
}

/// The one that is listed first, as it is printed.
#[test]
fn one_of_several_tokens_is_named_by_the_options_that_are_printed() {
    let store = Store::new([blueprint("it's one", []), blueprint("other", [])]);
    let enroll =
        ["enroll", softhsm_option(), "--user=jane", "--csr=-", "--pin-source=env:TOKEN_PIN"];
    let refused = store.with_pin(&enroll).run();
    refused.fails(5, &["2 tokens match"]);
    for options in told_lines(&refused.stderr, "name one with these options").lines() {
        let options = options.replace(&format!("{} ", softhsm_option()), "");
        let script = format!("\"$SIGNER\" {} {options}", enroll.join(" "));
        let typed = store.with_pin(&[]).within("sh", &script).run().succeeded();
        assert!(typed.shown().starts_with("-----BEGIN CERTIFICATE REQUEST-----"), "{typed:?}");
    }
}

/// A request is usually signed by PKCS #1 v1.5, which this key may not make.
#[test]
fn a_key_for_rsa_pss_alone_signs_its_request_so() {
    let rsa = key(Kind::Rsa(2048));
    let only_pss = [MechanismType::RSA_PKCS_PSS];
    let store = token_with([
        Object::key(rsa, &[1]).labelled("jane").allowing(&only_pss),
        Object::public_key(rsa, &[1]).labelled("jane"),
    ]);
    let csr = at(&store, "jane.csr");
    enroll(&store, &["--user=jane", "--csr", &csr]).run().silently().printed();
    assert_eq!(subject_of(&csr), "subject=CN = jane");
    let mut verified = tool("openssl", "openssl");
    verified.args(["req", "-verify", "-noout", "-text", "-in", &csr]);
    assert_contains(
        &printed(&mut verified),
        &["Signature Algorithm: rsassaPss", "Salt Length: 0x20"],
    );
    // As `approve` reads it.
    let request = CertificationRequest::from_pem(&fs::read_to_string(&csr).unwrap()).unwrap();
    assert!(is_signed_by_its_key(&request));
}

/// Some tokens fill certificates up with zeros, with which they are read all the same.
#[test]
fn a_certificate_that_the_token_pads_is_written_once() {
    let store = token_with([
        Object::key(key(Kind::P256), &[1]).labelled("test p256"),
        Object::public_key(key(Kind::P256), &[1]).labelled("test p256"),
    ]);
    let certificate = key(Kind::P256).certificate_pem();
    let install = ["--certificate", certificate.to_str().unwrap()];
    for _ in 0..2 {
        enroll_through(&store, &store.faulty_module(), &install)
            .suffering(&store, "C_GetAttributeValue:pad")
            .run()
            .silently()
            .printed();
    }
    assert_eq!(objects_of(&store), [1, 1, 1]);
}
