//! NSS, whose library has to be told at its start where its databases are.

use std::fs;

use serde_json::Value;

use super::environment::{Environment, Offer, Pair, Token, directory_with};
use crate::fixture::keys::{Kind, key};
use crate::fixture::request::Configuration;

fn environment(pairs: impl IntoIterator<Item = Pair>) -> Environment {
    let store = directory_with(pairs);
    let directory = store.directory.path().to_str().unwrap().to_owned();
    Environment::new("nss", &[&directory], &[], store)
}

fn token(environment: &Environment) -> Token<'_> {
    Token {
        environment,
        variables: &[],
        configuration: Configuration::default()
            .with("pathLib", environment.variable("NSS_MODULE"))
            .with("initArgs", environment.variable("NSS_INIT_ARGS"))
            .with("tokenLabel", "NSS Certificate DB"),
    }
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
    let printed = token(environment).command(&list).run().printed();
    let document: Value = serde_json::from_str(&printed).unwrap();
    let library = &document["libraries"][0];
    assert_eq!(library["initArgs"], environment.variable("NSS_INIT_ARGS"));
    let tokens = library["tokens"].as_array().unwrap().iter();
    let mut keys = tokens.flat_map(|token| token["keys"].as_array().unwrap());
    let key = keys.find(|key| key["objectLabel"] == name).unwrap();
    key["objectId"].as_str().unwrap().to_owned()
}

#[test]
#[ignore = "scripts/test --all-tokens"]
fn every_scheme_is_signed() {
    let kinds = [("a", Kind::Rsa(2048)), ("b", Kind::P256), ("c", Kind::P384), ("d", Kind::P521)];
    let environment = environment(kinds.map(|(name, kind)| Pair::new(name, kind)));
    let token = token(&environment);
    for (name, kind) in kinds {
        let id = id(&environment, name);
        let certificate = token.certificate(&id).run().silently().certificate();
        assert_eq!(certificate, key(kind).certificate);
        token.assert_signs(&id, kind, |_| Offer::Made);
    }
    token.assert_offers_no_ed25519();
}

#[test]
#[ignore = "scripts/test --all-tokens"]
fn twenty_requests_at_once_are_all_answered() {
    let environment = environment([Pair::new("a", Kind::P256)]);
    token(&environment).assert_all_answer(&id(&environment, "a"), Kind::P256, 20);
}

#[test]
#[ignore = "scripts/test --all-tokens"]
fn kubectl_reaches_the_cluster() {
    for kind in [Kind::Rsa(2048), Kind::P256] {
        let environment = environment([Pair::administrator("a", kind)]);
        token(&environment).assert_kubectl_gets(&id(&environment, "a"));
    }
}

#[test]
#[ignore = "scripts/test --all-tokens"]
fn it_is_found_by_its_registration_and_checked_with_what_is_written_down() {
    let environment = environment([Pair::new("a", Kind::P256)]);
    let token = token(&environment);
    let [module, init_args] = options(&environment);
    // Without being told where its databases are, it says no.
    let untold = token.command(&["list", &module]).run();
    untold.fails(4, &["CKR_ARGUMENTS_BAD", "set --init-args", "configDir="]);
    let request = token.configuration("1").without("initArgs");
    let request = crate::fixture::request::certificate_request(&request);
    let told = ["CKR_ARGUMENTS_BAD", "set initArgs"];
    token.ask(&request).run().fails(4, &told);

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
    for shown in ["tokenLabel \"NSS Certificate DB\"", "ECDSA P-256"] {
        assert!(of_nss.contains(shown), "no {shown} in\n{listed}");
    }
    let label = "--token-label=NSS Certificate DB";
    let written = token.command(&["kubeconfig", "--external-signer", label]).run().printed();
    let line = format!("initArgs: \"{}\"", environment.variable("NSS_INIT_ARGS"));
    assert!(written.contains(&line), "no {line} in\n{written}");

    let id = format!("--object-id={}", id(&environment, "a"));
    let check = ["check", &module, &init_args, label, &id];
    let check = token.command(&check).argument("--pin-source=env:TOKEN_PIN");
    let checked = check.run().told(0);
    let signed = "✔ signature      ECDSA P-256: signed and verified\n";
    assert!(checked.contains(signed), "{checked}");
}
