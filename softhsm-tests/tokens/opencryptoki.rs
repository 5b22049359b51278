//! opencryptoki's soft token: a token with a clock that isn't one, and its daemon.

use super::environment::{Environment, Offer, Pair, Token, directory_with};
use crate::fixture::keys::{Kind, key};
use crate::fixture::request::{Configuration, Hash, Scheme};

/// Its PINs have eight characters at most.
const SHORT_PIN: &str = "23456789";

fn environment(pairs: impl IntoIterator<Item = Pair>, more: &[(&str, &str)]) -> Environment {
    let store = directory_with(pairs);
    let directory = store.directory.path().to_str().unwrap().to_owned();
    let mut variables = vec![("TOKEN_PIN", SHORT_PIN)];
    variables.extend(more);
    let namespaces = ["--mount", "--ipc"];
    Environment::with(&variables, "opencryptoki", &[&directory], &namespaces, store)
}

fn token(environment: &Environment) -> Token<'_> {
    Token {
        environment,
        variables: &["TOKEN_PIN"],
        configuration: Configuration::default()
            .with("pathLib", environment.variable("OPENCRYPTOKI_MODULE"))
            .with("tokenLabel", "opencryptoki"),
    }
}

#[test]
#[ignore = "scripts/test --all-tokens"]
fn every_scheme_is_signed() {
    let kinds = [("01", Kind::Rsa(2048)), ("02", Kind::Rsa(3072))];
    let environment = environment(kinds.map(|(id, kind)| Pair::new(id, kind)), &[]);
    let token = token(&environment);
    for (id, kind) in kinds {
        let certificate = token.certificate(id).run().silently().certificate();
        assert_eq!(certificate, key(kind).certificate);
        token.assert_signs(id, kind, |scheme| match scheme {
            Scheme::Pss { hash: Hash::Sha224, .. } => Offer::PaddedHere,
            _ => Offer::Made,
        });
    }
    token.assert_offers_no_ed25519();
}

#[test]
#[ignore = "scripts/test --all-tokens"]
fn it_is_listed_and_checked() {
    let environment = environment([Pair::new("01", Kind::Rsa(2048))], &[]);
    let token = token(&environment);
    let module = format!("--module={}", environment.variable("OPENCRYPTOKI_MODULE"));
    // With its library's usual place, and by name.
    for list in [vec!["list"], vec!["list", &module]] {
        let listed = token.command(&list).run().printed();
        for shown in ["slotId 3, tokenLabel \"opencryptoki\"", "RSA-2048"] {
            assert!(listed.contains(shown), "no {shown} in\n{listed}");
        }
    }
    let check = ["check", &module, "--token-label=opencryptoki", "--object-id=01"];
    let check = token.command(&check).argument("--pin-source=env:TOKEN_PIN");
    let checked = check.run().told(0);
    let signed = "✔ signature      RSA-PSS with SHA-256, salt 32: signed and verified\n";
    assert!(checked.contains(signed), "{checked}");
}

#[test]
#[ignore = "scripts/test --all-tokens"]
fn a_token_that_is_not_initialised_is_told_the_same_everywhere() {
    let environment = environment([], &[("UNINITIALIZED", "1")]);
    let token = token(&environment);
    let module = format!("--module={}", environment.variable("OPENCRYPTOKI_MODULE"));
    let told = "the token in slotId 3 of ";
    let remedy = "help: initialise it, which erases what is on it: pkcs11-tool";
    let listed = token.command(&["list", &module]).run().printed();
    let check = ["check", &module, "--slot-id=3", "--object-id=1"];
    let checked = token.command(&check).run().told(5);
    for shown in [&listed, &checked] {
        assert!(shown.contains(told) && shown.contains(remedy), "{shown}");
    }
    token.certificate("1").run().fails(5, &["help: initialise the token"]);
}

#[test]
#[ignore = "scripts/test --all-tokens"]
fn twenty_requests_at_once_are_all_answered() {
    let environment = environment([Pair::new("01", Kind::Rsa(2048))], &[]);
    token(&environment).assert_all_answer("01", Kind::Rsa(2048), 20);
}

#[test]
#[ignore = "scripts/test --all-tokens"]
fn kubectl_reaches_the_cluster() {
    let environment = environment([Pair::administrator("01", Kind::Rsa(2048))], &[]);
    token(&environment).assert_kubectl_gets("01");
}
