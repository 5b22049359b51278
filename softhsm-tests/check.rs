//! `check`: what works, what doesn't and what to do; each ✘ brought about once.

use cryptoki::mechanism::MechanismType;
use rcgen::ExtendedKeyUsagePurpose::ClientAuth;

use crate::fixture::*;
use crate::run::trouble::{Server, server_certificate};

mod client;

/// With the key named by options.
fn check(store: &Store, arguments: &[&str]) -> Invocation {
    check_through(store, softhsm_option(), arguments)
}

fn check_through(store: &Store, library: &str, arguments: &[&str]) -> Invocation {
    let key = ["check", library, "--token-label=test token", "--object-id=1"];
    store.with_pin(&key).arguments(arguments).variable("NO_PIN", WRONG_PIN)
}

/// Through the library that misbehaves and keeps a record.
fn check_faulty(store: &Store, faults: &str, arguments: &[&str]) -> Invocation {
    check_through(store, &store.faulty_module(), arguments).suffering(store, faults)
}

const PIN_SOURCE: &str = "--pin-source=env:TOKEN_PIN";

/// The lines that begin with a mark, with the help below each; the exit code is the one expected.
#[track_caller]
fn told(outcome: &Outcome, code: i32) -> String {
    let text = outcome.told(code);
    assert_eq!(outcome.stderr, "", "{text}");
    let is_told = |line: &str| ["✔ ", "! ", "✘ ", "  "].iter().any(|mark| line.starts_with(mark));
    assert!(text.lines().all(is_told), "{text}");
    text
}

/// Demands that this failed, and that its remedy stands in the next line.
#[track_caller]
fn fails(outcome: &Outcome, code: i32, what: &str, remedy: &str) {
    let text = told(outcome, code);
    let mut lines = text.lines();
    let failed = lines.find(|line| line.starts_with("✘ "));
    let help = lines.next().unwrap_or_default();
    assert!(failed.is_some_and(|line| line.contains(what)), "no {what:?} in\n{text}");
    assert!(help.starts_with("  help: ") && help.contains(remedy), "no {remedy:?} in\n{text}");
}

#[test]
fn the_whole_way_is_told_step_by_step() {
    let certificate = issued(Kind::Rsa(2048), "/O=dev/O=ops/CN=jane", 100, "clientAuth");
    let store = token_with(Object::certified(Kind::Rsa(2048), certificate.clone(), &[1]));
    let text = told(&check(&store, &[PIN_SOURCE]).run(), 0);
    let library = softhsm_library().canonicalize().unwrap();
    let (_, version) = text.split_once("Implementation of PKCS11 ").unwrap();
    let (version, _) = version.split_once('\n').unwrap();
    let token = &store.tokens[0];
    assert_eq!(
        text,
        format!(
            "✔ configuration  from the options\n\
             ✔ library        {} is trusted and loaded: SoftHSM, Implementation of PKCS11 {version}\n\
             ✔ token          \"test token\" (serial {}, slotId {})\n\
             ✔ PIN tries      the token reports no wrong PIN\n\
             ✔ certificate    user \"jane\", groups \"dev\", \"ops\"; RSA-2048, issued by CN=test authority\n\
             ✔ credential-id  {} in the API server's audit log\n\
             ✔ validity       valid for TLS clients; it expires {}\n\
             ✔ public key     the token shows no public key that contradicts the certificate\n\
             ✔ mechanisms     the token offers RSA-PSS with SHA-256, salt 32; RSA-PSS with SHA-384, salt 48; RSA-PSS with SHA-512, salt 64; RSA PKCS #1 v1.5 with SHA-256; RSA PKCS #1 v1.5 with SHA-384; RSA PKCS #1 v1.5 with SHA-512\n\
             ✔ PIN            the PIN from the environment variable TOKEN_PIN was accepted\n\
             ✔ private key    the key with objectId \"1\" (O=dev, O=ops, CN=jane) is there\n\
             ✔ signature      RSA-PSS with SHA-256, salt 32: signed and verified\n\
             ✔ signature      RSA-PSS with SHA-384, salt 48: signed and verified\n\
             ✔ signature      RSA-PSS with SHA-512, salt 64: signed and verified\n\
             ✔ signature      RSA PKCS #1 v1.5 with SHA-256: signed and verified\n\
             ✔ signature      RSA PKCS #1 v1.5 with SHA-384: signed and verified\n\
             ✔ signature      RSA PKCS #1 v1.5 with SHA-512: signed and verified\n\
             ✔ TLS            this key can serve TLS 1.3 and TLS 1.2\n",
            library.display(),
            token.serial,
            token.slot,
            credential_id(&certificate),
            expiry(&certificate)
        )
    );
}

#[test]
fn without_a_login_it_stops_before_the_pin() {
    let store = token_with_pair(Kind::P384);
    let text = told(&check_faulty(&store, "", &["--no-login"]).run(), 0);
    assert!(text.ends_with("the token offers what is needed for TLS 1.3 and TLS 1.2\n"), "{text}");
    assert_eq!(store.calls("C_Login"), [""; 0]);
    // What is hidden is said to be hidden, and not to be missing.
    let hidden = token_with(Object::pair(key(Kind::P384), &[1]).map(Object::private));
    let text = told(&check(&hidden, &["--no-login"]).run(), 0);
    assert!(
        text.contains(
            "! certificate    no certificate with objectId \"1\" can be seen without a login"
        ),
        "{text}"
    );
    let text = told(&check(&hidden, &[PIN_SOURCE]).run(), 0);
    assert!(text.contains("✔ signature      ECDSA P-384: signed and verified"), "{text}");
}

#[test]
fn a_key_that_wants_its_pin_each_time_is_said_to() {
    let store = token_asking_each_time(Kind::P256);
    let text = told(&check(&store, &[PIN_SOURCE]).run(), 0);
    assert!(text.contains("is there; it wants the PIN for every signature"), "{text}");
}

/// As its own remedy says, whatever the configuration does.
#[test]
fn a_person_is_asked_where_that_is_wanted() {
    let store = token_with_pair(Kind::P256);
    for said in [format!("pin-value={WRONG_PIN}"), "pin-source=/none".to_owned()] {
        let uri = format!("--uri=pkcs11:token=test%20token;id=%01?{said}");
        let outcome = store
            .command(&["check", &uri, "--pin-source=prompt"])
            .argument(softhsm_option())
            .at_terminal()
            .finish_with_pin();
        assert!(outcome.told(0).contains("typed at the terminal was accepted"));
    }
}

#[test]
fn a_key_that_wants_no_login_gets_none() {
    let [key_object, certificate] = Object::pair(key(Kind::P256), &[1]);
    let store = token_with([key_object.public(), certificate]);
    for arguments in [&[][..], &[PIN_SOURCE]] {
        let text = told(&check_faulty(&store, "", arguments).run(), 0);
        assert!(text.contains("not needed for this key"), "{text}");
    }
    assert_eq!(store.calls("C_Login"), [""; 0]);
}

/// Exit code, options, what fails, and its remedy. KEY names the first token and its key, PIN a stored one.
const WRONG: &str = r#"
3 | --server                              | the kubeconfig has no current-context             | `kubectl config get-contexts
3 | --context=c                           | has no context "c"                                | `kubectl config get-contexts
3 | --context=a                           | user "j" of context "a" has no key for this program | kubeconfig --write --context a`
3 | --context=a --kubeconfig=$HOME/kubeconfig | has no key for this program                       | kubeconfig --write --kubeconfig=HOME/kubeconfig --context a`
3 | --kubeconfig=$HOME/broken              | line 1                                            | correct the file
3 | --kubeconfig='not here.yaml'          | there is no kubeconfig not here.yaml              | correct --kubeconfig or KUBECONFIG
3 | --module= --slot-id=x --object-id=1   | pathLib is empty                                  | give pathLib
3 | --module=$MODULE --slot-id=y --object-id=z | slotId "y"                                   | write slotId
7 | KEY                                   | wants a PIN, and there is no terminal             | set pinSource (--pin-source) to askpass
2 | KEY --context=a                       | beside options that name a key needs --server     | --help shows
2 | KEY --kubeconfig=/nowhere             | beside options that name a key needs --server     | --help shows
3 | KEY --server --kubeconfig=/nowhere    | there is no kubeconfig /nowhere                   |
7 | KEY --pin-source=prompt               | no terminal to ask                                | from a terminal
4 | KEY --module=/nowhere/library.so      | /nowhere/library.so does not load                 | installed
4 | KEY --module=/etc/passwd              | /etc/passwd does not load                         | built for this machine
3 | KEY --module=$HOME/open.so            | can be changed by every user                      | chmod go-w
5 | KEY --token-serial=0000               | no token with tokenLabel "test token" and tokenSerial "0000" | insert the token
6 | KEY PIN --object-label=other          | no certificate with objectId "1" and objectLabel "other" | correct the name
6 | --module=$MODULE --token-label=alone --object-id=1 PIN | no private key with objectId "1"                  | made on it
6 | --module=$MODULE --token-label=foreign --object-id=1 PIN | does not belong to the key with objectId "1"      | install the certificate
"#;

#[test]
fn what_is_wrong_is_told_with_its_remedy() {
    let store = Store::new([
        blueprint("test token", Object::pair(key(Kind::P256), &[1])),
        blueprint("alone", [Object::certificate(key(Kind::P256), &[1])]),
        blueprint(
            "foreign",
            [
                Object::key(key(Kind::OtherRsa), &[1]),
                Object::certificate(key(Kind::Rsa(2048)), &[1]),
            ],
        ),
    ]);
    let home = store.directory.path();
    let contexts = "contexts: [{name: a, context: {user: j}}, {name: b}]\nusers: [{name: j, user: {token: t}}]\n";
    fs::write(home.join("kubeconfig"), contexts).unwrap();
    fs::write(home.join("broken"), "users: [").unwrap();
    store.library("open.so", 0o666);
    for row in WRONG.lines().skip(1) {
        let cells: Vec<_> = row.split('|').map(str::trim).collect();
        let [code, options, what, remedy] = cells[..] else { panic!("{row}") };
        let module = if options.contains("--module") { "" } else { "--module=$MODULE" };
        let key = format!("{module} --token-label='test token' --object-id=1");
        let options = options.replace("KEY", &key).replace("PIN", PIN_SOURCE);
        let run = Invocation::new(home)
            .variable("KUBECONFIG", home.join("kubeconfig"))
            .variable("MODULE", softhsm_library())
            .variable("TOKEN_PIN", PIN)
            .within("bash", &format!("\"$SIGNER\" check {options}"));
        let remedy = remedy.replace("HOME", home.to_str().unwrap());
        fails(&run.run(), code.parse().unwrap(), what, &remedy);
    }
    let document = check(&store, &["--json"]).run().document();
    let login = document["steps"].as_array().unwrap().last().unwrap();
    assert!(login["help"].as_str().unwrap().contains("set pinSource (--pin-source)"));
    let none = token_with([]);
    let nothing = Invocation::new(none.directory.path()).argument("check").run();
    let missing =
        format!("there is no kubeconfig {}/.kube/config", none.directory.path().display());
    fails(&nothing, 3, &missing, "--kubeconfig or KUBECONFIG");
}

#[test]
fn what_the_token_cannot_sign_is_told() {
    let none = token_withholding(&[MechanismType::ECDSA], Kind::P256);
    fails(&check(&none, &[PIN_SOURCE]).run(), 8, "CKM_ECDSA", "");
    let store = token_with_pair(Kind::P256);
    for (faults, what) in
        [("C_Sign:flip", "ECDSA P-256"), ("C_SignInit:return=0x30", "C_SignInit: CKR_DEVICE_ERROR")]
    {
        fails(&check_faulty(&store, faults, &[PIN_SOURCE]).run(), 8, what, "");
    }
    // TLS 1.2 alone is left to a token without RSA-PSS.
    let no_pss = [MechanismType::RSA_PKCS_PSS, MechanismType::RSA_X_509];
    let old = token_withholding(&no_pss, Kind::Rsa(2048));
    let text = told(&check(&old, &[PIN_SOURCE]).run(), 0);
    assert!(text.contains("! mechanisms     the token offers RSA PKCS #1 v1.5"), "{text}");
    assert!(text.contains("! TLS            this key can serve TLS 1.2, not TLS 1.3"), "{text}");
}

#[test]
fn a_refused_pins_remedy_can_be_typed_as_it_is_printed() {
    let store = token_with_pair(Kind::P256);
    for is_first in [true, false] {
        let outcome = check(&store, &["--pin-source=env:NO_PIN"]).run();
        fails(&outcome, 7, "refused", "log in yourself: `pkcs11-external-signer check --module=/");
        let text = told(&outcome, 7);
        assert!(
            is_first
                || text.contains(
                    " --token-label='test token' --object-id=1 --pin-source=env:NO_PIN \
                     --despite-refusal` sends"
                ),
            "{text}"
        );
    }
    let piped = check(&store, &["--pin-source=stdin"]).piped(format!("{PIN}\n")).run();
    fails(&piped, 7, "from standard input was not sent", "in a terminal");
    let refused = told(&check(&store, &["--pin-source=env:NO_PIN"]).run(), 7);
    told(&check(&store, &[]).what_is_told(&refused).at_terminal().finish_with_pin(), 0);
    told(&check(&store, &[PIN_SOURCE]).run(), 0);
}

/// Library, token and key, where there is one of it.
#[test]
fn what_the_options_leave_out_is_found() {
    let store = token_with_pair(Kind::P256);
    let module = softhsm_option();
    let (token, id) = ("--token-label=test token", "--object-id=1");
    let run = |store: &Store, arguments: &[&str]| {
        store.with_pin(&["check"]).arguments(arguments).argument(PIN_SOURCE).run()
    };
    for options in [
        &[module][..],
        &[token],
        &[id],
        &[module, id],
        &[module, token],
        &[token, id],
        &["--uri=pkcs11:token=test%20token"],
    ] {
        let text = told(&run(&store, options), 0);
        let found = "✔ configuration  from the options, completed: pkcs11:token=test%20token;";
        assert!(text.starts_with(found), "{options:?}\n{text}");
        assert!(text.contains("signed and verified"), "{text}");
    }
    // Without a kubeconfig that names one, too.
    let text = told(&run(&store, &[]), 0);
    let home = store.directory.path().display();
    let found = format!(
        "! configuration  there is no kubeconfig {home}/.kube/config; the only key that can be used is \
         checked: pkcs11:token=test%20token;"
    );
    assert!(text.starts_with(&found), "{text}");
    assert!(text.contains("signed and verified"), "{text}");
    // A key that doesn't show is taken at its word, and one that is unusable is reported.
    let hidden = token_with([
        Object::key(key(Kind::P256), &[1]),
        Object::certificate(key(Kind::P256), &[1]).private(),
    ]);
    let text = told(&run(&hidden, &[module, id]), 0);
    assert!(text.contains("completed: token \"test token\""), "{text}");
    let expired = token_of("/CN=jane", -1, 1);
    fails(&run(&expired, &[module]), 6, "expired", "");
    // Of several, one has to be chosen.
    let two = token_with(
        [Object::pair(key(Kind::P256), &[1]), Object::pair(key(Kind::P384), &[2])].concat(),
    );
    for options in [&[][..], &[module], &[token]] {
        let outcome = run(&two, options);
        fails(&outcome, 6, "2 keys match", "name one:");
        let text = told(&outcome, 6);
        assert!(text.contains("\n    --uri='pkcs11:token=test%20token;"), "{text}");
        assert!(text.contains(";id=%02?module-path="), "{text}");
    }
    told(&run(&two, &["--object-id=2"]), 0);
}

/// A configuration takes absolute paths only; who types one is somewhere.
#[test]
fn relative_paths_are_taken_on_the_command_line() {
    let store = token_with_pair(Kind::P256);
    let home = store.directory.path();
    fs::copy(key(Kind::P256).certificate_pem(), home.join("jane.pem")).unwrap();
    symlink(softhsm_library(), home.join("lib.so")).unwrap();
    let pin = home.join("pin");
    write_file(&pin, PIN, 0o600);
    let run = |arguments: &str| {
        let script = format!("mkdir -p \"$HOME/a\" && cd \"$HOME/a\" && \"$SIGNER\" {arguments}");
        Invocation::new(home).within("sh", &script).run()
    };
    let key = "--module=../lib.so --token-label='test token' --object-id=1";
    let files = "--certificate-file ./../jane.pem --pin-source=file:../pin";
    let text = told(&run(&format!("check {key} {files}")), 0);
    assert!(text.contains("signed and verified"), "{text}");
    let printed = run(&format!("kubeconfig --external-signer {key} {files} --user=jane")).printed();
    for line in [
        format!("pathLib: {}/a/../lib.so\n", home.display()),
        format!("certificateFile: {}/a/../jane.pem\n", home.display()),
        format!("pinSource: file:{}/a/../pin\n", home.display()),
    ] {
        assert!(printed.contains(&line), "no {line:?} in\n{printed}");
    }
    let listed = run(&format!("list --login {key} --pin-source=file:../pin")).printed();
    assert!(listed.contains("ECDSA P-256"), "{listed}");
    fs::write(
        home.join("config"),
        "clusters: [{name: c, cluster: {server: s}}]\ncontexts: [{name: a, context: {cluster: c}}]",
    )
    .unwrap();
    run(&format!("kubeconfig {key} {files} --write --context=a --kubeconfig ../config")).printed();
    assert!(fs::read_to_string(home.join("config")).unwrap().contains("cluster: c+token"));
    let relative = "users: [{name: j, user: {auth-provider: {name: externalSigner, config: \
                    {pathLib: lib.so, tokenLabel: test token, objectId: \"1\"}}}}]\n\
                    contexts: [{name: a, context: {user: j}}]\n";
    fs::write(home.join("relative"), relative).unwrap();
    let outcome = run("check --kubeconfig=../relative --context=a");
    fails(&outcome, 3, "pathLib \"lib.so\" is not an absolute path", "");
}

#[test]
fn a_token_that_stays_in_use_is_told() {
    needs_isolation!();
    let store = token_with_pair(Kind::P256);
    told(&check(&store, &["--no-login"]).run(), 0);
    let _held = store.hold_libraries();
    let busy = &check(&store, &["--json"]).run().document()["steps"][1];
    assert_eq!((&busy["step"], &busy["exitCode"]), (&"token".into(), &5.into()));
    let text = busy["text"].as_str().unwrap();
    assert!(text.contains("did not become free within 90 s"), "{text}");
    let help = busy["help"].as_str().unwrap();
    assert!(help.contains("end the other request"), "{help}");
}

#[test]
fn what_is_wrong_with_the_pin_is_told_and_costs_no_more_than_one_try() {
    let store = token_with_pair(Kind::P256);
    let state = |flag: &str| {
        check_faulty(&store, &format!("C_GetTokenInfo:set={flag}"), &[PIN_SOURCE]).run()
    };
    let locked = "C_GetTokenInfo:set=CKF_USER_PIN_LOCKED";
    for outcome in
        [state("CKF_USER_PIN_LOCKED"), check_faulty(&store, locked, &["--no-login"]).run()]
    {
        fails(&outcome, 7, "the PIN of token \"test token\"", "PUK");
    }
    fails(&state("CKF_USER_PIN_TO_BE_CHANGED"), 7, "must be changed", "--change-pin");
    fails(&state("CKF_USER_PIN_FINAL_TRY"), 7, "has one PIN try left", "type the PIN yourself");
    assert_eq!(store.calls("C_Login"), [""; 0]);
    let low = "C_GetTokenInfo:set=CKF_USER_PIN_COUNT_LOW";
    fails(
        &check_faulty(&store, low, &[PIN_SOURCE]).run(),
        7,
        "seems to have refused a PIN; the PIN from the environment variable TOKEN_PIN was not sent",
        "--despite-refusal` sends the stored PIN once",
    );
    assert_eq!(store.calls("C_Login"), [""; 0]);
    let low = check_faulty(&store, low, &[PIN_SOURCE, "--despite-refusal"]).run();
    let low = told(&low, 0);
    assert!(low.contains("! PIN tries      the token has counted a wrong PIN"), "{low}");
    let none = check(&store, &[]).run();
    fails(&none, 7, "wants a PIN, and there is no terminal", "--pin-source");
    let wrong = check_faulty(&store, "", &["--pin-source=env:NO_PIN"]).run();
    fails(&wrong, 7, "refused the PIN from the environment variable NO_PIN", "every try counts");
    assert_eq!(store.calls("C_Login"), ["0x0", "0xa0"]);
}

/// What the openssl command can't issue: a certificate for the P-256 key that isn't valid yet.
fn not_valid_yet() -> Vec<u8> {
    let pem = fs::read_to_string(key(Kind::P256).private_pem()).unwrap();
    let mut parameters = rcgen::CertificateParams::default();
    parameters.distinguished_name = rcgen::DistinguishedName::new();
    parameters.distinguished_name.push(rcgen::DnType::CommonName, "jane");
    parameters.extended_key_usages = vec![ClientAuth];
    parameters.not_before = rcgen::date_time_ymd(2100, 1, 1);
    parameters.not_after = rcgen::date_time_ymd(2101, 1, 1);
    let key = rcgen::KeyPair::from_pem(&pem).unwrap();
    parameters.self_signed(&key).unwrap().der().to_vec()
}

#[test]
fn what_is_wrong_with_the_certificate_is_told_and_its_key_is_tried_all_the_same() {
    for (certificate, what) in [
        ("/O=dev/CN=jane", -1, "clientAuth", "O=dev, CN=jane: it expired 20"),
        ("/O=dev/CN=jane", 9, "serverAuth", "extended key usage does not allow TLS clients"),
        ("/O=dev", 9, "clientAuth", "O=dev: it names no user (CN)"),
    ]
    .map(|(subject, days, usage, what)| (issued(Kind::P256, subject, days, usage), what))
    .into_iter()
    .chain([(not_valid_yet(), "CN=jane: it is not valid before 2100-01-01 00:00 UTC")])
    {
        let store = token_with(Object::certified(Kind::P256, certificate, &[1]));
        let outcome = check(&store, &[PIN_SOURCE]).run();
        let help = match what.contains("expired") {
            true => "`pkcs11-external-signer enroll --module=",
            false => "have the cluster's CA issue one",
        };
        fails(&outcome, 6, what, help);
        assert!(told(&outcome, 6).contains("✔ signature"), "{what}");
    }
    let certificate =
        expiring(Kind::P256, "jane", time::Duration::hours(9 * 24 - 1), ClientAuth, authority());
    let end = expiry(&certificate);
    let soon = token_with(Object::certified(Kind::P256, certificate, &[1]));
    // It is asked, so it says so each time.
    for _ in 0..2 {
        let text = told(&check(&soon, &[PIN_SOURCE]).run(), 0);
        assert!(text.contains(&format!("! validity       it expires {end}\n")), "{text}");
        let help = "  help: renew it: `pkcs11-external-signer renew --module=";
        assert!(text.contains(help), "{text}");
    }
}

/// Whether the token shows it before the login or after, the key isn't used. A public key beside it
/// is reported, but requests don't look at it.
#[test]
fn a_certificate_of_another_type_of_key_is_told() {
    for (own, other) in [(Kind::P256, Kind::Rsa(2048)), (Kind::Rsa(2048), Kind::P256)] {
        let [own, other] = [own, other].map(key);
        let seen = [Object::key(own, &[1]), Object::public_key(own, &[1])];
        let hidden = [Object::key(own, &[1])];
        let certificate = Object::certificate(other, &[1]);
        let file = format!("--certificate-file={}", other.certificate_pem().display());
        let with_certificate =
            |objects: &[Object]| token_with(objects.iter().cloned().chain([certificate.clone()]));
        for (store, file, place) in [
            (with_certificate(&seen), None, "private key"),
            (with_certificate(&hidden), None, "private key"),
            (token_with(seen), Some(&*file), "certificate"),
            (token_with(hidden), Some(&*file), "private key"),
        ] {
            let arguments: Vec<_> = [PIN_SOURCE].into_iter().chain(file).collect();
            let outcome = check_faulty(&store, "", &arguments).run();
            fails(
                &outcome,
                6,
                "does not belong to the key with objectId \"1\"",
                "install the certificate",
            );
            let text = told(&outcome, 6);
            assert!(text.contains(&format!("✘ {place}")), "{text}");
            assert_eq!(store.calls("C_SignInit"), [] as [&str; 0]);
        }
    }
}

#[test]
fn the_document_has_every_step_and_the_exit_code() {
    let store = token_with_pair(Kind::P256);
    let outcome = check(&store, &["--json", "--pin-source=env:NO_PIN"]).run();
    let document = outcome.document();
    assert_eq!(outcome.status.code(), Some(7));
    assert_eq!(document["apiVersion"], "pkcs11-external-signer/v1");
    assert_eq!(document["exitCode"], 7);
    let steps: Vec<_> = document["steps"].as_array().unwrap().iter().collect();
    let names: Vec<_> = steps.iter().map(|step| step["step"].as_str().unwrap()).collect();
    let expected = "configuration library token pin-tries certificate credential-id validity public-key \
                    mechanisms login";
    assert_eq!(names.join(" "), expected);
    let login = steps.last().unwrap();
    assert_eq!((&login["status"], &login["exitCode"]), (&"bad".into(), &7.into()));
    assert!(login["help"].as_str().unwrap().starts_with("correct the PIN at its source"));
    assert_eq!(steps[0]["help"], Value::Null);
}

#[test]
fn the_cluster_tells_as_whom_it_knows_us() {
    let store = cluster().token(Kind::Rsa(2048), ADMINISTRATOR);
    let outcome = cluster()
        .command(&store, &store.faulty(store.configuration_with_pin_source()), "check")
        .suffering(&store, "")
        .argument("--server")
        .run();
    let text = told(&outcome, 0);
    assert!(
        text.starts_with("✔ configuration  context \"test\", cluster \"test\", user \"jane\"\n"),
        "{text}"
    );
    let known = "knows us as user \"jane\", groups \"system:masters\", \"system:authenticated\"\n";
    assert!(text.ends_with(known), "{text}");
    // The connection's key is in a process of its own, one after the other.
    for twice in ["C_Initialize", "C_Login", "C_Finalize"] {
        assert_eq!(store.calls(twice), ["0x0", "0x0"], "{twice}");
    }
}

#[test]
fn what_is_wrong_with_the_cluster_is_told() {
    let server = |store: &Store, change: &dyn Fn(&str) -> String| {
        let invocation = cluster().command(store, &store.configuration_with_pin_source(), "check");
        let path = store.path("kubeconfig");
        fs::write(&path, change(&fs::read_to_string(&path).unwrap())).unwrap();
        invocation.argument("--server").run()
    };
    let same = |text: &str| text.to_owned();
    let stranger = token_of("/CN=jane", 30, 1);
    fails(&server(&stranger, &same), 9, "cluster \"test\"", "client CA file of this API server");
    let store = cluster().token(Kind::P256, JANE);
    // Nobody is asked for a PIN in vain.
    let absent = |text: &str| text.replace("\"cluster\":\"test\"", "\"cluster\":\"gone\"");
    let outcome = server(&store, &absent);
    let what = "cluster        the kubeconfig has no cluster \"gone\"";
    fails(&outcome, 3, what, "`kubectl config get-clusters");
    assert!(!told(&outcome, 3).contains("PIN"), "{outcome:?}");
    let nobody = |text: &str| {
        let (before, rest) = text.split_once("https://").unwrap();
        let (_, after) = rest.split_once('"').unwrap();
        format!("{before}https://127.0.0.1:1\"{after}")
    };
    fails(&server(&store, &nobody), 9, "no connection", "check that the API server runs");
    let unverified = |text: &str| {
        let (before, rest) = text.split_once("\"certificate-authority\":\"").unwrap();
        let (_, after) = rest.split_once('"').unwrap();
        let other = key(Kind::Authority).certificate_pem();
        format!("{before}\"certificate-authority\":\"{}\"{after}", other.display())
    };
    fails(&server(&store, &unverified), 9, "is not trusted", "certificate-authority-data");
    let own = server_certificate(store.directory.path());
    let (_trusting, address) = Server::with(&own.each_ref().map(Path::new), &["-tls1_3"]);
    let unasked = |text: &str| nobody(text).replace("https://127.0.0.1:1", &address);
    fails(&server(&store, &unasked), 9, "asked for no client certificate", "ends TLS");
    let expired = cluster().token(Kind::P256, Claims { days: -1, ..JANE });
    fails(&server(&expired, &same), 6, "it expired 20", "pkcs11-external-signer enroll");
}

/// A token with an RSA key that is used with no other mechanism than these.
fn token_allowing(mechanisms: &[MechanismType]) -> Store {
    let [private, certificate] = Object::pair(key(Kind::Rsa(2048)), &[1]);
    token_with([private.allowing(mechanisms), certificate])
}

/// SoftHSM keeps to CKA_ALLOWED_MECHANISMS, whatever else it offers.
#[test]
fn what_a_key_may_not_be_used_for_is_told_of_the_key() {
    use MechanismType as It;
    let hashing = token_allowing(&[It::SHA256_RSA_PKCS, It::SHA384_RSA_PKCS]);
    let cause = "may not make RSA-PSS with SHA-256, salt 32 signatures: its CKA_ALLOWED_MECHANISMS are \
                 CKM_SHA256_RSA_PKCS and CKM_SHA384_RSA_PKCS, without CKM_RSA_PKCS_PSS or CKM_RSA_X_509";
    let remedy = "use a key without such a list, as `pkcs11-external-signer enroll` makes it";
    fails(&check(&hashing, &[PIN_SOURCE]).run(), 8, cause, remedy);
    let digest = sample(32);
    hashing.sign(&Options::pss(Hash::Sha256, 32), &digest).run().fails(8, &[cause, remedy]);

    let pss = token_allowing(&[It::RSA_PKCS_PSS]);
    let text = told(&check(&pss, &[PIN_SOURCE]).run(), 0);
    let pkcs1 = ["256", "384", "512"].map(|bits| format!("RSA PKCS #1 v1.5 with SHA-{bits}"));
    let lacking = format!(
        "! private key    the key may not make {} (CKA_ALLOWED_MECHANISMS)\n",
        pkcs1.join("; ")
    );
    assert!(text.contains(&lacking), "{text}");
    assert_eq!(text.matches(": signed and verified").count(), 3, "{text}");
    assert!(text.ends_with("this key can serve TLS 1.3 and TLS 1.2\n"), "{text}");
    // Padded here.
    let bare = token_allowing(&[It::RSA_X_509]);
    assert!(!told(&check(&bare, &[PIN_SOURCE]).run(), 0).contains("CKA_ALLOWED_MECHANISMS"));
}

#[test]
fn what_every_api_server_refuses_a_certificate_for_is_told() {
    let pem = fs::read_to_string(key(Kind::P256).private_pem()).unwrap();
    let pair = rcgen::KeyPair::from_pem(&pem).unwrap();
    let name = der::element(0x30, &[&der::relative(der::COMMON_NAME, "jane")]);
    let negative = der::Fields { serial: b"\x02\x01\xfb", name: &name, ..Default::default() };
    let negative = negative.signed(&pair, &pair);
    let store = token_with(Object::certified(Kind::P256, negative.clone(), &[1]));
    let cause = "API servers refuse its serial number, which is negative";
    fails(&check(&store, &[PIN_SOURCE]).run(), 6, cause, "have the cluster's CA issue one");
    let file = store.file("negative.der", negative, 0o600);
    let install = ["enroll", softhsm_option(), "--certificate", file.to_str().unwrap()];
    let outcome = store.with_pin(&install).run();
    outcome.fails(6, &["is of no use here: API servers refuse its serial number", "SHA-256"]);
}
