//! NSS, whose library has to be told at its start where its databases are.

use super::conformance::Held;
use super::differences::{assert_documented, library_version};
use super::environment::{Environment, Offer, Pair, Token};
use crate::enroll::subject_of;
use crate::fixture::*;

fn environment(pairs: impl IntoIterator<Item = Pair>) -> Environment {
    Environment::holding("nss", pairs, &[], &[])
}

fn token(environment: &Environment) -> Token<'_> {
    let Token { configuration, .. } = environment.token("NSS_MODULE", "NSS Certificate DB", &[]);
    let configuration = configuration.with("initArgs", environment.variable("NSS_INIT_ARGS"));
    Token { configuration, environment, variables: &[] }
}

fn options(environment: &Environment) -> [String; 2] {
    [
        format!("--module={}", environment.variable("NSS_MODULE")),
        format!("--init-args={}", environment.variable("NSS_INIT_ARGS")),
    ]
}

/// The CKA_ID that NSS has given to the pair of this name.
fn id(environment: &Environment, name: &str) -> String {
    let [module, init_args] = options(environment);
    let list = ["list", "--json", &module, &init_args];
    let library = &token(environment).command(&list).run().json()["libraries"][0];
    assert_eq!(library["initArgs"], environment.variable("NSS_INIT_ARGS"));
    let tokens = library["tokens"].as_array().unwrap().iter();
    let mut keys = tokens.flat_map(|token| token["keys"].as_array().unwrap());
    let key = keys.find(|key| key["objectLabel"] == name).unwrap();
    key["objectId"].as_str().unwrap().to_owned()
}

#[test]
#[ignore = "scripts/test --all"]
fn it_does_what_the_table_says() {
    assert_documented("NSS", |ask| {
        let environment = environment([Pair::new("a", Kind::Rsa(2048))]);
        let mut token = token(&environment);
        // Keys are made.
        let init_args = environment.variable("NSS_INIT_ARGS").replace(" flags=readOnly", "");
        token.configuration = token.configuration.with("initArgs", &init_args);
        ask(&token);
    });
}

#[test]
#[ignore = "scripts/test --all"]
fn it_conforms() {
    let kinds = [("a", Kind::P256), ("b", Kind::Rsa(2048)), ("c", Kind::P384), ("d", Kind::P521)];
    let mut keys = kinds.map(|(name, kind)| Held::new(name, kind));
    let environment = environment([0, 1, 2, 3].map(|at| keys[at].pair(kinds[at].0)));
    for held in &mut keys {
        held.id = id(&environment, &held.id);
    }
    let listed = "tokenLabel \"NSS Certificate DB\"";
    let token = token(&environment);
    token.assert_conforms(&keys, listed, |_, _| Offer::Made);
    if library_version(&token) < ED25519 {
        token.assert_offers_no_ed25519();
    }
}

/// From these versions on, or earlier ones that weren't tested.
const ED25519: [u32; 2] = [3, 110];
const ML_DSA: [u32; 2] = [3, 131];

#[test]
#[ignore = "scripts/test --all"]
fn keys_of_newer_kinds_are_made_and_sign_where_there_are_any() {
    let environment = environment([Pair::new("a", Kind::P256)]);
    let token = token(&environment);
    let version = library_version(&token);
    let [module, read_only] = options(&environment);
    let init_args = read_only.replace(" flags=readOnly", "");
    let label = "--token-label=NSS Certificate DB";
    let kinds =
        [("ed25519", ED25519), ("ml-dsa-44", ML_DSA), ("ml-dsa-65", ML_DSA), ("ml-dsa-87", ML_DSA)];
    for (kind, _) in kinds.into_iter().filter(|(_, first)| version >= *first) {
        let enroll = || {
            let key = [&*format!("--user={kind}"), "--csr=-", "--key", kind];
            let enroll = token.command(&["enroll", &module, &init_args, label]).arguments(&key);
            enroll.argument("--pin-source=env:TOKEN_PIN").run()
        };
        // The first one makes the key, and the second one finds it.
        for request in [enroll().printed_beside(&["CKA_LOCAL"]), enroll().printed()] {
            let request = environment.store.file("request.csr", request, 0o600);
            let subject = subject_of(request.to_str().unwrap());
            assert_eq!(subject, format!("subject=CN = {kind}"));
        }
    }
}

#[test]
#[ignore = "scripts/test --all"]
fn it_is_found_by_its_registration_and_told_what_is_written_down() {
    let environment = environment([Pair::new("a", Kind::P256)]);
    let token = token(&environment);
    let [module, _] = options(&environment);
    // Without being told where its databases are, an older one says no, and a newer one has nothing.
    let untold = token.command(&["list", &module]).run();
    let request = token.configuration("1").without("initArgs");
    let request = token.ask(&certificate_request(&request)).run();
    let remedy = ["set initArgs (--init-args)", "configDir="];
    if library_version(&token) < [3, 110] {
        untold.fails(4, &remedy).fails(4, &["CKR_ARGUMENTS_BAD"]);
        request.fails(4, &remedy).fails(4, &["CKR_ARGUMENTS_BAD"]);
    } else {
        assert_contains(&untold.shown(), &remedy);
        request.fails(6, &["no certificate with objectId \"1\""]);
    }

    let home = environment.store.directory.path();
    let registry = home.join(".config/pkcs11/modules");
    fs::create_dir_all(&registry).unwrap();
    let registration = format!(
        "module: {}\nx-init-reserved: {}\n",
        environment.variable("NSS_MODULE"),
        environment.variable("NSS_INIT_ARGS")
    );
    fs::write(registry.join("nss.module"), registration).unwrap();
    let listed = token.command(&["list"]).run().printed();
    let of_nss = listed.split_once("libsoftokn3.so\n").unwrap().1;
    assert_contains(of_nss, &["tokenLabel \"NSS Certificate DB\"", "ECDSA P-256"]);
    let label = "--token-label=NSS Certificate DB";
    let written = token.command(&["kubeconfig", "--external-signer", label]).run().printed();
    let line = format!("initArgs: {}", environment.variable("NSS_INIT_ARGS"));
    assert!(written.contains(&line), "no {line} in\n{written}");
}

#[test]
#[ignore = "scripts/test --all"]
fn a_key_is_made_where_the_database_is_opened_for_writing() {
    let environment = environment([Pair::new("a", Kind::P256)]);
    let token = token(&environment);
    let [module, read_only] = options(&environment);
    let enroll = |init_args: &str| {
        let label = "--token-label=NSS Certificate DB";
        let request = ["--user=jane", "--csr=-", "--pin-source=env:TOKEN_PIN"];
        token.command(&["enroll", &module, init_args, label]).arguments(&request).run()
    };
    let told = ["CKR_SESSION_READ_ONLY", "initArgs, --init-args, without flags=readOnly"];
    enroll(&read_only).fails(6, &told);
    let made = enroll(read_only.strip_suffix(" flags=readOnly").unwrap());
    let made = made.printed_beside(&["CKA_LOCAL"]);
    assert!(made.starts_with("-----BEGIN CERTIFICATE REQUEST-----"), "{made}");
}

/// Of NSS's two tokens, the first takes no key.
#[test]
#[ignore = "scripts/test --all"]
fn an_empty_directory_is_told_what_it_needs() {
    let environment = environment([Pair::new("a", Kind::P256)]);
    let token = token(&environment);
    let [module, _] = options(&environment);
    let directory = environment.store.path("new");
    fs::create_dir(&directory).unwrap();
    let place = format!("sql:{}", directory.display());
    let init_args = format!("--init-args=configDir='{place}' certPrefix='' keyPrefix='' secmod=''");
    let listed = token.command(&["list", &module, &init_args]).run().shown();
    let set_one = format!("has no user PIN yet\n  help: set one: `certutil -N -d {place}`");
    assert_contains(&listed, &["tokenLabel \"NSS Certificate DB\"", &set_one]);

    let pin = environment.store.file("pin", PIN, 0o600);
    let mut certutil = tool("certutil", "libnss3-tools");
    printed(certutil.args(["-N", "-d", &place, "-f"]).arg(pin));
    let read_only = format!("{init_args} flags=readOnly");
    let listed = token.command(&["list", &module, &read_only]).run().printed();
    let (_, advised) = listed.split_once("pkcs11-external-signer enroll ").expect(&listed);
    let (advised, _) = advised.split_once('`').unwrap();
    assert_contains(advised, &["--token-label='NSS Certificate DB'"]);
    let rest = "--user=jane --csr=- --pin-source=env:TOKEN_PIN";
    let enroll = format!("exec \"$SIGNER\" enroll {advised} {rest}");
    let request = token.command(&[]).within("sh", &enroll).run();
    let request = request.printed_beside(&["CKA_LOCAL"]);
    assert!(request.starts_with("-----BEGIN CERTIFICATE REQUEST-----"), "{request}");
}
